//! One class: a FIFO of entries with their work, a parking place behind it, and the index of what can be shared.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Key, Request};
use crate::time::{Timestamp, nanos};

/// A request that waits, and whoever asked for the same since.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) first: Waiter<T>,
    pub(super) joined: Vec<Waiter<T>>,
    pub(super) key: Option<Key>,
    /// Estimated work in nanoseconds, as it was counted into the backlog.
    pub(super) work: u64,
}

#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) value: T,
    pub(super) arrived: Timestamp,
    pub(super) deadline: Timestamp,
}

impl<T> Entry<T> {
    pub(super) fn new(request: Request<T>, arrived: Timestamp, deadline: Timestamp, work: u64) -> Self {
        Self { first: Waiter { value: request.value, arrived, deadline }, joined: Vec::new(), key: request.key, work }
    }

    /// Recipients of the answer.
    pub(super) fn recipients(&self) -> usize {
        1 + self.joined.len()
    }
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<Entry<T>>,
    parked: VecDeque<Entry<T>>,
    /// Sequence number of the front of `waiting`; an entry's number never changes while it waits.
    front: u64,
    /// Where a query waits that others may join.
    shared: BTreeMap<Key, u64>,
    /// Estimated work of what waits, and of what is parked, in nanoseconds.
    work: u64,
    parked_work: u64,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            parked: VecDeque::new(),
            front: 0,
            shared: BTreeMap::new(),
            work: 0,
            parked_work: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn parked_len(&self) -> usize {
        self.parked.len()
    }

    /// Estimated work of what waits, nanoseconds.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    pub(super) fn work_with_parked(&self) -> u64 {
        self.work.saturating_add(self.parked_work)
    }

    pub(super) fn push(&mut self, entry: Entry<T>) {
        self.work = self.work.saturating_add(entry.work);
        if let Some(key) = entry.key {
            self.shared.insert(key, self.front + self.waiting.len() as u64);
        }
        self.waiting.push_back(entry);
    }

    pub(super) fn park(&mut self, entry: Entry<T>) {
        self.parked_work = self.parked_work.saturating_add(entry.work);
        self.parked.push_back(entry);
    }

    /// Work of the parked entry that moves up next.
    pub(super) fn parked_next(&self) -> Option<u64> {
        self.parked.front().map(|entry| entry.work)
    }

    /// The oldest parked entry moves up.
    pub(super) fn unpark(&mut self) {
        if let Some(entry) = self.parked.pop_front() {
            self.parked_work = self.parked_work.saturating_sub(entry.work);
            self.push(entry);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Entry<T>> {
        let entry = self.waiting.pop_front()?;
        self.work = self.work.saturating_sub(entry.work);
        if let Some(key) = entry.key
            && self.shared.get(&key) == Some(&self.front)
        {
            self.shared.remove(&key);
        }
        self.front += 1;
        Some(entry)
    }

    /// Where an equal query waits that has room for one more recipient.
    pub(super) fn joinable(&self, key: Key, recipients_max: usize) -> Option<usize> {
        let position = (self.shared.get(&key)? - self.front) as usize;
        (self.waiting.get(position)?.recipients() < recipients_max).then_some(position)
    }

    /// One more recipient for the entry at a position that [`Queue::joinable`] gave.
    pub(super) fn join(&mut self, position: usize, waiter: Waiter<T>, answer_cost: Duration) {
        if let Some(entry) = self.waiting.get_mut(position) {
            let cost = nanos(answer_cost);
            entry.work = entry.work.saturating_add(cost);
            self.work = self.work.saturating_add(cost);
            entry.joined.push(waiter);
        }
    }
}
