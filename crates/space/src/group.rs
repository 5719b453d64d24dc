//! Requests that were done and wait together until the disk has what they did. Nobody sees it before: readers get the
//! data as they were, subscribers are told afterwards.

use std::sync::Arc;
use std::time::Instant;

use tidegate_control::admission::Job;
use tidegate_graph::{Snapshot, SubscriberId};

use crate::ask::{Answered, Refused};
use crate::desk::{Hold, Task};
use crate::limits::{GROUP_MAX, GROUP_TIME};
use crate::outlet::Outlet;

/// A request that was done.
pub(crate) struct Done {
    pub(crate) task: Task,
    pub(crate) outcome: Result<Answered, Refused>,
    pub(crate) job: Job,
    /// Of a subscription: where it is told of changes.
    pub(crate) outlet: Option<Arc<Outlet>>,
}

pub(crate) struct Group {
    /// The data as everybody sees them until then.
    pub(crate) before: Snapshot,
    pub(crate) since: Instant,
    pub(crate) done: Vec<Done>,
    /// Subscribers that have room again, and are told afterwards. As many as there are subscriptions, at most.
    pub(crate) called: Vec<SubscriberId>,
    pub(crate) hold: Hold,
}

impl Group {
    pub(crate) fn new(before: Snapshot, since: Instant) -> Self {
        Self { before, since, done: Vec::new(), called: Vec::new(), hold: Hold::Gathering }
    }

    pub(crate) fn push(&mut self, done: Done) {
        self.done.push(done);
        if self.done.len() >= GROUP_MAX || self.since.elapsed() >= GROUP_TIME {
            self.hold = Hold::Settling;
        }
    }
}
