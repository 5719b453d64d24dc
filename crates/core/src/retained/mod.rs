//! Retained messages: the last one of each topic, found again by filter.
//!
//! Topics are kept in order, level by level (see `walk`), so that whoever wants many of them can stop anywhere and go on
//! later from the last topic it saw, whatever was added, replaced or removed since.

mod page;
mod read;
mod walk;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;

use crate::between::Address;
use crate::limits::{EMPTIED_BYTES_MAX, RETAINED_SWEEP_MAX};
use crate::message::Message;
pub use page::RetainedReport;
pub use read::RetainedState;
pub(crate) use walk::Walk;
use walk::{Key, WalkVerdict, write_key};

#[derive(Debug)]
pub(crate) struct Retained {
    messages: HashMap<Key, RetainedEntry, FixedState>,
    order: BTreeSet<Key>,
    /// Those with a lifetime, by its end.
    expiring: BTreeSet<(Timestamp, Key)>,
    bytes: usize,
    /// Of these, what is not part of the messages, which charge themselves.
    beside: usize,
    /// Topics that were emptied, for messages from other shards that were sent before and come after.
    emptied: HashMap<Box<str>, Stamp, FixedState>,
    emptied_bytes: usize,
    /// Scratch for the key that is looked for.
    key: Vec<u8>,
    /// Messages whose lifetime is over, for who has to write that down; none if nobody has.
    swept: Option<Vec<Arc<Message>>>,
}

#[derive(Debug)]
struct RetainedEntry {
    message: Arc<Message>,
    stamp: Stamp,
}

/// The place of a retained message in one order that all shards agree on, so that two that cross on their way leave the
/// same one everywhere. A Lamport clock: each shard counts on from the highest that it has heard of; equal counts were
/// sent without knowledge of each other, and the address decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    pub(crate) count: u64,
    pub(crate) from: Address,
}

/// Whether older messages may still come from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    None,
    MayBeBehind,
}

/// What became of a message that was to be retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetainOutcome {
    Yes,
    /// A later one was here first.
    Older,
    /// There is no room for another topic.
    Full,
}

/// How much is kept at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// This one matches. The walk stays here until it is told to `advance`.
    Found(Arc<Message>),
    /// Nothing here.
    Nothing,
    /// There are no more.
    End,
}

impl Retained {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = || FixedState::with_seed(seed);
        Self {
            messages: HashMap::with_hasher(hasher()),
            order: BTreeSet::new(),
            expiring: BTreeSet::new(),
            bytes: 0,
            beside: 0,
            emptied: HashMap::with_hasher(hasher()),
            emptied_bytes: 0,
            key: Vec::new(),
            swept: None,
        }
    }

    /// From now on, what was swept is to be taken.
    pub(crate) fn keep_journal(&mut self) {
        self.swept = Some(Vec::new());
    }

    pub(crate) fn take_swept(&mut self) -> Vec<Arc<Message>> {
        self.swept.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// The message of a topic.
    pub(crate) fn get(&mut self, topic: &str) -> Option<Arc<Message>> {
        write_key(topic, &mut self.key);
        self.messages.get(&*self.key).map(|entry| Arc::clone(&entry.message))
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of keys and tables.
    pub(crate) fn bytes_beside(&self) -> usize {
        self.beside
    }

    fn charge(&mut self, message: &Message) {
        self.bytes += cost(message);
        self.beside += cost_beside(message);
    }

    fn release(&mut self, message: &Message) {
        self.bytes -= cost(message);
        self.beside -= cost_beside(message);
    }

    /// Whether the message of this topic says this already.
    pub(crate) fn says(&mut self, topic: &str, payload: &[u8]) -> bool {
        write_key(topic, &mut self.key);
        self.messages.get(&*self.key).is_some_and(|last| last.message.view().payload == payload)
    }

    pub(crate) fn set(
        &mut self,
        topic: &str,
        message: Arc<Message>,
        stamp: Stamp,
        room: Room,
        now: Timestamp,
    ) -> RetainOutcome {
        write_key(topic, &mut self.key);
        let last = self.messages.get(&*self.key);
        if last.map(|last| last.stamp).or_else(|| self.emptied.get(topic).copied()).is_some_and(|last| last > stamp) {
            return RetainOutcome::Older;
        }
        if !self.has_room(&message, room) {
            // Those whose lifetime is over may just not have been cleared away yet.
            self.sweep(now);
            if !self.has_room(&message, room) {
                return RetainOutcome::Full;
            }
        }
        self.put(RetainedEntry { message, stamp });
        RetainOutcome::Yes
    }

    /// Whether a message can be kept instead of the one at `self.key`.
    fn has_room(&self, message: &Message, room: Room) -> bool {
        let before = self.messages.get(&*self.key).map(|before| cost(&before.message));
        let bytes = self.bytes - before.unwrap_or(0) + cost(message);
        (before.is_some() || self.messages.len() < room.messages) && bytes <= room.bytes
    }

    /// Keeps a message at `self.key`.
    fn put(&mut self, entry: RetainedEntry) {
        let expires = entry.message.view().expires;
        self.charge(&entry.message);
        if let Some(existing) = self.messages.get_mut(&*self.key) {
            let before = core::mem::replace(existing, entry);
            self.release(&before.message);
            let expired = before.message.view().expires;
            if let Some(key) = self.order.get(&*self.key).filter(|_| expires != expired).map(Arc::clone) {
                self.set_expiry(key, expired, expires);
            }
            return;
        }
        let key: Key = (&*self.key).into();
        self.set_expiry(Arc::clone(&key), None, expires);
        self.order.insert(Arc::clone(&key));
        self.messages.insert(key, entry);
    }

    fn set_expiry(&mut self, key: Key, before: Option<Timestamp>, now: Option<Timestamp>) {
        if let Some(before) = before {
            self.expiring.remove(&(before, Arc::clone(&key)));
        }
        if let Some(now) = now {
            self.expiring.insert((now, key));
        }
    }

    pub(crate) fn remove(&mut self, topic: &str, stamp: Stamp, others: Others) {
        write_key(topic, &mut self.key);
        if self.messages.get(&*self.key).is_some_and(|last| last.stamp > stamp) {
            return;
        }
        if others == Others::MayBeBehind {
            self.remember_emptied(topic, stamp);
        }
        if let Some((key, entry)) = self.messages.remove_entry(&*self.key) {
            self.order.remove(&key);
            self.release(&entry.message);
            self.set_expiry(key, entry.message.view().expires, None);
        }
    }

    /// Not for ever, only for as long as a message may be on its way; when they become too many, all are forgotten.
    fn remember_emptied(&mut self, topic: &str, stamp: Stamp) {
        if self.emptied_bytes > EMPTIED_BYTES_MAX {
            self.emptied.clear();
            self.emptied_bytes = 0;
        }
        if let Some(last) = self.emptied.get_mut(topic) {
            *last = stamp.max(*last);
        } else {
            self.emptied_bytes += topic.len() + size_of::<(Box<str>, Stamp)>();
            self.emptied.insert(topic.into(), stamp);
        }
    }

    /// When the next lifetime ends.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiring.first().map(|(at, _)| *at)
    }

    /// Forgets messages whose lifetime is over, a bounded number of them.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        for _ in 0..RETAINED_SWEEP_MAX {
            if self.next_expiry().is_none_or(|at| at > now) {
                return;
            }
            let Some((_, key)) = self.expiring.pop_first() else { return };
            self.order.remove(&key);
            if let Some(entry) = self.messages.remove(&key) {
                self.release(&entry.message);
                if let Some(swept) = &mut self.swept {
                    swept.push(entry.message);
                }
            }
        }
    }

    /// The next topic of a walk, or a step towards it: one look into the order.
    pub(crate) fn step(&self, walk: &mut Walk, now: Timestamp) -> WalkStep {
        let Some(key) = self.order.range::<[u8], _>((Bound::Included(walk.from()), Bound::Unbounded)).next() else {
            return WalkStep::End;
        };
        match walk.judge(key) {
            WalkVerdict::Elsewhere => WalkStep::Nothing,
            WalkVerdict::End => WalkStep::End,
            WalkVerdict::Match => match self.messages.get(key) {
                Some(entry) if !entry.message.view().is_expired(now) => WalkStep::Found(Arc::clone(&entry.message)),
                _ => {
                    walk.advance();
                    WalkStep::Nothing
                }
            },
        }
    }
}

/// What it costs to keep a message: itself, its topic as a key, and its places in the tables.
fn cost(message: &Message) -> usize {
    message.size() + cost_beside(message)
}

/// The same without the message itself. A key is as long as its topic, and topics may be longer than what they say.
fn cost_beside(message: &Message) -> usize {
    message.view().topic.len() + PLACES_BYTES
}

/// Bytes of an entry, its key's head, and the places of the key in the tables, with the air that they have.
const PLACES_BYTES: usize = 192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Publication;
    use core::time::Duration;
    use tidegate_wire_mqtt::{Properties, QoS};

    const ROOM: Room = Room { messages: 10, bytes: usize::MAX };

    fn message(topic: &str, expires: Option<Timestamp>) -> Arc<Message> {
        let (payload, properties, qos) = (&b"x"[..], Properties::EMPTY, QoS::AtMostOnce);
        let standing = crate::message::Precedence::UNKNOWN;
        let publication = Publication { topic, payload, properties, qos, retain: true, expires, origin: 0, standing };
        Arc::new(Message::new(&publication, &crate::gate::MessageBytes::default()))
    }

    fn stamp(count: u64) -> Stamp {
        Stamp { count, from: Address::default() }
    }

    #[test]
    fn the_place_of_an_expired_message_is_free() {
        let (mut retained, now) = (Retained::new(1), Timestamp::from_secs_f64(100.0));
        for n in 0..10 {
            let topic = alloc::format!("t/{n}");
            let kept = retained.set(&topic, message(&topic, Some(now + Duration::from_secs(n))), stamp(n), ROOM, now);
            assert_eq!(kept, RetainOutcome::Yes);
        }
        let later = now + Duration::from_secs(3);
        assert_eq!(retained.set("a", message("a", None), stamp(20), ROOM, later), RetainOutcome::Yes);
        assert_eq!(retained.len(), 7, "t/0 to t/3 are gone");
        assert_eq!(retained.next_expiry(), Some(now + Duration::from_secs(4)));
        // A lifetime counts from the last message.
        retained.set("t/4", message("t/4", None), stamp(21), ROOM, later);
        retained.set("t/5", message("t/5", Some(now + Duration::from_secs(60))), stamp(22), ROOM, later);
        retained.sweep(now + Duration::from_secs(59));
        assert_eq!(retained.len(), 3);
        for topic in ["a", "t/4", "t/5"] {
            retained.remove(topic, stamp(30), Others::None);
        }
        assert_eq!((retained.len(), retained.bytes(), retained.bytes_beside()), (0, 0, 0));
        assert_eq!(retained.next_expiry(), None);
        assert!(retained.order.is_empty());
    }
}
