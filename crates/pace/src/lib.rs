#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(feature = "tower")]
mod layer;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
pub use tidegate_control::ConfigError;
use tidegate_control::Timestamp;
pub use tidegate_control::hints::{Asks, Hints};
pub use tidegate_control::pacer::{
    DetectorRule, InitialRule, Level, Outcome, Pacer, PacerConfig, PacerPlan, PacerSnapshot, Parameter, Preset,
};

#[cfg(feature = "tower")]
pub use layer::{Judge, PaceLayer, Paced};

/// A pacer with a clock and chance of its own. One for each thing that is asked again and again.
///
/// Every answer is how long to wait before the next attempt; `None` is level `none`.
#[derive(Clone, Debug)]
pub struct Pace {
    pacer: Pacer,
    rng: Xoshiro256PlusPlus,
    began: Instant,
    /// When the request under way was sent.
    sent: Option<Instant>,
}

impl Pace {
    /// A pace with these settings.
    pub fn new(config: &PacerConfig) -> Result<Self, ConfigError> {
        Ok(Self::of(&config.build()?))
    }

    /// The same, with settings that many share.
    pub fn of(plan: &Arc<PacerPlan>) -> Self {
        // Chance from the operating system: clients that start together must not draw the same.
        let seed = std::hash::RandomState::new().build_hasher().finish();
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { pacer: Pacer::new(plan), rng, began: Instant::now(), sent: None }
    }

    /// How long to wait before the first attempt: a part of the interval, so that nobody starts in step.
    pub fn first_delay(&mut self) -> Option<Duration> {
        self.pacer.first_delay(&mut self.rng)
    }

    /// A request is being sent.
    pub fn sent(&mut self) {
        self.sent = Some(Instant::now());
        self.pacer.on_sent();
    }

    /// It was answered, and the answer showed that so many updates had been lost before.
    pub fn answered(&mut self, losses: u32) -> Option<Duration> {
        self.answered_with(losses, Hints::default())
    }

    /// The same, by a broker that speaks of pace.
    pub fn answered_with(&mut self, losses: u32, hints: Hints) -> Option<Duration> {
        let latency = self.sent.map_or(Duration::ZERO, |sent| sent.elapsed());
        self.outcome(&Outcome::Answered { latency, losses, not_modified: false, hints })
    }

    /// It was refused. If a place is kept (`hints.ticket`), the delay is exactly until then.
    pub fn refused(&mut self, hints: Hints) -> Option<Duration> {
        self.outcome(&Outcome::Denied { hints })
    }

    /// There was no answer in time.
    pub fn timed_out(&mut self) -> Option<Duration> {
        self.outcome(&Outcome::TimedOut)
    }

    /// The connection broke.
    pub fn failed(&mut self) -> Option<Duration> {
        self.outcome(&Outcome::Failed)
    }

    /// Any of these.
    pub fn outcome(&mut self, outcome: &Outcome) -> Option<Duration> {
        self.sent = None;
        self.pacer.on_outcome(Timestamp::ZERO + self.began.elapsed(), outcome, &mut self.rng)
    }

    /// Somebody waits for the next answer: failures are retried soon, with full jitter.
    pub fn user_waits(&mut self) {
        self.pacer.on_user_waiting();
    }

    /// A change was announced: fetch it after this time, which differs from client to client.
    pub fn announced(&mut self, spread: Option<Duration>) -> Option<Duration> {
        self.pacer.on_push_hint(spread, &mut self.rng)
    }

    /// The interval to tell the broker (`pace-want-ms`).
    pub fn want(&self) -> Duration {
        self.pacer.want()
    }

    /// AST, RBT, σ, estimates.
    pub fn snapshot(&self) -> PacerSnapshot {
        self.pacer.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::appointments::Ticket;

    use super::*;

    #[test]
    fn what_happens_moves_the_pace_within_its_bounds() {
        let config = PacerConfig { interval: Duration::from_secs(1), ..PacerConfig::default() };
        let mut pace = Pace::new(&config).unwrap();
        assert!(pace.first_delay().unwrap() <= Duration::from_secs(1));
        for _ in 0..100 {
            pace.sent();
            pace.answered(0);
        }
        let calm = pace.snapshot().ast;
        assert!(calm > Duration::from_secs(1), "nothing is lost: {calm:?}");
        pace.sent();
        let ticket = Some(Ticket { slot: Timestamp::ZERO, mac: 1 });
        let told = Hints { retry_after: Some(Duration::from_secs(3)), ticket, ..Hints::default() };
        assert_eq!(pace.refused(told), Some(Duration::from_secs(3)), "a place is kept");
        for absurd in [Duration::ZERO, Duration::MAX] {
            pace.sent();
            let told = Hints { retry_after: Some(absurd), stretch: Some(f64::MAX), ..Hints::default() };
            let delay = pace.refused(told).unwrap();
            assert!((config.delay_min..=config.delay_max).contains(&delay), "{delay:?}");
        }
        let nothing = PacerConfig { level: Level::None, ..PacerConfig::default() };
        assert_eq!(Pace::new(&nothing).unwrap().first_delay(), None);
    }
}
