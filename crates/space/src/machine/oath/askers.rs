//! Whoever asks the simulated host: each waits for its answer, and asks again when that is due, as the askers of `tidegate
//! bench harm` do on sockets. Nobody knows tickets; who obeys comes back with the same request when it was told to.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sim::chance::Stream;
use tidegate_sim::zoo::model::{Manners, Phases};
use tidegate_sim::zoo::space::{AskerNames, Askers, SpaceScenario};
use tidegate_sim::zoo::tally::CohortTally;

use crate::limits::TIME_MAX;
use crate::machine::request::Refused;
use crate::machine::request_queue::Caller;
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
    pub(super) asked: Timestamp,
    /// How long its asker waits from now on.
    pub(super) patience: Duration,
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
    /// What was refused, and is asked again: when it was due, what it takes, and how often it was refused.
    back: Option<(Timestamp, Duration, u32)>,
}

/// What became of those who came back when they were told to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Returns {
    /// How often somebody came back, and was let in.
    pub(super) came: u32,
    pub(super) let_in: u32,
    /// How often one request was refused at most, and the longest time that somebody was told.
    pub(super) rounds_max: u32,
    pub(super) told_max: Duration,
}

/// All askers of a scenario, and what becomes of their requests.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) people: Vec<Asker>,
    pub(super) tallies: Vec<CohortTally>,
    /// By kind, as the tallies.
    pub(super) returns: Vec<Returns>,
    chance: Stream,
    asked: u64,
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
                people.push(Asker { askers, kind, due, count: 0, last: at(last), back: None });
            }
        }
        let tallies = scenario.askers.iter().map(|_| CohortTally::new(phases, 1)).collect();
        let returns = vec![Returns::default(); scenario.askers.len()];
        Self { people, tallies, returns, chance, asked: 0 }
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.people.iter().filter_map(|asker| asker.due).min()
    }

    /// Somebody who asks now: its place, and what it waits with.
    pub(super) fn poll_due(&mut self, now: Timestamp) -> Option<(usize, HostRequester)> {
        let place = self.people.iter().position(|asker| asker.due.is_some_and(|due| due <= now))?;
        let asker = &mut self.people[place];
        let due = asker.due.take()?;
        let (whose, patience) = (Whose::Asker(place), asker.patience());
        if let Some((due, work, _)) = asker.back {
            return Some((place, HostRequester { whose, due, asked: now, patience, work }));
        }
        asker.count += 1;
        self.tallies[asker.kind].on_offered(nanos(due));
        let takes_ms = asker.askers.takes_ms(place, asker.count);
        let work = Duration::from_secs_f64(takes_ms * 1e-3 * (0.75 + 0.5 * self.chance.unit()));
        Some((place, HostRequester { whose, due, asked: now, patience, work }))
    }

    /// Who somebody is to the space, this time.
    pub(super) fn caller(&mut self, place: usize) -> Caller {
        self.asked += 1;
        let asker = &self.people[place];
        let address = ADDRESSES + asker.kind as u64;
        let (client, household) = match asker.askers.names {
            AskerNames::Own => (place as u64 + 10, 0),
            AskerNames::One => (address, 0),
            AskerNames::EachTime => (NAMES + self.asked, address),
        };
        Caller { client, household, ..Caller::default() }
    }

    pub(super) fn on_answered(
        &mut self,
        now: Timestamp,
        place: usize,
        HostRequester { due, asked, work, .. }: HostRequester,
        outcome: Result<(), &Refused>,
    ) {
        let asker = &mut self.people[place];
        let (tally, returns) = (&mut self.tallies[asker.kind], &mut self.returns[asker.kind]);
        let before = asker.back.take();
        let rounds = before.map_or(0, |(_, _, rounds)| rounds);
        let told = match outcome {
            Err(Refused::Busy(hints)) => hints.retry_after,
            _ => None,
        };
        if rounds > 0 {
            returns.came += 1;
            returns.let_in += u32::from(told.is_none());
        }
        let is_answered = outcome.is_ok();
        if is_answered {
            tally.on_delivered(nanos(due), nanos(now));
        } else {
            tally.on_refused(nanos(asked));
        }
        if let Some(told) = told.filter(|_| asker.askers.manners == Manners::Obeys) {
            (returns.rounds_max, returns.told_max) = (returns.rounds_max.max(rounds + 1), returns.told_max.max(told));
            asker.back = Some((due, work, rounds + 1));
            asker.due = Some(now + told);
            return;
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

impl Asker {
    fn patience(&self) -> Duration {
        self.askers.patience_ms.map_or(TIME_MAX, |millis| Duration::from_millis(millis.into()))
    }
}

/// Numbers of clients: of those that are one, and of those that are somebody else each time.
const ADDRESSES: u64 = 1_000_000;
const NAMES: u64 = 2_000_000;
