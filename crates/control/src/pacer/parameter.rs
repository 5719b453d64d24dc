//! Every quantity of a pacer that can be set by name: the papers' symbols, and what they leave open.
//!
//! The one table of these names, for command lines, scenarios and whoever reads settings from a text. [`PacerConfig::set`]
//! reads a value; whether it is in range is said by [`PacerConfig::build`], with the field, the value and the range.

use alloc::format;
use alloc::string::String;
use core::str::FromStr;
use core::time::Duration;

use super::ast::AstStep;
use super::config::PacerConfig;
use crate::config::{ConfigError, GIVEN_CHARS_MAX, UnknownName, named};
use crate::time::parse_time;

named! {
    "parameter";
    /// A quantity that can be set by name.
    pub enum Parameter {
        /// α.
        #[default]
        Alpha = "alpha",
        /// δ, a constant.
        Delta = "delta",
        /// D*: δ follows the loss rate so that a loss is found after this time.
        DetectionDelay = "detection_delay",
        /// T of Algorithm 2.
        BeforeDecrease = "T",
        /// N of Algorithm 2.
        Growths = "N",
        /// K of Algorithm 2.
        Burst = "K",
        /// The rule of AST.
        Ast = "ast",
        /// Least AST.
        Floor = "floor",
        /// Greatest AST.
        Ceiling = "ceiling",
        /// β.
        Beta = "beta",
        /// `t_min`.
        Minimum = "t_min",
        /// `t_max`.
        Maximum = "t_max",
        /// n of S19.
        Rounds = "rounds",
        /// The rule of RBT.
        Rbt = "rbt",
        /// ε.
        Noise = "noise",
        /// The detector.
        Detector = "detector",
        /// θ.
        Theta = "theta",
        /// κ.
        Kappa = "kappa",
        /// γ.
        Gamma = "gamma",
        /// How the mean response time is kept.
        Average = "average",
        /// `T_net`.
        Network = "t_net",
        /// `T_proc`.
        Processing = "t_proc",
        /// `t_small` of S19.
        Small = "t_small",
        /// The limit of queueing of `mediate`.
        QueueTarget = "queue_target",
        /// What a denial is.
        Denial = "denial",
        /// The first back-off.
        Initial = "initial",
        /// t0, and the first AST.
        Interval = "interval",
        /// Jitter of the practical levels.
        Jitter = "jitter",
        /// When the first check is made.
        Start = "start",
        /// Whether hints are obeyed.
        Hints = "hints",
        /// How long an answer is awaited.
        Timeout = "timeout",
    }
}

impl Parameter {
    /// What it is, in a line, with the range that is allowed.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Alpha => "α: a loss divides AST by it, 1.1 to 8",
            Self::Delta => "δ: without a loss AST grows by it, 1us to 1h",
            Self::DetectionDelay => "instead of a constant δ: find a loss after this time, 1ms to 1h",
            Self::BeforeDecrease => "T of Algorithm 2, 1ms to 30d; else computed from the losses",
            Self::Growths => "N of Algorithm 2, 0.01 to 1e6; else computed",
            Self::Burst => "K, losses of a check that finds any, 1 to 1e6; else measured",
            Self::Ast => "practical, equation3 or algorithm2",
            Self::Floor => "AST is never shorter, 1ms to ceiling",
            Self::Ceiling => "AST is never longer, up to 30d",
            Self::Beta => "β: a collision multiplies RBT by it, 1.01 to 16",
            Self::Minimum => "RBT starts from here, 1ms to t_max",
            Self::Maximum => "RBT is never longer, up to 1d",
            Self::Rounds => "n of the slides: RBT is at most n mean response times, 1 to 1000",
            Self::Rbt => "stretch, p18, p19 or s19",
            Self::Noise => "ε of Algorithm 3: normal or off",
            Self::Detector => "mediate, rigorous, light, with -paper as printed, or slides-paper",
            Self::Theta => "θ of rigorous (β of equation 6), 0.01 to 0.99",
            Self::Kappa => "κ of light-paper, 1 to 100",
            Self::Gamma => "γ of equation (7), 0 to 0.999, with average = ewma",
            Self::Average => "cumulative or ewma",
            Self::Network => "T_net, up to 1h",
            Self::Processing => "T_proc, up to 1h; else measured",
            Self::Small => "slides-paper: a shorter t is a collision, up to 1h",
            Self::QueueTarget => "mediate: queueing up to this is no congestion, 1ms to 1h",
            Self::Denial => "congestion or fast",
            Self::Initial => "auto, history, memory, advice or minimum",
            Self::Interval => "t of the basic levels, first AST of the others, 1ms to 1d",
            Self::Jitter => "share of the interval, 0 to 0.99",
            Self::Start => "spread or immediately",
            Self::Hints => "obey or ignore",
            Self::Timeout => "how long an answer is awaited, 1ms to 1h",
        }
    }
}

impl PacerConfig {
    /// Sets one value from its text: a number, a time such as 500ms, 2s or 1m, or a name.
    pub fn set(&mut self, parameter: Parameter, text: &str) -> Result<(), ConfigError> {
        let field = parameter.name();
        let (ast, back_off, detector) = (&mut self.ast, &mut self.back_off, &mut self.detector);
        match parameter {
            Parameter::Alpha => ast.alpha = number(field, text)?,
            Parameter::Delta => ast.step = AstStep::Fixed(time(field, text)?),
            Parameter::DetectionDelay => ast.step = AstStep::DetectionDelay(time(field, text)?),
            Parameter::BeforeDecrease => ast.given.before_decrease = Some(time(field, text)?),
            Parameter::Growths => ast.given.growths = Some(number(field, text)?),
            Parameter::Burst => ast.given.burst = Some(number(field, text)?),
            Parameter::Ast => ast.rule = name(field, text)?,
            Parameter::Floor => ast.floor = time(field, text)?,
            Parameter::Ceiling => ast.ceiling = time(field, text)?,
            Parameter::Beta => back_off.beta = number(field, text)?,
            Parameter::Minimum => back_off.minimum = time(field, text)?,
            Parameter::Maximum => back_off.cap = time(field, text)?,
            Parameter::Rounds => back_off.rounds = whole(field, text)?,
            Parameter::Rbt => back_off.rule = name(field, text)?,
            Parameter::Noise => back_off.noise = name(field, text)?,
            Parameter::Detector => detector.rule = name(field, text)?,
            Parameter::Theta => detector.theta = number(field, text)?,
            Parameter::Kappa => detector.kappa = number(field, text)?,
            Parameter::Gamma => detector.gamma = number(field, text)?,
            Parameter::Average => detector.average = name(field, text)?,
            Parameter::Network => detector.network = time(field, text)?,
            Parameter::Processing => detector.processing = Some(time(field, text)?),
            Parameter::Small => detector.small = time(field, text)?,
            Parameter::QueueTarget => detector.queue_target = time(field, text)?,
            Parameter::Denial => detector.denial = name(field, text)?,
            Parameter::Initial => self.initial = name(field, text)?,
            Parameter::Interval => self.interval = time(field, text)?,
            Parameter::Jitter => self.jitter = number(field, text)?,
            Parameter::Start => self.start = name(field, text)?,
            Parameter::Hints => self.hints = name(field, text)?,
            Parameter::Timeout => self.request_timeout = time(field, text)?,
        }
        Ok(())
    }
}

fn wrong(field: &'static str, text: &str, allowed: impl Into<String>) -> ConfigError {
    ConfigError { field, value: text.chars().take(GIVEN_CHARS_MAX).collect(), allowed: allowed.into() }
}

fn number(field: &'static str, text: &str) -> Result<f64, ConfigError> {
    text.trim().parse().map_err(|_| wrong(field, text, "a number"))
}

fn whole(field: &'static str, text: &str) -> Result<u32, ConfigError> {
    text.trim().parse().map_err(|_| wrong(field, text, "a whole number"))
}

fn name<T: FromStr<Err = UnknownName>>(field: &'static str, text: &str) -> Result<T, ConfigError> {
    let allowed = |error: UnknownName| format!("one of {}", error.allowed.join(", "));
    text.trim().parse().map_err(|error| wrong(field, text, allowed(error)))
}

fn time(field: &'static str, text: &str) -> Result<Duration, ConfigError> {
    parse_time(text).ok_or_else(|| wrong(field, text, "a time such as 500ms, 2s or 1m"))
}

#[cfg(test)]
mod tests {
    use super::super::{AstRule, Preset, RbtRule};
    use super::*;
    use alloc::string::ToString;

    fn set(name: &str, value: &str) -> Result<PacerConfig, ConfigError> {
        let mut config = PacerConfig::from(Preset::Algorithm1P18);
        config.set(name.parse().unwrap(), value)?;
        config.build().map(|_| config)
    }

    #[test]
    fn every_symbol_of_the_papers_is_set_by_its_name() {
        let ms = Duration::from_millis;
        let config = |name, value| set(name, value).unwrap();
        assert_eq!(config("alpha", "1.5").ast.alpha, 1.5);
        assert_eq!(config("delta", "250ms").ast.step, AstStep::Fixed(ms(250)));
        assert_eq!(config("T", "40").ast.given.before_decrease, Some(ms(40_000)));
        assert_eq!(config("N", "3").ast.given.growths, Some(3.0));
        assert_eq!(config("K", "2").ast.given.burst, Some(2.0));
        assert_eq!(config("beta", "3").back_off.beta, 3.0);
        assert_eq!(
            (config("t_min", "0.2s").back_off.minimum, config("t_max", "2m").back_off.cap),
            (ms(200), ms(120_000))
        );
        let detector = |name, value| config(name, value).detector;
        assert_eq!((detector("theta", "0.5").theta, detector("kappa", "2").kappa), (0.5, 2.0));
        assert_eq!(detector("gamma", "0.9").gamma, 0.9);
        assert_eq!(detector("t_net", "20ms").network, ms(20));
        assert_eq!(detector("t_proc", "5ms").processing, Some(ms(5)));
        assert_eq!(config("ast", "equation3").ast.rule, AstRule::Equation3);
        assert_eq!(config("rbt", "s19").back_off.rule, RbtRule::S19);
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_field_value_and_range() {
        for (name, value, told) in [
            ("alpha", "1", "alpha = 1 is not allowed: expected a number in 1.1..=8"),
            ("alpha", "two", "alpha = two is not allowed: expected a number"),
            ("delta", "2h", "delta = 7200s is not allowed: expected a duration in 1µs..=3600s"),
            ("delta", "-1s", "delta = -1s is not allowed: expected a time such as 500ms, 2s or 1m"),
            ("T", "0", "T = 0ns is not allowed: expected a duration in 1ms..=2592000s"),
            ("N", "0", "N = 0 is not allowed: expected a number in 0.01..=1000000"),
            ("K", "0.5", "K = 0.5 is not allowed: expected a number in 1..=1000000"),
            ("beta", "NaN", "beta = NaN is not allowed: expected a number in 1.01..=16"),
            ("t_min", "2m", "t_min = 120s is not allowed: expected at most t_max = 60s"),
            ("t_max", "25h", "t_max = 90000s is not allowed: expected a duration in 1ms..=86400s"),
            ("theta", "1", "theta = 1 is not allowed: expected a number in 0.01..=0.99"),
            ("kappa", "0", "kappa = 0 is not allowed: expected a number in 1..=100"),
            ("gamma", "1", "gamma = 1 is not allowed: expected a number in 0..=0.999"),
            ("t_net", "61m", "t_net = 3660s is not allowed: expected a duration in 0ns..=3600s"),
            ("t_proc", "61m", "t_proc = 3660s is not allowed: expected a duration in 0ns..=3600s"),
            ("t_small", "2h", "t_small = 7200s is not allowed: expected a duration in 0ns..=3600s"),
            ("rounds", "0", "rounds = 0 is not allowed: expected a whole number in 1..=1000"),
        ] {
            assert_eq!(set(name, value).unwrap_err().to_string(), told);
        }
        let error = set("rbt", "p20").unwrap_err().to_string();
        assert_eq!(error, "rbt = p20 is not allowed: expected one of stretch, p18, p19, s19");
    }

    #[test]
    fn every_name_has_a_line_and_takes_no_nonsense() {
        for parameter in Parameter::ALL {
            assert!(!parameter.about().is_empty());
            assert!(PacerConfig::default().set(*parameter, "?!").is_err(), "{parameter}");
        }
    }
}
