//! What a subscriber is told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::hints::{Delegate, Hints};
use tidegate_graph::GraphError;

use crate::change::WrittenChange;

/// What a subscriber is told after its baseline.
#[derive(Clone, Debug)]
pub enum SpaceNotification {
    /// The result changed.
    Changed {
        /// 1, 2, 3, … without gaps; what was merged under pressure is one change.
        sequence: u64,
        /// The version of the data that it leads to.
        version: u64,
        /// The rows that entered and left the result.
        delta: Arc<WrittenChange>,
    },
    /// Nothing new, but who brings it from now on. It has no number of its own.
    Delegated {
        /// The number of the last change that was told.
        sequence: u64,
        /// How often its client is to ask what it missed; none if it is pushed again.
        every: Option<Duration>,
    },
    /// It is over: the standing query failed, what was missed is not known any more, or another connection has it now.
    Ended(Option<GraphError>),
    /// It is over with all others: the space begins anew.
    Restarting {
        /// The time over which their clients should come back; none if there are few.
        spread: Option<Duration>,
    },
}

/// Who brings the changes of a subscription, in words of pace.
pub(crate) fn delegation_hints(every: Option<Duration>) -> Hints {
    let delegate = if every.is_some() { Delegate::Check } else { Delegate::Push };
    Hints { delegate: Some(delegate), interval: every, ..Hints::default() }
}
