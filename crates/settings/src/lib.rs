//! Settings, whatever they are for: the broker's configuration and the laboratory's scenarios are read by the same code.
//!
//! A text of TOML, an environment variable or a flag becomes a [`ConfigEntry`]: a path, a value as it was written, and where it
//! was written. What a value may be is a [`setting::Setting`], or a range that a table of keys gives to [`ConfigValue`].
//! Everything that is wrong becomes a [`ConfigProblem`] with its place, all of them at once. Which keys there are, and what they
//! change, is not known here.

mod document;
mod fields;
mod problem;
mod ranges;
pub mod setting;
pub mod suggest;
pub mod units;
mod value;

pub use document::Document;
pub use fields::{ConfigEntry, Fields, read_fields};
pub use problem::{ConfigProblem, Origin, Problems};
pub use value::ConfigValue;
