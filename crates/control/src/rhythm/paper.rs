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

use super::Verdict;
use crate::time::{Timestamp, duration, seconds};

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
    /// While learning: when the first message came. Then unused.
    first: Timestamp,
    last: Timestamp,
    /// Mean interval in seconds; 0 while learning.
    mean: f64,
    /// The last interval in seconds; 0 before the second message.
    latest: f64,
    messages: u32,
}

impl Paper {
    pub(super) const NEW: Self =
        Self { first: Timestamp::ZERO, last: Timestamp::ZERO, mean: 0.0, latest: 0.0, messages: 0 };

    pub(super) fn resume(interval: core::time::Duration, now: Timestamp) -> Self {
        let mean = seconds(interval).max(INTERVAL_MIN);
        Self { first: now, last: now, mean, latest: mean, messages: u32::MAX }
    }

    pub(super) fn on_publish(&mut self, plan: &PaperPlan, now: Timestamp) -> Verdict {
        if self.messages == 0 {
            *self = Self { first: now, last: now, messages: 1, ..Self::NEW };
            return Verdict::Pass;
        }
        let latest = seconds(now.since(self.last)).max(INTERVAL_MIN);
        self.latest = latest;
        self.last = self.last.max(now);
        if self.mean == 0.0 {
            self.messages = self.messages.saturating_add(1);
            if self.messages >= plan.learn_messages {
                let intervals = f64::from(self.messages - 1);
                self.mean = (seconds(now.since(self.first)) / intervals).max(INTERVAL_MIN);
            }
            return Verdict::Pass;
        }
        let (rate, mean_rate) = (plan.rate(latest), plan.rate(self.mean));
        if rate > mean_rate { Verdict::Hold(duration(plan.delay(rate))) } else { Verdict::Pass }
    }

    pub(super) fn interval(&self) -> Option<f64> {
        (self.mean > 0.0).then_some(self.mean)
    }

    pub(super) fn current_rate(&self) -> f64 {
        if self.latest > 0.0 { 1.0 / self.latest } else { 0.0 }
    }
}

impl PaperPlan {
    /// FR in messages per second.
    fn rate(&self, interval: f64) -> f64 {
        let rate = 1.0 / interval;
        if self.table { truncated(rate, 10.0) } else { rate }
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

/// Seconds; what an interval of zero counts as (B5).
const INTERVAL_MIN: f64 = 1e-9;
/// e^709 is the last finite one.
const EXPONENT_MAX: f64 = 700.0;
