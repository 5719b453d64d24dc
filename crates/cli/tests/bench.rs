//! The benchmark from outside, on free ports and for a moment only. What it measured is not judged, only that it did.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("bench").args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn pairs_are_measured_and_nothing_is_lost() {
    let output = bench(&["--only", "pairs", "--secs", "0.2", "--peer", "none"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.starts_with("case"), "{table}");
    for row in ["pairs q0 ", "pairs q1 ", "pairs q2 ", "pairs q0 1 KiB "] {
        assert!(table.lines().any(|line| line.starts_with(row)), "{row} is not in:\n{table}");
    }
    assert!(table.contains("no message lost, duplicated or reordered"), "{table}");
    assert!(table.contains("load generator: "), "{table}");
}

#[test]
fn json_has_a_row_per_case_and_broker() {
    let output = bench(&["--only", "q0", "--secs", "0.1", "--peer", "none", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert!(row["delivered_per_s"].as_f64().expect("a rate") > 0.0, "{row}");
        assert_eq!(row["faults"]["lost"], 0, "{row}");
    }
    assert!(rows.iter().any(|row| row["broker"] == "relay"));
}

#[test]
fn a_peer_that_does_not_start_fails_its_rows_only() {
    let output = bench(&["--only", "pairs q1", "--secs", "0.1", "--peer-cmd", "false {port}"]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(table.contains("false      failed: false did not start: it said nothing"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("pairs q1         tidegate ")), "{table}");
}

#[test]
fn other_machines_are_refused() {
    let output = bench(&["--url", "mqtt://192.0.2.1:1883"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("192.0.2.1 is not this machine"), "{}", text(&output.stderr));
}
