//! Sockets, clock and chance, on tokio. What to do is decided in [`session`](crate::session).

pub(crate) mod address;
mod events;
mod http;
mod idle;
mod mqtt;
mod outlet;
mod query;
mod query_task;
mod retry;
mod socket;
mod space;
mod ssap;
mod tls;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_control::Timestamp;
use tidegate_wire_ssap::Triple;
use tokio::time::Instant;

pub use events::Events;
pub use mqtt::{Mqtt, MqttStats, PublishAck, PublishError};
pub use query::{PersistentQuery, QueryBuilder};
pub use retry::SpaceStats;
pub use space::{Space, SpaceConfig};

use crate::session::row::Row;

/// A query, as SPARQL or as triple patterns.
#[derive(Clone, Debug)]
pub(crate) enum SpaceQuery {
    Sparql(Arc<str>),
    Patterns(Arc<[Triple<'static>]>),
}

/// The answer to a check.
#[derive(Debug)]
pub(crate) enum CheckAnswer {
    Whole { rows: Vec<Row>, version: Option<Box<str>>, hints: tidegate_control::hints::Hints },
    NotModified { hints: tidegate_control::hints::Hints },
}

/// A clock that begins with zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverClock(Instant);

impl DriverClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.0.elapsed()
    }

    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.0 + at.since(Timestamp::ZERO).min(FAR)
    }
}

/// Beyond any delay, and within what a clock can say.
const FAR: std::time::Duration = std::time::Duration::from_secs(365 * 86_400);

/// Chance from the operating system: clients that start together must not draw the same.
pub(crate) fn chance() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(std::hash::RandomState::new().build_hasher().finish())
}
