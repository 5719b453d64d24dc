//! The programs that `tidegate` finds beside itself. `cargo test --workspace` builds all of them; who tests one package
//! gets the others built here.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

static BUILDING: Mutex<()> = Mutex::new(());

/// Sees to it that the program of this package lies beside `tidegate`.
pub(crate) fn ensure(package: &str) {
    let _one_at_a_time = BUILDING.lock();
    let tidegate = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    if tidegate.with_file_name(package).is_file() {
        return;
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package]);
    if tidegate.parent().is_some_and(|folder| folder.ends_with("release")) {
        build.arg("--release");
    }
    assert!(build.status().is_ok_and(|status| status.success()), "{package} was not built");
}
