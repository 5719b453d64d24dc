//! How figures of the durable cases are found and compared; the bounds are in the table of cases. Pure: figures in,
//! verdict out.

use super::{DurableOutcome, DurableRate, Restart};
use crate::goals::{Finding, GoalState, state};
use crate::outcome::{CaseOutcome, Cores};
use crate::report::{BrokerRole, ReportEntry, grouped};

/// From so much of all cores on, the processor was the limit and not the disk.
const BUSY: f64 = 0.9;
/// With so many cores for others, a missed rate says nothing about the broker.
const DISTURBED: f64 = 0.25;

/// The share of what the disk allows, at least: syncs a second times publishers.
pub(crate) fn disk_share(entries: &[ReportEntry], least: f64) -> Finding {
    disk_share_on(cores(), rate(entries, BrokerRole::Own)?, least)
}

/// Messages a second, at least, where the disk allows as many.
pub(crate) fn per_second(entries: &[ReportEntry], least: f64) -> Finding {
    per_second_on(cores(), rate(entries, BrokerRole::Own)?, least)
}

/// Cores of this machine.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
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

fn disk_share_on(cores: f64, own: &DurableRate, least: f64) -> Finding {
    let share = own.traffic.delivered_per_s / own.limit_per_s()?;
    let figure = format!("{:.0} %", share * 100.0);
    if share < least && is_busy(&own.traffic.cores, cores) {
        return Some((format!("{figure}; all cores were busy, the disk was not the limit"), GoalState::Unknown));
    }
    Some((figure, state(share >= least)))
}

fn per_second_on(cores: f64, own: &DurableRate, least: f64) -> Finding {
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

/// CPU time per message, at most so many times that without a store.
pub(crate) fn cpu_times(entries: &[ReportEntry], most: f64) -> Finding {
    let (own, off) = (rate(entries, BrokerRole::Own)?.us_each()?, rate(entries, BrokerRole::Off)?.us_each()?);
    Some((format!("{:.2}×: {own:.1} against {off:.1} µs", own / off), state(own / off <= most)))
}

/// Seconds until a killed broker serves again, per million messages that wait.
pub(crate) fn restart(entries: &[ReportEntry], most: f64) -> Finding {
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
            ack_us: None,
            faults: Faults::default(),
            reasons: None,
        };
        let rate = DurableRate { publishers: 100, traffic, promise: "", syncs_per_s };
        let outcome = Ok(CaseOutcome::Durable(DurableOutcome::Rate(rate)));
        ReportEntry { case: "durable", broker: String::new(), role, outcome }
    }

    /// Judged on two cores.
    fn judged(find: fn(f64, &DurableRate, f64) -> Finding, bound: f64, per_s: f64, used: f64) -> (String, GoalState) {
        let entries = [entry(BrokerRole::Own, per_s, 10.0, Some(100.0), used)];
        find(2.0, rate(&entries, BrokerRole::Own).unwrap(), bound).unwrap()
    }

    #[test]
    fn the_disk_is_the_measure_unless_the_processor_was_the_limit() {
        let judged = |per_s, used| judged(disk_share_on, 0.5, per_s, used);
        assert_eq!((judged(5_000.0, 0.1).1, judged(4_900.0, 0.1).1), (GoalState::Met, GoalState::Missed));
        assert_eq!(judged(4_900.0, 0.9).1, GoalState::Unknown);
        assert_eq!(judged(5_000.0, 0.1).0, "50 %");
    }

    #[test]
    fn a_rate_that_the_disk_cannot_have_is_not_missed() {
        let judged = |least, per_s, used| judged(per_second_on, least, per_s, used).1;
        assert_eq!(judged(9_000.0, 9_000.0, 0.1), GoalState::Met);
        assert_eq!(judged(9_000.0, 8_000.0, 0.1), GoalState::Missed);
        assert_eq!(judged(10_001.0, 8_000.0, 0.1), GoalState::Unknown);
        assert_eq!(judged(9_000.0, 8_000.0, 0.9), GoalState::Unknown);
    }

    #[test]
    fn cost_is_judged_beside_ours_without_a_store() {
        let with = |us| [entry(BrokerRole::Own, 1.0, us, None, 0.0), entry(BrokerRole::Off, 1.0, 10.0, None, 0.0)];
        let cost = |entries: &[ReportEntry]| cpu_times(entries, 3.0).unwrap().1;
        assert_eq!(cost(&with(30.0)), GoalState::Met);
        assert_eq!(cost(&with(31.0)), GoalState::Missed);
        assert_eq!(cpu_times(&with(30.0)[..1], 3.0), None);
    }

    #[test]
    fn a_restart_that_lost_something_is_no_restart() {
        let judged_with = |waiting, seconds, cpu_s| {
            let (rss_kib, cores) = (None, Cores::default());
            let restart = Restart { messages: 100_000, waiting, seconds, cpu_s, rss_kib, cores };
            let outcome = Ok(CaseOutcome::Durable(DurableOutcome::Restart(restart)));
            let entry = ReportEntry { case: "", broker: String::new(), role: BrokerRole::Own, outcome };
            super::restart(&[entry], 10.0).unwrap().1
        };
        let judged = |waiting, seconds| judged_with(waiting, seconds, None);
        assert_eq!(judged_with(Some(100_000), 5.0, Some(0.9)), GoalState::Unknown, "others had the processor");
        assert_eq!(judged_with(Some(99_999), 5.0, Some(0.9)), GoalState::Missed);
        assert_eq!((judged(Some(100_001), 0.9), judged(Some(100_000), 1.0)), (GoalState::Met, GoalState::Missed));
        assert_eq!((judged(Some(99_999), 0.1), judged(None, 0.1)), (GoalState::Missed, GoalState::Missed));
    }
}
