//! How much may be in flight? A limit on concurrent queries that learns from their latency.
//!
//! An estimator only: samples in, a number out. Who holds permits, and what happens to a query over the limit, is the
//! caller's business (`admission`). [`Gradient`] is the default; [`Aimd`] is the plain baseline.

mod aimd;
mod gradient;

use alloc::boxed::Box;
use core::fmt::Debug;
use core::time::Duration;

pub use aimd::{Aimd, AimdConfig};
pub use gradient::{Gradient, GradientConfig};

use crate::config::{ConfigError, named};
use crate::time::Timestamp;

named! {
    "limit rule";
    /// How the limit is learned.
    pub enum LimitRule {
        /// From the gradient of the latency.
        #[default]
        Gradient = "gradient",
        /// Additive increase, multiplicative decrease.
        Aimd = "aimd",
    }
}

impl LimitRule {
    /// A limit of this rule with its default parameters, between 1 and `limit_max`.
    pub fn build(self, limit_initial: u32, limit_max: u32) -> Result<Box<dyn Limit>, ConfigError> {
        Ok(match self {
            Self::Gradient => {
                let config = GradientConfig { limit_initial, limit_max, ..GradientConfig::default() };
                Box::new(Gradient::new(&config)?)
            }
            Self::Aimd => Box::new(Aimd::new(&AimdConfig { limit_initial, limit_max, ..AimdConfig::default() })?),
        })
    }
}

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// It was answered after this time.
    Answered(Duration),
    /// It was cancelled at its deadline, or the worker failed: a sure sign of too much.
    Dropped,
}

/// A limit on what is in flight, learned from samples.
pub trait Limit: Debug + Send {
    /// How many queries may run at the same time now; at least 1.
    fn limit(&self) -> u32;

    /// A query ended; `in_flight` counts it and the ones beside it.
    fn on_sample(&mut self, sample: Sample, in_flight: u32, now: Timestamp);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    fn both() -> Vec<(&'static str, Box<dyn Limit>)> {
        LimitRule::ALL.iter().map(|rule| (rule.name(), rule.build(4, 1000).unwrap())).collect()
    }

    /// A host that runs `cores` queries of 20 ms side by side and slows down in proportion beyond, always fully used.
    /// The mean limit over the second half of the run.
    fn settled(limit: &mut dyn Limit, cores: f64, now: &mut Timestamp, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let rounds = 4000;
        let mut sum = 0.0;
        for round in 0..rounds {
            let in_flight = limit.limit();
            let slowdown = (f64::from(in_flight) / cores).max(1.0);
            let latency = 0.020 * slowdown * draw::uniform(rng, 0.9, 1.3);
            *now = *now + Duration::from_secs_f64(latency / f64::from(in_flight));
            limit.on_sample(Sample::Answered(Duration::from_secs_f64(latency)), in_flight, *now);
            if round >= rounds / 2 {
                sum += f64::from(limit.limit());
            }
        }
        sum / f64::from(rounds / 2)
    }

    #[test]
    fn the_limit_finds_the_host_and_follows_it() {
        for (name, mut limit) in both() {
            let (mut now, mut rng) = (Timestamp::ZERO, Xoshiro256PlusPlus::seed_from_u64(8));
            for cores in [16.0, 4.0, 32.0] {
                let mean = settled(limit.as_mut(), cores, &mut now, &mut rng);
                // Everything busy, and no more than a few times as much waiting.
                assert!((cores..6.0 * cores).contains(&mean), "{name} on {cores} cores: {mean}");
            }
        }
    }

    #[test]
    fn an_idle_host_does_not_open_the_limit() {
        for (name, mut limit) in both() {
            let before = limit.limit();
            for second in 0..10_000 {
                let now = Timestamp::from_secs_f64(f64::from(second));
                limit.on_sample(Sample::Answered(Duration::from_millis(20)), 1, now);
            }
            assert_eq!(limit.limit(), before, "{name}");
        }
    }

    /// 100 queries are cancelled at the same instant, and again after every mean latency.
    #[test]
    fn queries_dropped_together_count_once() {
        let gradient = GradientConfig { limit_initial: 500, ..GradientConfig::default() };
        let aimd = AimdConfig { limit_initial: 500, target: Duration::from_millis(20), ..AimdConfig::default() };
        let limits: [(&str, Box<dyn Limit>); 2] =
            [("gradient", Box::new(Gradient::new(&gradient).unwrap())), ("aimd", Box::new(Aimd::new(&aimd).unwrap()))];
        for (name, mut limit) in limits {
            limit.on_sample(Sample::Answered(Duration::from_millis(20)), 1, Timestamp::ZERO);
            for (round, expected) in [(1.0, 450), (2.0, 405), (3.0, 364)] {
                for _ in 0..100 {
                    limit.on_sample(Sample::Dropped, 100, Timestamp::from_secs_f64(round * 0.021));
                }
                assert_eq!(limit.limit(), expected, "{name}");
            }
        }
    }

    #[test]
    fn a_wrong_configuration_is_named() {
        let config = GradientConfig { limit_initial: 0, ..GradientConfig::default() };
        assert_eq!(Gradient::new(&config).unwrap_err().field, "limit_initial");
        let config = AimdConfig { decrease: f64::NAN, ..AimdConfig::default() };
        assert_eq!(Aimd::new(&config).unwrap_err().field, "decrease");
    }

    proptest! {
        #[test]
        fn the_limit_stays_in_bounds(
            samples in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u64>(), any::<bool>()), 1..300),
        ) {
            for (_, mut limit) in both() {
                for (latency, in_flight, now, dropped) in &samples {
                    let answered = Sample::Answered(Duration::from_nanos(*latency));
                    let sample = if *dropped { Sample::Dropped } else { answered };
                    limit.on_sample(sample, *in_flight, Timestamp::from_nanos(*now));
                    prop_assert!((1..=1000).contains(&limit.limit()));
                }
                // Whatever the clock did, the limit moves both ways once it goes on: two windows of the minimum later
                // it opens, and then drops close it.
                let mut now = Timestamp::from_secs_f64(1.0);
                for _ in 0..1500 {
                    now = now + Duration::from_secs(1);
                    limit.on_sample(Sample::Answered(Duration::from_millis(20)), limit.limit(), now);
                }
                let opened = limit.limit();
                prop_assert!(opened > 30, "opened to {opened}");
                for _ in 0..10 {
                    now = now + Duration::from_secs(1);
                    limit.on_sample(Sample::Dropped, opened, now);
                }
                prop_assert!(limit.limit() <= opened / 2, "closed to {}", limit.limit());
            }
        }
    }
}
