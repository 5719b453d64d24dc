//! Shards as they were, from what the store has kept. However many shards there were then, each session goes to the one
//! that its client identifier names now.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::persist::{Kept, SavedDelivery, SavedMessage, SavedSession, SavedStage, SavedWill, SavedWish};
use tidegate_core::{Shard, shard_of};
use tidegate_store::records::{Entry, Image, MessageRecord, SessionImage, Stage, WishRecord};
use tidegate_store::{Location, StoreError};
use tidegate_wire_mqtt::{PacketId, QoS};

use super::wall::Wall;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Sessions.
    pub sessions: usize,
    /// Messages that wait for them or are under way.
    pub deliveries: usize,
    /// Retained messages.
    pub retained: usize,
    /// Messages that could not be read; damage has taken them.
    pub lost: usize,
    /// Publishers whose rhythm is known.
    pub rhythms: usize,
    /// Bans that hold.
    pub bans: usize,
}

/// Reads a message record by place.
pub type Read<'a> = &'a mut dyn FnMut(Location, &mut Vec<u8>) -> Result<(), StoreError>;

/// Puts everything back, and lets the shards tell each other what they have to. They are fresh, and nobody is connected.
pub fn restore(image: &Image, read: Read<'_>, shards: &mut [Shard], wall: &Wall, now: Timestamp) -> Restored {
    for shard in &mut *shards {
        shard.keep_journal(image.id_max());
    }
    let mut restoring = Restoring { image, read, wall, payload: Vec::new(), known: BTreeMap::new(), lost: 0 };
    let mut restored = Restored::default();
    for (_, message) in image.retained() {
        for (index, shard) in shards.iter_mut().enumerate() {
            if let Some(kept) = restoring.message(message, index, shard) {
                shard.restore_retained(&kept, now);
                restored.retained += usize::from(index == 0);
            }
        }
    }
    for (number, session) in image.sessions() {
        let index = shard_of(&session.client_id, shards.len());
        let Some(shard) = shards.get_mut(index) else { continue };
        let saved = restoring.session(number, session, index, shard);
        restored.deliveries += saved.deliveries.len();
        restored.sessions += 1;
        shard.restore_session(saved, now);
    }
    carry(shards, now);
    for (message, reached) in image.routing() {
        restoring.route(message, reached, shards, now);
    }
    restored.lost = restoring.lost;
    carry(shards, now);
    restored
}

/// Nothing runs yet: what shards have for each other goes by hand.
fn carry(shards: &mut [Shard], now: Timestamp) {
    for from in 0..shards.len() {
        for to in 0..shards.len() {
            while let Some(batch) = shards.get_mut(from).and_then(|shard| shard.poll_batch(to)) {
                if let Some(shard) = shards.get_mut(to) {
                    shard.handle_batch(&batch, now);
                }
            }
        }
    }
}

struct Restoring<'a> {
    image: &'a Image,
    read: Read<'a>,
    wall: &'a Wall,
    payload: Vec<u8>,
    /// Messages that several sessions of a shard wait for are there once.
    known: BTreeMap<(u64, usize), Kept>,
    lost: usize,
}

impl Restoring<'_> {
    fn message(&mut self, number: u64, index: usize, shard: &mut Shard) -> Option<Kept> {
        if let Some(known) = self.known.get(&(number, index)) {
            return Some(known.clone());
        }
        let kept = self.read_message(number, shard);
        if kept.is_none() {
            self.lost += 1;
        }
        self.known.insert((number, index), kept.clone()?);
        kept
    }

    fn read_message(&mut self, number: u64, shard: &mut Shard) -> Option<Kept> {
        let at = self.image.message(number)?;
        if let Err(error) = (self.read)(at, &mut self.payload) {
            tracing::error!(event = "store_error", %error, "a message that was kept cannot be read");
            return None;
        }
        let message = MessageRecord::decode(&self.payload).ok()?;
        let saved = SavedMessage {
            qos: QoS::from_bits(message.qos)?,
            retain: message.retain,
            expires: message.expires_ms.map(|ms| self.wall.timestamp(ms)),
            origin: message.origin,
            standing: message.standing,
            topic: message.topic,
            properties: message.properties,
            payload: message.payload,
        };
        Some(shard.restore_message(number, &saved))
    }

    fn session<'s>(
        &mut self,
        number: u64,
        session: &'s SessionImage,
        index: usize,
        shard: &mut Shard,
    ) -> SavedSession<'s> {
        let expiry = session.expiry_s.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.into()));
        let will = session.will.and_then(|will| {
            let delay = Duration::from_secs(will.delay_s.into());
            let due = will.due_ms.map(|ms| self.wall.timestamp(ms));
            Some(SavedWill { message: self.message(will.message, index, shard)?, delay, due })
        });
        let wish = |wish: &WishRecord| {
            let WishRecord { qos, no_local, retain_as_published, id } = *wish;
            let qos = QoS::from_bits(qos).unwrap_or(QoS::AtMostOnce);
            SavedWish { qos, no_local, retain_as_published, id: id.and_then(NonZeroU32::new) }
        };
        let deliveries = session.queue.iter();
        SavedSession {
            session: number,
            client_id: &session.client_id,
            user: session.principal.as_deref(),
            expiry,
            ends: session.ends_ms.map(|ms| self.wall.timestamp(ms)),
            subscriptions: session.subscriptions.iter().map(|(filter, it)| (&**filter, wish(it))).collect(),
            inbound: session.inbound.iter().filter_map(|id| PacketId::new(*id)).collect(),
            will,
            deliveries: deliveries.filter_map(|(place, entry)| self.delivery(*place, entry, index, shard)).collect(),
        }
    }

    fn delivery(&mut self, place: u64, entry: &Entry, index: usize, shard: &mut Shard) -> Option<SavedDelivery> {
        let stage = match entry.stage {
            Stage::Waiting => SavedStage::Waiting(self.message(entry.message, index, shard)?),
            Stage::Sent(id) => SavedStage::Sent(self.message(entry.message, index, shard)?, PacketId::new(id)?),
            Stage::Released(id) => SavedStage::Released(PacketId::new(id)?),
        };
        let ids = entry.ids.iter().flatten().filter_map(|id| NonZeroU32::new(*id)).collect();
        Some(SavedDelivery { place, stage, qos: QoS::from_bits(entry.qos)?, retain: entry.retain, ids })
    }

    /// A message that was on its way to other shards: whoever has not got it gets it.
    fn route(&mut self, message: u64, reached: &BTreeSet<u64>, shards: &mut [Shard], now: Timestamp) {
        let mut groups = BTreeSet::new();
        for shard in &mut *shards {
            // Each its own: it is another one from now on.
            if let Some(kept) = self.read_message(message, shard) {
                shard.restore_routing(&kept, reached, &mut groups, now);
            }
        }
        if let Some(first) = shards.first_mut() {
            first.end_restored_routing(message);
        }
    }
}
