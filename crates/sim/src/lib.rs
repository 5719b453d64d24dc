#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

pub mod broker;
pub mod chance;
pub mod coap;
pub mod experiment;
pub mod histogram;
pub mod polling;
pub mod report;
pub mod scenario;
pub mod statistics;
pub mod what_if;
pub mod wheel;
pub mod zoo;
