//! `specs/` says which test proves what. Each test that it names exists, each row has a test or a reason, and none is
//! missing. `cargo test -p xtask --test specs -- --nocapture` prints the counts.

#![allow(clippy::expect_used, reason = "a test that cannot read the tree has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// All `.rs` files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names of the functions that follow a `#[test]`, other attributes between them or not.
fn tests_in(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().filter_map(move |line| {
        let line = line.trim();
        if line == "#[test]" {
            is_test = true;
        } else if is_test && !line.starts_with('#') {
            is_test = false;
            return line.strip_prefix("fn ")?.split('(').next();
        }
        None
    })
}

/// Every test of every crate, as `crate::name`.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in fs::read_dir(root().join("crates")).expect("crates/").flatten() {
        let (mut files, crate_name) = (Vec::new(), folder.file_name());
        sources(&folder.path(), &mut files);
        for file in files {
            let source = fs::read_to_string(&file).expect("a source file is text");
            names.extend(tests_in(&source).map(|test| format!("{}::{test}", crate_name.to_string_lossy())));
        }
    }
    names
}

/// One line of a table: its cells.
struct Row {
    cells: Vec<String>,
}

impl Row {
    fn id(&self) -> &str {
        &self.cells[0]
    }

    /// What stands in backquotes and looks like a test.
    fn tests(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().skip(2).flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter(|name| name.contains("::"))
    }

    /// True if something is said in the columns for tests and exceptions that is no test.
    fn has_reason(&self) -> bool {
        let words = |cell: &String| cell.split('`').step_by(2).any(|text| text.contains(char::is_alphabetic));
        self.cells.iter().skip(2).any(words)
    }
}

fn rows(document: &str, first: &str) -> Vec<Row> {
    let text = fs::read_to_string(root().join("specs").join(document)).expect("the document is there");
    let lines = text.lines().filter(|line| line.starts_with(&format!("| {first}")));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.map(|line| Row { cells: cells(line) }).collect()
}

/// Checks a document and prints how much of it is covered.
fn check(document: &str, first: &str) -> Vec<Row> {
    let (tests, rows) = (tests(), rows(document, first));
    let (mut covered, mut ids) = (0, BTreeSet::new());
    for row in &rows {
        assert!(ids.insert(row.id()), "{document}: {} stands there twice", row.id());
        for name in row.tests() {
            assert!(tests.contains(name), "{document}: {} names {name}, which does not exist", row.id());
        }
        let is_covered = row.tests().next().is_some();
        assert!(is_covered || row.has_reason(), "{document}: {} has neither a test nor a reason", row.id());
        covered += usize::from(is_covered);
    }
    println!("specs/{document}: {covered} of {} covered by tests, {} excepted", rows.len(), rows.len() - covered);
    rows
}

#[test]
fn each_row_of_the_fault_catalogue_has_a_test_or_a_reason() {
    let rows = check("faults.md", "F");
    let ids: Vec<&str> = rows.iter().map(Row::id).collect();
    let expected: Vec<String> = (1..=152).map(|number| format!("F{number:03}")).collect();
    assert_eq!(ids, expected);
    for row in &rows {
        let number = row.id().to_lowercase();
        for name in row.tests() {
            let is_named = name.contains(&number) || name.contains("f006_to_f012");
            assert!(is_named, "{} is proved by {name}, which does not carry its number", row.id());
        }
    }
}

#[test]
fn each_statement_of_the_specifications_has_a_test_or_a_reason() {
    // The numbers of the two appendices, so that none is lost by an edit.
    assert_eq!(check("mqtt5.md", "MQTT-").len(), 251);
    assert_eq!(check("mqtt311.md", "MQTT-").len(), 141);
    assert_eq!(check("coap.md", "R").len(), 79);
    assert_eq!(check("sn.md", "SN-").len(), 45);
    assert_eq!(check("http.md", "R").len(), 51);
    assert_eq!(check("amqp.md", "A").len(), 53);
}

#[test]
fn attributes_and_generics_do_not_hide_a_test() {
    let source =
        "#[test]\nfn one() {}\n    #[test]\n    #[ignore]\n    fn two(\n        x in 0..1) {}\nfn helper() {}\n";
    assert_eq!(tests_in(source).collect::<Vec<_>>(), ["one", "two"]);
}
