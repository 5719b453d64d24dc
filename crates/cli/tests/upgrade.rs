//! What an older version has kept is there after an upgrade. The data were written by 0.1.0, which was killed afterwards: a
//! retained message, a session with two messages that wait (QoS 1 and 2), and a triple.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::path::{Path, PathBuf};

use tidegate_test_support::{Launch, text, tidegate};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("what was kept").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("a copy");
        }
    }
}

/// A folder with what a version has kept.
fn kept_by(version: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/store-{version}")), &data);
    (folder, data)
}

#[test]
fn what_0_1_0_has_kept_is_there() {
    let (_folder, data) = kept_by("0.1.0");
    let check = tidegate(&["store", "check", "--data"]).arg(&data).output().expect("check runs");
    assert!(check.status.success(), "{}{}", text(&check.stdout), text(&check.stderr));
    let config = "[limits]\nsession_expiry_max = \"unlimited\"\n";
    let broker = Launch::new().door("http").config(config).data(&data).start();
    assert_eq!(broker.subscriber(&["-t", "kept/#", "-v", "-C", "1"]).line(), "kept/a retained by 0.1.0");
    let session = ["-V", "5", "-x", "-1", "-i", "keeper", "-c", "-q", "2", "-t", "queue/#", "-v", "-C", "2"];
    // Run to its end: what waits in a session comes before the answer to a subscription.
    let keeper = broker.tool("sub", &session).output().expect("sub runs");
    assert_eq!(text(&keeper.stdout), "queue/a waits since 0.1.0\nqueue/b exactly once\n");
    let answer = broker.post(
        "/query",
        "application/sparql-query",
        "ASK { <http://example.org/lamp> <http://example.org/is> \"on\" }",
    );
    assert!(answer.contains("true"), "{answer}");
}
