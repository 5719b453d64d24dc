//! npm's `@arces-wot/sepa-js` with its dependencies as `package-lock.json` has them. The scenarios are in `suite.cjs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};

use crate::broker::Broker;
use crate::tool::{install_step, installed, judge};

/// Scenarios that `suite.cjs` must have run.
const SCENARIOS: usize = 3;

/// Where this file is.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sepajs")
}

fn install(folder: &Path) -> Result<(), String> {
    install_step(Command::new("node").arg("--version"))?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(here().join(name), folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args([
        "ci",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--fetch-retries=3",
        "--fetch-retry-mintimeout=1000",
        "--fetch-timeout=20000",
    ]);
    install_step(npm.current_dir(folder))
}

#[test]
fn scenarios() {
    let folder = match installed("sepa-js-0.13.2", install) {
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
