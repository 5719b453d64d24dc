//! A store for scenarios: what was told to be kept is there, and can be read back.

use std::collections::BTreeMap;

use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::persist::{SavedMessage, Spot, StoreChange, StoredMessage, Turn};
use tidegate_wire_mqtt::QoS;

/// Messages by number.
#[derive(Default)]
pub(crate) struct Shelf {
    messages: BTreeMap<u64, Stored>,
    /// Told, and not yet kept.
    unkept: Vec<StoredMessage>,
    /// Pages that were read.
    pub(crate) pages: usize,
    /// Nothing is read for now.
    pub(crate) is_slow: bool,
}

struct Stored {
    qos: QoS,
    retain: bool,
    expires: Option<Timestamp>,
    origin: u64,
    standing: Option<u64>,
    topic: String,
    properties: Vec<u8>,
    payload: Vec<u8>,
}

impl Stored {
    fn of(saved: &SavedMessage<'_>) -> Self {
        let SavedMessage { qos, retain, expires, origin, standing, topic, properties, payload } = *saved;
        Self {
            qos,
            retain,
            expires,
            origin,
            standing,
            topic: topic.into(),
            properties: properties.into(),
            payload: payload.into(),
        }
    }

    fn saved(&self) -> SavedMessage<'_> {
        let Self { qos, retain, expires, origin, standing, .. } = *self;
        let (topic, properties, payload) = (&*self.topic, &*self.properties, &*self.payload);
        SavedMessage { qos, retain, expires, origin, standing, topic, properties, payload }
    }
}

impl Shelf {
    pub(crate) fn write(&mut self, turn: &Turn) {
        self.unkept.extend(turn.changes.iter().filter_map(|change| match change {
            StoreChange::Message(kept) => Some(kept.clone()),
            _ => None,
        }));
    }

    /// Everything that was written is kept from now on.
    pub(crate) fn sync(&mut self) {
        for kept in self.unkept.drain(..) {
            let number = kept.number();
            self.messages.insert(number, kept.read(Stored::of));
            kept.set_spot(number, Spot([number, 1]));
        }
    }

    /// Bits flip in a message.
    pub(crate) fn damage(&mut self, payload: &str) {
        self.messages.retain(|_, stored| stored.payload != payload.as_bytes());
    }

    /// Reads what the shard wants to have; whether there was anything.
    pub(crate) fn serve(&mut self, shard: &mut Shard, now: Timestamp) -> bool {
        let mut moved = false;
        while !self.is_slow
            && let Some(fetch) = shard.poll_fetch()
        {
            moved = true;
            self.pages += 1;
            let spots: Vec<u64> = fetch.messages.iter().map(|(_, Spot([number, _]))| *number).collect();
            let read = |at: usize| self.messages.get(&spots[at]).map(|stored| (spots[at], stored.saved()));
            shard.handle_fetched(&fetch, read, now);
        }
        moved
    }
}
