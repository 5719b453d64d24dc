//! When logins end: connections that came with a token, soonest first. Pure: time is an argument.
//!
//! Who has left before leaves its entry behind until that is due, or until there are too many of those. A stream that goes on with
//! another login ends with that one: its last word counts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tidegate_control::Timestamp;
use tidegate_core::ConnId;

use crate::limits::STALE_DEADLINES_MAX;

/// The ends of one thread's connections.
#[derive(Debug, Default)]
pub(crate) struct LoginEnds {
    ends: BinaryHeap<Reverse<(Timestamp, ConnId)>>,
    /// The end that counts.
    last: BTreeMap<ConnId, Timestamp>,
}

impl LoginEnds {
    /// This connection ends then. `is_here` says of others whether they are still there.
    pub(crate) fn push(&mut self, at: Timestamp, conn: ConnId, is_here: impl Fn(ConnId) -> bool) {
        if self.ends.len() >= STALE_DEADLINES_MAX && self.ends.len() == self.ends.capacity() {
            // Before it would grow: what is left fills half of the room at most, or the room is needed.
            self.last.retain(|conn, _| is_here(*conn));
            let last = &self.last;
            self.ends.retain(|Reverse((at, conn))| last.get(conn) == Some(at));
        }
        self.last.insert(conn, at);
        self.ends.push(Reverse((at, conn)));
    }

    /// This connection has no end any more.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.last.remove(&conn);
    }

    /// When the next one is due, gone or not.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    /// One whose time has come.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<ConnId> {
        while self.next()? <= now {
            let Reverse((at, conn)) = self.ends.pop()?;
            if self.last.get(&conn) == Some(&at) {
                self.last.remove(&conn);
                return Some(conn);
            }
        }
        None
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
        assert!(ends.ends.len() <= 4 * STALE_DEADLINES_MAX, "{}", ends.ends.len());
        assert!(ends.last.len() <= ends.ends.len(), "{}", ends.last.len());
    }

    #[test]
    fn the_last_login_of_a_connection_counts() {
        let mut ends = LoginEnds::default();
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        for (seconds, index) in [(1, 1), (5, 1), (1, 2), (9, 3), (2, 3)] {
            ends.push(at(seconds), conn(index), |_| true);
        }
        ends.forget(conn(2));
        assert_eq!((ends.pop_due(at(1)), ends.pop_due(at(2))), (None, Some(conn(3))), "one that is shorter, too");
        assert_eq!((ends.pop_due(at(4)), ends.pop_due(at(9)), ends.pop_due(at(9))), (None, Some(conn(1)), None));
    }
}
