//! What is true, and what each KP believes: how long copies are out of date, and how long it takes to find what was lost. Pure:
//! time is an argument.
//!
//! An update is true from the moment at which its publisher has the broker's word for it. A KP that knows it earlier is not out
//! of date; one that knows it later is, until it knows it, by whatever way.

use std::time::Instant;

use tidegate_sim::histogram::SecondsHistogram;

/// Lost notifications of one KP that are remembered until it finds them; of more only the number is known.
const LOST_MAX: usize = 1024;

/// The items of all KPs.
#[derive(Debug)]
pub(super) struct Copies {
    items: Vec<ItemCopy>,
    /// Measured from here on, until there.
    from: Option<Instant>,
    until: Option<Instant>,
    stale_seconds: f64,
    found: SecondsHistogram,
    updates: u64,
}

#[derive(Clone, Debug, Default)]
struct ItemCopy {
    /// The newest version that is in the broker, and the newest that the KP knows.
    truth: u64,
    known: u64,
    stale_since: Option<Instant>,
    /// When notifications were lost that no later one has made good and no check has shown.
    lost: Vec<Instant>,
}

/// How a KP came to know a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// By a notification.
    Notified,
    /// It has asked.
    Asked,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Freshness {
    /// Mean share of the KPs whose copy is out of date.
    pub(super) stale: f64,
    /// Seconds from the loss of a notification to the answer that shows it; none if none was found.
    pub(super) found_after: Option<f64>,
    /// Updates that came true.
    pub(super) updates: u64,
}

impl Copies {
    pub(super) fn new(kps: usize) -> Self {
        let items = vec![ItemCopy::default(); kps];
        Self { items, from: None, until: None, stale_seconds: 0.0, found: SecondsHistogram::default(), updates: 0 }
    }

    /// From now on it is measured.
    pub(super) fn start(&mut self, now: Instant) {
        (self.from, self.until) = (Some(now), None);
    }

    /// No more.
    pub(super) fn stop(&mut self, now: Instant) {
        for kp in 0..self.items.len() {
            self.count(kp, now);
        }
        self.until = Some(now);
    }

    fn is_measured(&self) -> bool {
        self.from.is_some() && self.until.is_none()
    }

    /// The broker has this version of the item of a KP.
    pub(super) fn on_update(&mut self, kp: usize, version: u64, now: Instant) {
        self.updates += u64::from(self.is_measured());
        self.count(kp, now);
        if let Some(copy) = self.items.get_mut(kp) {
            copy.truth = copy.truth.max(version);
            copy.settle(now);
        }
    }

    /// A KP has seen this version.
    pub(super) fn on_known(&mut self, kp: usize, version: u64, told: Told, now: Instant) {
        self.count(kp, now);
        let is_measured = self.is_measured();
        let Some(copy) = self.items.get_mut(kp) else { return };
        copy.known = copy.known.max(version);
        for lost in copy.lost.drain(..) {
            if is_measured && told == Told::Asked {
                self.found.add(now.saturating_duration_since(lost).as_secs_f64());
            }
        }
        copy.settle(now);
    }

    /// A notification to a KP was lost.
    pub(super) fn on_lost(&mut self, kp: usize, now: Instant) {
        if let Some(copy) = self.items.get_mut(kp).filter(|copy| copy.lost.len() < LOST_MAX) {
            copy.lost.push(now);
        }
    }

    /// Adds what there was of being out of date until now.
    fn count(&mut self, kp: usize, now: Instant) {
        let (Some(from), true) = (self.from, self.is_measured()) else { return };
        let Some(since) = self.items.get_mut(kp).and_then(|copy| copy.stale_since.as_mut()) else { return };
        self.stale_seconds += now.saturating_duration_since((*since).max(from)).as_secs_f64();
        *since = now;
    }

    pub(super) fn freshness(&self) -> Freshness {
        let seconds = self.from.zip(self.until).map_or(0.0, |(from, until)| (until - from).as_secs_f64());
        let all = seconds * self.items.len() as f64;
        Freshness {
            stale: if all > 0.0 { self.stale_seconds / all } else { 0.0 },
            found_after: (self.found.count() > 0).then(|| self.found.mean()),
            updates: self.updates,
        }
    }
}

impl ItemCopy {
    fn settle(&mut self, now: Instant) {
        self.stale_since = if self.known >= self.truth { None } else { self.stale_since.or(Some(now)) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_copy_is_stale_from_the_brokers_word_until_it_is_known() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut copies = Copies::new(2);
        copies.on_update(0, 1, at(0.0));
        copies.start(at(1.0));
        copies.on_known(0, 1, Told::Notified, at(3.0)); // stale for 2 of the measured seconds
        copies.on_known(1, 1, Told::Notified, at(4.0)); // before the publisher has heard of it
        copies.on_update(1, 1, at(4.5));
        copies.on_update(1, 2, at(6.0)); // stale to the end: 5 s
        copies.stop(at(11.0));
        copies.on_known(1, 2, Told::Notified, at(20.0));
        let freshness = copies.freshness();
        assert!((freshness.stale - 7.0 / 20.0).abs() < 1e-9, "{freshness:?}");
        assert_eq!((freshness.updates, freshness.found_after), (2, None));
    }

    #[test]
    fn a_loss_is_found_by_who_asks_and_made_good_by_the_next_notification() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut copies = Copies::new(2);
        copies.start(at(0.0));
        for (kp, seconds) in [(0, 1.0), (0, 2.0), (1, 1.0)] {
            copies.on_lost(kp, at(seconds));
        }
        copies.on_known(0, 2, Told::Asked, at(4.0)); // after 3 and 2 seconds
        copies.on_known(1, 2, Told::Notified, at(9.0)); // not found: made good
        copies.on_known(0, 3, Told::Asked, at(9.0)); // nothing was lost
        copies.stop(at(10.0));
        let found = copies.freshness().found_after;
        assert!(found.is_some_and(|mean| (mean - 2.5).abs() < 1e-6), "{found:?}");
    }
}
