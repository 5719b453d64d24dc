#![no_std]
#![forbid(unsafe_code)]
//! Tidegate's control library.

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod analysis;
pub mod config;
mod draw;
pub mod rank;
pub mod schedule;
pub mod time;

pub use config::{ConfigError, UnknownName};
pub use time::Timestamp;
