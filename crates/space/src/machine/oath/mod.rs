//! The oath before the space's own machines in virtual time: every scenario of the smart space of `tidegate bench harm`,
//! by seed, with the front desk as it is and with one that refuses nobody, judged as the scenarios of the broker are.
//!
//! `TIDEGATE_SEEDS=100` runs more seeds, `ZOO=glut` some scenarios; `cargo test -p tidegate-space --lib oath -- --nocapture` prints the figures of the first.

mod askers;
mod host;
mod pressure;
mod processors;
mod shard;
mod threads;

use std::time::Duration;

use tidegate_sim::zoo::judge::{self, Comparison, HarmFigure, VIRTUAL};
use tidegate_sim::zoo::model::{CohortSide, Phases};
use tidegate_sim::zoo::space::{self, Askers, SpaceScenario};
use tidegate_sim::zoo::tally::Figures;

use crate::admission::{ClassAdmission, Policy, PoolRule, SpaceAdmission};
use host::HostRun;

/// After the trouble there is time to see that nobody is refused any more.
const PHASES: Phases = Phases { lead: 1.0, trouble: 3.0, after: 6.0 };
const SEEDS: u64 = 3;

/// What is neither refused nor preferred: everything waits for as long as its time allows. As `bench harm` has it.
fn off() -> SpaceAdmission {
    let waits = ClassAdmission { policy: Policy::Postpone, delay_max: Duration::from_secs(10) };
    SpaceAdmission {
        update: waits,
        query: waits,
        advanced_query: waits,
        subscribe: waits,
        check: waits,
        ..SpaceAdmission::default()
    }
}

/// Plain queues, one for each kind of request, first come, first served; as long as need be.
fn plain() -> SpaceAdmission {
    SpaceAdmission { rule: PoolRule::Paper, length: 1_000_000, ..SpaceAdmission::default() }
}

/// Who fares worse with the desk, in which figure, and is to be mended.
const KNOWN: &[(&str, &str, HarmFigure)] = &[
    ("space-mixed-shape", "joins", HarmFigure::Loss),
    ("space-mixed-shape", "joins", HarmFigure::Goodput),
    ("space-mixed-shape", "all", HarmFigure::Goodput),
    ("space-glut", "plain", HarmFigure::Loss),
    ("space-glut", "plain", HarmFigure::P99),
    ("space-glut", "plain", HarmFigure::Goodput),
    ("space-glut", "all", HarmFigure::Goodput),
    ("space-glut-obeys", "plain", HarmFigure::Loss),
    ("space-glut-obeys", "plain", HarmFigure::P99),
    ("space-glut-obeys", "plain", HarmFigure::Goodput),
    ("space-glut-obeys", "all", HarmFigure::Goodput),
];

fn harms(scenario: &SpaceScenario, on: &HostRun, off: &HostRun) -> Vec<Comparison> {
    let each = scenario.askers.iter().zip(&on.figures).zip(&off.figures);
    let innocents = each.filter(|((askers, _), _)| askers.side == CohortSide::Innocent);
    let mut found: Vec<Comparison> =
        innocents.flat_map(|((askers, on), off)| judge::compare_cohort(askers.name, on, off)).collect();
    // Of who asks only while the trouble lasts counts what it got meanwhile: what is refused does not come later.
    let of = |(askers, figures): (&Askers, &Figures)| {
        if askers.is_trouble { figures.arrived_per_s } else { figures.goodput_per_s }
    };
    let goodput = |run: &HostRun| scenario.askers.iter().zip(&run.figures).map(of).sum();
    found.push(Comparison { cohort: "all", figure: HarmFigure::Goodput, on: goodput(on), off: goodput(off) });
    found.retain(|comparison| comparison.margin(&VIRTUAL) > 0.0);
    found
}

fn show(scenario: &SpaceScenario, name: &str, run: &HostRun) {
    for ((askers, figures), returns) in scenario.askers.iter().zip(&run.figures).zip(&run.returns) {
        let judge_p99 = figures.honest_p99_ms;
        println!(
            "{:<28}{:<10}{name:<6}{:>8.1}/s {:>6.2} % lost, p50 {:>8.1} p99 {judge_p99:>8.1} ms, refused {:>5}, until {:.1} s, load {:?}, \
             {} came back, {} let in, at most {} times, told {:?} at most",
            scenario.name,
            askers.name,
            figures.goodput_per_s,
            figures.loss * 100.0,
            figures.p50_ms,
            figures.refused,
            figures.refused_s,
            run.load_s,
            returns.came,
            returns.let_in,
            returns.rounds_max,
            returns.told_max,
        );
    }
}

#[test]
fn the_judge_finds_a_desk_that_lets_slow_queries_shut_others_out() {
    let scenario = space::all().find(|it| it.name == "space-slow-queries-writers").unwrap();
    let (plain, off) = (host::run(scenario, &plain(), PHASES, 0), host::run(scenario, &off(), PHASES, 0));
    let found = harms(scenario, &plain, &off);
    assert!(found.iter().any(|harm| harm.cohort == "cheap" && harm.figure == HarmFigure::P99), "{found:?}");
}

#[test]
fn with_the_front_desk_nobody_fares_worse_than_without_it() {
    let seeds = std::env::var("TIDEGATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut broken = Vec::new();
    let only = std::env::var("ZOO").unwrap_or_default();
    for scenario in space::all().filter(|scenario| scenario.name.contains(&only)) {
        for seed in 0..seeds {
            let on = host::run(scenario, &SpaceAdmission::default(), PHASES, seed);
            for (name, other) in [("off", off()), ("plain", plain())] {
                let other = host::run(scenario, &other, PHASES, seed);
                if seed == 0 {
                    if name == "off" {
                        show(scenario, "on", &on);
                    }
                    show(scenario, name, &other);
                }
                let mut found = harms(scenario, &on, &other);
                found.retain(|harm| !KNOWN.contains(&(scenario.name, harm.cohort, harm.figure)));
                broken
                    .extend(found.iter().map(|harm| format!("{} against {name}, seed {seed}: {harm}", scenario.name)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
