#![doc = include_str!("../README.md")]

mod algebra;
mod dataset;
mod delta;
mod dictionary;
mod encode;
mod error;
mod follow;
mod form;
mod guard;
mod index;
mod journal;
mod limits;
mod masks;
mod plan;
mod product;
mod query;
mod rows;
mod rules;
mod space;
mod standing;
mod subscriber;
mod text;
mod update;
mod view;

pub use dataset::{DatasetLimits, Snapshot};
pub use delta::Delta;
pub use error::{Error, Limit, Refusal};
pub use journal::JournalLimits;
pub use limits::{CancelToken, QueryLimits};
pub use masks::{Mask, MaskGraph};
pub use query::{Query, Results, Row, Rows, Triples};
pub use rows::ResultDelta;
pub use rules::RuleId;
pub use space::{Baseline, Check, Outcome, Space, SpaceLimits, Subscribed, SubscriberId};
pub use subscriber::{Event, Notification, QueueLimits};
pub use update::Update;
