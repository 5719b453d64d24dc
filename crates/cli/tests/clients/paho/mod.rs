//! Python's paho-mqtt, in a virtual environment of its own. The scenarios are in `suite.py` and `version5.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};

use crate::broker::Broker;
use crate::tool::{install_step, installed, judge};

/// Scenarios that `suite.py` must have run.
const SCENARIOS: usize = 3 * 8 + 6 * 7 + 11;

/// Where this file is.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/paho")
}

fn install(folder: &Path) -> Result<(), String> {
    install_step(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--retries", "3"]);
    install_step(pip.args(["--timeout", "10", "--require-hashes", "-r"]).arg(here().join("requirements.txt")))
}

#[test]
fn scenarios() {
    let environment = match installed("paho-mqtt-2.1.0", install) {
        Ok(folder) => folder,
        Err(why) => {
            return skip("paho-mqtt", &why, Remedy::TestCommand("python3 with venv and pip, and a way to PyPI"));
        }
    };
    let broker = Broker::start();
    let mut command = Command::new(environment.join("bin/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(here().join("suite.py"));
    broker.describe_to(&mut command);
    judge(&mut command, SCENARIOS);
}
