//! What it brings that the space hears how hard the broker is pressed: a shard on the same two processors, with what takes
//! long in the space beside it, once heard and once not.
//!
//! `cargo test -p tidegate-space --lib oath::pressure -- --ignored --nocapture` prints all figures.

use std::time::Duration;

use tidegate_sim::zoo::judge::{self, VIRTUAL};
use tidegate_sim::zoo::model::{CohortSide, Phases};
use tidegate_sim::zoo::space::{self, Askers, SpaceScenario};
use tidegate_sim::zoo::tally::Figures;

use super::askers::at;
use super::host::{HostRun, SpaceHost};
use super::shard::{BusyShard, ShardLoad};
use crate::admission::SpaceAdmission;

const PHASES: Phases = Phases { lead: 1.0, trouble: 15.0, after: 14.0 };

struct Beside {
    run: HostRun,
    shard: BusyShard,
}

fn beside(scenario: &'static SpaceScenario, per_s: f64, is_heard: bool, seed: u64) -> Beside {
    let mut host = SpaceHost::new(scenario, &SpaceAdmission::default(), PHASES, seed);
    host.shard = Some(BusyShard::new(ShardLoad { per_s, work: Duration::from_micros(700), is_heard }));
    host.live(at(PHASES.end()));
    Beside { run: HostRun::of(&host), shard: host.shard.unwrap() }
}

fn scenario(name: &str) -> &'static SpaceScenario {
    space::all().find(|it| it.name == name).unwrap()
}

/// Figures of all askers, and of the messages.
fn words(Beside { run, shard }: &Beside, scenario: &SpaceScenario) -> String {
    let of = |(askers, it): (&Askers, &Figures)| {
        let (per_s, p99, lost) = (it.goodput_per_s, it.p99_ms, it.loss * 100.0);
        format!("{} {per_s:.2}/s, p99 {p99:.0} ms, {lost:.2} % lost", askers.name)
    };
    let askers: Vec<String> = scenario.askers.iter().zip(&run.figures).map(of).collect();
    let (p50, p99) = (shard.percentile_ms(50), shard.percentile_ms(99));
    format!(
        "{} messages, p50 {p50:.1}, p99 {p99:.1} ms, level {} ({} tenths of a second at 2 or more); {}; load {:?}",
        shard.took.len(),
        shard.highest,
        shard.strained,
        askers.join("; "),
        run.load_s,
    )
}

#[test]
#[ignore = "prints figures"]
fn report() {
    for scenario in space::all() {
        for per_s in [200.0, 600.0, 1000.0, 1300.0] {
            for (name, is_heard) in [("deaf", false), ("heard", true)] {
                println!(
                    "{} {per_s}/s {name}: {}",
                    scenario.name,
                    words(&beside(scenario, per_s, is_heard, 1), scenario)
                );
            }
        }
    }
}

#[test]
fn while_the_broker_is_calm_hearing_changes_nothing() {
    for name in ["space-slow-queries", "space-bulk-beside-few", "space-dear-standing"] {
        let (deaf, heard) = (beside(scenario(name), 200.0, false, 1), beside(scenario(name), 200.0, true, 1));
        assert_eq!((deaf.shard.highest, heard.shard.highest), (0, 0), "{name}");
        assert_eq!((deaf.run.figures, deaf.shard.took), (heard.run.figures, heard.shard.took), "{name}");
    }
}

/// What is pressed by long queries and long updates is relieved; short requests fare as before, and long ones go on.
#[test]
fn a_pressed_broker_is_relieved_at_the_cost_of_what_takes_long() {
    let cases = [("space-slow-queries", 1000.0), ("space-slow-queries-writers", 1000.0), ("space-long-where", 1300.0)];
    for ((name, per_s), seed) in cases.into_iter().flat_map(|case| [(case, 1), (case, 2)]) {
        let scenario = scenario(name);
        let (deaf, heard) = (beside(scenario, per_s, false, seed), beside(scenario, per_s, true, seed));
        let both = format!("{name}, seed {seed}\ndeaf: {}\nheard: {}", words(&deaf, scenario), words(&heard, scenario));
        assert!(heard.shard.percentile_ms(99) < 0.5 * deaf.shard.percentile_ms(99), "{both}");
        assert!(heard.shard.percentile_ms(50) < 0.1 * deaf.shard.percentile_ms(50), "{both}");
        assert!(
            heard.shard.took.len() >= deaf.shard.took.len() && heard.shard.strained <= deaf.shard.strained,
            "{both}"
        );
        for ((askers, on), off) in scenario.askers.iter().zip(&heard.run.figures).zip(&deaf.run.figures) {
            if askers.side == CohortSide::Innocent {
                let worse: Vec<_> = judge::compare_cohort(askers.name, on, off)
                    .into_iter()
                    .filter(|it| it.margin(&VIRTUAL) > 0.0)
                    .collect();
                assert!(worse.is_empty(), "{worse:?}\n{both}");
            } else {
                assert!(on.loss <= off.loss && on.goodput_per_s > 0.6 * off.goodput_per_s, "{both}");
            }
        }
    }
}
