//! What is shipped beside the program: examples are sound, manual pages and completions are written, the Grafana panels
//! ask for metrics that exist.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist")
}

fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null()).env_remove("TIDEGATE_CONFIG");
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_example_configurations_are_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut user = tidegate(&["user", "add", "me", "--password-stdin", "--password-file"])
        .arg(folder.path().join("users"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("user runs");
    user.stdin.take().expect("piped").write_all(b"secret\n").expect("it reads");
    assert!(user.wait().expect("it ends").success());
    let mut count = 0;
    for entry in std::fs::read_dir(dist().join("examples")).expect("examples").flatten() {
        let output = tidegate(&["check", "--data"]).arg(folder.path()).arg("-c").arg(entry.path()).output();
        let output = output.expect("check runs");
        assert!(output.status.success(), "{}: {}", entry.path().display(), said(&output));
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn manual_pages_and_completions_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tidegate(&["man"]).arg(folder.path().join("man")).output().expect("man runs");
    assert!(output.status.success(), "{}", said(&output));
    for name in ["tidegate.1", "tidegate-serve.1", "tidegate-why.1"] {
        let page = std::fs::read_to_string(folder.path().join("man").join(name)).expect(name);
        assert!(page.contains(".TH"), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = tidegate(&["completions", shell]).output().expect("completions runs");
        assert!(said(&output).contains("tidegate"), "{shell}");
    }
}

/// Words that look like metrics of ours.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tidegate_"))
}

#[test]
fn the_grafana_panels_ask_for_metrics_that_exist() {
    let text = std::fs::read_to_string(dist().join("grafana/tidegate.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let sources: String = ["metrics.rs", "metrics_parts.rs"]
        .iter()
        .map(|name| dist().join("../crates/admin/src").join(name))
        .map(|path| std::fs::read_to_string(path).expect("the source"))
        .collect();
    let mut count = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            for metric in metrics_in(target["expr"].as_str().expect("an expression")) {
                let family = metric.trim_start_matches("tidegate_");
                let family = family.trim_end_matches("_total").trim_end_matches("_bucket");
                assert!(sources.contains(&format!("\"{family}\"")), "{metric} of {} does not exist", panel["title"]);
                count += 1;
            }
        }
    }
    assert!(count >= 20, "{count}");
}
