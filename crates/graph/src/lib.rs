#![doc = include_str!("../README.md")]

mod algebra;
mod dataset;
mod delta;
mod dictionary;
mod encode;
mod error;
mod guard;
mod index;
mod limits;
mod query;
mod text;
mod update;
mod view;

pub use dataset::{DatasetLimits, Snapshot};
pub use delta::Delta;
pub use query::{Query, Results, Row, Rows, Triples};
pub use update::Update;
pub use error::{Error, Limit, Refusal};
pub use limits::{CancelToken, QueryLimits};
