//! The codec from outside: what is written reads back, however it is cut, mangled or copied.
#![allow(clippy::unwrap_used, reason = "a test; the exemption for tests does not reach their helpers")]

mod conformance;
mod fan_out;
mod faults;
mod generate;
mod malformed;
mod mutate;
mod round_trip;
mod split;
