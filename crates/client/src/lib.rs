#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

extern crate alloc;

#[cfg(feature = "std")]
mod driver;
#[cfg(feature = "std")]
mod error;
pub mod limits;
mod prelude;
pub mod session;

#[cfg(feature = "std")]
pub use driver::{
    Events, Mqtt, MqttStats, PersistentQuery, PublishAck, PublishError, QueryBuilder, Space, SpaceConfig, SpaceStats,
};
#[cfg(feature = "std")]
pub use error::Error;
pub use session::event::{ClientEvent, EventKind};
pub use session::mqtt::{BacklogPolicy, MqttConfig, MqttMessage};
pub use session::row::{Delta, Row, Term, View};
pub use session::watch::{ChangeSource, ResultChange, WatchCounts, WatchStats};
pub use tidegate_control::ConfigError;
pub use tidegate_control::pacer::{AstStep, DetectorRule, InitialRule, Level, PacerConfig, Parameter, Preset};
pub use tidegate_wire_mqtt::{QoS, ReasonCode};
pub use tidegate_wire_ssap::{Triple, TripleNode};

/// The guide for users of this crate: its code is compiled with the doc tests.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../../../docs/sdk.md")]
struct Guide;
