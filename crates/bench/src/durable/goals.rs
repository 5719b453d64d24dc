//! What the durable cases should come to, and whether they did. Pure: figures in, verdict out.

use super::{DurableOutcome, DurableRate, Restart};
use crate::goals::{GoalState, GoalVerdict};
use crate::outcome::{CaseOutcome, Cores};
use crate::report::{BrokerRole, ReportEntry, grouped};

/// A figure to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DurableGoal {
    /// The share of what the disk allows, at least: syncs a second times publishers.
    DiskShare(f64),
    /// Messages a second, at least, where the disk allows as many.
    PerSecond(f64),
    /// CPU time per message, at most so many times that without a store.
    CpuTimes(f64),
    /// Seconds until a killed broker serves again, per million messages that wait.
    RestartS(f64),
}

/// From so much of all cores on, the processor was the limit and not the disk.
const BUSY: f64 = 0.9;
/// With so many cores for others, a missed rate says nothing about the broker.
const DISTURBED: f64 = 0.25;

impl DurableGoal {
    /// Judges the entries of one case, on a machine with so many cores as this one.
    pub(crate) fn judge(self, entries: &[ReportEntry]) -> GoalVerdict {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.judge_on(entries, cores as f64)
    }

    fn judge_on(self, entries: &[ReportEntry], cores: f64) -> GoalVerdict {
        let finding = match self {
            Self::DiskShare(least) => rate(entries, BrokerRole::Own).and_then(|own| disk_share(own, least, cores)),
            Self::PerSecond(least) => rate(entries, BrokerRole::Own).and_then(|own| per_second(own, least, cores)),
            Self::CpuTimes(most) => cpu_times(entries, most),
            Self::RestartS(most) => restart(entries, most),
        };
        let (figure, state) = finding.unwrap_or_else(|| ("not measured".to_owned(), GoalState::Unknown));
        GoalVerdict { goal: self.words(), figure, state }
    }

    fn words(self) -> String {
        match self {
            Self::DiskShare(least) => format!("≥ {:.0} % of what the disk allows", least * 100.0),
            Self::PerSecond(least) => format!("≥ {} messages/s where the disk allows it", grouped(least)),
            Self::CpuTimes(most) => format!("CPU per message ≤ {most:.0}× that without a store"),
            Self::RestartS(most) => format!("serves again after < {most:.0} s per million messages, none missing"),
        }
    }
}

type Finding = Option<(String, GoalState)>;

fn state(is_met: bool) -> GoalState {
    if is_met { GoalState::Met } else { GoalState::Missed }
}

fn rate(entries: &[ReportEntry], role: BrokerRole) -> Option<&DurableRate> {
    match entries.iter().find(|entry| entry.role == role)?.outcome.as_ref() {
        Ok(CaseOutcome::Durable(DurableOutcome::Rate(rate))) => Some(rate),
        _ => None,
    }
}

/// Whether every core was at work.
fn is_busy(used: &Cores, cores: f64) -> bool {
    used.broker.unwrap_or(0.0) + used.tool + used.others.unwrap_or(0.0) >= BUSY * cores
}

fn disk_share(own: &DurableRate, least: f64, cores: f64) -> Finding {
    let share = own.traffic.delivered_per_s / own.limit_per_s()?;
    let figure = format!("{:.0} %", share * 100.0);
    if share < least && is_busy(&own.traffic.cores, cores) {
        return Some((format!("{figure}; all cores were busy, the disk was not the limit"), GoalState::Unknown));
    }
    Some((figure, state(share >= least)))
}

fn per_second(own: &DurableRate, least: f64, cores: f64) -> Finding {
    let (per_s, limit) = (own.traffic.delivered_per_s, own.limit_per_s()?);
    let figure = format!("{}/s", grouped(per_s));
    if per_s >= least {
        return Some((figure, GoalState::Met));
    }
    if limit < least {
        return Some((format!("{figure}; the disk allows {}/s", grouped(limit)), GoalState::Unknown));
    }
    let others = own.traffic.cores.others.unwrap_or(0.0);
    if others >= DISTURBED && is_busy(&own.traffic.cores, cores) {
        return Some((format!("{figure}; others took {others:.2} cores"), GoalState::Unknown));
    }
    Some((figure, GoalState::Missed))
}

fn cpu_times(entries: &[ReportEntry], most: f64) -> Finding {
    let (own, off) = (rate(entries, BrokerRole::Own)?.us_each()?, rate(entries, BrokerRole::Off)?.us_each()?);
    Some((format!("{:.2}×: {own:.1} against {off:.1} µs", own / off), state(own / off <= most)))
}

fn restart(entries: &[ReportEntry], most: f64) -> Finding {
    let entry = entries.iter().find(|entry| entry.role == BrokerRole::Own)?;
    let Ok(CaseOutcome::Durable(DurableOutcome::Restart(found))) = &entry.outcome else { return None };
    let Restart { messages, waiting, .. } = *found;
    let each = found.s_per_million();
    // More than were acknowledged may be there: the last ones were kept, and their acknowledgements on the way.
    let is_all_there = waiting.is_some_and(|waiting| waiting >= messages);
    let figure = format!("{each:.1} s per million, measured with {}", grouped(messages as f64));
    if let Some(cpu) = found.cpu_s_per_million().filter(|cpu| is_all_there && each >= most && *cpu < most) {
        return Some((format!("{figure}; it got {cpu:.1} s of CPU in that time"), GoalState::Unknown));
    }
    Some((figure, state(each < most && is_all_there)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{CpuCost, Faults, TrafficOutcome};

    fn entry(role: BrokerRole, per_s: f64, us: f64, syncs_per_s: Option<f64>, used: f64) -> ReportEntry {
        let traffic = TrafficOutcome {
            delivered_per_s: per_s,
            s_per_million: Some(CpuCost { user: us, system: 0.0 }),
            cores: Cores { broker: Some(used), tool: 0.0, others: Some(used) },
            rss_kib: None,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            faults: Faults::default(),
            reasons: None,
        };
        let rate = DurableRate { publishers: 100, traffic, promise: "", syncs_per_s };
        let outcome = Ok(CaseOutcome::Durable(DurableOutcome::Rate(rate)));
        ReportEntry { case: "durable", broker: String::new(), role, outcome }
    }

    fn own(per_s: f64, used: f64) -> [ReportEntry; 1] {
        [entry(BrokerRole::Own, per_s, 10.0, Some(100.0), used)]
    }

    #[test]
    fn the_disk_is_the_measure_unless_the_processor_was_the_limit() {
        let judged = |per_s, used| DurableGoal::DiskShare(0.5).judge_on(&own(per_s, used), 2.0);
        assert_eq!((judged(5_000.0, 0.1).state, judged(4_900.0, 0.1).state), (GoalState::Met, GoalState::Missed));
        assert_eq!(judged(4_900.0, 0.9).state, GoalState::Unknown);
        assert_eq!(judged(5_000.0, 0.1).figure, "50 %");
    }

    #[test]
    fn a_rate_that_the_disk_cannot_have_is_not_missed() {
        let judged = |least, per_s, used| DurableGoal::PerSecond(least).judge_on(&own(per_s, used), 2.0).state;
        assert_eq!(judged(9_000.0, 9_000.0, 0.1), GoalState::Met);
        assert_eq!(judged(9_000.0, 8_000.0, 0.1), GoalState::Missed);
        assert_eq!(judged(10_001.0, 8_000.0, 0.1), GoalState::Unknown);
        assert_eq!(judged(9_000.0, 8_000.0, 0.9), GoalState::Unknown);
    }

    #[test]
    fn cost_is_judged_beside_ours_without_a_store() {
        let with = |us| [entry(BrokerRole::Own, 1.0, us, None, 0.0), entry(BrokerRole::Off, 1.0, 10.0, None, 0.0)];
        assert_eq!(DurableGoal::CpuTimes(3.0).judge(&with(30.0)).state, GoalState::Met);
        assert_eq!(DurableGoal::CpuTimes(3.0).judge(&with(31.0)).state, GoalState::Missed);
        assert_eq!(DurableGoal::CpuTimes(3.0).judge(&with(30.0)[..1]).state, GoalState::Unknown);
    }

    #[test]
    fn a_restart_that_lost_something_is_no_restart() {
        let judged_with = |waiting, seconds, cpu_s| {
            let (rss_kib, cores) = (None, Cores::default());
            let restart = Restart { messages: 100_000, waiting, seconds, cpu_s, rss_kib, cores };
            let outcome = Ok(CaseOutcome::Durable(DurableOutcome::Restart(restart)));
            DurableGoal::RestartS(10.0)
                .judge(&[ReportEntry { case: "", broker: String::new(), role: BrokerRole::Own, outcome }])
                .state
        };
        let judged = |waiting, seconds| judged_with(waiting, seconds, None);
        assert_eq!(judged_with(Some(100_000), 5.0, Some(0.9)), GoalState::Unknown, "others had the processor");
        assert_eq!(judged_with(Some(99_999), 5.0, Some(0.9)), GoalState::Missed);
        assert_eq!((judged(Some(100_001), 0.9), judged(Some(100_000), 1.0)), (GoalState::Met, GoalState::Missed));
        assert_eq!((judged(Some(99_999), 0.1), judged(None, 0.1)), (GoalState::Missed, GoalState::Missed));
    }
}
