//! Tests that cannot run here. Rust's test runner knows no test that is neither passed nor failed once it has begun, so a
//! test that misses a tool or data says so through [`skip`] and returns: a line on the standard error, which the runner does
//! not hide, and a line in the file that `cargo xtask test` names, whose count stands in its last line.
//!
//! What the test command installs by itself (from PyPI, npm) is there or the test fails where `CI=true`. What only the owner
//! of a machine can install is skipped there, too, and counted; `TIDEGATE_REQUIRE_ALL=1` makes every skip a failure.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Mutex;

/// The environment variable with the file that keeps what was skipped.
pub const FILE_VARIABLE: &str = "TIDEGATE_SKIPPED";

/// How what is missing could come here.
#[derive(Clone, Copy, Debug)]
pub enum Remedy<'a> {
    /// The test command installs it, given what is named: without it, something is wrong.
    TestCommand(&'a str),
    /// The owner of the machine does this.
    Owner(&'a str),
}

impl Remedy<'_> {
    fn words(&self) -> &str {
        match self {
            Self::TestCommand(words) | Self::Owner(words) => words,
        }
    }

    /// Whether missing it is a failure, in an environment with these values of `CI` and `TIDEGATE_REQUIRE_ALL`.
    fn is_required(self, ci: Option<&OsStr>, require_all: Option<&OsStr>) -> bool {
        let unattended = ci.is_some_and(|value| value == "true" || value == "1");
        require_all.is_some_and(|value| value == "1") || (unattended && matches!(self, Self::TestCommand(_)))
    }
}

/// Says that the test that calls this needs something that is not here, and does not run.
///
/// # Panics
/// Where what is missing is required: see the head of this module.
pub fn skip(what: &str, why: &str, remedy: Remedy<'_>) {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let line = format!("SKIPPED for want of {what}: {why}. To run it: {}.", remedy.words());
    let is_required =
        remedy.is_required(std::env::var_os("CI").as_deref(), std::env::var_os("TIDEGATE_REQUIRE_ALL").as_deref());
    assert!(!is_required, "{line}");
    let mut told = TOLD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !told.iter().any(|known| known == what) {
        told.push(what.to_owned());
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    if let Some(file) = std::env::var_os(FILE_VARIABLE) {
        // The runner names each test's thread after the test. One write per line: other tests write to the file, too.
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let record = format!("{what}\t{}\t{}\n", program(), test);
        let written =
            OpenOptions::new().append(true).open(&file).and_then(|mut file| file.write_all(record.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", file.display());
    }
}

/// The test program that runs, without the hash in its name.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_owned())
}

/// How many tests did not run for want of what, from the text of the file. A test that misses a thing twice counts once.
#[must_use]
pub fn count(records: &str) -> BTreeMap<&str, usize> {
    let mut tests: Vec<&str> = records.lines().filter(|line| !line.is_empty()).collect();
    tests.sort_unstable();
    tests.dedup();
    let mut counts = BTreeMap::new();
    for line in tests {
        *counts.entry(line.split('\t').next().unwrap_or_default()).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::{Remedy, count};

    #[test]
    fn what_the_test_command_installs_is_required_where_nobody_watches() {
        let (registry, owner) = (Remedy::TestCommand("PyPI"), Remedy::Owner("apt-get install chromium"));
        let (yes, one) = (Some("true".as_ref()), Some("1".as_ref()));
        assert!(registry.is_required(yes, None) && registry.is_required(one, None));
        assert!(!registry.is_required(None, None) && !registry.is_required(Some("false".as_ref()), None));
        assert!(!owner.is_required(yes, None));
        assert!(owner.is_required(None, one) && registry.is_required(None, one));
    }

    #[test]
    fn a_test_is_counted_once_for_each_thing_that_it_misses() {
        let records =
            "curl\tdocs\treadme\nchromium\tbrowser\tevery_page\ncurl\tdocs\treadme\nchromium\tbrowser\tlogin\n";
        assert_eq!(count(records).into_iter().collect::<Vec<_>>(), [("chromium", 2), ("curl", 1)]);
        assert!(count("").is_empty());
    }
}
