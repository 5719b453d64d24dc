#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batch;
pub mod limits;
mod machine;
mod message;
pub mod render;
mod status;
mod verdict;

pub use batch::{BatchConfig, BatchPace, BatchVerdict};
pub use machine::{SinkAction, SinkConfig, SinkMachine};
pub use message::{SinkBatch, SinkMessage};
pub use status::{SinkCounts, SinkPhase, SinkStatus};
pub use verdict::SinkVerdict;
