#![doc = include_str!("../README.md")]

mod care;
mod compact;
mod config;
pub mod disk;
mod error;
mod file;
mod frame;
mod gather;
pub mod limits;
mod log;
mod metrics;
mod read;
pub mod records;
mod repair;
mod replay;
mod report;
mod scan;
mod vital;
mod writer;

pub use care::{backup, backup_online, check, restore};
pub use compact::{Compacted, Job, Kept, Sink, State};
pub use config::{StoreConfig, StoreReport};
pub use error::{StoreError, Trouble};
pub use file::{FORMAT, FileId, HEADER_BYTES, Location};
pub use frame::{Batch, FRAME_BYTES, RawRecord};
pub use log::{Log, LogOptions, Position};
pub use metrics::{LogMetrics, SyncTimes};
pub use read::Reader;
pub use report::RecoveryReport;
pub use vital::Vital;
pub use writer::{Done, Durability, Health, Producer, Readers, Refusal, Sealed, Writer, WriterMetrics, WriterOptions};
