//! What each case should come to, and whether it did. Pure: figures in, verdict out.

use super::durable::goals::DurableGoal;
use super::gate::goals::GateGoal;
use super::outcome::{CaseOutcome, TrafficOutcome};
use super::report::{BrokerRole, ReportEntry, grouped};
use super::space::goals::SpaceGoal;

/// A figure to reach. Figures of the same run are compared, so that a noisy machine disturbs both sides alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// mosquitto needs at least so many times our CPU time per delivery.
    CostRatio(f64),
    /// More deliveries a second than every peer.
    DeliversMost,
    /// p50 and p99 not above mosquitto's.
    LatencyNotAbove,
    /// Resident memory of a silent connection, at most.
    KibPerConnection(f64),
    /// More connects a second than mosquitto, and less CPU time for each.
    ConnectsMost,
    /// Everybody came back, and nobody met an error other than "come back later".
    AllBack,
    /// p50 of the probes.
    ProbesBelowMs(f64),
    /// Resident memory at its largest.
    MemoryBelowMib(f64),
    /// The broker says of each message that did not arrive that it dropped it.
    DropsCounted,
    /// The last CPU time per delivery, as a multiple of the first.
    Flat(f64),
    /// Deliveries a second of two shards, as a multiple of one shard's.
    ShardGain(f64),
    /// What the gate is for.
    Gate(GateGoal),
    /// What is kept on disk.
    Durable(DurableGoal),
    /// What the smart space does in a second.
    Space(SpaceGoal),
}

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoalState {
    Met,
    Missed,
    /// A figure is missing, or this machine cannot show it.
    Unknown,
}

/// A goal, the figure that was measured, and what follows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GoalVerdict {
    pub(super) goal: String,
    pub(super) figure: String,
    pub(super) state: GoalState,
}

/// A figure with the answer to whether it is good enough; `None` if it could not be measured.
type Finding = Option<(String, GoalState)>;

fn state(is_met: bool) -> GoalState {
    if is_met { GoalState::Met } else { GoalState::Missed }
}

/// Whether those take part that a goal compares with. Without them it says nothing, not even that it was missed.
pub(super) fn can_be_judged(goal: Goal, entries: &[ReportEntry]) -> bool {
    let has = |role: BrokerRole| entries.iter().any(|entry| entry.role == role);
    match goal {
        Goal::CostRatio(_) | Goal::LatencyNotAbove | Goal::ConnectsMost => has(BrokerRole::Mosquitto),
        Goal::DeliversMost => has(BrokerRole::Mosquitto) || has(BrokerRole::Peer),
        _ => true,
    }
}

/// Judges the entries of one case.
pub(super) fn judge(goal: Goal, entries: &[ReportEntry]) -> GoalVerdict {
    match goal {
        Goal::Gate(aim) => return aim.judge(entries),
        Goal::Space(aim) => return aim.judge(entries),
        Goal::Durable(wanted) => return wanted.judge(entries),
        _ => {}
    }
    let finding = match goal {
        Goal::CostRatio(least) => cost_ratio(entries, least),
        Goal::DeliversMost => delivers_most(entries),
        Goal::LatencyNotAbove => latency(entries),
        Goal::KibPerConnection(most) => memory_each(entries, most),
        Goal::ConnectsMost => connects_most(entries),
        Goal::AllBack => all_back(entries),
        Goal::ProbesBelowMs(_) | Goal::MemoryBelowMib(_) | Goal::DropsCounted => overload(entries, goal),
        Goal::Flat(most) => flat(entries, most),
        Goal::ShardGain(least) => shard_gain(entries, least),
        Goal::Gate(_) | Goal::Durable(_) | Goal::Space(_) => None,
    };
    let (figure, state) = finding.unwrap_or_else(|| ("not measured".to_owned(), GoalState::Unknown));
    GoalVerdict { goal: words(goal), figure, state }
}

fn words(goal: Goal) -> String {
    match goal {
        Goal::CostRatio(least) if least <= 1.0 => "CPU per delivery not above mosquitto's".to_owned(),
        Goal::CostRatio(least) => format!("CPU per delivery ≥ {least:.0}× less than mosquitto's"),
        Goal::DeliversMost => "delivers more per second than every peer".to_owned(),
        Goal::LatencyNotAbove => "p50 and p99 not above mosquitto's".to_owned(),
        Goal::KibPerConnection(most) => format!("resident ≤ {most:.0} KiB per connection"),
        Goal::ConnectsMost => "connects per second and CPU per connect ahead of mosquitto".to_owned(),
        Goal::AllBack => "all back, no error other than \"come back later\"".to_owned(),
        Goal::ProbesBelowMs(most) => format!("probes p50 < {most:.0} ms"),
        Goal::MemoryBelowMib(most) => format!("resident memory < {most:.0} MiB throughout"),
        Goal::DropsCounted => "every drop is counted".to_owned(),
        Goal::Flat(most) => format!("CPU per delivery at most {most:.1}× from the least to the most subscriptions"),
        Goal::Gate(_) | Goal::Durable(_) | Goal::Space(_) => String::new(),
        Goal::ShardGain(least) => format!("two shards deliver ≥ {least:.1}× what one does, on a quiet machine"),
    }
}

fn of_role(entries: &[ReportEntry], role: BrokerRole) -> Option<&CaseOutcome> {
    entries.iter().find(|entry| entry.role == role)?.outcome.as_ref().ok()
}

fn traffic_of(entries: &[ReportEntry], role: BrokerRole) -> Option<&TrafficOutcome> {
    of_role(entries, role)?.traffic()
}

fn cost_ratio(entries: &[ReportEntry], least: f64) -> Finding {
    let own = traffic_of(entries, BrokerRole::Own)?.s_per_million?.total();
    let peer = traffic_of(entries, BrokerRole::Mosquitto)?.s_per_million?.total();
    (own > 0.0).then_some(())?;
    Some((format!("{:.1}×", peer / own), state(peer / own >= least)))
}

fn delivers_most(entries: &[ReportEntry]) -> Finding {
    let own = traffic_of(entries, BrokerRole::Own)?.delivered_per_s;
    let peers = entries.iter().filter(|entry| matches!(entry.role, BrokerRole::Mosquitto | BrokerRole::Peer));
    let rates =
        peers.filter_map(|entry| Some((entry.outcome.as_ref().ok()?.traffic()?.delivered_per_s, &entry.broker)));
    let (best, name) = rates.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some((format!("{:.1}× {name}'s", own / best), state(own > best)))
}

fn latency(entries: &[ReportEntry]) -> Finding {
    let (own, peer) = (traffic_of(entries, BrokerRole::Own)?, traffic_of(entries, BrokerRole::Mosquitto)?);
    let figure = format!(
        "p50 {:.0} against {:.0} µs, p99 {:.0} against {:.0}",
        own.p50_us, peer.p50_us, own.p99_us, peer.p99_us
    );
    Some((figure, state(own.p50_us <= peer.p50_us && own.p99_us <= peer.p99_us)))
}

fn memory_each(entries: &[ReportEntry], most: f64) -> Finding {
    let CaseOutcome::Idle(idle) = of_role(entries, BrokerRole::Own)? else { return None };
    let kib = idle.kib_each?;
    Some((format!("{kib:.2} KiB"), state(kib <= most)))
}

fn connects_most(entries: &[ReportEntry]) -> Finding {
    let (CaseOutcome::Churn(own), CaseOutcome::Churn(peer)) =
        (of_role(entries, BrokerRole::Own)?, of_role(entries, BrokerRole::Mosquitto)?)
    else {
        return None;
    };
    let (own_us, peer_us) = (own.us_each?, peer.us_each?);
    let rates = format!("{} against {} a second", grouped(own.connects_per_s), grouped(peer.connects_per_s));
    let is_met = own.connects_per_s > peer.connects_per_s && own_us < peer_us && own.trouble.errors() == 0;
    Some((format!("{rates}, {own_us:.0} against {peer_us:.0} µs"), state(is_met)))
}

fn all_back(entries: &[ReportEntry]) -> Finding {
    let CaseOutcome::Storm(storm) = of_role(entries, BrokerRole::Own)? else { return None };
    let errors = storm.trouble.errors();
    let figure = format!("{} of {} back, {errors} errors", grouped(storm.back as f64), grouped(storm.clients as f64));
    Some((figure, state(storm.back == storm.clients && errors == 0)))
}

fn overload(entries: &[ReportEntry], goal: Goal) -> Finding {
    let CaseOutcome::Overload(own) = of_role(entries, BrokerRole::Own)? else { return None };
    match goal {
        Goal::ProbesBelowMs(most) => {
            let ms = own.probe_p50_us / 1e3;
            Some((format!("{ms:.1} ms, {} lost", own.probes.lost), state(ms < most && own.probes.lost == 0)))
        }
        Goal::MemoryBelowMib(most) => {
            let mib = own.rss_max_kib? as f64 / 1024.0;
            Some((format!("{mib:.1} MiB"), state(mib < most)))
        }
        _ => {
            let (counted, missing) = (own.counted?, own.dropped());
            let figure = format!("{} counted, {} missing", grouped(counted as f64), grouped(missing as f64));
            Some((figure, state(counted == missing)))
        }
    }
}

fn flat(entries: &[ReportEntry], most: f64) -> Finding {
    let CaseOutcome::Subscriptions(rows) = of_role(entries, BrokerRole::Own)? else { return None };
    let ((few, first), (many, last)) = (rows.first()?, rows.last()?);
    let growth = last.s_per_million?.total() / first.s_per_million?.total();
    let figure = format!("{growth:.2}× from {} to {}", grouped(*few as f64), grouped(*many as f64));
    Some((figure, state(growth <= most)))
}

/// One shard that had less of a core than this was not what held the messages up.
const FULL_CORE: f64 = 0.85;

/// Two shards need two cores of their own and one for the tool. Where they do not have them, neither a hit nor a miss
/// says anything about the broker: among many processes two threads get more of the processor than one.
fn shard_gain(entries: &[ReportEntry], least: f64) -> Finding {
    let mut shards = entries.iter().map(|entry| entry.outcome.as_ref().ok().and_then(CaseOutcome::traffic));
    let (one, two) = (shards.next()??, shards.next()??);
    let gain = two.delivered_per_s / one.delivered_per_s;
    let by_cpu = 2.0 * one.s_per_million?.total() / two.s_per_million?.total();
    let figure = format!("{gain:.2}×; by CPU per delivery {by_cpu:.2}× on cores of their own");
    let used = one.cores.broker?;
    if used < FULL_CORE {
        let why = format!("the one shard had only {used:.2} cores, the tool and others took the rest");
        return Some((format!("{figure}; {why}"), GoalState::Unknown));
    }
    Some((figure, state(gain >= least)))
}

#[cfg(test)]
#[path = "goals_tests.rs"]
mod tests;
