//! A publisher in the situation: whether it floods, sends unusually much while nobody suffers, or only has to wait.

use std::cmp::Reverse;
use std::sync::Arc;

use tidegate_core::RATE_WINDOW;
use tidegate_core::report::{ClientReport, ClientState};

use super::magnitude;
use crate::view;

/// So many times what is usual is a flood.
pub(crate) const FLOOD_FACTOR: f64 = 2.0;

/// Messages a second of a newcomer that are nobody's usual traffic while others wait.
pub(crate) const NEWCOMER_RATE_MAX: f64 = 100.0;
/// Messages a second below which nobody is named for sending more than usual while nobody suffers: a sensor of one message an
/// hour may send three.
pub(super) const UNUSUAL_RATE_MIN: f64 = 10.0;

/// A publisher that sends too much, or has to wait.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TroubledPublisher {
    pub(crate) client_id: Arc<str>,
    pub(crate) state: ClientState,
    pub(crate) rate: f64,
    pub(crate) usual: Option<f64>,
    /// What an operator has set for it, in messages a second.
    pub(crate) limit: Option<f64>,
    /// Whether it is held back for its rate, and not for want of memory or a disk that is slow.
    pub(crate) is_for_rate: bool,
    /// Whose queue its messages fill.
    pub(crate) fills: Option<Arc<str>>,
    /// How much of what is lost there is its own, in hundredths.
    pub(crate) part: Option<u8>,
    /// It has been too much for that receiver since it came, when nothing was usual for it.
    pub(crate) is_newcomer: bool,
}

impl TroubledPublisher {
    pub(super) fn of(client: &ClientReport, limit: Option<f64>, fills: Option<Arc<str>>) -> Self {
        let (client_id, usual) = (Arc::clone(&client.client_id), usual_of(client));
        let is_for_rate = client.publisher.is_some_and(|publisher| publisher.slowed_since.is_some());
        let (state, rate) = (client.state, client.rate.unwrap_or(0.0));
        Self { client_id, state, rate, usual, limit, is_for_rate, fills, part: None, is_newcomer: false }
    }

    /// How many times its usual rate it sends; none while nothing is usual, or it is not read.
    pub(crate) fn factor(&self) -> Option<f64> {
        self.usual.map(|usual| self.rate / usual.max(1e-3))
    }

    /// Whether it sends more than it should: more than is usual for it, and it is held back for that or somebody else suffers.
    /// Of one that is not read nobody knows what it sends: it sends more than is taken.
    /// Of a newcomer nobody knows what it should: it floods if it was refused, or sends very much while somebody suffers or it
    /// has to wait. A few messages a second are no flood, however slow their receiver is. Who has been too much for a receiver since
    /// it came is a newcomer there, whatever is usual for it since. Who is held to a limit that an
    /// operator has set is dealt with already, unless somebody suffers.
    pub(crate) fn is_flooding(&self) -> bool {
        if self.limit.is_some() {
            return self.fills.is_some();
        }
        match (self.state, self.factor()) {
            (ClientState::Paused, _) => self.is_for_rate || self.fills.is_some(),
            (_, Some(_)) if self.is_newcomer && self.fills.is_some() && self.rate >= NEWCOMER_RATE_MAX => true,
            (state, Some(factor)) => factor > FLOOD_FACTOR && (state.is_held_back() || self.fills.is_some()),
            (state, None) => {
                let is_harm = state.is_held_back() || self.fills.is_some();
                state == ClientState::BackedOff || (is_harm && self.rate >= NEWCOMER_RATE_MAX)
            }
        }
    }

    /// Whether a limit that an operator has set does more than delay: its messages are refused, dropped or not read. Who has
    /// set it may have forgotten it, or have set it too low.
    pub(crate) fn loses_by_limit(&self) -> bool {
        let is_lossy = matches!(self.state, ClientState::BackedOff | ClientState::Paused);
        self.limit.is_some() && is_lossy && !self.is_flooding()
    }

    /// Whether it floods and nobody but an operator does something about that: it is not held back, or somebody suffers all the
    /// same.
    pub(crate) fn needs_operator(&self) -> bool {
        self.is_flooding() && (self.fills.is_some() || !self.state.is_held_back())
    }

    pub(super) fn weight(&self) -> (bool, bool, i32, Reverse<Arc<str>>) {
        (self.needs_operator(), self.is_flooding(), magnitude(self.rate), Reverse(Arc::clone(&self.client_id)))
    }
}

/// What a client is used to, by its claim or its rhythm.
pub(crate) fn usual_of(client: &ClientReport) -> Option<f64> {
    client.publisher.and_then(|publisher| publisher.usual).or_else(|| view::learned_rate(client))
}

/// Whether nothing is usual for it yet, nobody has granted it anything, and it sends so much that it may be a flood.
pub(super) fn is_loud_newcomer(client: &ClientReport) -> bool {
    let publisher = client.publisher.filter(|_| client.link.is_some() && !client.state.is_held_back());
    let is_new = publisher.is_some_and(|publisher| publisher.granted.is_none()) && usual_of(client).is_none();
    is_new && client.rate.unwrap_or(0.0) >= NEWCOMER_RATE_MAX
}

/// Whether it sends far more than is usual for it or granted to it, and so much that it is worth a word. Who is known to send
/// many at once has them in one window.
pub(super) fn sends_unusually(client: &ClientReport) -> bool {
    let (Some(publisher), Some(usual)) = (client.publisher.filter(|_| client.link.is_some()), usual_of(client)) else {
        return false;
    };
    let rate = client.rate.unwrap_or(0.0);
    let at_once = f64::from(publisher.batch) / RATE_WINDOW.as_secs_f64();
    let least = UNUSUAL_RATE_MIN.max(FLOOD_FACTOR * at_once);
    rate >= least && rate > FLOOD_FACTOR * usual.max(publisher.granted.unwrap_or(0.0))
}
