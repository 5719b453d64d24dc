//! Verdicts from figures.

use super::*;
use crate::outcome::{ChurnOutcome, ConnectFailures, Cores, CpuCost, Faults, IdleOutcome, Storm};
use crate::space::{NamedFigure, SpaceFigures};

type Find = fn(&[ReportEntry], f64) -> Finding;

fn judge(find: Find, bound: f64, entries: &[ReportEntry]) -> GoalVerdict {
    goal("", bound, find).judge(entries)
}

fn figures(cost: f64, rate: f64, p50_us: f64, p99_us: f64) -> TrafficOutcome {
    TrafficOutcome {
        delivered_per_s: rate,
        s_per_million: Some(CpuCost { user: cost / 2.0, system: cost / 2.0 }),
        cores: Cores::default(),
        rss_kib: None,
        p50_us,
        p99_us,
        p999_us: p99_us,
        ack_us: None,
        faults: Faults::default(),
        reasons: None,
    }
}

fn entry(role: BrokerRole, outcome: CaseOutcome) -> ReportEntry {
    ReportEntry { case: "case", broker: format!("{role:?}"), role, outcome: Ok(outcome) }
}

fn traffic(role: BrokerRole, cost: f64, rate: f64, p50_us: f64, p99_us: f64) -> ReportEntry {
    entry(role, CaseOutcome::Traffic(figures(cost, rate, p50_us, p99_us)))
}

#[test]
fn cost_is_judged_beside_mosquitto_only() {
    let own = traffic(BrokerRole::Own, 0.5, 10.0, 1.0, 1.0);
    let peer = traffic(BrokerRole::Mosquitto, 4.0, 1.0, 1.0, 1.0);
    let other = traffic(BrokerRole::Peer, 0.1, 20.0, 1.0, 1.0);
    let all = [own.clone(), peer, other.clone()];
    assert_eq!(judge(cost_ratio, 8.0, &all).state, GoalState::Met);
    assert_eq!(judge(cost_ratio, 8.1, &all).state, GoalState::Missed);
    assert_eq!(judge(cost_ratio, 8.0, &all).figure, "8.0×");
    assert_eq!(judge(cost_ratio, 8.0, &[own, other]).state, GoalState::Unknown);
}

#[test]
fn the_fastest_peer_is_the_one_to_beat() {
    let own = traffic(BrokerRole::Own, 0.5, 10.0, 1.0, 1.0);
    let slow = traffic(BrokerRole::Mosquitto, 4.0, 1.0, 1.0, 1.0);
    let fast = traffic(BrokerRole::Peer, 4.0, 20.0, 1.0, 1.0);
    assert_eq!(judge(delivers_most, 0.0, &[own.clone(), slow.clone()]).state, GoalState::Met);
    let verdict = judge(delivers_most, 0.0, &[own.clone(), slow, fast]);
    assert_eq!((verdict.figure.as_str(), verdict.state), ("0.5× Peer's", GoalState::Missed));
    assert_eq!(judge(delivers_most, 0.0, &[own]).state, GoalState::Unknown);
}

#[test]
fn both_quantiles_count() {
    let own = traffic(BrokerRole::Own, 1.0, 1.0, 50.0, 300.0);
    let judged = |p50, p99| judge(latency, 0.0, &[own.clone(), traffic(BrokerRole::Mosquitto, 1.0, 1.0, p50, p99)]);
    assert_eq!(judged(50.0, 300.0).state, GoalState::Met);
    assert_eq!(judged(49.0, 300.0).state, GoalState::Missed);
    assert_eq!(judged(50.0, 299.0).state, GoalState::Missed);
}

#[test]
fn subscriptions_are_judged_from_first_to_last() {
    let rows =
        |last| CaseOutcome::Subscriptions(vec![(1, figures(1.0, 1.0, 1.0, 1.0)), (9, figures(last, 1.0, 1.0, 1.0))]);
    let verdict = |last| judge(flat, 1.2, &[entry(BrokerRole::Own, rows(last))]);
    assert_eq!((verdict(1.1).figure.as_str(), verdict(1.1).state), ("1.10× from 1 to 9", GoalState::Met));
    assert_eq!(verdict(1.5).state, GoalState::Missed);
}

#[test]
fn two_shards_are_compared_with_one_that_had_a_core() {
    let shard = |cost, rate, broker| {
        let cores = Cores { broker: Some(broker), ..Cores::default() };
        entry(BrokerRole::Own, CaseOutcome::Traffic(TrafficOutcome { cores, ..figures(cost, rate, 1.0, 1.0) }))
    };
    let judged = |rate, broker| judge(shard_gain, 1.6, &[shard(1.0, 10.0, broker), shard(1.25, rate, 2.0)]);
    assert_eq!(judged(16.0, 0.95).state, GoalState::Met);
    assert_eq!(judged(16.0, 0.95).figure, "1.60×; by CPU per delivery 1.60× on cores of their own");
    assert_eq!(judged(15.0, 0.95).state, GoalState::Missed);
    assert_eq!(judged(16.0, 0.3).state, GoalState::Unknown, "it was held up by others");
}

#[test]
fn memory_of_a_connection_has_a_maximum() {
    let idle = |kib_each| {
        CaseOutcome::Idle(IdleOutcome {
            connections: 5,
            wanted: 5,
            connects_per_s: 1.0,
            kib_each,
            cores: Cores::default(),
        })
    };
    let state = |kib| judge(memory_each, 2.0, &[entry(BrokerRole::Own, idle(kib))]).state;
    assert_eq!(
        [state(Some(2.0)), state(Some(2.1)), state(None)],
        [GoalState::Met, GoalState::Missed, GoalState::Unknown]
    );
}

#[test]
fn churn_needs_both_rate_and_cost() {
    let churn = |rate, us, trouble| {
        CaseOutcome::Churn(ChurnOutcome { connects_per_s: rate, us_each: Some(us), trouble, cores: Cores::default() })
    };
    let peer = entry(BrokerRole::Mosquitto, churn(100.0, 50.0, ConnectFailures::default()));
    let state = |rate, us, trouble| {
        judge(connects_most, 0.0, &[entry(BrokerRole::Own, churn(rate, us, trouble)), peer.clone()]).state
    };
    assert_eq!(state(101.0, 49.0, ConnectFailures::default()), GoalState::Met);
    assert_eq!(state(99.0, 49.0, ConnectFailures::default()), GoalState::Missed);
    assert_eq!(state(101.0, 51.0, ConnectFailures::default()), GoalState::Missed);
    assert_eq!(state(101.0, 49.0, ConnectFailures { reset: 1, ..ConnectFailures::default() }), GoalState::Missed);
}

#[test]
fn come_back_later_is_no_error() {
    let storm = |back, trouble| {
        let times = (Some(1.0), Some(2.0));
        let (clients, wanted, cores) = (10, 10, Cores::default());
        CaseOutcome::Storm(Storm {
            clients,
            wanted,
            back,
            most_s: times.0,
            all_s: times.1,
            rss_kib: None,
            trouble,
            cores,
        })
    };
    let state = |back, trouble| judge(all_back, 0.0, &[entry(BrokerRole::Own, storm(back, trouble))]).state;
    assert_eq!(state(10, ConnectFailures { later: 50, ..ConnectFailures::default() }), GoalState::Met);
    assert_eq!(state(9, ConnectFailures::default()), GoalState::Missed);
    assert_eq!(state(10, ConnectFailures { silent: 1, ..ConnectFailures::default() }), GoalState::Missed);
}

#[test]
fn each_drop_must_be_counted_and_probes_must_arrive() {
    let overload = Overload {
        probe_p50_us: 4_000.0,
        probe_p99_us: 9_000.0,
        probes: Faults::default(),
        rss_max_kib: Some(32 * 1024),
        sent: 1_000,
        delivered: 400,
        held: 0,
        delivered_per_s: 100.0,
        counted: Some(600),
        closed: 0,
        cores: Cores::default(),
    };
    let state = |(find, bound): (Find, f64), overload| {
        judge(find, bound, &[entry(BrokerRole::Own, CaseOutcome::Overload(overload))]).state
    };
    assert_eq!(state((drops_counted, 0.0), overload), GoalState::Met);
    assert_eq!(state((drops_counted, 0.0), Overload { counted: Some(599), ..overload }), GoalState::Missed);
    assert_eq!(state((drops_counted, 0.0), Overload { counted: None, ..overload }), GoalState::Unknown);
    assert_eq!(state((probes_below_ms, 5.0), overload), GoalState::Met);
    let lost = Overload { probes: Faults { lost: 1, ..Faults::default() }, ..overload };
    assert_eq!(state((probes_below_ms, 5.0), lost), GoalState::Missed);
    assert_eq!(state((memory_below_mib, 32.0), overload), GoalState::Missed);
    assert_eq!(state((memory_below_mib, 33.0), overload), GoalState::Met);
}

#[test]
fn a_bound_of_a_named_figure_is_kept_or_not() {
    let outcome = CaseOutcome::Space(SpaceFigures(vec![NamedFigure { name: "lost", value: 1.0 }]));
    let entries = [entry(BrokerRole::Own, outcome)];
    let verdict = at_most("lost", 0.0).judge(&entries);
    assert_eq!((verdict.goal.as_str(), verdict.figure.as_str(), verdict.state), ("lost ≤ 0", "1", GoalState::Missed));
    assert_eq!(at_least("lost", 1.0).judge(&entries).state, GoalState::Met);
    assert_eq!(at_least("found", 1.0).judge(&entries).state, GoalState::Unknown);
}

#[test]
fn words_have_the_bound_and_rivals_must_take_part() {
    let words = |words, bound| goal(words, bound, flat).judge(&[]).goal;
    assert_eq!(words("≤ {}× of {}", 1.03), "≤ 1.03× of 1.03");
    assert_eq!(words("≥ {%} %, {n}/s", 0.05), "≥ 5 %, 0/s");
    assert_eq!(words("≥ {n}/s", 50_000.0), "≥ 50 000/s");
    assert_eq!([0.001, 0.5, 0.95].map(|bound| words("{%}", bound)), ["0.1", "50", "95"]);
    let own = traffic(BrokerRole::Own, 0.5, 10.0, 1.0, 1.0);
    let peer = traffic(BrokerRole::Peer, 0.5, 10.0, 1.0, 1.0);
    let with = |rivals| beside(rivals, goal("", 0.0, flat)).can_be_judged(&[own.clone(), peer.clone()]);
    assert!(with(&[]) && with(&[BrokerRole::Mosquitto, BrokerRole::Peer]) && !with(&[BrokerRole::Mosquitto]));
}
