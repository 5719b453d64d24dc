//! The programs of the workspace, beside the tests that run them. The test command builds all of them first; who tests one
//! package gets the others built here, if they are not there.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Where the program with this name is: tests lie one folder below (`target/debug/deps/`).
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("tests lie in a folder below the programs");
    folder.join(name)
}

/// Sees to it that the program of this package, which has its name, is there.
pub fn ensure(package: &str) {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock();
    let program = path(package);
    if program.is_file() {
        return;
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package", package]);
    if program.parent().is_some_and(|folder| folder.ends_with("release")) {
        build.arg("--release");
    }
    assert!(build.status().is_ok_and(|status| status.success()), "{package} was not built");
}

/// `tidegate` with these arguments, no input, and no configuration but the one that a test names.
#[must_use]
pub fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(path("tidegate"));
    command.args(arguments).stdin(Stdio::null()).env_remove("TIDEGATE_CONFIG");
    command
}

/// What a program said.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
