//! What a pacer can be asked to be: the four control levels, every rule by name, and the plan that is made of them.
//!
//! [`PacerConfig::default`] is the practical variant; the combinations that have a name are in `preset`, and every value
//! that can be set by name in `parameter`. [`PacerConfig::build`] checks everything once; the control code only ever sees a [`PacerPlan`].

// A processor without atomic operations (riscv32imc) has one core, and its pacers share their plan within one thread.
#[cfg(not(target_has_atomic = "ptr"))]
pub(super) use alloc::rc::Rc as Arc;
#[cfg(target_has_atomic = "ptr")]
pub(super) use alloc::sync::Arc;
use core::time::Duration;

use super::ast::{AstConfig, AstPlan};
use super::detect::{DetectorConfig, DetectorPlan};
use super::initial::InitialRule;
use super::rbt::{BackOffConfig, BackOffPlan};
use crate::config::{ConfigError, at_most, named, number, span};

named! {
    "control level";
    /// How much of the control a client takes upon itself (P19 §V).
    pub enum Level {
        /// No checks: only notifications.
        None = "none",
        /// Basic: checks at a fixed interval.
        Fixed = "fixed",
        /// Basic: checks at intervals uniform in 0 to twice the mean.
        Random = "random",
        /// Basic: checks at exponential intervals.
        Exponential = "exponential",
        /// AST: the interval follows the losses.
        Adaptive = "adaptive",
        /// AST + RBT: and backs off from congestion.
        #[default]
        Active = "active",
    }
}

named! {
    "start";
    /// When the first check is made.
    pub enum Start {
        /// After a uniform part of the interval, so that clients that start together do not ask together.
        #[default]
        Spread = "spread",
        /// At once, as the papers have it.
        Immediately = "immediately",
    }
}

named! {
    "use of hints";
    /// Whether the broker's hints are obeyed.
    pub enum HintUse {
        /// They are.
        #[default]
        Obey = "obey",
        /// They are not: for reproducing the papers, which have none.
        Ignore = "ignore",
    }
}

/// Configuration of a pacer. The fields are independent, so that experiments can switch one thing at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct PacerConfig {
    /// The control level.
    pub level: Level,
    /// Mean interval of the basic levels, first value of the adaptive timeout. 1 ms ..= 1 day.
    pub interval: Duration,
    /// The adaptive strategy timeout.
    pub ast: AstConfig,
    /// The back-off.
    pub back_off: BackOffConfig,
    /// The congestion detector.
    pub detector: DetectorConfig,
    /// The first back-off of a congestion episode.
    pub initial: InitialRule,
    /// Half width of the jitter on the adaptive timeouts, as a share. 0 ..= 0.99; 0.2 costs 1.3 % of detection delay.
    pub jitter: f64,
    /// When the first check is made.
    pub start: Start,
    /// Whether hints are obeyed.
    pub hints: HintUse,
    /// Time after which a request without an answer is over. 1 ms ..= 1 h. Should exceed the broker's queueing delay
    /// plus the round trip.
    pub request_timeout: Duration,
    /// No delay is ever shorter. 1 ms ..= `delay_max`.
    pub delay_min: Duration,
    /// No delay is ever longer, whatever a hint says. ..= 30 days.
    pub delay_max: Duration,
}

impl Default for PacerConfig {
    fn default() -> Self {
        Self {
            level: Level::default(),
            interval: Duration::from_secs(10),
            ast: AstConfig::default(),
            back_off: BackOffConfig::default(),
            detector: DetectorConfig::default(),
            initial: InitialRule::default(),
            jitter: 0.2,
            start: Start::default(),
            hints: HintUse::default(),
            request_timeout: Duration::from_secs(2),
            delay_min: Duration::from_millis(10),
            delay_max: HOUR,
        }
    }
}

impl PacerConfig {
    /// Checks every field and the relations between them.
    pub fn build(&self) -> Result<Arc<PacerPlan>, ConfigError> {
        let interval = span("interval", self.interval, MILLISECOND, DAY)?;
        let ast = self.ast.build(interval)?;
        let back_off = self.back_off.build()?;
        let delay_max = span("delay_max", self.delay_max, MILLISECOND, DAY * 30)?;
        let delay_min = span("delay_min", self.delay_min, MILLISECOND, DAY * 30)?;
        at_most("delay_min", self.delay_min, "delay_max", self.delay_max)?;
        at_most("delay_min", self.delay_min, "interval", self.interval)?;
        at_most("interval", self.interval, "delay_max", self.delay_max)?;
        Ok(Arc::new(PacerPlan {
            level: self.level,
            interval,
            exact: match self.level {
                Level::Active => back_off.exact(),
                _ => ast.exact(),
            },
            ast,
            back_off,
            detector: self.detector.build()?,
            initial: self.initial,
            jitter: number("jitter", self.jitter, 0.0, 0.99)?,
            start: self.start,
            obey: self.hints == HintUse::Obey,
            request_timeout: span("timeout", self.request_timeout, MILLISECOND, HOUR)?,
            delay_min,
            delay_max,
        }))
    }
}

/// A configuration that has been checked; shared by all pacers made from it. All times in seconds.
#[derive(Debug)]
pub struct PacerPlan {
    pub(super) level: Level,
    pub(super) interval: f64,
    /// A failed check is followed by the paper's plain sum `a + b`, not by a practical spread.
    pub(super) exact: bool,
    pub(super) ast: AstPlan,
    pub(super) back_off: BackOffPlan,
    pub(super) detector: DetectorPlan,
    pub(super) initial: InitialRule,
    pub(super) jitter: f64,
    pub(super) start: Start,
    pub(super) obey: bool,
    pub(super) request_timeout: f64,
    pub(super) delay_min: f64,
    pub(super) delay_max: f64,
}

impl PacerPlan {
    /// Whether the papers' sum a + b is kept to the letter: then there are regular checks only, none for a change that was
    /// announced or a number that is missing.
    pub fn is_exact(&self) -> bool {
        self.exact
    }
}

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_wrong_value_is_named_with_its_range() {
        let wrong = |change: fn(&mut PacerConfig)| {
            let mut config = PacerConfig::default();
            change(&mut config);
            config.build().unwrap_err().to_string()
        };
        assert_eq!(wrong(|c| c.jitter = f64::NAN), "jitter = NaN is not allowed: expected a number in 0..=0.99");
        assert_eq!(
            wrong(|c| c.interval = Duration::ZERO),
            "interval = 0ns is not allowed: expected a duration in 1ms..=86400s"
        );
        assert_eq!(wrong(|c| c.ast.alpha = 1.0), "alpha = 1 is not allowed: expected a number in 1.1..=8");
        assert_eq!(
            wrong(|c| c.delay_max = Duration::from_millis(5)),
            "delay_min = 10ms is not allowed: expected at most delay_max = 5ms"
        );
        assert_eq!(
            wrong(|c| c.delay_max = Duration::ZERO),
            "delay_max = 0ns is not allowed: expected a duration in 1ms..=2592000s"
        );
        assert_eq!(
            wrong(|c| c.ast.floor = Duration::from_secs(7200)),
            "floor = 7200s is not allowed: expected at most ceiling = 3600s"
        );
        assert_eq!(wrong(|c| c.detector.theta = 1.0), "theta = 1 is not allowed: expected a number in 0.01..=0.99");
    }
}
