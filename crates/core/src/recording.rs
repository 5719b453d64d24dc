//! Writing down when messages came, for whoever wants to know what other settings would have done with them.
//!
//! What is written down has no name, no topic and no payload: only who is who, and which topic is which, by numbers that
//! whoever tells it further has to replace; and which of the groups of clients that were asked about. Nothing is written down unless somebody fetches it: a recording ends by itself
//! when that stops. What finds no room is counted.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;

use crate::glob::Glob;
use crate::limits::{RECORDED_MAX, RECORDING_LEASE};
use crate::message::Publication;
use crate::state::ShardState;

/// A message that came from a client, whatever became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When, as far as is known.
    pub at: Timestamp,
    /// Who; the same for all messages of a client.
    pub publisher: u64,
    /// Where to; the same for all messages of a topic.
    pub topic: u64,
    pub topic_bytes: u16,
    /// Bytes of what it says.
    pub payload_bytes: u32,
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// The first group that its client belongs to, counted from 1; 0 for none.
    pub group: u8,
}

/// Groups of clients that a recording tells apart, by patterns of their identifiers.
pub type RecordedGroups = Arc<[Glob]>;

/// What was written down since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedArrivals {
    /// In the order in which they were handled.
    pub arrived: Vec<Arrived>,
    /// Messages that found no room.
    pub missed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Until when, unless somebody asks again.
    until: Option<Timestamp>,
    seed: u64,
    groups: RecordedGroups,
    arrivals: RecordedArrivals,
}

impl Recording {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

impl ShardState {
    pub(crate) fn take_arrivals(&mut self, seed: u64, groups: &RecordedGroups, now: Timestamp) -> RecordedArrivals {
        if self.recording.seed != seed {
            self.recording = Recording { seed, groups: Arc::clone(groups), ..Recording::default() };
        }
        self.recording.until = Some(now + RECORDING_LEASE);
        core::mem::take(&mut self.recording.arrivals)
    }

    #[cold]
    pub(crate) fn record(&mut self, session: u32, publication: &Publication<'_>, at: Timestamp, now: Timestamp) {
        let client_id = self.sessions.get(session).map(|session| &**session.client_id());
        let recording = &mut self.recording;
        if recording.until.is_some_and(|until| until <= now) {
            *recording = Recording::default();
            return;
        }
        if recording.arrivals.arrived.len() >= RECORDED_MAX {
            recording.arrivals.missed += 1;
            return;
        }
        let is_of = |group: &Glob| client_id.is_some_and(|client_id| group.matches(client_id));
        let group = recording.groups.iter().position(is_of).map_or(0, |place| place as u8 + 1);
        let hash = FixedState::with_seed(recording.seed);
        recording.arrivals.arrived.push(Arrived {
            at,
            publisher: hash.hash_one(publication.origin),
            topic: hash.hash_one(publication.topic),
            topic_bytes: u16::try_from(publication.topic.len()).unwrap_or(u16::MAX),
            payload_bytes: u32::try_from(publication.payload.len()).unwrap_or(u32::MAX),
            qos: publication.qos,
            retain: publication.retain,
            group,
        });
    }
}
