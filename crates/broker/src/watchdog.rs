//! Whether every shard's loop still turns: asked by a watchdog, from another thread.
//!
//! A loop that has nothing to do sleeps, so it is knocked at first; one that turns counts its turns. A loop that hangs (in
//! a call that does not return, on a lock) does neither.

use std::sync::Arc;

use crate::shared_state::SharedState;

/// Asks all shards for a sign of life.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<SharedState>,
    /// Turns of each shard at the last knock.
    seen: Vec<u64>,
}

impl Watchdog {
    pub(crate) fn new(shared: Arc<SharedState>) -> Self {
        let seen = shared.turns();
        Self { shared, seen }
    }

    /// Asks every shard to turn once.
    pub fn knock(&mut self) {
        self.seen = self.shared.turns();
        for inbox in &*self.shared.inboxes {
            inbox.wake();
        }
    }

    /// Whether every shard has turned since the last knock.
    pub fn is_answered(&self) -> bool {
        self.shared.turns().iter().zip(&self.seen).all(|(now, seen)| now > seen)
    }
}
