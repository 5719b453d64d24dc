//! What happens to a client, for people and for their dashboards. Made from what is sent and heard; nothing is decided by
//! it, and a client that nobody watches makes none.

use core::time::Duration;

use tidegate_control::hints::Hints;

use super::watch::{ExchangeFailure, Input, WatchAction};

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientEvent {
    /// To which persistent query, by its number; to the whole connection if there is none.
    pub query: Option<u64>,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A connection stands, or the subscription of a query.
    Connected,
    /// A connection or a subscription is over, without our wish.
    Cut,
    /// The connection is tried again.
    Returning {
        /// In this time.
        after: Duration,
    },
    /// The broker is too busy.
    Refused {
        /// When it said to come back.
        retry_after: Option<Duration>,
        /// A place is kept until then.
        is_promised: bool,
    },
    /// A request broke, or had no answer in time.
    Failed,
    /// A check was sent.
    CheckSent,
    /// A check was answered.
    CheckAnswered {
        /// In short: nothing has changed, or only what was missed. Else with the whole result.
        is_short: bool,
    },
    /// Notifications were lost, and it is known.
    LossFound {
        /// k.
        losses: u32,
    },
    /// The whole result was told anew, and the view is exactly that.
    BaselineRenewed {
        /// The number of rows of the result.
        rows: usize,
    },
    /// The subscription went on where it was: exactly what was missed was told.
    Resumed,
    /// The broker said how fast to ask, and it is heeded.
    AdviceTaken {
        /// By how much the interval is to be stretched.
        stretch: Option<f64>,
        /// What it would like the interval to be.
        interval: Option<Duration>,
    },
    /// The broker has handed the subscription over, and asks for a check so often; or it notifies again.
    Delegated {
        /// How often.
        every: Option<Duration>,
    },
    /// Whoever reads these was too slow: so many are not told.
    Missed(u64),
}

impl EventKind {
    /// What it means that this is sent.
    pub fn of_action(action: &WatchAction) -> Option<Self> {
        match action {
            WatchAction::Check { .. } => Some(Self::CheckSent),
            WatchAction::Subscribe { .. } => None,
        }
    }

    /// What it means that this has come.
    pub fn of_input(input: &Input) -> Option<Self> {
        Some(match input {
            Input::Subscribed { rows, .. } => Self::BaselineRenewed { rows: rows.len() },
            Input::Resumed { .. } => Self::Resumed,
            Input::Whole { .. } | Input::Fresh { .. } => Self::CheckAnswered { is_short: false },
            Input::Missed { .. } | Input::NotModified { .. } => Self::CheckAnswered { is_short: true },
            Input::Delegated { every, .. } => Self::Delegated { every: *every },
            Input::Ended { .. } => Self::Cut,
            Input::Refused { failure: ExchangeFailure::Denied(hints), .. } => Self::refused(hints),
            Input::Refused { failure: ExchangeFailure::Unsupported, .. } | Input::Changed { .. } => return None,
            Input::Refused { .. } => Self::Failed,
        })
    }

    /// The advice in what has come.
    pub fn advice_in(input: &Input) -> Option<Self> {
        let (Input::Whole { hints, .. }
        | Input::Fresh { hints, .. }
        | Input::Missed { hints, .. }
        | Input::NotModified { hints, .. }
        | Input::Refused { failure: ExchangeFailure::Denied(hints), .. }) = input
        else {
            return None;
        };
        let Hints { stretch, interval, .. } = *hints;
        (stretch.is_some() || interval.is_some()).then_some(Self::AdviceTaken { stretch, interval })
    }

    pub(crate) fn refused(hints: &Hints) -> Self {
        Self::Refused { retry_after: hints.retry_after, is_promised: hints.ticket.is_some() }
    }
}
