//! Checks beside the workspace's own tests. Most need more than Rust and a C compiler: each passes, fails, or is skipped with
//! the reason. Nobody who has not got the tool is kept from testing, and nobody is told that a check passed which did not
//! run.

use std::process::{Command, Stdio};

use crate::{cargo, root, succeeds, target};

/// What became of a check.
pub(crate) enum Outcome {
    Passed,
    /// What is wrong.
    Failed(String),
    /// Why it did not run, or which part of it did not.
    Skipped(String),
}

pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Outcome,
}

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "fuzz targets", run: fuzz_targets },
    Check { name: "dependencies", run: dependencies },
    Check { name: "oldest Rust", run: oldest_rust },
    Check { name: "without std", run: without_std },
];

/// `fuzz/` is a workspace of its own, which nobody builds by the way. It is read with clippy and not linked: libFuzzer needs a
/// C++ compiler.
fn fuzz_targets() -> Outcome {
    let mut clippy = cargo();
    clippy.args([
        "clippy",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--bins",
        "--no-default-features",
        "--locked",
        "--quiet",
    ]);
    clippy.arg("--target-dir").arg(target()).args(["--", "-D", "warnings"]);
    if succeeds(&mut clippy) { Outcome::Passed } else { Outcome::Failed("fuzz/ does not build".to_owned()) }
}

/// Licences, sources and known weaknesses of what we build on (`deny.toml`). Needs cargo-deny, and for the last the
/// advisory database.
fn dependencies() -> Outcome {
    let deny = |arguments: &[&str]| succeeds(cargo().arg("deny").args(arguments));
    if !succeeds(cargo().args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null())) {
        return Outcome::Skipped("cargo install cargo-deny".to_owned());
    }
    if !deny(&["--locked", "check", "bans", "licenses", "sources"]) {
        return Outcome::Failed("bans, licences or sources".to_owned());
    }
    if !deny(&["--locked", "fetch", "db"]) {
        return Outcome::Skipped("advisories only: their database cannot be had here".to_owned());
    }
    if deny(&["--locked", "check", "advisories"]) { Outcome::Passed } else { Outcome::Failed("advisories".to_owned()) }
}

/// The toolchain that the workspace's manifest declares as the oldest that builds it.
fn oldest_rust() -> Outcome {
    let manifest = match std::fs::read_to_string(root().join("Cargo.toml")) {
        Ok(text) => text,
        Err(error) => return Outcome::Failed(format!("Cargo.toml: {error}")),
    };
    let Some(version) = declared_version(&manifest) else {
        return Outcome::Failed("Cargo.toml declares no rust-version".to_owned());
    };
    let toolchain = format!("+{version}");
    // rustup would install a toolchain that is asked for and missing; only its list says what is there.
    let installed = Command::new("rustup").args(["toolchain", "list"]).output();
    let is_there = installed.is_ok_and(|output| lists(&String::from_utf8_lossy(&output.stdout), version));
    if !is_there {
        return Outcome::Skipped(format!("rustup toolchain install {version} --profile minimal"));
    }
    let mut check = Command::new("cargo");
    check.arg(toolchain).args(["check", "--workspace", "--locked", "--quiet", "--target-dir"]);
    // This run's own toolchain must not leak into it.
    check.arg(target().join("oldest-rust")).current_dir(root()).env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    if succeeds(&mut check) { Outcome::Passed } else { Outcome::Failed(format!("does not build with Rust {version}")) }
}

/// The value of `rust-version` in a manifest.
fn declared_version(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix("rust-version"))?;
    line.trim_start().strip_prefix('=').map(|value| value.trim().trim_matches('"'))
}

/// Whether `rustup toolchain list` has this version, with or without its last number.
fn lists(toolchains: &str, version: &str) -> bool {
    toolchains
        .lines()
        .any(|line| line.strip_prefix(version).is_some_and(|rest| rest.starts_with('-') || rest.starts_with('.')))
}

/// Crates that run where there is no operating system; of the client all that decides.
const WITHOUT_STD: &[&str] = &["tidegate-control", "tidegate-wire-mqtt", "tidegate-wire-ssap", "tidegate-client"];
/// A processor with atomic operations, and one without.
const BARE_TARGETS: &[&str] = &["thumbv7em-none-eabi", "riscv32imc-unknown-none-elf"];

/// Builds for microcontrollers, where their libraries are installed.
fn without_std() -> Outcome {
    let is_there = |target: &str| {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let output = rustc.args(["--print", "target-libdir", "--target", target]).output();
        output.is_ok_and(|output| std::path::Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    let (here, missing): (Vec<&str>, Vec<&str>) = BARE_TARGETS.iter().partition(|target| is_there(target));
    for target in here {
        let mut check = cargo();
        check.args(["check", "--lib", "--no-default-features", "--locked", "--quiet", "--target", target]);
        for package in WITHOUT_STD {
            check.args(["--package", package]);
        }
        if !succeeds(&mut check) {
            return Outcome::Failed(format!("{} for {target}", WITHOUT_STD.join(" or ")));
        }
    }
    if missing.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Skipped(format!("rustup target add {}", missing.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::{declared_version, lists};

    #[test]
    fn the_declared_version_is_read_from_the_manifest() {
        assert_eq!(declared_version("[workspace.package]\nrust-version = \"1.88\"\n"), Some("1.88"));
        assert_eq!(declared_version("[package]\nrust-version.workspace = true\n"), None);
        assert_eq!(declared_version("[package]\n"), None);
    }

    #[test]
    fn a_toolchain_is_there_if_its_version_is_listed() {
        let toolchains = "stable-x86_64-unknown-linux-gnu (active, default)\n1.88.0-x86_64-unknown-linux-gnu\n";
        assert!(lists(toolchains, "1.88") && lists(toolchains, "1.88.0"));
        assert!(!lists(toolchains, "1.8") && !lists(toolchains, "1.89"));
    }
}
