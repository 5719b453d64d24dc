//! While nobody knows what requests cost here: a burst at a start, of which every guess is wrong by orders of magnitude.
//!
//! ```text
//! keeps appointments, would wait too long       waits all the same, however long that may be
//! enough were served, or most of the patience   who would still wait too long is sent away with a place, in order
//!   of the first who waits has gone by
//! there is no room to wait                      away without a place, as if requests cost next to nothing: whoever comes
//!                                               again then finds a book that knows more
//! ```
//! Places that were given by a guess were ten times too dense or too far apart: a burst asked once more than it had to, or
//! left the server idle for most of the time.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::appointments::Visitor;

use super::{EndedWait, KeptPlace, RequestQueue};
use crate::machine::order::{ShedEntry, USUAL_SAMPLES};

#[derive(Debug)]
pub(super) struct ColdStart<T> {
    /// Jobs that were served, as far as they matter.
    served: u64,
    /// When it has to be decided about those who wait provisionally.
    until: Option<Timestamp>,
    /// When the last one is told to come for which there was no room.
    overflow: Timestamp,
    sent_away: Vec<EndedWait<T>>,
}

impl<T> Default for ColdStart<T> {
    fn default() -> Self {
        Self { served: 0, until: None, overflow: Timestamp::ZERO, sent_away: Vec::new() }
    }
}

impl<T> ColdStart<T> {
    /// A job was served; whether what waits is to be estimated anew.
    pub(super) fn on_served(&mut self) -> bool {
        self.served = (self.served + 1).min(USUAL_SAMPLES + 1);
        self.served <= USUAL_SAMPLES && self.served.is_power_of_two()
    }

    /// Somebody waits provisionally, with so much patience.
    pub(super) fn on_waiting(&mut self, now: Timestamp, patience: Duration) {
        let until = now + patience.mul_f64(DECIDED_AT);
        self.until = Some(self.until.map_or(until, |before| before.min(until)));
    }

    pub(super) fn drain(&mut self) -> Vec<EndedWait<T>> {
        std::mem::take(&mut self.sent_away)
    }
}

impl<T> RequestQueue<T> {
    /// Something is under way, and too little was served to know what it costs.
    pub(super) fn is_cold(&self) -> bool {
        self.cold.served < USUAL_SAMPLES && self.order.is_working()
    }

    /// What waits, as if it cost next to nothing.
    pub(super) fn cold_backlog(&self) -> Duration {
        COLD_COST.saturating_mul(u32::try_from(self.order.items()).unwrap_or(u32::MAX))
    }

    /// When somebody may come for whom there is no room.
    pub(super) fn turn_of_overflow(&mut self, now: Timestamp) -> Duration {
        self.cold.overflow = self.cold.overflow.max(now + self.cold_backlog()) + COLD_COST;
        self.cold.overflow.since(now)
    }

    /// Decides about those who wait provisionally, as soon as it can or has to be.
    pub(super) fn end_cold(&mut self, now: Timestamp) {
        if !self.cold.until.is_some_and(|until| self.cold.served >= USUAL_SAMPLES || until <= now) {
            return;
        }
        // From here on whoever comes has to go behind them.
        (self.cold.until, self.cold.served) = (None, USUAL_SAMPLES);
        self.order.reassess();
        let gone = self.order.shed(self.order.delay_max_shared());
        let queued = self.order.backlog(now);
        self.book.settle(now, queued);
        for ShedEntry { client, place, value } in gone {
            let work = self.shared(place);
            let (retry_after, ticket) =
                self.book.assign(now, &Visitor { client: &client.to_le_bytes(), work, ticket: None });
            self.note_sent_away(client, retry_after);
            self.cold.sent_away.push(EndedWait::SentAway(value, KeptPlace { queued, retry_after, ticket }));
        }
    }
}

/// The part of its patience after which whoever waits is told where it stands: it hears that in time.
const DECIDED_AT: f64 = 0.75;
/// What a request is taken to cost while nobody knows: so little that nobody who was sent away comes too late.
const COLD_COST: Duration = Duration::from_micros(10);
