#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod counts;
mod greeting;
mod hops;
mod lane;
pub mod limits;
mod machine;
mod pace;
mod packet_ids;
mod topics;
mod wire_end;

pub use config::{BridgeConfig, SpoolKeep};
pub use counts::BridgeCounts;
pub use hops::HOPS_PROPERTY;
pub use machine::{BridgeAction, BridgeMachine, BridgePhase, BridgeSide, BridgeStatus};
pub use pace::{DrainPace, PaceConfig, PaceVerdict};
pub use topics::{BridgeTopic, TopicDirection, TopicMap, TopicMapFault};
