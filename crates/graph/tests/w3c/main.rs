//! The W3C's SPARQL 1.0 and 1.1 suites, whose data lies beside this file. `specs/sparql.md` lists the tests that are not
//! passed, with reasons; the list must be exact.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod compare;
mod manifest;
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use manifest::{Suite, Test};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn suite_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/w3c/data")
}

/// Lines `| test | reason |` of `specs/sparql.md`.
fn exceptions() -> BTreeMap<String, String> {
    let text = fs::read_to_string(workspace().join("specs/sparql.md")).expect("specs/sparql.md");
    let rows = text.lines().filter(|line| line.starts_with("| `sparql1"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].trim_matches('`').to_owned(), cells[1].to_owned())
    })
    .collect()
}

/// An exception for one test, or for a whole folder (`sparql11/service/`).
fn exception<'a>(exceptions: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
    let folder = name.rsplit_once('/').map(|(folder, _)| format!("{folder}/"))?;
    exceptions.get(name).or_else(|| exceptions.get(&folder))
}

fn check(manifest: &str) {
    let suite = Suite::new(suite_folder());
    let tests: Vec<Test> = suite.tests(manifest);
    let exceptions = exceptions();
    let (mut passed, mut excepted, mut wrong) = (0, 0, Vec::new());
    for test in &tests {
        let outcome = run::run(&suite, test);
        match (outcome, exception(&exceptions, &test.name)) {
            (Ok(()), None) => passed += 1,
            (Err(words), None) => wrong.push(format!("{}: {words}", test.name)),
            (Ok(()), Some(reason)) if exceptions.contains_key(&test.name) => {
                wrong.push(format!("{} passes, but is excepted: {reason}", test.name));
            }
            (_, Some(_)) => excepted += 1,
        }
    }
    println!("{manifest}: {} tests, {passed} passed, {excepted} excepted, {} wrong", tests.len(), wrong.len());
    assert!(!tests.is_empty(), "the manifest has no tests");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sparql_1_0() {
    check("sparql10/manifest.ttl");
}

#[test]
fn sparql_1_1() {
    check("sparql11/manifest-all.ttl");
}
