//! What goes into the pool and what comes out: requests, and everything that can become of them.

use alloc::vec::Vec;
use core::time::Duration;

use super::Class;
use crate::config::named;
use crate::time::Timestamp;

/// Names equal queries: a hash of the canonical text and of what the client may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryKey(pub u128);

/// A request as it arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionRequest<T> {
    /// The class in whose queue the request waits.
    pub class: Class,
    /// Equal keys of a class may be answered by one execution.
    pub key: Option<QueryKey>,
    /// How long the client will wait, from now.
    pub deadline: Option<Duration>,
    /// Whatever the caller needs to serve it.
    pub value: T,
}

/// What became of an offer.
#[derive(Debug, PartialEq)]
#[must_use = "a request that was given back is to be answered, or its client waits for nothing"]
pub enum OfferOutcome<T> {
    /// The request waits.
    Queued,
    /// It waits with an equal one.
    Joined,
    /// It is parked; with things as they are it will be served at this time.
    Parked {
        /// The estimate.
        until: Timestamp,
    },
    /// Serve it at once: control traffic does not queue.
    Immediate(T),
    /// It was refused; the client is to be told why and when to come back.
    Denied {
        /// The request, given back.
        value: T,
        /// Why the request was denied.
        reason: ShedReason,
        /// When the queue will have room, as far as is known.
        retry_after: Duration,
    },
    /// It was dropped without a word, by the policy of its class.
    Dropped {
        /// The request, given back.
        value: T,
        /// Why the request was dropped.
        reason: ShedReason,
    },
}

named! {
    "shed reason";
    /// Why a request was not served.
    pub enum ShedReason {
        /// The queue holds as much work as its delay bound permits, or as many requests as it may.
        #[default]
        QueueFull = "queue-full",
        /// It could not have been answered before its deadline.
        DeadlineHopeless = "deadline-hopeless",
        /// Its deadline passed while it waited.
        Expired = "expired",
        /// It made room for a newer one.
        Displaced = "displaced",
    }
}

/// A request that ended in the queue.
#[derive(Debug, PartialEq)]
pub struct EndedRequest<T> {
    /// The class of the request.
    pub class: Class,
    /// The request, given back.
    pub value: T,
    /// [`ShedReason::Expired`] or [`ShedReason::Displaced`].
    pub reason: ShedReason,
}

/// Work for a server.
#[derive(Debug, PartialEq)]
#[must_use = "a job that is not handed back stays in service for ever"]
pub struct TakenRequest<T> {
    /// Hand it back with [`RequestPool::on_served`](super::RequestPool::on_served) or
    /// [`RequestPool::on_cancelled`](super::RequestPool::on_cancelled).
    pub job: AdmittedJob,
    /// The request to execute.
    pub value: T,
    /// Equal requests that get the same answer, in order of arrival.
    pub joined: Vec<T>,
    /// How long the request waited: `pace-queued-ms`.
    pub queued: Duration,
}

/// A piece of work under way. Not `Clone`: each is finished once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a job that is not handed back stays in service for ever"]
pub struct AdmittedJob {
    pub(super) class: Class,
    /// Recipients of the answer beside the first.
    pub(super) joined: u32,
    /// When it should end: its name in [`ServerPool`](super::service::ServerPool).
    pub(super) end: u64,
}

/// What has happened to the requests of a class. Always: `offered = denied + dropped + expired + displaced + taken + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Requests offered.
    pub offered: u64,
    /// Refused at the door.
    pub denied: u64,
    /// Dropped at the door.
    pub dropped: u64,
    /// Late, dropped from the queue.
    pub expired: u64,
    /// Dropped from the queue for a newer one.
    pub displaced: u64,
    /// Handed to a server, or served at once.
    pub taken: u64,
    /// Waiting or parked now.
    pub waiting: u64,
}
