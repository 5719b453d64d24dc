//! The broker's side: for the brokers of the comparisons the request pool, appointment book and stretch advice of
//! `control`, each switched by the scenario; for the preset `product` the request queue that the smart space runs
//! (`product` beside this file).

use std::time::Duration;

use tidegate_control::admission::{
    AdmissionRequest, Class, ClassConfig, ClassCounts, DELAY_UNBOUNDED, Deadlines, OfferOutcome, Policy, PoolConfig,
    QueryKey, RequestPool, TakenRequest,
};
use tidegate_control::advice::{AdviceConfig, Declared, Strain, StretchAdvice};
use tidegate_control::appointments::{
    Appointment, Appointments, AppointmentsConfig, Server, Ticket, TicketKey, Visitor,
};
use tidegate_control::{ConfigError, Timestamp};

use super::config::Polling;
use super::product::Product;
use crate::chance::Stream;

/// One attempt of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) client: u32,
    pub(super) attempt: u32,
}

/// An attempt that waits, and what its client is told with the answer; none to tell what holds then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) asker: Asker,
    pub(super) stretch: Option<f64>,
}

/// What a server works on.
#[derive(Debug)]
pub(super) enum Job {
    Model(tidegate_control::admission::AdmittedJob),
    Product(tidegate_space::request_queue::Job),
}

/// Work for a server.
pub(super) struct Work {
    pub(super) job: Job,
    pub(super) first: Visit,
    pub(super) joined: Vec<Visit>,
    pub(super) queued: Duration,
}

/// What became of an arrival.
pub(super) enum Arrival {
    Waits,
    Denied { retry_after: Duration, ticket: Option<Ticket>, stretch: Option<f64> },
    Dropped,
}

/// What a client brings with a request.
pub(super) struct Asked {
    pub(super) asker: Asker,
    pub(super) deadline: Duration,
    pub(super) ticket: Option<Ticket>,
    /// What it shares with others, if equal queries are to be executed once.
    pub(super) key: Option<QueryKey>,
    /// How often it wants to ask, if it says so; who does keeps appointments, too.
    pub(super) want: Option<Duration>,
}

pub(super) enum Desk {
    Model(Box<Model>),
    Product(Box<Product>),
}

impl Desk {
    pub(super) fn new(config: &Polling, seed: u64) -> Result<Self, ConfigError> {
        Ok(if config.broker.is_product {
            Self::Product(Box::new(Product::new(config, seed)?))
        } else {
            Self::Model(Box::new(Model::new(config, seed)?))
        })
    }

    /// A client that says how often it wants to ask has asked; `is_own` if its own time has come.
    pub(super) fn declare(&mut self, now: Timestamp, session: &mut Declared, want: Duration, is_own: bool) {
        if let Self::Model(model) = self {
            model.declare(session, want);
            if is_own {
                model.on_check(now);
            }
        }
    }

    /// A request is at the door.
    pub(super) fn on_request(&mut self, now: Timestamp, asked: &Asked, idle: bool) -> Arrival {
        match self {
            Self::Model(model) => model.on_request(now, asked, idle),
            Self::Product(product) => product.on_request(now, asked),
        }
    }

    /// What whoever was not told anything at the door is told.
    pub(super) fn stretch(&self, now: Timestamp) -> Option<f64> {
        match self {
            Self::Model(model) => model.stretch(now),
            Self::Product(_) => None,
        }
    }

    /// What a client is told about its own request.
    pub(super) fn queued(&self, queued: Duration) -> Option<Duration> {
        match self {
            Self::Model(model) => model.queued(queued),
            Self::Product(_) => Some(queued),
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Work> {
        match self {
            Self::Model(model) => {
                let TakenRequest { job, value, joined, queued, .. } = model.pool.take(now)?;
                let visit = |asker| Visit { asker, stretch: None };
                let joined = joined.into_iter().map(visit).collect();
                Some(Work { job: Job::Model(job), first: visit(value), joined, queued })
            }
            Self::Product(product) => product.take(now),
        }
    }

    /// Nobody is told that a request expired: its client has given up, or will.
    pub(super) fn forget_ended(&mut self) {
        match self {
            Self::Model(model) => while model.pool.poll_ended().is_some() {},
            Self::Product(product) => product.forget_ended(),
        }
    }

    pub(super) fn on_served(&mut self, job: Job, elapsed: Duration) {
        match (self, job) {
            (Self::Model(model), Job::Model(job)) => model.on_served(job, elapsed),
            (Self::Product(product), Job::Product(job)) => product.on_served(job, elapsed),
            // A desk gets its own jobs back.
            _ => {}
        }
    }

    /// Seconds of work that wait.
    pub(super) fn backlog(&self, now: Timestamp) -> f64 {
        match self {
            Self::Model(model) => model.pool.backlog(CLASS, now).as_secs_f64(),
            Self::Product(product) => product.backlog(now).as_secs_f64(),
        }
    }

    pub(super) fn counts(&self) -> ClassCounts {
        match self {
            Self::Model(model) => model.pool.counts(CLASS),
            Self::Product(product) => product.counts(),
        }
    }
}

pub(super) struct Model {
    pool: RequestPool<Asker>,
    appointments: Option<Appointments>,
    advice: Option<StretchAdvice>,
    reports_queue: bool,
    servers: u32,
    denial_cost: Duration,
    chance: Stream,
}

/// Everybody asks for the same kind of thing.
pub(super) const CLASS: Class = Class::Query;
/// Requests that the pool can take at most; what a scenario calls unbounded.
const ITEMS_MAX: u32 = 16_000_000;

impl Model {
    fn new(config: &Polling, seed: u64) -> Result<Self, ConfigError> {
        let (broker, host) = (&config.broker, &config.host);
        let service = Duration::from_secs_f64(host.mean_service(0.0));
        let class = ClassConfig {
            items_max: broker.queue_items.map_or(ITEMS_MAX, |seconds| (seconds * host.capacity).max(1.0) as u32),
            delay_max: broker.queue_delay.map_or(DELAY_UNBOUNDED, Duration::from_secs_f64),
            waiters_max: ITEMS_MAX,
            policy: if broker.denies { Policy::Deny } else { Policy::TailDrop },
            cost_initial: service,
            answer_cost: service.mul_f64(host.answer_cost),
            ..ClassConfig::default()
        };
        let pool = PoolConfig {
            classes: [class; Class::COUNT],
            deadlines: if broker.deadlines { Deadlines::Enforce } else { Deadlines::Ignore },
            deadline_default: Duration::from_secs_f64(config.clients.request_timeout),
            servers: host.servers,
            shared_max: ITEMS_MAX,
        };
        let denial_cost = Duration::from_secs_f64(host.denial_cost / host.capacity);
        let book =
            AppointmentsConfig { utilisation: broker.book_utilisation, denial_cost, ..AppointmentsConfig::default() };
        let advice = AdviceConfig { margin: broker.advice_margin, ..AdviceConfig::default() };
        let book = broker.appointments.then(|| Appointments::new(&book, TicketKey::new([7; 16]))).transpose()?;
        Ok(Self {
            pool: RequestPool::new(&pool)?,
            appointments: book,
            advice: broker.advice.then(|| StretchAdvice::new(&advice)).transpose()?,
            reports_queue: broker.reports_queue,
            servers: host.servers,
            denial_cost,
            chance: Stream::of(seed, "broker"),
        })
    }

    /// A request is at the door.
    fn on_request(&mut self, now: Timestamp, asked: &Asked, idle: bool) -> Arrival {
        // Equal queries join before anybody is sent away: apart they would cost more.
        if asked.key.is_none()
            && let Some(refused) = self.make_appointment(now, asked, idle)
        {
            return refused;
        }
        let request =
            AdmissionRequest { class: CLASS, key: asked.key, deadline: Some(asked.deadline), value: asked.asker };
        match self.pool.offer(now, request) {
            OfferOutcome::Queued | OfferOutcome::Joined | OfferOutcome::Parked { .. } | OfferOutcome::Immediate(_) => {
                Arrival::Waits
            }
            OfferOutcome::Denied { retry_after, .. } => Arrival::Denied { retry_after, ticket: None, stretch: None },
            OfferOutcome::Dropped { .. } => Arrival::Dropped,
        }
    }

    fn make_appointment(&mut self, now: Timestamp, asked: &Asked, idle: bool) -> Option<Arrival> {
        let book = self.appointments.as_mut()?;
        book.on_backlog(now, self.pool.backlog_total(now));
        let client = asked.asker.client.to_le_bytes();
        // The book is about the host, which has several servers.
        let work = self.pool.cost(CLASS) / self.servers;
        let visitor = Visitor { client: &client, work, ticket: asked.ticket };
        let server = if idle && self.pool.is_empty() { Server::Idle } else { Server::Busy };
        match book.decide(now, &visitor, server, &mut self.chance) {
            Appointment::Admit => None,
            Appointment::Deny { retry_after, ticket } => Some(Arrival::Denied { retry_after, ticket, stretch: None }),
        }
    }

    fn declare(&mut self, session: &mut Declared, want: Duration) {
        if let Some(advice) = &mut self.advice {
            advice.declare(session, want);
        }
    }

    /// A client asks because its own time has come.
    fn on_check(&mut self, now: Timestamp) {
        let strain = self.strain(now);
        if let Some(advice) = &mut self.advice {
            advice.on_check(now, advice.advise(&strain));
        }
    }

    /// What everybody is told.
    fn stretch(&self, now: Timestamp) -> Option<f64> {
        self.advice.as_ref().map(|advice| advice.advise(&self.strain(now)))
    }

    fn strain(&self, now: Timestamp) -> Strain {
        self.appointments.as_ref().map_or_else(Strain::default, |book| Strain {
            denials: self.denial_cost.mul_f64(book.refused()),
            wait: book.wait(now),
        })
    }

    /// What a client is told about its own request.
    fn queued(&self, queued: Duration) -> Option<Duration> {
        self.reports_queue.then_some(queued)
    }

    fn on_served(&mut self, job: tidegate_control::admission::AdmittedJob, elapsed: Duration) {
        self.pool.on_served(job, elapsed);
        if let Some(advice) = &mut self.advice {
            advice.on_served(elapsed / self.servers);
        }
    }
}
