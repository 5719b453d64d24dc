//! Which parameters make no difference to the time between regular checks, and why: not every rule reads every one of them.
//!
//! For whoever sets values by name: a value that nothing reads is most often a mistake.

use super::ast::{AstRule, AstStep};
use super::config::{HintUse, Level, PacerConfig};
use super::detect::DetectorRule;
use super::parameter::Parameter;
use super::rbt::RbtRule;
use crate::measure::AverageRule;

impl PacerConfig {
    /// Why a parameter makes no difference with everything else as it is here; none if it makes one.
    pub fn ignores(&self, parameter: Parameter) -> Option<&'static str> {
        if self.level == Level::None {
            return (parameter != Parameter::Timeout).then_some("the level none has no checks");
        }
        match parameter {
            Parameter::Alpha
            | Parameter::Delta
            | Parameter::DetectionDelay
            | Parameter::Ast
            | Parameter::Floor
            | Parameter::Ceiling
            | Parameter::BeforeDecrease
            | Parameter::Growths
            | Parameter::Burst => self.ignored_by_ast(parameter),
            Parameter::Beta
            | Parameter::Minimum
            | Parameter::Maximum
            | Parameter::Rounds
            | Parameter::Rbt
            | Parameter::Noise
            | Parameter::Initial => self.ignored_by_back_off(parameter),
            Parameter::Detector
            | Parameter::Theta
            | Parameter::Kappa
            | Parameter::Gamma
            | Parameter::Average
            | Parameter::Network
            | Parameter::Processing
            | Parameter::Small
            | Parameter::QueueTarget
            | Parameter::Denial => self.ignored_by_detector(parameter),
            Parameter::Jitter => self.has_no_ast(),
            Parameter::Interval | Parameter::Start | Parameter::Hints | Parameter::Timeout => None,
        }
    }

    fn has_no_ast(&self) -> Option<&'static str> {
        let has_ast = matches!(self.level, Level::Adaptive | Level::Active);
        (!has_ast).then_some("only the levels adaptive and active have AST")
    }

    fn ignored_by_ast(&self, parameter: Parameter) -> Option<&'static str> {
        let is_algorithm_2 = self.ast.rule == AstRule::Algorithm2;
        let needs_rate = match self.ast.step {
            AstStep::DetectionDelay(_) => true,
            AstStep::Share(_) => self.ast.rule == AstRule::Practical,
            AstStep::Fixed(_) => false,
        };
        self.has_no_ast().or(match parameter {
            Parameter::BeforeDecrease | Parameter::Growths if !is_algorithm_2 => {
                Some("only Algorithm 2 has it (ast=algorithm2)")
            }
            Parameter::Burst if !is_algorithm_2 && !needs_rate => {
                Some("only Algorithm 2 and a δ that follows the losses have it")
            }
            _ => None,
        })
    }

    fn ignored_by_back_off(&self, parameter: Parameter) -> Option<&'static str> {
        let is_active = self.level == Level::Active;
        let rule = self.back_off.rule;
        let is_exact = if is_active { rule != RbtRule::Stretch } else { self.ast.rule != AstRule::Practical };
        match parameter {
            // Retries of what somebody waits for go by them at every level, but not by the papers' letter.
            Parameter::Minimum | Parameter::Maximum if !is_active && !is_exact => None,
            _ if !is_active => Some("only the level active has RBT"),
            Parameter::Maximum if rule == RbtRule::S19 => Some("rbt=s19 has rounds in its place"),
            Parameter::Rounds if rule != RbtRule::S19 => Some("only rbt=s19 has it"),
            Parameter::Noise if rule == RbtRule::Stretch => Some("only Algorithm 3 has it (rbt=p18, p19 or s19)"),
            _ => None,
        }
    }

    fn ignored_by_detector(&self, parameter: Parameter) -> Option<&'static str> {
        let is_active = self.level == Level::Active;
        let is_gated = self.level == Level::Adaptive && self.ast.rule == AstRule::Practical;
        if !is_active && !is_gated {
            return Some("nothing here depends on whether the broker is congested");
        }
        let rule = self.detector.rule;
        let reads_mean = matches!(rule, DetectorRule::LightPaper | DetectorRule::SlidesPaper)
            || is_active && matches!(self.back_off.rule, RbtRule::P19 | RbtRule::S19);
        let is_rigorous = matches!(rule, DetectorRule::Rigorous | DetectorRule::RigorousPaper);
        let is_light = matches!(rule, DetectorRule::Light | DetectorRule::LightPaper | DetectorRule::SlidesPaper)
            || rule == DetectorRule::Mediate && self.hints == HintUse::Ignore;
        match parameter {
            Parameter::Theta | Parameter::Processing if !is_rigorous => {
                Some("only the detectors rigorous and rigorous-paper have it")
            }
            Parameter::Kappa if !matches!(rule, DetectorRule::LightPaper | DetectorRule::SlidesPaper) => {
                Some("only the detectors light-paper and slides-paper have it")
            }
            Parameter::Average | Parameter::Gamma if !reads_mean => Some("nothing here asks for a mean response time"),
            Parameter::Gamma if self.detector.average != AverageRule::Ewma => Some("only average=ewma has it"),
            Parameter::Network if is_light => {
                Some("only the detectors rigorous and mediate have it, this one with hints")
            }
            Parameter::Small if rule != DetectorRule::SlidesPaper => Some("only the detector slides-paper has it"),
            Parameter::QueueTarget if rule != DetectorRule::Mediate || self.hints == HintUse::Ignore => {
                Some("only the detector mediate has it, with hints=obey")
            }
            Parameter::Denial if !is_active => Some("only the level active has RBT"),
            Parameter::Denial
                if matches!(rule, DetectorRule::Mediate | DetectorRule::Rigorous | DetectorRule::Light) =>
            {
                Some("only the papers' detectors have it")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use alloc::vec::Vec;
    use rand_core::Rng;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    use super::*;
    use crate::hints::Hints;
    use crate::pacer::{Outcome, Pacer, Preset};
    use crate::time::Timestamp;

    /// Another value that is allowed, whatever the rest is.
    fn another(parameter: Parameter) -> &'static str {
        match parameter {
            Parameter::Alpha => "3",
            Parameter::Delta => "377ms",
            Parameter::DetectionDelay => "3s",
            Parameter::BeforeDecrease => "14s",
            Parameter::Growths => "2.5",
            Parameter::Burst => "7",
            Parameter::Ast => "algorithm2",
            Parameter::Floor => "9s",
            Parameter::Ceiling => "11s",
            Parameter::Beta => "3.3",
            Parameter::Minimum => "730ms",
            Parameter::Maximum => "150ms",
            Parameter::Rounds => "2",
            Parameter::Rbt => "p18",
            Parameter::Noise => "off",
            Parameter::Detector => "slides-paper",
            Parameter::Theta => "0.02",
            Parameter::Kappa => "1.7",
            Parameter::Gamma => "0.1",
            Parameter::Average => "ewma",
            Parameter::Network => "2s",
            Parameter::Processing | Parameter::QueueTarget => "1ms",
            Parameter::Small => "30s",
            Parameter::Denial => "fast",
            Parameter::Initial => "history",
            Parameter::Interval => "7s",
            Parameter::Jitter => "0.77",
            Parameter::Start => "immediately",
            Parameter::Hints => "ignore",
            Parameter::Timeout => "1900ms",
        }
    }

    /// The same chance for everything that is drawn at one moment: who draws more often has no other luck afterwards.
    struct Same(u64);

    impl rand_core::TryRng for Same {
        type Error = core::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok((self.0 >> 32) as u32)
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            bytes.fill(self.0 as u8);
            Ok(())
        }
    }

    /// The delays of a client to which all kinds of things happen, the same for every pacer.
    fn delays(config: &PacerConfig, seed: u64, is_awaited: bool) -> Vec<Option<Duration>> {
        let plan = config.build().unwrap();
        let mut pacer = Pacer::new(&plan);
        let mut world = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut now, mut delays) = (Timestamp::from_nanos(1), Vec::new());
        delays.push(pacer.first_delay(&mut Same(world.next_u64())));
        for _ in 0..60 {
            let (kind, latency) = (world.next_u32() % 16, Duration::from_millis(u64::from(world.next_u32() % 400)));
            let hints = Hints {
                queued: (kind % 2 == 0).then_some(latency / 2),
                permitted: (kind % 3 == 0).then_some(Duration::from_millis(150)),
                ..Hints::default()
            };
            let outcome = match kind {
                0..12 => Outcome::Answered { latency, losses: kind % 3, not_modified: false, hints },
                12 => Outcome::TimedOut,
                13 => Outcome::Failed,
                _ => Outcome::denied(),
            };
            if is_awaited && kind % 4 == 0 {
                pacer.on_user_waiting();
            }
            pacer.on_sent();
            // Time goes on by itself, so that what is compared is what the pacer says of the same past.
            now = now + Duration::from_millis(500 + u64::from(world.next_u32() % 20_000));
            delays.push(pacer.on_outcome(now, &outcome, &mut Same(world.next_u64())));
        }
        delays
    }

    fn configs() -> impl Iterator<Item = PacerConfig> {
        let detectors = DetectorRule::ALL.iter().map(|rule| Some(*rule)).chain([None]);
        Preset::ALL.iter().flat_map(move |preset| {
            detectors.clone().map(|detector| {
                let mut config = PacerConfig::from(*preset);
                config.detector.rule = detector.unwrap_or(config.detector.rule);
                config
            })
        })
    }

    #[test]
    fn what_is_said_to_make_no_difference_makes_none_and_what_is_not_makes_one() {
        let mut silent = Vec::new();
        for config in configs() {
            for parameter in Parameter::ALL {
                let mut changed = config.clone();
                changed.set(*parameter, another(*parameter)).unwrap();
                // Retries of what somebody waits for go by these two, and are no regular checks.
                let is_awaited = matches!(parameter, Parameter::Minimum | Parameter::Maximum);
                let same = |seed| delays(&config, seed, is_awaited) == delays(&changed, seed, is_awaited);
                let is_equal = (0..20).all(same);
                // A value that chooses a rule may be the one that is in force.
                let is_same = changed == config;
                if config.ignores(*parameter).is_some() {
                    assert!(is_equal, "{parameter} makes a difference: {config:?}");
                } else if is_equal && !is_same {
                    silent.push((
                        *parameter,
                        config.level,
                        config.ast.rule,
                        config.back_off.rule,
                        config.detector.rule,
                    ));
                }
            }
        }
        // These make one in pasts that are not among them: many losses, a very short t, hints with a time to come back.
        let is_rare = |parameter| {
            matches!(parameter, Parameter::Timeout | Parameter::Hints | Parameter::Burst | Parameter::Detector)
        };
        silent.retain(|(parameter, ..)| !is_rare(*parameter));
        assert!(silent.is_empty(), "{} parameters of which nothing was said: {silent:?}", silent.len());
    }
}
