//! `cargo xtask test`: every step runs, so that one call shows everything that is wrong; the last line says what failed,
//! and what did not run for want of a tool.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use tidegate_test_support::skip;

use crate::cargo;
use crate::checks::{CHECKS, Outcome};

struct Step {
    name: &'static str,
    /// Arguments of cargo.
    command: &'static [&'static str],
}

/// Cheap steps first.
const STEPS: &[Step] = &[
    Step { name: "format", command: &["fmt", "--all", "--check"] },
    Step {
        name: "clippy",
        command: &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    },
    // What only some programs have, and what tests it: of the rest nothing is read again.
    Step {
        name: "features",
        command: &[
            "clippy",
            "--package",
            "tidegate-server",
            "--package",
            "tidegate-cli",
            "--features",
            "tidegate-cli/postgres,tidegate-cli/kafka",
            "--lib",
            "--bin",
            "tidegate",
            "--test",
            "sinks",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    },
    // Tests run these programs; cargo itself builds only those of packages that have tests in a folder of their own.
    Step { name: "programs", command: &["build", "--workspace", "--bins", "--locked", "--quiet"] },
    Step {
        name: "tests",
        command: &["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast", "--locked"],
    },
    Step { name: "doc tests", command: &["test", "--workspace", "--doc", "--no-fail-fast", "--locked"] },
    Step { name: "docs", command: &["doc", "--workspace", "--no-deps", "--locked", "--quiet"] },
];

pub(crate) fn test() -> ExitCode {
    let started = Instant::now();
    let skipped_tests = match tempfile::NamedTempFile::new() {
        Ok(file) => file,
        Err(error) => {
            eprintln!("xtask: FAILED: no file to note skipped tests in: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for step in STEPS {
        eprintln!("xtask: {} (cargo {})", step.name, step.command.join(" "));
        if let Err(why) = run(step, skipped_tests.path()) {
            failures.push(format!("{}{why}", step.name));
        }
    }
    for check in CHECKS {
        eprintln!("xtask: {}", check.name);
        match (check.run)() {
            Outcome::Passed => {}
            Outcome::Failed(why) => failures.push(format!("{} ({why})", check.name)),
            Outcome::Skipped(why) if std::env::var_os("TIDEGATE_REQUIRE_ALL").is_some_and(|value| value == "1") => {
                failures.push(format!("{} (not run: {why})", check.name));
            }
            Outcome::Skipped(why) => skipped.push((format!("{} ({why})", check.name), 1)),
        }
    }
    match std::fs::read_to_string(skipped_tests.path()) {
        Ok(records) => skipped.extend(skip::count(&records).into_iter().map(|(what, count)| (what.to_owned(), count))),
        Err(error) => failures.push(format!("skipped tests are not known ({error})")),
    }
    eprintln!("{}", last_line(started.elapsed().as_secs(), &failures, &skipped));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The verdict, with what was skipped and how often.
fn last_line(seconds: u64, failures: &[String], skipped: &[(String, usize)]) -> String {
    let verdict = if failures.is_empty() {
        format!("xtask: all {} steps passed in {seconds} s", STEPS.len() + CHECKS.len())
    } else {
        format!("xtask: FAILED in {seconds} s: {}", failures.join("; "))
    };
    if skipped.is_empty() {
        return verdict;
    }
    let count: usize = skipped.iter().map(|(_, count)| count).sum();
    let reasons: Vec<String> = skipped
        .iter()
        .map(|(what, count)| if *count == 1 { what.clone() } else { format!("{what} ({count} tests)") })
        .collect();
    format!("{verdict}; {count} SKIPPED for want of: {}", reasons.join(", "))
}

/// Runs one step, passing its output through; the error is what to append to the step's name in the last line.
fn run(step: &Step, skipped_tests: &Path) -> Result<(), String> {
    let mut child = cargo()
        .args(step.command)
        .env("RUSTDOCFLAGS", "-D warnings")
        .env(skip::FILE_VARIABLE, skipped_tests)
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
    use super::{failed_test, last_line};

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failed_test("test time::tests::x ... FAILED"), Some("time::tests::x"));
        assert_eq!(failed_test("test time::tests::x ... ok"), None);
        assert_eq!(failed_test("error: test failed"), None);
    }

    #[test]
    fn the_last_line_counts_what_was_skipped() {
        assert!(last_line(7, &[], &[]).ends_with("steps passed in 7 s"));
        let skipped = [("dependencies (cargo install cargo-deny)".to_owned(), 1), ("chromium".to_owned(), 6)];
        let line = last_line(7, &["clippy".to_owned()], &skipped);
        assert!(line.contains("FAILED in 7 s: clippy; 7 SKIPPED for want of: dependencies"), "{line}");
        assert!(line.ends_with("chromium (6 tests)"), "{line}");
    }
}
