//! Verdicts from made-up figures.

use super::*;
use crate::gate::Latency;
use crate::gate::ask::LedgerReading;
use crate::goals::{GoalVerdict, goal};
use crate::outcome::Cores;

fn judge(find: fn(&[ReportEntry], f64) -> Finding, bound: f64, entries: &[ReportEntry]) -> GoalVerdict {
    goal("", bound, find).judge(entries)
}

fn entry(role: BrokerRole, gate: GateOutcome) -> ReportEntry {
    ReportEntry { case: "c", broker: "b".to_owned(), role, outcome: Ok(CaseOutcome::Gate(gate)) }
}

fn latency(min_ms: f64, p99_ms: f64, max_ms: f64) -> Latency {
    Latency { count: 10, min_ms, p50_ms: p99_ms, p99_ms, max_ms }
}

fn flood(role: BrokerRole, calm_ms: f64, flood_ms: f64) -> ReportEntry {
    let figures = FlooderOutcome {
        calm: latency(0.0, calm_ms, 0.0),
        flood: latency(0.0, flood_ms, 0.0),
        lost: 0,
        offered: 1,
        passed: 1,
        late_ms: 0.0,
        account: None,
        cores: Cores::default(),
    };
    entry(role, GateOutcome::Flooder(figures))
}

fn rare(role: BrokerRole, min_ms: f64, max_ms: f64) -> ReportEntry {
    let figures = Contended {
        rare: latency(min_ms, max_ms, max_ms),
        busy: Latency::default(),
        lost: 0,
        late_ms: 0.0,
        cores: Cores::default(),
    };
    entry(role, GateOutcome::Priority(figures))
}

#[test]
fn a_flooder_is_judged_where_back_off_is_always_enforced() {
    let rows = |always_ms| {
        [
            flood(BrokerRole::Own, 10.0, 11.0),
            flood(BrokerRole::Variant, 10.0, always_ms),
            flood(BrokerRole::Mosquitto, 10.0, 500.0),
        ]
    };
    let met = judge(flooder, 1.2, &rows(12.0));
    assert_eq!((met.state, met.figure.as_str()), (GoalState::Met, "1.20×, by default 1.10×, mosquitto 50.00×"));
    assert_eq!(judge(flooder, 1.2, &rows(13.0)).state, GoalState::Missed);
    assert_eq!(judge(flooder, 1.2, &rows(12.0)[..1]).state, GoalState::Unknown);
}

#[test]
fn the_longest_with_is_compared_with_the_shortest_without() {
    let verdict =
        |max_ms| judge(max_below_min, 0.0, &[rare(BrokerRole::Own, 1.0, max_ms), rare(BrokerRole::Off, 900.0, 1000.0)]);
    assert_eq!(verdict(40.0).figure, "40.0 ms with, 900.0 ms without");
    assert_eq!((verdict(40.0).state, verdict(901.0).state), (GoalState::Met, GoalState::Missed));
}

#[test]
fn costs_are_the_difference_to_none() {
    let figures = GateCost {
        publishers: 10,
        us_each: Some(2.0),
        us_off: Some(2.0),
        ratios: vec![1.5, 1.02, 1.014],
        bytes_each: Some(900.0),
        bytes_off: Some(840.0),
        cores: Cores::default(),
    };
    let rows = [entry(BrokerRole::Own, GateOutcome::Cost(figures))];
    let cpu = |most| judge(super::cpu, most, &rows);
    assert_eq!(cpu(1.03).figure, "1.020× ± 0.006");
    assert_eq!(
        (cpu(1.03).state, cpu(1.022).state, cpu(1.01).state),
        (GoalState::Met, GoalState::Unknown, GoalState::Missed)
    );
    assert_eq!((judge(bytes, 64.0, &rows).state, judge(bytes, 50.0, &rows).state), (GoalState::Met, GoalState::Missed));
}

#[test]
fn a_fleet_is_judged_by_what_the_broker_counted() {
    let fleet = |role, held| {
        let account = Some(LedgerReading { received: 10_000, held, ..LedgerReading::default() });
        let latency = Latency::default();
        entry(
            role,
            GateOutcome::Fleet(FleetOutcome {
                sent: 1,
                lost: 0,
                latency,
                late_max_ms: 0.0,
                account,
                cores: Cores::default(),
            }),
        )
    };
    let verdict = |held| judge(delayed, 0.001, &[fleet(BrokerRole::Own, 0), fleet(BrokerRole::Variant, held)]);
    assert_eq!(verdict(10).figure, "0.000 %, always 0.100 %");
    assert_eq!((verdict(10).state, verdict(11).state), (GoalState::Met, GoalState::Missed));
}
