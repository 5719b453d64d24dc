#![no_std]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod beacon;
mod endpoint;
mod frame;
mod greet;
mod inbound;
mod limits;
mod link;
mod outbound;
pub mod packet;
mod read;
mod request;
mod topics;
mod write;

pub use beacon::{BeaconAnswer, SnBeacon};
pub use endpoint::{SnEndpoint, SnStats};
pub use topics::PredefinedTopics;
