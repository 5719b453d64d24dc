//! Combinations of the pacer's rules that have a name: the practical one of each level, and the papers' own.
//!
//! The one table of these names. `tidegate kp`, the SDK, the laboratory and the manual all read it; none of them has a name
//! of its own. What a preset leaves open is set by [`Parameter`](super::Parameter).

use core::time::Duration;

use super::ast::{AstConfig, AstRule, AstStep};
use super::config::{HintUse, Level, PacerConfig, Start};
use super::detect::{DetectorConfig, DetectorRule};
use super::initial::InitialRule;
use super::rbt::{BackOffConfig, RbtRule};
use crate::config::named;

named! {
    "pacer";
    /// Named combinations: the practical one of each level, and the papers' variants.
    pub enum Preset {
        /// Level 0.
        None = "none",
        /// Level 1, deterministic.
        Fixed = "fixed",
        /// Level 1, uniform.
        Random = "random",
        /// Level 1, exponential.
        Exponential = "exponential",
        /// Level 2, practical: exposure normalisation and congestion gate.
        Adaptive = "adaptive",
        /// Level 3, practical: and stretch. The default.
        #[default]
        Active = "active",
        /// Level 2, equation (3).
        AdaptiveEquation3 = "adaptive-equation3",
        /// Level 2, Algorithm 2 with the closed forms of T and N.
        AdaptiveAlgorithm2 = "adaptive-algorithm2",
        /// Level 3, equation (3) + Algorithm 3, t_max = 60 s (P18).
        ActiveP18 = "active-p18",
        /// Level 3, equation (3) + Algorithm 3, t_max = 5 mean response times (P19).
        ActiveP19 = "active-p19",
        /// Level 3, equation (3) + Algorithm 3, t_max = n mean response times, and a timeout that became too small is a
        /// collision, too (S19).
        ActiveS19 = "active-s19",
        /// Level 3, Algorithm 1 as printed: Algorithm 2 + Algorithm 3, t_max = 60 s (P18).
        Algorithm1P18 = "algorithm1-p18",
        /// Level 3, Algorithm 1 as printed: Algorithm 2 + Algorithm 3, t_max = 5 mean response times (P19).
        Algorithm1P19 = "algorithm1-p19",
    }
}

impl From<Level> for Preset {
    fn from(level: Level) -> Self {
        match level {
            Level::None => Self::None,
            Level::Fixed => Self::Fixed,
            Level::Random => Self::Random,
            Level::Exponential => Self::Exponential,
            Level::Adaptive => Self::Adaptive,
            Level::Active => Self::Active,
        }
    }
}

impl Preset {
    /// What it is for, in a line: for whoever has to choose.
    pub const fn about(self) -> &'static str {
        match self {
            Self::None => "no checks, notifications only: what is lost stays lost until the next one",
            Self::Fixed => "a check every interval",
            Self::Random => "uniform in 0 to twice the interval: clients do not stay in step",
            Self::Exponential => "exponential intervals: the same, without memory",
            Self::Adaptive => "AST: the interval follows the losses",
            Self::Active => "AST, stretched while the broker is congested: the default",
            Self::AdaptiveEquation3 => "the papers' AST: equation (3)",
            Self::AdaptiveAlgorithm2 => "the papers' AST: Algorithm 2, with T and N",
            Self::ActiveP18 => "the papers' AST + RBT: (3) and Algorithm 3, t_max 60 s",
            Self::ActiveP19 => "the same, t_max 5 mean response times",
            Self::ActiveS19 => "the same, t_max n of them, and a t too small is a collision",
            Self::Algorithm1P18 => "Algorithm 1 as printed: Algorithms 2 and 3, t_max 60 s",
            Self::Algorithm1P19 => "Algorithm 1 as printed, t_max 5 mean response times",
        }
    }
}

impl From<Preset> for PacerConfig {
    fn from(preset: Preset) -> Self {
        let practical = |level| Self { level, ..Self::default() };
        match preset {
            Preset::None => practical(Level::None),
            Preset::Fixed => practical(Level::Fixed),
            Preset::Random => practical(Level::Random),
            Preset::Exponential => practical(Level::Exponential),
            Preset::Adaptive => practical(Level::Adaptive),
            Preset::Active => practical(Level::Active),
            Preset::AdaptiveEquation3 => Self::paper(Level::Adaptive, AstRule::Equation3, RbtRule::P19),
            Preset::AdaptiveAlgorithm2 => Self::paper(Level::Adaptive, AstRule::Algorithm2, RbtRule::P19),
            Preset::ActiveP18 => Self::paper(Level::Active, AstRule::Equation3, RbtRule::P18),
            Preset::ActiveP19 => Self::paper(Level::Active, AstRule::Equation3, RbtRule::P19),
            Preset::ActiveS19 => {
                let slides = Self::paper(Level::Active, AstRule::Equation3, RbtRule::S19);
                let detector = DetectorConfig { rule: DetectorRule::SlidesPaper, ..slides.detector };
                Self { detector, ..slides }
            }
            Preset::Algorithm1P18 => Self::paper(Level::Active, AstRule::Algorithm2, RbtRule::P18),
            Preset::Algorithm1P19 => Self::paper(Level::Active, AstRule::Algorithm2, RbtRule::P19),
        }
    }
}

impl PacerConfig {
    /// What the papers say: a constant δ, no hints, no jitter but Algorithm 3's own noise, the detector "longer than the
    /// average", the first back-off β·t_min, the first check at once, and 60 s of patience.
    fn paper(level: Level, ast: AstRule, rbt: RbtRule) -> Self {
        Self {
            level,
            ast: AstConfig {
                rule: ast,
                step: AstStep::Fixed(PAPER_STEP),
                floor: Duration::from_millis(10),
                ..AstConfig::default()
            },
            back_off: BackOffConfig { rule: rbt, ..BackOffConfig::default() },
            detector: DetectorConfig { rule: DetectorRule::LightPaper, ..DetectorConfig::default() },
            initial: InitialRule::Minimum,
            jitter: 0.0,
            start: Start::Immediately,
            hints: HintUse::Ignore,
            request_timeout: Duration::from_secs(60),
            ..Self::default()
        }
    }
}

/// δ of the papers' presets. The papers call it a constant and give no number.
const PAPER_STEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_builds_and_says_what_it_is_for() {
        for preset in Preset::ALL {
            assert!(PacerConfig::from(*preset).build().is_ok(), "{preset}");
            assert!(!preset.about().is_empty(), "{preset}");
        }
    }

    #[test]
    fn the_names_of_the_levels_are_those_of_their_practical_presets() {
        for level in Level::ALL {
            assert_eq!(Preset::from(*level).name(), level.name());
            assert_eq!(
                PacerConfig::from(Preset::from(*level)),
                PacerConfig { level: *level, ..PacerConfig::default() }
            );
        }
    }

    #[test]
    fn the_papers_presets_have_a_constant_step_and_obey_nobody() {
        for preset in &Preset::ALL[6..] {
            let config = PacerConfig::from(*preset);
            assert!(matches!(config.ast.step, AstStep::Fixed(_)) && config.hints == HintUse::Ignore, "{preset}");
            assert!(config.build().unwrap().is_exact(), "{preset}");
        }
    }
}
