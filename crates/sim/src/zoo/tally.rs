//! What became of the messages of one cohort, in tenths of a second by when each was due.

use std::time::Duration;

use super::model::Phases;
use crate::histogram::Histogram;

const SLOT_NS: u64 = 100_000_000;
/// Later than this is not well yet.
const WELL_NS: u64 = 250_000_000;
/// So long after the last part clients may be watched: until five seconds after any trouble are over.
const WATCH_NS: u64 = 6_000_000_000;
/// Well are clients of whom nothing was lost, late or refused for so long, up to what may be under way still.
const WELL_FOR_SLOTS: usize = 10;
const UNDER_WAY_SLOTS: usize = 3;

#[derive(Clone, Copy, Debug, Default)]
struct TallySlot {
    offered: u64,
    delivered: u64,
    refused: u64,
    worst_ns: u64,
}

/// Counts of one cohort.
#[derive(Clone, Debug)]
pub struct CohortTally {
    begin_ns: u64,
    trouble_end_ns: u64,
    end_ns: u64,
    /// Copies of each message at subscribers that count.
    copies: u64,
    slots: Vec<TallySlot>,
    /// Of messages that were due from the beginning of the trouble on.
    latency: Histogram,
    /// Copies that arrived while the trouble lasted, and from its beginning to the end, whenever they were due.
    arrived: u64,
    arrived_all: u64,
    reordered: u64,
    hints: u64,
    longest_wait: Duration,
    first_sign_ns: Option<u64>,
    last_refused_ns: Option<u64>,
}

/// What it comes to, from the beginning of the trouble to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Copies that should have been delivered.
    pub offered: u64,
    /// Copies that were.
    pub delivered: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Times that a client was told to wait or to send less often.
    pub hints: u64,
    /// The longest time that it was told to wait.
    pub longest_wait_s: f64,
    /// Messages that came after a later one of the same publisher.
    pub reordered: u64,
    /// Delivered a second.
    pub per_s: f64,
    /// Arrived a second while the trouble lasted, whenever it was due.
    pub arrived_per_s: f64,
    /// Arrived a second from the beginning of the trouble to the end, whenever it was due.
    pub goodput_per_s: f64,
    /// Not delivered, as a share.
    pub loss: f64,
    /// Of what was delivered.
    pub p50_ms: f64,
    /// Of what was delivered.
    pub p99_ms: f64,
    /// Of what was offered: what was not delivered is later than anything.
    pub honest_p99_ms: f64,
    /// From the beginning of the trouble to the first sign at a client that it is held back.
    pub reacted_s: Option<f64>,
    /// From the end of the trouble until everything was delivered in time again.
    pub recovered_s: f64,
    /// From the end of the trouble to the last message that was refused.
    pub refused_s: f64,
}

impl CohortTally {
    /// Nothing yet.
    pub fn new(phases: Phases, copies: u32) -> Self {
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        let slots = (nanos(phases.end()) + WATCH_NS) / SLOT_NS + 1;
        Self {
            begin_ns: nanos(phases.lead),
            trouble_end_ns: nanos(phases.trouble_end()),
            end_ns: nanos(phases.end()),
            copies: u64::from(copies),
            slots: vec![TallySlot::default(); slots as usize],
            latency: Histogram::new(),
            arrived: 0,
            arrived_all: 0,
            reordered: 0,
            hints: 0,
            longest_wait: Duration::ZERO,
            first_sign_ns: None,
            last_refused_ns: None,
        }
    }

    fn slot(&mut self, due_ns: u64) -> Option<&mut TallySlot> {
        self.slots.get_mut((due_ns / SLOT_NS) as usize)
    }

    /// A message was due then.
    #[inline]
    pub fn on_offered(&mut self, due_ns: u64) {
        if let Some(slot) = self.slot(due_ns) {
            slot.offered += 1;
        }
    }

    /// A copy of a message that was due then has arrived.
    #[inline]
    pub fn on_delivered(&mut self, due_ns: u64, now_ns: u64) {
        let latency = now_ns.saturating_sub(due_ns);
        self.arrived += u64::from((self.begin_ns..self.trouble_end_ns).contains(&now_ns));
        self.arrived_all += u64::from((self.begin_ns..self.end_ns).contains(&now_ns));
        if let Some(slot) = self.slot(due_ns) {
            slot.delivered += 1;
            slot.worst_ns = slot.worst_ns.max(latency);
        }
        if (self.begin_ns..self.end_ns).contains(&due_ns) {
            self.latency.record(latency);
        }
    }

    pub(super) fn on_reordered(&mut self) {
        self.reordered += 1;
    }

    /// A message that was due then was refused.
    pub fn on_refused(&mut self, due_ns: u64) {
        self.last_refused_ns = self.last_refused_ns.max(Some(due_ns));
        if let Some(slot) = self.slot(due_ns) {
            slot.refused += 1;
        }
    }

    pub(super) fn on_hint(&mut self, now_ns: u64, wait: Option<Duration>) {
        self.hints += u64::from(now_ns >= self.begin_ns);
        self.longest_wait = self.longest_wait.max(wait.unwrap_or_default());
        self.on_sign(now_ns);
    }

    /// A client is held back.
    pub(super) fn on_sign(&mut self, now_ns: u64) {
        if now_ns >= self.begin_ns && self.first_sign_ns.is_none() {
            self.first_sign_ns = Some(now_ns);
        }
    }

    /// The slots of what counts: from the beginning of the trouble to the end.
    fn counted(&self) -> &[TallySlot] {
        self.slots.get((self.begin_ns / SLOT_NS) as usize..(self.end_ns / SLOT_NS) as usize).unwrap_or_default()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.counted().iter().all(|slot| slot.delivered + slot.refused * self.copies >= slot.offered * self.copies)
    }

    /// Copies so far of what counts.
    pub(super) fn delivered(&self) -> u64 {
        self.counted().iter().map(|slot| slot.delivered).sum()
    }

    /// Whether all has been well for a second; of who is to blame for its own lateness only refusals count.
    pub(super) fn is_well(&self, now_ns: u64, is_innocent: bool) -> bool {
        let last = ((now_ns / SLOT_NS) as usize).saturating_sub(UNDER_WAY_SLOTS);
        let slots = self.slots.get(last.saturating_sub(WELL_FOR_SLOTS)..last).unwrap_or_default();
        slots.iter().all(|slot| slot.refused == 0 && !(is_innocent && self.is_bad(slot)))
    }

    fn is_bad(&self, slot: &TallySlot) -> bool {
        slot.delivered < slot.offered * self.copies || slot.worst_ns > WELL_NS
    }

    /// What it comes to.
    pub fn figures(&self) -> Figures {
        let slots = self.counted();
        let offered = self.copies * slots.iter().map(|slot| slot.offered).sum::<u64>();
        let delivered = slots.iter().map(|slot| slot.delivered).sum::<u64>().min(offered);
        let seconds = self.end_ns.saturating_sub(self.begin_ns) as f64 * 1e-9;
        let loss = if offered > 0 { 1.0 - delivered as f64 / offered as f64 } else { 0.0 };
        let ms = |share: f64| self.latency.quantile(share) as f64 * 1e-6;
        let arrived = 1.0 - loss;
        // The 99th of a hundred that were offered is a later one of those that came.
        let honest_p99_ms = if arrived < 0.99 { f64::INFINITY } else { ms((0.99 / arrived).min(1.0)) };
        let since = |at: Option<u64>, from: u64| at.map(|at| at.saturating_sub(from) as f64 * 1e-9);
        Figures {
            offered,
            delivered,
            refused: slots.iter().map(|slot| slot.refused).sum(),
            hints: self.hints,
            longest_wait_s: self.longest_wait.as_secs_f64(),
            reordered: self.reordered,
            per_s: delivered as f64 / seconds.max(1e-9),
            goodput_per_s: self.arrived_all as f64 / seconds.max(1e-9),
            arrived_per_s: self.arrived as f64
                / (self.trouble_end_ns.saturating_sub(self.begin_ns) as f64 * 1e-9).max(1e-9),
            loss,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            honest_p99_ms,
            reacted_s: since(self.first_sign_ns, self.begin_ns),
            recovered_s: self.recovered_s(self.end_ns),
            refused_s: since(self.last_refused_ns, self.trouble_end_ns).unwrap_or_default(),
        }
    }

    /// How long after the trouble something was lost or late, as far as is known at `until_ns`.
    pub(super) fn recovered_s(&self, until_ns: u64) -> f64 {
        let first = (self.trouble_end_ns / SLOT_NS) as usize;
        let last = (until_ns / SLOT_NS) as usize;
        let slots = self.slots.get(first..last).unwrap_or_default();
        slots.iter().rposition(|slot| self.is_bad(slot)).map_or(0.0, |slot| (slot + 1) as f64 * SLOT_NS as f64 * 1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: Phases = Phases { lead: 1.0, trouble: 1.0, after: 1.0 };

    #[test]
    fn what_is_lost_is_later_than_anything() {
        let mut tally = CohortTally::new(PHASES, 1);
        for number in 0..100 {
            let due = 1_000_000_000 + number * 10_000_000;
            tally.on_offered(due);
            if number > 1 {
                tally.on_delivered(due, due + 1_000_000);
            }
        }
        let figures = tally.figures();
        assert_eq!((figures.offered, figures.delivered), (100, 98));
        assert!((figures.loss - 0.02).abs() < 1e-9 && figures.p99_ms < 1.1);
        assert_eq!(figures.honest_p99_ms, f64::INFINITY);
    }

    #[test]
    fn who_was_refused_or_late_of_late_is_not_well() {
        let mut tally = CohortTally::new(PHASES, 1);
        for tenth in 30..60 {
            tally.on_offered(tenth * 100_000_000);
            tally.on_delivered(tenth * 100_000_000, tenth * 100_000_000 + if tenth == 40 { 300_000_000 } else { 1 });
        }
        let is_well = |tally: &CohortTally, tenth: u64, is_innocent| tally.is_well(tenth * 100_000_000, is_innocent);
        assert!(is_well(&tally, 43, true) && !is_well(&tally, 44, true) && is_well(&tally, 44, false));
        assert!(!is_well(&tally, 53, true) && is_well(&tally, 54, true));
        tally.on_refused(5_000_000_000);
        assert!(!is_well(&tally, 54, false));
        assert!((tally.recovered_s(6_000_000_000) - 2.1).abs() < 1e-9, "beyond the end, where somebody looks");
    }

    #[test]
    fn recovery_is_the_end_of_the_last_bad_tenth_of_a_second() {
        let mut tally = CohortTally::new(PHASES, 1);
        for due in [2_050_000_000, 2_450_000_000, 2_850_000_000] {
            tally.on_offered(due);
        }
        tally.on_delivered(2_050_000_000, 2_051_000_000);
        tally.on_delivered(2_850_000_000, 2_851_000_000);
        assert!((tally.figures().recovered_s - 0.5).abs() < 1e-9);
        tally.on_delivered(2_450_000_000, 2_451_000_000);
        assert!(tally.figures().recovered_s.abs() < 1e-9);
    }
}
