//! The algorithms of the literature for clients, for comparison: a regular interval, and a rule for failures. Those for brokers
//! are in `rules`.
//!
//! Jitter: Brooker, *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015. Adaptive throttling: Beyer and others, *Site
//! Reliability Engineering*, chapter "Handling Overload", 2016. AIMD: Chiu and Jain, *Analysis of the Increase and Decrease
//! Algorithms for Congestion Avoidance in Computer Networks*, 1989. Gradient: Netflix, *concurrency-limits* (Gradient2), 2018.
//! CoCoA: Bormann and others, *CoAP Simple Congestion Control/Advanced*, draft-ietf-core-cocoa, 2018.
//!
//! ```text
//! full jitter           U(0, min(cap, b·2^n))                              b = 100 ms, cap = 60 s
//! equal jitter          w/2 + U(0, w/2),  w = min(cap, b·2^n)
//! decorrelated jitter   min(cap, U(b, 3·previous))
//! exponential back-off  min(cap, b·2^n)
//! adaptive throttling   do not ask with probability max(0, (asked − 2·accepted)/(asked + 1)), over two minutes
//! aimd                  rate/2 after a failure, + 1/20 of the nominal rate after an answer, never above the nominal
//! AST + full jitter     t + δ after a check without a loss, t/α after one with; failures as full jitter has them
//! gradient              rate' = 4/5 rate + 1/5 (g·rate + 1/20 of the nominal), g = clamp(3/2·usual/latency, 1/2, 1);
//!                       usual: mean latency over about 50 answers; a failure counts as an answer after t_req
//! CoCoA                 failures after RTO·U(1, 3/2); RTO from first answers (mean + 4 deviations, weight 1/2) and from
//!                       those after one or two failures (mean + 1 deviation, weight 1/4); each failure makes it
//!                       3 times (below 1 s), 3/2 times (above 3 s) or twice as long, up to the cap
//! ```

use tidegate_control::pacer::Outcome;

use super::config::{Baseline, Polling};
use crate::chance::Stream;

/// The state of a client with one of these algorithms.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaselineState {
    rule: Baseline,
    failures: u8,
    /// The nominal interval, seconds.
    interval: f32,
    /// Decorrelated jitter: the last delay. AIMD, gradient, AST: the interval now. CoCoA: the timeout.
    memory: f32,
    /// Adaptive throttling: discounted counts, and when they were discounted last.
    asked: f32,
    accepted: f32,
    counted_at: f32,
    /// Gradient: the usual latency. CoCoA: mean and deviation of the round trips. Zero before the first answer.
    latency: f32,
    deviation: f32,
    /// δ and α of AST, and t_req.
    step: f32,
    alpha: f32,
    patience: f32,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ended {
    /// With an answer, after so many seconds, that showed so many losses.
    Answered { latency: f32, losses: u32 },
    /// Without one.
    Failed,
}

impl Ended {
    pub(super) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered { latency, losses, .. } => {
                Self::Answered { latency: latency.as_secs_f32(), losses: *losses }
            }
            _ => Self::Failed,
        }
    }
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
/// AST of the literature never asks more often, seconds: the papers' floor.
const AST_MIN: f32 = 0.01;

/// The gradient of the latency, and how much of the nominal rate is tried on top.
const GRADIENT_TOLERANCE: f32 = 1.5;
const GRADIENT_SMOOTHING: f32 = 0.2;
const GRADIENT_PROBE: f32 = 0.05;
const USUAL_WEIGHT: f32 = 0.02;
/// CoCoA's timeout before the first answer, seconds.
const RTO_FIRST: f32 = 2.0;

impl BaselineState {
    /// A client that knows nothing yet.
    pub(super) fn new(rule: Baseline, config: &Polling) -> Self {
        let interval = config.clients.interval as f32;
        let memory = match rule {
            Baseline::Aimd | Baseline::AstFullJitter | Baseline::Gradient => interval,
            Baseline::Cocoa => RTO_FIRST,
            _ => BASE as f32,
        };
        Self {
            rule,
            failures: 0,
            interval,
            memory,
            asked: 0.0,
            accepted: 0.0,
            counted_at: 0.0,
            latency: 0.0,
            deviation: 0.0,
            step: config.step_matched() as f32,
            alpha: config.clients.alpha as f32,
            patience: config.clients.request_timeout as f32,
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
    pub(super) fn on_outcome(&mut self, ended: Ended, chance: &mut Stream) -> f64 {
        match ended {
            Ended::Answered { latency, losses } => self.on_answer(latency, losses).into(),
            Ended::Failed => self.on_failure(chance),
        }
    }

    fn on_answer(&mut self, latency: f32, losses: u32) -> f32 {
        let failures = std::mem::replace(&mut self.failures, 0);
        self.accepted += 1.0;
        match self.rule {
            Baseline::Aimd => {
                let rate = 1.0 / self.memory + AIMD_GAIN as f32 / self.interval;
                self.memory = (1.0 / rate).max(self.interval);
                self.memory
            }
            Baseline::AstFullJitter => {
                self.memory = if losses > 0 { self.memory / self.alpha } else { self.memory + self.step };
                self.memory = self.memory.clamp(AST_MIN, (AIMD_STRETCH_MAX as f32) * self.interval);
                self.memory
            }
            Baseline::Gradient => {
                self.follow_gradient(latency);
                self.memory
            }
            Baseline::Cocoa => {
                self.measure_round_trip(latency, failures);
                self.interval
            }
            _ => {
                self.memory = BASE as f32;
                self.interval
            }
        }
    }

    fn on_failure(&mut self, chance: &mut Stream) -> f64 {
        let interval = f64::from(self.interval);
        self.failures = self.failures.saturating_add(1).min(DOUBLINGS_MAX);
        let window = (BASE * f64::from(self.failures).exp2()).min(CAP);
        match self.rule {
            Baseline::FullJitter | Baseline::AstFullJitter => chance.unit() * window,
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
            Baseline::Gradient => {
                self.follow_gradient(self.patience);
                f64::from(self.memory)
            }
            Baseline::Cocoa => {
                let delay = f64::from(self.memory) * (1.0 + 0.5 * chance.unit());
                let factor = if self.memory < 1.0 {
                    3.0
                } else if self.memory > 3.0 {
                    1.5
                } else {
                    2.0
                };
                self.memory = (self.memory * factor).min(CAP as f32);
                delay
            }
        }
    }

    fn follow_gradient(&mut self, latency: f32) {
        self.latency =
            if self.latency == 0.0 { latency } else { self.latency + USUAL_WEIGHT * (latency - self.latency) };
        let gradient = (GRADIENT_TOLERANCE * self.latency / latency.max(1e-6)).clamp(0.5, 1.0);
        let rate = 1.0 / self.memory;
        let wanted = gradient * rate + GRADIENT_PROBE / self.interval;
        let next = rate + GRADIENT_SMOOTHING * (wanted - rate);
        self.memory = (1.0 / next).clamp(self.interval, AIMD_STRETCH_MAX as f32 * self.interval);
    }

    /// A strong sample is that of a first attempt; a weak one may belong to an earlier attempt, and after more than two
    /// failures it says nothing.
    fn measure_round_trip(&mut self, latency: f32, failures: u8) {
        let (deviations, weight) = match failures {
            0 => (4.0, 0.5),
            1 | 2 => (1.0, 0.25),
            _ => return,
        };
        if self.latency == 0.0 {
            (self.latency, self.deviation) = (latency, latency / 2.0);
        } else {
            self.deviation += ((latency - self.latency).abs() - self.deviation) / 4.0;
            self.latency += (latency - self.latency) / 8.0;
        }
        let timeout = self.latency + deviations * self.deviation;
        self.memory = (self.memory + weight * (timeout - self.memory)).clamp(BASE as f32, CAP as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Ended = Ended::Answered { latency: 0.1, losses: 0 };

    fn client(rule: Baseline, interval: f64) -> BaselineState {
        let mut config = Polling::default();
        config.clients.interval = interval;
        BaselineState::new(rule, &config)
    }

    #[test]
    fn back_offs_double_to_the_cap_and_forget_with_an_answer() {
        let mut chance = Stream::of(1, "test");
        let mut state = client(Baseline::ExponentialBackOff, 10.0);
        let delays: Vec<f64> = (0..12).map(|_| state.on_outcome(Ended::Failed, &mut chance)).collect();
        assert_eq!(delays[..3], [0.2, 0.4, 0.8]);
        assert_eq!(delays[11], 60.0);
        assert_eq!(state.on_outcome(ANSWER, &mut chance), 10.0);
        assert_eq!(state.on_outcome(Ended::Failed, &mut chance), 0.2);
    }

    #[test]
    fn jitter_stays_within_its_window() {
        let mut chance = Stream::of(2, "test");
        for (rule, least) in
            [(Baseline::FullJitter, 0.0), (Baseline::EqualJitter, 0.5), (Baseline::DecorrelatedJitter, 0.0)]
        {
            let mut state = client(rule, 10.0);
            for n in 1..40 {
                let window = (0.1 * f64::from(n).exp2()).min(60.0);
                let delay = state.on_outcome(Ended::Failed, &mut chance);
                assert!(delay >= least * window && delay <= 60.0, "{rule:?} {n}: {delay}");
            }
        }
    }

    #[test]
    fn throttling_asks_about_twice_per_accepted_request() {
        let mut chance = Stream::of(3, "test");
        let mut state = client(Baseline::AdaptiveThrottling, 1.0);
        let (mut asked, mut accepted) = (0, 0);
        for second in 0..20_000 {
            if state.on_due(f64::from(second), &mut chance) == Due::Ask {
                asked += 1;
                let answered = second % 4 == 0;
                accepted += i32::from(answered);
                state.on_outcome(if answered { ANSWER } else { Ended::Failed }, &mut chance);
            }
        }
        let ratio = f64::from(asked) / f64::from(accepted);
        assert!((1.5..5.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn aimd_halves_and_grows() {
        let mut chance = Stream::of(4, "test");
        let mut state = client(Baseline::Aimd, 10.0);
        assert_eq!(state.on_outcome(Ended::Failed, &mut chance), 20.0);
        for _ in 0..10 {
            state.on_outcome(ANSWER, &mut chance);
        }
        assert!((state.on_outcome(ANSWER, &mut chance) - 10.0).abs() < 1e-6);
    }

    #[test]
    fn the_gradient_slows_down_in_a_queue_and_comes_back() {
        let mut chance = Stream::of(5, "test");
        let mut state = client(Baseline::Gradient, 10.0);
        (0..50).for_each(|_| assert_eq!(state.on_outcome(ANSWER, &mut chance), 10.0));
        let slow = Ended::Answered { latency: 1.0, losses: 0 };
        assert!((0..5).map(|_| state.on_outcome(slow, &mut chance)).last().unwrap() > 13.0);
        assert!((0..60).map(|_| state.on_outcome(ANSWER, &mut chance)).last().unwrap() < 10.5);
    }

    #[test]
    fn cocoa_waits_by_its_round_trips_and_backs_off_by_their_size() {
        let mut chance = Stream::of(6, "test");
        let mut state = client(Baseline::Cocoa, 10.0);
        (0..30).for_each(|_| assert_eq!(state.on_outcome(ANSWER, &mut chance), 10.0));
        let first = state.on_outcome(Ended::Failed, &mut chance);
        assert!((0.1..=0.2).contains(&first), "{first}");
        let second = state.on_outcome(Ended::Failed, &mut chance);
        assert!((0.3..=0.5).contains(&second), "{second}");
        assert!((0..30).map(|_| state.on_outcome(Ended::Failed, &mut chance)).fold(0.0, f64::max) <= 90.0);
    }

    #[test]
    fn ast_with_full_jitter_follows_losses() {
        let mut chance = Stream::of(7, "test");
        let mut state = client(Baseline::AstFullJitter, 10.0);
        assert!(state.on_outcome(ANSWER, &mut chance) > 10.0);
        let lossy = Ended::Answered { latency: 0.1, losses: 2 };
        assert!(state.on_outcome(lossy, &mut chance) < 6.0);
        assert!(state.on_outcome(Ended::Failed, &mut chance) <= 0.2);
    }
}
