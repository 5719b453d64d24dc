//! Congestion detection: was this answer late because the broker is busy?
//!
//! Three levels (P19 §IV), each as the paper has it (`-paper`) and repaired:
//! ```text
//! rigorous   d > T_net + (1 + θ)·T_proc            caps the broker's utilisation at θ/(1+θ): only for expensive queries
//! mediate    d > T_net + D_br, announced; repaired: the broker's measured queueing delay q > q_target. The default.
//! light      d > κ·T̃, the running mean; repaired: d > max(3·base, base + 50 ms) with base the windowed minimum
//! slides     as light-paper, or t < t_small: the timeout before this very check was too small (S19)
//! ```
//! The mean-based test flags 37–50 % of healthy rounds and stops seeing a standing overload after some 22 rounds, because
//! the mean follows it; a minimum does neither, but a client that joins a standing queue learns an inflated one. Without
//! the broker's word no client can tell. Everything that is not an answer is congestion at every level.

use core::time::Duration;

use super::config::{HOUR, MILLISECOND};
use super::outcome::Outcome;
use crate::config::{ConfigError, named, number, span};
use crate::hints::Hints;
use crate::measure::{Average, AverageRule, WindowedMinimum};
use crate::time::{Timestamp, seconds};

named! {
    "detector";
    /// How congestion is recognised.
    pub enum DetectorRule {
        /// By the broker's own word about the time in its queue; without it, like `light`.
        #[default]
        Mediate = "mediate",
        /// By queueing beyond a share of the query's own processing time.
        Rigorous = "rigorous",
        /// By response times well above the best seen.
        Light = "light",
        /// By the announced limit `D_br`.
        MediatePaper = "mediate-paper",
        /// Equation (6).
        RigorousPaper = "rigorous-paper",
        /// By response times above κ times the mean: Algorithm 3's own test with κ = 1.
        LightPaper = "light-paper",
        /// The same, or by a timeout that "becomes small": both meanings of a collision in the slides of 2019.
        SlidesPaper = "slides-paper",
    }
}

named! {
    "treatment of denials";
    /// What Algorithm 3 makes of a denial.
    pub enum DenialRule {
        /// A denial is congestion.
        #[default]
        Congestion = "congestion",
        /// A denial is a fast answer, because the paper looks at the duration only (ambiguity A18).
        Fast = "fast",
    }
}

/// Configuration of the congestion detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorConfig {
    /// How congestion is recognised.
    pub rule: DetectorRule,
    /// θ of `rigorous`: permitted queueing as a share of the processing time. 0.01 ..= 0.99.
    pub theta: f64,
    /// κ of `light-paper` and `slides-paper`. 1 ..= 100.
    pub kappa: f64,
    /// How the mean response time is kept.
    pub average: AverageRule,
    /// γ of equation (7). 0 ..= 0.999.
    pub gamma: f64,
    /// `mediate`: queueing up to this is no congestion. 1 ms ..= 1 h.
    pub queue_target: Duration,
    /// `T_net`, the round trip of the network, if it is known. ..= 1 h.
    pub network: Duration,
    /// `T_proc`, if it is known; else the windowed minimum of the response time less `network` stands for it. ..= 1 h.
    pub processing: Option<Duration>,
    /// What a denial is to the paper rules.
    pub denial: DenialRule,
    /// `slides-paper`: a timeout below this is a collision. ..= 1 h. The slides give no number; this is their t_min.
    pub small: Duration,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            rule: DetectorRule::default(),
            theta: 0.9,
            kappa: 1.0,
            average: AverageRule::default(),
            gamma: 0.875,
            queue_target: Duration::from_millis(100),
            network: Duration::ZERO,
            processing: None,
            denial: DenialRule::default(),
            small: Duration::from_millis(100),
        }
    }
}

impl DetectorConfig {
    pub(super) fn build(&self) -> Result<DetectorPlan, ConfigError> {
        Ok(DetectorPlan {
            rule: self.rule,
            theta: number("theta", self.theta, 0.01, 0.99)?,
            kappa: number("kappa", self.kappa, 1.0, 100.0)?,
            average: self.average,
            gamma: number("gamma", self.gamma, 0.0, 0.999)?,
            queue_target: span("queue_target", self.queue_target, MILLISECOND, HOUR)?,
            network: span("t_net", self.network, Duration::ZERO, HOUR)?,
            processing: match self.processing {
                Some(known) => Some(span("t_proc", known, Duration::ZERO, HOUR)?),
                None => None,
            },
            denial: self.denial,
            small: span("t_small", self.small, Duration::ZERO, HOUR)?,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DetectorPlan {
    rule: DetectorRule,
    theta: f64,
    kappa: f64,
    average: AverageRule,
    gamma: f64,
    queue_target: f64,
    network: f64,
    processing: Option<f64>,
    denial: DenialRule,
    small: f64,
}

/// What is known of an attempt beside its outcome. Times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptTerms {
    /// After which it would have been over without an answer.
    pub(super) timeout: f64,
    /// t before it; none if it was the first one.
    pub(super) waited: Option<f64>,
    /// The broker's hints are believed.
    pub(super) obey: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Detector {
    baseline: WindowedMinimum,
    average: Average,
    /// The last `D_br` that the broker announced, seconds; negative before.
    permitted: f32,
}

impl Detector {
    pub(super) const NEW: Self = Self { baseline: WindowedMinimum::EMPTY, average: Average::ZERO, permitted: -1.0 };

    /// Takes the outcome in, and says whether it shows congestion.
    pub(super) fn is_congested(
        &mut self,
        plan: &DetectorPlan,
        now: Timestamp,
        outcome: &Outcome,
        attempt: &AttemptTerms,
    ) -> bool {
        match outcome {
            Outcome::Answered { latency, hints, .. } => {
                let latency = seconds(*latency);
                if let Some(permitted) = hints.permitted {
                    self.permitted = seconds(permitted) as f32;
                }
                self.baseline.on_sample(now, latency);
                self.average.on_sample(plan.average, plan.gamma, latency);
                let hints = attempt.obey.then_some(hints);
                self.is_late(plan, latency, hints) || plan.is_too_small(attempt.waited)
            }
            Outcome::Denied { .. } => !(plan.is_paper() && plan.denial == DenialRule::Fast),
            Outcome::TimedOut => {
                // The papers' mean includes the timeouts, with the time that was waited.
                self.average.on_sample(plan.average, plan.gamma, attempt.timeout);
                true
            }
            Outcome::Failed => true,
        }
    }

    /// Mean response time in seconds, for Algorithm 3's t_max.
    pub(super) fn average(&self) -> f64 {
        self.average.value()
    }

    fn is_late(&self, plan: &DetectorPlan, latency: f64, hints: Option<&Hints>) -> bool {
        let queued = hints.and_then(|hints| hints.queued).map(seconds);
        match (plan.rule, queued) {
            (DetectorRule::Mediate, Some(queued)) => queued > plan.queue_target,
            (DetectorRule::Mediate, None) if self.permitted >= 0.0 && hints.is_some() => {
                self.is_beyond_permitted(plan, latency)
            }
            (DetectorRule::Mediate | DetectorRule::Light, _) => {
                let base = self.baseline.value().unwrap_or(latency);
                latency > (LIGHT_FACTOR * base).max(base + LIGHT_SLACK)
            }
            (DetectorRule::Rigorous, Some(queued)) => queued > plan.theta * (latency - queued - plan.network).max(0.0),
            (DetectorRule::Rigorous | DetectorRule::RigorousPaper, _) => {
                latency > plan.network + (1.0 + plan.theta) * self.processing(plan, latency)
            }
            // Nothing announced, nothing exceeded.
            (DetectorRule::MediatePaper, _) => self.permitted >= 0.0 && self.is_beyond_permitted(plan, latency),
            (DetectorRule::LightPaper | DetectorRule::SlidesPaper, _) => latency > plan.kappa * self.average.value(),
        }
    }

    fn is_beyond_permitted(&self, plan: &DetectorPlan, latency: f64) -> bool {
        latency > f64::from(self.permitted) + plan.network
    }

    fn processing(&self, plan: &DetectorPlan, latency: f64) -> f64 {
        let measured = || (self.baseline.value().unwrap_or(latency) - plan.network).max(0.0);
        plan.processing.unwrap_or_else(measured)
    }
}

impl DetectorPlan {
    fn is_paper(&self) -> bool {
        match self.rule {
            DetectorRule::Mediate | DetectorRule::Rigorous | DetectorRule::Light => false,
            DetectorRule::MediatePaper
            | DetectorRule::RigorousPaper
            | DetectorRule::LightPaper
            | DetectorRule::SlidesPaper => true,
        }
    }

    /// `waited`: t before the check, unless it was the first one.
    fn is_too_small(&self, waited: Option<f64>) -> bool {
        self.rule == DetectorRule::SlidesPaper && waited.is_some_and(|waited| waited < self.small)
    }
}

/// `light`: late is beyond three times the baseline, and never less than 50 ms above it (CONTROL §5).
const LIGHT_FACTOR: f64 = 3.0;
const LIGHT_SLACK: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: AttemptTerms = AttemptTerms { timeout: 2.0, waited: None, obey: true };

    fn late(config: DetectorConfig, baseline_ms: u64, latency_ms: u64, hints: Hints) -> bool {
        let plan = config.build().unwrap();
        let mut detector = Detector::NEW;
        let answered = |millis, hints: Hints| Outcome::Answered {
            latency: Duration::from_millis(millis),
            losses: 0,
            not_modified: false,
            hints,
        };
        let quiet = Hints { queued: Some(Duration::ZERO), ..hints.clone() };
        detector.is_congested(&plan, Timestamp::ZERO, &answered(baseline_ms, quiet), &ATTEMPT);
        detector.is_congested(&plan, Timestamp::ZERO, &answered(latency_ms, hints), &ATTEMPT)
    }

    fn rule(rule: DetectorRule) -> DetectorConfig {
        DetectorConfig { rule, ..DetectorConfig::default() }
    }

    fn queued(millis: u64) -> Hints {
        Hints { queued: Some(Duration::from_millis(millis)), ..Hints::default() }
    }

    /// Just below and just above the threshold of each rule, after one answer of 100 ms that sets the baseline.
    #[test]
    fn each_level_flags_exactly_what_is_beyond_its_threshold() {
        let announced = || Hints { permitted: Some(Duration::from_millis(150)), ..Hints::default() };
        let net = |config| DetectorConfig { network: Duration::from_millis(20), ..config };
        let half = |rule| DetectorConfig { theta: 0.5, ..self::rule(rule) };
        for (what, config, hints, below, above) in [
            ("light: three times the baseline", rule(DetectorRule::Light), Hints::default(), 300, 301),
            ("mediate without the broker's word", rule(DetectorRule::Mediate), Hints::default(), 300, 301),
            ("mediate by the announced limit", net(rule(DetectorRule::Mediate)), announced(), 170, 171),
            ("mediate-paper", net(rule(DetectorRule::MediatePaper)), announced(), 170, 171),
            (
                "rigorous-paper: T_net + (1+θ)·T_proc",
                net(half(DetectorRule::RigorousPaper)),
                Hints::default(),
                140,
                141,
            ),
            ("rigorous without the broker's word", net(half(DetectorRule::Rigorous)), Hints::default(), 140, 141),
            ("light-paper: the mean with this sample", rule(DetectorRule::LightPaper), Hints::default(), 100, 101),
        ] {
            assert!(!late(config, 100, below, hints.clone()), "{what}: {below} ms");
            assert!(late(config, 100, above, hints), "{what}: {above} ms");
        }
    }

    #[test]
    fn the_brokers_measured_delay_decides_where_it_is_given() {
        for (config, below, above) in [
            (rule(DetectorRule::Mediate), 100, 101),
            // Of 600 ms, q are queueing and 600 − q processing: q > 0.5·(600 − q) from 200 ms on.
            (DetectorConfig { theta: 0.5, ..rule(DetectorRule::Rigorous) }, 199, 201),
        ] {
            assert!(!late(config, 100, 600, queued(below)), "{} {below}", config.rule);
            assert!(late(config, 100, 600, queued(above)), "{} {above}", config.rule);
        }
    }

    #[test]
    fn a_light_baseline_allows_50_ms_of_noise() {
        assert!(!late(rule(DetectorRule::Light), 1, 51, Hints::default()));
        assert!(late(rule(DetectorRule::Light), 1, 52, Hints::default()));
    }

    #[test]
    fn mediate_paper_needs_an_announcement() {
        assert!(!late(rule(DetectorRule::MediatePaper), 100, 60_000, Hints::default()));
    }

    #[test]
    fn known_processing_time_replaces_the_baseline() {
        let config = DetectorConfig {
            processing: Some(Duration::from_millis(10)),
            theta: 0.5,
            ..rule(DetectorRule::RigorousPaper)
        };
        assert!(!late(config, 100, 15, Hints::default()));
        assert!(late(config, 100, 16, Hints::default()));
    }

    #[test]
    fn whatever_is_no_answer_is_congestion_but_a_denial_may_count_as_fast() {
        for rule in DetectorRule::ALL {
            for (denial, is_fast_allowed) in [(DenialRule::Congestion, false), (DenialRule::Fast, true)] {
                let plan = DetectorConfig { rule: *rule, denial, ..DetectorConfig::default() }.build().unwrap();
                let mut detector = Detector::NEW;
                let mut judge = |outcome| detector.is_congested(&plan, Timestamp::ZERO, &outcome, &ATTEMPT);
                assert!(judge(Outcome::TimedOut) && judge(Outcome::Failed), "{rule}");
                let is_paper = rule.name().ends_with("-paper");
                assert_eq!(judge(Outcome::denied()), !(is_fast_allowed && is_paper), "{rule} {denial}");
            }
        }
    }

    #[test]
    fn a_timeout_that_became_small_is_a_collision_of_the_slides_only() {
        for rule in DetectorRule::ALL {
            let plan = DetectorConfig { rule: *rule, ..DetectorConfig::default() }.build().unwrap();
            for (waited, is_collision) in [(None, false), (Some(0.1), false), (Some(0.09), true)] {
                let attempt = AttemptTerms { waited, ..ATTEMPT };
                let answer = Outcome::answered(Duration::from_millis(10), 0);
                let mut detector = Detector::NEW;
                let is_congested = detector.is_congested(&plan, Timestamp::ZERO, &answer, &attempt);
                assert_eq!(is_congested, is_collision && *rule == DetectorRule::SlidesPaper, "{rule} {waited:?}");
            }
        }
    }

    #[test]
    fn timeouts_enter_the_mean_and_denials_do_not() {
        let plan = rule(DetectorRule::LightPaper).build().unwrap();
        let mut detector = Detector::NEW;
        detector.is_congested(&plan, Timestamp::ZERO, &Outcome::TimedOut, &ATTEMPT);
        detector.is_congested(&plan, Timestamp::ZERO, &Outcome::denied(), &ATTEMPT);
        assert_eq!(detector.average(), 2.0);
    }
}
