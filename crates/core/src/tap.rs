//! Messages that somebody outside wants to see, whoever else gets them: the maps to the smart space. And the way back:
//! messages that a map publishes.
//!
//! A tap is no subscriber. It costs a topic one look when its route is found, it never slows a publisher, and what finds
//! no room is counted. A message is seen once, by the shard of its publisher.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Properties, QoS, topic};

use crate::access::{Action, Identity};
use crate::limits::TAPPED_BYTES_MAX;
use crate::message::{Precedence, Publication};
use crate::state::ShardState;

/// A message that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    pub topic: Box<str>,
    /// What it says.
    pub payload: Box<[u8]>,
    /// How many maps it has passed through; 0 if a client sent it.
    pub chain: u8,
}

/// A message that a map publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    pub topic: Box<str>,
    /// What it says.
    pub payload: Box<[u8]>,
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// How many maps it has passed through, this one included.
    pub chain: u8,
}

/// What is tapped, and what was taken.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    filters: Arc<[Box<str>]>,
    /// The maps' own user, whom the rules of access concern; without one the maps may do everything.
    identity: Option<Identity>,
    taken: VecDeque<Tapped>,
    bytes: usize,
    /// Of the message that a map is publishing right now.
    chain: u8,
}

/// The name of the maps among clients, for rules of access.
const CLIENT_ID: &str = "$map";

impl Taps {
    pub(crate) fn want(&self, name: &str) -> bool {
        self.filters.iter().any(|filter| topic::matches(filter, name))
    }
}

impl ShardState {
    pub(crate) fn set_taps(&mut self, filters: Arc<[Box<str>]>, user: Option<Arc<str>>) {
        self.taps.filters = filters;
        self.taps.identity = user.map(|user| Identity {
            user: Some(user),
            peer: CLIENT_ID.into(),
            listener: "map",
            roles: None,
            claims: None,
        });
        // What is remembered of topics does not know of these.
        self.cache.clear();
    }

    pub(crate) fn poll_tapped(&mut self) -> Option<Tapped> {
        let tapped = self.taps.taken.pop_front()?;
        self.taps.bytes -= tapped.topic.len() + tapped.payload.len();
        Some(tapped)
    }

    pub(crate) fn handle_tap_full(&mut self) {
        self.stats.map_queue_full += 1;
    }

    pub(crate) fn handle_mapped(&mut self, mapped: &Mapped, now: Timestamp) {
        let is_allowed = !mapped.topic.starts_with('$') && self.maps_may(Action::Publish, &mapped.topic);
        if !is_allowed || topic::check_name(&mapped.topic, &self.limits).is_err() {
            self.stats.map_publish_denied += 1;
            return;
        }
        let publication = Publication {
            topic: &mapped.topic,
            payload: &mapped.payload,
            properties: Properties::EMPTY,
            qos: mapped.qos.min(self.settings.qos_max),
            retain: mapped.retain && self.settings.retain_available,
            expires: None,
            origin: crate::connect::origin_of(CLIENT_ID),
            standing: Precedence::UNKNOWN,
        };
        self.taps.chain = mapped.chain.max(1);
        self.publish(&publication, now);
        self.taps.chain = 0;
        self.stats.map_published += 1;
    }

    /// Takes a copy of a message whose topic is tapped.
    pub(crate) fn tap(&mut self, publication: &Publication<'_>) {
        if !self.maps_may(Action::Receive, publication.topic) {
            return;
        }
        let bytes = publication.topic.len() + publication.payload.len();
        if self.taps.bytes + bytes > TAPPED_BYTES_MAX {
            return self.handle_tap_full();
        }
        let (topic, payload) = (publication.topic.into(), publication.payload.into());
        self.taps.taken.push_back(Tapped { topic, payload, chain: self.taps.chain });
        self.taps.bytes += bytes;
    }

    fn maps_may(&self, action: Action, topic: &str) -> bool {
        let identity = self.taps.identity.as_ref();
        identity.is_none_or(|identity| self.may(identity, CLIENT_ID, action, topic))
    }
}
