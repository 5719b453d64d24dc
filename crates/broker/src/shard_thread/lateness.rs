//! Timers after a pause: a stopped process, a virtual machine that was moved, a machine that had other things to do.
//!
//! When the thread runs again, all that was due meanwhile is due at once, and what clients said meanwhile waits in their
//! sockets. Sockets come first: whoever pinged in time is not to be taken for dead because nobody looked (F122). The
//! time for that is bounded, since some always have more to say.

use mio::Events;
use tidegate_control::Timestamp;

use super::ShardThread;
use crate::limits::{CATCH_UP_MAX, LATE_MIN};

/// Whether sockets have been read since the thread came late.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// Since when timers wait for sockets to be read, or would, if they had not waited long enough.
    since: Option<Timestamp>,
}

/// Whether everything that was there to be read has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sockets {
    Read,
    MoreToRead,
}

impl Lateness {
    /// Whether timers may fire in this turn; `due` is when the first of them should have.
    fn lets_timers_fire(&mut self, due: Option<Timestamp>, sockets: Sockets, now: Timestamp) -> bool {
        if sockets == Sockets::Read || due.is_none_or(|due| now.since(due) < LATE_MIN) {
            self.since = None;
            return true;
        }
        now.since(*self.since.get_or_insert(now)) >= CATCH_UP_MAX
    }
}

impl ShardThread {
    /// What is due, unless what was said before it was due is still to be read.
    pub(super) fn fire_timers(&mut self, events: &Events) {
        let is_all = events.iter().count() < events.capacity() && self.order.is_empty() && self.ready.is_empty();
        let sockets = if is_all { Sockets::Read } else { Sockets::MoreToRead };
        // A wall clock's affair: a login is over whether its client could be heard or not.
        self.end_logins();
        self.end_late_upstreams();
        let due = [self.shard.next_timer(), self.handshakes.next_deadline()].into_iter().flatten().min();
        if self.lateness.lets_timers_fire(due, sockets, self.now) {
            self.dismiss_late();
            self.shard.turn(self.now);
        } else {
            self.shard.turn_without_timers(self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn f122_timers_that_are_late_wait_for_sockets_and_not_for_ever() {
        let (mut lateness, due) = (Lateness::default(), Timestamp::from_secs_f64(100.0));
        let fires = |lateness: &mut Lateness, sockets, after: Duration| {
            lateness.lets_timers_fire(Some(due), sockets, due + after)
        };
        // Hardly late: as ever, however much there is to read.
        assert!(fires(&mut lateness, Sockets::MoreToRead, LATE_MIN / 2));
        // Very late, and everything has been read.
        let pause = Duration::from_secs(15);
        assert!(fires(&mut lateness, Sockets::Read, pause));
        let mut lateness = Lateness::default();
        assert!(!fires(&mut lateness, Sockets::MoreToRead, pause));
        assert!(!fires(&mut lateness, Sockets::MoreToRead, pause + CATCH_UP_MAX / 2));
        assert!(fires(&mut lateness, Sockets::MoreToRead, pause + CATCH_UP_MAX));
        // As long as they are late they do not wait a second time.
        assert!(fires(&mut lateness, Sockets::MoreToRead, pause + CATCH_UP_MAX * 2));
        assert!(lateness.lets_timers_fire(None, Sockets::MoreToRead, due + pause * 2));
        assert!(!fires(&mut lateness, Sockets::MoreToRead, pause * 3));
    }
}
