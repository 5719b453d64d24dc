//! Which of the seven rules a scenario breaks: the harms of the judge, and what each rule asks for beyond them.

use super::judge::{self, HarmFigure, VIRTUAL};
use super::message::{Look, Template};
use super::model::{Cohort, CohortSide, ReadPace, Rule, ZooScenario};
use super::tally::Figures;
use super::world;

/// Without scarcity on may be later than off by so much: two turns of the loop, or a twentieth of what a burst takes.
const CALM_MS: f64 = 2.0;
const CALM_SHARE: f64 = 1.05;
/// A rare message may wait so many times as long as what it has to wait for takes: receivers take theirs at intervals that
/// differ, and 99 of 100 are to keep within it.
const RARE_TIMES: f64 = 1.25;
/// And so much more: a few turns of the loop, and the rounding of a receiver's pace.
const RARE_MORE_MS: f64 = 20.0;
/// Innocents lose no more than this beside any flood, and any receiver that does not take its part.
const INNOCENT_LOSS: f64 = 0.01;
/// The longest that an innocent is told to wait in one step. Who floods a queue of 10 000 messages may have to wait until its
/// share of it has drained.
const WAIT_S: f64 = 10.0;

/// A rule that is broken, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    pub rule: Rule,
    /// With the figures.
    pub how: String,
}

/// What a scenario with control breaks, beside the same without it.
pub fn breaches(scenario: &ZooScenario, on: &[Figures], off: &[Figures]) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut add = |rule, how: String| found.push(Breach { rule, how });
    for harm in judge::harms(scenario, on, off, &VIRTUAL) {
        let rule = match (harm.figure, scenario.rule) {
            (HarmFigure::Refused, _) => Rule::NotLockedOut,
            // Where nothing is scarce, or only a receiver that is nobody's fault is slow, the more telling rule is broken.
            (_, rule @ (Rule::Calm | Rule::Scarce)) => rule,
            _ => Rule::NotWorse,
        };
        add(rule, harm.to_string());
    }
    for ((cohort, on), off) in scenario.cohorts.iter().zip(on).zip(off) {
        let name = cohort.name;
        if cohort.side == CohortSide::Innocent && on.longest_wait_s > WAIT_S {
            add(Rule::Obedience, format!("{name}: told to wait {:.1} s", on.longest_wait_s));
        }
        if on.reordered > off.reordered {
            add(Rule::NotWorse, format!("{name}: {} out of order, off {}", on.reordered, off.reordered));
        }
        if cohort.side != CohortSide::Innocent {
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
            Rule::Rare if on.loss > INNOCENT_LOSS || on.honest_p99_ms > rare_ms(scenario) => {
                let (loss, p99, bound) = (on.loss * 100.0, on.p99_ms, rare_ms(scenario));
                add(Rule::Rare, format!("{name}: {loss:.1} % lost, p99 {p99:.0} ms, at most {bound:.0} ms"));
            }
            _ => {}
        }
    }
    found
}

/// How long a rare message may wait: for what its receiver has before it where nothing can be overtaken (a window of what
/// is acknowledged, a socket full of what is not), and for one packet of each flow.
fn rare_ms(scenario: &ZooScenario) -> f64 {
    let flows: u32 = scenario.cohorts.iter().map(|cohort| cohort.count).sum();
    let wait = |readers: &super::model::Readers| {
        let (ReadPace::PerSecond(rate) | ReadPace::Slows(rate)) = readers.pace else { return 0.0 };
        let in_socket = |cohort: &Cohort| match cohort.qos.min(readers.qos) {
            0 => world::SOCKET_DOWN_BYTES / wire_bytes(cohort),
            _ => readers.window.map_or(usize::MAX, usize::from).min(world::SOCKET_DOWN_BYTES / wire_bytes(cohort)),
        };
        let before = scenario.cohorts.iter().map(in_socket).max().unwrap_or_default();
        (before as f64 + f64::from(flows)) / (rate * scenario.scale) * 1000.0
    };
    let longest = scenario.readers.iter().filter(|readers| readers.counts).map(wait).fold(0.0, f64::max);
    longest * RARE_TIMES + RARE_MORE_MS
}

fn wire_bytes(cohort: &Cohort) -> usize {
    let Cohort { topics, speaks, qos, bytes, retain, .. } = *cohort;
    Template::new(&Look { topic: &format!("zoo/{}/0", cohort.name), topics, speaks, qos, bytes, retain, stream: 0 })
        .len()
}
