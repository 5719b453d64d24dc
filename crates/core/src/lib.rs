#![no_std]
#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod activity;
mod between;
mod burst;
mod cache;
pub mod classes;
mod client_names;
mod close;
mod connect;
mod connection;
mod crowding;
pub mod datagrams;
mod deliver;
mod drain;
pub mod event;
pub mod face;
mod gate;
pub mod glob;
mod handover;
mod input;
pub mod ledger;
mod limits;
pub mod measures;
mod message;
mod name_conflicts;
mod outbox;
mod overdue;
mod parent;
mod passage;
mod patience;
pub mod persist;
mod publish;
mod queue;
mod recording;
pub mod report;
mod resume;
pub mod retained;
mod route;
pub mod sample;
mod session;
pub mod settings;
mod shard;
mod shares;
mod slab;
mod some_time;
mod state;
mod subscribe;
mod subscriptions;
mod tap;
mod timers;
pub mod trace;
mod tree;

pub use between::{Address, Batch, BatchLane, Unread};
pub use connect::{ClientWill, Hello, origin_of};
pub use gate::{Charge, Kind, Memory, Refusal};
pub use gate::{ClassReport, LimitsFull, PublisherReport, RATE_WINDOW, Reading, Whom};
pub use handover::{Confirmation, Misstep};
pub use input::{Ending, Flow, Moment, NotLasting, Portion, ReadStep};
pub use passage::{PassOutcome, Passing, Provenance, Through};
pub use publish::Incoming;
pub use recording::{Arrived, RecordedArrivals, RecordedGroups};
pub use shard::{ConnId, Progress, Shard, Then, shard_of};
pub use state::WillFate;
pub use subscribe::SubscriptionRequest;
pub use tap::{Mapped, Tapped};
