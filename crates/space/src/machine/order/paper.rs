//! The request pool as the papers have it (P18 §II, P19 Table I): a queue for each type of request, in the order of arrival, of
//! a fixed length. Neither delays nor deadlines nor whoever asks count; the queues take turns, by work, evenly.
//!
//! ```text
//! equal question waiting         join it ("same queries")
//! the queue has room             it waits
//! deny | drop-newest             away, with or without the time to come back
//! drop-oldest                    the oldest of the queue makes room
//! postpone                       waits beside the queue, while there is room there
//! ```

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::{Deadlines, Policy};

use super::lane::{Entry, LineId, Waiter};
use super::{Arrival, EndedBy, KpRole, KpStanding, Offered, Order};

impl<T> Order<T> {
    /// Whether this is the papers' pool.
    pub(crate) fn is_paper(&self) -> bool {
        self.config.deadlines == Deadlines::Ignore
    }

    pub(super) fn offer_in_turn(&mut self, now: Timestamp, request: Arrival<T>) -> Offered<T> {
        let Arrival { class, key, check, shape, patience, value, terms, .. } = request;
        // Everybody stands in one line.
        let (standing, line, lane) = (KpStanding::default(), LineId::default(), class.index());
        let waiter = Waiter { value, arrived: now, deadline: now + patience, check };
        let waiter = match self.join((standing.role, lane, line), class, key, waiter) {
            Ok(()) => return Offered::Joined,
            Err(waiter) => waiter,
        };
        let limits = self.config.classes[class.index()];
        let length = limits.items_max as usize;
        let items = self.tiers[KpRole::Customer.index()].lanes[lane].items();
        let is_full = items >= length;
        if is_full {
            match limits.policy {
                Policy::HeadDrop => {
                    if let Some(oldest) = self.tiers[KpRole::Customer.index()].lanes[lane].displace(line) {
                        self.end(oldest, EndedBy::Displaced);
                    }
                }
                Policy::TailDrop => return Offered::Dropped(waiter.value),
                Policy::Postpone if items < length + limits.parked_max as usize => {}
                Policy::Deny | Policy::Postpone => {
                    let retry_after = self.backlog(now).max(RETRY_MIN);
                    return Offered::Denied(waiter.value, retry_after);
                }
            }
        }
        let is_postponed = is_full && limits.policy == Policy::Postpone;
        let estimate = self.estimates.of(class, shape);
        let (work, is_known, keeps_appointments) = (estimate.nanos, estimate.is_known, false);
        let (first, joined, asker, flow) = (waiter, Vec::new(), terms.asker, terms.flow);
        let entry =
            Entry { first, joined, key, class, shape, standing, work, is_known, keeps_appointments, asker, flow };
        self.enqueue(lane, line, entry);
        if is_postponed { Offered::Postponed } else { Offered::Queued }
    }
}

/// A queue that is full is not empty a moment later.
const RETRY_MIN: Duration = Duration::from_millis(1);
