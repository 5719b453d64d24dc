//! Static programs: musl, linked by whatever is here. `cargo-zigbuild` links for every target; musl's own compiler for the
//! machine's own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Failure;
use crate::{cargo, succeeds, target as target_folder};

/// What can be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    /// As Debian calls it.
    pub(super) debian: &'static str,
    /// The compiler of Debian's `musl-tools`, if it has one for it.
    arch: &'static str,
}

pub(super) const TARGETS: [Target; 2] = [
    Target { triple: "x86_64-unknown-linux-musl", debian: "amd64", arch: "x86_64" },
    Target { triple: "aarch64-unknown-linux-musl", debian: "arm64", arch: "aarch64" },
];

/// The programs of a package.
pub(super) const PROGRAMS: [&str; 3] = ["tidegate", "tidegate-lab", "tidegate-bench"];
const PACKAGES: [&str; 6] = ["-p", "tidegate-cli", "-p", "tidegate-lab", "-p", "tidegate-bench"];

impl Target {
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.arch == std::env::consts::ARCH
    }

    /// Programs of qemu that run what is for this machine.
    pub(super) fn emulators(&self) -> [&'static str; 2] {
        match self.arch {
            "aarch64" => ["qemu-aarch64-static", "qemu-aarch64"],
            _ => ["qemu-x86_64-static", "qemu-x86_64"],
        }
    }

    /// For names of files.
    pub(super) fn arch(&self) -> &'static str {
        self.arch
    }
}

/// Builds the programs of a target; the folder that they are in.
pub(super) fn build(target: &Target) -> Result<PathBuf, Failure> {
    let is_there = |command: &mut Command| succeeds(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let libraries = Command::new("rustup").args(["target", "add", target.triple]).status();
    if !libraries.is_ok_and(|status| status.success()) {
        return Err(format!("its standard library is missing: rustup target add {}", target.triple));
    }
    let mut build = cargo();
    if is_there(cargo().args(["zigbuild", "--help"])) {
        build.arg("zigbuild");
    } else if target.is_of_this_machine() && is_there(Command::new("musl-gcc").arg("--version")) {
        build.arg("build").env(format!("CC_{}", target.triple.replace('-', "_")), "musl-gcc");
    } else {
        let own = if target.is_of_this_machine() { ", or apt-get install musl-tools" } else { "" };
        return Err(format!("no compiler: pip install ziglang cargo-zigbuild{own}"));
    }
    build.args(["--release", "--locked", "--target", target.triple]).args(PACKAGES);
    if !succeeds(&mut build) {
        return Err("it does not build".to_owned());
    }
    Ok(target_folder().join(target.triple).join("release"))
}
