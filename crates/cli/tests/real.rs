//! `tidegate lab real` from outside: a broker, a few KPs and publishers for a moment. What it measured is not judged, only that
//! it did, and that nothing in it contradicts itself.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tidegate_test_support::{ensure, text, tidegate};

fn lab_real(arguments: &[&str], out: &Path) -> Output {
    ensure("tidegate-lab");
    tidegate(&["lab", "real", "--out", out.to_str().expect("a name")])
        .args(arguments)
        .output()
        .expect("the binary runs")
}

const SMALL: [&str; 24] = [
    "--only",
    "kps",
    "--kps",
    "8",
    "--publishers",
    "3",
    "--control",
    "none,fixed,active-p19,ours",
    "--loss",
    "5%",
    "--delay",
    "2ms",
    "--slow",
    "2",
    "--interval",
    "100ms",
    "--updates",
    "4",
    "--secs",
    "2",
    "--seeds",
    "1",
    "--seed",
    "7",
];

#[test]
fn a_small_testbed_has_every_figure_beside_the_models() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = lab_real(&SMALL, folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    let heads = ["stale, %", "found after, s", "requests/answer", "answers, /s", "p50, ms", "p99, ms", "broker CPU"];
    for head in heads.into_iter().chain(["wire, KiB/s", "refused", "lost", "unanswered", "real | model"]) {
        assert!(table.contains(head), "{head} is not in:\n{table}");
    }
    for control in ["none", "fixed", "active-p19", "ours"] {
        assert_eq!(table.lines().filter(|line| line.starts_with(control)).count(), 3, "{control} in:\n{table}");
    }
    let report: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("real.json")).expect("a file")).expect("JSON");
    for control in report["controls"].as_array().expect("controls") {
        agrees_with_itself(control);
    }
    let csv = std::fs::read_to_string(folder.path().join("real.csv")).expect("a file");
    assert_eq!(csv.lines().count(), 1 + 4 * 12, "{csv}");
    let svg = std::fs::read_to_string(folder.path().join("freshness.svg")).expect("a file");
    assert!(svg.contains("requests for each useful answer") && svg.contains(">ours<"), "{svg}");
}

/// Shares are shares, who never asks has no answer, and who asks has sent at least one request for each.
fn agrees_with_itself(control: &Value) {
    let of = |name: &str, who: &str| control["metrics"][name][who]["mean"].as_f64();
    for name in ["stale", "lost", "refused", "unanswered"] {
        let share = of(name, "real").unwrap_or(0.0);
        assert!((0.0..=100.0).contains(&share), "{name} {share} of {control}");
    }
    assert!(of("lost", "real").is_some_and(|lost| lost > 0.0), "some are lost: {control}");
    assert!(of("bytes", "real").is_some_and(|bytes| bytes > 0.0), "{control}");
    assert!(of("stale", "model").is_some_and(|stale| (0.0..=100.0).contains(&stale)), "{control}");
    if control["control"] == "none" {
        assert_eq!(of("requests_per_answer", "real"), None, "{control}");
    } else {
        assert!(of("requests_per_answer", "real").is_some_and(|price| price >= 1.0), "{control}");
        assert!(of("answers", "real").is_some_and(|answers| answers > 0.0), "{control}");
        assert!(of("latency_p50", "real") <= of("latency_p99", "real"), "{control}");
    }
}

#[test]
fn json_is_all_there_is_on_the_output_if_it_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments =
        ["--only", "kps", "--kps", "2", "--publishers", "1", "--control", "fixed", "--seeds", "1", "--json"];
    let more =
        ["--secs", "0.5", "--warm-up", "0.5", "--slow", "1", "--interval", "50ms", "--door", "ssap", "--loss", "0%"];
    let output = lab_real(&[&arguments[..], &more[..]].concat(), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["settings"]["kps"], 2);
    assert_eq!(report["controls"][0]["metrics"]["lost"]["real"]["mean"], 0.0);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, word) in [
        (["--control", "active-p20"], "active-p19"),
        (["--loss", "200%"], "from 0% to 90%"),
        (["--door", "coap"], "ssap or http"),
        (["--slow", "0"], "from 1 to 200"),
    ] {
        let output = lab_real(&arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}
