//! What is due when. A heap with lazy deletion: whoever a timer is for looks, when it fires, whether it still means it.
//!
//! No timer is set further ahead than a minute; one that fires early is set again. So what a connection or session left
//! behind when it ended is gone a minute later, however long its keep-alive or expiry was, and a client that comes and
//! goes cannot fill the heap.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::limits::TIMER_WORK_PER_TURN_MAX;
use crate::shard::ConnId;
use crate::state::ShardState;

/// What is due. The numbers are positions and generations in the shard's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DueTimer {
    /// Look whether this connection is still alive.
    KeepAlive { conn: u32, generation: u32 },
    /// Look whether this connection has stopped in the middle of a packet, or takes nothing any more.
    Progress { conn: u32, generation: u32 },
    /// Look after a session without a connection: its will, its end.
    Session { session: u32, generation: u32 },
    /// Drop what waited longer for a session than its class may.
    Overdue { session: u32, generation: u32 },
    /// Release what a session holds, or read its connection again.
    Release { session: u32, generation: u32 },
}

#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Timestamp, DueTimer)>>);

impl Timers {
    /// Sets a timer for this time, or for a minute from now if that is earlier; the answer is which.
    pub(crate) fn set(&mut self, now: Timestamp, at: Timestamp, due: DueTimer) -> Timestamp {
        let at = at.min(now + AHEAD_MAX);
        self.0.push(Reverse((at, due)));
        at
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// A timer whose time has come, and what it was set to.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, DueTimer)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(timer)| timer)
    }
}

impl ShardState {
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// What is due, as much as a turn has time for.
    pub(crate) fn fire_timers(&mut self, now: Timestamp) {
        let before = self.work();
        let mut timers = 0;
        while timers + self.work() - before < TIMER_WORK_PER_TURN_MAX {
            timers += 1;
            match self.timers.pop_due(now) {
                Some((_, DueTimer::KeepAlive { conn, generation })) => {
                    self.check_alive(ConnId { index: conn, generation }, now);
                }
                Some((_, DueTimer::Progress { conn, generation })) => {
                    self.check_progress(ConnId { index: conn, generation }, now);
                }
                Some((at, DueTimer::Session { session, generation })) => {
                    self.check_session(session, generation, at, now);
                }
                Some((at, DueTimer::Overdue { session, generation })) => {
                    self.check_overdue(session, generation, at, now);
                }
                Some((at, DueTimer::Release { session, generation })) => {
                    self.check_release(session, generation, at, now);
                }
                None => return,
            }
            self.journal.end_whole();
        }
    }

    /// Work that was ever done, as far as it is not one step.
    fn work(&self) -> u64 {
        let deliveries: u64 = self.stats.by_class.iter().map(|class| class.deliveries).sum();
        deliveries + self.subscriptions_ended
    }
}

const AHEAD_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timer_is_set_further_ahead_than_a_minute() {
        let (mut timers, due) = (Timers::default(), DueTimer::KeepAlive { conn: 0, generation: 0 });
        let now = Timestamp::from_secs_f64(5.0);
        assert_eq!(timers.set(now, Timestamp::MAX, due), Timestamp::from_secs_f64(65.0));
        assert_eq!(timers.set(now, Timestamp::from_secs_f64(6.0), due), Timestamp::from_secs_f64(6.0));
        assert_eq!(timers.pop_due(now), None);
        assert_eq!(timers.pop_due(Timestamp::from_secs_f64(6.0)), Some((Timestamp::from_secs_f64(6.0), due)));
        assert_eq!(timers.next(), Some(Timestamp::from_secs_f64(65.0)));
    }
}
