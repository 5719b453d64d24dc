//! Development tasks. `cargo xtask test` is the README's test command and the gate of CI; `cargo xtask soak` presses the
//! whole program for as long as one likes; `cargo xtask dist` makes what is installed.

mod checks;
mod dist;
mod gate;
mod soak;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((task, [])) if task == "test" => gate::test(),
        Some((task, options)) if task == "soak" => soak::soak(options),
        Some((task, options)) if task == "dist" => dist::dist(options),
        _ => {
            eprintln!(
                "usage: cargo xtask test                           format check, clippy, all tests, doc tests, rustdoc\n\
                 \x20      cargo xtask soak [--minutes N] [--seed S]    churn, hostile texts, floods and kill -9 in one run\n\
                 \x20                       [--binary PATH]            of this program instead of a release build\n\
                 \x20      cargo xtask dist [--target T] [--out DIR]    static programs, Debian packages, SBOM, checksums\n\
                 \x20                       [--programs DIR]           of these programs instead of new ones"
            );
            ExitCode::from(2)
        }
    }
}

/// The cargo that runs this.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // Where nobody builds twice and nobody debugs, what only they would use is not written: a cold gate is mostly compiling.
    if std::env::var_os("CI").is_some_and(|value| value == "true") {
        cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "none");
    }
    cargo
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where everything is built.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Whether a command ends well; what it prints is shown.
fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
