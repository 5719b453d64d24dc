#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

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
mod mark;
mod metrics;
mod read;
mod repair;
mod replay;
mod report;
mod reserve;
mod room;
mod scan;
mod trouble_memory;
mod vital;
mod writer;

pub use care::{backup, backup_online, check, restore};
pub use compact::{Compacted, CompactionJob, LogState, Placement, SnapshotSink};
pub use config::{StoreConfig, StoreReport};
pub use error::{DiskTrouble, StoreError};
pub use file::{FORMAT, FileId, HEADER_BYTES, Location};
pub use frame::{FRAME_BYTES, RawRecord, RecordBatch};
pub use log::{Log, LogOptions, Position};
pub use metrics::{LogMetrics, SyncTimes};
pub use read::RecordReader;
pub use report::RecoveryReport;
pub use room::{LogRoom, LogUsage, MARGIN_BYTES_MAX, RESERVE_BYTES_MAX};
pub use trouble_memory::{TroubleMemory, TroubleNews};
pub use vital::VitalThread;
pub use writer::{
    BatchRefusal, Durability, Health, KeptBatch, LogWriter, Producer, RecordReaders, Sealed, WriterMetrics,
    WriterOptions,
};
