#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

mod attach;
mod condition;
mod door;
mod first;
mod flow;
mod frame;
mod homeless;
mod limits;
mod link;
mod message;
mod outbound;
mod pace;
mod partial;
mod performative;
mod read;
mod reply;
mod session;
#[cfg(test)]
mod tests;
mod transfer;
mod types;
mod write;

pub use door::{AmqpDoor, AmqpStats, Arrival};
pub use first::{AmqpHello, First, Greeting, Offers, Shown, refusal};
pub use link::AmqpLink;
