#![no_std]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
mod acks;
mod aliases;
mod between;
mod burst;
mod cache;
pub mod classes;
mod close;
mod connect;
mod connection;
mod copy;
mod deliver;
mod drain;
pub mod event;
mod gate;
pub mod glob;
mod input;
pub mod ledger;
mod limits;
pub mod measures;
mod message;
mod outbox;
mod overdue;
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
mod session;
pub mod settings;
mod shard;
mod shares;
mod slab;
mod state;
mod subscribe;
mod subscriptions;
mod tap;
mod timers;
pub mod trace;
mod tree;

pub use between::{Address, Batch, Lane, Unread};
pub use gate::{ClassReport, LimitsFull, PublisherReport, RATE_WINDOW, Reading, Whom};
pub use input::Portion;
pub use recording::{Arrivals, Arrived};
pub use shard::{ConnId, Hello, Progress, Shard, Then, shard_of};
pub use tap::{Mapped, Tapped};
