//! What shards say to each other: envelopes, in batches, by way of the driver.
//!
//! Shards of one process trust each other's order: a batch that an inbox has no room for goes back to its sender
//! ([`ShardLinks::take_back`]) and is tried again, so nothing is lost between them while the process lives. [`Envelope`] says
//! for each kind what would be lost with it, because a way to another node may lose what an inbox does not. What such a
//! way needs is in a batch already: the version of its envelopes, the node and shard that it comes from, and times of day
//! instead of times of the process. [`Unread`] says what is refused of a
//! batch that cannot be read.
//!
//! Knows no inbox, no thread and no socket. Inside a shard the others are known by their *position* among the shards of
//! this node, which is dense; addresses are for the way.

mod dispatch;
mod envelope;
mod links;
mod shard_set;
#[cfg(test)]
mod tests;
mod wall;

use alloc::vec::Vec;
use core::fmt;

pub(crate) use envelope::{Envelope, Tried};
pub(crate) use links::ShardLinks;
pub(crate) use shard_set::ShardSet;
pub(crate) use wall::Wall;

/// The version of everything that `envelope.rs` writes. Another number means other bytes: there is no guessing.
pub(crate) const VERSION: u8 = 1;

/// Which shard of which node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node; a broker that is alone is node 0.
    pub node: u32,
    /// Its position among the shards of that node.
    pub shard: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}, shard {}", self.node, self.shard)
    }
}

/// Publications or changes of interest on their way to another shard. Opaque bytes.
#[derive(Debug)]
pub struct Batch {
    version: u8,
    from: Address,
    lane: BatchLane,
    bytes: Vec<u8>,
}

/// What a batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchLane {
    /// Changes of interest: small and rare, and no answer is written before they are taken. An inbox should have room for
    /// these when it has none for messages.
    Interest,
    /// Messages. If the inbox is full they wait here, and publishers with them.
    Messages,
}

impl Batch {
    /// Which shard it comes from.
    pub fn from(&self) -> Address {
        self.from
    }

    /// What it holds.
    pub fn lane(&self) -> BatchLane {
        self.lane
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Why a batch was not taken, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Its envelopes are written in another version, this one: nothing of it was taken.
    Version(u8),
    /// Nobody here knows the shard that it comes from: nothing of it was taken.
    Stranger(Address),
    /// An envelope makes no sense: those before it were taken, and this one and those behind it were not.
    Malformed,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "a batch of version {version}, where {VERSION} is spoken"),
            Self::Stranger(from) => write!(f, "a batch of a shard that is not known here: {from}"),
            Self::Malformed => write!(f, "an envelope that makes no sense"),
        }
    }
}

impl core::error::Error for Unread {}
