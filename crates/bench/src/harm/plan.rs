//! How long the parts of a scenario are on sockets, and how long all of it takes.

use std::fmt::Write;

use tidegate_sim::zoo::model::{Attendance, CohortSide, Phases, ReadPace, Rule, ZooScenario};
use tidegate_sim::zoo::space as zoo_space;
use tidegate_sim::zoo::verdict::PAIRS_MAX;

/// Seconds of trouble, unless it is said: a queue that is given room by the second has then shown what it does.
pub(super) const SECS: f64 = 3.0;
pub(super) const SECS_QUICK: f64 = 1.0;
/// What comes before: rates are known by then, so this is for connections and receivers only.
const LEAD_S: f64 = 0.3;
/// What comes after, by the trouble: long enough to see whether it ends.
const AFTER: f64 = 0.5;
/// The same for the smart space, whose requests have a second to be answered.
const SPACE_AFTER: f64 = 0.25;
/// Where nothing is to be recovered from, the trouble is so much shorter.
const SHORT: f64 = 0.5;
/// The smart space begins with a moment of its own: requests are slower than messages.
const SPACE_LEAD_S: f64 = 0.3;
/// A fresh broker, everybody's connection, and the end of what is under way.
const AROUND_S: f64 = 0.85;
/// The same with a load of triples.
const SPACE_AROUND_S: f64 = 1.2;

/// Whether there is anything to recover from: somebody who floods, or a receiver that does not take its part.
fn has_trouble(scenario: &ZooScenario) -> bool {
    let is_bad = |readers: &tidegate_sim::zoo::model::Readers| {
        readers.stay == Attendance::Trouble || !matches!(readers.pace, ReadPace::Fast)
    };
    scenario.rule != Rule::Calm
        && (scenario.cohorts.iter().any(|cohort| cohort.side == CohortSide::Guilty)
            || scenario.readers.iter().any(is_bad))
}

/// The parts of a scenario of the broker.
pub(super) fn phases(scenario: &ZooScenario, secs: f64) -> Phases {
    let trouble = if has_trouble(scenario) { secs } else { secs * SHORT };
    Phases { lead: LEAD_S, trouble, after: trouble * AFTER }
}

/// The parts of a scenario of the smart space.
pub(super) fn space_phases(secs: f64) -> Phases {
    Phases { lead: SPACE_LEAD_S, trouble: secs, after: secs * SPACE_AFTER }
}

/// What is run.
#[derive(Debug)]
pub(super) struct HarmPlan {
    pub(super) scenarios: Vec<&'static ZooScenario>,
    pub(super) desks: Vec<&'static zoo_space::SpaceScenario>,
    /// Seconds of trouble.
    pub(super) secs: f64,
}

impl HarmPlan {
    /// Seconds that all of it takes if nothing looks bad, with so many brokers beside ours.
    pub(super) fn seconds(&self, peers: usize) -> f64 {
        let runs = (2 + peers) as f64;
        let broker: f64 = self.scenarios.iter().map(|it| phases(it, self.secs).end() + AROUND_S).sum();
        let space = self.desks.len() as f64 * (space_phases(self.secs).end() + SPACE_AROUND_S);
        broker * runs + space * 2.0
    }

    /// The plan in words.
    pub(super) fn words(&self, peers: usize) -> String {
        let pair = 2.0 * (self.secs * (1.0 + AFTER) + LEAD_S + AROUND_S);
        let mut text = format!("{} scenarios: ", self.scenarios.len() + self.desks.len());
        let seconds = self.seconds(peers);
        // Writing into a string cannot fail.
        let _ = if seconds < 90.0 {
            write!(text, "about {seconds:.0} s")
        } else {
            write!(text, "about {:.0} minutes", (seconds / 60.0).ceil())
        };
        let (few, many) = (2.0 * pair, (PAIRS_MAX - 1) as f64 * pair);
        let _ = write!(text, ", and {few:.0} s more for each that looks bad at first, {many:.0} if that is no chance");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::zoo::table;

    #[test]
    fn all_of_it_fits_into_27_minutes_with_eight_rows_that_look_bad_at_first() {
        let plan = HarmPlan { scenarios: table::all().collect(), desks: zoo_space::all().collect(), secs: SECS };
        // By chance: two pairs more.
        let again = 8.0 * 4.0 * (SECS * (1.0 + AFTER) + LEAD_S + AROUND_S);
        let minutes = (plan.seconds(1) + again) / 60.0;
        assert!(minutes <= 27.0, "{minutes:.1} minutes");
    }

    #[test]
    fn where_something_is_to_be_recovered_from_there_is_time_for_it() {
        let trouble = |name: &str| {
            let scenario = table::all().find(|scenario| scenario.name == name);
            scenario.map(|scenario| phases(scenario, SECS).trouble)
        };
        for name in ["flood-q0", "idle-reader", "pause-1s-q0", "rare-all-q0", "one-user", "share-stuck"] {
            assert_eq!(trouble(name), Some(3.0), "{name}");
        }
        for name in ["calm-fleet", "fan-in-500k", "will-storm"] {
            assert_eq!(trouble(name), Some(1.5), "{name}");
        }
    }
}
