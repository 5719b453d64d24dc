//! Writes bans down, for whoever bans: before an operator is told of one, it is kept.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate_store::records::Record;
use tidegate_store::{KeptBatch, Producer, RecordBatch};

use crate::inbox::lock;

/// How often somebody who waits looks without being told.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What became of something that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is.
    Yes,
    /// It holds until the end of the process: there is no store, or the disk did not take it in time.
    No,
}

#[derive(Debug)]
pub(super) struct Clerk {
    desk: Mutex<Desk>,
    changed: Arc<Condvar>,
}

#[derive(Debug)]
struct Desk {
    producer: Producer,
    /// Everything up to this ticket is kept.
    kept: Option<u64>,
    done: Vec<KeptBatch>,
}

impl Clerk {
    /// A clerk whose producer calls `changed` when something is kept.
    pub(super) fn new(producer: Producer, changed: Arc<Condvar>) -> Self {
        Self { desk: Mutex::new(Desk { producer, kept: None, done: Vec::new() }), changed }
    }

    /// Hands a record over; the ticket with which to wait for it. None if there is no room, or the record is too large.
    pub(super) fn write(&self, record: &Record<'_>) -> Option<u64> {
        let mut batch = RecordBatch::new();
        record.push_to(&mut batch).ok()?;
        lock(&self.desk).producer.submit(batch).ok()
    }

    /// Waits until it is kept, for so long at most.
    pub(super) fn wait(&self, ticket: u64, time: Duration) -> Kept {
        let end = Instant::now() + time;
        let mut desk = lock(&self.desk);
        loop {
            desk.hear();
            if desk.kept >= Some(ticket) {
                return Kept::Yes;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Kept::No;
            }
            let waited = self.changed.wait_timeout(desk, left.min(LOOK_EVERY));
            desk = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl Desk {
    fn hear(&mut self) {
        self.producer.poll(&mut self.done);
        self.kept = self.done.drain(..).map(|done| done.ticket).max().max(self.kept);
    }
}
