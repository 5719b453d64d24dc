//! What the documents say about the tree is true, and the pure crates stay pure.

#![allow(clippy::expect_used, reason = "a test that cannot read the tree has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that own no socket, file, clock, thread or generator, with everything they may depend on at run time.
const PURE: &[(&str, &[&str])] = &[
    ("control", &["libm", "rand_core", "siphasher"]),
    ("wire-mqtt", &[]),
    ("wire-ssap", &["memchr"]),
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
    ("cluster", &["bytes", "crc32c"]),
    ("bridge", &["tidegate-client", "tidegate-control", "tidegate-wire-mqtt"]),
    ("sink", &["serde_json", "tidegate-client", "tidegate-control", "tidegate-wire-mqtt"]),
    ("core", &["foldhash", "hashbrown", "libm", "siphasher", "tidegate-control", "tidegate-wire-mqtt"]),
    (
        "face-coap",
        &["coap-lite", "foldhash", "hashbrown", "siphasher", "tidegate-control", "tidegate-core", "tidegate-wire-mqtt"],
    ),
    ("face-sn", &["foldhash", "hashbrown", "tidegate-control", "tidegate-core", "tidegate-wire-mqtt"]),
    (
        "guard",
        &["foldhash", "hashbrown", "tidegate-control", "tidegate-core", "tidegate-face-mqtt", "tidegate-wire-mqtt"],
    ),
    ("face-amqp", &["foldhash", "tidegate-control", "tidegate-core", "tidegate-wire-mqtt"]),
    ("face-http", &["base64", "httparse", "tidegate-control", "tidegate-core", "tidegate-wire-mqtt"]),
    ("face-mqtt", &["foldhash", "hashbrown", "tidegate-control", "tidegate-core", "tidegate-wire-mqtt"]),
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

/// The words that the core borrows from the codec of MQTT, as plain data: none of them is a packet, or reads or writes one.
const BORROWED: &[&str] = &[
    "Delivery",
    "Limits",
    "PacketId",
    "PayloadFormat",
    "Properties",
    "Property",
    "QoS",
    "ReasonCode",
    "Retain",
    "RetainHandling",
    "Sender",
    "Subscription",
    "SubscriptionOptions",
    "TopicFilter",
    "matches",
    "topic",
];

#[test]
fn the_core_reads_and_writes_no_packet() {
    let mut folders = vec![root().join("crates/core/src")];
    let mut imports = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = read(&entry.path());
            for import in text.split("tidegate_wire_mqtt::").skip(1) {
                imports += 1;
                let names = import.split(';').next().unwrap_or_default().split(" as ").next().unwrap_or_default();
                for name in names.split(['{', '}', ',', ' ', '\n']).filter(|name| !name.is_empty()) {
                    let name = name.rsplit("::").next().unwrap_or(name);
                    let place = entry.path();
                    assert!(BORROWED.contains(&name), "{} speaks of {name}, which is the face's", place.display());
                }
            }
        }
    }
    assert!(imports > 0, "the core borrows nothing any more: this list can go, and so can the dependency");
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
    let inside = ["code-map", "overload", "durability", "bridge"].map(|page| format!("docs/internals/{page}.md"));
    let documents = ["README.md", "docs/ARCHITECTURE.md", "CONTRIBUTING.md"];
    for document in documents.into_iter().chain(inside.iter().map(String::as_str)) {
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
fn the_architecture_can_be_read_in_ten_minutes() {
    let words = read(&root().join("docs/ARCHITECTURE.md")).split_whitespace().count();
    assert!(words <= 2000, "{words} words: what only one crate needs belongs into docs/internals");
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

/// What each crate of the workspace uses of the others when it runs, by `cargo metadata`. Names without `tidegate-`.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let mut metadata = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let output = metadata.output().expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let ours = |package: &serde_json::Value| {
        let name = package["name"].as_str().expect("a name");
        name.strip_prefix("tidegate-").map(str::to_owned)
    };
    let packages = list(&metadata["packages"]);
    let uses = packages.iter().filter_map(|package| {
        let dependencies = list(&package["dependencies"]);
        let at_run_time = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
        Some((ours(package)?, at_run_time.filter_map(ours).collect()))
    });
    uses.collect()
}

/// The arrows as the document shows them: what is used stands above what uses it.
fn picture(mut arrows: BTreeMap<String, BTreeSet<String>>) -> String {
    let (mut lines, mut shown) = (Vec::new(), BTreeSet::new());
    while !arrows.is_empty() {
        let is_next = |uses: &BTreeSet<String>| uses.is_subset(&shown);
        let next: Vec<String> = arrows.iter().filter(|(_, uses)| is_next(uses)).map(|(name, _)| name.clone()).collect();
        assert!(!next.is_empty(), "crates use each other in a circle: {arrows:?}");
        for name in next {
            let uses = arrows.remove(&name).expect("it is there");
            let uses: Vec<String> = uses.into_iter().collect();
            let uses = if uses.is_empty() { "(none of the others)".to_owned() } else { uses.join(", ") };
            lines.push(format!("{name:<13}──> {uses}"));
            shown.insert(name);
        }
    }
    lines.join("\n")
}

#[test]
fn the_arrows_in_the_document_are_those_of_the_manifests() {
    const BEGIN: &str = "<!-- arrows: TIDEGATE_BLESS=1 cargo test -p xtask --test architecture -->\n```text\n";
    let path = root().join("docs/ARCHITECTURE.md");
    let document = read(&path);
    let (before, rest) = document.split_once(BEGIN).expect("docs/ARCHITECTURE.md marks where its arrows are");
    let (shown, after) = rest.split_once("\n```").expect("the block ends");
    let true_arrows = picture(arrows());
    if std::env::var_os("TIDEGATE_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, format!("{before}{BEGIN}{true_arrows}\n```{after}")).expect("written");
        return;
    }
    assert_eq!(shown, true_arrows, "docs/ARCHITECTURE.md shows other arrows; TIDEGATE_BLESS=1 writes them anew");
}

#[test]
fn the_program_is_not_built_with_its_laboratory_or_its_load_generator() {
    let arrows = arrows();
    let (mut found, mut todo) = (BTreeSet::new(), vec!["cli".to_owned()]);
    while let Some(name) = todo.pop() {
        todo.extend(arrows[&name].iter().filter(|uses| found.insert((*uses).clone())).cloned());
    }
    for unwanted in ["bench", "lab", "sim", "test-support"] {
        assert!(!found.contains(unwanted), "tidegate is built with {unwanted}");
    }
}
