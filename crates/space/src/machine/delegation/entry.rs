//! One subscription whose client accepts to be delegated: what pushing to it costs, what a check of it would cost, and for
//! how long it stays where it is.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::{DelegationTerms, INTERVAL_MAX};

#[derive(Clone, Copy, Debug)]
pub(super) struct DelegationEntry {
    pub(super) rank: u8,
    /// Whose it is.
    pub(super) client: u64,
    /// Changes a second of late, as of `noted`. While it is delegated it is known by its checks only, and does not fade.
    rate: f64,
    noted: Timestamp,
    is_pushed: bool,
    /// Rows of a change, in the mean.
    rows: f64,
    /// When it was last moved; none if never.
    moved: Option<Timestamp>,
    /// How often it was delegated without a long time between.
    strikes: u8,
    /// How often its client is to check, while it is delegated, and what it was last told: it hears of another interval with the
    /// answer to its next check.
    pub(super) every: Duration,
    pub(super) told: Option<Duration>,
}

impl DelegationEntry {
    pub(super) fn new(now: Timestamp, terms: &DelegationTerms) -> Self {
        let DelegationTerms { rank, client, .. } = *terms;
        let (is_pushed, moved, strikes, every) = (true, None, 0, INTERVAL_MAX);
        Self { rank, client, rate: 0.0, noted: now, is_pushed, rows: 1.0, moved, strikes, every, told: None }
    }

    pub(super) fn note(&mut self, now: Timestamp, rows: usize) {
        self.rate = self.rate(now) + 1.0 / RATE_SECS;
        self.noted = now;
        self.rows += (rows as f64 - self.rows) * ROWS_WEIGHT;
    }

    pub(super) fn note_check(&mut self, now: Timestamp, changes: u64) {
        // Two checks in a row, one of them early, are no rate.
        let elapsed = now.since(self.noted).max(CHECKS_APART);
        self.rate += (changes as f64 / elapsed.as_secs_f64() - self.rate) / 2.0;
        self.noted = now;
    }

    fn rate(&self, now: Timestamp) -> f64 {
        if !self.is_pushed {
            return self.rate;
        }
        self.rate * (-now.since(self.noted).as_secs_f64() / RATE_SECS).exp()
    }

    /// Processors that pushing takes, or would take.
    pub(super) fn load(&self, now: Timestamp) -> f64 {
        self.rate(now) * (PUSH_SECS + self.rows * ROW_SECS)
    }

    /// Seconds of work of one check.
    pub(super) fn check_cost(&self) -> f64 {
        CHECK_SECS + self.rows * ROW_SECS
    }

    /// Whether it may be moved again. Only who is delegated stays for longer each time: else whoever was taken back too
    /// early would be spared at the cost of more important ones.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        let doublings = if self.is_pushed { 0 } else { self.strikes };
        self.moved.is_none_or(|moved| now.since(moved) >= STAY_MIN * (1 << doublings))
    }

    pub(super) fn on_delegated(&mut self, now: Timestamp) {
        let is_again = self.moved.is_some_and(|moved| now.since(moved) < FORGIVEN_AFTER);
        self.strikes = if is_again { (self.strikes + 1).min(STRIKES_MAX) } else { 0 };
        self.rate = self.rate(now);
        (self.noted, self.moved, self.is_pushed) = (now, Some(now), false);
    }

    pub(super) fn on_returned(&mut self, now: Timestamp) {
        (self.noted, self.moved, self.is_pushed) = (now, Some(now), true);
    }
}

/// Processors that the checks of one take.
pub(super) fn check_load(entry: &DelegationEntry) -> f64 {
    entry.check_cost() / entry.every.as_secs_f64().max(1e-3)
}

/// The interval at which checks cost half of what is pushed; the longest if nothing is.
pub(super) fn own_interval(entry: &DelegationEntry, now: Timestamp) -> Duration {
    let load = entry.load(now);
    let longest = INTERVAL_MAX.as_secs_f64();
    if load * longest <= 2.0 * entry.check_cost() {
        return INTERVAL_MAX;
    }
    Duration::from_secs_f64(2.0 * entry.check_cost() / load)
}

/// Seconds over which changes are counted.
const RATE_SECS: f64 = 10.0;
/// The least time that the changes of a check are taken to have come in.
const CHECKS_APART: Duration = Duration::from_millis(500);
/// Weight of the newest change in the mean of rows.
const ROWS_WEIGHT: f64 = 0.125;
/// Pushing a change to one of a hundred takes 9 µs (`tidegate-bench space`, "to the last of 100").
const PUSH_SECS: f64 = 9e-6;
/// A row more, as it is written.
const ROW_SECS: f64 = 1e-6;
/// A check has a text to be read and its turn to be waited for: what the request queue assumes of one.
const CHECK_SECS: f64 = 100e-6;
/// Whoever was moved stays for this long; delegated twice as long after each time that it was again, so often at most.
pub(super) const STAY_MIN: Duration = Duration::from_secs(5);
const STRIKES_MAX: u8 = 5;
/// After this time without a move it is as if there had been none.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
