//! What waits for clients that are away, bounded together (F059, F066).
//!
//! A session that nobody comes for may keep its messages for a week. So that such sessions never use up what newcomers
//! need, they have half of the memory budget together: beyond that, the longest queue among them loses its oldest
//! message, and it is counted. What is there already stays when the budget itself is made smaller (F142): only what comes in
//! pushes out as much. A message that waits in several queues is there once and counted in each, so the sum is
//! more than what they cost; they give way only if all memory in use is also more than their part. A queue that is on
//! disk has a window of its own in memory and does not count here.

use alloc::collections::BTreeSet;

use tidegate_control::Timestamp;

use crate::ledger::Loss;
use crate::limits::ABSENT_DROPS_MAX;
use crate::state::ShardState;

/// The queues of sessions without a connection.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    bytes: usize,
    /// Bytes that came in while they had more than their part: as much has to go.
    debt: usize,
    /// Places of sessions, by the power of two below the bytes of their queues: the last is the longest, or half of it.
    by_length: BTreeSet<(u32, u32)>,
}

impl Absent {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn change(&mut self, session: u32, before: usize, now: usize) {
        self.bytes = self.bytes + now - before;
        self.debt = (self.debt + now.saturating_sub(before)).saturating_sub(before.saturating_sub(now));
        let (old, new) = (before.checked_ilog2(), now.checked_ilog2());
        if old != new {
            old.map(|length| self.by_length.remove(&(length, session)));
            new.map(|length| self.by_length.insert((length, session)));
        }
    }

    /// What is there now may stay.
    pub(crate) fn forgive(&mut self) {
        self.debt = 0;
    }

    fn longest(&self) -> Option<u32> {
        self.by_length.last().map(|(_, session)| *session)
    }
}

impl ShardState {
    /// Somebody came or went, or more or less waits for somebody who is away.
    pub(crate) fn note_absent(&mut self, index: u32) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let bytes = session.away_bytes();
        let before = session.replace_absent_bytes(bytes);
        self.memory.absent.change(index, before, bytes);
    }

    /// Those who are away have no more than their part of the memory: what came in pushes out as much, a bounded number of
    /// messages at once.
    #[inline]
    pub(crate) fn bound_absent(&mut self, now: Timestamp) {
        let mut left = ABSENT_DROPS_MAX;
        while self.memory.absent.debt > 0 {
            if !self.memory.is_absent_excess() {
                self.memory.absent.debt = 0;
            } else if left == 0 {
                return;
            } else if let Some(index) = self.memory.absent.longest() {
                left -= 1;
                self.drop_for_absence(index, now);
            } else {
                return;
            }
        }
    }

    #[cold]
    fn drop_for_absence(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(lost) = session.with_queue(&mut self.stats, |queue, _| queue.evict()) {
            self.journal.dequeue_item(session.kept(), &lost);
            session.ledger.lose_delivery(Loss::AbsentBudget, lost.class(), &mut self.stats);
            session.note_crowding((0, false), now);
        }
        self.note_absent(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_is_at_least_half_of_the_longest(changes in prop::collection::vec((0..8_u32, 0..5000_usize), 1..100)) {
            let (mut absent, mut model) = (Absent::default(), vec![0; 8]);
            for (session, bytes) in changes {
                let before = core::mem::replace(&mut model[session as usize], bytes);
                absent.change(session, before, bytes);
                prop_assert_eq!(absent.bytes(), model.iter().sum::<usize>());
                let longest = model.iter().max().copied().unwrap_or(0);
                prop_assert_eq!(absent.longest().is_some(), longest > 0);
                prop_assert!(absent.longest().is_none_or(|found| model[found as usize] * 2 > longest));
                prop_assert_eq!(absent.by_length.len(), model.iter().filter(|bytes| **bytes > 0).count());
            }
        }
    }
}
