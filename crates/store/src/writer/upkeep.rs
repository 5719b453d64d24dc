//! What the thread does between groups: it looks how much room there is, compacts, and holds still for a copy.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::thread::Thread;
use super::{Health, Sealed};
use crate::compact::{Compacted, LogState};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileId, Location};
use crate::vital::VitalThread;

/// A compaction that failed is not tried again before.
const COMPACTION_PAUSE: Duration = Duration::from_secs(30);
/// With little room one is tried again after this, and after four times as long as the last one took: at most a fifth of
/// a core. Doubled with each one for which there was no room at all...
const COMPACTION_PAUSE_TIGHT: Duration = Duration::from_secs(1);
/// ...so many times.
const COMPACTION_DOUBLINGS_MAX: u32 = 3;
/// One that would have freed nothing is tried again when something was written, but not before this: each attempt begins a
/// segment.
const COMPACTION_PAUSE_NO_GAIN: Duration = Duration::from_secs(5);
/// How often the room is looked at while there is little of it: whoever makes some need not wait longer.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl<D: Disk + Send + 'static> Thread<D> {
    /// Whatever is due besides writing.
    pub(super) fn tend<S: LogState + 'static>(&mut self) {
        let now = Instant::now();
        let written = self.log.metrics().bytes;
        if self.look_at <= now || self.look_at_bytes <= written {
            self.look();
            self.look_at = now + LOOK_EVERY;
            self.look_at_bytes = written + self.log.usage().step();
        }
        let is_wanted = self.log.wants_compaction() && !self.log.is_failed()
            || self.room.wants_compaction(self.log.metrics().records);
        if is_wanted && self.compact_not_before.is_none_or(|at| at <= now) {
            self.compact::<S>();
        }
    }

    /// Looks how much room there is, and says so.
    pub(super) fn look(&mut self) {
        let was_full = self.room.is_full();
        if self.log.usage().has_room() {
            self.log.restore_reserve();
        }
        let usage = self.log.usage();
        self.room.look(&usage);
        self.shared.metrics().free_bytes = usage.partition.map(|partition| partition.free);
        if was_full != self.room.is_full() && !self.log.is_failed() {
            self.say_room();
        }
    }

    /// How a disk is that takes what it is given.
    pub(super) fn say_room(&mut self) {
        let why = || self.room.why().to_owned();
        self.shared.set_health(if self.room.is_full() { Health::Full { why: why() } } else { Health::Fine });
    }

    pub(super) fn compact<S: LogState + 'static>(&mut self) {
        // What was told and not synced has to be written again before files may go.
        if self.compaction.is_some() || self.log.is_failed() && self.holds_unsynced() {
            return;
        }
        self.room.on_compaction(self.log.metrics().records);
        self.compaction_began = Instant::now();
        let synced = if self.log.is_failed() { Ok(()) } else { self.sync() };
        match synced.and_then(|()| self.log.begin_compaction()) {
            Ok(job) => {
                let (shared, is_vital) = (Arc::clone(&self.shared), self.is_vital());
                let work = move || {
                    let _vital = is_vital.then(VitalThread::guard);
                    let ran = catch_unwind(AssertUnwindSafe(|| job.run::<S>()));
                    let result = match ran {
                        Err(panic) if is_vital => resume_unwind(panic),
                        // What it wrote is not in use before it is finished.
                        ran => ran.unwrap_or(Err(StoreError::Failed)),
                    };
                    shared.queue().compacted = Some(result);
                    shared.changed.notify_one();
                };
                match std::thread::Builder::new().name("store-compact".to_owned()).spawn(work) {
                    Ok(thread) => self.compaction = Some(thread),
                    Err(error) => {
                        self.on_compacted(Err(StoreError::io("start a thread for", "compaction")(error)));
                    }
                }
            }
            Err(error) => {
                self.note(&error);
                self.on_compacted(Err(error));
            }
        }
    }

    /// An error that left the log sound, like too many open files, is no reason to refuse batches.
    fn note(&mut self, error: &StoreError) {
        if self.log.is_failed() {
            self.on_failure(error);
        }
    }

    pub(super) fn on_compacted(&mut self, result: Result<Compacted, StoreError>) {
        if let Some(thread) = self.compaction.take() {
            let _ = thread.join();
        }
        let finished = result.and_then(|compacted| {
            // First the new places, then the files go.
            self.publish_moves(&compacted.moved);
            self.log.finish_compaction(&compacted)
        });
        self.forget_moves();
        let tight = COMPACTION_PAUSE_TIGHT.max(self.compaction_began.elapsed() * 4);
        let is_for_want_of_room = finished.as_ref().is_err_and(StoreError::is_disk_full);
        self.compact_doublings =
            if is_for_want_of_room { (self.compact_doublings + 1).min(COMPACTION_DOUBLINGS_MAX) } else { 0 };
        if is_for_want_of_room && self.log.release_reserve() {
            self.compact_doublings = 0;
        }
        self.look();
        self.compact_not_before = self.room.is_tight().then(|| Instant::now() + tight);
        if self.log.is_failed() {
            // There may be room now.
            self.retry_at = Some(Instant::now());
        }
        if matches!(finished, Err(StoreError::NoGain)) {
            self.compact_not_before = Some(Instant::now() + COMPACTION_PAUSE_NO_GAIN);
        } else if let Err(error) = finished {
            self.room.on_failed_compaction();
            let pause = if is_for_want_of_room { tight * (1 << self.compact_doublings) } else { COMPACTION_PAUSE };
            self.compact_not_before = Some(Instant::now() + pause);
            let mut metrics = self.shared.metrics();
            metrics.compactions_failed += 1;
            metrics.compaction_error = Some(error.to_string());
        }
    }

    /// Records that were moved before may have been moved on.
    fn publish_moves(&self, moved: &BTreeMap<Location, Location>) {
        let mut moves = self.shared.moves.write().unwrap_or_else(PoisonError::into_inner);
        for to in moves.values_mut() {
            *to = moved.get(to).copied().unwrap_or(*to);
        }
        moves.extend(moved);
    }

    /// What was moved into a file that is gone is gone for good.
    fn forget_moves(&self) {
        let files: Vec<FileId> = self.log.files().map(|(id, _)| id).collect();
        let mut moves = self.shared.moves.write().unwrap_or_else(PoisonError::into_inner);
        moves.retain(|_, to| files.binary_search(&to.file).is_ok());
    }

    pub(super) fn seal(&mut self, reply: &SyncSender<Result<Sealed, StoreError>>) {
        let sealed = self.sync().and_then(|()| self.log.rotate()).map(|()| {
            let end = self.log.end().map(|end| end.file);
            let files = self.log.files().map(|(id, _)| id).filter(|id| Some(*id) != end).collect();
            self.shared.queue().holds += 1;
            Sealed { shared: Arc::clone(&self.shared), files, mark: self.log.sealed() }
        });
        if let Err(error) = &sealed {
            self.note(error);
        }
        // If nobody waits for it any more, dropping it lets go.
        let _ = reply.try_send(sealed);
    }
}
