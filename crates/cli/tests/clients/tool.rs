//! Programs from elsewhere, as tests of this program: those that are missing are missed aloud.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};

use crate::broker::Broker;
use crate::install::{npm, pip, python, run};

/// Runs `suite.cjs` of a folder beside this file, which must run so many scenarios with this package of npm; skipped, and
/// said so, where the package cannot be had.
pub(crate) fn node_suite(name: &str, package: &str, folder: &str, scenarios: usize) {
    let here = suite(folder);
    match npm(package, &here) {
        Ok(installed) => {
            let mut command = Command::new("node");
            command.env("NODE_PATH", installed.join("node_modules")).arg(here.join("suite.cjs"));
            judge(&mut command, scenarios);
        }
        Err(why) => {
            skip(name, &why, Remedy::TestCommand("Node.js 18 or newer with npm, and a way to the npm registry"));
        }
    }
}

/// The same with `suite.py` and packages of Python.
pub(crate) fn python_suite(name: &str, package: &str, folder: &str, scenarios: usize) {
    let here = suite(folder);
    match pip(package, &here) {
        Ok(environment) => {
            judge(python(&environment).args(["-W", "ignore"]).arg(here.join("suite.py")), scenarios);
        }
        Err(why) => skip(name, &why, Remedy::TestCommand("python3 with venv and pip, and a way to PyPI")),
    }
}

fn suite(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(folder)
}

/// Runs a client's own test program against a broker. It prints a line per scenario and ends with code 0 if all hold.
fn judge(command: &mut Command, scenarios: usize) {
    let broker = Broker::start();
    broker.describe_to(command);
    let outcome = run(command).unwrap_or_else(|why| panic!("{why}"));
    let (passed, other): (Vec<_>, Vec<_>) = outcome.text.lines().partition(|line| line.starts_with("ok "));
    assert_eq!((outcome.code, passed.len()), (Some(0), scenarios), "\n{}", other.join("\n"));
}
