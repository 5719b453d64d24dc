//! Whether every shard's loop still turns: asked by a watchdog, from another thread.
//!
//! A loop that has nothing to do sleeps, so it is knocked at first; one that turns counts its turns. A loop that hangs (in
//! a call that does not return, on a lock) does neither.

use std::sync::Arc;

use crate::common::Common;

/// Asks all shards for a sign of life.
#[derive(Debug)]
pub struct Pulse {
    common: Arc<Common>,
    /// Turns of each shard at the last knock.
    seen: Vec<u64>,
}

impl Pulse {
    pub(crate) fn new(common: Arc<Common>) -> Self {
        let seen = common.turns();
        Self { common, seen }
    }

    /// Asks every shard to turn once.
    pub fn knock(&mut self) {
        self.seen = self.common.turns();
        for inbox in &*self.common.inboxes {
            inbox.wake();
        }
    }

    /// Whether every shard has turned since the last knock.
    pub fn is_answered(&self) -> bool {
        self.common.turns().iter().zip(&self.seen).all(|(now, seen)| now > seen)
    }
}
