//! The brokers of the comparisons: the request pool of the papers (`control::admission`), first come, first served, with a
//! bound of items or of delay, that denies or drops. It knows no appointments and gives no advice; those are the product's.

use std::time::Duration;

use tidegate_control::admission::{
    AdmissionRequest, AdmittedJob, Class, ClassConfig, ClassCounts, DELAY_UNBOUNDED, Deadlines, OfferOutcome, Policy,
    PoolConfig, RequestPool, TakenRequest,
};
use tidegate_control::hints::Hints;
use tidegate_control::{ConfigError, Timestamp};

use super::config::Polling;
use super::front::{Arrival, Asked, Asker, Job as AnyJob, Visit, Work};

pub(super) struct Pool {
    requests: RequestPool<Asker>,
    reports_queue: bool,
    permitted: Option<Duration>,
}

/// Everybody asks for the same kind of thing.
const CLASS: Class = Class::Query;
/// Requests that the pool can take at most; what a scenario calls unbounded.
const ITEMS_MAX: u32 = 16_000_000;

impl Pool {
    pub(super) fn new(config: &Polling) -> Result<Self, ConfigError> {
        let (broker, host) = (&config.broker, &config.host);
        let service = Duration::from_secs_f64(host.mean_service(0.0));
        let class = ClassConfig {
            items_max: broker.queue_items.map_or(ITEMS_MAX, |seconds| (seconds * host.capacity).max(1.0) as u32),
            delay_max: broker.queue_delay.map_or(DELAY_UNBOUNDED, Duration::from_secs_f64),
            waiters_max: ITEMS_MAX,
            policy: if broker.denies { Policy::Deny } else { Policy::TailDrop },
            cost_initial: service,
            ..ClassConfig::default()
        };
        let pool = PoolConfig {
            classes: [class; Class::COUNT],
            deadlines: if broker.deadlines { Deadlines::Enforce } else { Deadlines::Ignore },
            deadline_default: Duration::from_secs_f64(config.clients.request_timeout),
            servers: host.servers,
            shared_max: ITEMS_MAX,
        };
        let permitted = broker.permitted.map(Duration::from_secs_f64);
        Ok(Self { requests: RequestPool::new(&pool)?, reports_queue: broker.reports_queue, permitted })
    }

    pub(super) fn on_request(&mut self, now: Timestamp, asked: &Asked) -> Arrival {
        let request = AdmissionRequest { class: CLASS, key: None, deadline: asked.asks.deadline, value: asked.asker };
        match self.requests.offer(now, request) {
            OfferOutcome::Queued | OfferOutcome::Joined | OfferOutcome::Parked { .. } | OfferOutcome::Immediate(_) => {
                Arrival::Waits
            }
            OfferOutcome::Denied { retry_after, .. } => {
                Arrival::Denied(Box::new(Hints { retry_after: Some(retry_after), ..Hints::default() }))
            }
            OfferOutcome::Dropped { .. } => Arrival::Dropped,
        }
    }

    pub(super) fn told(&self, queued: Duration) -> Hints {
        let queued = self.reports_queue.then_some(queued);
        Hints { queued, permitted: self.permitted, ..Hints::default() }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Work> {
        let TakenRequest { job, value, joined, queued, .. } = self.requests.take(now)?;
        let visit = |asker| Visit { asker, hints: Hints::default() };
        let joined = joined.into_iter().map(visit).collect();
        Some(Work { job: AnyJob::Pool(job), first: visit(value), joined, queued })
    }

    pub(super) fn forget_ended(&mut self) {
        while self.requests.poll_ended().is_some() {}
    }

    pub(super) fn on_served(&mut self, job: AdmittedJob, elapsed: Duration) {
        self.requests.on_served(job, elapsed);
    }

    pub(super) fn backlog(&self, now: Timestamp) -> Duration {
        self.requests.backlog(CLASS, now)
    }

    pub(super) fn counts(&self) -> ClassCounts {
        self.requests.counts(CLASS)
    }
}
