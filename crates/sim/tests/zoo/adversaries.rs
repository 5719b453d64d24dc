//! Who wants more than its due, and what it gains by it, as a number. The numbers stand in `docs/overload.md`, too.
//!
//! A receiver takes 500 messages a second, 25 devices are used to 125 of them, and somebody wants the rest and more.
//! Claims to a better class are `core::f133_…` (nothing without the right to it), tickets that are kept are
//! `space::clients_that_know_no_tickets_are_served_beside_those_that_do` (nobody else is refused).

use tidegate_sim::zoo::model::{APP, CALM, Churn, Cohort, DEVICE, During, FLOODER, Home, ReadPace, Readers};
use tidegate_sim::zoo::model::{Speaks, Style, ZooScenario};
use tidegate_sim::zoo::tally::Figures;
use tidegate_sim::zoo::world::ControlSwitch;

use crate::{SEED, run};

const WORKER: Readers = Readers { name: "worker", speaks: Speaks::V5, pace: ReadPace::PerSecond(500.0), ..APP };
const CAREFUL: Cohort = Cohort { name: "careful", count: 5, speaks: Speaks::V5, qos: 1, ..DEVICE };
/// What a claim may hold at once: 8, and a batch of 512.
const BUCKET: f64 = 520.0;
const TROUBLE_S: f64 = 6.0;

fn beside(adversaries: &[Cohort]) -> Vec<Figures> {
    let cohorts = [&[DEVICE, CAREFUL], adversaries].concat();
    run(
        &ZooScenario { name: "adversary", cohorts: cohorts.leak(), readers: &[WORKER], ..CALM },
        ControlSwitch::On,
        SEED,
    )
}

/// The innocent notice nothing, and the rest is told.
#[track_caller]
fn taken(figures: &[Figures]) -> &[Figures] {
    for innocent in &figures[..2] {
        assert!(innocent.loss < 0.01 && innocent.honest_p99_ms < 250.0, "{innocent:?}");
    }
    &figures[2..]
}

/// An hour of training doubles a claim (`control::an_hour_of_training_doubles_the_claim_and_no_more`). Beside another who
/// floods without training that is worth 2ρ a second and one bucket: 20 messages a second and 520 once.
#[test]
fn who_trains_for_an_hour_gains_twenty_messages_a_second_and_a_bucket() {
    let fresh = Cohort { name: "fresh", ..FLOODER };
    let trained = Cohort { name: "trained", per_s: 10.0, ..FLOODER };
    let figures = beside(&[fresh, trained]);
    let [fresh, trained] = taken(&figures) else { panic!() };
    let gain = (trained.arrived_per_s - fresh.arrived_per_s) * TROUBLE_S;
    assert!(gain <= 20.0 * TROUBLE_S + BUCKET, "{gain} messages");
}

/// A flood that comes in bursts with pauses between them gets no more than one that does not pause, but for a bucket.
#[test]
fn who_alternates_gains_a_bucket() {
    let steady = Cohort { during: During::PerSecond(1000.0), ..FLOODER };
    let bursts = Cohort { style: Style::Batches(2000), per_s: 5.0, ..steady };
    let take = |cohort| taken(&beside(&[cohort]))[0].arrived_per_s * TROUBLE_S;
    let gain = take(bursts) - take(steady);
    assert!(gain <= BUCKET, "{gain} messages");
}

/// Behind the address of the innocent a flooder gets no more than elsewhere, and they lose nothing by it.
#[test]
fn who_hides_behind_neighbours_gains_nothing() {
    let at = |home| {
        let here = |cohort: Cohort| Cohort { home: Home::Network(1), ..cohort };
        let cohorts = vec![here(DEVICE), here(CAREFUL), Cohort { home, ..FLOODER }].leak();
        let scenario = ZooScenario { name: "neighbour", cohorts, readers: &[WORKER], ..CALM };
        taken(&run(&scenario, ControlSwitch::On, SEED))[0].arrived_per_s
    };
    let (here, elsewhere) = (at(Home::Network(1)), at(Home::Network(2)));
    assert!(here <= elsewhere * 1.02, "{here}/s behind them, {elsewhere}/s elsewhere");
}

/// Another name every fifty messages: no more than one name gets, but for one message of each, which is new and therefore
/// first.
#[test]
fn who_changes_names_gains_one_message_for_each() {
    let steady = Cohort { qos: 0, home: Home::Network(9), during: During::PerSecond(2000.0), ..FLOODER };
    let changing = Cohort { churn: Churn::NewName(50), ..steady };
    let take = |cohort| taken(&beside(&[cohort]))[0].arrived_per_s * TROUBLE_S;
    let (gain, names) = (take(changing) - take(steady), 2000.0 * TROUBLE_S / 50.0);
    assert!(gain <= names, "{gain} messages by {names} names");
}

/// Ten or a hundred names of one network take nothing more from others than one.
#[test]
fn more_names_gain_nothing() {
    let with = |count: u32| {
        let during = During::PerSecond(2000.0 / f64::from(count));
        let crowd = Cohort { name: "crowd", count, per_s: 0.01, home: Home::Network(3), during, ..FLOODER };
        taken(&beside(&[crowd]))[0].arrived_per_s
    };
    let one = with(1);
    for count in [10, 100] {
        let many = with(count);
        assert!(many <= one * 1.02, "{count} names get {many}/s, one {one}/s");
    }
}
