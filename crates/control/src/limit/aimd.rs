//! Additive increase, multiplicative decrease: the baseline.
//!
//! ```text
//! answered within the target, at least half the limit in use    L' = L + 1/L
//! answered late, or dropped                                     L' = L·β          once per target at most
//! ```

use core::time::Duration;

use super::{Limit, Sample};
use crate::config::{ConfigError, count, number, span};
use crate::time::Timestamp;

/// Configuration of [`Aimd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AimdConfig {
    /// First value. 1 ..= `limit_max`.
    pub limit_initial: u32,
    /// Never more. 1 ..= 1 000 000.
    pub limit_max: u32,
    /// β: factor of a decrease. 0.1 ..= 0.99.
    pub decrease: f64,
    /// An answer that took longer is late. 1 ms ..= 1 h.
    pub target: Duration,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self { limit_initial: 4, limit_max: 1000, decrease: 0.9, target: Duration::from_millis(100) }
    }
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Aimd {
    config: AimdConfig,
    limit: f64,
    /// When the limit last shrank: one congestion gives many late answers, and must count once.
    decreased_at: Option<Timestamp>,
}

impl Aimd {
    /// A limit at its first value.
    pub fn new(config: &AimdConfig) -> Result<Self, ConfigError> {
        count("limit_max", config.limit_max.into(), 1, 1_000_000)?;
        number("decrease", config.decrease, 0.1, 0.99)?;
        span("target", config.target, Duration::from_millis(1), Duration::from_secs(3600))?;
        let limit = count("limit_initial", config.limit_initial.into(), 1, config.limit_max.into())? as f64;
        Ok(Self { config: *config, limit, decreased_at: None })
    }
}

impl Limit for Aimd {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn on_sample(&mut self, sample: Sample, in_flight: u32, now: Timestamp) {
        // A decrease in the future, because the clock went back, would be the last one.
        self.decreased_at = self.decreased_at.map(|before| before.min(now));
        let in_time = matches!(sample, Sample::Answered(latency) if latency <= self.config.target);
        if in_time {
            if f64::from(in_flight) * 2.0 >= self.limit {
                self.limit = (self.limit + 1.0 / self.limit).min(self.config.limit_max.into());
            }
        } else if self.decreased_at.is_none_or(|before| now.since(before) >= self.config.target) {
            self.limit = (self.limit * self.config.decrease).max(1.0);
            self.decreased_at = Some(now);
        }
    }
}
