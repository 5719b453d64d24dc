//! Messages that waited longer for a session than their class may: they go, and are counted.

use tidegate_control::Timestamp;

use crate::ledger::Loss;
use crate::limits::{OVERDUE_EVERY, OVERDUE_MAX};
use crate::state::ShardState;
use crate::timers::DueTimer;

impl ShardState {
    /// Something in this session's queue may have to go then.
    pub(crate) fn watch_overdue(&mut self, index: u32, at: Timestamp, now: Timestamp) {
        let generation = self.sessions.generation(index).unwrap_or(0);
        let queue = self.sessions.get_mut(index).and_then(|session| session.queue.as_mut());
        let Some(queue) = queue.filter(|queue| queue.overdue_at.is_none_or(|set| at < set)) else { return };
        // Not for each message by itself.
        let at = at.max(now + OVERDUE_EVERY);
        if queue.overdue_at.is_none_or(|set| at < set) {
            queue.overdue_at = Some(self.timers.set(now, at, DueTimer::Overdue { session: index, generation }));
        }
    }

    pub(crate) fn check_overdue(&mut self, index: u32, generation: u32, at: Timestamp, now: Timestamp) {
        let is_current = self.sessions.generation(index) == Some(generation);
        let queue = self.sessions.get_mut(index).and_then(|session| session.queue.as_mut());
        if let Some(queue) = queue.filter(|queue| is_current && queue.overdue_at == Some(at)) {
            queue.overdue_at = None;
            self.drop_overdue(index, now);
        }
    }

    /// Drops what waited too long for a session, and sets the timer for what has not yet.
    pub(crate) fn drop_overdue(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.queue.is_some()) else { return };
        let (journal, kept, priority) = (&mut self.journal, session.kept, &self.settings.priority);
        let mut ledger = core::mem::take(&mut session.ledger);
        let next = session.with_queue(&mut self.stats, |queue, stats| {
            queue.drop_overdue(priority, now, OVERDUE_MAX, |lost| {
                journal.dequeue(kept, &lost);
                ledger.lose_delivery(Loss::ClassDelay, lost.message.class(), stats);
            })
        });
        session.ledger = ledger;
        self.note_absent(index);
        if let Some(at) = next {
            self.watch_overdue(index, at, now);
        }
    }
}
