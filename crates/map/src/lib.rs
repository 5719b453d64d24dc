#![doc = include_str!("../README.md")]

mod chain;
mod digits;
mod emit;
mod fault;
mod ingest;
mod keep;
pub mod limits;
mod loss;
mod path;
mod pattern;
mod term;
mod text;

pub use chain::Chain;
pub use emit::{Emit, EmitRule, Message, On};
pub use fault::Fault;
pub use ingest::{Arrived, Edit, Ingest, IngestRule, Mode};
pub use keep::Kept;
pub use loss::Loss;
pub use term::Prefixes;
