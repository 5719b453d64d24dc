//! SEPA's Python client `sepy`, in a virtual environment of its own. The scenarios are in `suite.py`.

use std::path::{Path, PathBuf};

use tidegate_test_support::skip::{Remedy, skip};

use crate::broker::Broker;
use crate::tool::{judge, pip, python};

/// Scenarios that `suite.py` must have run.
const SCENARIOS: usize = 3;

/// Where this file is.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sepy")
}

#[test]
fn scenarios() {
    let environment = match pip("sepy-0.43.2.1", &here()) {
        Ok(folder) => folder,
        Err(why) => return skip("sepy", &why, Remedy::TestCommand("python3 with venv and pip, and a way to PyPI")),
    };
    let broker = Broker::start();
    let mut command = python(&environment);
    command.args(["-W", "ignore"]).arg(here().join("suite.py"));
    broker.describe_to(&mut command);
    judge(&mut command, SCENARIOS);
}
