#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

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

pub use answer::{Answer, Reply, SEQUENCE_MAX};
pub use fault::Fault;
pub use header::{Header, Kind, Status, Transaction};
pub use message::{Message, Parameter};
pub use request::{Graph, Question, Request};
pub use results::{Results, RowWriter, Value, write_boolean};
pub use scan::{Scanned, Scanner};
pub use triple::{Node, Triple, read_triples, write_triples};
