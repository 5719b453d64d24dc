//! Paper 003 to the letter, with the readings that make it run (CONTROL B1–B8).
//!
//! ```text
//! FR_avg = 1 / mean of the first N − 1 intervals, frozen             eq. (2), read with N − 1 intervals (B1)
//! FR_new = 1 / last interval                                         eq. (3)
//! FR_new > FR_avg  ⇒  wait D_f = e^FR_new seconds                    eq. (4)
//! ```
//! The exponent has a dimension, so the delay of a daily sensor is a second and that of one at 20 Hz is 15 years. That is
//! what the paper says; `e^min(FR, 700)` and [`DURATION_MAX`](crate::time::DURATION_MAX) are where we stop. A zero
//! interval counts as a nanosecond.
//!
//! FR_new > FR_avg is decided in whole nanoseconds, latest·(N − 1) < total: with quotients in floating point a sensor of
//! exactly 0.7 s is faster than itself and waits for ever. Table mode compares what it prints, rates cut to one decimal
//! (1.5 % below a printed one counts as it).

use super::{ArrivalTime, Verdict};
use crate::time::{Timestamp, duration, nanos};

#[derive(Clone, Copy, Debug)]
pub(super) struct PaperPlan {
    pub(super) learn_messages: u32,
    /// Seconds.
    pub(super) delay_max: Option<f64>,
    /// Truncate as Table I does: FR to one decimal, D_f to two.
    pub(super) table: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Paper {
    pub(super) last: Timestamp,
    /// Sum of the learned intervals in nanoseconds, and their number.
    pub(super) total: u64,
    pub(super) intervals: u32,
    pub(super) mean: Mean,
    /// The last interval in nanoseconds; 0 before the second message.
    pub(super) latest: u64,
}

/// What the sum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mean {
    /// Nothing: no message yet.
    Unseen,
    Learning,
    Learned,
    /// Complete, and not from watching.
    Told,
}

impl Paper {
    pub(super) const NEW: Self = Self { last: Timestamp::ZERO, total: 0, intervals: 0, mean: Mean::Unseen, latest: 0 };

    pub(super) fn resume(interval: core::time::Duration, now: Timestamp) -> Self {
        let total = nanos(interval).max(1);
        Self { last: now, total, intervals: 1, mean: Mean::Told, latest: total }
    }

    pub(super) fn on_publish(
        &mut self,
        plan: &PaperPlan,
        ArrivalTime { likely, seen: now, .. }: ArrivalTime,
    ) -> Verdict {
        if self.mean == Mean::Unseen {
            *self = Self { last: likely, mean: Mean::Learning, ..Self::NEW };
            return Verdict::Pass;
        }
        if now < self.last {
            // Intervals across a clock that went back say nothing, and the mean is for ever: it is learned anew.
            let kept = if self.mean == Mean::Told { self.clone() } else { Self { mean: Mean::Learning, ..Self::NEW } };
            *self = Self { last: now, ..kept };
            return Verdict::Pass;
        }
        // Another connection of the same publisher may have been read before.
        let came = likely.max(self.last);
        self.latest = nanos(came.since(self.last)).max(1);
        self.last = came;
        if self.mean == Mean::Learning {
            self.total = self.total.saturating_add(self.latest);
            self.intervals += 1;
            if self.intervals + 1 >= plan.learn_messages {
                self.mean = Mean::Learned;
            }
            return Verdict::Pass;
        }
        let rate = plan.rate(self.latest as f64 / 1e9);
        let faster = if plan.table {
            rate > plan.rate(self.mean_secs())
        } else {
            u128::from(self.latest) * u128::from(self.intervals) < u128::from(self.total)
        };
        if faster { Verdict::Hold(duration(plan.delay(rate))) } else { Verdict::Pass }
    }

    pub(super) fn interval(&self) -> Option<f64> {
        matches!(self.mean, Mean::Learned | Mean::Told).then(|| self.mean_secs())
    }

    /// When the last message came.
    pub(super) fn last(&self) -> Timestamp {
        self.last
    }

    pub(super) fn current_rate(&self) -> f64 {
        if self.latest > 0 { 1e9 / self.latest as f64 } else { 0.0 }
    }

    fn mean_secs(&self) -> f64 {
        self.total as f64 / f64::from(self.intervals) / 1e9
    }
}

impl PaperPlan {
    /// FR in messages per second.
    fn rate(&self, interval: f64) -> f64 {
        let rate = 1.0 / interval;
        if self.table { truncated(rate * (1.0 + TABLE_TOLERANCE), 10.0) } else { rate }
    }

    /// D_f in seconds.
    fn delay(&self, rate: f64) -> f64 {
        let delay = libm::exp(rate.min(EXPONENT_MAX));
        let delay = if self.table { truncated(delay, 100.0) } else { delay };
        self.delay_max.map_or(delay, |most| delay.min(most))
    }
}

/// Cut after the first or second decimal; the tiny addend keeps 0.6 from becoming 0.5 by its binary form.
fn truncated(value: f64, scale: f64) -> f64 {
    libm::floor(value * scale + 1e-9) / scale
}

/// A rate so little below a printed one is taken for it: a message that comes a few milliseconds after its second is still
/// "every second" (2.71 s), and not 0.9 a second (2.45 s). No interval of Table I comes into another row by it.
const TABLE_TOLERANCE: f64 = 0.015;
/// e^709 is the last finite one.
const EXPONENT_MAX: f64 = 700.0;
