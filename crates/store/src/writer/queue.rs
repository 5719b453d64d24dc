//! What producers and the thread share: one bounded queue, and a mailbox per producer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{BatchRefusal, Health, KeptBatch, Sealed, WriterMetrics, WriterOptions};
use crate::compact::Compacted;
use crate::error::{DiskTrouble, StoreError};
use crate::frame::RecordBatch;
use crate::limits::GROUP_BYTES_MAX;
use crate::read::Moves;

/// Requests that may wait; more are dropped, and their callers see it.
const COMMANDS_MAX: usize = 16;

/// Places that an empty table keeps: for an ordinary group, and not for the largest there ever was.
pub(super) const ROOM_KEPT: usize = 1024;

/// Gives back what the largest group has taken.
pub(super) fn give_back<T>(table: &mut Vec<T>) {
    if table.is_empty() && table.capacity() > ROOM_KEPT {
        *table = Vec::new();
    }
}

#[derive(Debug)]
pub(super) enum WriterCommand {
    Compact,
    Seal(SyncSender<Result<Sealed, StoreError>>),
}

/// A batch with the way back.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) batch: RecordBatch,
    pub(super) ticket: u64,
    pub(super) mailbox: Arc<Mailbox>,
    /// Somebody waits for it.
    pub(super) is_awaited: bool,
}

#[derive(Debug)]
pub(super) struct WriterQueue {
    pub(super) pending: VecDeque<Submitted>,
    /// Those of them that somebody waits for.
    pub(super) awaited: usize,
    /// Batches and their bytes, those being written included.
    pub(super) batches: usize,
    pub(super) bytes: usize,
    pub(super) commands: VecDeque<WriterCommand>,
    pub(super) compacted: Option<Result<Compacted, StoreError>>,
    /// Copies under way: no file may go.
    pub(super) holds: usize,
    pub(super) health: Health,
    pub(super) refused: u64,
    pub(super) is_closing: bool,
    /// Since when the thread has been with the disk.
    pub(super) busy_since: Option<Instant>,
}

impl WriterQueue {
    /// The next group: at least one batch, and not more than one write should have.
    pub(super) fn take_group(&mut self, into: &mut Vec<Submitted>) {
        let mut bytes = 0;
        while let Some(next) = self.pending.front() {
            bytes += next.batch.bytes();
            if !into.is_empty() && bytes > GROUP_BYTES_MAX {
                break;
            }
            self.awaited -= usize::from(next.is_awaited);
            into.extend(self.pending.pop_front());
        }
        if self.pending.is_empty() && self.pending.capacity() > ROOM_KEPT {
            self.pending = VecDeque::new();
        }
    }

    /// Whoever wants a copy need not wait until a failed disk is well again.
    pub(super) fn refuse_seals(&mut self) {
        self.commands.retain(|command| match command {
            WriterCommand::Compact => true,
            WriterCommand::Seal(reply) => {
                let _ = reply.try_send(Err(StoreError::Failed));
                false
            }
        });
    }
}

pub(super) struct WriterShared {
    queue: Mutex<WriterQueue>,
    pub(super) changed: Condvar,
    metrics: Mutex<WriterMetrics>,
    pub(super) moves: Moves,
    /// How often the health was another one, for those who look at it all the time.
    pub(super) health_changes: AtomicU64,
    options: WriterOptions,
}

impl fmt::Debug for WriterShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterShared").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl WriterShared {
    pub(super) fn new(options: WriterOptions) -> Self {
        let queue = WriterQueue {
            pending: VecDeque::new(),
            awaited: 0,
            batches: 0,
            bytes: 0,
            commands: VecDeque::new(),
            compacted: None,
            holds: 0,
            health: Health::Fine,
            refused: 0,
            is_closing: false,
            busy_since: None,
        };
        Self {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            metrics: Mutex::default(),
            moves: Moves::default(),
            health_changes: AtomicU64::new(0),
            options,
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, WriterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn metrics(&self) -> MutexGuard<'_, WriterMetrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, submitted: Submitted) -> Result<(), (BatchRefusal, RecordBatch)> {
        let Submitted { batch, is_awaited, .. } = &submitted;
        let mut queue = self.queue();
        let is_full = queue.batches >= self.options.queue_batches_max
            || queue.batches > 0 && queue.bytes + batch.bytes() > self.options.queue_bytes_max;
        let refusal = match () {
            () if queue.is_closing => BatchRefusal::Closed,
            () if queue.health != Health::Fine && !self.options.takes_while_failed => {
                if matches!(queue.health, Health::Full { .. }) { BatchRefusal::Full } else { BatchRefusal::Failed }
            }
            () if is_full => BatchRefusal::Full,
            () => {
                queue.batches += 1;
                queue.bytes += batch.bytes();
                let is_first = queue.pending.is_empty();
                let is_new = is_first || (*is_awaited && queue.busy_since.is_none());
                queue.awaited += usize::from(*is_awaited);
                queue.pending.push_back(submitted);
                drop(queue);
                // A thread that is busy looks by itself when it is done; one that gathers is told of each that counts.
                if is_new {
                    self.changed.notify_one();
                }
                return Ok(());
            }
        };
        queue.refused += 1;
        Err((refusal, submitted.batch))
    }

    /// Somebody waits for what is there.
    pub(super) fn hurry(&self) {
        let mut queue = self.queue();
        if let Some(last) = queue.pending.back_mut().filter(|last| !last.is_awaited) {
            last.is_awaited = true;
            queue.awaited += 1;
            drop(queue);
            self.changed.notify_one();
        }
    }

    pub(super) fn command(&self, command: WriterCommand) {
        let mut queue = self.queue();
        if queue.commands.len() < COMMANDS_MAX && !queue.is_closing {
            queue.commands.push_back(command);
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// Says how the disk is.
    pub(super) fn set_health(&self, health: Health) {
        let mut queue = self.queue();
        if queue.health != health {
            queue.health = health;
            self.health_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// There is no thread any more: nothing that waits is kept, and nothing more is taken.
    pub(super) fn fail(&self, why: &str) {
        self.set_health(Health::Failed { trouble: DiskTrouble::Other, why: why.to_owned() });
        let mut queue = self.queue();
        queue.is_closing = true;
        let left = std::mem::take(&mut queue.pending);
        queue.commands.clear();
        drop(queue);
        for submitted in left {
            submitted.mailbox.close();
        }
    }

    pub(super) fn close(&self) {
        self.queue().is_closing = true;
        self.changed.notify_one();
    }

    pub(super) fn release(&self) {
        self.queue().holds -= 1;
        self.changed.notify_one();
    }
}

/// Where the tickets of one producer come back.
pub(super) struct Mailbox {
    pub(super) done: Mutex<Vec<KeptBatch>>,
    ready: Condvar,
    /// Tickets were put in since it was woken.
    is_filled: AtomicBool,
    is_closed: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(super) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let (is_filled, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { done: Mutex::default(), ready: Condvar::new(), is_filled, is_closed, wake }
    }

    /// Puts a ticket in; true if the owner has to be woken for it.
    pub(super) fn put(&self, done: KeptBatch) -> bool {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        !self.is_filled.swap(true, Ordering::Relaxed)
    }

    pub(super) fn wake(&self) {
        self.is_filled.store(false, Ordering::Relaxed);
        self.ready.notify_one();
        (self.wake)();
    }

    /// Nothing will come any more.
    pub(super) fn close(&self) {
        let _done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_closed.store(true, Ordering::Relaxed);
        self.ready.notify_one();
    }

    pub(super) fn wait(&self, into: &mut Vec<KeptBatch>) -> bool {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.is_empty() {
            if self.is_closed.load(Ordering::Relaxed) {
                return false;
            }
            done = self.ready.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        into.append(&mut done);
        true
    }
}
