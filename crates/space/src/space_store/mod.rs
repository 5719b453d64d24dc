//! The space on disk: a log of its own, in a directory of its own, by the store's writer.
//!
//! The writer of the space hands over what a request did and goes on; the store's thread writes and syncs in groups. While
//! the disk fails nothing is lost and nothing is confirmed: what was handed over waits, and new changes are refused before
//! they are made.

mod image;
mod records;
mod restore;

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_graph::SpaceLimits;
use tidegate_store::disk::Disk;
use tidegate_store::{
    Durability, Health, KeptBatch, Log, LogOptions, LogState, LogWriter, Producer, RecordBatch, RecoveryReport,
    StoreConfig, StoreError, StoreReport, TroubleMemory, TroubleNews, WriterOptions,
};
use tracing::{error, info};

pub use image::{RestoredSpace, SpaceImage};
use records::Record;
pub use restore::restore_space;

use crate::persistence::{DurableChange, Persistence};
use crate::shared_state::lock;

/// What was found when the space was opened.
#[derive(Clone, Debug)]
pub struct SpaceOpening {
    /// What was read and repaired.
    pub report: RecoveryReport,
    /// The version of the data.
    pub version: u64,
    /// Quads in all graphs.
    pub quads: usize,
    /// Names of the rules in force.
    pub rules: Vec<String>,
    /// Changes before which something is missing, because the medium was damaged there.
    pub holes: u64,
    /// What the operator should know besides: rights that others had, a disk that is nearly full.
    pub notes: Vec<String>,
}

/// Versions that are left out when the last ones may have been lost: whoever saw one of them will not see it again with
/// another meaning. More than an interval can hold.
const VERSIONS_LEFT_OUT: u64 = 1 << 32;
/// Batches of one request are as large as the store takes them; this many bytes may wait beside.
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// A version that no earlier life of a space has used: there is less than a change in each microsecond.
pub(crate) fn version_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or_default()
}

/// The data are those of this version, whatever came before.
fn version_batch(version: u64) -> Result<RecordBatch, StoreError> {
    let mut batch = RecordBatch::new();
    Record::Version(version).with_raw(|raw| batch.push(raw))?;
    Ok(batch)
}

/// The store of a running space.
pub struct SpaceStore {
    config: StoreConfig,
    /// Locked only to take hold of it: a copy takes long, and meanwhile everything goes on.
    writer: Mutex<Option<Arc<LogWriter>>>,
    /// What was logged about its health.
    said: Mutex<TroubleMemory>,
}

impl fmt::Debug for SpaceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceStore").field("config", &self.config).finish_non_exhaustive()
    }
}

impl SpaceStore {
    /// A store that nothing was read of yet.
    pub(crate) fn new(config: &StoreConfig) -> Arc<Self> {
        let (writer, said) = (Mutex::new(None), Mutex::default());
        Arc::new(Self { config: config.clone(), writer, said })
    }

    /// Reads what is there and begins to write. What an owner before has left is closed first.
    pub(crate) fn open<D: Disk + Send + 'static>(
        &self,
        disk: impl FnOnce() -> Result<D, StoreError>,
        log: LogOptions,
        limits: SpaceLimits,
    ) -> Result<(RestoredSpace, SpaceOpening), StoreError> {
        self.close();
        let (disk, config) = (disk()?, &self.config);
        let mut image = SpaceImage::default();
        let options = LogOptions { strict: config.strict, size_max: config.size_max, is_rewritten: true, ..log };
        let (mut log, report) = Log::open(disk, options, |record, at| image.apply(record, at))?;
        let (holes, notes) = (image.holes, log.usage().outlook().into_iter().collect());
        let mut restored = image.restore(limits);
        let is_surely_whole = report.is_closed || config.durability == Durability::Always;
        if restored.space.version() == 0 {
            // A new folder, or nothing is left of it: of what was in its place before nothing is known but that it is over.
            restored.space.replay_version(version_of_now());
            // Synced with the first change: without one it is not missed.
            let _ = log.append(&[version_batch(restored.space.version())?], &mut Vec::new());
        } else if !is_surely_whole && report.records > 0 {
            restored.space.replay_version(restored.space.version() + VERSIONS_LEFT_OUT);
            let batch = version_batch(restored.space.version())?;
            // If this fails, the writer finds out; without it the next start reports a change that does not follow.
            let _ = log.append(&[batch], &mut Vec::new()).and_then(|()| log.sync());
        }
        let options = WriterOptions {
            durability: config.durability,
            queue_bytes_max: QUEUE_BYTES_MAX,
            takes_while_failed: true,
            is_vital: false,
            ..WriterOptions::default()
        };
        let writer = LogWriter::start::<SpaceImage, _>(log, options)?;
        if !report.is_sound() {
            writer.compact();
        }
        *lock(&self.writer) = Some(Arc::new(writer));
        let (version, quads) = (restored.space.version(), restored.space.snapshot().len());
        let rules = restored.names.iter().map(|(name, _)| name.clone()).collect();
        let opening = SpaceOpening { report, version, quads, rules, holes, notes };
        Ok((restored, opening))
    }

    /// Writes what was handed over, as far as that is possible, and lets go.
    fn close(&self) {
        let writer = lock(&self.writer).take();
        if let Some(Err(error)) = writer.map(|writer| writer.close()) {
            error!(event = "store_error", %error, "cannot close the store of the smart space in good order");
        }
    }

    /// How it is; none after the end.
    pub fn report(&self) -> Option<StoreReport> {
        let (health, metrics) = self.with(|writer| (writer.health(), writer.metrics()))?;
        let StoreConfig { dir, durability, size_max, .. } = self.config.clone();
        Some(StoreReport { dir, durability, health, metrics, size_max })
    }

    /// Copies everything that is kept by now; writing goes on.
    pub fn backup(&self, to: &Path) -> Result<RecoveryReport, StoreError> {
        let copy = self.with(|writer| tidegate_store::backup_online::<SpaceImage>(writer, &self.config.dir, to));
        copy.unwrap_or(Err(StoreError::Failed))
    }

    /// How it is; none after the end. Changes are logged, by whoever sees them first.
    fn health(&self) -> Option<Health> {
        let health = self.with(LogWriter::health)?;
        let dir = self.config.dir.display();
        match (lock(&self.said).hear(&health), &health) {
            (Some(TroubleNews::Trouble), Health::Failed { why, .. }) => error!(
                event = "store_error", why, %dir,
                "the smart space cannot be written; no change of it is confirmed until that is over"
            ),
            (Some(TroubleNews::Trouble), Health::Full { why }) => error!(
                event = "store_full", why, %dir,
                "the smart space takes only what makes it smaller until that is over"
            ),
            (Some(TroubleNews::Over), _) => info!(event = "store_recovered", "the smart space is written again"),
            _ => {}
        }
        Some(health)
    }

    fn with<T>(&self, then: impl FnOnce(&LogWriter) -> T) -> Option<T> {
        let writer = lock(&self.writer).clone();
        writer.map(|writer| then(&writer))
    }
}

/// The store as the writer of the space uses it.
pub(crate) struct LogPersistence {
    store: Arc<SpaceStore>,
    producer: Option<Producer>,
    /// Batches that the store had no room for yet: of one request at most.
    backlog: VecDeque<RecordBatch>,
    submitted: u64,
    done: Vec<KeptBatch>,
    kept: u64,
    /// Something could not even be written down: the log must not go on without it.
    broken: Option<String>,
}

impl LogPersistence {
    pub(crate) fn new(store: Arc<SpaceStore>) -> Self {
        Self { store, producer: None, backlog: VecDeque::new(), submitted: 0, done: Vec::new(), kept: 0, broken: None }
    }

    fn hand_over(&mut self) {
        let Some(producer) = &mut self.producer else { return };
        while let Some(batch) = self.backlog.pop_front() {
            if let Err((_, batch)) = producer.submit(batch) {
                self.backlog.push_front(batch);
                return;
            }
        }
    }

    fn collect(&mut self) {
        if let Some(producer) = &mut self.producer {
            producer.poll(&mut self.done);
            self.kept += self.done.drain(..).count() as u64;
        }
    }
}

/// What one request did, as batches.
pub(crate) fn write_down(what: &[DurableChange<'_>]) -> Result<VecDeque<RecordBatch>, StoreError> {
    let (mut batches, mut batch) = (VecDeque::new(), RecordBatch::new());
    for kept in what {
        if let Err(error) = records::push(*kept, &mut batch) {
            if batch.is_empty() {
                return Err(error);
            }
            // More than a batch takes: the rules that one request woke have changed hundreds of megabytes.
            batches.push_back(std::mem::take(&mut batch));
            records::push(*kept, &mut batch)?;
        }
    }
    batches.push_back(batch);
    Ok(batches)
}

impl Persistence for LogPersistence {
    fn listen(&mut self, wake: Box<dyn Fn() + Send + Sync>) {
        self.producer = self.store.with(|writer| writer.producer(wake));
    }

    fn submit(&mut self, what: &[DurableChange<'_>]) {
        match write_down(what) {
            Ok(mut batches) => {
                self.submitted += batches.len() as u64;
                self.backlog.append(&mut batches);
                self.hand_over();
            }
            // The limits of the graph are below those of the store; if that is ever wrong, it must not go unnoticed.
            Err(error) => {
                error!(event = "store_error", %error, "a change cannot be written down; no more are confirmed");
                self.broken = Some(error.to_string());
            }
        }
    }

    fn is_kept(&mut self) -> bool {
        self.hand_over();
        self.collect();
        self.broken.is_none() && self.kept == self.submitted
    }

    fn trouble(&mut self) -> Option<String> {
        let closed = || "the store is closed".to_owned();
        self.broken.clone().or_else(|| match self.store.health() {
            Some(Health::Failed { why, .. }) => Some(why),
            Some(Health::Fine | Health::Full { .. }) => None,
            None => Some(closed()),
        })
    }

    fn is_full(&mut self) -> bool {
        matches!(self.store.health(), Some(Health::Full { .. }))
    }

    fn close(&mut self) -> bool {
        self.hand_over();
        self.store.close();
        self.collect();
        self.broken.is_none() && self.kept == self.submitted
    }
}
