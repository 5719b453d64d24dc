//! The first back-off of a congestion episode (P19 §IV, three strategies).
//!
//! ```text
//! history   b = (interval before the last response within limits) − (current interval); if b > 0 then X(b), else t_min
//! memory    X(the back-off that ended the last episode), halved every 10 minutes
//! advice    the broker's interval less one's own
//! ```
//! X(b) is a positive law with mean b: exponential with the paper's back-off, uniform in b/2 ..= 3b/2 with the stretch.
//! The paper's history is a ring of intervals and response times; only one entry of it is ever used, so that one is kept.

use rand_core::Rng;

use super::rbt::BackOffPlan;
use crate::config::named;
use crate::draw;
use crate::hints::Hints;
use crate::time::{Timestamp, seconds};

named! {
    "initial back-off";
    /// Where the first back-off of an episode comes from.
    pub enum InitialRule {
        /// `advice` if the broker gives any, else `memory`.
        #[default]
        Auto = "auto",
        /// From the interval at which the broker last answered within limits.
        History = "history",
        /// From the back-off that ended the last episode.
        Memory = "memory",
        /// From the interval that the broker advises.
        Advice = "advice",
        /// β·t_min, or a stretch of β: no strategy.
        Minimum = "minimum",
    }
}

/// What the strategies remember between episodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// The back-off that ended the last episode (seconds, 0 = none yet), and when that was.
    success: f32,
    success_at: Timestamp,
    /// The interval before the last response within limits, seconds, and how many checks ago that was.
    interval: f32,
    checks_ago: u8,
}

impl Past {
    pub(super) const NONE: Self =
        Self { success: 0.0, success_at: Timestamp::ZERO, interval: 0.0, checks_ago: CHECKS_MAX };

    /// A check ended; `interval` is the time that had been waited before it.
    pub(super) fn on_check(&mut self, interval: f32, congested: bool) {
        if congested {
            self.checks_ago = self.checks_ago.saturating_add(1).min(CHECKS_MAX);
        } else {
            self.interval = interval;
            self.checks_ago = 0;
        }
    }

    /// An episode ended while this back-off was in force.
    pub(super) fn on_recovery(&mut self, back_off: f64, now: Timestamp) {
        self.success = back_off as f32;
        self.success_at = now;
    }

    /// The first back-off of an episode in seconds; None if the strategy has nothing to go by.
    pub(super) fn first_back_off<R: Rng + ?Sized>(
        &self,
        rule: InitialRule,
        plan: &BackOffPlan,
        situation: &Situation<'_>,
        rng: &mut R,
    ) -> Option<f64> {
        let first = match rule {
            InitialRule::Minimum => None,
            InitialRule::History => self.by_history(plan, situation, rng),
            InitialRule::Memory => self.by_memory(plan, situation, rng),
            InitialRule::Advice => situation.by_advice(),
            InitialRule::Auto => situation.by_advice().or_else(|| self.by_memory(plan, situation, rng)),
        };
        first.map(|seconds| seconds.min(FIRST_SECS_MAX))
    }

    fn by_history<R: Rng + ?Sized>(&self, plan: &BackOffPlan, situation: &Situation<'_>, rng: &mut R) -> Option<f64> {
        if self.checks_ago >= CHECKS_MAX {
            return None;
        }
        let mean = f64::from(self.interval) - f64::from(situation.interval);
        Some(if mean > 0.0 { with_mean(plan, mean, rng) } else { plan.minimum })
    }

    fn by_memory<R: Rng + ?Sized>(&self, plan: &BackOffPlan, situation: &Situation<'_>, rng: &mut R) -> Option<f64> {
        let age = seconds(situation.now.since(self.success_at));
        let mean = f64::from(self.success) * libm::exp2(-age / MEMORY_HALF_LIFE_SECS);
        (mean > 0.0).then(|| with_mean(plan, mean, rng))
    }
}

/// The moment at which an episode begins.
pub(super) struct Situation<'a> {
    pub(super) now: Timestamp,
    /// The time that was waited before the check that met congestion, seconds.
    pub(super) interval: f32,
    /// AST, seconds.
    pub(super) ast: f64,
    /// The broker's hints, if there were any and they are obeyed.
    pub(super) hints: Option<&'a Hints>,
}

impl Situation<'_> {
    fn by_advice(&self) -> Option<f64> {
        let hints = self.hints?;
        let by_stretch = || hints.stretch.map(|stretch| stretch.max(1.0) * self.ast);
        let advised = hints.interval.map(seconds).or_else(by_stretch)?;
        Some((advised - self.ast).max(0.0))
    }
}

/// X(b): a positive random number with the given mean.
fn with_mean<R: Rng + ?Sized>(plan: &BackOffPlan, mean: f64, rng: &mut R) -> f64 {
    if plan.exact() { draw::exponential(rng, mean) } else { draw::uniform(rng, 0.5 * mean, 1.5 * mean) }
}

/// Length of the paper's ring: what lies further back is forgotten.
const CHECKS_MAX: u8 = 16;
const MEMORY_HALF_LIFE_SECS: f64 = 600.0;
/// A guard for the arithmetic; the back-off has its own, smaller bounds.
const FIRST_SECS_MAX: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacer::rbt::{BackOffConfig, RbtRule};
    use core::time::Duration;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    fn mean_first(past: &Past, rule: InitialRule, back_off: RbtRule, situation: &Situation<'_>) -> Option<f64> {
        let plan = BackOffConfig { rule: back_off, ..BackOffConfig::default() }.build().unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let draws = 20_000;
        let sum: Option<f64> = (0..draws).map(|_| past.first_back_off(rule, &plan, situation, &mut rng)).sum();
        sum.map(|sum| sum / f64::from(draws))
    }

    fn at(secs: u64) -> Situation<'static> {
        Situation { now: Timestamp::from_nanos(secs * 1_000_000_000), interval: 5.0, ast: 10.0, hints: None }
    }

    #[test]
    fn history_looks_back_to_the_interval_that_worked() {
        let mut past = Past::NONE;
        assert_eq!(mean_first(&past, InitialRule::History, RbtRule::P18, &at(0)), None);
        past.on_check(20.0, false);
        past.on_check(5.0, true);
        for back_off in [RbtRule::P18, RbtRule::Stretch] {
            let mean = mean_first(&past, InitialRule::History, back_off, &at(0)).unwrap();
            assert!((mean / 15.0 - 1.0).abs() < 0.03, "{back_off}: {mean}");
        }
    }

    #[test]
    fn memory_is_halved_every_ten_minutes() {
        let mut past = Past::NONE;
        assert_eq!(mean_first(&past, InitialRule::Memory, RbtRule::P18, &at(0)), None);
        past.on_recovery(8.0, Timestamp::ZERO);
        for (secs, expected) in [(0, 8.0), (600, 4.0), (1200, 2.0)] {
            for back_off in [RbtRule::P18, RbtRule::Stretch] {
                let mean = mean_first(&past, InitialRule::Memory, back_off, &at(secs)).unwrap();
                assert!((mean / expected - 1.0).abs() < 0.03, "{back_off} after {secs} s: {mean}");
            }
        }
    }

    #[test]
    fn advice_is_an_interval_or_a_stretch_and_comes_before_memory() {
        let mut past = Past::NONE;
        past.on_recovery(8.0, Timestamp::ZERO);
        let interval = Hints { interval: Some(Duration::from_secs(30)), ..Hints::default() };
        let stretch = Hints { stretch: Some(3.0), ..Hints::default() };
        for hints in [&interval, &stretch] {
            for rule in [InitialRule::Advice, InitialRule::Auto] {
                let situation = Situation { hints: Some(hints), ..at(0) };
                assert_eq!(mean_first(&past, rule, RbtRule::Stretch, &situation), Some(20.0));
            }
        }
        let nonsense = Hints { stretch: Some(f64::NAN), ..Hints::default() };
        let situation = Situation { hints: Some(&nonsense), ..at(0) };
        assert_eq!(mean_first(&past, InitialRule::Advice, RbtRule::Stretch, &situation), Some(0.0));
    }
}
