//! How the table reads.

use super::*;
use crate::outcome::CpuCost;

fn entry(broker: &str, cost: Option<f64>, faults: Faults) -> ReportEntry {
    let traffic = TrafficOutcome {
        delivered_per_s: 1_234_567.0,
        s_per_million: cost.map(|cost| CpuCost { user: cost / 4.0, system: cost * 3.0 / 4.0 }),
        cores: Cores { broker: cost, tool: 0.5, others: None },
        rss_kib: None,
        p50_us: 90.0,
        p99_us: 200.4,
        p999_us: 300.0,
        ack_us: None,
        faults,
        reasons: None,
    };
    let role = if broker == "a" { BrokerRole::Own } else { BrokerRole::Mosquitto };
    ReportEntry { case: "pairs q0", broker: broker.to_owned(), role, outcome: Ok(CaseOutcome::Traffic(traffic)) }
}

#[test]
fn columns_stand_below_their_names() {
    let entries = [entry("a", Some(0.5), Faults::default()), entry("b", Some(7.0), Faults::default())];
    let (head, text) = (header(), lines(&entries));
    let mut lines = text.lines();
    let (own, peer) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(head.chars().count(), peer.chars().count(), "{head}\n{text}");
    assert!(own.contains("0.50    0.12+0.38    1 234 567              90/200/300"), "{own}");
    assert!(own.ends_with("0.50/0.50/–") && peer.ends_with("14.0×"), "{text}");
    let place = |line: &str, word: &str| line.find(word).map(|at| line[..at + word.len()].chars().count());
    assert_eq!(place(&head, "delivered/s"), place(own, "1 234 567"));
}

#[test]
fn what_is_not_zero_is_said() {
    let bad = Faults { lost: 3, reordered: 1, ..Faults::default() };
    let text = notes(&[entry("a", Some(1.0), Faults::default()), entry("b", Some(1.0), bad)], &[]);
    assert!(text.contains("pairs q0, b: 3 lost, 1 reordered\n"), "{text}");
    let mut entry_with_reasons = entry("a", Some(1.0), bad);
    if let Ok(CaseOutcome::Traffic(traffic)) = &mut entry_with_reasons.outcome {
        traffic.reasons = Some("3 dropped_held_full".to_owned());
    }
    let text = notes(&[entry_with_reasons], &[]);
    assert!(text.contains("a: 3 lost, 1 reordered; the broker says: 3 dropped_held_full\n"), "{text}");
    assert!(notes(&[entry("a", Some(1.0), Faults::default())], &[]).contains("no message lost"));
    assert!(notes(&[entry("a", None, Faults::default())], &[]).contains("Linux only"));
}

#[test]
fn goals_are_summed_up_and_misses_repeated() {
    let verdict = |state| ("idle", GoalVerdict { goal: "g".to_owned(), figure: "1".to_owned(), state });
    let text = summary(&[verdict(GoalState::Met), verdict(GoalState::Missed), verdict(GoalState::Unknown)]);
    assert_eq!(text, "goals: 1 met, 1 missed, 1 not shown\n  idle, MISSED: g (1)\n  idle, not shown: g (1)\n");
    assert_eq!(summary(&[]), "");
}

#[test]
fn a_shortage_of_files_is_said() {
    assert_eq!(shortage(5, 5), "");
    assert!(shortage(800, 10_000).starts_with(" (of 10 000: raise the limit"));
}

#[test]
fn troubles_are_told_by_kind() {
    assert_eq!(trouble_words(&ConnectFailures::default()), "no errors");
    let trouble = ConnectFailures { later: 1_200, closed: 3, ..ConnectFailures::default() };
    assert_eq!(trouble_words(&trouble), "1 200 told to come back later, 3 closed without a word");
    assert_eq!(trouble.errors(), 3);
}

#[test]
fn thousands_are_grouped() {
    for (number, text) in [(0.0, "0"), (999.4, "999"), (1000.0, "1 000"), (1_234_567.0, "1 234 567")] {
        assert_eq!(grouped(number), text);
    }
}
