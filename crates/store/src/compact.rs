//! Compaction: the snapshot and the segments behind it become one new snapshot.
//!
//! It reads the files exactly as a restart would, into a state of its own, and writes that down. So nothing has to stop,
//! nobody has to keep a second copy of the state in memory between compactions, and recovery is exercised all the time.
//! The cost is one more reading of each byte, in order, beside the writer.
//!
//! Large records that are still needed are not rewritten each time. A file in which they make up enough
//! ([`LogOptions::keep_percent`](crate::LogOptions::keep_percent)) is kept for them; out of the others they are copied
//! into the snapshot. So the files never hold more than twice what is live, and no byte is copied while most around it
//! live. On a disk with little room as much is copied as fits, out of the files with the least to copy: each that goes
//! makes room for the next time.
//!
//! A log that has failed is compacted, too, up to what was settled: a full disk may have no other way to get room.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileHeader, FileId, HEADER_BYTES, Location};
use crate::frame::{FRAME_BYTES, RawRecord, RecordBatch, SNAPSHOT_END};
use crate::limits::SCAN_BYTES;
use crate::log::Log;
use crate::read::read_record;
use crate::replay::{CompactionEnd, TEMPORARY, replay};

/// What it takes at least to write down where a record stands.
const PLACE_BYTES: u64 = 32;

/// What records add up to. Applying a record a second time must change nothing.
pub trait LogState: Default {
    /// Takes one record. An error refuses the store: a record that is not understood is never guessed.
    fn apply(&mut self, record: RawRecord<'_>, at: Location) -> Result<(), StoreError>;
    /// Names the records that are needed where they stand.
    fn live(&self, each: &mut dyn FnMut(Location));
    /// Writes itself down: applied to an empty state, what is written gives the same state.
    fn dump(&self, sink: &mut dyn SnapshotSink) -> Result<(), StoreError>;
}

/// Takes what a state writes down.
pub trait SnapshotSink {
    /// Writes a record into the snapshot.
    fn push(&mut self, record: RawRecord<'_>) -> Result<(), StoreError>;
    /// Asks for a record to be kept.
    fn keep(&mut self, at: Location) -> Result<Placement, StoreError>;
}

/// How a record was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where it was; the state has to write down that place.
    InPlace,
    /// In the snapshot, as it was: there it will be applied like any other record.
    Copied,
    /// It is damaged, and left out.
    Lost,
}

/// A compaction to be run, on any thread.
#[derive(Debug)]
pub struct CompactionJob<D> {
    disk: D,
    before: u64,
    /// Where the log ends, if there is no segment behind that says it.
    tail: Option<(u64, u64)>,
    keep_percent: u32,
    /// Bytes that may be copied.
    room: u64,
    /// There is so little room that one which frees less than it takes would do harm.
    must_gain: bool,
}

/// A compaction that was run.
#[derive(Debug)]
pub struct Compacted {
    base: u64,
    keep: BTreeSet<FileId>,
    snapshot_bytes: u64,
    records: u64,
    /// Records that were copied: where from, where to.
    pub moved: BTreeMap<Location, Location>,
    /// Records that a damaged place has cost.
    pub lost: u64,
}

impl<D: Disk> Log<D> {
    /// Whether the log has grown enough since the last compaction.
    pub fn wants_compaction(&self) -> bool {
        let log: u64 = self.files().filter(|(id, _)| !id.is_snapshot() && id.number() >= self.base).map(|f| f.1).sum();
        let snapshot = self.sizes.get(&FileId::snapshot(self.base)).copied().unwrap_or(0);
        log >= self.options.compact_bytes_min && log >= snapshot / 100 * u64::from(self.options.compact_percent)
    }

    /// Begins a compaction of everything so far: the job reads sealed files only, while the log goes on behind them.
    pub fn begin_compaction(&mut self) -> Result<CompactionJob<D>, StoreError> {
        let tail = self.failed_tail();
        if tail.is_none() {
            self.rotate()?;
        }
        let before = self.next_segment().ok_or(StoreError::Failed)?;
        let place = self.disk.place();
        let disk = self.disk.again().map_err(StoreError::io("open", &place))?;
        self.records_sealed = self.records;
        // Half of what is free: the other half is for what is written meanwhile, and for where things stand.
        let room = self.disk.partition().map_or(u64::MAX, |partition| partition.free / 2);
        let usage = self.usage();
        let must_gain = usage.lacks_reserve || !usage.has_room();
        Ok(CompactionJob { disk, before, tail, keep_percent: self.options.keep_percent, room, must_gain })
    }

    /// Removes what the new snapshot has replaced. What cannot be removed now is left to the next one.
    pub fn finish_compaction(&mut self, compacted: &Compacted) -> Result<(), StoreError> {
        self.base = compacted.base;
        self.sizes.insert(FileId::snapshot(compacted.base), compacted.snapshot_bytes);
        self.records = compacted.records + self.records.saturating_sub(self.records_sealed);
        self.metrics.compactions += 1;
        let place = self.disk.place();
        let names = self.disk.list().map_err(StoreError::io("list", &place))?;
        // By name and not by what we know of: a failed attempt may have left files.
        for id in names.iter().filter_map(|name| FileId::parse(name)) {
            if id < FileId::snapshot(compacted.base) && !compacted.keep.contains(&id) {
                self.disk.remove(&id.name()).map_err(StoreError::io("remove", &id.name()))?;
                self.sizes.remove(&id);
            }
        }
        self.disk.sync_names().map_err(StoreError::io("sync", &place))
    }

    /// A whole compaction, for those who have only one thread.
    pub fn compact<S: LogState>(&mut self) -> Result<Compacted, StoreError> {
        let compacted = self.begin_compaction()?.run::<S>()?;
        self.finish_compaction(&compacted)?;
        Ok(compacted)
    }
}

impl<D: Disk> CompactionJob<D> {
    /// Reads, and writes the snapshot. After an error everything is as before.
    pub fn run<S: LogState>(mut self) -> Result<Compacted, StoreError> {
        let mut state = S::default();
        let before = CompactionEnd { segment: self.before, tail: self.tail };
        let found = replay(&mut self.disk, Some(before), &mut |record, at| state.apply(record, at))?;
        let mut live: BTreeMap<FileId, (u64, u64)> = BTreeMap::new();
        state.live(&mut |at| {
            let (bytes, count) = live.entry(at.file).or_default();
            *bytes += u64::from(at.len) + FRAME_BYTES as u64;
            *count += 1;
        });
        let count = live.values().map(|(_, count)| count).sum::<u64>();
        let keep = self.kept_files(live, &found.sizes);
        let freed: u64 = found.sizes.iter().filter(|(id, _)| !keep.contains(id)).map(|(_, size)| size).sum();
        if self.must_gain && freed <= count * PLACE_BYTES {
            return Err(StoreError::NoGain);
        }

        let name = format!("snapshot-{:012}{TEMPORARY}", self.before);
        // One that an earlier attempt left.
        let _ = self.disk.remove(&name);
        let written = self.write(&state, &name, keep, freed);
        if written.is_err() {
            let _ = self.disk.remove(&name);
        }
        written
    }

    /// The files that stay for what is live in them: those that are mostly live, and those that there is no room to copy.
    fn kept_files(&self, live: BTreeMap<FileId, (u64, u64)>, sizes: &BTreeMap<FileId, u64>) -> BTreeSet<FileId> {
        let is_mostly_live = |id: &FileId, bytes: u64| {
            sizes.get(id).is_some_and(|size| bytes * 100 >= size * u64::from(self.keep_percent))
        };
        let mut live: Vec<(u64, FileId)> = live.into_iter().map(|(id, (bytes, _))| (bytes, id)).collect();
        live.sort_unstable();
        let (mut keep, mut copied) = (BTreeSet::new(), 0);
        for (bytes, id) in live {
            if is_mostly_live(&id, bytes) || bytes > self.room.saturating_sub(copied) {
                keep.insert(id);
            } else {
                copied += bytes;
            }
        }
        keep
    }

    fn write<S: LogState>(
        &mut self,
        state: &S,
        name: &str,
        keep: BTreeSet<FileId>,
        freed: u64,
    ) -> Result<Compacted, StoreError> {
        let id = FileId::snapshot(self.before);
        // The second number is 0 if the segment behind it has been begun, and is missed if it is not there.
        let follows_end = u64::from(self.tail.is_some());
        let header = FileHeader { id, salt: self.disk.salt(), follows: 0, follows_end };
        self.disk.create(name).map_err(StoreError::io("create", name))?;
        let mut snapshot = SnapshotWriter {
            disk: &mut self.disk,
            name,
            header,
            keep,
            buffer: header.to_bytes(),
            flushed: 0,
            moved: BTreeMap::new(),
            lost: 0,
            records: 0,
            payload: Vec::new(),
            salts: BTreeMap::new(),
        };
        state.dump(&mut snapshot)?;
        let records = snapshot.records;
        let count = records;
        snapshot.write(&RecordBatch::control(SNAPSHOT_END, &count.to_le_bytes()))?;
        snapshot.flush()?;
        let SnapshotWriter { keep, flushed: snapshot_bytes, moved, lost, .. } = snapshot;
        if self.must_gain && freed <= snapshot_bytes {
            return Err(StoreError::NoGain);
        }
        self.disk.sync(name).map_err(StoreError::io("sync", name))?;
        self.disk.rename(name, &id.name()).map_err(StoreError::io("rename", name))?;
        let place = self.disk.place();
        self.disk.sync_names().map_err(StoreError::io("sync", &place))?;
        Ok(Compacted { base: self.before, keep, snapshot_bytes, records, moved, lost })
    }
}

/// A snapshot being written.
struct SnapshotWriter<'s, D> {
    disk: &'s mut D,
    name: &'s str,
    header: FileHeader,
    keep: BTreeSet<FileId>,
    buffer: Vec<u8>,
    /// Bytes in the file.
    flushed: u64,
    moved: BTreeMap<Location, Location>,
    lost: u64,
    records: u64,
    payload: Vec<u8>,
    salts: BTreeMap<FileId, u32>,
}

impl<D: Disk> SnapshotWriter<'_, D> {
    fn write(&mut self, batch: &RecordBatch) -> Result<u64, StoreError> {
        let offset = self.flushed + self.buffer.len() as u64;
        batch.write(&mut self.buffer, self.header.salt, offset, offset == HEADER_BYTES);
        self.records += batch.len() as u64;
        if self.buffer.len() >= SCAN_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.disk.append(self.name, &self.buffer).map_err(StoreError::io("write", self.name))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl<D: Disk> SnapshotSink for SnapshotWriter<'_, D> {
    fn push(&mut self, record: RawRecord<'_>) -> Result<(), StoreError> {
        let mut batch = RecordBatch::new();
        batch.push(record)?;
        self.write(&batch).map(drop)
    }

    fn keep(&mut self, at: Location) -> Result<Placement, StoreError> {
        if self.keep.contains(&at.file) {
            return Ok(Placement::InPlace);
        }
        let mut payload = std::mem::take(&mut self.payload);
        let read = read_record(self.disk, at, self.salts.get(&at.file).copied(), &mut payload);
        let (frame, salt) = match read {
            Ok(read) => read,
            Err(StoreError::Damaged { .. } | StoreError::Gone { .. }) => {
                self.lost += 1;
                return Ok(Placement::Lost);
            }
            Err(error) => return Err(error),
        };
        self.salts.insert(at.file, salt);
        let mut batch = RecordBatch::new();
        let is_skippable = frame.is_skippable();
        batch.push(RawRecord { tag: frame.tag, version: frame.version, is_skippable, payload: &payload })?;
        self.payload = payload;
        let offset = self.write(&batch)?;
        self.moved.insert(at, Location { file: self.header.id, offset, len: at.len });
        Ok(Placement::Copied)
    }
}
