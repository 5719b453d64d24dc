//! What is due when. A heap with lazy deletion: whoever a timer is for looks, when it fires, whether it still means it.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use tidegate_control::Timestamp;

/// What is due. The numbers are positions and generations in the shard's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Look whether this connection is still alive.
    KeepAlive { conn: u32, generation: u32 },
    /// Look whether this connection has stopped in the middle of a packet, or takes nothing any more.
    Progress { conn: u32, generation: u32 },
    /// Publish the will of this session.
    Will { session: u32, generation: u32 },
    /// End this session.
    Expiry { session: u32, generation: u32 },
}

#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Timestamp, Due)>>);

impl Timers {
    pub(crate) fn set(&mut self, at: Timestamp, due: Due) {
        self.0.push(Reverse((at, due)));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets what nobody waits for any more.
    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(Timestamp, Due) -> bool) {
        self.0.retain(|Reverse((at, due))| is_wanted(*at, *due));
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, due))| due)
    }
}
