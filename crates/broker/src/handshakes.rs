//! Sockets that the core does not know: not yet (TLS, WebSocket, CONNECT, password), or not any more (a last word is
//! being written, or listened to until the peer has closed). One table per thread, with a deadline for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_control::Timestamp;

use crate::handshake::Handshake;
use crate::limits::STALE_DEADLINES_MAX;

/// A handshake of one thread. A stale one is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HandshakeKey {
    pub(crate) index: usize,
    generation: u64,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct HandshakeTable {
    slots: Vec<HandshakeSlot>,
    free: Vec<usize>,
    /// Soonest first. Visitors that are gone leave theirs behind until it is due, or until there are too many of those.
    deadlines: BinaryHeap<Reverse<(Timestamp, HandshakeKey)>>,
}

#[derive(Debug, Default)]
struct HandshakeSlot {
    generation: u64,
    handshake: Option<Handshake>,
    /// It waits for its turn, and must not wait twice.
    is_queued: bool,
}

impl HandshakeTable {
    /// The key that the next insert will give.
    pub(crate) fn next_key(&self) -> HandshakeKey {
        let index = self.free.last().copied().unwrap_or(self.slots.len());
        HandshakeKey { index, generation: self.slots.get(index).map_or(0, |slot| slot.generation) }
    }

    pub(crate) fn insert(&mut self, handshake: Handshake, deadline: Timestamp) -> HandshakeKey {
        let key = self.next_key();
        if self.free.pop().is_none() {
            self.slots.push(HandshakeSlot::default());
        }
        self.slots[key.index].handshake = Some(handshake);
        self.set_deadline(key, deadline);
        key
    }

    /// Another deadline, which does not take the old one back if that is sooner.
    pub(crate) fn set_deadline(&mut self, key: HandshakeKey, deadline: Timestamp) {
        // Ten thousand clients a second come and go in less time than they are given.
        if self.deadlines.len() >= STALE_DEADLINES_MAX + 4 * self.len() {
            let slots = &self.slots;
            self.deadlines.retain(|Reverse((_, key))| slots[key.index].generation == key.generation);
        }
        self.deadlines.push(Reverse((deadline, key)));
    }

    /// The key of whoever is at this place now.
    pub(crate) fn at(&self, index: usize) -> Option<HandshakeKey> {
        let slot = self.slots.get(index)?;
        slot.handshake.as_ref().map(|_| HandshakeKey { index, generation: slot.generation })
    }

    pub(crate) fn get(&mut self, key: HandshakeKey) -> Option<&mut Handshake> {
        let slot = self.slots.get_mut(key.index)?;
        if slot.generation == key.generation { slot.handshake.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: HandshakeKey) -> Option<Handshake> {
        self.get(key)?;
        let slot = &mut self.slots[key.index];
        slot.generation += 1;
        slot.is_queued = false;
        self.free.push(key.index);
        slot.handshake.take()
    }

    /// It is to wait for its turn; false if it does already, or is gone.
    pub(crate) fn enqueue(&mut self, key: HandshakeKey) -> bool {
        self.get(key).is_some() && !core::mem::replace(&mut self.slots[key.index].is_queued, true)
    }

    /// Its turn has come.
    pub(crate) fn dequeue(&mut self, key: HandshakeKey) {
        if self.get(key).is_some() {
            self.slots[key.index].is_queued = false;
        }
    }

    /// When the next one is due, gone or not.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// One whose time is up.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<HandshakeKey> {
        while self.next_deadline()? <= now {
            let Reverse((_, key)) = self.deadlines.pop()?;
            if self.get(key).is_some() {
                return Some(key);
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Everybody that is here.
    pub(crate) fn keys(&self) -> Vec<HandshakeKey> {
        (0..self.slots.len()).filter_map(|index| self.at(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::SocketLink;
    use crate::permit::{Permits, SocketPlaces};
    use mio::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn handshake(permits: &Permits) -> Handshake {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let take = |permits: &Permits| permits.take(usize::MAX).unwrap();
        Handshake::leaving(SocketLink::new(stream, None, SocketPlaces::new(take(permits), take(&Permits::default()))))
    }

    #[test]
    fn a_stale_key_finds_nobody_and_a_deadline_finds_who_is_there() {
        let (mut handshakes, permits) = (HandshakeTable::default(), Permits::default());
        let now = Timestamp::ZERO;
        let first = handshakes.insert(handshake(&permits), now + Duration::from_secs(1));
        assert!(handshakes.remove(first).is_some());
        let second = handshakes.insert(handshake(&permits), now + Duration::from_secs(2));
        assert_eq!(first.index, second.index);
        assert!(handshakes.get(first).is_none() && handshakes.remove(first).is_none());
        assert_eq!(handshakes.pop_due(now + Duration::from_secs(1)), None);
        assert_eq!(handshakes.pop_due(now + Duration::from_secs(2)), Some(second));
        assert!(handshakes.remove(second).is_some() && handshakes.is_empty());
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn nobody_waits_twice_for_one_turn() {
        let (mut handshakes, permits) = (HandshakeTable::default(), Permits::default());
        let first = handshakes.insert(handshake(&permits), Timestamp::MAX);
        assert!(handshakes.enqueue(first) && !handshakes.enqueue(first));
        assert!(handshakes.remove(first).is_some() && !handshakes.enqueue(first));
        let second = handshakes.insert(handshake(&permits), Timestamp::MAX);
        assert!(handshakes.enqueue(second), "what its predecessor waited for is not its own");
        handshakes.dequeue(first);
        assert!(!handshakes.enqueue(second));
        handshakes.dequeue(second);
        assert!(handshakes.enqueue(second));
    }

    #[test]
    fn deadlines_of_those_who_left_do_not_pile_up() {
        let (mut handshakes, permits) = (HandshakeTable::default(), Permits::default());
        let mut key = handshakes.insert(handshake(&permits), Timestamp::MAX);
        for _ in 0..3 * STALE_DEADLINES_MAX {
            let handshake = handshakes.remove(key).unwrap();
            key = handshakes.insert(handshake, Timestamp::MAX);
        }
        assert!(handshakes.deadlines.len() <= STALE_DEADLINES_MAX + 8, "{}", handshakes.deadlines.len());
        assert_eq!(handshakes.pop_due(Timestamp::MAX), Some(key));
    }
}
