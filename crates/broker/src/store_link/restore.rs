//! Shards as they were, from what the store has kept. However many shards there were then, each session goes to the one
//! that its client identifier names now.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::persist::{
    ID_SETS_MAX, SavedDelivery, SavedMessage, SavedSession, SavedStage, SavedWill, StoredMessage, SubscriberOptions,
    wants_latest,
};
use tidegate_core::{Shard, shard_of};
use tidegate_store::{Location, StoreError};

use super::disk_address::spot_of;
use super::owner::owner;
use super::records::{DeliveryStage, MessageRecord, Outline, QueueEntry, RoutingImage, SessionImage, StoreImage};
use super::wall_clock::WallClock;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
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
pub fn restore(image: &StoreImage, read: Read<'_>, shards: &mut [Shard], wall: &WallClock, now: Timestamp) -> Restored {
    for shard in &mut *shards {
        shard.keep_journal(image.id_max());
    }
    let mut restoring = Restoring {
        image,
        read,
        wall,
        payload: Vec::new(),
        known: BTreeMap::new(),
        sets: BTreeSet::new(),
        latest: None,
        lost: 0,
    };
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
        let mut entries = session.queue.iter();
        let next = |shard: &mut Shard| {
            let mut deliveries =
                entries.by_ref().filter_map(|(place, entry)| restoring.delivery(*place, entry, index, shard));
            let delivery = deliveries.next();
            restored.deliveries += usize::from(delivery.is_some());
            delivery
        };
        shard.restore_session(saved, next, now);
        restored.sessions += 1;
    }
    carry(shards, now);
    for (message, reached) in image.routing() {
        restoring.route(message, reached, shards, now);
    }
    restored.lost = restoring.lost;
    carry(shards, now);
    restored
}

/// A message as the store has it, with its number; none if it makes no sense.
pub fn saved<'a>(record: &'a [u8], wall: &WallClock) -> Option<(u64, SavedMessage<'a>)> {
    let MessageRecord { id, qos, retain, expires_ms, origin, standing, topic, properties, payload } =
        MessageRecord::decode(record).ok()?;
    let expires = expires_ms.map(|ms| wall.timestamp(ms));
    Some((id, SavedMessage { qos, retain, expires, origin, standing, topic, properties, payload }))
}

/// Nothing runs yet: what shards have for each other goes by hand.
fn carry(shards: &mut [Shard], now: Timestamp) {
    for from in 0..shards.len() {
        for to in 0..shards.len() {
            while let Some(batch) = shards.get_mut(from).and_then(|shard| shard.poll_batch(to)) {
                let taken = shards.get_mut(to).map_or(Ok(()), |shard| shard.handle_batch(&batch, now));
                if let Err(error) = taken {
                    // Shards of one process understand each other, unless one of them is wrong.
                    tracing::error!(event = "batch_unread", from = %batch.from(), %error, "cannot read what a shard says");
                }
            }
        }
    }
}

struct Restoring<'a> {
    image: &'a StoreImage,
    read: Read<'a>,
    wall: &'a WallClock,
    payload: Vec<u8>,
    /// Messages that several sessions of a shard wait for are there once.
    known: BTreeMap<(u64, usize), StoredMessage>,
    /// Sets of subscription identifiers that messages on disk have, of this session.
    sets: BTreeSet<&'a [NonZeroU32]>,
    /// Its subscriptions, if it wants only the newest of some topics: then the topics of what waits have to be known.
    latest: Option<&'a BTreeMap<Box<str>, SubscriberOptions>>,
    lost: usize,
}

impl<'a> Restoring<'a> {
    fn message(&mut self, number: u64, index: usize, shard: &mut Shard) -> Option<StoredMessage> {
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

    fn read_message(&mut self, number: u64, shard: &mut Shard) -> Option<StoredMessage> {
        let at = self.image.message(number)?;
        if let Err(error) = (self.read)(at, &mut self.payload) {
            tracing::error!(event = "store_error", %error, "a message that was kept cannot be read");
            return None;
        }
        let (_, saved) = saved(&self.payload, self.wall)?;
        Some(shard.restore_message(number, &saved))
    }

    /// A message that waits stays where it is, if it can.
    fn on_disk(&mut self, entry: &'a QueueEntry, shard: &Shard) -> Option<SavedStage> {
        let Outline { origin, bytes, class } = self.image.outline(entry.message)?;
        if !shard.may_restore_on_disk(class) {
            return None;
        }
        let at = self.image.message(entry.message)?;
        let spot = spot_of(at)?;
        if self.is_latest(at)? {
            return None;
        }
        if let Some(ids) = &entry.ids
            && !self.sets.contains(&**ids)
        {
            if self.sets.len() >= ID_SETS_MAX {
                return None;
            }
            self.sets.insert(ids);
        }
        Some(SavedStage::OnDisk { spot, origin, bytes: bytes as usize, class })
    }

    /// Whether only the newest of its topic is wanted; none if that cannot be read. What is read for it does not stay in
    /// memory: a session may have millions waiting beside a few of these.
    fn is_latest(&mut self, at: Location) -> Option<bool> {
        let Some(subscriptions) = self.latest else { return Some(false) };
        (self.read)(at, &mut self.payload).ok()?;
        let topic = MessageRecord::decode(&self.payload).ok()?.topic;
        Some(wants_latest(subscriptions.iter().map(|(filter, wish)| (&**filter, wish.is_latest)), topic))
    }

    fn session(&mut self, number: u64, session: &'a SessionImage, index: usize, shard: &mut Shard) -> SavedSession<'a> {
        self.sets.clear();
        let wants_latest = session.subscriptions.values().any(|wish| wish.is_latest);
        self.latest = wants_latest.then_some(&session.subscriptions);
        let expiry = session.expiry_s.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.into()));
        let will = session.will.and_then(|will| {
            let delay = Duration::from_secs(will.delay_s.into());
            let due = will.due_ms.map(|ms| self.wall.timestamp(ms));
            Some(SavedWill { message: self.message(will.message, index, shard)?, delay, due })
        });
        SavedSession {
            session: number,
            client_id: &session.client_id,
            owner: owner(session.principal.as_deref()),
            expiry,
            ends: session.ends_ms.map(|ms| self.wall.timestamp(ms)),
            subscriptions: session.subscriptions.iter().map(|(filter, it)| (&**filter, *it)).collect(),
            inbound: session.inbound.iter().copied().collect(),
            will,
        }
    }

    fn delivery(
        &mut self,
        place: u64,
        entry: &'a QueueEntry,
        index: usize,
        shard: &mut Shard,
    ) -> Option<SavedDelivery> {
        let stage = match entry.stage {
            DeliveryStage::Waiting => match self.on_disk(entry, shard) {
                Some(stage) => stage,
                None => SavedStage::Waiting(self.message(entry.message, index, shard)?),
            },
            DeliveryStage::Sent(id) => SavedStage::Sent(self.message(entry.message, index, shard)?, id),
            DeliveryStage::Released(id) => SavedStage::Released(id),
        };
        let ids = entry.ids.iter().flatten().copied().collect();
        Some(SavedDelivery { place, stage, qos: entry.qos, retain: entry.retain, ids })
    }

    /// A message that was on its way to other shards: whoever has not got it gets it.
    fn route(&mut self, message: u64, reached: &RoutingImage, shards: &mut [Shard], now: Timestamp) {
        let mut groups = reached.groups.clone();
        for shard in &mut *shards {
            // Each its own: it is another one from now on.
            if let Some(kept) = self.read_message(message, shard) {
                shard.restore_routing(&kept, &reached.sessions, &mut groups, now);
            }
        }
        if let Some(first) = shards.first_mut() {
            first.end_restored_routing(message);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use tidegate_core::access::Open;
    use tidegate_core::settings::Settings;
    use tidegate_store::{FileId, LogState as _};
    use tidegate_wire_mqtt::QoS;

    use super::super::records::Record;
    use super::*;

    fn wish(qos: QoS, is_latest: bool) -> SubscriberOptions {
        SubscriberOptions { qos, no_local: false, retain_as_published: false, is_latest, id: None }
    }

    /// Of a session with both, only what one wants the newest of is read into memory.
    #[test]
    fn a_subscription_to_the_newest_leaves_the_others_on_disk() {
        let (mut image, mut records) = (StoreImage::default(), Vec::new());
        let mut take = |record: Record<'_>| {
            let at = Location { file: FileId::segment(1), offset: records.len() as u64, len: 1 };
            record.with_raw(|raw| {
                image.apply(raw, at).unwrap();
                records.push(raw.payload.to_vec());
            });
        };
        take(Record::Session { session: 1, client_id: "reader", principal: None, expiry_s: None, ends_ms: None });
        for (filter, is_latest) in [("plain/#", false), ("latest/#", true)] {
            take(Record::Subscribed { session: 1, filter, wish: wish(QoS::AtLeastOnce, is_latest) });
        }
        for id in 1..=20 {
            let (topic, payload) = (if id % 10 == 0 { "latest/t" } else { "plain/t" }, &b"21.5"[..]);
            let (qos, retain, expires_ms, origin, standing, properties) =
                (QoS::AtLeastOnce, false, None, 7, None, &[][..]);
            let message = MessageRecord { id, qos, retain, expires_ms, origin, standing, topic, properties, payload };
            take(Record::Message(message));
            take(Record::Queued { session: 1, place: id, message: id, qos, retain, ids: Vec::new() });
        }
        let mut read = |at: Location, into: &mut Vec<u8>| {
            into.clone_from(&records[at.offset as usize]);
            Ok(())
        };
        let mut shards = [Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7)];
        let now = Timestamp::from_secs_f64(1.0);
        let restored = restore(&image, &mut read, &mut shards, &WallClock::new(now, 1_800_000_000_000, 0), now);
        assert_eq!((restored.deliveries, restored.lost), (20, 0));
        let stats = shards[0].stats();
        assert_eq!((stats.queued_on_disk, stats.queued_messages), (18, 19), "the newer of two is here");
    }

    /// How many messages wait after a crash on two shards, for members of a group on both; the first has another
    /// subscription, too. A message was on its way and had reached these.
    fn waiting_after(reached: &[Record<'_>]) -> usize {
        let (mut image, mut records) = (StoreImage::default(), Vec::new());
        let mut take = |record: &Record<'_>| {
            let at = Location { file: FileId::segment(1), offset: records.len() as u64, len: 1 };
            record.with_raw(|raw| {
                image.apply(raw, at).unwrap();
                records.push(raw.payload.to_vec());
            });
        };
        for (session, shard) in [(1, 0), (2, 1)] {
            let client_id = (0..100).map(|n| format!("member-{n}")).find(|id| shard_of(id, 2) == shard).unwrap();
            let (principal, expiry_s, ends_ms) = (None, None, None);
            take(&Record::Session { session, client_id: &client_id, principal, expiry_s, ends_ms });
            let wish = wish(QoS::ExactlyOnce, false);
            take(&Record::Subscribed { session, filter: "$share/group/t", wish });
            if session == 1 {
                take(&Record::Subscribed { session, filter: "t", wish });
            }
        }
        let (id, topic, payload) = (9, "t", &b"21.5"[..]);
        let (qos, retain, expires_ms, origin, standing, properties) = (QoS::ExactlyOnce, false, None, 7, None, &[][..]);
        let message = MessageRecord { id, qos, retain, expires_ms, origin, standing, topic, properties, payload };
        take(&Record::Message(message));
        take(&Record::Routing { message: id });
        reached.iter().for_each(&mut take);
        let mut read = |at: Location, into: &mut Vec<u8>| {
            into.clone_from(&records[at.offset as usize]);
            Ok(())
        };
        let shard = |index| Shard::new(index, 2, Arc::new(Settings::default()), Arc::new(Open), 7);
        let (mut shards, now) = ([shard(0), shard(1)], Timestamp::from_secs_f64(1.0));
        restore(&image, &mut read, &mut shards, &WallClock::new(now, 1_800_000_000_000, 0), now);
        shards.iter().map(|shard| shard.stats().queued_messages as usize).sum()
    }

    #[test]
    fn a_group_gets_what_was_on_its_way_once_whoever_has_it_by_another_subscription() {
        let group = Record::ReachedGroup { message: 9, group: "$share/group/t" };
        let session = Record::Reached { message: 9, session: 1 };
        assert_eq!(waiting_after(&[]), 2, "for the group, and for the first");
        assert_eq!(waiting_after(std::slice::from_ref(&session)), 1, "for the group");
        assert_eq!(waiting_after(std::slice::from_ref(&group)), 1, "for the first");
        assert_eq!(waiting_after(&[group, session]), 0);
    }
}
