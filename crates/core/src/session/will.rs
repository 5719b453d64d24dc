//! A session's will, and the clocks of a session without a connection: when the will is due, and when the session ends.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use tidegate_control::Timestamp;

use super::Session;
use crate::message::Message;

/// A will, and when it is due once the connection is lost.
#[derive(Debug)]
pub(crate) struct PendingWill {
    message: Arc<Message>,
    delay: Duration,
    /// Set when the connection is gone and the delay runs.
    due_at: Option<Timestamp>,
    /// It is in the store.
    is_kept: bool,
}

/// The clocks of a session without a connection.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// When it ends.
    expires_at: Option<Timestamp>,
    /// The timer that counts; others of this session are left over.
    timer_at: Option<Timestamp>,
}

impl PendingWill {
    pub(crate) fn new(message: Arc<Message>, delay: Duration) -> Self {
        Self { message, delay, due_at: None, is_kept: false }
    }

    /// One of the store, of a client that has not been back since.
    pub(crate) fn restored(message: Arc<Message>, delay: Duration, due_at: Timestamp) -> Self {
        Self { message, delay, due_at: Some(due_at), is_kept: true }
    }
}

impl Session {
    pub(crate) fn set_will(&mut self, will: Option<PendingWill>) {
        self.will = will.map(Box::new);
    }

    pub(crate) fn take_will(&mut self) -> Option<Arc<Message>> {
        self.will.take().map(|will| will.message)
    }

    pub(crate) fn has_will(&self) -> bool {
        self.will.is_some()
    }

    /// Whether its will is in the store.
    pub(crate) fn is_will_kept(&self) -> bool {
        self.will.as_ref().is_some_and(|will| will.is_kept)
    }

    /// Its will is in the store: under the number that is found for it, if it was not before. The answer is that number, the
    /// delay, and when it is due.
    pub(crate) fn keep_will(
        &mut self,
        number: impl FnOnce(&Arc<Message>) -> u64,
    ) -> Option<(u64, Duration, Option<Timestamp>)> {
        let will = self.will.as_mut()?;
        let number = if will.is_kept { will.message.number() } else { number(&will.message) };
        will.is_kept = true;
        Some((number, will.delay, will.due_at))
    }

    /// Its will is in the store no more; false if it was not.
    pub(crate) fn let_will_go(&mut self) -> bool {
        let Some(will) = self.will.as_mut().filter(|will| will.is_kept) else { return false };
        will.is_kept = false;
        will.message.let_go();
        true
    }

    /// When it ends, while there is no connection.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        self.clocks.as_ref().and_then(|clocks| clocks.expires_at)
    }

    pub(crate) fn end_at(&mut self, at: Timestamp) {
        self.clocks.get_or_insert_default().expires_at = Some(at);
    }

    /// The connection is gone: from now on its time runs, and that of its will.
    pub(crate) fn start_clocks(&mut self, now: Timestamp) {
        self.end_at(now + self.expiry);
        if let Some(will) = self.will.as_mut() {
            will.due_at = Some(now + will.delay);
        }
    }

    pub(super) fn stop_clocks(&mut self) {
        self.clocks = None;
    }

    /// Its time is over.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// The delay of its will is over.
    pub(crate) fn is_will_due(&self, now: Timestamp) -> bool {
        self.will_due_at().is_some_and(|at| at <= now)
    }

    fn will_due_at(&self) -> Option<Timestamp> {
        self.will.as_ref().and_then(|will| will.due_at)
    }

    /// What comes first of the two.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        [self.expires_at(), self.will_due_at()].into_iter().flatten().min()
    }

    /// The timer for that is set; others of this session are left over.
    pub(crate) fn set_timer(&mut self, at: Timestamp) {
        self.clocks.get_or_insert_default().timer_at = Some(at);
    }

    /// Whether the timer that has come is the one that counts.
    pub(crate) fn is_timer(&self, at: Timestamp) -> bool {
        self.clocks.as_ref().is_some_and(|clocks| clocks.timer_at == Some(at))
    }
}
