//! What the writer is told and what it tells.

use super::super::order::{Job, Taken};
use super::super::request::{Refused, SpaceRequest, SpaceResponse};
use super::super::task::PendingRequest;
use super::apart::{ApartHistory, Prepared};
use crate::limits::UPDATE_INLINE_TIME;
use crate::persistence::DurableChange;
use std::time::Duration;
use tidegate_control::Timestamp;
use tidegate_graph::{GraphError, QuadDelta, RuleId, SubscriberId};

/// How what keeps the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreHealth {
    Fine,
    /// There is room only for what makes it smaller.
    Full,
    /// Nothing can be kept at the moment.
    Failed,
}

/// A request whose turn it is.
pub(crate) struct WriterWork<R, C> {
    pub(super) taken: Taken<PendingRequest<R, C>>,
    pub(super) prepared: Prepared,
    pub(super) history: ApartHistory,
}

impl<R, C> WriterWork<R, C> {
    pub(super) fn new(taken: Taken<PendingRequest<R, C>>) -> Self {
        Self { taken, prepared: Prepared::Nothing, history: ApartHistory::default() }
    }

    /// Until when it is to be cancelled, if it may take long.
    pub(crate) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let task = &self.taken.value;
        match (&task.ask, &self.prepared) {
            // What takes longer is worked out beside the commits.
            (SpaceRequest::Update(update), Prepared::Nothing) if update.reads() => {
                Some(task.until.min(now + UPDATE_INLINE_TIME))
            }
            // One that only says what it changes is as short as its text.
            (SpaceRequest::Update(update), _) if !update.reads() => None,
            (SpaceRequest::Update(_), Prepared::LastTime) | (SpaceRequest::AddRule { .. }, _) => Some(task.until),
            _ => None,
        }
    }

    /// Whether it was worked out before its turn.
    #[cfg(test)]
    pub(crate) fn is_prepared(&self) -> bool {
        matches!(self.prepared, Prepared::Drafted(_) | Prepared::Staged(_))
    }

    #[cfg(test)]
    pub(crate) fn requester(&self) -> &R {
        &self.taken.value.requester
    }
}

/// All that one request did, to be kept as a whole, after everything before it.
#[derive(Debug)]
pub(crate) struct Write {
    pub(super) rule: Option<RuleChange>,
    pub(super) stopped: Vec<RuleId>,
    pub(super) deltas: Vec<QuadDelta>,
    /// Those of the first delta, if they were made beforehand.
    pub(super) bytes: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum RuleChange {
    Added(RuleId, String, String),
    Removed(RuleId),
}

impl Write {
    /// In the order in which it is to be read again.
    pub(crate) fn kept(&self) -> Vec<DurableChange<'_>> {
        let rule = self.rule.iter().map(|rule| match rule {
            RuleChange::Added(id, name, text) => DurableChange::Rule(*id, name, text),
            RuleChange::Removed(id) => DurableChange::NoRule(*id),
        });
        let stopped = self.stopped.iter().map(|rule| DurableChange::NoRule(*rule));
        let bytes = self.bytes.iter().map(|bytes| DurableChange::DeltaBytes(bytes));
        let deltas = self.deltas.iter().skip(bytes.len()).map(DurableChange::Delta);
        rule.chain(stopped).chain(bytes).chain(deltas).collect()
    }
}

/// An answer on its way, and the job that ends with it: first the job is given back, then the answer is sent.
pub(crate) struct WriterReply<R, C> {
    pub(crate) task: PendingRequest<R, C>,
    pub(crate) outcome: Result<SpaceResponse, Refused>,
    pub(crate) job: Job,
    /// What the job has cost, and whether it was done: else it ended without a result after that.
    pub(crate) cost: Duration,
    pub(crate) is_done: bool,
    pub(crate) subscription: Option<NewSubscription<C>>,
}

/// A subscription whose client is about to hear of it.
pub(crate) struct NewSubscription<C> {
    pub(super) id: SubscriberId,
    /// Nobody else knows its name.
    pub(super) is_new: bool,
    pub(super) connection: Option<C>,
}

/// Something that others want to know.
#[derive(Debug)]
pub(crate) enum WriterEvent<C> {
    /// A query stands, with its text for an operator.
    Subscribed(SubscriberId, Box<str>),
    /// It does not stand any more.
    Left(SubscriberId),
    /// Another connection goes on with the subscription of this one.
    Displaced(SubscriberId, C),
    /// A rule was removed: it failed, or did not come to rest.
    RuleStopped(RuleId, GraphError),
}
