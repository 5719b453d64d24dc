//! What a client of MQTT-SN sees, datagram by datagram, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod codec;
mod connecting;
mod delivering;
mod harm;
mod publishing;
mod sleeping;
mod subscribing;
mod wills;
mod world;
