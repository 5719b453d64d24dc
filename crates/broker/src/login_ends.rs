//! When logins end: connections that came with a token, soonest first. Pure: time is an argument.
//!
//! Who has left before leaves its entry behind until that is due, or until there are too many of those.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_control::Timestamp;
use tidegate_core::ConnId;

use crate::limits::STALE_DEADLINES_MAX;

/// The ends of one thread's connections.
#[derive(Debug, Default)]
pub(crate) struct LoginEnds(BinaryHeap<Reverse<(Timestamp, ConnId)>>);

impl LoginEnds {
    /// This connection ends then. `is_here` says of others whether they are still there.
    pub(crate) fn push(&mut self, at: Timestamp, conn: ConnId, is_here: impl Fn(ConnId) -> bool) {
        if self.0.len() >= STALE_DEADLINES_MAX && self.0.len() == self.0.capacity() {
            // Before it would grow: what is left fills half of the room at most, or the room is needed.
            self.0.retain(|Reverse((_, conn))| is_here(*conn));
        }
        self.0.push(Reverse((at, conn)));
    }

    /// When the next one is due, gone or not.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// One whose time has come.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<ConnId> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, conn))| conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn conn(index: u32) -> ConnId {
        ConnId { index, generation: 0 }
    }

    #[test]
    fn they_end_in_the_order_of_their_time() {
        let mut ends = LoginEnds::default();
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        for seconds in [3, 1, 2] {
            ends.push(at(seconds), conn(seconds as u32), |_| true);
        }
        assert_eq!((ends.next(), ends.pop_due(Timestamp::ZERO)), (Some(at(1)), None));
        assert_eq!(
            (ends.pop_due(at(2)), ends.pop_due(at(2)), ends.pop_due(at(2))),
            (Some(conn(1)), Some(conn(2)), None)
        );
    }

    #[test]
    fn those_who_left_do_not_pile_up() {
        let mut ends = LoginEnds::default();
        for index in 0..20 * STALE_DEADLINES_MAX as u32 {
            ends.push(Timestamp::MAX, conn(index), |other| other.index + 10 > index);
        }
        assert!(ends.0.len() <= 4 * STALE_DEADLINES_MAX, "{}", ends.0.len());
    }
}
