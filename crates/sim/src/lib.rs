#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod broker;
pub mod chance;
pub mod experiment;
pub mod histogram;
pub mod polling;
pub mod report;
pub mod scenario;
pub mod statistics;
pub mod wheel;
pub mod zoo;
