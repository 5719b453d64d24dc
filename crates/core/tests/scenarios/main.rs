//! The broker's behaviour in virtual time, without sockets: what a client sends, what it gets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod backoff;
mod backoff_abuse;
mod ledger;
mod model;
mod net;
mod qos;
mod retained;
mod session;
mod shards;
mod subscribing;
