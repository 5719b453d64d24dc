//! The zoo in virtual time: every scenario with control and without, by seed, and what it breaks of the seven rules.
//!
//! `cargo test -p tidegate-sim --test zoo -- --ignored --nocapture report` prints all figures; `ZOO=flood` those of some,
//! `SEED=7` those of another seed.

#![allow(clippy::unwrap_used, reason = "a scenario that is not there has failed the test")]

mod adversaries;
mod drawn;
mod known;
mod obedience;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_sim::zoo::model::{APP, CALM, Cohort, CohortSide, DEVICE, ReadPace, Readers, Rule, Speaks, ZooScenario};
use tidegate_sim::zoo::oath::{self, Breach};
use tidegate_sim::zoo::table;
use tidegate_sim::zoo::tally::Figures;
use tidegate_sim::zoo::world::{self, ControlSwitch};

const SEED: u64 = 1;

struct Pair {
    scenario: ZooScenario,
    on: Vec<Figures>,
    off: Vec<Figures>,
    breaches: Vec<Breach>,
}

fn run(scenario: &ZooScenario, control: ControlSwitch, seed: u64) -> Vec<Figures> {
    world::run(scenario, control, seed).unwrap_or_else(|wrong| panic!("{}: {wrong}", scenario.name))
}

fn pair(scenario: &ZooScenario, seed: u64) -> Pair {
    let (on, off) = (run(scenario, ControlSwitch::On, seed), run(scenario, ControlSwitch::Off, seed));
    let breaches = oath::breaches(scenario, &on, &off);
    Pair { scenario: *scenario, on, off, breaches }
}

/// Scenarios are independent: as many at a time as there are processors.
fn pairs(scenarios: &[ZooScenario], seed: u64) -> Vec<Pair> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let pair = pair(scenario, seed);
                    done.lock().unwrap().push(pair);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

fn words(figures: &Figures) -> String {
    let Figures { per_s, arrived_per_s, p50_ms, p99_ms, refused, recovered_s, .. } = figures;
    let loss = figures.loss * 100.0;
    format!(
        "{per_s:>7.1}/s {arrived_per_s:>7.1} {loss:>5.1} % {p50_ms:>8.1} {p99_ms:>8.1} ms {refused:>6} ref {recovered_s:>4.1} s"
    )
}

fn show(pair: &Pair) -> String {
    let mut text = String::new();
    for ((cohort, on), off) in pair.scenario.cohorts.iter().zip(&pair.on).zip(&pair.off) {
        let side = match cohort.side {
            CohortSide::Innocent => ' ',
            CohortSide::Guilty => '!',
            CohortSide::Heavy => '+',
        };
        let (on, off) = (words(on), words(off));
        let _ = writeln!(text, "{:<24}{side}{:<10}|{on} |{off}", pair.scenario.name, cohort.name);
    }
    for breach in &pair.breaches {
        let _ = writeln!(text, "    BREAKS {} {:?}: {}", breach.rule as u8, breach.rule, breach.how);
    }
    text
}

#[test]
#[ignore = "a report"]
fn report() {
    let only = std::env::var("ZOO").unwrap_or_default();
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let scenarios: Vec<_> = table::all().filter(|scenario| scenario.name.contains(&only)).copied().collect();
    let mut pairs = pairs(&scenarios, seed);
    pairs.sort_by_key(|pair| scenarios.iter().position(|scenario| scenario.name == pair.scenario.name));
    for pair in &pairs {
        print!("{}", show(pair));
    }
    for scenario in (0..drawn::COUNT).map(drawn::scenario).filter(|scenario| scenario.name == only) {
        println!("{scenario:#?}\n{}", show(&pair(&scenario, seed)));
    }
}

/// Both ways: what breaks a rule and is not known to, and what is known to and does not any more.
#[test]
fn every_scenario_keeps_the_rules_or_is_known_not_to() {
    let scenarios: Vec<ZooScenario> = table::all().copied().collect();
    let pairs = pairs(&scenarios, SEED);
    let found: BTreeSet<(&str, Rule)> =
        pairs.iter().flat_map(|pair| pair.breaches.iter().map(|breach| (pair.scenario.name, breach.rule))).collect();
    let known: BTreeSet<(&str, Rule)> = known::KNOWN.iter().map(|(name, rule, _)| (*name, *rule)).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let shown: String =
        pairs.iter().filter(|pair| new.iter().any(|(name, _)| *name == pair.scenario.name)).map(show).collect();
    assert!(new.is_empty(), "rules are broken that were kept:\n{shown}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "these are kept now, take them off the list of known ones: {gone:?}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let scenario = table::all().find(|scenario| scenario.name == "flood-q1-2000").unwrap();
    assert_eq!(run(scenario, ControlSwitch::On, 3), run(scenario, ControlSwitch::On, 3));
    assert_ne!(run(scenario, ControlSwitch::On, 3), run(scenario, ControlSwitch::On, 4));
}

/// A slow, idle or dead receiver beside a healthy one changes nothing for any publisher.
#[test]
fn more_receivers_slow_no_publisher() {
    const GATEWAY: Cohort = Cohort { name: "gateway", count: 1, speaks: Speaks::V5, qos: 1, per_s: 500.0, ..DEVICE };
    const ALONE: ZooScenario =
        ZooScenario { name: "alone", is_known: false, cohorts: &[GATEWAY, DEVICE], readers: &[APP], ..CALM };
    const BAD: Readers = Readers { name: "bad", counts: false, ..APP };
    let alone = run(&ALONE, ControlSwitch::On, SEED);
    let paces: [&'static [Readers]; 3] = [
        &[APP, Readers { pace: ReadPace::Dead, ..BAD }],
        &[APP, Readers { pace: ReadPace::NoAcks, ..BAD }],
        &[APP, Readers { pace: ReadPace::PerSecond(20.0), count: 3, ..BAD }],
    ];
    for readers in paces {
        let beside = run(&ZooScenario { name: "beside", readers, ..ALONE }, ControlSwitch::On, SEED);
        for (alone, beside) in alone.iter().zip(&beside) {
            assert_eq!((alone.delivered, 0), (beside.delivered, beside.refused), "{:?}", readers[1].pace);
            assert!(beside.p99_ms <= alone.p99_ms + 2.0, "{:?}: {} ms", readers[1].pace, beside.p99_ms);
        }
    }
}

/// Scenarios of the same kinds that nobody has thought of.
#[test]
fn drawn_scenarios_are_not_worse_than_off() {
    let scenarios: Vec<ZooScenario> = (0..drawn::COUNT).map(drawn::scenario).collect();
    let pairs = pairs(&scenarios, SEED);
    let is_worse = |breach: &&Breach| matches!(breach.rule, Rule::NotWorse | Rule::NotLockedOut);
    let bad: Vec<_> = pairs.iter().filter(|pair| pair.breaches.iter().any(|breach| is_worse(&breach))).collect();
    let names: BTreeSet<&str> = bad.iter().map(|pair| pair.scenario.name).collect();
    let known: BTreeSet<&str> = known::DRAWN.iter().map(|(name, _)| *name).collect();
    let shown: String = bad.iter().filter(|pair| !known.contains(pair.scenario.name)).map(|pair| show(pair)).collect();
    assert!(names.is_subset(&known), "worse than off:\n{shown}");
    let gone: Vec<_> = known.difference(&names).collect();
    assert!(gone.is_empty(), "these are not worse any more, take them off the list of known ones: {gone:?}");
}
