#![doc = include_str!("../README.md")]

mod access;
mod carrier;
mod engine;
mod folder;
mod follower;
mod look;
mod mirror;
mod standby;
mod view;

pub use access::AccessFile;
pub use carrier::{Carrier, Lag};
pub use engine::{ClusterError, EngineOptions, EngineUser};
pub use standby::{Membership, News, stand_by};
pub use tidegate_cluster::{Ending, HandOver, Reason};
pub use view::{ClusterView, CopyView, NodeView, forget, look};
