//! npm's `@arces-wot/sepa-js` with its dependencies as `package-lock.json` has them. The scenarios are in `suite.cjs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};

use crate::broker::Broker;
use crate::tool::{judge, npm};

/// Scenarios that `suite.cjs` must have run.
const SCENARIOS: usize = 3;

/// Where this file is.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sepajs")
}

#[test]
fn scenarios() {
    let folder = match npm("sepa-js-0.13.2", &here()) {
        Ok(folder) => folder,
        Err(why) => {
            return skip(
                "sepa-js",
                &why,
                Remedy::TestCommand("Node.js 18 or newer with npm, and a way to the npm registry"),
            );
        }
    };
    let broker = Broker::start();
    let mut command = Command::new("node");
    command.env("NODE_PATH", folder.join("node_modules")).arg(here().join("suite.cjs"));
    broker.describe_to(&mut command);
    judge(&mut command, SCENARIOS);
}
