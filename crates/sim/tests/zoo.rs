//! The zoo in virtual time: every scenario with control and without, by seed, and what it breaks of the seven rules.
//!
//! `cargo test -p tidegate-sim --test zoo -- --ignored --nocapture report` prints all figures; `ZOO=flood` those of some.

use tidegate_sim::zoo::model::{Manners, Rule, Scenario, Side};
use tidegate_sim::zoo::oath::{self, Breach};
use tidegate_sim::zoo::table;
use tidegate_sim::zoo::tally::Figures;
use tidegate_sim::zoo::world::{self, Control};

const SEED: u64 = 1;

struct Pair {
    scenario: &'static Scenario,
    on: Vec<Figures>,
    off: Vec<Figures>,
    breaches: Vec<Breach>,
}

fn run(scenario: &Scenario, control: Control, seed: u64) -> Vec<Figures> {
    world::run(scenario, control, seed).unwrap_or_else(|wrong| panic!("{}: {wrong}", scenario.name))
}

fn pair(scenario: &'static Scenario, seed: u64) -> Pair {
    let (on, off) = (run(scenario, Control::On, seed), run(scenario, Control::Off, seed));
    let breaches = oath::breaches(scenario, &on, &off);
    Pair { scenario, on, off, breaches }
}

fn words(figures: &Figures) -> String {
    let Figures { per_s, p50_ms, p99_ms, refused, recovered_s, .. } = figures;
    let loss = figures.loss * 100.0;
    format!("{per_s:>7.1}/s {loss:>5.1} % {p50_ms:>8.1} {p99_ms:>8.1} ms {refused:>6} ref {recovered_s:>4.1} s")
}

fn show(pair: &Pair) {
    for ((cohort, on), off) in pair.scenario.cohorts.iter().zip(&pair.on).zip(&pair.off) {
        let side = match cohort.side {
            Side::Innocent => ' ',
            Side::Guilty => '!',
            Side::Heavy => '+',
        };
        println!("{:<24}{side}{:<10}|{} |{}", pair.scenario.name, cohort.name, words(on), words(off));
    }
    for breach in &pair.breaches {
        println!("    BREAKS {} {:?}: {}", breach.rule as u8, breach.rule, breach.how);
    }
}

#[test]
#[ignore = "a report"]
fn report() {
    let only = std::env::var("ZOO").unwrap_or_default();
    table::all().filter(|scenario| scenario.name.contains(&only)).for_each(|scenario| show(&pair(scenario, SEED)));
}
