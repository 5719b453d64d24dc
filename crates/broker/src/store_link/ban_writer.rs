//! Writes bans down, for whoever bans: before an operator is told of one, it is kept.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate_store::{KeptBatch, Producer, RecordBatch};

use super::records::Record;
use crate::inbox::lock;

/// How often somebody who waits looks without being told.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What became of something that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanKept {
    /// It is.
    Yes,
    /// It holds until the end of the process: there is no store, or the disk did not take it in time.
    No,
}

#[derive(Debug)]
pub(super) struct BanWriter {
    state: Mutex<BanProducer>,
    changed: Arc<Condvar>,
}

#[derive(Debug)]
struct BanProducer {
    producer: Producer,
    /// Everything up to this ticket is kept.
    kept: Option<u64>,
    done: Vec<KeptBatch>,
}

impl BanWriter {
    /// A ban writer whose producer calls `changed` when something is kept.
    pub(super) fn new(producer: Producer, changed: Arc<Condvar>) -> Self {
        Self { state: Mutex::new(BanProducer { producer, kept: None, done: Vec::new() }), changed }
    }

    /// Hands a record over; the ticket with which to wait for it. None if there is no room, or the record is too large.
    pub(super) fn write(&self, record: &Record<'_>) -> Option<u64> {
        let mut batch = RecordBatch::new();
        record.push_to(&mut batch).ok()?;
        lock(&self.state).producer.submit(batch).ok()
    }

    /// Waits until it is kept, for so long at most.
    pub(super) fn wait(&self, ticket: u64, time: Duration) -> BanKept {
        let end = Instant::now() + time;
        let mut state = lock(&self.state);
        loop {
            state.hear();
            if state.kept >= Some(ticket) {
                return BanKept::Yes;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return BanKept::No;
            }
            let waited = self.changed.wait_timeout(state, left.min(LOOK_EVERY));
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl BanProducer {
    fn hear(&mut self) {
        self.producer.poll(&mut self.done);
        self.kept = self.done.drain(..).map(|done| done.ticket).max().max(self.kept);
    }
}
