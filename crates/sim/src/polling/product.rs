//! The broker that ships: the smart space's own request queue, with its own rules and bounds, in virtual time.

use std::time::Duration;

use tidegate_control::admission::ClassCounts;
use tidegate_control::appointments::TicketKey;
use tidegate_control::{ConfigError, Timestamp};
use tidegate_space::SpaceAdmission;
use tidegate_space::request_queue::{Arrival, Caller, Entered, Job, RequestQueue, Servers, Shape, Taken};

use super::config::Polling;
use super::desk::{Arrival as Fate, Asked, CLASS, Job as AnyJob, Visit, Work};
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
        let servers = Servers { threads: worth as usize, long_max, worth };
        let mut pool = SpaceAdmission::default().pool(worth);
        // A space that has served for a while has learned what a query costs. One that has not takes it for 0.1 ms, and
        // promises places too densely until it knows.
        pool.classes[CLASS.index()].cost_initial = Duration::from_secs_f64(config.host.mean_service(0.0));
        let queue = RequestQueue::new(&pool, servers, TicketKey::new([7; 16]));
        let queue = queue.ok_or_else(|| ConfigError {
            field: "host.servers",
            value: worth.to_string(),
            allowed: "as many as the request queue takes".to_owned(),
        })?;
        Ok(Self { queue, counts: ClassCounts::default(), chance: Stream::of(seed, "broker") })
    }

    pub(super) fn on_request(&mut self, now: Timestamp, asked: &Asked) -> Fate {
        let client = u64::from(asked.asker.client);
        let accepts_tickets = asked.want.is_some();
        let caller = Caller { client, want: asked.want, ticket: asked.ticket, accepts_tickets };
        let hints = self.queue.hints(now, CLASS, &caller);
        let value = Visit { asker: asked.asker, stretch: hints.stretch };
        // Everybody asks the same kind of thing, each about something else.
        let shape = Shape { exact: 0, kind: 1, size: 0 };
        let arrival = Arrival {
            class: CLASS,
            key: asked.key,
            client,
            shape,
            patience: asked.deadline,
            is_promised: false,
            value,
        };
        self.counts.offered += 1;
        match self.queue.offer(now, arrival, &caller, &hints, &mut self.chance) {
            Entered::Waits => {
                self.counts.waiting += 1;
                Fate::Waits
            }
            Entered::Refused(_, told) => {
                self.counts.denied += 1;
                let retry_after = told.retry_after.unwrap_or_default();
                Fate::Denied { retry_after, ticket: told.ticket, stretch: told.stretch }
            }
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Work> {
        let Taken { job, value, joined, queued } = self.queue.take(now)?;
        let taken = 1 + joined.len() as u64;
        self.counts.waiting -= taken;
        self.counts.taken += taken;
        Some(Work { job: AnyJob::Product(job), first: value, joined, queued })
    }

    pub(super) fn forget_ended(&mut self) {
        let ended = self.queue.drain().len() as u64;
        self.counts.waiting -= ended;
        self.counts.expired += ended;
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
