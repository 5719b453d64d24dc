//! While nothing can be kept, what needs no disk goes on, and what does is refused or waits.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, Properties, QoS, ReasonCode, Version};

use crate::event::Event;
use crate::ledger::Loss;
use crate::limits::{STORE_PAUSE, STORE_STALL, UNSYNCED_BYTES_MAX, UNSYNCED_BYTES_STALLED, UNSYNCED_PAUSE};
use crate::message::Publication;
use crate::overload::{Admission, Arrival, Pace};
use crate::shard::Shard;

/// The reserve of bytes that wait for the disk is such a part of what everybody may have: entitled traffic is what is usual,
/// and little of it comes while a slow disk gets there.
const RESERVE_PART: usize = 4;

/// Why nothing can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is room only for what makes less of what is kept.
    Full,
    /// The disk fails.
    Failing,
}

impl Trouble {
    /// In words, for clients and people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Full => "the broker's store is full",
            Self::Failing => "the broker's disk fails",
        }
    }
}

impl Shard {
    /// Whether anything can be kept at the moment; what could be before is told by `handle_synced` all the same.
    pub fn handle_store_health(&mut self, trouble: Option<Trouble>) {
        if self.journal.trouble != trouble {
            self.journal.trouble = trouble;
            self.tell(Event::Store { trouble });
        }
    }

    /// How long the store has been busy with one thing while something of this shard waits for it. A disk that stalls is not
    /// given much more to do: publishers of what has to be kept wait at a sixteenth of the bytes.
    pub fn handle_store_lag(&mut self, lag: Duration) {
        self.journal.is_stalled = lag >= STORE_STALL;
    }

    pub(crate) fn store_trouble(&self) -> Option<Trouble> {
        self.journal.trouble
    }

    /// Asks whether a message that might have to be kept may come in. None: yes.
    pub(crate) fn admit_to_store(
        &mut self,
        arrival: Arrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Option<Admission> {
        let bytes_max = if self.journal.is_stalled { UNSYNCED_BYTES_STALLED } else { UNSYNCED_BYTES_MAX };
        if self.journal.unsynced_bytes <= bytes_max && self.journal.trouble.is_none() {
            return None;
        }
        // First of all: what needs no disk must not use up what is kept for those who wait for it.
        if arrival.delivery == Delivery::AtMostOnce || !self.needs_store(arrival, publication) {
            return None;
        }
        let Some(trouble) = self.journal.trouble else {
            if self.may_use_reserve(arrival, bytes_max, now) {
                return None;
            }
            // The disk is slow: it will get there.
            self.pause(arrival.conn, now + UNSYNCED_PAUSE, now);
            return Some(Admission::Wait);
        };
        if self.version_of(arrival.conn) != Version::V5 {
            self.pause(arrival.conn, now + STORE_PAUSE, now);
            return Some(Admission::Wait);
        }
        self.lose(arrival.session, Loss::StoreError);
        let pace = Pace::new(None, STORE_PAUSE);
        let properties = pace.properties(trouble.words());
        self.answer_with(arrival.conn, arrival.delivery, ReasonCode::QuotaExceeded, Properties::new(&properties));
        Some(Admission::Settled)
    }

    /// At the disk, too, who is within its claim comes first: while those in excess wait, it has a reserve. One in excess is
    /// let in besides, now and then: nobody is locked out by those who have a claim.
    #[cold]
    fn may_use_reserve(&mut self, arrival: Arrival, bytes_max: usize, now: Timestamp) -> bool {
        if self.journal.unsynced_bytes > bytes_max + bytes_max / RESERVE_PART || self.gate.plan().is_none() {
            return false;
        }
        // Who has not published before has no claim yet: names that change with every message do not live in the reserve.
        let is_known = self.sessions.get(arrival.session).is_some_and(|session| session.publisher.is_some());
        if is_known && self.entitled(arrival.conn, arrival.dry_at, now) > 0 {
            return true;
        }
        let is_due = now.since(self.journal.excess_at) >= UNSYNCED_PAUSE;
        if is_due {
            self.journal.excess_at = now;
        }
        is_due
    }

    /// Whether somebody who lasts would get it, as far as this shard knows.
    fn needs_store(&mut self, arrival: Arrival, publication: &Publication<'_>) -> bool {
        let is_kept = |session: u32| self.sessions.get(session).is_some_and(|session| session.kept != 0);
        // To take back what is retained makes room.
        let is_removal = publication.retain && publication.payload.is_empty();
        if self.journal.trouble == Some(Trouble::Full) && is_removal {
            return false;
        }
        if publication.retain || (publication.qos == QoS::ExactlyOnce && is_kept(arrival.session)) {
            return true;
        }
        let route = self.find_route(publication.topic);
        let is_kept = |session: u32| self.sessions.get(session).is_some_and(|session| session.kept != 0);
        route.shards != 0
            || !route.groups.is_empty()
            || route.targets.iter().any(|target| target.qos > QoS::AtMostOnce && is_kept(target.session))
    }
}
