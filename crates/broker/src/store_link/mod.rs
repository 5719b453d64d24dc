//! The store of a running broker: opened and read when it starts, written by one thread, told to by every shard.
//!
//! Each shard thread has a `ShardWriter`: at the end of a turn it hands over what the turn has changed, and at the
//! beginning of one it hears what is kept by now. Changes become records in `encode`, records become shards again in
//! `restore`; both are used by the simulator as they are. Decides nothing: what waits for what is the core's business.

mod ban_writer;
mod disk_address;
mod encode;
mod fetch;
mod owner;
pub mod records;
mod restore;
mod rhythms;
mod shard_writer;
mod subject;
mod wall_clock;

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::persist::Trouble;
use tidegate_core::settings::Rate;
use tidegate_core::{Shard, Whom};
use tidegate_store::disk::{Disk, FsDisk, FsFiles, Mirror, MirroredDisk};
use tidegate_store::{
    Log, LogOptions, LogState, LogWriter, Producer, RecordBatch, RecoveryReport, StoreError, TroubleMemory,
    TroubleNews, WriterOptions,
};

pub use ban_writer::BanKept;
use ban_writer::BanWriter;
pub use disk_address::location_of;
pub use encode::{Messages, Written, batches};
pub(crate) use fetch::{Fetcher, PageReader};
use records::{Record, StoreImage};
pub use restore::{Read, Restored, restore, saved};
pub use rhythms::write_learned;
pub(crate) use shard_writer::ShardWriter;
pub use tidegate_store::{Durability, Health, StoreConfig, StoreReport, WriterMetrics};

use crate::bans::{Ban, Banned};
use crate::operator::OperatorSetting;
pub use wall_clock::WallClock;

/// What the store had to say when it was opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// What was read and repaired.
    pub report: RecoveryReport,
    /// What became of it.
    pub restored: Restored,
    /// What the operator should know besides: rights that others had, a disk that is nearly full.
    pub notes: Vec<String>,
}

/// The store of a running broker; shared by all threads.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    config: StoreConfig,
    wall: WallClock,
    /// Locked only to take hold of it: a copy takes long, and meanwhile everything goes on.
    writer: Mutex<Option<Arc<LogWriter>>>,
    /// Reads pages of long queues.
    fetcher: Mutex<Option<Fetcher>>,
    ban_writer: BanWriter,
    /// What was logged about its health.
    said: Mutex<TroubleMemory>,
    mirror: Option<Arc<dyn Mirror>>,
}

/// A store that was opened.
pub(crate) struct Opened {
    pub(crate) store: StoreHandle,
    pub(crate) opening: Opening,
    /// What each shard has to write first.
    pub(crate) first: Vec<Vec<RecordBatch>>,
    /// Who is not let in, for how long, and why.
    pub(crate) bans: Vec<Ban>,
    /// What operators have set.
    pub(crate) rates: Vec<(OperatorSetting, Whom, Rate)>,
}

/// What to wait for until a ban is kept; nothing, if it was not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BanTicket(Option<u64>);

impl BanTicket {
    pub(crate) const NONE: Self = Self(None);
}

/// How long an operator waits for a ban to be kept.
const BAN_WAIT_MAX: Duration = Duration::from_secs(2);

impl StoreHandle {
    /// Opens the store and puts the shards back as they were. With a mirror, what counts as kept is kept there, too.
    pub(crate) fn open(
        config: &StoreConfig,
        mirror: Option<Arc<dyn Mirror>>,
        shards: &mut [Shard],
        now: Timestamp,
    ) -> io::Result<Opened> {
        let disk = FsDisk::open(&config.dir).map_err(failed)?;
        let notes: Vec<String> = disk.narrowed().map(str::to_owned).into_iter().collect();
        match mirror {
            None => Self::open_on(disk, notes, config, shards, now),
            Some(mirror) => {
                let disk = MirroredDisk::new(disk, Arc::clone(&mirror));
                let mut opened = Self::open_on(disk, notes, config, shards, now)?;
                opened.store.mirror = Some(mirror);
                Ok(opened)
            }
        }
    }

    fn open_on<D: Disk + Send + 'static>(
        disk: D,
        mut notes: Vec<String>,
        config: &StoreConfig,
        shards: &mut [Shard],
        now: Timestamp,
    ) -> io::Result<Opened> {
        let options = LogOptions { strict: config.strict, size_max: config.size_max, ..LogOptions::default() };
        let mut image = StoreImage::default();
        let (mut log, report) = Log::open(disk, options, |record, at| image.apply(record, at)).map_err(failed)?;
        notes.extend(log.usage().outlook());
        let wall = WallClock::now(now, image.clock_ms());
        let mut restored = restore(&image, &mut |at, into| log.read(at, into), shards, &wall, now);
        restored.rhythms = rhythms::restore(&image, shards, &wall, now);
        let bans = bans(&image, &wall, now);
        restored.bans = bans.len();
        let rates = image.limits().filter_map(rate).collect();
        drop(image);
        let first = write_first(&mut log, shards, &wall, now);
        let options =
            WriterOptions { durability: config.durability, takes_while_failed: true, ..WriterOptions::default() };
        let writer = LogWriter::start::<StoreImage, _>(log, options).map_err(failed)?;
        if !report.is_sound() {
            writer.compact();
        }
        let dir = config.dir.clone();
        let reader = writer.readers();
        let fetcher = Fetcher::start(move || reader.reader(FsFiles::new(&dir)))?;
        let changed = Arc::new(Condvar::new());
        let bell = Arc::clone(&changed);
        let ban_writer = BanWriter::new(writer.producer(move || bell.notify_all()), changed);
        let (writer, fetcher) = (Mutex::new(Some(Arc::new(writer))), Mutex::new(Some(fetcher)));
        let said = Mutex::default();
        let store = Self { config: config.clone(), wall, writer, fetcher, ban_writer, said, mirror: None };
        Ok(Opened { store, opening: Opening { report, restored, notes }, first, bans, rates })
    }

    /// Writes a ban down; whoever wants to know that it is kept waits for the ticket.
    pub(crate) fn ban(&self, whom: &Banned, until: Timestamp, reason: &str) -> BanTicket {
        let until_ms = Some(self.wall.ms(until));
        let write = |subject: String| self.ban_writer.write(&Record::Ban { subject: &subject, until_ms, reason });
        BanTicket(subject::write(whom).and_then(write))
    }

    /// Writes down that a ban is over.
    pub(crate) fn unban(&self, whom: &Banned) -> BanTicket {
        let write = |subject: String| self.ban_writer.write(&Record::BanLifted { subject: &subject });
        BanTicket(subject::write(whom).and_then(write))
    }

    /// Writes down what an operator has set, or that it is over.
    pub(crate) fn set_rate(&self, setting: OperatorSetting, whom: &Whom, rate: Option<Rate>) -> BanTicket {
        let write = |subject: String| match rate {
            Some(rate) => {
                let interval_ns = u64::try_from(rate.interval().as_nanos()).unwrap_or(u64::MAX);
                self.ban_writer.write(&Record::Limit { subject: &subject, interval_ns, burst: rate.burst() })
            }
            None => self.ban_writer.write(&Record::LimitLifted { subject: &subject }),
        };
        BanTicket(subject::write_rate(setting, whom).and_then(write))
    }

    /// Waits for such a ticket, a few seconds at most.
    pub(crate) fn is_kept(&self, ticket: BanTicket) -> BanKept {
        ticket.0.map_or(BanKept::No, |ticket| self.ban_writer.wait(ticket, BAN_WAIT_MAX))
    }

    /// The handle of one shard; `wake` is called when something of it was kept.
    pub(crate) fn producer(&self, wake: impl Fn() + Send + Sync + 'static) -> Option<Producer> {
        self.with(|writer| writer.producer(wake))
    }

    /// The page reader of one shard; `wake` is called when something of it was read.
    pub(crate) fn page_reader(&self, wake: impl Fn() + Send + Sync + 'static) -> Option<PageReader> {
        self.fetcher.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|fetcher| fetcher.page_reader(wake))
    }

    /// Whether clients may be told anything: not while another node may have this log without our knowing.
    pub(crate) fn may_speak(&self) -> bool {
        self.mirror.as_ref().is_none_or(|mirror| mirror.holds())
    }

    pub(crate) fn wall(&self) -> WallClock {
        self.wall
    }

    /// Whether anything can be kept. Changes are logged, by whoever sees them first.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let health = self.with(LogWriter::health)?;
        let say = self.said.lock().unwrap_or_else(PoisonError::into_inner).hear(&health);
        let dir = self.config.dir.display();
        match (say, &health) {
            (Some(TroubleNews::Trouble), Health::Failed { why, .. }) => tracing::error!(
                event = "store_error", why, %dir,
                "cannot write; nothing that needs the disk is acknowledged until that is over"
            ),
            (Some(TroubleNews::Trouble), Health::Full { why }) => tracing::error!(
                event = "store_full", why, %dir,
                "nothing more is taken for those who last until some of it was taken by them"
            ),
            (Some(TroubleNews::Over), _) => {
                tracing::info!(event = "store_recovered", "the disk takes what it is given again");
            }
            _ => {}
        }
        match health {
            Health::Fine => None,
            Health::Full { .. } | Health::Failed { trouble: tidegate_store::DiskTrouble::DiskFull, .. } => {
                Some(Trouble::Full)
            }
            Health::Failed { .. } => Some(Trouble::Failing),
        }
    }

    /// How long the disk has been with what it does now.
    pub(crate) fn busy_for(&self) -> Duration {
        self.with(LogWriter::busy_for).unwrap_or_default()
    }

    pub(crate) fn report(&self) -> Option<StoreReport> {
        let (health, metrics) = self.with(|writer| (writer.health(), writer.metrics()))?;
        let StoreConfig { dir, durability, size_max, .. } = self.config.clone();
        Some(StoreReport { dir, durability, health, metrics, size_max })
    }

    /// Copies everything that is kept by now; writing goes on.
    pub(crate) fn backup(&self, to: &Path) -> Result<RecoveryReport, StoreError> {
        let answer = self.with(|writer| tidegate_store::backup_online::<StoreImage>(writer, &self.config.dir, to));
        answer.unwrap_or(Err(StoreError::Failed))
    }

    /// Writes what waits, and lets go of the directory. The threads that have scribes are gone.
    pub(crate) fn close(&self) {
        drop(self.fetcher.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = writer.map(|writer| writer.close()) {
            tracing::error!(event = "store_error", %error, "cannot close the store in good order");
        }
    }

    fn with<T>(&self, then: impl FnOnce(&LogWriter) -> T) -> Option<T> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        writer.map(|writer| then(&writer))
    }
}

/// The bans that hold; what cannot be understood was written by somebody else.
fn bans(image: &StoreImage, wall: &WallClock, now: Timestamp) -> Vec<Ban> {
    let ban = |(text, until_ms, reason): (&str, Option<u64>, &str)| {
        let left = wall.timestamp(until_ms?).since(now);
        Some(Ban { whom: subject::read(text)?, left, reason: reason.to_owned(), tries: 0, last_try: None })
    };
    image.bans().filter_map(ban).filter(|ban| !ban.left.is_zero()).collect()
}

/// What an operator has set; none for what somebody else has written.
fn rate((subject, interval_ns, burst): (&str, u64, u32)) -> Option<(OperatorSetting, Whom, Rate)> {
    let (setting, whom) = subject::read_rate(subject)?;
    Some((setting, whom, Rate::new(1, Duration::from_nanos(interval_ns), burst)))
}

/// What was done while restoring (sessions that had expired, messages that were on their way) is written before anything
/// else, the first shard last: it is the one that says that something is done. What cannot be written is for the
/// scribes.
fn write_first<D: Disk>(
    log: &mut Log<D>,
    shards: &mut [Shard],
    wall: &WallClock,
    now: Timestamp,
) -> Vec<Vec<RecordBatch>> {
    let mut first: Vec<Vec<RecordBatch>> = shards.iter().map(|_| Vec::new()).collect();
    for (index, shard) in shards.iter_mut().enumerate().rev() {
        let turn = shard.poll_journal();
        // Whatever these messages are, they stay in memory: there are few of them.
        let written = turn.iter().flat_map(|turn| batches(turn, wall));
        let mut batches: Vec<RecordBatch> = written.map(|written| written.batch).collect();
        if index == 0 {
            let mut batch = RecordBatch::new();
            if (Record::Clock { now_ms: wall.ms(now) }).push_to(&mut batch).is_ok() {
                batches.push(batch);
            }
        }
        let is_written = !batches.is_empty() && log.append(&batches, &mut Vec::new()).and_then(|()| log.sync()).is_ok();
        if let Some(turn) = turn.filter(|_| is_written) {
            shard.handle_synced(turn.position, now);
        } else if !is_written && let Some(first) = first.get_mut(index) {
            *first = batches;
        }
    }
    first
}

fn failed(error: StoreError) -> io::Error {
    io::Error::other(error)
}

/// A reader of what a running store has; for tests and tools.
pub fn files(dir: &Path) -> FsFiles {
    FsFiles::new(dir)
}
