//! Obedience pays: who obeys delivers as much as who does not, and is not later for it.

use tidegate_sim::zoo::model::{Cohort, Manners, ZooScenario};
use tidegate_sim::zoo::table;
use tidegate_sim::zoo::tally::Figures;
use tidegate_sim::zoo::world::ControlSwitch;

use crate::{SEED, run};

/// What the bucket of a claim and a second's share of a receiver come to: who is told to wait may have missed that much.
const BUCKET: u64 = 520;
/// Later by a tenth, or by so much, is not later: a hint is rounded to a millisecond, and quickened once a second.
const LATER: f64 = 1.1;
const LATER_MS: f64 = 50.0;
/// The backlog of who obeys is gone as soon as that of who does not, but for a second of quickening.
const DRAINED_S: f64 = 1.0;

fn with(scenario: &ZooScenario, manners: Manners) -> Vec<Figures> {
    let cohorts: Vec<Cohort> = scenario.cohorts.iter().map(|cohort| Cohort { manners, ..*cohort }).collect();
    run(&ZooScenario { cohorts: cohorts.leak(), ..*scenario }, ControlSwitch::On, SEED)
}

/// Who ignores everything loses what is refused, and is not late with it; who wants everything delivered, as who obeys
/// does, sends it again at once. The first must not deliver more, and the second not earlier either.
#[test]
fn obedience_pays() {
    for name in [
        "flood-q1-2000",
        "flood-q0-2000",
        "flood-q2",
        "flood-window-2",
        "flood-two-shards-q2",
        "nat-neighbour",
        "idle-reader",
        "pause-0.2s-q1",
    ] {
        let scenario = table::all().find(|scenario| scenario.name == name).unwrap();
        let (obeying, ignoring) = (with(scenario, Manners::Obeys), with(scenario, Manners::Ignores));
        let insisting = with(scenario, Manners::Insists);
        for (place, cohort) in scenario.cohorts.iter().enumerate() {
            let (obeying, insisting, who) = (&obeying[place], &insisting[place], cohort.name);
            for other in [&ignoring[place], insisting] {
                let (ours, theirs) = (obeying.delivered, other.delivered);
                assert!(ours + BUCKET + theirs / 14 >= theirs, "{name}: {who} delivers {ours} obeying, {theirs} else");
            }
            for (part, ours, theirs) in
                [("p50", obeying.p50_ms, insisting.p50_ms), ("p99", obeying.p99_ms, insisting.p99_ms)]
            {
                let bound = (theirs * LATER).max(theirs + LATER_MS);
                assert!(ours <= bound, "{name}: {who} has a {part} of {ours:.0} ms obeying, {theirs:.0} ms insisting");
            }
            let (ours, theirs) = (obeying.recovered_s, insisting.recovered_s);
            assert!(ours <= theirs + DRAINED_S, "{name}: {who} is well after {ours:.1} s obeying, {theirs:.1} s else");
        }
    }
}
