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
    /// By [`clock`].
    began: Duration,
    /// When the lease was confirmed, as asked for, in milliseconds since the beginning; 0 is never, or no more.
    confirmed: AtomicU64,
    is_over: AtomicBool,
    /// The engine's words, if it did not take the last message that it answered.
    refusal: Mutex<Option<String>>,
}

impl NatsMirror {
    pub(crate) fn new(files: ReplicatedFiles) -> Self {
        Self {
            files: Mutex::new(files),
            changed: Condvar::new(),
            pushed: Notify::new(),
            began: clock(),
            confirmed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            refusal: Mutex::default(),
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
        clock().saturating_sub(self.began)
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
                files.writer.poll(self.now())
            };
            match act {
                WriterAct::Publish { subject, message, expected_last, number, attempt } => {
                    let (answer, words) = engine.publish(subject, message, expected_last).await;
                    *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = words;
                    self.files().writer.on_answer(number, attempt, answer, self.now());
                }
                WriterAct::Probe { attempt } => {
                    let last = engine.probe().await;
                    self.files().writer.on_probe(attempt, last, self.now());
                }
                WriterAct::Purge { subject, below, attempt } => {
                    let is_done = engine.purge(subject, below).await;
                    self.files().writer.on_purged(attempt, is_done);
                    if !is_done {
                        // It only makes room: nobody waits for it, and an engine in trouble is left alone.
                        let _ = tokio::time::timeout(Duration::from_secs(1), self.pushed.notified()).await;
                    }
                }
                WriterAct::Wait(until) => tokio::time::sleep(until.saturating_sub(self.now())).await,
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
                let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let words = match refusal {
                    Some(words) => format!("the cluster's engine does not take it: {words}"),
                    None => format!("the cluster's engine has not answered for {} s", WAIT_MAX.as_secs()),
                };
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            files = self.changed.wait_timeout(files, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A clock that also goes while the machine is suspended: a node that slept with its lid closed has to know that it slept.
fn clock() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(id);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
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

    /// Whether a decision that was made before this call may be told.
    ///
    /// An owner that was overtaken never says yes. What counts is when a sign of life was *sent* that the engine took and behind which it still
    /// named this node as the owner; another adopts only when the engine has shown it the same sign for longer than that. So a process that was stopped
    /// for a lease finds the time too old when it wakes, also if the answers from before its sleep are in its sockets: they confirm a time
    /// before it. An answer that was asked for after it woke names the other, or came before the other opened. What is decided first and asked
    /// second may be said late: it was taken while the lease held, and what needs the disk is in the stream, which the next owner reads.
    ///
    /// What is left is of what needs no disk alone: a machine whose clocks were all stopped with it, and a server of the engine that was cut off from the
    /// others and still takes itself for the log's leader. That one may name this node until the next sign of life, which it cannot take.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cluster::StreamWriter;

    fn mirror() -> NatsMirror {
        NatsMirror::new(ReplicatedFiles::new(StreamWriter::new(3, 100), &[]))
    }

    #[test]
    fn an_owner_holds_from_when_it_asked_and_never_for_an_answer_from_before_it_slept() {
        let mut mirror = mirror();
        assert!(!mirror.holds(), "nobody has confirmed it");
        mirror.confirm(mirror.now());
        assert!(mirror.holds());
        // Asked, then asleep for longer than it may be silent; the answer was in the socket all the time.
        let asked = mirror.now();
        mirror.began = mirror.began.saturating_sub(HOLD + Duration::from_millis(1));
        assert!(!mirror.holds());
        mirror.confirm(asked);
        assert!(!mirror.holds(), "the answer is of a time before it slept");
        mirror.confirm(mirror.now());
        assert!(mirror.holds());
        mirror.fence(4);
        assert!(!mirror.holds());
        mirror.confirm(mirror.now());
        assert!(!mirror.holds(), "once overtaken, for ever");
    }
}
