//! Which of the seven rules a scenario breaks: the harms of the judge, and what each rule asks for beyond them.

use super::judge;
use super::model::{Rule, Scenario, Side};
use super::tally::Figures;

/// Without scarcity on may be later than off by so much: two turns of the loop, or a twentieth of what a burst takes.
const CALM_MS: f64 = 2.0;
const CALM_SHARE: f64 = 1.05;
/// After the trouble refusals end within this time.
const REFUSED_S: f64 = 5.0;
/// The rare wait for no longer than this beside any crowd: what a receiver of 60 messages a second has before it, where
/// nothing can be overtaken, takes most of it.
const RARE_MS: f64 = 1000.0;
/// Innocents lose no more than this beside any flood, and any receiver that does not take its part.
const INNOCENT_LOSS: f64 = 0.01;
/// The longest that an innocent is told to wait in one step. Who floods a queue of 10 000 messages may have to wait until its
/// share of it has drained.
const WAIT_S: f64 = 10.0;

/// A rule that is broken, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    /// Which.
    pub rule: Rule,
    /// With the figures.
    pub how: String,
}

/// What a scenario with control breaks, beside the same without it.
pub fn breaches(scenario: &Scenario, on: &[Figures], off: &[Figures]) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut add = |rule, how: String| found.push(Breach { rule, how });
    for harm in judge::harms(scenario, on, off) {
        // Where nothing is scarce, or only a receiver that is nobody's fault is slow, the more telling rule is broken.
        let rule = if matches!(scenario.rule, Rule::Calm | Rule::Scarce) { scenario.rule } else { Rule::NotWorse };
        add(rule, harm.to_string());
    }
    for ((cohort, on), off) in scenario.cohorts.iter().zip(on).zip(off) {
        let name = cohort.name;
        if on.refused_s > REFUSED_S {
            add(Rule::NotLockedOut, format!("{name}: refused {:.1} s after the trouble", on.refused_s));
        }
        if cohort.side == Side::Innocent && on.longest_wait_s > WAIT_S {
            add(Rule::Obedience, format!("{name}: told to wait {:.1} s", on.longest_wait_s));
        }
        if on.reordered > off.reordered {
            add(Rule::NotWorse, format!("{name}: {} out of order, off {}", on.reordered, off.reordered));
        }
        if cohort.side != Side::Innocent {
            continue;
        }
        match scenario.rule {
            Rule::Calm if on.refused + on.hints > 0 => {
                add(Rule::Calm, format!("{name}: {} refused, {} hints", on.refused, on.hints));
            }
            Rule::Calm if on.honest_p99_ms > (off.honest_p99_ms + CALM_MS).max(off.honest_p99_ms * CALM_SHARE) => {
                add(Rule::Calm, format!("{name}: p99 {:.1} ms, off {:.1} ms", on.honest_p99_ms, off.honest_p99_ms));
            }
            Rule::OneOrMany | Rule::Scarce if on.loss > INNOCENT_LOSS => {
                add(scenario.rule, format!("{name}: {:.1} % lost", on.loss * 100.0));
            }
            Rule::Rare if on.loss > INNOCENT_LOSS || on.p99_ms > RARE_MS => {
                add(Rule::Rare, format!("{name}: {:.1} % lost, p99 {:.0} ms", on.loss * 100.0, on.p99_ms));
            }
            _ => {}
        }
    }
    found
}
