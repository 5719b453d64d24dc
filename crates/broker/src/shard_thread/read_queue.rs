//! Connections that wait to be read, by how important what they say is likely to be.
//!
//! Round robin inside a class; the classes one after the other, each leaving a share of the turn's budget to those
//! behind it. Knows neither sockets nor budgets, only who waits.

use std::collections::VecDeque;

use tidegate_control::pressure::Level;
use tidegate_core::{ConnId, ReadOrder};

use crate::limits::{READ_BYTES_MAX, READ_RESERVE_BYTES};

/// Bytes that are read from one connection at once. While the broker is strained, less of those who send a lot of what
/// counts for little: a turn is over sooner, and whoever came meanwhile is read.
pub(super) fn bytes_at_once(level: Level, order: ReadOrder) -> usize {
    match order {
        ReadOrder::Middle if level >= Level::Strained => READ_BYTES_MAX / 2,
        ReadOrder::Last if level >= Level::Strained => READ_BYTES_MAX / 4,
        _ => READ_BYTES_MAX,
    }
}

#[derive(Debug, Default)]
pub(super) struct ReadQueue([VecDeque<ConnId>; ReadOrder::ALL.len()]);

impl ReadQueue {
    pub(super) fn push(&mut self, id: ConnId, order: ReadOrder) {
        self.0[order as usize].push_back(id);
    }

    pub(super) fn pop(&mut self, order: ReadOrder) -> Option<ConnId> {
        self.0[order as usize].pop_front()
    }

    /// Puts those of another queue behind those of this one.
    pub(super) fn append(&mut self, other: &mut Self) {
        for (list, more) in self.0.iter_mut().zip(&mut other.0) {
            list.append(more);
        }
    }

    /// How many wait, by order.
    pub(super) fn lens(&self) -> [usize; ReadOrder::ALL.len()] {
        self.0.each_ref().map(VecDeque::len)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }

    /// Bytes that those behind this order are sure of.
    pub(super) fn reserved_behind(&self, order: ReadOrder) -> usize {
        let waiting = self.0[order as usize + 1..].iter().filter(|list| !list.is_empty()).count();
        waiting * READ_RESERVE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> ConnId {
        ConnId { index, generation: 0 }
    }

    #[test]
    fn everybody_behind_keeps_a_share_as_long_as_somebody_waits_there() {
        let mut queue = ReadQueue::default();
        assert!(queue.is_empty());
        queue.push(id(1), ReadOrder::Last);
        queue.push(id(2), ReadOrder::First);
        assert_eq!(queue.reserved_behind(ReadOrder::First), READ_RESERVE_BYTES);
        queue.push(id(3), ReadOrder::Middle);
        assert_eq!(queue.reserved_behind(ReadOrder::First), 2 * READ_RESERVE_BYTES);
        assert_eq!(queue.reserved_behind(ReadOrder::Last), 0);
        assert_eq!(queue.pop(ReadOrder::Last), Some(id(1)));
        assert_eq!(queue.reserved_behind(ReadOrder::Middle), 0);
    }

    #[test]
    fn turns_are_smaller_while_the_broker_is_strained_for_those_who_say_little_that_matters() {
        let at_once = |level| ReadOrder::ALL.map(|order| READ_BYTES_MAX / bytes_at_once(level, order));
        assert_eq!([Level::Calm, Level::Busy].map(at_once), [[1, 1, 1]; 2]);
        assert_eq!([Level::Strained, Level::Overloaded, Level::Emergency].map(at_once), [[1, 2, 4]; 3]);
    }

    #[test]
    fn those_who_became_ready_wait_behind_those_who_waited() {
        let (mut queue, mut ready) = (ReadQueue::default(), ReadQueue::default());
        queue.push(id(1), ReadOrder::Middle);
        ready.push(id(2), ReadOrder::Middle);
        queue.append(&mut ready);
        assert!(ready.is_empty());
        assert_eq!(queue.lens(), [0, 2, 0]);
        assert_eq!([queue.pop(ReadOrder::Middle), queue.pop(ReadOrder::Middle)], [Some(id(1)), Some(id(2))]);
    }
}
