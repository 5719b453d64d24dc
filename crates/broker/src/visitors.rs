//! Sockets that the core does not know: not yet (TLS, WebSocket, CONNECT, password), or not any more (a last word is
//! being written, or listened to until the peer has closed). One table per thread, with a deadline for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_control::Timestamp;

use crate::limits::STALE_DEADLINES_MAX;
use crate::visitor::Visitor;

/// A visitor of one thread. A stale one is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: usize,
    generation: u64,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Soonest first. Visitors that are gone leave theirs behind until it is due, or until there are too many of those.
    deadlines: BinaryHeap<Reverse<(Timestamp, Key)>>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u64,
    visitor: Option<Visitor>,
}

impl Visitors {
    /// The key that the next insert will give.
    pub(crate) fn next_key(&self) -> Key {
        let index = self.free.last().copied().unwrap_or(self.slots.len());
        Key { index, generation: self.slots.get(index).map_or(0, |slot| slot.generation) }
    }

    pub(crate) fn insert(&mut self, visitor: Visitor, deadline: Timestamp) -> Key {
        let key = self.next_key();
        if self.free.pop().is_none() {
            self.slots.push(Slot::default());
        }
        self.slots[key.index].visitor = Some(visitor);
        self.set_deadline(key, deadline);
        key
    }

    /// Another deadline, which does not take the old one back if that is sooner.
    pub(crate) fn set_deadline(&mut self, key: Key, deadline: Timestamp) {
        // Ten thousand clients a second come and go in less time than they are given.
        if self.deadlines.len() >= STALE_DEADLINES_MAX + 4 * self.len() {
            let slots = &self.slots;
            self.deadlines.retain(|Reverse((_, key))| slots[key.index].generation == key.generation);
        }
        self.deadlines.push(Reverse((deadline, key)));
    }

    /// The key of whoever is at this place now.
    pub(crate) fn at(&self, index: usize) -> Option<Key> {
        let slot = self.slots.get(index)?;
        slot.visitor.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Visitor> {
        let slot = self.slots.get_mut(key.index)?;
        if slot.generation == key.generation { slot.visitor.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Visitor> {
        self.get(key)?;
        let slot = &mut self.slots[key.index];
        slot.generation += 1;
        self.free.push(key.index);
        slot.visitor.take()
    }

    /// When the next one is due, gone or not.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// One whose time is up.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Key> {
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
    pub(crate) fn keys(&self) -> Vec<Key> {
        (0..self.slots.len()).filter_map(|index| self.at(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::seat::Seats;
    use mio::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn visitor(seats: &Seats) -> Visitor {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Visitor::leaving(Link::new(stream, None, seats.take(usize::MAX).unwrap()))
    }

    #[test]
    fn a_stale_key_finds_nobody_and_a_deadline_finds_who_is_there() {
        let (mut visitors, seats) = (Visitors::default(), Seats::default());
        let now = Timestamp::ZERO;
        let first = visitors.insert(visitor(&seats), now + Duration::from_secs(1));
        assert!(visitors.remove(first).is_some());
        let second = visitors.insert(visitor(&seats), now + Duration::from_secs(2));
        assert_eq!(first.index, second.index);
        assert!(visitors.get(first).is_none() && visitors.remove(first).is_none());
        assert_eq!(visitors.pop_due(now + Duration::from_secs(1)), None);
        assert_eq!(visitors.pop_due(now + Duration::from_secs(2)), Some(second));
        assert!(visitors.remove(second).is_some() && visitors.is_empty());
        assert_eq!(seats.taken(), 0);
    }

    #[test]
    fn deadlines_of_those_who_left_do_not_pile_up() {
        let (mut visitors, seats) = (Visitors::default(), Seats::default());
        let mut key = visitors.insert(visitor(&seats), Timestamp::MAX);
        for _ in 0..3 * STALE_DEADLINES_MAX {
            let visitor = visitors.remove(key).unwrap();
            key = visitors.insert(visitor, Timestamp::MAX);
        }
        assert!(visitors.deadlines.len() <= STALE_DEADLINES_MAX + 8, "{}", visitors.deadlines.len());
        assert_eq!(visitors.pop_due(Timestamp::MAX), Some(key));
    }
}
