//! Whoever asks the simulated host: each waits for its answer, and asks again when that is due, as the askers of `tidegate
//! bench harm` do on sockets. Nobody knows tickets or hints.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sim::chance::Stream;
use tidegate_sim::zoo::model::Phases;
use tidegate_sim::zoo::space::{Askers, SpaceScenario};
use tidegate_sim::zoo::tally::CohortTally;

use crate::machine::task::Requester;

/// When all begins.
pub(super) const BEGIN: Timestamp = Timestamp::from_nanos(1_000_000_000_000);
/// Who is refused comes again after so long: at once, as clients do that know no hints.
const AGAIN: Duration = Duration::from_millis(2);

/// Whoever waits for an answer; it never leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostRequester {
    pub(super) whose: Whose,
    pub(super) due: Timestamp,
    /// What the request takes of a processor.
    pub(super) work: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The asker at this place.
    Asker(usize),
    Load,
    Subscriber,
}

impl Requester for HostRequester {
    fn is_gone(&self) -> bool {
        false
    }

    fn begin(&self) -> bool {
        true
    }

    fn submit(&self) {}

    fn release(&mut self) {}
}

#[derive(Debug)]
pub(super) struct Asker {
    pub(super) askers: &'static Askers,
    /// Which of the scenario's kinds of askers.
    pub(super) kind: usize,
    /// When it asks next; none while it waits for an answer, and after its last one.
    pub(super) due: Option<Timestamp>,
    pub(super) count: u64,
    last: Timestamp,
}

/// All askers of a scenario, and what becomes of their requests.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) people: Vec<Asker>,
    pub(super) tallies: Vec<CohortTally>,
    chance: Stream,
}

pub(super) fn at(seconds: f64) -> Timestamp {
    BEGIN + Duration::from_secs_f64(seconds)
}

fn nanos(time: Timestamp) -> u64 {
    u64::try_from(time.since(BEGIN).as_nanos()).unwrap_or(u64::MAX)
}

impl Crowd {
    pub(super) fn new(scenario: &SpaceScenario, phases: Phases, seed: u64) -> Self {
        let mut chance = Stream::of(seed, "askers");
        let mut people = Vec::new();
        for (kind, askers) in scenario.askers.iter().enumerate() {
            let (first, last) =
                if askers.is_trouble { (phases.lead, phases.trouble_end()) } else { (0.0, phases.end()) };
            for _ in 0..askers.count {
                let interval = askers.per_s.map_or(0.01, |rate| 1.0 / rate);
                let due = Some(at(first + chance.unit() * interval));
                people.push(Asker { askers, kind, due, count: 0, last: at(last) });
            }
        }
        let tallies = scenario.askers.iter().map(|_| CohortTally::new(phases, 1)).collect();
        Self { people, tallies, chance }
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.people.iter().filter_map(|asker| asker.due).min()
    }

    /// Somebody who asks now: its place, and what it waits with.
    pub(super) fn poll_due(&mut self, now: Timestamp) -> Option<(usize, HostRequester)> {
        let place = self.people.iter().position(|asker| asker.due.is_some_and(|due| due <= now))?;
        let asker = &mut self.people[place];
        let due = asker.due.take()?;
        asker.count += 1;
        self.tallies[asker.kind].on_offered(nanos(due));
        let work = Duration::from_secs_f64(asker.askers.work_ms * 1e-3 * (0.75 + 0.5 * self.chance.unit()));
        Some((place, HostRequester { whose: Whose::Asker(place), due, work }))
    }

    pub(super) fn on_answered(&mut self, now: Timestamp, place: usize, due: Timestamp, is_answered: bool) {
        let asker = &mut self.people[place];
        let tally = &mut self.tallies[asker.kind];
        if is_answered {
            tally.on_delivered(nanos(due), nanos(now));
        } else {
            tally.on_refused(nanos(due));
        }
        let next = match asker.askers.per_s {
            // Due at its rate, whatever became of the last one.
            Some(rate) => due + Duration::from_secs_f64(1.0 / rate),
            None if is_answered => now,
            None => now + AGAIN,
        };
        asker.due = (next < asker.last).then_some(next);
    }
}
