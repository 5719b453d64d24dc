//! One class: a FIFO of entries with their work, of which the last may be parked, and the index of what can be shared.
//!
//! Those that wait and those that are parked stand in one line; only the border between them moves. So nothing that is
//! known of a place (its number, who joined, what is ahead) changes when a request moves up.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{AdmissionRequest, QueryKey};
use crate::time::Timestamp;

/// A request that waits, and whoever asked for the same since.
#[derive(Debug)]
pub(super) struct QueuedRequest<T> {
    pub(super) first: RequestWaiter<T>,
    pub(super) joined: Vec<RequestWaiter<T>>,
    pub(super) key: Option<QueryKey>,
    /// Estimated work of the execution in nanoseconds, as it was counted into the backlog.
    pub(super) work: u64,
    /// Estimated work of answering those that joined, nanoseconds.
    answers: u64,
    /// What [`ClassQueue::entered`] was before it; the difference to [`ClassQueue::left`] is the work ahead.
    entered: u64,
}

#[derive(Debug)]
pub(super) struct RequestWaiter<T> {
    pub(super) value: T,
    pub(super) arrived: Timestamp,
    pub(super) deadline: Timestamp,
}

impl<T> QueuedRequest<T> {
    pub(super) fn new(request: AdmissionRequest<T>, arrived: Timestamp, deadline: Timestamp, work: u64) -> Self {
        let first = RequestWaiter { value: request.value, arrived, deadline };
        Self { first, joined: Vec::new(), key: request.key, work, answers: 0, entered: 0 }
    }

    fn work_with_answers(&self) -> u64 {
        self.work.saturating_add(self.answers)
    }
}

/// An entry that one more may join.
#[derive(Debug)]
pub(super) struct JoinableEntry {
    position: usize,
    /// Estimated work of the executions ahead of it, nanoseconds.
    pub(super) ahead: u64,
    /// Estimated work of the entry with its answers.
    pub(super) work: u64,
    /// Work that the class's delay bound is about: of all that wait, or of the entry alone as long as it is parked.
    pub(super) bounded: u64,
}

#[derive(Debug)]
pub(super) struct ClassQueue<T> {
    entries: VecDeque<QueuedRequest<T>>,
    /// How many of the entries wait; the others are parked behind them.
    waiting: usize,
    /// Sequence number of the front; an entry's number never changes.
    front: u64,
    /// Which entry others may join: the last one with this key; those before it were full when it came.
    shared: BTreeMap<QueryKey, u64>,
    /// Estimated work of what waits, and of what is parked, in nanoseconds.
    work: u64,
    parked_work: u64,
    /// Work of all executions that ever entered and left; these wrap around.
    entered: u64,
    left: u64,
}

impl<T> ClassQueue<T> {
    pub(super) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            waiting: 0,
            front: 0,
            shared: BTreeMap::new(),
            work: 0,
            parked_work: 0,
            entered: 0,
            left: 0,
        }
    }

    /// Entries that wait, without the parked ones.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn parked_len(&self) -> usize {
        self.entries.len() - self.waiting
    }

    /// Estimated work of what waits, nanoseconds.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    pub(super) fn work_with_parked(&self) -> u64 {
        self.work.saturating_add(self.parked_work)
    }

    /// Appends an entry to those that wait; nothing may be parked.
    pub(super) fn push(&mut self, entry: QueuedRequest<T>) {
        self.park(entry);
        self.unpark();
    }

    pub(super) fn park(&mut self, mut entry: QueuedRequest<T>) {
        if let Some(key) = entry.key {
            self.shared.insert(key, self.front + self.entries.len() as u64);
        }
        entry.entered = self.entered;
        self.entered = self.entered.wrapping_add(entry.work);
        self.parked_work = self.parked_work.saturating_add(entry.work);
        self.entries.push_back(entry);
    }

    /// Work of the parked entry that moves up next.
    pub(super) fn parked_next(&self) -> Option<u64> {
        self.entries.get(self.waiting).map(QueuedRequest::work_with_answers)
    }

    /// The oldest parked entry moves up.
    pub(super) fn unpark(&mut self) {
        if let Some(work) = self.parked_next() {
            self.parked_work = self.parked_work.saturating_sub(work);
            self.work = self.work.saturating_add(work);
            self.waiting += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<QueuedRequest<T>> {
        self.waiting = self.waiting.checked_sub(1)?;
        let entry = self.entries.pop_front()?;
        self.work = self.work.saturating_sub(entry.work_with_answers());
        self.left = self.left.wrapping_add(entry.work);
        if let Some(key) = entry.key
            && self.shared.get(&key) == Some(&self.front)
        {
            self.shared.remove(&key);
        }
        self.front += 1;
        Some(entry)
    }

    /// Where an equal query waits or is parked that has room for one more recipient.
    pub(super) fn seat(&self, key: QueryKey, recipients_max: u32) -> Option<JoinableEntry> {
        let position = (self.shared.get(&key)? - self.front) as usize;
        let entry = self.entries.get(position)?;
        let work = entry.work_with_answers();
        let bounded = if position < self.waiting { self.work } else { work };
        let seat = JoinableEntry { position, ahead: entry.entered.wrapping_sub(self.left), work, bounded };
        (entry.joined.len() + 1 < recipients_max as usize).then_some(seat)
    }

    /// One more recipient, at this price in nanoseconds.
    pub(super) fn join(&mut self, seat: &JoinableEntry, waiter: RequestWaiter<T>, answer: u64) {
        if let Some(entry) = self.entries.get_mut(seat.position) {
            entry.joined.push(waiter);
            entry.answers = entry.answers.saturating_add(answer);
            let sum = if seat.position < self.waiting { &mut self.work } else { &mut self.parked_work };
            *sum = sum.saturating_add(answer);
        }
    }
}
