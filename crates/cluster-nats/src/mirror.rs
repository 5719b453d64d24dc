//! The mirror of a running store: its calls come from the store's threads and wait, the engine's answers come from a task.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_cluster::limits::{HOLD, PIECE_BYTES_MAX, QUEUE_BYTES_CALM};
use tidegate_cluster::{Ending, Folder, Refusal, ReplicatedFiles, WriterAct};
use tidegate_store::disk::{Mirror, MirrorChange};
use tokio::sync::Notify;

use crate::engine::Engine;

/// How long a sync waits for the engine: longer than its election (4 to 9 s), during which it is only slow. Beyond, the
/// store says that it cannot write, and clients hear it.
const WAIT_MAX: Duration = Duration::from_secs(12);

/// What the threads of the store and the task share.
#[derive(Debug)]
pub(crate) struct NatsMirror {
    files: Mutex<ReplicatedFiles>,
    /// Something was kept, or has ended.
    changed: Condvar,
    /// There is something to send.
    pushed: Notify,
    began: Instant,
    /// When the lease was confirmed, as asked for, in milliseconds since the beginning; 0 is never, or no more.
    confirmed: AtomicU64,
    is_over: AtomicBool,
}

impl NatsMirror {
    pub(crate) fn new(files: ReplicatedFiles) -> Self {
        Self {
            files: Mutex::new(files),
            changed: Condvar::new(),
            pushed: Notify::new(),
            began: Instant::now(),
            confirmed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn files(&self) -> MutexGuard<'_, ReplicatedFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.files().writer.ending()
    }

    /// Since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The engine has taken a sign of life that was sent at this time, and no other owner is known.
    pub(crate) fn confirm(&self, asked: Duration) {
        self.confirmed.store(u64::try_from(asked.as_millis()).unwrap_or(0).max(1), Ordering::Relaxed);
    }

    /// Somebody has seen another epoch.
    pub(crate) fn fence(&self, by: u64) {
        let mut files = self.files();
        files.writer.fence(by);
        if files.writer.ending().is_some() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        drop(files);
        self.changed.notify_all();
        self.pushed.notify_one();
    }

    /// Says what there is, as the first or the last of a number of changes.
    pub(crate) fn table(&self) -> io::Result<u64> {
        let number = self.files().table().map_err(refused)?;
        self.pushed.notify_one();
        Ok(number)
    }

    /// Sends what waits, one after the other, until the epoch is over.
    pub(crate) async fn pump(self: Arc<Self>, engine: Engine) -> Ending {
        loop {
            let act = {
                let mut files = self.files();
                if let Some(ending) = files.writer.ending() {
                    return ending;
                }
                files.writer.poll(self.began.elapsed())
            };
            match act {
                WriterAct::Publish { subject, message, expected_last, number, attempt } => {
                    let answer = engine.publish(subject, message, expected_last).await;
                    self.files().writer.on_answer(number, attempt, answer, self.began.elapsed());
                }
                WriterAct::Probe { attempt } => {
                    let last = engine.probe().await;
                    self.files().writer.on_probe(attempt, last, self.began.elapsed());
                }
                WriterAct::Purge { subject, below, attempt } => {
                    let is_done = engine.purge(subject, below).await;
                    self.files().writer.on_purged(attempt, is_done);
                    if !is_done {
                        // It only makes room: nobody waits for it, and an engine in trouble is left alone.
                        let _ = tokio::time::timeout(Duration::from_secs(1), self.pushed.notified()).await;
                    }
                }
                WriterAct::Wait(until) => tokio::time::sleep(until.saturating_sub(self.began.elapsed())).await,
                WriterAct::Idle => self.pushed.notified().await,
            }
            self.changed.notify_all();
        }
    }

    /// Waits until `is_done`, for so long at most.
    fn wait_until(&self, is_done: impl Fn(&ReplicatedFiles) -> bool) -> io::Result<()> {
        let until = Instant::now() + WAIT_MAX;
        let mut files = self.files();
        loop {
            if is_done(&files) {
                return Ok(());
            }
            if let Some(ending) = files.writer.ending() {
                return Err(refused(Refusal::Ended(ending)));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let words = format!("the cluster's engine has not answered for {} s", WAIT_MAX.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            files = self.changed.wait_timeout(files, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn refused(refusal: Refusal) -> io::Error {
    match refusal {
        Refusal::Full => io::Error::new(io::ErrorKind::TimedOut, "too much waits for the cluster's engine"),
        Refusal::Ended(Ending::Fenced { by }) => {
            io::Error::other(format!("another node carries this log on since epoch {by}"))
        }
        Refusal::Ended(Ending::TailLost) => io::Error::other("the cluster's engine has lost what it had kept"),
    }
}

impl Mirror for NatsMirror {
    fn push(&self, change: MirrorChange<'_>, is_urgent: bool) -> io::Result<u64> {
        if !is_urgent {
            self.wait_until(|files| files.writer.waiting_bytes() <= QUEUE_BYTES_CALM)?;
        }
        let mut files = self.files();
        let number = match change {
            MirrorChange::Create(name) => files.create(name),
            MirrorChange::Append(name, bytes) => files.append(name, bytes),
            MirrorChange::Truncate(name, size) => files.truncate(name, size),
            MirrorChange::Rename(from, to) => files.rename(from, to),
            MirrorChange::Remove(name) => files.remove(name),
        };
        drop(files);
        self.pushed.notify_one();
        number.map_err(refused)
    }

    fn wait(&self, number: u64) -> io::Result<()> {
        self.wait_until(|files| files.writer.kept() >= number)
    }

    fn holds(&self) -> bool {
        let confirmed = self.confirmed.load(Ordering::Relaxed);
        let is_fresh = self.now() < Duration::from_millis(confirmed) + HOLD;
        confirmed > 0 && is_fresh && !self.is_over.load(Ordering::Relaxed)
    }
}

/// The mirror of another folder than the store's, in the same stream. What is long goes in pieces, each when the queue is calm: a
/// commit of the store stands behind [`QUEUE_BYTES_CALM`] and a piece at most, however much is changed in here at once.
#[derive(Debug)]
pub(crate) struct FolderMirror {
    pub(crate) folder: Folder,
    pub(crate) mirror: Arc<NatsMirror>,
}

impl Mirror for FolderMirror {
    fn push(&self, change: MirrorChange<'_>, _: bool) -> io::Result<u64> {
        let name = |inside: &str| self.folder.name(inside);
        let push = |change: MirrorChange<'_>| self.mirror.push(change, false);
        match change {
            MirrorChange::Create(file) => push(MirrorChange::Create(&name(file))),
            MirrorChange::Append(file, bytes) => {
                let (file, mut pieces) = (name(file), bytes.chunks(PIECE_BYTES_MAX));
                let first = push(MirrorChange::Append(&file, pieces.next().unwrap_or_default()))?;
                pieces.try_fold(first, |_, piece| push(MirrorChange::Append(&file, piece)))
            }
            MirrorChange::Truncate(file, size) => push(MirrorChange::Truncate(&name(file), size)),
            MirrorChange::Rename(from, to) => push(MirrorChange::Rename(&name(from), &name(to))),
            MirrorChange::Remove(file) => push(MirrorChange::Remove(&name(file))),
        }
    }

    fn wait(&self, number: u64) -> io::Result<()> {
        self.mirror.wait(number)
    }

    fn holds(&self) -> bool {
        self.mirror.holds()
    }
}
