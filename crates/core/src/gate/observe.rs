//! What publishers send while the gate is off. Nobody is slowed, coloured or ordered by it: an operator is to see who sends how
//! much, and what is usual for it, whatever the mode; and a flood that began while the gate was off is none of a publisher's
//! habits when it is switched on.
//!
//! Told once for each portion of a connection's bytes and not for each message: off is what everything else is compared with,
//! and costs next to nothing. Who has a limit is told of with each message (`rhythm`), and not here.

use tidegate_control::Timestamp;
use tidegate_control::claim::{Claim, ClaimPlan};

use crate::connection::Connection;
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::ShardState;

impl ShardState {
    /// Messages of this connection so far; none where publishers are watched.
    #[inline]
    pub(crate) fn begin_observing(&self, conn: ConnId) -> Option<u64> {
        if self.gate.plan().is_some() {
            return None;
        }
        self.connection(conn).map(|connection| connection.traffic().received)
    }

    /// A portion of a connection is dealt with that had sent so many messages before it.
    pub(crate) fn end_observing(&mut self, conn: ConnId, before: u64, dry_at: Timestamp, now: Timestamp) {
        let Some(connection) = self.connection(conn) else { return };
        let (count, index) = (connection.traffic().received.saturating_sub(before), connection.session());
        let is_told = self.sessions.get(index).is_none_or(|session| session.publisher().is_some());
        if count == 0 || is_told {
            return;
        }
        if let Some(connection) = self.connection_mut(conn) {
            count_in(connection.observed_mut(), count, dry_at, now);
        }
    }

    /// A client is a publisher from now on: what it was seen to send while the gate was off is what it begins with, unless more
    /// is known of it.
    pub(super) fn adopt_observed(&mut self, index: u32, slot: u32) {
        let conn = self.sessions.get(index).and_then(Session::conn);
        let connection = conn.and_then(|conn| self.connections.get_mut(conn));
        if let Some(claim) = connection.and_then(Connection::take_observed) {
            self.gate.publishers.adopt(slot, *claim);
        }
    }
}

/// So many messages came at once, as far as is known.
fn count_in(claim: &mut Claim, count: u64, dry_at: Timestamp, now: Timestamp) {
    let plan = ClaimPlan::default();
    if claim.ends_second(now) {
        // What its parent has room for is asked when the gate is switched on.
        claim.go_on(&plan, now, dry_at, f32::MAX);
    }
    claim.on_message(&plan, now, dry_at);
    claim.on_more(u32::try_from(count - 1).unwrap_or(u32::MAX), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn what_is_counted_by_portions_is_a_rate_and_becomes_usual() {
        let mut claim = Claim::default();
        let mut now = Timestamp::from_secs_f64(1000.0);
        for _ in 0..80 * 20 {
            now = now + Duration::from_millis(50);
            count_in(&mut claim, 2, now, now);
        }
        let usual = claim.learned_rate().unwrap_or(0.0);
        assert!((38.0..42.0).contains(&usual) && (36.0..44.0).contains(&claim.recent_rate(now)), "{usual}");
        for _ in 0..20 * 20 {
            now = now + Duration::from_millis(50);
            count_in(&mut claim, 100, now, now);
        }
        let usual = claim.learned_rate().unwrap_or(0.0);
        assert!(usual < 50.0 && claim.recent_rate(now) > 1500.0, "{usual}: a flood is not usual");
    }
}
