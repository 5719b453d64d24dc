//! Messages that waited longer for a session than their class may: they go, and are counted.

use tidegate_control::Timestamp;

use crate::ledger::Loss;
use crate::limits::{OVERDUE_EVERY, OVERDUE_MAX};
use crate::session::Session;
use crate::state::ShardState;
use crate::timers::DueTimer;

impl ShardState {
    /// Something in this session's queue may have to go then.
    pub(crate) fn watch_overdue(&mut self, index: u32, at: Timestamp, now: Timestamp) {
        let generation = self.sessions.generation(index).unwrap_or(0);
        let queue = self.sessions.get_mut(index).and_then(Session::queue_mut);
        let Some(queue) = queue.filter(|queue| queue.wakes_after(at)) else { return };
        // Not for each message by itself.
        let at = at.max(now + OVERDUE_EVERY);
        if queue.wakes_after(at) {
            queue.set_overdue(self.timers.set(now, at, DueTimer::Overdue { session: index, generation }));
        }
    }

    pub(crate) fn check_overdue(&mut self, index: u32, generation: u32, at: Timestamp, now: Timestamp) {
        let is_current = self.sessions.generation(index) == Some(generation);
        let queue = self.sessions.get_mut(index).and_then(Session::queue_mut);
        if queue.is_some_and(|queue| is_current && queue.take_overdue(at)) {
            self.drop_overdue(index, now);
        }
    }

    /// Drops what waited too long for a session, and sets the timer for what has not yet.
    pub(crate) fn drop_overdue(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.queue().is_some()) else { return };
        let (journal, kept, priority) = (&mut self.journal, session.kept(), &self.settings.priority);
        let next = session.with_queue(&mut self.stats, |queue, losses| {
            queue.drop_overdue(priority, now, OVERDUE_MAX, |lost| {
                journal.dequeue(kept, &lost);
                losses.lose(Loss::ClassDelay, lost.message.class());
            })
        });
        self.note_absent(index);
        if let Some(at) = next {
            self.watch_overdue(index, at, now);
        }
    }
}
