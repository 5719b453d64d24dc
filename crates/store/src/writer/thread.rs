//! The thread: takes a group, writes it, syncs it, says so; and between groups whatever else is due.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::queue::{Submitted, WriterCommand, WriterShared, give_back};
use super::{Durability, Health, KeptBatch, WriterOptions};
use crate::compact::{Compacted, LogState};
use crate::disk::Disk;
use crate::error::{DiskTrouble, StoreError};
use crate::file::Location;
use crate::frame::RecordBatch;
use crate::gather::Gather;
use crate::limits::{GROUP_BYTES_MAX, RETRY_MAX, RETRY_MIN};
use crate::log::{Log, Position};
use crate::room::LogRoom;

pub(super) struct Thread<D> {
    pub(super) log: Log<D>,
    options: WriterOptions,
    pub(super) shared: Arc<WriterShared>,
    gather: Gather,
    group: Vec<Submitted>,
    places: Vec<Position>,
    /// Written and told, and not synced: needed once more if the disk fails.
    held: Vec<(RecordBatch, Position)>,
    held_bytes: usize,
    sync_at: Option<Instant>,
    pub(super) retry_at: Option<Instant>,
    retry_delay: Duration,
    pub(super) compaction: Option<JoinHandle<()>>,
    pub(super) compaction_began: Instant,
    pub(super) compact_not_before: Option<Instant>,
    pub(super) compact_doublings: u32,
    pub(super) room: LogRoom,
    /// When to look how much room there is, whatever happens.
    pub(super) look_at: Instant,
    /// And at how many bytes written.
    pub(super) look_at_bytes: u64,
}

/// What the thread has to do next.
enum WriterTurn {
    Group,
    /// Sync, or try a failed disk again.
    Sync,
    Command(WriterCommand),
    Compacted(Result<Compacted, StoreError>),
    /// See how much room there is.
    Look,
    Close,
}

impl<D: Disk + Send + 'static> Thread<D> {
    pub(super) fn new(log: Log<D>, options: WriterOptions, shared: Arc<WriterShared>) -> Self {
        Self {
            log,
            options,
            shared,
            gather: Gather::new(options.gather_max),
            group: Vec::new(),
            places: Vec::new(),
            held: Vec::new(),
            held_bytes: 0,
            sync_at: None,
            retry_at: None,
            retry_delay: RETRY_MIN,
            compaction: None,
            compaction_began: Instant::now(),
            compact_not_before: None,
            compact_doublings: 0,
            room: LogRoom::default(),
            look_at: Instant::now(),
            look_at_bytes: 0,
        }
    }

    pub(super) fn run<S: LogState + 'static>(mut self) -> Result<(), StoreError> {
        if self.log.is_failed() {
            // A disk that was full when it was opened.
            let displaced = self.log.displaced();
            self.shared.moves.write().unwrap_or_else(PoisonError::into_inner).extend(displaced);
            self.try_write().unwrap_or_else(|error| self.on_failure(&error));
        }
        // It may have been left full.
        self.tend::<S>();
        loop {
            match self.next_turn() {
                WriterTurn::Group => self.commit::<S>(),
                WriterTurn::Look => {}
                WriterTurn::Sync => match self.try_write().and_then(|()| self.sync()) {
                    Ok(()) => self.on_success(),
                    Err(error) => self.on_failure(&error),
                },
                WriterTurn::Command(WriterCommand::Compact) => self.compact::<S>(),
                WriterTurn::Command(WriterCommand::Seal(reply)) => self.seal(&reply),
                WriterTurn::Compacted(result) => self.on_compacted(result),
                WriterTurn::Close => break,
            }
            self.count();
            self.tend::<S>();
        }
        self.close()
    }

    fn next_turn(&mut self) -> WriterTurn {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue();
        queue.busy_since = None;
        let (mut first_at, mut awaited_at) = (None, None);
        loop {
            if queue.is_closing && (queue.pending.is_empty() || self.log.is_failed()) {
                return WriterTurn::Close;
            }
            let now = Instant::now();
            let due = if self.log.is_failed() { self.retry_at } else { self.sync_at };
            if due.is_some_and(|due| due <= now) {
                queue.busy_since = Some(now);
                return WriterTurn::Sync;
            }
            if queue.holds == 0
                && let Some(result) = queue.compacted.take()
            {
                return WriterTurn::Compacted(result);
            }
            if let Some(command) = queue.commands.pop_front() {
                return WriterTurn::Command(command);
            }
            if self.room.is_tight() && self.look_at <= now {
                return WriterTurn::Look;
            }
            let mut until = due;
            if self.room.is_tight() {
                until = Some(until.map_or(self.look_at, |due| due.min(self.look_at)));
            }
            if !queue.pending.is_empty() && !self.log.is_failed() {
                let latest = *first_at.get_or_insert(now) + self.options.gather_max;
                let go_at = match queue.awaited {
                    0 => latest,
                    awaited => *awaited_at.get_or_insert(now) + self.gather.wait(awaited),
                };
                if go_at <= now || queue.is_closing || queue.bytes >= GROUP_BYTES_MAX {
                    queue.take_group(&mut self.group);
                    queue.busy_since = Some(now);
                    return WriterTurn::Group;
                }
                until = Some(until.map_or(go_at, |due| due.min(go_at)));
            }
            queue = match until {
                Some(until) => {
                    let wait = until.saturating_duration_since(now);
                    shared.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Writes the group until it is kept, or until the writer is closed.
    fn commit<S: LogState + 'static>(&mut self) {
        loop {
            match self.try_write() {
                Ok(()) => break,
                Err(error) => self.on_failure(&error),
            }
            if self.wait_for_retry::<S>() {
                return;
            }
        }
        self.on_success();
        let sync = self.log.metrics().syncs.last;
        let awaited = self.group.iter().filter(|submitted| submitted.is_awaited).count();
        self.gather.on_group(awaited, if self.is_always() { sync } else { Duration::ZERO });
        let bytes: usize = self.group.iter().map(|submitted| submitted.batch.bytes()).sum();
        {
            let mut queue = self.shared.queue();
            queue.bytes -= bytes;
            queue.batches -= self.group.len();
        }
        {
            let mut metrics = self.shared.metrics();
            metrics.groups += 1;
            metrics.group_batches_max = metrics.group_batches_max.max(self.group.len());
        }
        self.tell(bytes);
    }

    pub(super) fn is_vital(&self) -> bool {
        self.options.is_vital
    }

    fn is_always(&self) -> bool {
        self.options.durability == Durability::Always
    }

    fn tell(&mut self, bytes: usize) {
        let mut wakes = Vec::new();
        let is_held = matches!(self.options.durability, Durability::Interval(_));
        for (submitted, &at) in self.group.drain(..).zip(&self.places) {
            let Submitted { batch, ticket, mailbox, .. } = submitted;
            if mailbox.put(KeptBatch { ticket, at }) {
                wakes.push(mailbox);
            }
            if is_held {
                self.held.push((batch, at));
            }
        }
        self.places.clear();
        give_back(&mut self.places);
        give_back(&mut self.group);
        for mailbox in wakes {
            mailbox.wake();
        }
        if let Durability::Interval(interval) = self.options.durability {
            self.held_bytes += bytes;
            let now = Instant::now();
            // What is held is bounded too.
            let due = if self.held_bytes > GROUP_BYTES_MAX { now } else { now + interval };
            self.sync_at = Some(self.sync_at.map_or(due, |at| at.min(due)));
        }
    }

    /// One attempt to write the group, behind whatever a failed disk has to be given again.
    fn try_write(&mut self) -> Result<(), StoreError> {
        if self.log.is_failed() {
            self.repair()?;
        }
        if self.group.is_empty() {
            return Ok(());
        }
        if self.log.is_segment_full() {
            self.sync()?;
            self.log.rotate()?;
        }
        self.places.clear();
        let batches: Vec<RecordBatch> = self.group.iter_mut().map(|s| std::mem::take(&mut s.batch)).collect();
        let mut result = self.log.append(&batches, &mut self.places);
        for (submitted, batch) in self.group.iter_mut().zip(batches) {
            submitted.batch = batch;
        }
        if result.is_ok() {
            match self.options.durability {
                Durability::Always => result = self.log.sync(),
                Durability::Interval(_) => {}
                Durability::Off => self.log.settle(),
            }
        }
        result
    }

    /// Begins anew behind a failure. Batches that were told and lost before they were synced get a new place; who asks
    /// for the old one finds it.
    fn repair(&mut self) -> Result<(), StoreError> {
        let (batches, before): (Vec<RecordBatch>, Vec<Position>) = std::mem::take(&mut self.held).into_iter().unzip();
        let displaced: Vec<Location> = self.log.displaced().map(|(said, _)| said).collect();
        let mut places = Vec::new();
        let result = self.log.repair_with(&batches, &mut places);
        if result.is_err() {
            self.held = batches.into_iter().zip(before).collect();
            return result;
        }
        let mut moves = self.shared.moves.write().unwrap_or_else(PoisonError::into_inner);
        for said in displaced {
            moves.remove(&said);
        }
        for ((batch, from), to) in batches.iter().zip(before).zip(places) {
            for (at, len) in batch.places() {
                let place = |position: Position| Location { file: position.file, offset: position.offset + at, len };
                moves.insert(place(from), place(to));
            }
        }
        drop(moves);
        self.forget_held();
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.log.sync()?;
        self.forget_held();
        Ok(())
    }

    pub(super) fn holds_unsynced(&self) -> bool {
        !self.held.is_empty()
    }

    fn forget_held(&mut self) {
        self.held.clear();
        give_back(&mut self.held);
        self.held_bytes = 0;
        self.sync_at = None;
    }

    fn on_success(&mut self) {
        if self.retry_at.take().is_some() {
            self.retry_delay = RETRY_MIN;
            self.say_room();
        }
    }

    pub(super) fn on_failure(&mut self, error: &StoreError) {
        self.shared.metrics().retries += 1;
        if error.is_disk_full() && self.log.release_reserve() {
            // There is room again, for what is on its way and for what makes more of it; for nothing else.
            self.retry_at = Some(Instant::now());
            self.look();
            return;
        }
        self.retry_at = Some(Instant::now() + self.retry_delay);
        self.retry_delay = (self.retry_delay * 2).min(RETRY_MAX);
        let trouble = error.trouble();
        let is_failed = matches!(self.shared.queue().health, Health::Failed { .. });
        // A later "has failed" says less than the first error did.
        if trouble != DiskTrouble::Other || !is_failed {
            self.shared.set_health(Health::Failed { trouble, why: error.to_string() });
        }
    }

    /// True if the writer is closed meanwhile.
    fn wait_for_retry<S: LogState + 'static>(&mut self) -> bool {
        self.count();
        let shared = Arc::clone(&self.shared);
        loop {
            let now = Instant::now();
            if self.retry_at.is_none_or(|at| at <= now) {
                // What waits comes before a compaction: there may be room for one of them only.
                return shared.queue().is_closing;
            }
            self.tend::<S>();
            let mut queue = shared.queue();
            if queue.is_closing {
                return true;
            }
            queue.refuse_seals();
            if queue.holds == 0
                && let Some(result) = queue.compacted.take()
            {
                drop(queue);
                self.on_compacted(result);
                // It may have made room.
                return false;
            }
            let wait = self.retry_at.map_or(RETRY_MIN, |at| at.saturating_duration_since(now));
            drop(shared.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn count(&self) {
        let mut metrics = self.shared.metrics();
        metrics.log.clone_from(self.log.metrics());
        metrics.files = self.log.files().count();
        metrics.disk_bytes = self.log.files().map(|(_, size)| size).sum();
    }

    fn close(mut self) -> Result<(), StoreError> {
        if let Some(thread) = self.compaction.take() {
            let _ = thread.join();
        }
        let left: Vec<Submitted> = self.shared.queue().pending.drain(..).chain(self.group.drain(..)).collect();
        for submitted in left {
            submitted.mailbox.close();
        }
        self.shared.queue().commands.clear();
        self.log.close().map(drop)
    }
}
