//! When a publisher thinks of its next message.

use super::config::{Interval, Publishers};
use crate::chance::Stream;

/// A publisher by itself: what it would send if nobody slowed it.
pub(super) struct Device {
    chance: Stream,
    /// Its own mean interval is the common one times this.
    pub(super) slowness: f64,
    sent: u32,
    /// Which third it belongs to by its rate; 0 is the rarest.
    pub(super) group: usize,
    pub(super) attacks: bool,
    /// Its attack has begun.
    pub(super) has_attacked: bool,
}

/// Thirds of the publishers by rate.
pub(super) const GROUPS: usize = 3;

/// All of them, the busiest first, and the seconds between messages of one whose factor is 1.
pub(super) fn devices(config: &Publishers, seed: u64) -> (Vec<Device>, f64) {
    let slowness = slowness(config);
    let demand: f64 = slowness.iter().map(|slowness| 1.0 / slowness).sum();
    let mean_interval = match (config.load, config.capacity) {
        (Some(load), Some(capacity)) => demand / (load * capacity),
        _ => config.interval.mean(),
    };
    let chance = Stream::of(seed, "publishers");
    let third = |number: usize| GROUPS - 1 - (number * GROUPS / slowness.len()).min(GROUPS - 1);
    let device = |(number, slowness): (usize, &f64)| Device {
        chance: chance.member(number as u64),
        slowness: *slowness,
        sent: 0,
        group: third(number),
        attacks: (number as u32) < config.attackers,
        has_attacked: false,
    };
    (slowness.iter().enumerate().map(device).collect(), mean_interval)
}

impl Device {
    /// The time until its first message.
    pub(super) fn first(&mut self, config: &Publishers, mean_interval: f64) -> f64 {
        self.chance.unit() * self.interval(config, mean_interval, 0.0)
    }

    /// It has sent one.
    pub(super) fn note_sent(&mut self) {
        self.sent += 1;
    }

    /// The time until its next message.
    pub(super) fn interval(&mut self, config: &Publishers, mean_interval: f64, now: f64) -> f64 {
        let scale = mean_interval / config.interval.mean();
        let drawn = match config.interval {
            _ if self.sent < config.regular => config.interval.mean(),
            Interval::Uniform(low, high) => low + (high - low) * self.chance.unit(),
            Interval::WholeSeconds(low, high) => {
                f64::from(low) + (f64::from(high - low + 1) * self.chance.unit()).floor()
            }
            Interval::Exponential(mean) => self.chance.exponential(mean),
            Interval::Periodic(period, cv) => {
                let variance = (cv * cv).ln_1p();
                period * (variance.sqrt() * self.chance.normal() - variance / 2.0).exp()
            }
        };
        let factor = if self.attacks && config.is_attack(now) { config.attack_factor } else { 1.0 };
        drawn * scale * self.slowness / factor
    }
}

/// Factors of the publishers' intervals, the busiest first, evenly by ratio.
fn slowness(config: &Publishers) -> Vec<f64> {
    let count = config.count.max(1);
    let steps = f64::from(count.saturating_sub(1).max(1));
    (0..count).map(|number| config.rate_range.powf(f64::from(number) / steps)).collect()
}
