//! The algorithms of the literature, for comparison: a fixed interval, and a rule for failures.
//!
//! ```text
//! full jitter           U(0, min(cap, b·2^n))                              b = 100 ms, cap = 60 s
//! equal jitter          w/2 + U(0, w/2),  w = min(cap, b·2^n)
//! decorrelated jitter   min(cap, U(b, 3·previous))
//! exponential back-off  min(cap, b·2^n)
//! adaptive throttling   do not ask with probability max(0, (asked − 2·accepted)/(asked + 1)), over two minutes
//! aimd                  rate/2 after a failure, + 1/20 of the nominal rate after an answer, never above the nominal
//! ```

use super::config::Baseline;
use crate::chance::Stream;

/// The state of a client with one of these algorithms.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaselineState {
    rule: Baseline,
    failures: u8,
    /// The nominal interval, seconds.
    interval: f32,
    /// Decorrelated jitter: the last delay. AIMD: the interval now.
    memory: f32,
    /// Adaptive throttling: discounted counts, and when they were discounted last.
    asked: f32,
    accepted: f32,
    counted_at: f32,
}

/// What becomes of a check that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Due {
    /// It is made.
    Ask,
    /// The client refuses itself, and waits so many seconds.
    Skip(f64),
}

const BASE: f64 = 0.1;
const CAP: f64 = 60.0;
const DOUBLINGS_MAX: u8 = 30;
const THROTTLING_K: f32 = 2.0;
const THROTTLING_WINDOW: f32 = 120.0;
const AIMD_GAIN: f64 = 0.05;
/// AIMD never asks less often than once in so many nominal intervals.
const AIMD_STRETCH_MAX: f64 = 1000.0;

impl BaselineState {
    /// A client that knows nothing yet.
    pub(super) fn new(rule: Baseline, interval: f64) -> Self {
        let memory = if rule == Baseline::Aimd { interval } else { BASE };
        Self {
            rule,
            failures: 0,
            interval: interval as f32,
            memory: memory as f32,
            asked: 0.0,
            accepted: 0.0,
            counted_at: 0.0,
        }
    }

    /// A check is due.
    pub(super) fn on_due(&mut self, now: f64, chance: &mut Stream) -> Due {
        if self.rule != Baseline::AdaptiveThrottling {
            return Due::Ask;
        }
        let discount = (-(now as f32 - self.counted_at) / THROTTLING_WINDOW).exp();
        self.asked *= discount;
        self.accepted *= discount;
        self.counted_at = now as f32;
        let refuse = ((self.asked - THROTTLING_K * self.accepted) / (self.asked + 1.0)).max(0.0);
        self.asked += 1.0;
        if chance.happens(refuse.into()) { Due::Skip(self.interval.into()) } else { Due::Ask }
    }

    /// An attempt ended; the answer is the delay until the next one, seconds.
    pub(super) fn on_outcome(&mut self, answered: bool, chance: &mut Stream) -> f64 {
        let interval = f64::from(self.interval);
        if answered {
            self.failures = 0;
            self.accepted += 1.0;
            if self.rule == Baseline::Aimd {
                let rate = 1.0 / f64::from(self.memory) + AIMD_GAIN / interval;
                self.memory = (1.0 / rate).max(interval) as f32;
                return f64::from(self.memory);
            }
            self.memory = BASE as f32;
            return interval;
        }
        self.failures = self.failures.saturating_add(1).min(DOUBLINGS_MAX);
        let window = (BASE * f64::from(self.failures).exp2()).min(CAP);
        match self.rule {
            Baseline::FullJitter => chance.unit() * window,
            Baseline::EqualJitter => window / 2.0 * (1.0 + chance.unit()),
            Baseline::ExponentialBackOff => window,
            Baseline::DecorrelatedJitter => {
                let delay = (BASE + chance.unit() * (3.0 * f64::from(self.memory) - BASE)).min(CAP);
                self.memory = delay as f32;
                delay
            }
            Baseline::AdaptiveThrottling => interval,
            Baseline::Aimd => {
                self.memory = (2.0 * f64::from(self.memory)).min(AIMD_STRETCH_MAX * interval) as f32;
                f64::from(self.memory)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_offs_double_to_the_cap_and_forget_with_an_answer() {
        let mut chance = Stream::of(1, "test");
        let mut state = BaselineState::new(Baseline::ExponentialBackOff, 10.0);
        let delays: Vec<f64> = (0..12).map(|_| state.on_outcome(false, &mut chance)).collect();
        assert_eq!(delays[..3], [0.2, 0.4, 0.8]);
        assert_eq!(delays[11], 60.0);
        assert_eq!(state.on_outcome(true, &mut chance), 10.0);
        assert_eq!(state.on_outcome(false, &mut chance), 0.2);
    }

    #[test]
    fn jitter_stays_within_its_window() {
        let mut chance = Stream::of(2, "test");
        for (rule, least) in
            [(Baseline::FullJitter, 0.0), (Baseline::EqualJitter, 0.5), (Baseline::DecorrelatedJitter, 0.0)]
        {
            let mut state = BaselineState::new(rule, 10.0);
            for n in 1..40 {
                let window = (0.1 * f64::from(n).exp2()).min(60.0);
                let delay = state.on_outcome(false, &mut chance);
                assert!(delay >= least * window && delay <= 60.0, "{rule:?} {n}: {delay}");
            }
        }
    }

    #[test]
    fn throttling_asks_about_twice_per_accepted_request() {
        let mut chance = Stream::of(3, "test");
        let mut state = BaselineState::new(Baseline::AdaptiveThrottling, 1.0);
        let (mut asked, mut accepted) = (0, 0);
        for second in 0..20_000 {
            if state.on_due(f64::from(second), &mut chance) == Due::Ask {
                asked += 1;
                let answered = second % 4 == 0;
                accepted += i32::from(answered);
                state.on_outcome(answered, &mut chance);
            }
        }
        let ratio = f64::from(asked) / f64::from(accepted);
        assert!((1.5..5.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn aimd_halves_and_grows() {
        let mut chance = Stream::of(4, "test");
        let mut state = BaselineState::new(Baseline::Aimd, 10.0);
        assert_eq!(state.on_outcome(false, &mut chance), 20.0);
        for _ in 0..10 {
            state.on_outcome(true, &mut chance);
        }
        assert!((state.on_outcome(true, &mut chance) - 10.0).abs() < 1e-6);
    }
}
