//! A world of any kind, ready to run, and what a run of it will take.

use std::sync::Arc;

use tidegate_core::trace::Trace;

use crate::broker::{self, Publishers};
use crate::coap::{self, Watchers};
use crate::polling::{self, Outcome, Polling};

/// A world ready to run.
#[derive(Clone, Debug, PartialEq)]
pub enum World {
    /// Clients that poll.
    Polling(Box<Polling>),
    /// Publishers, or arrivals that were recorded, before a real shard.
    Broker(Box<Publishers>, Option<Arc<Trace>>),
    /// Clients that watch values by CoAP.
    Coap(Box<Watchers>),
}

impl World {
    /// Runs it.
    pub fn run(&self, seed: u64) -> Result<Outcome, String> {
        match self {
            Self::Polling(config) => polling::run(config, seed).map_err(|error| error.to_string()),
            Self::Broker(config, trace) => broker::run(config, trace.as_ref(), seed),
            Self::Coap(config) => coap::run(config, seed),
        }
    }

    /// Clients or publishers.
    pub(super) fn clients(&self) -> u32 {
        match self {
            Self::Polling(config) => config.clients_count(),
            Self::Broker(config, None) => config.count,
            Self::Broker(_, Some(trace)) => trace.publishers(),
            Self::Coap(config) => config.clients,
        }
    }

    /// Events that a run will take, within a factor of a few: what its share of the time is planned by.
    pub fn work_estimate(&self) -> f64 {
        match self {
            Self::Polling(config) if config.clients.once => f64::from(config.clients_count()) * EVENTS_OF_A_BURST,
            Self::Polling(config) => {
                let clients = f64::from(config.clients_count());
                let checks = (clients / config.clients.interval).min(2.0 * config.host.capacity) * EVENTS_OF_A_CHECK;
                (clients * config.updates.rate + checks) * config.duration
            }
            Self::Broker(_, Some(trace)) => trace.arrivals().len() as f64 * EVENTS_OF_A_MESSAGE,
            Self::Coap(config) => {
                let of_client = config.updates + 1.0 / config.interval;
                f64::from(config.clients) * config.duration * of_client * EVENTS_OF_A_STATE
            }
            Self::Broker(config, None) => {
                let interval = match (config.load, config.capacity) {
                    (Some(load), Some(capacity)) => f64::from(config.count) / (load * capacity),
                    _ => config.interval.mean(),
                };
                f64::from(config.count) * config.duration / interval * EVENTS_OF_A_MESSAGE
            }
        }
    }

    pub(super) fn shorten(&mut self) {
        match self {
            Self::Polling(config) => config.shorten(),
            Self::Broker(config, None) => config.shorten(),
            Self::Broker(_, Some(_)) => {}
            Self::Coap(config) => config.duration = config.warm_up + (config.duration - config.warm_up) / 3.0,
        }
    }

    /// Bytes that a run will need, about.
    pub fn memory_estimate(&self) -> u64 {
        match self {
            Self::Polling(config) => config.memory_estimate(),
            // A session, its connection and a rhythm; a message is remembered to the end.
            Self::Broker(config, None) => {
                u64::from(config.count) * 4096 + (self.work_estimate() / EVENTS_OF_A_MESSAGE) as u64 * 64
            }
            Self::Broker(_, Some(trace)) => u64::from(trace.publishers()) * 4096 + trace.arrivals().len() as u64 * 96,
            // A watcher and the device that it watches.
            Self::Coap(config) => u64::from(config.clients) * 8192,
        }
    }
}

/// Due, sent, arrived, served, answered; denied and due again; given up.
const EVENTS_OF_A_CHECK: f64 = 5.0;
const EVENTS_OF_A_BURST: f64 = 20.0;
const EVENTS_OF_A_MESSAGE: f64 = 3.0;
const EVENTS_OF_A_STATE: f64 = 8.0;
