//! The gate of the store: while nothing can be kept, what needs no disk goes on, and what does is refused or waits.

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, QoS};

use super::{Admission, GateArrival, Refusal};
use crate::ledger::Loss;
use crate::limits::{STORE_PAUSE, UNSYNCED_BYTES_MAX, UNSYNCED_BYTES_STALLED, UNSYNCED_PAUSE};
use crate::message::Publication;
use crate::persist::Trouble;
use crate::state::ShardState;

/// The reserve of bytes that wait for the disk is such a part of what everybody may have: entitled traffic is what is usual,
/// and little of it comes while a slow disk gets there.
const RESERVE_PART: usize = 4;

impl ShardState {
    /// Asks whether a message that might have to be kept may come in. None: yes.
    pub(crate) fn admit_to_store(
        &mut self,
        arrival: GateArrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Option<Admission> {
        let bytes_max = if self.journal.is_stalled() { UNSYNCED_BYTES_STALLED } else { UNSYNCED_BYTES_MAX };
        if self.journal.unsynced_bytes() <= bytes_max && self.store_trouble().is_none() {
            return None;
        }
        // First of all: what needs no disk must not use up what is kept for those who wait for it.
        if arrival.delivery == Delivery::AtMostOnce || !self.needs_store(arrival, publication) {
            return None;
        }
        let Some(trouble) = self.store_trouble() else {
            if self.may_use_reserve(arrival, bytes_max, now) {
                return None;
            }
            // The disk is slow: it will get there.
            self.pause(arrival.conn, now + UNSYNCED_PAUSE, now);
            return Some(Admission::Wait);
        };
        if !self.hears_refusals(arrival.conn) {
            self.pause(arrival.conn, now + STORE_PAUSE, now);
            return Some(Admission::Wait);
        }
        self.lose(arrival.session, Loss::StoreError);
        Some(Refusal::later(STORE_PAUSE, trouble.words()))
    }

    /// At the disk, too, who is within its claim comes first: while those in excess wait, it has a reserve. One in excess is
    /// let in besides, now and then: nobody is locked out by those who have a claim.
    #[cold]
    fn may_use_reserve(&mut self, arrival: GateArrival, bytes_max: usize, now: Timestamp) -> bool {
        if self.journal.unsynced_bytes() > bytes_max + bytes_max / RESERVE_PART || self.gate.plan().is_none() {
            return false;
        }
        // Who has not published before has no claim yet: names that change with every message do not live in the reserve.
        let is_known = self.sessions.get(arrival.session).is_some_and(|session| session.publisher().is_some());
        if is_known && self.entitled(arrival.conn, arrival.dry_at, now) > 0 {
            return true;
        }
        let is_due = now.since(self.gate.excess_stored_at) >= UNSYNCED_PAUSE;
        if is_due {
            self.gate.excess_stored_at = now;
        }
        is_due
    }

    /// Whether somebody who lasts would get it, as far as this shard knows.
    fn needs_store(&mut self, arrival: GateArrival, publication: &Publication<'_>) -> bool {
        let is_kept = |session: u32| self.sessions.get(session).is_some_and(|session| session.kept() != 0);
        // To take back what is retained makes room.
        let is_removal = publication.retain && publication.payload.is_empty();
        if self.store_trouble() == Some(Trouble::Full) && is_removal {
            return false;
        }
        if publication.retain || (publication.qos == QoS::ExactlyOnce && is_kept(arrival.session)) {
            return true;
        }
        let route = self.find_route(publication.topic);
        let is_kept = |session: u32| self.sessions.get(session).is_some_and(|session| session.kept() != 0);
        !route.shards.is_empty()
            || !route.groups.is_empty()
            || route.targets.iter().any(|target| target.qos > QoS::AtMostOnce && is_kept(target.session))
    }
}
