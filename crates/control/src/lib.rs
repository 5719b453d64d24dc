#![no_std]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod admission;
pub mod advice;
pub mod analysis;
pub mod appointments;
pub mod claim;
pub mod compact;
pub mod config;
mod draw;
pub mod hints;
mod measure;
pub mod order;
pub mod pacer;
pub mod pressure;
pub mod rank;
pub mod rhythm;
pub mod schedule;
pub mod time;

pub use config::{ConfigError, UnknownName};
pub use measure::Spread;
/// The traits of the generators that functions here take.
pub use rand_core;
pub use time::Timestamp;
