#![doc = include_str!("../README.md")]

mod additions;
mod chain;
mod digits;
mod emit;
mod fault;
mod ingest;
pub mod limits;
mod loss;
mod path;
mod pattern;
mod term;
mod text;

pub use additions::Additions;
pub use chain::Chain;
pub use emit::{Emit, EmitOn, EmitRule, EmittedMessage};
pub use fault::MapFault;
pub use ingest::{Edit, IncomingMessage, Ingest, IngestMode, IngestRule};
pub use loss::Loss;
pub use term::Prefixes;
