//! What waits for a session's client beyond what is under way.

use alloc::boxed::Box;

use tidegate_control::Timestamp;

use super::{Queued, Session};
use crate::classes::ClassId;
use crate::crowding::Crowding;
use crate::event::Stats;
use crate::ledger::{Ledger, Loss};
use crate::queue::{Gone, Item, Queue};

/// Where is written down what a queue loses.
#[derive(Debug)]
pub(crate) struct QueueLosses<'a> {
    ledger: &'a mut Ledger,
    crowding: &'a mut Option<Box<Crowding>>,
    stats: &'a mut Stats,
}

impl QueueLosses<'_> {
    /// A message has gone for this reason.
    pub(crate) fn lose(&mut self, loss: Loss, class: ClassId) {
        self.ledger.lose_delivery(loss, class, self.stats);
    }

    /// The queue itself has let a message go.
    pub(crate) fn lose_item(&mut self, lost: &Item, gone: Gone) {
        let loss = match gone {
            Gone::Newest | Gone::Oldest => Loss::QueueFull,
            Gone::Conflated => Loss::Conflated,
            Gone::ClassBytes => Loss::ClassBytes,
        };
        self.lose(loss, lost.class());
        self.stats.dropped_queue_oldest += u64::from(gone == Gone::Oldest);
    }

    /// And it was for want of room.
    pub(crate) fn note_crowding(&mut self, whose: (u64, bool), now: Timestamp) {
        Crowding::note(self.crowding, whose, now);
    }
}

impl Session {
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn queue_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// What waits for it; none if nothing does.
    #[inline]
    pub(crate) fn queue(&self) -> Option<&Queue> {
        self.queue.as_deref()
    }

    /// The same, for what neither adds nor takes a message: that is [`Session::with_queue`]'s.
    #[inline]
    pub(crate) fn queue_mut(&mut self) -> Option<&mut Queue> {
        self.queue.as_deref_mut()
    }

    /// Bytes in memory that wait for somebody who is away; see `gate::absent`.
    pub(crate) fn away_bytes(&self) -> usize {
        let queue = self.queue.as_ref().filter(|queue| self.conn.is_none() && queue.on_disk() == 0);
        queue.map_or(0, |queue| queue.bytes())
    }

    /// From now on so many bytes are counted as those of somebody who is away; the answer is how many were. See `gate::absent`.
    pub(crate) fn replace_absent_bytes(&mut self, bytes: usize) -> usize {
        core::mem::replace(&mut self.absent_bytes, bytes)
    }

    /// Something waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queue.is_some() || self.under_way.has_unsent()
    }

    /// Changes the queue. The gauges of all queues are kept with each change: counting a million sessions would take a
    /// turn.
    pub(crate) fn with_queue<T>(
        &mut self,
        stats: &mut Stats,
        change: impl FnOnce(&mut Queue, &mut QueueLosses<'_>) -> T,
    ) -> T {
        let mut queue = self.queue.take().unwrap_or_default();
        let (len, bytes, on_disk) = (queue.len() as u64, queue.bytes() as u64, queue.on_disk() as u64);
        let mut losses = QueueLosses { ledger: &mut self.ledger, crowding: &mut self.crowding, stats };
        let answer = change(&mut queue, &mut losses);
        stats.queued_messages = stats.queued_messages + queue.len() as u64 - len;
        stats.queued_bytes = stats.queued_bytes + queue.bytes() as u64 - bytes;
        stats.queued_on_disk = stats.queued_on_disk + queue.on_disk() as u64 - on_disk;
        self.queue = Some(queue).filter(|queue| queue.len() > 0);
        answer
    }

    pub(crate) fn dequeue(&mut self, stats: &mut Stats) -> Option<Queued> {
        self.queue.as_ref()?;
        self.with_queue(stats, |queue, _| queue.pop())
    }

    /// Takes what comes next, also if it is on disk.
    pub(crate) fn dequeue_any(&mut self, stats: &mut Stats) -> Option<Item> {
        self.queue.as_ref()?;
        self.with_queue(stats, |queue, _| queue.take())
    }
}
