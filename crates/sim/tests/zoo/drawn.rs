//! Scenarios by seed: a few innocent cohorts, perhaps a guilty one, one of the receivers.

use tidegate_sim::chance::Stream;
use tidegate_sim::zoo::model::{
    APP, Attendance, CALM, Cohort, CohortSide, DEVICE, During, FLOODER, Home, Manners, ReadPace, Readers, Rule, Speaks,
    Style, ZooScenario,
};

/// So many.
pub(crate) const COUNT: u64 = 40;

fn one_of<T: Copy>(chance: &mut Stream, list: &[T]) -> T {
    list[(chance.bits() % list.len() as u64) as usize]
}

fn cohort(chance: &mut Stream, number: usize) -> Cohort {
    let per_s = one_of(chance, &[0.5, 1.0, 2.0, 5.0, 10.0]);
    Cohort {
        name: ["first", "second", "third"][number],
        count: one_of(chance, &[1, 3, 8, 15]),
        per_s,
        qos: one_of(chance, &[0, 0, 1, 2]),
        speaks: one_of(chance, &[Speaks::V311, Speaks::V5]),
        home: one_of(chance, &[Home::Own, Home::Own, Home::Network(number as u8)]),
        style: one_of(chance, &[Style::Even, Style::Poisson, Style::Batches(5)]),
        during: one_of(chance, &[During::Same, During::Same, During::PerSecond(per_s * 2.0), During::Backlog(30)]),
        manners: one_of(chance, &[Manners::Ignores, Manners::Obeys]),
        bytes: one_of(chance, &[30, 64, 500]),
        ..DEVICE
    }
}

fn guilty(chance: &mut Stream) -> Cohort {
    Cohort {
        name: "guilty",
        side: CohortSide::Guilty,
        count: one_of(chance, &[1, 1, 3, 10, 40]),
        qos: one_of(chance, &[0, 1, 2]),
        speaks: one_of(chance, &[Speaks::V311, Speaks::V5]),
        per_s: one_of(chance, &[0.1, 1.0, 5.0]),
        home: one_of(chance, &[Home::Own, Home::Network(9)]),
        during: one_of(chance, &[During::PerSecond(100.0), During::PerSecond(1000.0), During::Full]),
        manners: one_of(chance, &[Manners::Ignores, Manners::Obeys]),
        ..FLOODER
    }
}

/// The same for the same number.
pub(crate) fn scenario(number: u64) -> ZooScenario {
    let chance = &mut Stream::of(number, "drawn");
    let innocents = 1 + (chance.bits() % 3) as usize;
    let mut cohorts: Vec<Cohort> = (0..innocents).map(|number| cohort(chance, number)).collect();
    if chance.happens(0.75) {
        cohorts.push(guilty(chance));
    }
    let usual: f64 = cohorts.iter().map(|cohort| f64::from(cohort.count) * cohort.per_s).sum();
    // More than everybody needs usually, and perhaps less than a flood.
    let enough = (usual * 3.0).max(100.0);
    let mut readers = vec![Readers {
        qos: one_of(chance, &[0, 1, 2]),
        speaks: Speaks::V5,
        window: one_of(chance, &[None, Some(4)]),
        pace: one_of(
            chance,
            &[
                ReadPace::Fast,
                ReadPace::PerSecond(enough),
                ReadPace::PerSecond(enough),
                ReadPace::Pauses { secs: 0.5, times: 2 },
            ],
        ),
        ..APP
    }];
    if chance.happens(0.5) {
        let pace = one_of(chance, &[ReadPace::Dead, ReadPace::NoAcks, ReadPace::PerSecond(10.0)]);
        let stay = one_of(chance, &[Attendance::Always, Attendance::Trouble]);
        readers.push(Readers { name: "other", counts: false, pace, stay, ..APP });
    }
    ZooScenario {
        name: format!("drawn-{number}").leak(),
        about: "drawn",
        rule: Rule::NotWorse,
        shards: one_of(chance, &[1, 1, 2]),
        capacity: one_of(chance, &[10_000.0, 20_000.0]),
        is_known: chance.happens(0.5),
        cohorts: cohorts.leak(),
        readers: readers.leak(),
        ..CALM
    }
}
