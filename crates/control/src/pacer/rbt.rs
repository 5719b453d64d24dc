//! RBT, the random back-off timeout: what is added to AST while the broker is congested.
//!
//! The papers' rule (Algorithm 3, with the readings that make it run: CONTROL A10–A16):
//! ```text
//! base = t_min if b = 0, else b            not congested:  b' = 0
//! congested:  b' = max(0, min(base·β, t_max) + ε),   ε ~ Normal(0, variance base seconds²)
//! t_max:  p18 = 60 s     p19 = min(60 s, 5·avg)     s19 = n·avg            avg = mean response time
//! ```
//! The practical rule is a *stretch* σ of the client's own interval: b = (σ − 1)·a, so t = σ·a.
//! ```text
//! advised, not congested       σ' = the advice
//! congested                    σ' = min(β·σ, σ_max), at least the advice, and σ_init at the first of an episode; with a
//!                              slot and advice σ is not raised beyond the advice
//! not congested                σ' = max(1, σ/(1 + g·σ))          the rate 1/σ grows by g
//! ```
//! It keeps the proportions between clients that AST found (everybody is slowed by the same factor), decays instead of forgetting, and is bounded by
//! an absolute limit, not by a multiple of a measured mean that is zero for a client that never succeeded.

use core::time::Duration;

use rand_core::Rng;

use super::config::{DAY, MILLISECOND};
use crate::config::{ConfigError, at_most, count, named, number, span};
use crate::draw;

named! {
    "back-off rule";
    /// How the back-off moves.
    pub enum RbtRule {
        /// The practical one: the interval is stretched.
        #[default]
        Stretch = "stretch",
        /// Algorithm 3 with t_max = 60 s (Vdovenko 2018).
        P18 = "p18",
        /// Algorithm 3 with t_max = 5 mean response times (Bogoiavlenskaia et al. 2019).
        P19 = "p19",
        /// Algorithm 3 with t_max = n mean response times (the slides of 2019).
        S19 = "s19",
    }
}

named! {
    "noise";
    /// The random term ε of Algorithm 3.
    pub enum Noise {
        /// Normal with mean 0 and variance b, as in the slides.
        #[default]
        Normal = "normal",
        /// None: for comparing with hand-computed traces.
        Off = "off",
    }
}

/// Configuration of the back-off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackOffConfig {
    /// The rule by which a client backs off.
    pub rule: RbtRule,
    /// β: growth per congested check. 1.01 ..= 16.
    pub beta: f64,
    /// g: what the rate 1/σ regains per good check. 0.0001 ..= 1.
    pub recovery: f64,
    /// The largest stretch. 1 ..= 1e6.
    pub stretch_max: f64,
    /// t_min: Algorithm 3 starts from here, and so do the retries of an urgent fetch. 1 ms ..= `cap`.
    pub minimum: Duration,
    /// t_cap: the largest back-off of Algorithm 3 and of an urgent fetch. ..= 1 day.
    pub cap: Duration,
    /// n of `s19`. 1 ..= 1000.
    pub rounds: u32,
    /// ε of Algorithm 3.
    pub noise: Noise,
}

impl Default for BackOffConfig {
    fn default() -> Self {
        Self {
            rule: RbtRule::default(),
            beta: 2.0,
            recovery: 0.02,
            stretch_max: 1000.0,
            minimum: Duration::from_millis(100),
            cap: Duration::from_secs(60),
            rounds: 5,
            noise: Noise::default(),
        }
    }
}

impl BackOffConfig {
    pub(super) fn build(&self) -> Result<BackOffPlan, ConfigError> {
        at_most("t_min", self.minimum, "t_max", self.cap)?;
        Ok(BackOffPlan {
            rule: self.rule,
            beta: number("beta", self.beta, 1.01, 16.0)?,
            recovery: number("back_off.recovery", self.recovery, 1e-4, 1.0)?,
            stretch_max: number("back_off.stretch_max", self.stretch_max, 1.0, 1e6)?,
            cap: span("t_max", self.cap, MILLISECOND, DAY)?,
            minimum: span("t_min", self.minimum, MILLISECOND, DAY)?,
            rounds: count("rounds", self.rounds.into(), 1, 1000)? as f64,
            noise: self.noise,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BackOffPlan {
    rule: RbtRule,
    beta: f64,
    recovery: f64,
    pub(super) stretch_max: f64,
    pub(super) minimum: f64,
    pub(super) cap: f64,
    rounds: f64,
    noise: Noise,
}

impl BackOffPlan {
    /// The paper's sum, to the letter.
    pub(super) fn exact(&self) -> bool {
        self.rule != RbtRule::Stretch
    }

    /// Algorithm 3's t_max for a mean response time, seconds.
    fn back_off_max(&self, average: f64) -> f64 {
        match self.rule {
            RbtRule::Stretch | RbtRule::P18 => self.cap,
            RbtRule::P19 => self.cap.min(P19_ROUNDS * average),
            RbtRule::S19 => self.rounds * average,
        }
    }
}

/// The state of either rule: one number.
#[derive(Clone, Copy, Debug)]
pub(super) enum BackOffState {
    /// σ.
    Stretch(f64),
    /// b, seconds.
    Algorithm3(f64),
}

impl BackOffState {
    pub(super) fn new(plan: &BackOffPlan) -> Self {
        if plan.exact() { Self::Algorithm3(0.0) } else { Self::Stretch(1.0) }
    }

    /// A stretch or back-off as it was saved, forced into range.
    pub(super) fn resumed(plan: &BackOffPlan, stretch: f64, back_off: f64) -> Self {
        if plan.exact() {
            Self::Algorithm3(if back_off > 0.0 { back_off.min(plan.cap) } else { 0.0 })
        } else {
            Self::Stretch(if stretch >= 1.0 { stretch.min(plan.stretch_max) } else { 1.0 })
        }
    }

    /// σ; 1 for Algorithm 3, which has none.
    pub(super) fn stretch(self) -> f64 {
        match self {
            Self::Stretch(sigma) => sigma,
            Self::Algorithm3(_) => 1.0,
        }
    }

    /// b in seconds, for an interval of `ast` seconds.
    pub(super) fn back_off(self, ast: f64) -> f64 {
        match self {
            Self::Stretch(sigma) => (sigma - 1.0) * ast,
            Self::Algorithm3(b) => b,
        }
    }

    pub(super) fn on_clear(&mut self, plan: &BackOffPlan) {
        *self = match *self {
            Self::Stretch(sigma) => Self::Stretch((sigma / (1.0 + plan.recovery * sigma)).max(1.0)),
            Self::Algorithm3(_) => Self::Algorithm3(0.0),
        };
    }

    /// `first`: the first back-off of this episode as the initial strategy wants it, seconds; None in mid-episode or if
    /// the strategy has no opinion. `average`: the mean response time.
    pub(super) fn on_congestion<R: Rng + ?Sized>(
        &mut self,
        plan: &BackOffPlan,
        first: Option<f64>,
        ast: f64,
        average: f64,
        rng: &mut R,
    ) {
        *self = match *self {
            Self::Stretch(sigma) => {
                let least = first.map_or(1.0, |first| 1.0 + first / ast);
                Self::Stretch((sigma * plan.beta).max(least).min(plan.stretch_max))
            }
            Self::Algorithm3(b) => {
                // Lines 3–5 read as t_{j−1}: literally they leave b at zero for ever (A10).
                let base = if b == 0.0 { plan.minimum } else { b };
                let grown = first.unwrap_or(base * plan.beta).min(plan.back_off_max(average));
                let noise = match plan.noise {
                    Noise::Normal => libm::sqrt(base) * draw::normal(rng),
                    Noise::Off => 0.0,
                };
                // The noise is fed back, as in line 14; it can be negative, a back-off cannot.
                Self::Algorithm3((grown + noise).max(0.0))
            }
        };
    }

    /// The broker said how much to stretch: that is the stretch, and while congested the least of it.
    pub(super) fn on_advice(&mut self, plan: &BackOffPlan, advice: f64, congested: bool) {
        if let Self::Stretch(sigma) = self {
            // `max` before `min` also turns NaN into 1.
            let advised = advice.max(1.0).min(plan.stretch_max);
            *sigma = if congested { sigma.max(advised) } else { advised };
        }
    }
}

/// P19: "t_max ≤ 5 · average query duration".
const P19_ROUNDS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    fn plan(rule: RbtRule) -> BackOffPlan {
        BackOffConfig { rule, noise: Noise::Off, ..BackOffConfig::default() }.build().unwrap()
    }

    #[test]
    fn a_good_check_gives_back_rate_not_time() {
        let plan = plan(RbtRule::Stretch);
        let mut back_off = BackOffState::Stretch(10.0);
        back_off.on_clear(&plan);
        assert!((1.0 / back_off.stretch() - 0.12).abs() < 1e-12);
    }

    #[test]
    fn stretch_is_home_after_one_over_g_good_checks() {
        let plan = plan(RbtRule::Stretch);
        let mut back_off = BackOffState::Stretch(plan.stretch_max);
        for _ in 0..50 {
            back_off.on_clear(&plan);
        }
        assert_eq!(back_off.stretch(), 1.0);
    }

    #[test]
    fn the_caps_of_the_three_papers_differ() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        for (rule, average, expected) in [
            (RbtRule::P18, 0.1, 60.0),
            (RbtRule::P19, 0.1, 0.5),
            (RbtRule::P19, 100.0, 60.0),
            (RbtRule::S19, 100.0, 500.0),
        ] {
            let plan = plan(rule);
            let mut back_off = BackOffState::new(&plan);
            for _ in 0..20 {
                back_off.on_congestion(&plan, None, 10.0, average, &mut rng);
            }
            assert_eq!(back_off.back_off(10.0), expected, "{rule} with a mean of {average} s");
        }
    }
}
