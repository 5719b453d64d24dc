//! What is known of a queue beside its messages: since when it is full, and which timer looks for what waited too long.

use tidegate_control::Timestamp;

use super::Queue;
use crate::gate::share::Full;

impl Queue {
    /// A message found no room. Whether it may take the place of something older.
    pub(crate) fn may_replace(&mut self, now: Timestamp) -> bool {
        Full::note(&mut self.full, now);
        self.full.as_mut().is_none_or(|full| full.may_replace(now))
    }

    /// A message was sent.
    #[inline]
    pub(crate) fn note_sent(&mut self, now: Timestamp) {
        if let Some(full) = &mut self.full {
            full.note_sent(now);
        }
    }

    /// A message was refused for it. Whether it lasts, as [`Queue::lasts`].
    pub(crate) fn note_refused(&mut self, now: Timestamp) -> Option<bool> {
        self.full.as_mut()?.note_refused(now);
        self.lasts(now)
    }

    /// Whether more waits than is sent while whoever sends too much is not read for a moment; none if it never was full.
    pub(crate) fn lasts(&self, now: Timestamp) -> Option<bool> {
        self.full.map(|full| full.lasts(self.len(), now))
    }

    /// Messages per second that it sends; none if it has not been full for long enough, or sent nothing of late.
    pub(crate) fn rate_when_full(&self, now: Timestamp) -> Option<f64> {
        self.full?.rate(now)
    }

    /// Whether no timer is set that looks as early as this for what waited too long.
    pub(crate) fn wakes_after(&self, at: Timestamp) -> bool {
        self.overdue_at.is_none_or(|set| at < set)
    }

    pub(crate) fn set_overdue(&mut self, at: Timestamp) {
        self.overdue_at = Some(at);
    }

    /// A timer has come; false if it is not the one that counts.
    pub(crate) fn take_overdue(&mut self, at: Timestamp) -> bool {
        self.overdue_at.take_if(|set| *set == at).is_some()
    }
}
