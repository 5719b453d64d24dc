//! What a client of HTTP sees, byte by byte, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod publishing;
mod requests;
mod streams;
mod world;
