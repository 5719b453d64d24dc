//! A limit from the gradient of the latency: how far from the best are we?
//!
//! ```text
//! gradient = clamp(tolerance·base/short, ½, 1)      base: windowed minimum of the latency; short: mean, weight 1/8
//! L' = (1 − s)·L + s·(gradient·L + √L)              s = 0.2;  √L is the queue that is permitted
//! dropped: L' = 0.9·L, once per `short` at most       100 ms before the first answer
//! ```
//! Queries are dropped together, by one deadline or one failed worker: that is one congestion, and counts once.
//! The limit grows only while at least half of it is in use, else an idle hour would open it for the next burst. The
//! baseline is a minimum over at least ten minutes and not a slow mean: a mean follows a standing queue and ends up
//! calling it normal. Idea: the gradient limits of Netflix and Envoy.

use super::{Limit, Sample};
use crate::config::{ConfigError, count, number};
use crate::measure::WindowedMinimum;
use crate::time::{Timestamp, duration, seconds};

/// Configuration of [`Gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientConfig {
    /// First value. 1 ..= `limit_max`.
    pub limit_initial: u32,
    /// Never more. 1 ..= 1 000 000.
    pub limit_max: u32,
    /// Latency may be this many times the best before the limit shrinks. 1 ..= 10.
    pub tolerance: f64,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self { limit_initial: 4, limit_max: 1000, tolerance: 2.0 }
    }
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Gradient {
    limit: f64,
    limit_max: f64,
    tolerance: f64,
    baseline: WindowedMinimum,
    /// Mean latency in seconds, weight 1/8; 0 before the first sample.
    short: f64,
    /// When a dropped query last shrank the limit.
    dropped_at: Option<Timestamp>,
}

impl Gradient {
    /// A limit at its first value.
    pub fn new(config: &GradientConfig) -> Result<Self, ConfigError> {
        let limit_max = count("limit_max", config.limit_max.into(), 1, 1_000_000)?;
        Ok(Self {
            limit: count("limit_initial", config.limit_initial.into(), 1, limit_max)? as f64,
            limit_max: limit_max as f64,
            tolerance: number("tolerance", config.tolerance, 1.0, 10.0)?,
            baseline: WindowedMinimum::EMPTY,
            short: 0.0,
            dropped_at: None,
        })
    }

    fn on_dropped(&mut self, now: Timestamp) {
        // Never in the future, where a clock that went back may have left it.
        self.dropped_at = self.dropped_at.map(|before| before.min(now));
        let spacing = duration(if self.short == 0.0 { SHORT_UNKNOWN } else { self.short });
        if self.dropped_at.is_none_or(|before| now.since(before) >= spacing) {
            self.limit = (self.limit * DROP_FACTOR).max(1.0);
            self.dropped_at = Some(now);
        }
    }
}

impl Limit for Gradient {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn on_sample(&mut self, sample: Sample, in_flight: u32, now: Timestamp) {
        let Sample::Answered(latency) = sample else {
            self.on_dropped(now);
            return;
        };
        // A latency of zero (a coarse clock) would make every other one infinitely bad.
        let latency = seconds(latency).max(LATENCY_MIN);
        self.baseline.on_sample(now, latency);
        let base = self.baseline.value().unwrap_or(latency);
        self.short = if self.short == 0.0 { latency } else { self.short + (latency - self.short) * SHORT_WEIGHT };

        let gradient = (self.tolerance * base / self.short).clamp(0.5, 1.0);
        let target = gradient * self.limit + libm::sqrt(self.limit);
        let moved = self.limit + (target - self.limit) * SMOOTHING;
        if moved <= self.limit || f64::from(in_flight) * 2.0 >= self.limit {
            self.limit = moved.clamp(1.0, self.limit_max);
        }
    }
}

const DROP_FACTOR: f64 = 0.9;
const SHORT_WEIGHT: f64 = 1.0 / 8.0;
const SMOOTHING: f64 = 0.2;
/// Seconds.
const LATENCY_MIN: f64 = 1e-6;
/// Seconds; what stands for the mean latency before there is one.
const SHORT_UNKNOWN: f64 = 0.1;
