#![doc = include_str!("../README.md")]

mod dataset;
mod delta;
mod dictionary;
mod encode;
mod error;
mod index;
mod limits;
mod text;
mod view;

pub use dataset::{DatasetLimits, Snapshot};
pub use delta::Delta;
pub use error::{Error, Limit, Refusal};
pub use limits::{CancelToken, QueryLimits};
