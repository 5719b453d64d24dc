//! The Debian package, by `dpkg-deb`, which every Debian has and others can install (`apt-get install dpkg`).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Target;
use super::stage::set_mode;
use super::{Failure, copy, source};
use crate::succeeds;

/// What a package manager shows.
const DESCRIPTION: &str = "MQTT broker that keeps its footing under overload
 Slows the publisher that breaks its rhythm, serves the rare before the chatty,
 accounts for every message and says why. MQTT 3.1, 3.1.1 and 5 over TCP, TLS
 and WebSocket; SPARQL, SEPA and Smart-M3 beside it; a dashboard.";

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Packs the tree, and leaves it as it was but for `DEBIAN`.
pub(super) fn pack(tree: &Path, target: &Target, version: &str, out: &Path) -> Result<PathBuf, Failure> {
    let package = out.join(format!("tidegate_{version}_{}.deb", target.debian));
    let meta = tree.join("DEBIAN");
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(&meta)
            .and_then(|()| std::fs::write(meta.join(name), text))
            .map_err(|error| format!("DEBIAN/{name}: {error}"))
    };
    write("control", &control(target, version, kibibytes(tree)))?;
    write("conffiles", "/etc/tidegate/tidegate.toml\n")?;
    for script in SCRIPTS {
        copy(&source(&format!("dist/debian/{script}")), &meta.join(script))?;
        set_mode(&meta.join(script), 0o755)?;
    }
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "-Zgzip", "--build"]).arg(tree).arg(&package).env("SOURCE_DATE_EPOCH", "0");
    if succeeds(&mut pack) { Ok(package) } else { Err("no package: dpkg-deb is missing or failed".to_owned()) }
}

fn control(target: &Target, version: &str, kibibytes: u64) -> String {
    let mut text = String::new();
    let fields = [
        ("Package", "tidegate"),
        ("Version", version),
        ("Architecture", target.debian),
        ("Maintainer", "The Tidegate project <tidegate@localhost>"),
        ("Section", "net"),
        ("Priority", "optional"),
        ("Installed-Size", &kibibytes.to_string()),
        ("Description", DESCRIPTION),
    ];
    for (name, value) in fields {
        let _ = writeln!(text, "{name}: {value}");
    }
    text
}

/// What it takes on a disk.
fn kibibytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => kibibytes(&entry.path()),
        Ok(meta) => meta.len().div_ceil(1024),
        Err(_) => 0,
    });
    sizes.sum()
}
