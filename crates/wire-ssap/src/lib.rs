#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

extern crate alloc;

mod answer;
mod fault;
mod header;
pub mod limits;
mod message;
mod request;
mod results;
mod scan;
mod triple;
mod write;
mod xml;

pub use answer::{AnswerWriter, ReceivedReply, SEQUENCE_MAX};
pub use fault::SsapFault;
pub use header::{Kind, SsapHeader, Status, Transaction};
pub use message::{Parameter, SsapMessage};
pub use request::{Graph, SsapQuery, SsapRequest};
pub use results::{RowWriter, SsapResults, SsapValue, write_boolean};
pub use scan::{Scanned, Scanner};
pub use triple::{Triple, TripleNode, read_triples, write_triples};
