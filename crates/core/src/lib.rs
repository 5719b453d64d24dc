#![no_std]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
mod acks;
mod aliases;
mod burst;
mod cache;
mod caps;
pub mod classes;
mod classify;
mod close;
mod connect;
mod connection;
mod copy;
mod deliver;
mod drain;
mod envelope;
pub mod event;
pub mod glob;
mod input;
pub mod ledger;
mod limits;
pub mod measures;
mod message;
mod outbox;
mod overload;
mod parent;
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
mod saturated;
mod session;
pub mod settings;
pub mod shard;
mod shares;
mod slab;
mod subscribe;
mod subscriptions;
mod tap;
mod timers;
pub mod trace;
mod tree;

pub use classify::ClassReport;
pub use input::Portion;
pub use overload::{LimitsFull, PublisherReport, RATE_WINDOW, Reading, Whom};
pub use recording::{Arrivals, Arrived};
pub use shard::{Batch, ConnId, Hello, Lane, Progress, Shard, Then, shard_of};
pub use tap::{Mapped, Tapped};
