//! What is inside: every crate that the programs are built from, as CycloneDX 1.5 has it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Failure;
use crate::cargo;

/// Writes the list; it is the same for all targets.
pub(super) fn write(out: &Path, version: &str) -> Result<PathBuf, Failure> {
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let file = out.join(format!("tidegate-{version}.cdx.json"));
    let text = format!("{:#}\n", bill(&metadata, version));
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

fn bill(metadata: &Value, version: &str) -> Value {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    // Our own have no source; what tests and tasks alone need is not shipped, but is listed rather than guessed.
    let others = packages.iter().filter(|package| !package["source"].is_null());
    let mut components: Vec<Value> = others.map(component).collect();
    components.sort_by_key(|it| it["purl"].as_str().unwrap_or_default().to_owned());
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "tidegate",
            "version": version,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        } },
        "components": components,
    })
}

fn component(package: &Value) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let mut component = json!({
        "type": "library",
        "name": text("name"),
        "version": text("version"),
        "purl": format!("pkg:cargo/{}@{}", text("name"), text("version")),
    });
    // Old manifests write a slash where SPDX has OR.
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_others_is_listed_with_its_licence() {
        let metadata = json!({ "packages": [
            { "name": "tidegate-core", "version": "0.2.0", "source": null, "license": "MIT" },
            { "name": "mio", "version": "1.0.0", "source": "registry", "license": "MIT" },
            { "name": "base64", "version": "0.22.1", "source": "registry", "license": "MIT/Apache-2.0" },
        ] });
        let bill = bill(&metadata, "0.2.0");
        let components = bill["components"].as_array().expect("a list");
        assert_eq!(components.len(), 2);
        assert_eq!(components[0]["purl"], "pkg:cargo/base64@0.22.1");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
