//! What the thread does between groups: compactions, and holding still for a copy.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::Sealed;
use super::thread::Thread;
use crate::compact::{Compacted, State};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileId, Location};
use crate::vital::Vital;

/// A compaction that failed is not tried again before.
const COMPACTION_PAUSE: Duration = Duration::from_secs(30);

impl<D: Disk + Send + 'static> Thread<D> {
    pub(super) fn compact<S: State + 'static>(&mut self) {
        if self.compaction.is_some() || self.log.is_failed() {
            return;
        }
        match self.sync().and_then(|()| self.log.begin_compaction()) {
            Ok(job) => {
                let shared = Arc::clone(&self.shared);
                let work = move || {
                    let _vital = Vital::guard();
                    let result = job.run::<S>();
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
        if let Err(error) = finished {
            self.compact_not_before = Some(Instant::now() + COMPACTION_PAUSE);
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
            Sealed { shared: Arc::clone(&self.shared), files }
        });
        if let Err(error) = &sealed {
            self.note(error);
        }
        // If nobody waits for it any more, dropping it lets go.
        let _ = reply.try_send(sealed);
    }
}
