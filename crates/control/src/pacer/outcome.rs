//! What a check came to: the only thing a pacer is told.

use core::time::Duration;

use crate::hints::Hints;

/// The end of one attempt. A closed set: everything a pacer does is derived from it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The broker answered in time.
    Answered {
        /// From sending the request to having the answer.
        latency: Duration,
        /// `k`: updates that were lost since the previous successful check and came to light by this one (for events,
        /// every lost notification; for state, only what no later notification repaired).
        losses: u32,
        /// The broker answered "not modified": whatever `losses` says, nothing was missed.
        not_modified: bool,
        /// What the broker said about pace.
        hints: Hints,
    },
    /// The broker refused, with or without a time to come back.
    Denied {
        /// What the broker said about pace; `retry_after` and `ticket` are the ones that matter here.
        hints: Hints,
    },
    /// No answer within the request timeout. If one arrives later, see [`Pacer::on_late_answer`].
    ///
    /// [`Pacer::on_late_answer`]: crate::pacer::Pacer::on_late_answer
    TimedOut,
    /// The transport broke; a reconnect is needed first.
    Failed,
}

impl Outcome {
    /// An answer without hints.
    pub fn answered(latency: Duration, losses: u32) -> Self {
        Self::Answered { latency, losses, not_modified: false, hints: Hints::default() }
    }

    /// A refusal that says nothing more.
    pub fn denied() -> Self {
        Self::Denied { hints: Hints::default() }
    }

    /// What the broker said about pace, if it said anything at all.
    pub fn hints(&self) -> Option<&Hints> {
        match self {
            Self::Answered { hints, .. } | Self::Denied { hints } => Some(hints),
            Self::TimedOut | Self::Failed => None,
        }
    }
}
