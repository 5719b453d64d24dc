//! How long until the next check: the client's side of the control, t = AST + RBT.
//!
//! A client holds one [`Pacer`] per standing query. The contract in one sentence: *wait the first delay, say that you ask
//! and ask, report the outcome, wait what it says*. A pacer owns no clock, no timer and no randomness; it is told what happened and answers
//! with a duration. It does not know what is asked, of whom, or over which protocol. At most one request of a pacer is
//! outstanding, and the next delay counts from the completion of the previous attempt (Algorithm 1).
//!
//! - getters: [`Pacer::snapshot`], [`Pacer::want`]
//! - told: [`Pacer::on_sent`], [`Pacer::on_outcome`], [`Pacer::on_late_answer`], [`Pacer::on_push_hint`],
//!   [`Pacer::on_settled`], [`Pacer::on_user_waiting`]
//!
//! The parts, one file each: `ast` follows the losses, `rbt` backs off, `detect` says whether an answer was late,
//! `initial` finds the first back-off of an episode.

mod ast;
mod config;
mod detect;
mod ignored;
mod initial;
mod outcome;
mod parameter;
mod preset;
mod rbt;
#[cfg(test)]
mod tests;

use core::time::Duration;

use rand_core::Rng;

pub use crate::measure::AverageRule;
pub use ast::{AstConfig, AstRule, AstStep, GivenEstimates, Growth};
pub use config::{HintUse, Level, PacerConfig, PacerPlan, Start};
pub use detect::{DenialRule, DetectorConfig, DetectorRule};
pub use initial::InitialRule;
pub use outcome::Outcome;
pub use parameter::Parameter;
pub use preset::Preset;
pub use rbt::{BackOffConfig, Noise, RbtRule};

use crate::draw;
use crate::hints::Hints;
use crate::measure::LossEstimator;
use crate::time::{Timestamp, duration, seconds};
use ast::{Ast, AstPlan, CheckResult};
use config::Arc;
use detect::{AttemptTerms, Detector};
use initial::{Past, Situation};
use rbt::BackOffState;

/// The pacing state of one standing query. See the [module](self) for the contract.
///
/// Every delay that it returns is finite and within the configured `delay_min ..= delay_max`, for any sequence of
/// outcomes, any hint and any clock. `None` means: level `none`, do not check.
#[derive(Clone, Debug)]
pub struct Pacer {
    plan: Arc<PacerPlan>,
    state: PacerState,
}

/// Everything but the plan, so that a method can borrow both.
#[derive(Clone, Debug)]
struct PacerState {
    ast: Ast,
    back_off: BackOffState,
    detector: Detector,
    past: Past,
    losses: LossEstimator,
    /// When the last check succeeded.
    answered_at: Option<Timestamp>,
    /// The delay before the attempt now under way or waited for, seconds.
    waited: f32,
    /// Mean of AST with weight 1/8, seconds: what the client tells the broker it wants.
    want: f32,
    /// W of a change announced while a request was outstanding: fetch again, within this many seconds.
    fetch_again: Option<f32>,
    /// Failed attempts of the current urgent fetch, saturating.
    failures: u8,
    urgency: Urgency,
    phase: PacerPhase,
    congestion: Congestion,
}

/// Somebody waits for the answer (a change was announced, a user looks at the screen), or nobody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    Periodic,
    Urgent,
    /// Urgent, and the fetch of an announced change is planned beside the regular check.
    FetchPlanned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacerPhase {
    Waiting,
    Outstanding,
}

/// An episode lasts from the first congested outcome to the first answer that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Congestion {
    Clear,
    Episode,
}

/// The state of a pacer in the papers' quantities, for metrics, persistence and tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacerSnapshot {
    /// The control level.
    pub level: Level,
    /// AST.
    pub ast: Duration,
    /// RBT.
    pub rbt: Duration,
    /// σ = 1 + RBT/AST with the practical back-off; 1 with the papers'.
    pub stretch: f64,
    /// In a congestion episode.
    pub congested: bool,
    /// Somebody is waiting for the answer.
    pub urgent: bool,
    /// Failed attempts of the current urgent fetch.
    pub failures: u8,
    /// The interval that the client declares to the broker.
    pub want: Duration,
    /// Λ̂: estimated losses per second.
    pub loss_rate: f64,
    /// K̂: estimated losses per lossy check.
    pub burst: f64,
    /// T̂ of Algorithm 2, if the rule uses it and a loss has been seen.
    pub before_decrease: Option<Duration>,
    /// N̂ of Algorithm 2, likewise.
    pub growths: Option<f64>,
}

impl Pacer {
    /// A pacer that knows nothing yet.
    pub fn new(plan: &Arc<PacerPlan>) -> Self {
        let ast = Ast::new(&plan.ast, plan.interval);
        let state = PacerState {
            ast,
            back_off: BackOffState::new(&plan.back_off),
            detector: Detector::NEW,
            past: Past::NONE,
            losses: LossEstimator::default(),
            answered_at: None,
            waited: 0.0,
            want: ast.value() as f32,
            fetch_again: None,
            failures: 0,
            urgency: Urgency::Periodic,
            phase: PacerPhase::Waiting,
            congestion: Congestion::Clear,
        };
        Self { plan: Arc::clone(plan), state }
    }

    /// A pacer that goes on from a saved snapshot: its AST and its back-off; what is out of range is forced into it.
    pub fn resume(plan: &Arc<PacerPlan>, saved: &PacerSnapshot) -> Self {
        let mut pacer = Self::new(plan);
        pacer.state.ast = Ast::new(&plan.ast, seconds(saved.ast));
        pacer.state.want = pacer.state.ast.value() as f32;
        pacer.state.back_off = BackOffState::resumed(&plan.back_off, saved.stretch, seconds(saved.rbt));
        pacer
    }

    /// The delay before the first attempt: a uniform part of the interval, so that nobody starts in step.
    pub fn first_delay<R: Rng + ?Sized>(&mut self, rng: &mut R) -> Option<Duration> {
        let delay = match self.plan.start {
            Start::Immediately => 0.0,
            Start::Spread => draw::unit(rng) * self.state.interval(&self.plan),
        };
        self.state.promise(&self.plan, delay)
    }

    /// A request is being sent. Without this a change announced during the request would be fetched beside it.
    pub fn on_sent(&mut self) {
        self.state.phase = PacerPhase::Outstanding;
        self.state.forget_plan();
        // Whatever was announced before is asked for now.
        self.state.fetch_again = None;
    }

    /// The attempt is over; the answer is the delay until the next one.
    pub fn on_outcome<R: Rng + ?Sized>(&mut self, now: Timestamp, outcome: &Outcome, rng: &mut R) -> Option<Duration> {
        self.state.on_outcome(&self.plan, now, outcome, rng)
    }

    /// The answer of a request that was already reported as timed out. Its losses are counted and its data is good, but
    /// it changes neither AST nor back-off: that it was late has been told before.
    pub fn on_late_answer(&mut self, now: Timestamp, losses: u32) {
        self.state.count_losses(now, losses);
    }

    /// A notification says that something changed: fetch it after the returned delay, which is uniform up to `spread`
    /// (the broker's `pace-spread-ms`), or up to the smaller of AST and 1 s. The regular check stays planned: whichever
    /// comes first is made, and its outcome says when the next one is due. `None` if a fetch is planned already or the
    /// level is `none`; a change announced during a request is fetched after that request's outcome.
    pub fn on_push_hint<R: Rng + ?Sized>(&mut self, spread: Option<Duration>, rng: &mut R) -> Option<Duration> {
        self.state.on_push_hint(&self.plan, spread, rng)
    }

    /// The announced change arrived by other means: drop the planned fetch. The regular check is still due.
    pub fn on_settled(&mut self) {
        self.state.relax();
    }

    /// Somebody waits for the next answer: a first load, a button. Failures are then retried soon, with full jitter,
    /// instead of at the next regular check.
    pub fn on_user_waiting(&mut self) {
        self.state.urgency = Urgency::Urgent;
    }

    /// The interval to declare to the broker (`pace-want-ms`).
    pub fn want(&self) -> Duration {
        duration(f64::from(self.state.want))
    }

    /// σ: by how much the broker, or its silence, has the client wait longer than AST; 1 with the papers' back-off.
    pub fn stretch(&self) -> f64 {
        self.state.back_off.stretch()
    }

    /// The state in the papers' quantities.
    pub fn snapshot(&self) -> PacerSnapshot {
        let (plan, state) = (&self.plan, &self.state);
        let estimates = state.ast.estimates();
        PacerSnapshot {
            level: plan.level,
            ast: duration(state.ast.value()),
            rbt: duration(state.back_off.back_off(state.ast.value())),
            stretch: state.back_off.stretch(),
            congested: state.congestion == Congestion::Episode,
            urgent: state.urgency != Urgency::Periodic,
            failures: state.failures,
            want: self.want(),
            loss_rate: state.losses.loss_rate(plan.ast.prior_exposure),
            burst: state.losses.burst(),
            before_decrease: estimates.map(|(target, _)| duration(target)),
            growths: estimates.map(|(_, growths)| growths),
        }
    }
}

impl PacerState {
    fn on_outcome<R: Rng + ?Sized>(
        &mut self,
        plan: &PacerPlan,
        now: Timestamp,
        outcome: &Outcome,
        rng: &mut R,
    ) -> Option<Duration> {
        self.phase = PacerPhase::Waiting;
        self.forget_plan();
        let waited = self.answered_at.map(|_| f64::from(self.waited));
        let attempt = AttemptTerms { timeout: plan.request_timeout, waited, obey: plan.obey };
        let congested = self.detector.is_congested(&plan.detector, now, outcome, &attempt);
        if let Outcome::Answered { losses, not_modified, .. } = outcome {
            let losses = if *not_modified { 0 } else { *losses };
            let exposure = self.count_losses(now, losses);
            self.ast.on_check(&plan.ast, &CheckResult { losses, exposure, congested }, &self.losses, rng);
            self.want += (self.ast.value() as f32 - self.want) * WANT_WEIGHT;
        }
        let hints = if plan.obey { outcome.hints() } else { None };
        self.move_back_off(plan, now, congested, hints, rng);
        self.past.on_check(self.waited, congested);
        let delay = match outcome {
            Outcome::Answered { .. } => self.delay_after_answer(plan, rng),
            Outcome::Denied { .. } | Outcome::TimedOut | Outcome::Failed => self.delay_after_failure(plan, hints, rng),
        };
        self.promise(plan, delay)
    }

    /// Takes the losses of a successful check into the estimate; the answer is its exposure in seconds.
    fn count_losses(&mut self, now: Timestamp, losses: u32) -> f64 {
        // Before the first answer there is nothing to count from; one interval is the exposure that the map expects.
        let exposure = self.answered_at.map_or(self.ast.value(), |before| seconds(now.since(before)));
        self.answered_at = Some(now);
        self.losses.on_check(exposure, losses);
        exposure
    }

    fn move_back_off<R: Rng + ?Sized>(
        &mut self,
        plan: &PacerPlan,
        now: Timestamp,
        congested: bool,
        hints: Option<&Hints>,
        rng: &mut R,
    ) {
        let before = self.congestion;
        self.congestion = if congested { Congestion::Episode } else { Congestion::Clear };
        if !congested && before == Congestion::Episode {
            self.past.on_recovery(self.back_off.back_off(self.ast.value()), now);
        }
        let advice = hints.and_then(|hints| hints.stretch).filter(|_| !plan.back_off.exact());
        let has_slot = hints.is_some_and(|hints| hints.ticket.is_some() && hints.retry_after.is_some());
        // A broker that has everybody wait longer knows by how much: who adds to that makes all of them swing, and gets less
        // than its share. One that says all is well, and is late or refuses, leaves it to the client.
        let is_led = advice.is_some_and(|stretch| stretch > 1.0);
        if let Some(stretch) = advice {
            self.back_off.on_advice(&plan.back_off, stretch, congested);
        }
        if !congested {
            if advice.is_none() {
                self.back_off.on_clear(&plan.back_off);
            }
        } else if is_led || (has_slot && advice.is_some()) {
            // The broker has said by how much and until when: nothing is left to guess.
        } else if self.urgency == Urgency::Periodic || self.failures == 0 {
            // The retries of an urgent fetch back off by themselves; only the first failure slows the periodic checks.
            let first = (before == Congestion::Clear)
                .then(|| {
                    let situation = Situation { now, interval: self.waited, ast: self.ast.value(), hints };
                    self.past.first_back_off(plan.initial, &plan.back_off, &situation, rng)
                })
                .flatten();
            let average = self.detector.average();
            self.back_off.on_congestion(&plan.back_off, first, self.ast.value(), average, rng);
        }
    }

    fn delay_after_answer<R: Rng + ?Sized>(&mut self, plan: &PacerPlan, rng: &mut R) -> f64 {
        let fetch_again = self.fetch_again;
        self.relax();
        if let Some(spread) = fetch_again {
            self.urgency = Urgency::Urgent;
            return draw::unit(rng) * f64::from(spread);
        }
        self.regular_delay(plan, plan.jitter, rng)
    }

    fn delay_after_failure<R: Rng + ?Sized>(&mut self, plan: &PacerPlan, hints: Option<&Hints>, rng: &mut R) -> f64 {
        let retry_after = hints.and_then(|hints| hints.retry_after).map(seconds);
        if let (Some(slot), Some(_)) = (retry_after, hints.and_then(|hints| hints.ticket)) {
            // Slots are distinct already; a jitter would only miss them.
            return slot;
        }
        if self.fetch_again.take().is_some() {
            // The change announced during the request has not been fetched by it.
            self.urgency = Urgency::Urgent;
        }
        if self.urgency == Urgency::Urgent && !plan.exact {
            self.failures = self.failures.saturating_add(1).min(DOUBLINGS_MAX);
            let window = (plan.back_off.minimum * libm::ldexp(1.0, self.failures.into())).min(plan.back_off.cap);
            return retry_after.unwrap_or(0.0) + draw::unit(rng) * window;
        }
        // No fast retry of a periodic check: the next regular one is the retry.
        let spread = if plan.exact { plan.jitter } else { FAILURE_JITTER };
        let is_stretched = plan.level == Level::Active && !plan.exact;
        let least = if is_stretched { (1.0 - spread) * self.interval_of(plan, self.ast.value()) } else { 0.0 };
        self.regular_delay(plan, spread, rng).max(retry_after.unwrap_or(0.0)).max(least)
    }

    /// The interval of the level, with its randomness.
    fn regular_delay<R: Rng + ?Sized>(&self, plan: &PacerPlan, jitter: f64, rng: &mut R) -> f64 {
        let interval = self.interval(plan);
        match plan.level {
            Level::None | Level::Fixed => interval,
            Level::Random => draw::unit(rng) * 2.0 * interval,
            Level::Exponential => draw::exponential(rng, interval),
            Level::Adaptive | Level::Active if jitter == 0.0 => interval,
            Level::Adaptive | Level::Active => interval * draw::uniform(rng, 1.0 - jitter, 1.0 + jitter),
        }
    }

    /// The mean interval of the level, seconds: t0, AST, or AST + RBT.
    fn interval(&self, plan: &PacerPlan) -> f64 {
        self.interval_of(plan, self.stretched(&plan.ast))
    }

    /// The same, if this is stretched.
    fn interval_of(&self, plan: &PacerPlan, stretched: f64) -> f64 {
        match plan.level {
            Level::None | Level::Fixed | Level::Random | Level::Exponential => plan.interval,
            Level::Adaptive => self.ast.value(),
            Level::Active if plan.back_off.exact() => self.ast.value() + self.back_off.back_off(self.ast.value()),
            Level::Active => self.back_off.stretch() * stretched,
        }
    }

    /// What is stretched: AST; while everybody has to wait longer its mean, because an interval that fluctuates leaves a copy
    /// stale for longer than one that does not (E[t²]/E[t]² = 1 + cv²).
    fn stretched(&self, plan: &AstPlan) -> f64 {
        if plan.smoothing && self.back_off.stretch() > 1.0 { f64::from(self.want) } else { self.ast.value() }
    }

    fn on_push_hint<R: Rng + ?Sized>(
        &mut self,
        plan: &PacerPlan,
        spread: Option<Duration>,
        rng: &mut R,
    ) -> Option<Duration> {
        let told = if plan.obey { spread.map(seconds) } else { None };
        let spread = told.unwrap_or_else(|| self.ast.value().min(SPREAD_SECS)).min(plan.delay_max);
        if self.phase == PacerPhase::Outstanding {
            self.fetch_again = Some(spread as f32);
            return None;
        }
        if self.urgency == Urgency::FetchPlanned {
            return None;
        }
        self.urgency = Urgency::FetchPlanned;
        self.promise(plan, draw::unit(rng) * spread)
    }

    /// An attempt is made: what was planned beside the regular check is done by it.
    fn forget_plan(&mut self) {
        if self.urgency == Urgency::FetchPlanned {
            self.urgency = Urgency::Urgent;
        }
    }

    fn relax(&mut self) {
        self.urgency = Urgency::Periodic;
        self.failures = 0;
        self.fetch_again = None;
    }

    /// The one gate through which every delay leaves.
    fn promise(&mut self, plan: &PacerPlan, delay: f64) -> Option<Duration> {
        if plan.level == Level::None {
            return None;
        }
        let delay = delay.max(plan.delay_min).min(plan.delay_max);
        self.waited = delay as f32;
        Some(duration(delay))
    }
}

/// Weight of a new AST in the declared interval (CONTROL §8.5).
const WANT_WEIGHT: f32 = 1.0 / 8.0;
/// A failed periodic check is repeated after σ·a·U(½, 3/2) (CONTROL §4.2).
const FAILURE_JITTER: f64 = 0.5;
/// W without a word from the broker, seconds.
const SPREAD_SECS: f64 = 1.0;
/// 2^n is counted up to here; t_cap is reached long before.
const DOUBLINGS_MAX: u8 = 30;
