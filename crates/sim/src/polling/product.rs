//! The broker that ships: the smart space's own request queue, with its own rules, bounds and first guesses, in virtual time.
//!
//! The space has such a queue for the thread that writes and one for those that read; the modelled host has one, with as many
//! servers as the scenario says, for whatever clients ask.

use std::time::Duration;

use tidegate_control::admission::ClassCounts;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_control::{ConfigError, Timestamp};
use tidegate_space::request_queue::{
    Arrival, Caller, EndedWait, Entered, Job, KpPlace, RequestQueue, Servers, Shape, Taken, WaitTerms,
};
use tidegate_space::{SpaceAdmission, limits};

use super::config::Polling;
use super::front::{Arrival as Fate, Asked, Asker, Job as AnyJob, Visit, Work};
use crate::chance::Stream;

pub(super) struct Product {
    queue: RequestQueue<Visit>,
    counts: ClassCounts,
    chance: Stream,
}

impl Product {
    pub(super) fn new(config: &Polling, seed: u64) -> Result<Self, ConfigError> {
        let worth = config.host.servers.max(1);
        // Of the space's four readers two may be busy with what takes long.
        let long_max = (worth as usize).div_ceil(2);
        let servers = Servers { threads: worth as usize, long_max, worth, apart_max: 0 };
        let mut admission = SpaceAdmission::default();
        if let Some(delay) = config.broker.queue_delay {
            admission.query.delay_max = Duration::from_secs_f64(delay);
            admission.check.delay_max = admission.query.delay_max;
        }
        let queue = RequestQueue::new(&admission.pool(worth), servers, TicketKey::new([7; 16]));
        let queue = queue.ok_or_else(|| ConfigError {
            field: "host.servers",
            value: worth.to_string(),
            allowed: "as many as the request queue takes".to_owned(),
        })?;
        Ok(Self { queue, counts: ClassCounts::default(), chance: Stream::of(seed, "broker") })
    }

    pub(super) fn on_request(&mut self, now: Timestamp, asked: &Asked) -> Fate {
        let (client, class) = (u64::from(asked.asker.client), asked.class);
        let caller = Caller::new(client, &asked.asks);
        let hints = self.queue.hints(now, class, &caller);
        // Everybody asks the same kinds of things, each about something else.
        let shape = Shape { exact: 0, kind: class.index() as u64 + 1, size: 0, own: 0 };
        let patience = asked.asks.deadline.unwrap_or(limits::TIME_MAX).clamp(limits::TIME_MIN, limits::TIME_MAX);
        let arrival = Arrival {
            class,
            key: asked.key,
            kp: KpPlace::default(),
            check: None,
            shape,
            patience,
            terms: WaitTerms::default(),
            value: Visit { asker: asked.asker, hints: hints.clone() },
        };
        self.counts.offered += 1;
        match self.queue.offer(now, arrival, &caller, &hints, &mut self.chance) {
            Entered::Waits => {
                self.counts.waiting += 1;
                Fate::Waits
            }
            Entered::Refused(_, told) => {
                self.counts.denied += 1;
                Fate::Denied(told)
            }
            // Not by the policies of this pool.
            Entered::Dropped(_) => Fate::Denied(Box::new(hints)),
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Work> {
        let Taken { job, value, joined, queued } = self.queue.take(now)?;
        let taken = 1 + joined.len() as u64;
        self.counts.waiting -= taken;
        self.counts.taken += taken;
        Some(Work { job: AnyJob::Product(job), first: value, joined, queued })
    }

    /// Those who were sent away while they waited, and what they are told. Nobody is told that a request expired.
    pub(super) fn sent_away(&mut self) -> Vec<(Asker, Box<Hints>)> {
        let mut sent_away = Vec::new();
        for ended in self.queue.drain() {
            self.counts.waiting -= 1;
            match ended {
                EndedWait::Late(_) => self.counts.expired += 1,
                EndedWait::Outdated(_) | EndedWait::Dropped(_) => self.counts.displaced += 1,
                EndedWait::SentAway(visit, place) => {
                    self.counts.denied += 1;
                    sent_away.push((visit.asker, Box::new(place.with_pace_of(&visit.hints))));
                }
            }
        }
        sent_away
    }

    pub(super) fn on_served(&mut self, job: Job, elapsed: Duration) {
        self.queue.served(job, elapsed);
    }

    pub(super) fn backlog(&self, now: Timestamp) -> Duration {
        self.queue.backlog(now)
    }

    pub(super) fn counts(&self) -> ClassCounts {
        self.counts
    }
}
