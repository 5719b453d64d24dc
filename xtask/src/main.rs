//! Development tasks. `cargo xtask test` is the README's test command and the gate of CI; `cargo xtask soak` presses the
//! whole program for as long as one likes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

struct Step {
    name: &'static str,
    /// Arguments of cargo.
    command: &'static [&'static str],
}

/// Cheap steps first; all of them run, so that one call shows everything that is wrong.
const STEPS: &[Step] = &[
    Step { name: "format", command: &["fmt", "--all", "--check"] },
    Step {
        name: "clippy",
        command: &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    },
    Step {
        name: "tests",
        command: &["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast", "--locked"],
    },
    Step { name: "doc tests", command: &["test", "--workspace", "--doc", "--no-fail-fast", "--locked"] },
    Step { name: "docs", command: &["doc", "--workspace", "--no-deps", "--locked", "--quiet"] },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((task, [])) if task == "test" => test(),
        Some((task, options)) if task == "soak" => soak(options),
        _ => {
            eprintln!(
                "usage: cargo xtask test                           format check, clippy, all tests, doc tests, rustdoc\n\
                 \x20      cargo xtask soak [--minutes N] [--seed S]    churn, hostile texts, floods and kill -9 in one run\n\
                 \x20                       [--binary PATH]            of this program instead of a release build"
            );
            ExitCode::from(2)
        }
    }
}

/// A release build, pressed by `fuzz/soak.py`, which has the other options.
fn soak(options: &[String]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if !Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("xtask: soak: skipped, there is no python3");
        return ExitCode::FAILURE;
    }
    let mut soak = Command::new("python3");
    soak.arg(root.join("fuzz/soak.py")).args(options);
    if !options.iter().any(|option| option.starts_with("--binary")) {
        let build = Command::new(cargo).current_dir(&root).args(["build", "--release", "-p", "tidegate-cli"]).status();
        if !build.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        soak.arg("--binary").arg(target.join("release/tidegate"));
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

fn test() -> ExitCode {
    let started = Instant::now();
    let mut failures = Vec::new();
    for step in STEPS {
        eprintln!("xtask: {} (cargo {})", step.name, step.command.join(" "));
        if let Err(why) = run(step) {
            failures.push(format!("{}{why}", step.name));
        }
    }
    let skipped = match dependencies() {
        Dependencies::Sound => None,
        Dependencies::Unsound(what) => {
            failures.push(what.to_owned());
            None
        }
        Dependencies::Skipped(why) => Some(why),
    };
    if let Some(why) = skipped {
        eprintln!("xtask: dependencies: skipped, {why}");
    }
    let seconds = started.elapsed().as_secs();
    if failures.is_empty() {
        eprintln!("xtask: all {} steps passed in {seconds} s", STEPS.len());
        ExitCode::SUCCESS
    } else {
        eprintln!("xtask: FAILED in {seconds} s: {}", failures.join("; "));
        ExitCode::FAILURE
    }
}

/// What became of the look at the crates we build on (`deny.toml`).
enum Dependencies {
    Sound,
    Unsound(&'static str),
    /// All of it, or the part that is named.
    Skipped(&'static str),
}

/// Licences, sources and known weaknesses. Needs cargo-deny, and for the last the advisory database: nobody who has
/// neither is kept from testing.
fn dependencies() -> Dependencies {
    let deny = |arguments: &[&str]| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Command::new(cargo).arg("deny").args(arguments).status().is_ok_and(|status| status.success())
    };
    if !deny(&["--version"]) {
        return Dependencies::Skipped("cargo-deny is not installed (cargo install cargo-deny)");
    }
    if !deny(&["--locked", "check", "bans", "licenses", "sources"]) {
        return Dependencies::Unsound("dependencies (bans, licences or sources)");
    }
    if !deny(&["--locked", "fetch", "db"]) {
        return Dependencies::Skipped("and only for advisories: their database cannot be had here");
    }
    if deny(&["--locked", "check", "advisories"]) {
        Dependencies::Sound
    } else {
        Dependencies::Unsound("dependencies (advisories)")
    }
}

/// Runs one step, passing its output through; the error is what to append to the step's name in the last line.
fn run(step: &Step) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(step.command)
        .env("RUSTDOCFLAGS", "-D warnings")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!(" (cargo did not start: {error})"))?;
    let mut failed_tests = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            println!("{line}");
            failed_tests.extend(failed_test(&line).map(str::to_owned));
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) if failed_tests.is_empty() => Err(String::new()),
        Ok(_) => Err(format!(" ({})", failed_tests.join(", "))),
        Err(error) => Err(format!(" (lost sight of cargo: {error})")),
    }
}

/// The name of the test if this line of the test runner reports a failed one.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::failed_test;

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failed_test("test time::tests::x ... FAILED"), Some("time::tests::x"));
        assert_eq!(failed_test("test time::tests::x ... ok"), None);
        assert_eq!(failed_test("error: test failed"), None);
    }
}
