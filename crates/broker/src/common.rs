//! What all threads share: inboxes, counts of seats, and the counters of each shard as last shown.

use std::sync::{Arc, Mutex};

use tidegate_core::event::Stats;

use crate::clock::Clock;
use crate::inbox::{Inbox, lock};
use crate::password::Questions;
use crate::seat::Seats;

/// Shared by all threads of a broker.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) clock: Clock,
    pub(crate) inboxes: Arc<[Inbox]>,
    pub(crate) questions: Arc<Questions>,
    /// Sockets, whatever they are doing.
    pub(crate) connections: Seats,
    /// Those in a handshake.
    pub(crate) handshakes: Seats,
    /// Questions of operators under way.
    pub(crate) asking: Seats,
    /// By shard.
    stats: Vec<Mutex<Stats>>,
}

impl Common {
    pub(crate) fn new(inboxes: Arc<[Inbox]>, questions: Arc<Questions>) -> Self {
        let stats = inboxes.iter().map(|_| Mutex::default()).collect();
        let (connections, handshakes, asking) = (Seats::default(), Seats::default(), Seats::default());
        Self { clock: Clock::start(), inboxes, questions, connections, handshakes, asking, stats }
    }

    /// A shard shows its counters.
    pub(crate) fn show_stats(&self, shard: usize, stats: &Stats) {
        if let Some(shown) = self.stats.get(shard) {
            *lock(shown) = *stats;
        }
    }

    /// All shards' counters together.
    pub(crate) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for shown in &self.stats {
            sum.add(&lock(shown));
        }
        sum
    }
}
