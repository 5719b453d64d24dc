//! The animals: every scenario that was ever seen to do harm, and others of the same kinds.

mod calm;
mod fleets;
mod floods;
mod hosts;
mod receivers;

use super::model::{APP, Cohort, DEVICE, ReadPace, Readers, Speaks, Style};

/// All scenarios, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static super::model::ZooScenario> {
    [calm::ALL, receivers::ALL, floods::ALL, fleets::ALL, hosts::ALL].into_iter().flatten()
}

/// A gateway: many devices behind one client, from its first message at full rate.
const GATEWAY: Cohort =
    Cohort { name: "gateway", count: 1, speaks: Speaks::V5, qos: 1, per_s: 500.0, topics: 1000, ..DEVICE };

/// An application that works on 500 messages a second, one after the other.
const WORKER: Readers = Readers { name: "worker", speaks: Speaks::V5, pace: ReadPace::PerSecond(500.0), ..APP };

/// Devices whose messages must not be lost.
const CAREFUL: Cohort = Cohort { name: "careful", count: 5, speaks: Speaks::V5, qos: 1, ..DEVICE };

/// Devices that send what happens.
const CHANCE: Cohort = Cohort { name: "chance", style: Style::Poisson, ..DEVICE };

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_cohort_is_heard() {
        let mut names = BTreeSet::new();
        for scenario in all() {
            assert!(names.insert(scenario.name), "{} twice", scenario.name);
            assert!(!scenario.about.is_empty() && !scenario.cohorts.is_empty(), "{}", scenario.name);
            let mut cohorts = BTreeSet::new();
            for cohort in scenario.cohorts {
                assert!(cohorts.insert(cohort.name), "{}: {} twice", scenario.name, cohort.name);
                assert!(cohort.topics <= 10_000 && cohort.count > 0, "{}: {}", scenario.name, cohort.name);
            }
            let has_innocents = scenario.cohorts.iter().any(|cohort| scenario.copies(cohort) > 0);
            assert!(has_innocents, "{}: nobody is heard", scenario.name);
            let known = |name: &&&str| scenario.cohorts.iter().any(|cohort| cohort.name == **name);
            for readers in scenario.readers {
                assert!(readers.of.iter().all(|name| known(&name)), "{}: {:?}", scenario.name, readers.of);
            }
        }
        assert!(names.len() >= 50, "{}", names.len());
    }
}
