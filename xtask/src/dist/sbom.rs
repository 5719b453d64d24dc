//! What is inside: every crate that the programs are built from, as CycloneDX 1.5 has it. What only tests, tasks or the build
//! itself need is not shipped and not listed: an alarm about it would be a false one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Failure;
use super::build::{PACKAGES, Target};
use crate::cargo;

/// Writes the list for these targets.
pub(super) fn write(out: &Path, version: &str, targets: &[&Target]) -> Result<PathBuf, Failure> {
    let mut ask = cargo();
    ask.args(["metadata", "--format-version", "1", "--locked"]);
    for target in targets {
        ask.args(["--filter-platform", target.triple]);
    }
    let output = ask.output().map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let file = out.join(format!("tidegate-{version}.cdx.json"));
    let text = format!("{:#}\n", bill(&metadata, version));
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn bill(metadata: &Value, version: &str) -> Value {
    let inside = inside(metadata);
    // Our own have no source: they are the program.
    let others = list(metadata, "packages").iter().filter(|package| !package["source"].is_null());
    let others = others.filter(|package| package["id"].as_str().is_some_and(|id| inside.contains(id)));
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

/// Whatever the programs lead to, by cargo's names of packages. Each is entered once.
fn inside(metadata: &Value) -> BTreeSet<&str> {
    let is_program = |package: &&Value| PACKAGES.iter().any(|name| package["name"] == *name);
    let programs = list(metadata, "packages").iter().filter(is_program);
    let mut waiting: Vec<&str> = programs.filter_map(|package| package["id"].as_str()).collect();
    let nodes = list(&metadata["resolve"], "nodes");
    let mut inside = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !inside.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let leads_to = node.map_or(&[][..], |node| list(node, "deps")).iter();
        // A kind is null, "dev" or "build".
        let inner = leads_to.filter(|it| list(it, "dep_kinds").iter().any(|kind| kind["kind"].is_null()));
        waiting.extend(inner.filter_map(|it| it["pkg"].as_str()));
    }
    inside
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
        let package = |name: &str, version: &str, source: Value, license: &str| json!({ "id": name, "name": name, "version": version, "source": source, "license": license });
        let leads_to = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("tidegate-cli", "0.2.0", Value::Null, "MIT"),
                package("tidegate-core", "0.2.0", Value::Null, "MIT"),
                package("mio", "1.0.0", json!("registry"), "MIT"),
                package("base64", "0.22.1", json!("registry"), "MIT/Apache-2.0"),
                package("proptest", "1.0.0", json!("registry"), "MIT"),
                package("cc", "1.0.0", json!("registry"), "MIT"),
            ],
            "resolve": { "nodes": [
                { "id": "tidegate-cli", "deps": [leads_to("tidegate-core", Value::Null), leads_to("mio", Value::Null)] },
                { "id": "tidegate-core", "deps": [leads_to("base64", Value::Null), leads_to("proptest", json!("dev"))] },
                { "id": "base64", "deps": [leads_to("cc", json!("build")), leads_to("mio", Value::Null)] },
            ] },
        });
        let bill = bill(&metadata, "0.2.0");
        let components = bill["components"].as_array().expect("a list");
        assert_eq!(components.len(), 2, "what tests and builds need is not inside: {components:?}");
        assert_eq!(components[0]["purl"], "pkg:cargo/base64@0.22.1");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
