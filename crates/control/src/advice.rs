//! Stretch advice: one factor for everybody, so that the declared demand fits the host (CONTROL §8.5).
//!
//! ```text
//! dem = Σ 1/want_i over live sessions           σ = max(1, i·c·dem·(w̄ + d) / (ρ_s·ρ) · (1 + min(h/5 s, 1)/10))
//! ```
//! Each client declares the interval it wants; the broker returns the factor by which all must stretch it. Everybody is
//! slowed alike, so the proportions that AST found survive, and there is no gain to tune. The sum is kept in whole picohertz, so it is
//! exact whatever comes and goes: no drift, no periodic recount, never negative. Not from the papers.
//!
//! What clients declare is more than they ask for: an interval that fluctuates comes back after the *next* one, and the mean
//! of `x'/x` exceeds 1 (some 15 % for AST). So the checks that come are counted beside those that were expected by what each was told,
//! and σ is corrected by their ratio `c`, which is trusted between 0.5 and 1: who declares too much gains nothing.
//!
//! What is still wrong with that is seen by the book: `e = (h − h*)/h*` of whoever comes, between −1 and 1, is integrated,
//! a twentieth in each mean interval (in less the population has not answered yet), and σ is multiplied by the result `i`, within
//! 0.8 and 1.25. An idle host is used up that way, and a book that does not get shorter is shortened.
//!
//! The cost `w̄` is a mean over hundreds of checks, because its noise would be everybody's; `d` is what denials cost per check,
//! and while appointments reach `h` far, everybody waits up to a tenth longer, so that the book empties. That much does not
//! make the population swing; the whole of `h` does.

use core::time::Duration;

use crate::config::{ConfigError, number, span};
use crate::time::{Timestamp, duration, nanos, seconds};

/// Configuration of the advice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceConfig {
    /// ρ: the share of the host that checks may use. 0.01 ..= 1.
    pub utilisation: f64,
    /// ρ_s: margin for what the estimates get wrong. 0.1 ..= 1.
    pub margin: f64,
    /// The shortest interval that a session can declare: a liar gains at most this. 1 ms ..= 1 day.
    pub want_min: Duration,
    /// The largest factor that is ever advised. 1 ..= 1e6.
    pub stretch_max: f64,
}

impl Default for AdviceConfig {
    fn default() -> Self {
        Self { utilisation: 0.97, margin: 0.99, want_min: Duration::from_millis(50), stretch_max: 1000.0 }
    }
}

/// What one session has declared, and what it was told of it; 16 bytes to keep with it. Give it back with [`StretchAdvice::withdraw`] when the session
/// ends or stays silent (see [`StretchAdvice::patience`]).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Declared {
    picohertz: u64,
    /// The same, stretched as it was told last.
    told: u64,
}

/// The sum of all declared demand.
#[derive(Clone, Debug)]
pub struct StretchAdvice {
    share: f64,
    want_min: Duration,
    stretch_max: f64,
    picohertz: u128,
    /// Of those who were not sent away, each stretched as it was told last: who asks goes by that until it asks again.
    told: u128,
    /// Sessions that have declared something.
    sessions: u64,
    /// i, and when it was last moved.
    trim: f64,
    trimmed_at: Timestamp,
    /// Checks that came and that were expected, each fading with [`FADING`].
    seen: f64,
    expected: f64,
    counted_at: Timestamp,
    /// w̄, seconds.
    cost: f64,
}

/// What the appointment book and the pool say about the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strain {
    /// d: what denials cost, for each check: the share of those refused, times the cost of a denial.
    pub denials: Duration,
    /// h: how far appointments reach.
    pub wait: Duration,
}

impl StretchAdvice {
    /// Nobody wants anything yet.
    pub fn new(config: &AdviceConfig) -> Result<Self, ConfigError> {
        span("want_min", config.want_min, Duration::from_millis(1), Duration::from_secs(86_400))?;
        Ok(Self {
            share: number("utilisation", config.utilisation, 0.01, 1.0)? * number("margin", config.margin, 0.1, 1.0)?,
            want_min: config.want_min,
            stretch_max: number("stretch_max", config.stretch_max, 1.0, 1e6)?,
            picohertz: 0,
            told: 0,
            sessions: 0,
            trim: 1.0,
            trimmed_at: Timestamp::ZERO,
            seen: PRIOR,
            expected: PRIOR,
            counted_at: Timestamp::ZERO,
            cost: 0.0,
        })
    }

    /// A check was answered at this cost to the host.
    pub fn on_served(&mut self, cost: Duration) {
        let cost = seconds(cost);
        // The first one is all that is known.
        let weight = if self.cost == 0.0 { 1.0 } else { COST_WEIGHT };
        self.cost += (cost - self.cost) * weight;
    }

    /// σ for the costs that were seen and the strain there is now.
    pub fn advise(&self, strain: &Strain) -> f64 {
        let stretch = self.stretch_of(self.cost + seconds(strain.denials));
        let drain = 1.0 + DRAIN_MAX * (seconds(strain.wait) / DRAIN_FULL).min(1.0);
        (stretch * self.trim * drain).clamp(1.0, self.stretch_max)
    }

    /// A session asks of its own accord, while `stretch` was advised, and would have to wait for so long where this much is
    /// meant.
    pub fn on_book(&mut self, now: Timestamp, stretch: f64, wait: Duration, meant: Duration) {
        let passed = seconds(now.since(self.trimmed_at));
        self.trimmed_at = self.trimmed_at.max(now);
        // `max` first: it turns NaN into 1.
        let interval = self.sessions as f64 / self.demand().max(1e-12) * stretch.max(1.0);
        let gain = TRIM_GAIN * (passed / interval.max(1.0)).min(1.0);
        let wrong = ((seconds(wait) - seconds(meant)) / seconds(meant).max(1e-9)).clamp(-1.0, 1.0);
        let is_needed = stretch > 1.0 || wrong > 0.0;
        self.trim = if is_needed { self.trim * (1.0 + gain * wrong) } else { self.trim + (1.0 - self.trim) * gain };
        self.trim = self.trim.clamp(TRIM_MIN, TRIM_MAX);
    }

    /// A session asks of its own accord (not because it was told to come back). To be said before it declares anew.
    pub fn on_check(&mut self, now: Timestamp) {
        let passed = seconds(now.since(self.counted_at));
        self.counted_at = self.counted_at.max(now);
        let kept = 1.0 / (1.0 + passed / FADING);
        let expected = self.told as f64 * 1e-12 * passed.min(FADING);
        self.seen = (self.seen * kept + 1.0).min(COUNT_MAX);
        self.expected = (self.expected * kept + expected).min(COUNT_MAX);
    }

    /// What is really asked for, of what is declared.
    fn correction(&self) -> f64 {
        (self.seen / self.expected.max(1.0)).clamp(CORRECTION_MIN, CORRECTION_MAX)
    }

    /// A session declares the interval it wants; an earlier declaration is replaced.
    pub fn declare(&mut self, session: &mut Declared, want: Duration) {
        self.withdraw(session);
        // `want_min` of at least 1 ms makes this at most 10¹⁵.
        session.picohertz = (PICOHERTZ_NANOS / u128::from(nanos(want.max(self.want_min)))) as u64;
        self.picohertz += u128::from(session.picohertz);
        self.sessions += u64::from(session.picohertz > 0);
        self.tell(session, 1.0);
    }

    /// A session is told to stretch what it declared by this.
    pub fn tell(&mut self, session: &mut Declared, stretch: f64) {
        // `max` first: it turns NaN into 1.
        let told = (session.picohertz as f64 / stretch.max(1.0)) as u64;
        self.told = self.told.saturating_sub(session.told.into()) + u128::from(told);
        session.told = told;
    }

    /// A session ends; harmless if it declared nothing.
    pub fn withdraw(&mut self, session: &mut Declared) {
        let before = core::mem::take(session);
        self.picohertz = self.picohertz.saturating_sub(u128::from(before.picohertz));
        self.sessions = self.sessions.saturating_sub(u64::from(before.picohertz > 0));
        self.told = self.told.saturating_sub(u128::from(before.told));
    }

    /// A session was refused: until it declares again, nothing is expected of it.
    pub fn send_away(&mut self, session: &mut Declared) {
        self.told = self.told.saturating_sub(u128::from(session.told));
        session.told = 0;
    }

    /// Checks per second that all sessions together want.
    pub fn demand(&self) -> f64 {
        self.picohertz as f64 * 1e-12
    }

    /// σ: the factor by which every client should stretch its interval, for checks of this mean cost. At least 1.
    pub fn stretch(&self, mean_cost: Duration) -> f64 {
        self.stretch_of(seconds(mean_cost)).clamp(1.0, self.stretch_max)
    }

    /// The same before it is bounded: below 1 if there is room for more.
    fn stretch_of(&self, mean_cost: f64) -> f64 {
        self.demand() * self.correction() * mean_cost / self.share
    }

    /// How long a session may be silent before its declaration is withdrawn: three stretched intervals. Zero for one that
    /// declared nothing.
    pub fn patience(&self, session: &Declared, stretch: f64) -> Duration {
        if session.picohertz == 0 {
            return Duration::ZERO;
        }
        let want = 1e12 / session.picohertz as f64;
        // `max` first: it turns NaN into 1.
        duration(SILENT_CHECKS * want * stretch.max(1.0).min(self.stretch_max))
    }
}

/// 10¹² picohertz are one per second, which is 10⁹ nanoseconds: this, divided by a time in nanoseconds, is a rate in pHz.
const PICOHERTZ_NANOS: u128 = 10_u128.pow(21);
/// Seconds over which checks are counted: some intervals of most clients.
const FADING: f64 = 120.0;
/// Checks that are taken to have come as expected, at the beginning.
const PRIOR: f64 = 100.0;
/// Weight of one check in the mean cost.
const COST_WEIGHT: f64 = 1.0 / 256.0;
/// What one mean interval adds at most to the logarithm of i, and its bounds.
const TRIM_GAIN: f64 = 0.05;
const TRIM_MIN: f64 = 0.8;
const TRIM_MAX: f64 = 1.25;
/// How much longer everybody waits while appointments reach this many seconds or more.
const DRAIN_MAX: f64 = 0.1;
const DRAIN_FULL: f64 = 5.0;
/// No count grows beyond this, whatever comes.
const COUNT_MAX: f64 = 1e12;
/// The least part of the declared demand that is believed to be real.
const CORRECTION_MIN: f64 = 0.5;
/// And the most: who asks more often than it says does not make the others wait longer.
const CORRECTION_MAX: f64 = 1.0;
/// A session that missed this many checks is taken to be gone.
const SILENT_CHECKS: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn advice() -> StretchAdvice {
        StretchAdvice::new(&AdviceConfig::default()).unwrap()
    }

    #[test]
    fn demand_beyond_the_host_is_stretched_to_fit() {
        let mut advice = advice();
        let mut sessions: Vec<Declared> = (0..20_000).map(|_| Declared::default()).collect();
        for session in &mut sessions {
            advice.declare(session, Duration::from_secs(10));
        }
        // 2000 checks a second of 5 ms: ten times one server.
        assert_eq!(advice.demand(), 2000.0);
        let sigma = advice.stretch(Duration::from_millis(5));
        assert!((sigma - 10.0 / (0.97 * 0.99)).abs() < 1e-9);
        assert_eq!(advice.stretch(Duration::from_micros(1)), 1.0);
        for session in &mut sessions {
            advice.withdraw(session);
            advice.withdraw(session);
        }
        assert_eq!(advice.demand(), 0.0);
    }

    #[test]
    fn a_liar_gains_its_clamp_and_no_more() {
        let (mut advice, mut liar) = (advice(), Declared::default());
        advice.declare(&mut liar, Duration::ZERO);
        assert_eq!(advice.demand(), 20.0);
        advice.declare(&mut liar, Duration::MAX);
        assert!(advice.demand() < 1e-9);
    }

    #[test]
    fn a_silent_session_is_waited_for_three_intervals() {
        let (mut advice, mut session) = (advice(), Declared::default());
        assert_eq!(advice.patience(&session, 2.0), Duration::ZERO);
        advice.declare(&mut session, Duration::from_secs(10));
        assert_eq!(advice.patience(&session, 2.0), Duration::from_secs(60));
        assert_eq!(advice.patience(&session, f64::NAN), Duration::from_secs(30));
    }

    #[test]
    fn a_population_that_asks_less_often_than_it_declares_is_stretched_less() {
        let (mut advice, mut session) = (advice(), Declared::default());
        advice.declare(&mut session, Duration::from_millis(50));
        let cost = Duration::from_millis(500);
        let declared = advice.stretch(cost);
        advice.tell(&mut session, declared);
        // It declares 20 a second, is told to stretch that and asks four fifths as often.
        let mut now = Timestamp::ZERO;
        for _ in 0..10_000 {
            now = now + duration(0.05 * advice.stretch(cost) / 0.8);
            advice.on_check(now);
            advice.tell(&mut session, advice.stretch(cost));
        }
        assert!((advice.stretch(cost) / declared - 0.8).abs() < 0.02, "{}", advice.stretch(cost) / declared);
        // Whoever asks more often than declared does not make the others wait longer.
        for _ in 0..100_000 {
            now = now + Duration::from_millis(1);
            advice.on_check(now);
            advice.tell(&mut session, f64::NAN);
        }
        assert_eq!(advice.stretch(cost), declared);
    }

    #[test]
    fn denials_and_a_full_book_slow_everybody_a_little_and_the_cost_is_steady() {
        let (mut advice, mut session) = (advice(), Declared::default());
        advice.declare(&mut session, Duration::from_millis(50));
        advice.on_served(Duration::from_millis(100));
        let calm = advice.advise(&Strain::default());
        assert!((calm - 2.0 / (0.97 * 0.99)).abs() < 1e-9);
        advice.on_served(Duration::from_millis(356));
        assert!((advice.advise(&Strain::default()) / calm - 1.01).abs() < 1e-9, "one check is one of 256");
        advice.cost = 0.1;
        let denials = Duration::from_millis(10);
        assert!((advice.advise(&Strain { denials, ..Strain::default() }) / calm - 1.1).abs() < 1e-9);
        for (wait, more) in [(Duration::from_secs(1), 1.02), (Duration::from_secs(5), 1.1), (Duration::MAX, 1.1)] {
            assert!((advice.advise(&Strain { wait, ..Strain::default() }) / calm - more).abs() < 1e-9, "{wait:?}");
        }
        assert_eq!(advice.advise(&Strain { denials: Duration::MAX, wait: Duration::MAX }), 1000.0);
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Declare(usize, u64),
        Withdraw(usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (0..8_usize, any::<u64>()).prop_map(|(who, want)| Operation::Declare(who, want)),
            (0..8_usize).prop_map(Operation::Withdraw),
        ]
    }

    proptest! {
        /// Invariant 16: the demand is the sum recomputed from scratch, at any time.
        #[test]
        fn demand_is_the_sum_of_what_is_declared(operations in prop::collection::vec(operation(), 0..200)) {
            let mut advice = advice();
            let mut sessions: Vec<Declared> = (0..8).map(|_| Declared::default()).collect();
            let mut model = [0.0_f64; 8];
            for operation in operations {
                match operation {
                    Operation::Declare(who, want) => {
                        let want = Duration::from_nanos(want);
                        advice.declare(&mut sessions[who], want);
                        model[who] = 1.0 / seconds(want).max(0.05);
                    }
                    Operation::Withdraw(who) => {
                        advice.withdraw(&mut sessions[who]);
                        model[who] = 0.0;
                    }
                }
                let expected: f64 = model.iter().sum();
                prop_assert!((advice.demand() - expected).abs() <= 1e-9 * expected + 1e-11);
                prop_assert!(advice.stretch(Duration::MAX).is_finite());
            }
        }
    }
}
