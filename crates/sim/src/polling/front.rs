//! The broker's side: the request queue that the smart space runs (`product`), or, for comparisons, the pool of the papers
//! with one bound each (`pool`), or a broker of the literature (`rules`). Nothing is decided here.

use std::time::Duration;

use tidegate_control::admission::{Class, ClassCounts, QueryKey};
use tidegate_control::hints::{Asks, Hints};
use tidegate_control::{ConfigError, Timestamp};

use super::config::Polling;
use super::pool::Pool;
use super::product::Product;
use super::rules::{RuleBroker, RuleJob};

/// One attempt of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) client: u32,
    pub(super) attempt: u32,
}

/// An attempt that waits, and what its client is told with the answer.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) asker: Asker,
    pub(super) hints: Hints,
}

/// What a server works on.
#[derive(Debug)]
pub(super) enum Job {
    Pool(tidegate_control::admission::AdmittedJob),
    Product(tidegate_space::request_queue::Job),
    Rule(RuleJob),
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
    Denied(Box<Hints>),
    Dropped,
}

/// What a client brings with a request.
pub(super) struct Asked {
    pub(super) asker: Asker,
    pub(super) class: Class,
    pub(super) asks: Asks,
    /// What it shares with others, if equal queries are to be executed once.
    pub(super) key: Option<QueryKey>,
}

pub(super) enum Front {
    Pool(Box<Pool>),
    Product(Box<Product>),
    Rule(Box<RuleBroker>),
}

impl Front {
    pub(super) fn new(config: &Polling, seed: u64) -> Result<Self, ConfigError> {
        Ok(if let Some(rule) = config.broker.rule {
            Self::Rule(Box::new(RuleBroker::new(config, rule, seed)))
        } else if config.broker.is_product {
            Self::Product(Box::new(Product::new(config, seed)?))
        } else {
            Self::Pool(Box::new(Pool::new(config)?))
        })
    }

    /// A request is at the door.
    pub(super) fn on_request(&mut self, now: Timestamp, asked: &Asked) -> Arrival {
        match self {
            Self::Pool(pool) => pool.on_request(now, asked),
            Self::Product(product) => product.on_request(now, asked),
            Self::Rule(rule) => rule.on_request(now, asked),
        }
    }

    /// What a client is told with its answer, after its request waited for this time.
    pub(super) fn told(&self, hints: &Hints, queued: Duration) -> Hints {
        match self {
            Self::Pool(pool) => pool.told(queued),
            Self::Product(_) => Hints { queued: Some(queued), ..hints.clone() },
            Self::Rule(_) => Hints::default(),
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Work> {
        match self {
            Self::Pool(pool) => pool.take(now),
            Self::Product(product) => product.take(now),
            Self::Rule(rule) => rule.take(now),
        }
    }

    /// Those who were sent away while they waited. Nobody is told that a request expired: its client has given up, or will.
    pub(super) fn sent_away(&mut self) -> Vec<(Asker, Box<Hints>)> {
        match self {
            Self::Pool(pool) => {
                pool.forget_ended();
                Vec::new()
            }
            Self::Product(product) => product.sent_away(),
            Self::Rule(rule) => rule.sent_away(),
        }
    }

    pub(super) fn on_served(&mut self, job: Job, elapsed: Duration) {
        match (self, job) {
            (Self::Pool(pool), Job::Pool(job)) => pool.on_served(job, elapsed),
            (Self::Product(product), Job::Product(job)) => product.on_served(job, elapsed),
            (Self::Rule(rule), Job::Rule(job)) => rule.on_served(job, elapsed),
            // Each gets its own jobs back.
            _ => {}
        }
    }

    /// Seconds of work that wait.
    pub(super) fn backlog(&self, now: Timestamp) -> f64 {
        match self {
            Self::Pool(pool) => pool.backlog(now).as_secs_f64(),
            Self::Product(product) => product.backlog(now).as_secs_f64(),
            Self::Rule(rule) => rule.backlog(),
        }
    }

    pub(super) fn counts(&self) -> ClassCounts {
        match self {
            Self::Pool(pool) => pool.counts(),
            Self::Product(product) => product.counts(),
            Self::Rule(rule) => rule.counts(),
        }
    }
}
