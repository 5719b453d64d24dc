//! `cargo xtask soak`: a release build, pressed by `fuzz/soak.py`, which has the other options.

use std::process::{Command, ExitCode, Stdio};

use crate::{cargo, root, succeeds, target};

pub(crate) fn soak(options: &[String]) -> ExitCode {
    if !succeeds(Command::new("python3").arg("--version").stdout(Stdio::null())) {
        eprintln!("xtask: soak: skipped, there is no python3");
        return ExitCode::FAILURE;
    }
    let mut soak = Command::new("python3");
    soak.arg(root().join("fuzz/soak.py")).args(options);
    if !options.iter().any(|option| option.starts_with("--binary") || option == "--help" || option == "-h") {
        if !succeeds(cargo().args(["build", "--release", "-p", "tidegate-cli"])) {
            return ExitCode::FAILURE;
        }
        soak.arg("--binary").arg(target().join("release/tidegate"));
    }
    match soak.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: soak: python3 did not start: {error}");
            ExitCode::FAILURE
        }
    }
}
