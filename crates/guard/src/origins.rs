//! Who published last at a topic, and how that stood. The other broker does not say whose a message is: by its topic it is
//! known again when it comes back for a receiver.
//!
//! A table of a fixed size that all shards share, without locks. A topic whose place is taken by another is a topic of which
//! nothing is known; numbers of two publishers may mix for a moment, and then two share a flow. Nothing else depends on it.

use alloc::boxed::Box;
use core::hash::BuildHasher;
use core::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;
use tidegate_core::Provenance;

/// Places: at 24 bytes each, 1.5 MiB.
const PLACES: usize = 1 << 16;

/// The table.
#[derive(Debug)]
pub struct Origins {
    hasher: FixedState,
    places: Box<[Place]>,
}

#[derive(Debug, Default)]
struct Place {
    topic: AtomicU64,
    origin: AtomicU64,
    standing: AtomicU64,
}

impl Origins {
    /// An empty one. The seed is drawn at each start, and told to nobody: topics are chosen by clients.
    pub fn new(seed: u64) -> Self {
        let places = (0..PLACES).map(|_| Place::default()).collect();
        Self { hasher: FixedState::with_seed(seed), places }
    }

    /// The number of a topic.
    pub(crate) fn number(&self, topic: &[u8]) -> u64 {
        self.hasher.hash_one(topic).max(1)
    }

    /// Somebody has published at this topic.
    pub(crate) fn note(&self, topic: u64, provenance: Provenance) {
        let place = &self.places[topic as usize % PLACES];
        place.topic.store(topic, Ordering::Relaxed);
        place.origin.store(provenance.origin, Ordering::Relaxed);
        place.standing.store(provenance.standing, Ordering::Relaxed);
    }

    /// Who has; the topic itself, without a claim, if that is not known.
    pub(crate) fn find(&self, topic: u64) -> Provenance {
        let place = &self.places[topic as usize % PLACES];
        if place.topic.load(Ordering::Relaxed) != topic {
            return Provenance::unknown(topic);
        }
        Provenance { origin: place.origin.load(Ordering::Relaxed), standing: place.standing.load(Ordering::Relaxed) }
    }
}
