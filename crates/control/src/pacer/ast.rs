//! AST, the adaptive strategy timeout: the interval `a` between checks follows the losses.
//!
//! ```text
//! equation3   a' = a + δ   if k = 0            P19 eq. (3)
//!             a' = a / α   if k > 0
//! algorithm2  a' = a + N·δ if that stays below T, else a' = a; decrease as above     P19 Alg. 2
//! practical   hit = k > 0, thinned: Pr{hit} = 1 − (1 − min(1, a/x))^k
//!             a' = a / α if hit and not congested;  a if hit and congested;  else a + δ
//! ```
//! *Thinning* (exposure normalisation): the papers count losses over the whole time since the last successful check, so a
//! client that backs off finds more of them and shortens `a`: AST takes back the square root of any back-off. Counting
//! each loss with probability a/x restores the law of the map for any exposure x. *Gate*: losses caused by overload are
//! not cured by asking more often; without the gate a broker that was slow for a minute is kept down for ever.
//! A failed check says nothing about losses and never comes here.

use core::time::Duration;

use rand_core::Rng;

use super::config::{HOUR, MILLISECOND};
use crate::analysis::aimd::{Aimd, c};
use crate::config::{ConfigError, at_most, named, number, span};
use crate::draw;
use crate::measure::LossEstimator;

named! {
    "AST rule";
    /// How the adaptive timeout moves.
    pub enum AstRule {
        /// Thinned losses, congestion gate.
        #[default]
        Practical = "practical",
        /// Equation (3), as printed.
        Equation3 = "equation3",
        /// Algorithm 2, with T and N from the closed forms.
        Algorithm2 = "algorithm2",
    }
}

named! {
    "growth";
    /// How the practical timeout grows.
    pub enum Growth {
        /// By δ per check without loss.
        #[default]
        Step = "step",
        /// Towards T in one stride of N·δ while below T/α, then by δ: Algorithm 2 without its ratchet.
        Stride = "stride",
    }
}

/// The additive step δ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AstStep {
    /// A fixed δ, 1 µs ..= 1 h. With a common δ the check rates of different clients are proportional to √λ, the best
    /// use of a common budget of checks.
    Fixed(Duration),
    /// A fixed share of the first interval, 0.0001 ..= 10: the same law, and who asks for ten times the interval has ten
    /// times the step. With the practical rule no more than the mean distance of two losses.
    Share(f64),
    /// δ chosen by each client from its own loss rate so that a lost update is found after this time on average,
    /// 1 ms ..= 1 h; 0.1 s until the first loss. The intervals of all clients are then about the same, whatever they lose.
    DetectionDelay(Duration),
}

/// What `calculateEstimates()` of Algorithm 2 answers, where it is given and not computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenEstimates {
    /// T: the expected timeout before a decrease. 1 ms ..= 30 days.
    pub before_decrease: Option<Duration>,
    /// N: consecutive growths between decreases. 0.01 ..= 1e6.
    pub growths: Option<f64>,
    /// K: losses of a check that finds any. 1 ..= 1e6.
    pub burst: Option<f64>,
}

impl GivenEstimates {
    fn build(&self) -> Result<EstimatesPlan, ConfigError> {
        let given =
            |field, value: Option<f64>, low, high| value.map(|value| number(field, value, low, high)).transpose();
        let target = self.before_decrease.map(|target| span("T", target, MILLISECOND, HOUR * 720)).transpose()?;
        Ok(EstimatesPlan {
            target: target.map(|target| target as f32),
            growths: given("N", self.growths, 0.01, 1e6)?.map(|growths| growths as f32),
            burst: given("K", self.burst, 1.0, 1e6)?,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct EstimatesPlan {
    target: Option<f32>,
    growths: Option<f32>,
    burst: Option<f64>,
}

/// Configuration of AST.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AstConfig {
    /// How the timeout moves.
    pub rule: AstRule,
    /// α: the divisor at a loss. 1.1 ..= 8.
    pub alpha: f64,
    /// δ: the addend without one.
    pub step: AstStep,
    /// The timeout is never shorter (the papers have no floor, and `a` goes to zero). 1 ms ..= `ceiling`.
    pub floor: Duration,
    /// The timeout is never longer. ..= 30 days.
    pub ceiling: Duration,
    /// T, N and K of Algorithm 2, where they are known and need not be estimated.
    pub given: GivenEstimates,
    /// Growth of the practical rule.
    pub growth: Growth,
    /// Practical rule: count a loss with probability a/x. Switch off only to measure what it is worth.
    pub thinning: bool,
    /// Practical rule: do not shorten while congested. Switch off only to measure what it is worth.
    pub gate: bool,
    /// Practical back-off: what is stretched is the mean of the timeout, not the timeout. Switch off only to measure what it is
    /// worth.
    pub smoothing: bool,
}

impl Default for AstConfig {
    fn default() -> Self {
        Self {
            rule: AstRule::default(),
            alpha: 2.0,
            step: AstStep::Share(STEP_SHARE),
            floor: Duration::from_millis(50),
            ceiling: HOUR,
            given: GivenEstimates::default(),
            growth: Growth::default(),
            thinning: true,
            gate: true,
            smoothing: true,
        }
    }
}

impl AstConfig {
    /// `interval`: the first value of the timeout, in seconds.
    pub(super) fn build(&self, interval: f64) -> Result<AstPlan, ConfigError> {
        let alpha = number("alpha", self.alpha, 1.1, 8.0)?;
        let ceiling = span("ceiling", self.ceiling, MILLISECOND, HOUR * 720)?;
        let floor = span("floor", self.floor, MILLISECOND, HOUR * 720)?;
        at_most("floor", self.floor, "ceiling", self.ceiling)?;
        let (step, step_per_rate) = match self.step {
            AstStep::Fixed(step) => (span("delta", step, Duration::from_micros(1), HOUR)?, None),
            AstStep::Share(share) => (number("delta", share, 1e-4, 10.0)? * interval, None),
            AstStep::DetectionDelay(delay) => {
                let delay = span("detection_delay", delay, MILLISECOND, HOUR)?;
                // δ = λ̂·(2D/T₀)², T₀ = α/((α−1)c); the bound δ ≤ 1/λ̂ is for `learn`, which knows λ̂.
                let half_cycle = 2.0 * delay * c(alpha) * (alpha - 1.0) / alpha;
                (STEP_BEFORE_LOSS, Some(half_cycle * half_cycle))
            }
        };
        Ok(AstPlan {
            rule: self.rule,
            alpha,
            step,
            step_per_rate,
            is_step_cut: matches!(self.step, AstStep::Share(_)) && self.rule == AstRule::Practical,
            floor,
            ceiling,
            given: self.given.build()?,
            growth: self.growth,
            thinning: self.thinning,
            gate: self.gate,
            smoothing: self.smoothing,
            prior_exposure: PRIOR_INTERVALS * interval,
        })
    }
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each switches one part of the rule")]
pub(super) struct AstPlan {
    rule: AstRule,
    alpha: f64,
    /// First value of δ.
    step: f64,
    /// δ = this × λ̂, if δ is chosen from the loss rate.
    step_per_rate: Option<f64>,
    /// δ is no longer than the mean distance of two losses.
    is_step_cut: bool,
    floor: f64,
    ceiling: f64,
    given: EstimatesPlan,
    growth: Growth,
    thinning: bool,
    gate: bool,
    pub(super) smoothing: bool,
    pub(super) prior_exposure: f64,
}

impl AstPlan {
    /// The paper's timeout, to the letter.
    pub(super) fn exact(&self) -> bool {
        self.rule != AstRule::Practical
    }

    fn needs_estimates(&self) -> bool {
        match self.rule {
            AstRule::Practical => self.growth == Growth::Stride,
            AstRule::Equation3 => false,
            AstRule::Algorithm2 => true,
        }
    }
}

/// What a successful check showed.
pub(super) struct CheckResult {
    pub(super) losses: u32,
    /// Time since the previous successful check, seconds.
    pub(super) exposure: f64,
    pub(super) congested: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ast {
    /// The timeout in seconds.
    value: f64,
    /// δ now in force.
    step: f32,
    /// T̂ (seconds) of Algorithm 2, zero until the first loss unless it is given; and N̂, one until then.
    target: f32,
    growths: f32,
}

impl Ast {
    pub(super) fn new(plan: &AstPlan, interval: f64) -> Self {
        let value = interval.clamp(plan.floor, plan.ceiling);
        let (target, growths) = (plan.given.target.unwrap_or(0.0), plan.given.growths.unwrap_or(1.0));
        Self { value, step: plan.step as f32, target, growths }
    }

    /// Seconds, between floor and ceiling.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// T̂ in seconds and N̂, once a loss has been seen and the rule asks for them.
    pub(super) fn estimates(&self) -> Option<(f64, f64)> {
        (self.target > 0.0).then(|| (f64::from(self.target), f64::from(self.growths)))
    }

    pub(super) fn on_check<R: Rng + ?Sized>(
        &mut self,
        plan: &AstPlan,
        check: &CheckResult,
        losses: &LossEstimator,
        rng: &mut R,
    ) {
        if check.losses > 0 {
            self.learn(plan, losses);
        }
        let value = match plan.rule {
            AstRule::Equation3 | AstRule::Algorithm2 if check.losses > 0 => self.value / plan.alpha,
            AstRule::Equation3 => self.value + f64::from(self.step),
            AstRule::Algorithm2 => self.algorithm_2(),
            AstRule::Practical if self.hit(plan, check, rng) => {
                if check.congested && plan.gate {
                    self.value
                } else {
                    self.value / plan.alpha
                }
            }
            AstRule::Practical => self.grown(plan),
        };
        self.value = value.clamp(plan.floor, plan.ceiling);
    }

    fn hit<R: Rng + ?Sized>(&self, plan: &AstPlan, check: &CheckResult, rng: &mut R) -> bool {
        if check.losses == 0 || !plan.thinning || check.exposure <= self.value {
            return check.losses > 0;
        }
        let missed = 1.0 - self.value / check.exposure;
        draw::unit(rng) >= libm::pow(missed, f64::from(check.losses))
    }

    /// Lines 4–8 of Algorithm 2, literally. Before the first loss there is no T unless it is given, and N is one.
    fn algorithm_2(&self) -> f64 {
        let grown = self.value + f64::from(self.growths) * f64::from(self.step);
        match self.estimates() {
            Some((target, _)) if target - grown <= 0.0 => self.value,
            _ => grown,
        }
    }

    fn grown(&self, plan: &AstPlan) -> f64 {
        match self.estimates() {
            Some((target, growths)) if self.value < target / plan.alpha => {
                (self.value + growths * f64::from(self.step)).min(target)
            }
            _ => self.value + f64::from(self.step),
        }
    }

    /// Once per lossy check: δ from the loss rate, T and N from the closed forms.
    fn learn(&mut self, plan: &AstPlan, losses: &LossEstimator) {
        if plan.step_per_rate.is_none() && !plan.is_step_cut && !plan.needs_estimates() {
            return;
        }
        let rate = losses.event_rate(plan.prior_exposure, plan.given.burst);
        // A step beyond the mean distance of two losses (ε > 1) is outside the model.
        let step_max = (1.0 / rate).min(plan.ceiling);
        if let Some(step_per_rate) = plan.step_per_rate {
            self.step = (step_per_rate * rate).clamp(STEP_MIN, step_max.max(STEP_MIN)) as f32;
        } else if plan.is_step_cut {
            self.step = plan.step.min(step_max).max(STEP_MIN) as f32;
        }
        if plan.needs_estimates()
            && let Ok(model) = Aimd::new(rate, f64::from(self.step).min(step_max), plan.alpha)
        {
            let estimates = model.estimate();
            self.target = plan.given.target.unwrap_or(estimates.before_decrease as f32);
            self.growths = plan.given.growths.unwrap_or(estimates.growths as f32);
        }
    }
}

/// The default δ is this share of the first interval: 1 s of 10 s. An hour without a loss makes 85 s of them.
const STEP_SHARE: f64 = 0.1;
/// δ before the first loss when it is to be chosen from the loss rate (CONTROL §10), and the least one ever chosen.
const STEP_BEFORE_LOSS: f64 = 0.1;
const STEP_MIN: f64 = 1e-3;
/// Exposure assumed before anything is known, in initial intervals (CONTROL §3.3).
const PRIOR_INTERVALS: f64 = 10.0;
