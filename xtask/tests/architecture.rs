//! What the documents say about the tree is true, and the pure crates stay pure.

#![allow(clippy::expect_used, reason = "a test that cannot read the tree has failed")]

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that own no socket, file, clock, thread or generator, with everything they may depend on at run time.
const PURE: &[(&str, &[&str])] = &[
    ("control", &["libm", "rand_core", "siphasher"]),
    ("wire-mqtt", &[]),
    ("wire-ssap", &["memchr", "quick-xml"]),
    (
        "graph",
        &[
            "ecow",
            "foldhash",
            "hashbrown",
            "imbl",
            "json-event-parser",
            "memchr",
            "oxrdf",
            "oxrdfio",
            "quick-xml",
            "spareval",
            "spargebra",
            "sparopt",
        ],
    ),
    ("map", &["foldhash", "hashbrown", "oxrdf", "oxsdatatypes", "serde_json", "tidegate-graph", "tidegate-wire-mqtt"]),
    ("core", &["foldhash", "hashbrown", "libm", "siphasher", "tidegate-control", "tidegate-wire-mqtt"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the entries of `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    section
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

#[test]
fn pure_crates_depend_on_nothing_that_does_io() {
    for (name, allowed) in PURE {
        let folder = root().join("crates").join(name);
        let manifest = read(&folder.join("Cargo.toml"));
        for dependency in dependencies(&manifest) {
            assert!(
                allowed.contains(&dependency),
                "{name} is a pure crate and must not depend on {dependency}; see docs/ARCHITECTURE.md"
            );
        }
        let clippy = read(&folder.join("clippy.toml"));
        for banned in ["Instant::now", "thread::sleep", "HashMap"] {
            assert!(clippy.contains(banned), "{name}/clippy.toml does not ban {banned}");
        }
    }
}

/// Folders that are as pure as the crates above, inside a crate that has a rim of its own.
const PURE_FOLDERS: &[&str] = &["crates/client/src/session", "crates/space/src/machine"];

/// What such a folder does not even mention.
const BANNED: &[&str] = &[
    "tokio",
    "std::net",
    "std::fs",
    "std::thread",
    "Instant",
    "SystemTime",
    "HashMap",
    "Mutex",
    "Condvar",
    "mpsc",
    "sync::atomic",
    "tracing::",
];

#[test]
fn pure_folders_speak_of_nothing_that_does_io() {
    for folder in PURE_FOLDERS {
        let mut folders = vec![root().join(folder)];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder").flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                files += 1;
                let text = read(&entry.path());
                for banned in BANNED {
                    assert!(!text.contains(banned), "{} speaks of {banned}", entry.path().display());
                }
            }
        }
        assert!(files > 0, "{folder} is empty");
    }
}

#[test]
fn paths_in_the_documents_exist() {
    for document in ["README.md", "docs/ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(&root().join(document));
        let mut paths = 0;
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "xtask/", "docs/", ".ci/"].iter().any(|start| quoted.starts_with(start));
            if is_path && !quoted.contains(['*', '…', ' ']) {
                paths += 1;
                assert!(root().join(quoted).exists(), "{document} speaks of {quoted}, which does not exist");
            }
        }
        assert!(paths > 0, "{document} names no path at all");
    }
}

#[test]
fn every_crate_is_in_the_readme() {
    let readme = read(&root().join("README.md"));
    let crates = fs::read_dir(root().join("crates")).expect("crates/").flatten();
    for folder in crates.filter(|entry| entry.path().join("Cargo.toml").exists()) {
        let name = format!("crates/{}", folder.file_name().to_string_lossy());
        assert!(readme.contains(&name), "README.md's table has no line for {name}");
    }
}
