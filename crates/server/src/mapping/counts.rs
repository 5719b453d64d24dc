//! What became of messages and solutions.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_map::Loss;

/// Counters of the maps.
#[derive(Debug, Default)]
pub struct MapCounts {
    ingested: AtomicU64,
    emitted: AtomicU64,
    losses: [AtomicU64; Loss::ALL.len()],
}

impl MapCounts {
    /// A message has changed the space, as far as there was something to change.
    pub(super) fn ingested(&self) {
        self.ingested.fetch_add(1, Ordering::Relaxed);
    }

    /// A solution was given to the broker to be published.
    pub(super) fn emitted(&self) {
        self.emitted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, loss: Loss) {
        if let Some(count) = self.losses.get(loss.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Names and values.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        // Two are counted by the shards.
        let own = |loss: &&Loss| !matches!(loss, Loss::QueueFull | Loss::PublishDenied);
        let losses = Loss::ALL.iter().filter(own);
        let losses = losses.map(|loss| (loss.name(), self.losses[loss.index()].load(Ordering::Relaxed)));
        let done = [("map_ingested", &self.ingested), ("map_emitted", &self.emitted)];
        done.map(|(name, count)| (name, count.load(Ordering::Relaxed))).into_iter().chain(losses).collect()
    }
}
