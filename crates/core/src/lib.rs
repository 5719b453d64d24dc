#![no_std]
//! The broker without sockets.

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod event;
pub mod settings;
pub mod shard;

pub use shard::{Batch, ConnId, Hello, Progress, Shard, Then, shard_of};
