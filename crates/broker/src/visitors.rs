//! Sockets that the core does not know: not yet (TLS, WebSocket, CONNECT, password), or not any more (a last word is
//! being written, or listened to until the peer has closed). One table per thread, with a deadline for each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_control::Timestamp;

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
    /// Soonest first. Visitors that are gone leave theirs behind until it is due.
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
        self.slots.len() == self.free.len()
    }

    /// Everybody that is here.
    pub(crate) fn keys(&self) -> Vec<Key> {
        (0..self.slots.len()).filter_map(|index| self.at(index)).collect()
    }
}
