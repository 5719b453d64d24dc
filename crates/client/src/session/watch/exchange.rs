//! What goes between a watch and its driver: what to send, what arrived, what has changed, and how it fares.
//!
//! Only values; what they mean for a view is decided by [`Watch`](super::Watch).

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::{Asks, Hints};
use tidegate_control::pacer::{PacerPlan, PacerSnapshot};

use crate::prelude::*;
use crate::session::row::{Delta, Row};

/// How a watch learns of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeDelivery {
    /// By notifications, and checks find what was lost.
    #[default]
    Push,
    /// By checks only: for brokers without subscriptions.
    Poll,
}

/// What a watch is made from.
#[derive(Clone, Debug)]
pub struct WatchPlan {
    /// How checks are paced.
    pub pacer: Arc<PacerPlan>,
    /// How the watch learns of changes.
    pub delivery: ChangeDelivery,
    /// How long an answer to a check is awaited.
    pub check_timeout: Duration,
}

/// The number of a request; an answer to another one is late and changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u32);

/// What the driver shall send.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchAction {
    /// Subscribe, in place of a subscription that there may be.
    Subscribe {
        /// The number to answer with, also with each notification of the subscription.
        attempt: Attempt,
        /// The subscription before and the number of its last notification, if the view is exactly that state: a broker
        /// that can, tells what was missed since.
        resume: Option<(Attempt, u64)>,
        /// What to tell the broker about pace.
        asks: Asks,
    },
    /// Ask for the result.
    Check {
        /// The number to answer with.
        attempt: Attempt,
        /// Ask what was missed since this notification, if the broker can tell: of the subscription of that attempt.
        since: Option<(Attempt, u64)>,
        /// The name of the version that was seen last; an equal one need not be sent again.
        version: Option<Box<str>>,
        /// What to tell the broker about pace.
        asks: Asks,
    },
}

/// What the driver tells a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The subscription stands.
    Subscribed {
        /// The request that is answered.
        attempt: Attempt,
        /// The number of the baseline.
        sequence: u64,
        /// The whole result.
        rows: Vec<Row>,
    },
    /// The subscription goes on: exactly this was missed.
    Resumed {
        /// The request that is answered.
        attempt: Attempt,
        /// It counts as the notification of this number.
        sequence: u64,
        /// The rows that entered and left meanwhile.
        delta: Delta,
    },
    /// A notification.
    Changed {
        /// The request that made the subscription.
        attempt: Attempt,
        /// Its number, if the broker numbers.
        sequence: Option<u64>,
        /// The rows that entered and left.
        delta: Delta,
        /// `pace-spread-ms`, if it was said.
        spread: Option<Duration>,
    },
    /// Who brings the changes of a subscription from now on.
    Delegated {
        /// The request that made the subscription.
        attempt: Attempt,
        /// The number of the last notification before.
        sequence: u64,
        /// How often to ask what was missed; none if it is notified again.
        every: Option<Duration>,
    },
    /// A subscription is over, without our wish.
    Ended {
        /// The attempt that subscribed.
        attempt: Attempt,
        /// What was said about coming back.
        hints: Hints,
    },
    /// The answer to a check: the whole result.
    Whole {
        /// The request that is answered.
        attempt: Attempt,
        /// The result.
        rows: Vec<Row>,
        /// The name of its version.
        version: Option<Box<str>>,
        /// What was said about pace.
        hints: Hints,
    },
    /// The answer to a check: exactly what was missed.
    Missed {
        /// The request that is answered.
        attempt: Attempt,
        /// It counts as the notification of this number.
        sequence: u64,
        /// The rows that entered and left since.
        delta: Delta,
        /// What was said about pace.
        hints: Hints,
    },
    /// The answer to a check what was missed, if that is no longer known: the whole result, in place of everything up to
    /// a notification.
    Fresh {
        /// The request that is answered.
        attempt: Attempt,
        /// It counts as the notification of this number.
        sequence: u64,
        /// The result.
        rows: Vec<Row>,
        /// What was said about pace.
        hints: Hints,
    },
    /// The answer to a check: nothing has changed since the version that was named.
    NotModified {
        /// The request that is answered.
        attempt: Attempt,
        /// What was said about pace.
        hints: Hints,
    },
    /// No answer to a request.
    Refused {
        /// The request that failed.
        attempt: Attempt,
        /// Why there is no answer.
        failure: ExchangeFailure,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ExchangeFailure {
    /// The broker said no for now.
    Denied(Hints),
    /// It said nothing in time.
    TimedOut,
    /// The connection broke, or what came made no sense; the next may be tried after this time.
    Failed(Option<Duration>),
    /// The broker does not know this kind of check.
    Unsupported,
}

/// How a change was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSource {
    /// The whole result, at the beginning.
    Baseline,
    /// A notification.
    Notification,
    /// A check, or the subscription that followed a loss or a cut.
    Check,
}

/// A difference of the result that has not been told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultChange {
    /// Rows that are new.
    pub added: Vec<Row>,
    /// Rows that are gone.
    pub removed: Vec<Row>,
    /// Notifications that were lost before this, as far as can be known: what they said is contained, if the level of
    /// control is any but `none`.
    pub lost: u32,
    /// How the last part of it was learnt.
    pub source: ChangeSource,
}

impl ResultChange {
    /// This change and then another, as one.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let before = Delta { added: self.added, removed: self.removed };
        let Delta { added, removed } = before.then(Delta { added: next.added, removed: next.removed });
        let source = if self.source == ChangeSource::Baseline { ChangeSource::Baseline } else { next.source };
        Self { added, removed, lost: self.lost.saturating_add(next.lost), source }
    }
}

/// Numbers of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Notifications that were applied.
    pub notifications: u64,
    /// Checks that were sent.
    pub checks: u64,
    /// Checks that were answered.
    pub answered: u64,
    /// Requests that were refused.
    pub denied: u64,
    /// Requests without an answer in time, or whose connection broke.
    pub failed: u64,
    /// Lost notifications that came to light by their numbers.
    pub gaps: u64,
    /// Losses that came to light by checks.
    pub losses: u64,
    /// Changes that were missed while there was no subscription.
    pub away: u64,
    /// Subscriptions.
    pub subscribed: u64,
    /// Those of them that went on where the one before had ended.
    pub resumed: u64,
    /// How often the broker handed the subscription over.
    pub delegations: u64,
}

/// What a watch is doing, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchStats {
    /// The pacer: AST, RBT, σ, estimates.
    pub pacer: PacerSnapshot,
    /// Numbers of the watch since it began.
    pub counts: WatchCounts,
    /// A subscription stands.
    pub is_live: bool,
    /// The broker does not notify for now: it is asked so often what was missed.
    pub delegated: Option<Duration>,
    /// When the next check is due.
    pub next_check: Option<Timestamp>,
    /// t: how long the pacer has it wait, from the end of the check before; none where the level has no checks, or the broker says
    /// when.
    pub timeout: Option<Duration>,
    /// Distinct rows of the view.
    pub rows: usize,
}
