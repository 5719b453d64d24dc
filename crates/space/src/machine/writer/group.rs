//! Requests that were done and wait together until the disk has what they did. Nobody sees it before: readers get the
//! data as they were, subscribers are told afterwards.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_graph::Snapshot;

use crate::limits::{GROUP_MAX, GROUP_TIME};
use crate::machine::order::Job;
use crate::machine::request::{Refused, SpaceResponse};
use crate::machine::task::PendingRequest;

/// What the writer waits for beside requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterWait {
    /// Nothing.
    Free,
    /// It takes what is there, to have it kept together, and waits for nothing more.
    Gathering,
    /// It takes no request before what it has is kept.
    Settling,
    /// It takes requests to refuse them: the disk fails.
    Stuck,
}

/// A request that was done.
#[derive(Debug)]
pub(crate) struct DoneRequest<R, C> {
    pub(crate) task: PendingRequest<R, C>,
    pub(crate) outcome: Result<SpaceResponse, Refused>,
    pub(crate) job: Job,
    /// Of a subscription: who hears of changes.
    pub(crate) connection: Option<C>,
    /// What was spent on it before.
    pub(crate) spent: Duration,
    pub(crate) began: Timestamp,
    /// For how long it kept the writer from others.
    pub(crate) took: Duration,
}

pub(crate) struct CommitGroup<R, C> {
    /// The data as everybody sees them until then.
    pub(crate) before: Snapshot,
    pub(crate) since: Timestamp,
    pub(crate) done: Vec<DoneRequest<R, C>>,
    pub(crate) hold: WriterWait,
}

impl<R, C> CommitGroup<R, C> {
    pub(crate) fn new(before: Snapshot, since: Timestamp) -> Self {
        Self { before, since, done: Vec::new(), hold: WriterWait::Gathering }
    }

    pub(crate) fn push(&mut self, now: Timestamp, done: DoneRequest<R, C>) {
        self.done.push(done);
        if self.done.len() >= GROUP_MAX || now.since(self.since) >= GROUP_TIME {
            self.hold = WriterWait::Settling;
        }
    }
}

/// What waiting for the disk costs each request of a group, beside the time that it `took` itself: its share in a group
/// that is full. A group may be small because few came; shared by those few, one sync would look like the cost of every
/// further change, which would be refused, and groups would stay small.
pub(crate) fn share(took: Duration, elapsed: Duration, count: usize) -> Duration {
    let count = count.clamp(1, GROUP_MAX) as u32;
    let each = (took / count).max(Duration::from_nanos(1));
    let full = (GROUP_TIME.as_nanos() / each.as_nanos()).min(GROUP_MAX as u128) as u32;
    elapsed.saturating_sub(took) / full.max(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_shared_by_as_many_as_could_have_come() {
        let (micro, milli) = (Duration::from_micros, Duration::from_millis);
        // Alone or with others: a full group has 5 ms / 50 µs = 100 of them.
        assert_eq!(share(micro(50), micro(50) + milli(10), 1), micro(100));
        assert_eq!(share(micro(500), micro(500) + milli(10), 10), micro(100));
        assert_eq!(share(milli(5), milli(15), 100), micro(100));
        // The bound of requests, when they take next to nothing.
        assert_eq!(share(Duration::ZERO, Duration::from_micros(GROUP_MAX as u64), 1), micro(1));
        // One that takes longer than a group gathers has the sync for itself.
        assert_eq!(share(milli(20), milli(30), 1), milli(10));
        assert_eq!(share(milli(20), milli(10), 0), Duration::ZERO, "clocks may be coarse");
    }
}
