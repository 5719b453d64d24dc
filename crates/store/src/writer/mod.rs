//! The one thread that writes, and the handles of those who have something to write.
//!
//! A producer submits a batch and gets a ticket; when the batch is as safe as [`Durability`] says, the ticket comes back
//! with its place, in the order of submission. A ticket never comes back for a batch that is not kept: while the disk
//! fails, batches wait and new ones are refused, and both end by themselves when the disk is well again.

mod queue;
mod thread;
mod upkeep;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::compact::LogState;
use crate::disk::{Disk, Files};
use crate::error::{DiskTrouble, StoreError};
use crate::file::FileId;
use crate::frame::RecordBatch;
use crate::limits::GATHER_MAX;
use crate::log::{Log, Position};
use crate::mark::SyncMark;
use crate::metrics::LogMetrics;
use crate::read::{Moves, RecordReader};
use crate::vital::VitalThread;
use queue::{Mailbox, Submitted, WriterCommand, WriterShared, give_back};
use thread::Thread;

/// What a ticket that came back promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The batch survives a power cut.
    Always,
    /// The batch survives the end of the process; a power cut may cost the last so long.
    Interval(Duration),
    /// The batch survives the end of the process; a power cut may cost anything since the last segment was begun.
    Off,
}

impl FromStr for Durability {
    type Err = &'static str;

    /// `always`, `interval:100ms`, `interval:2s` or `off`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const USAGE: &str = "expected always, interval:TIME with a time of 1ms to 60s, or off";
        let time = match text {
            "always" => return Ok(Self::Always),
            "off" => return Ok(Self::Off),
            _ => text.strip_prefix("interval:").ok_or(USAGE)?,
        };
        let (digits, unit) = match time.strip_suffix("ms") {
            Some(digits) => (digits, 1),
            None => (time.strip_suffix('s').ok_or(USAGE)?, 1000),
        };
        let millis = digits.parse::<u32>().ok().map(|number| u64::from(number) * unit).ok_or(USAGE)?;
        if (1..=60_000).contains(&millis) { Ok(Self::Interval(Duration::from_millis(millis))) } else { Err(USAGE) }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Interval(interval) => write!(f, "interval:{}ms", interval.as_millis()),
            Self::Off => f.write_str("off"),
        }
    }
}

/// Settings of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// When a ticket comes back.
    pub durability: Durability,
    /// Bytes that may wait; more are refused.
    pub queue_bytes_max: usize,
    /// Batches that may wait; more are refused.
    pub queue_batches_max: usize,
    /// How long a group is waited for, at most, and how long what nobody waits for.
    pub gather_max: Duration,
    /// Take batches also while the disk fails, as far as there is room: for producers that look at [`LogWriter::health`]
    /// themselves, and need the order of what they have submitted.
    pub takes_while_failed: bool,
    /// The process ends if a thread of this store panics. Otherwise that costs this store only: a compaction has failed
    /// and is tried again; without its thread the store takes nothing more, and its health is [`Health::Failed`].
    pub is_vital: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Always,
            queue_bytes_max: 64 * 1024 * 1024,
            queue_batches_max: 65_536,
            gather_max: GATHER_MAX,
            takes_while_failed: false,
            is_vital: true,
        }
    }
}

/// Whether the disk takes what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It takes what it is given.
    Fine,
    /// It takes what it is given, and should only be given what makes the store smaller: there is little room.
    Full {
        /// How much room is left, in words.
        why: String,
    },
    /// It does not; it is tried again and again.
    Failed {
        /// What kind of trouble it is.
        trouble: DiskTrouble,
        /// What happened, with the name of the file.
        why: String,
    },
}

impl Health {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Full { .. } | Self::Failed { trouble: DiskTrouble::DiskFull, .. } => "full",
            Self::Failed { .. } => "failed",
        }
    }

    /// What is wrong; None if nothing is.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Fine => None,
            Self::Full { why } | Self::Failed { why, .. } => Some(why),
        }
    }
}

/// Why a batch was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRefusal {
    /// Too much is waiting already.
    Full,
    /// The disk fails; see [`LogWriter::health`].
    Failed,
    /// The writer is closing.
    Closed,
}

/// A batch that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBatch {
    /// The number that [`Producer::submit`] gave.
    pub ticket: u64,
    /// Where the batch stands: with [`RecordBatch::places`] the location of each record.
    pub at: Position,
}

/// What the writer has done, and what is before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterMetrics {
    /// Numbers of the log.
    pub log: LogMetrics,
    /// Groups written.
    pub groups: u64,
    /// Batches in the largest one.
    pub group_batches_max: usize,
    /// Batches refused.
    pub refused: u64,
    /// Times a failed disk was tried again.
    pub retries: u64,
    /// Compactions that failed; they are tried again later.
    pub compactions_failed: u64,
    /// Why the last one did.
    pub compaction_error: Option<String>,
    /// Bytes of batches that wait.
    pub queue_bytes: usize,
    /// Batches that wait.
    pub queue_batches: usize,
    /// Bytes of all files.
    pub disk_bytes: u64,
    /// Number of files.
    pub files: usize,
    /// Bytes that are free where they are, if that is known.
    pub free_bytes: Option<u64>,
    /// How long the disk has been at it with what it does now; long when it stalls.
    pub busy_for: Duration,
}

/// The writer; dropping it closes it.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<WriterShared>,
    thread: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
}

impl LogWriter {
    /// Starts the thread. `S` is what compactions read the log into.
    pub fn start<S: LogState + 'static, D: Disk + Send + 'static>(
        log: Log<D>,
        options: WriterOptions,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(WriterShared::new(options));
        let worker = Thread::<D>::new(log, options, Arc::clone(&shared));
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                let _vital = options.is_vital.then(VitalThread::guard);
                let ran = catch_unwind(AssertUnwindSafe(|| worker.run::<S>()));
                match ran {
                    Err(panic) if options.is_vital => resume_unwind(panic),
                    Err(_) => {
                        own.fail("its thread has panicked");
                        Err(StoreError::Failed)
                    }
                    Ok(result) => result,
                }
            })
            .map_err(StoreError::io("start the thread of", "the store"))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A handle to submit with. `wake` is called after tickets of this producer came back; it must not block.
    pub fn producer(&self, wake: impl Fn() + Send + Sync + 'static) -> Producer {
        let mailbox = Arc::new(Mailbox::new(Box::new(wake)));
        Producer { shared: Arc::clone(&self.shared), mailbox, next_ticket: 0 }
    }

    /// A reader of single records, which finds them also after compactions.
    pub fn reader<F: Files>(&self, files: F) -> RecordReader<F> {
        self.readers().reader(files)
    }

    /// The same for later, and for another thread.
    pub fn readers(&self) -> RecordReaders {
        RecordReaders { moves: Arc::clone(&self.shared.moves) }
    }

    /// Whether the disk takes what is written.
    pub fn health(&self) -> Health {
        self.shared.queue().health.clone()
    }

    /// How long the disk has been at it with what it does now; long when it stalls.
    pub fn busy_for(&self) -> Duration {
        self.shared.queue().busy_since.map_or(Duration::ZERO, |since: Instant| since.elapsed())
    }

    /// Counters.
    pub fn metrics(&self) -> WriterMetrics {
        let mut metrics = self.shared.metrics().clone();
        let queue = self.shared.queue();
        metrics.queue_bytes = queue.bytes;
        metrics.queue_batches = queue.batches;
        metrics.refused = queue.refused;
        drop(queue);
        metrics.busy_for = self.busy_for();
        metrics
    }

    /// Asks for a compaction now.
    pub fn compact(&self) {
        self.shared.command(WriterCommand::Compact);
    }

    /// Ends the current segment, and keeps every file until the guard is dropped: for a copy of the whole store. An
    /// error while the disk fails.
    pub fn seal(&self) -> Result<Sealed, StoreError> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.shared.command(WriterCommand::Seal(reply));
        answer.recv().unwrap_or(Err(StoreError::Failed))
    }

    /// Writes what waits, marks the end, and stops. While the disk fails, what waits is given up; nobody was told that it
    /// was kept. Whoever else has it, for a copy, keeps what was sealed and can do nothing new.
    pub fn close(&self) -> Result<(), StoreError> {
        self.shared.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread.map(JoinHandle::join) {
            Some(Ok(result)) => result,
            None => Ok(()),
            Some(Err(_)) => Err(StoreError::Failed),
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Makes readers of a store.
#[derive(Clone, Debug)]
pub struct RecordReaders {
    moves: Moves,
}

impl RecordReaders {
    /// A reader of single records, which finds them also after compactions.
    pub fn reader<F: Files>(&self, files: F) -> RecordReader<F> {
        RecordReader::new(files, Arc::clone(&self.moves))
    }
}

/// The files of a store at one moment; see [`LogWriter::seal`].
#[derive(Debug)]
pub struct Sealed {
    shared: Arc<WriterShared>,
    /// Names of the files that hold everything until then.
    pub files: Vec<FileId>,
    /// How far the newest of them goes.
    pub(crate) mark: Option<SyncMark>,
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.shared.release();
    }
}

/// A handle to submit with; each thread has its own.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<WriterShared>,
    mailbox: Arc<Mailbox>,
    next_ticket: u64,
}

impl Producer {
    /// Hands a batch over. The ticket is one more than the last one. A batch that is refused comes back.
    pub fn submit(&mut self, batch: RecordBatch) -> Result<u64, (BatchRefusal, RecordBatch)> {
        self.hand_over(batch, true)
    }

    /// The same for a batch that nobody waits for: it is written with the next one that somebody does wait for, or when
    /// [`WriterOptions::gather_max`] is over.
    pub fn submit_unawaited(&mut self, batch: RecordBatch) -> Result<u64, (BatchRefusal, RecordBatch)> {
        self.hand_over(batch, false)
    }

    fn hand_over(&mut self, batch: RecordBatch, is_awaited: bool) -> Result<u64, (BatchRefusal, RecordBatch)> {
        let (ticket, mailbox) = (self.next_ticket, Arc::clone(&self.mailbox));
        self.shared.submit(Submitted { batch, ticket, mailbox, is_awaited })?;
        self.next_ticket += 1;
        Ok(ticket)
    }

    /// Somebody waits now for what was submitted before.
    pub fn hurry(&self) {
        self.shared.hurry();
    }

    /// How often the health of the disk has changed: whoever remembers the number knows when to ask [`LogWriter::health`].
    pub fn health_changes(&self) -> u64 {
        self.shared.health_changes.load(Ordering::Relaxed)
    }

    /// Takes the tickets that came back.
    pub fn poll(&mut self, into: &mut Vec<KeptBatch>) {
        let mut done = self.mailbox.done.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut done);
        give_back(&mut done);
    }

    /// Waits until there is one. For those who have nothing else to do; false if the writer is gone.
    pub fn wait(&mut self, into: &mut Vec<KeptBatch>) -> bool {
        self.mailbox.wait(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_written_as_it_is_read() {
        for text in ["always", "off", "interval:100ms", "interval:60000ms"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        assert_eq!("interval:2s".parse(), Ok(Durability::Interval(Duration::from_secs(2))));
        for text in ["", "on", "interval", "interval:", "interval:0ms", "interval:61s", "interval:-1s", "interval:5"] {
            assert!(text.parse::<Durability>().is_err(), "{text}");
        }
    }
}
