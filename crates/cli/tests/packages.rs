//! What is shipped beside the program: examples are sound, manual pages and completions are written, the Grafana panels
//! ask for metrics that exist.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
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

/// What a broker with everything has to say.
fn scraped() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = tidegate(&["serve", "--mqtt", "127.0.0.1:0", "--ws", "off", "--http", "127.0.0.1:0"])
        .args(["--ssap", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the broker starts");
    let mut banner = String::new();
    BufReader::new(broker.stdout.take().expect("piped")).read_line(&mut banner).expect("the broker speaks");
    let address = |door: &str| {
        let word = banner.split_whitespace().skip_while(|word| *word != door).nth(1).expect(door);
        word.trim_start_matches("http://").to_owned()
    };
    // One request to the smart space, so that it has something to count.
    let ask = |door: &str, path: &str| {
        let mut stream = TcpStream::connect(address(door)).expect("the door is open");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        answer
    };
    assert!(ask("sparql", "/query?query=ASK%20%7B%7D").contains(" 200 "));
    let metrics = ask("admin", "/metrics");
    broker.kill().and_then(|()| broker.wait()).expect("it ends");
    metrics
}

/// Words that an expression groups by.
fn labels_in(expression: &str) -> Vec<&str> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", ")).filter(|label| *label != "le").collect()
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
    let metrics = scraped();
    let samples: BTreeSet<&str> = metrics.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let mut count = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            for metric in metrics_in(expression) {
                assert!(samples.contains(metric), "{metric} of {} does not exist", panel["title"]);
                count += 1;
            }
            // What is grouped by is a label of what is asked for, and what is shown is what is grouped by.
            for label in labels_in(expression) {
                let has_it = |metric: &str| {
                    let mut lines = metrics.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
                    lines.any(|line| line.contains(&format!("{label}=\"")))
                };
                assert!(metrics_in(expression).all(has_it), "{label} in {expression}");
            }
        }
    }
    assert!(count >= 20, "{count}");
}
