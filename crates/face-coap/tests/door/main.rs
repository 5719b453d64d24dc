//! What a client of CoAP sees, datagram by datagram, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod blocks;
mod messages;
mod observing;
mod publishing;
mod world;
