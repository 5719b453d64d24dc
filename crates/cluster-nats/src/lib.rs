#![doc = include_str!("../README.md")]

mod carrier;
mod engine;
mod folder;
mod follower;
mod mirror;
mod standby;

pub use carrier::Carrier;
pub use engine::{ClusterError, EngineOptions, EngineUser};
pub use standby::{Membership, News, stand_by};
