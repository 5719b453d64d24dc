//! The log: batches at the end of the last segment, synced when told, and a fresh segment when the disk has failed.
//!
//! It refuses to know threads, waiting and what records mean. [`crate::writer`] drives it in the field, the simulator
//! directly.
//!
//! After a failed write or sync its file is never written again and never believed beyond what was settled before: the
//! system may have thrown the data away and call the file clean. [`Log::repair`] begins another one that says so, and the
//! owner appends again what was not settled.

use std::collections::BTreeMap;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileHeader, FileId, HEADER_BYTES, Location};
use crate::frame::{CLOSED, RawRecord, RecordBatch, SETTLED};
use crate::mark::{MarkWriter, SyncMark};
use crate::metrics::LogMetrics;
use crate::read;
use crate::repair::repair;
use crate::replay::{DoubtfulBatch, Purpose, TEMPORARY, replay_for};
use crate::report::RecoveryReport;
use crate::reserve::Reserve;

/// Settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// A segment that has so many bytes is followed by the next one.
    pub segment_bytes: u64,
    /// A compaction is worth its while when the log behind the snapshot has so many bytes...
    pub compact_bytes_min: u64,
    /// ...and so many percent of the snapshot's.
    pub compact_percent: u32,
    /// A file is kept for the live records in it when they make up so many percent; else they are copied out.
    pub keep_percent: u32,
    /// Refuse to open when something that had been kept is damaged, instead of setting it aside. A torn end is no such
    /// thing.
    pub strict: bool,
    /// Bytes that the files may take; see [`crate::LogUsage`]. Nothing is refused here: that is for the owner to decide.
    pub size_max: Option<u64>,
    /// The state keeps no record where it stands: a compaction writes all of it anew, and needs the room.
    pub is_rewritten: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            // Small enough that dropping one frees space soon, large enough that names and headers cost nothing.
            segment_bytes: 64 * 1024 * 1024,
            compact_bytes_min: 64 * 1024 * 1024,
            // With 100 each byte of state is rewritten once per byte of log at most.
            compact_percent: 100,
            keep_percent: 50,
            strict: false,
            size_max: None,
            is_rewritten: false,
        }
    }
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub file: FileId,
    /// Where the batch begins, in bytes.
    pub offset: u64,
}

/// An open log.
#[derive(Debug)]
pub struct Log<D> {
    pub(crate) disk: D,
    pub(crate) options: LogOptions,
    /// None while the log has failed.
    current: Option<Segment>,
    /// The segment that a fresh one would follow, and how much of it counts.
    tail: (u64, u64),
    next_number: u64,
    pub(crate) base: u64,
    pub(crate) sizes: BTreeMap<FileId, u64>,
    buffer: Vec<u8>,
    /// Found when it was opened, and not yet written again: the next segment begins with it.
    doubt: Vec<DoubtfulBatch>,
    marker: MarkWriter,
    /// Records in the files, and how many there were when the compaction began that is under way.
    pub(crate) records: u64,
    pub(crate) records_sealed: u64,
    pub(crate) reserve: Reserve,
    pub(crate) metrics: LogMetrics,
}

#[derive(Debug)]
struct Segment {
    id: FileId,
    name: String,
    salt: u32,
    written: u64,
    synced: u64,
    /// What the owner may rely on: what is synced, or with `settle` what is written.
    settled: u64,
}

impl Segment {
    fn mark(&self) -> SyncMark {
        SyncMark { segment: self.id.number(), synced: self.synced }
    }
}

impl<D: Disk> Log<D> {
    /// Recovers what is there and begins a segment behind it. Each record is shown to `visit`, in order; an error of its
    /// refuses the store before anything in it is changed.
    ///
    /// A full disk does not keep a log from opening: it is then [failed](Self::is_failed), and repaired as later.
    pub fn open(
        mut disk: D,
        options: LogOptions,
        mut visit: impl FnMut(RawRecord<'_>, Location) -> Result<(), StoreError>,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        let mut found = replay_for(Purpose::Open, &mut disk, None, &mut visit)?;
        if options.strict && found.report.is_damaged() {
            return Err(StoreError::Strict { lines: found.report.lines });
        }
        repair(&mut disk, &mut found)?;
        let mut log = Self {
            disk,
            options,
            current: None,
            tail: found.tail,
            next_number: found.next_number,
            base: found.base,
            sizes: found.sizes,
            buffer: Vec::new(),
            doubt: found.doubt,
            marker: MarkWriter::behind(found.mark.map(|(count, _)| count)),
            records: found.report.records,
            records_sealed: 0,
            reserve: Reserve::Unknown,
            metrics: LogMetrics::default(),
        };
        log.find_reserve();
        let mut begun = log.repair();
        if begun.as_ref().is_err_and(StoreError::is_disk_full) && log.release_reserve() {
            begun = log.repair();
        }
        match begun {
            Err(error) if !error.is_disk_full() => Err(error),
            Err(_) => Ok((log, found.report)),
            Ok(()) => {
                log.restore_reserve();
                Ok((log, found.report))
            }
        }
    }

    /// Whether it takes nothing until it is repaired.
    pub fn is_failed(&self) -> bool {
        self.current.is_none()
    }

    /// What it has done so far.
    pub fn metrics(&self) -> &LogMetrics {
        &self.metrics
    }

    /// Files and their sizes.
    pub fn files(&self) -> impl Iterator<Item = (FileId, u64)> {
        self.sizes.iter().map(|(&id, &size)| (id, size))
    }

    /// Writes batches with one call, each as a whole into one segment; their places are added to `places`. None of them is
    /// safe before [`Log::sync`]. After an error none of them counts.
    pub fn append(&mut self, batches: &[RecordBatch], places: &mut Vec<Position>) -> Result<(), StoreError> {
        let Some(segment) = &mut self.current else { return Err(StoreError::Failed) };
        self.buffer.clear();
        let mut records = 0;
        let known = places.len();
        for batch in batches {
            let offset = segment.written + self.buffer.len() as u64;
            places.push(Position { file: segment.id, offset });
            batch.write(&mut self.buffer, segment.salt, offset, offset == segment.synced);
            records += batch.len() as u64;
        }
        if let Err(error) = self.disk.append(&segment.name, &self.buffer) {
            let error = StoreError::io("write", &segment.name)(error);
            places.truncate(known);
            if error.is_disk_full() {
                // What was written of it is in the way of what would make room.
                let _ = self.disk.truncate(&segment.name, segment.written);
            }
            self.fail();
            return Err(error);
        }
        segment.written += self.buffer.len() as u64;
        self.sizes.insert(segment.id, segment.written);
        self.records += records;
        self.metrics.records += records;
        self.metrics.batches += batches.len() as u64;
        self.metrics.bytes += self.buffer.len() as u64;
        if self.buffer.capacity() > crate::limits::BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Returns when all that was appended is on the medium.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        let Some(segment) = &mut self.current else { return Err(StoreError::Failed) };
        if segment.synced == segment.written {
            return Ok(());
        }
        let start = self.disk.clock();
        let result = self.disk.sync(&segment.name).map_err(StoreError::io("sync", &segment.name));
        self.metrics.syncs.note(self.disk.clock().saturating_sub(start));
        if result.is_err() {
            self.fail();
        } else {
            segment.synced = segment.written;
            segment.settled = segment.written;
            let mark = segment.mark();
            self.marker.note(&mut self.disk, mark);
        }
        result
    }

    /// The owner relies on what was written, synced or not: a fresh segment will not be given it again.
    pub fn settle(&mut self) {
        if let Some(segment) = &mut self.current {
            segment.settled = segment.written;
        }
    }

    /// Whether it is time for [`Log::rotate`]. Appending does not do it by itself: the owner has to know what was synced
    /// when it fails.
    pub fn is_segment_full(&self) -> bool {
        self.current.as_ref().is_some_and(|segment| segment.written >= self.options.segment_bytes)
    }

    /// Syncs the segment and begins the next one. Sync before, so that an error leaves nothing in doubt.
    pub fn rotate(&mut self) -> Result<(), StoreError> {
        self.sync()?;
        self.fail();
        self.metrics.failures -= 1;
        self.repair()
    }

    fn fail(&mut self) {
        self.metrics.failures += 1;
        if let Some(segment) = self.current.take() {
            self.tail = (segment.id.number(), segment.settled);
            self.disk.close(&segment.name);
        }
    }

    /// Begins a fresh segment, if there is none to write to. Whatever was appended and not settled has to be appended
    /// again.
    pub fn repair(&mut self) -> Result<(), StoreError> {
        self.repair_with(&[], &mut Vec::new())
    }

    /// The same, with batches that the segment begins with: it takes the place of what they were written to before only
    /// when they are in it, and they are on the medium then. Their places are added to `places`.
    pub fn repair_with(&mut self, again: &[RecordBatch], places: &mut Vec<Position>) -> Result<(), StoreError> {
        if self.current.is_some() {
            return Ok(());
        }
        let id = FileId::segment(self.next_number);
        if self.doubt.is_empty() {
            // Never the same name twice: what a failed attempt left behind is not ours. But the place of what is in doubt
            // was told already, and its file gets its name only when it is complete.
            self.next_number += 1;
        }
        let salt = self.disk.salt();
        let header = FileHeader { id, salt, follows: self.tail.0, follows_end: self.tail.1 };
        let (mut bytes, known) = (header.to_bytes(), places.len());
        for batch in self.doubt.iter().map(|doubt| &doubt.batch).chain(again) {
            let offset = bytes.len() as u64;
            batch.write(&mut bytes, salt, offset, false);
        }
        let begun = self.doubt.last().map_or(HEADER_BYTES, |last| last.to.offset + last.batch.bytes() as u64);
        again.iter().fold(begun, |offset, batch| {
            places.push(Position { file: id, offset });
            offset + batch.bytes() as u64
        });
        let name = id.name();
        let is_bare = bytes.len() as u64 == HEADER_BYTES;
        let result = if is_bare { self.begin(&name, &bytes) } else { self.begin_whole(&name, &bytes) };
        if let Err(error) = result {
            places.truncate(known);
            return Err(error);
        }
        self.next_number = id.number() + 1;
        self.doubt.clear();
        let end = bytes.len() as u64;
        self.sizes.insert(id, end);
        let segment = Segment { id, name, salt, written: end, synced: end, settled: end };
        self.marker.settle(&mut self.disk, segment.mark());
        self.current = Some(segment);
        if !is_bare {
            // So that the next start knows that all this is safe. If it fails, the log has failed again, and no more than
            // that.
            let _ = self.append(&[RecordBatch::control(SETTLED, &[])], &mut Vec::new());
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let begun = self
            .create(name, bytes)
            .and_then(|()| self.disk.sync_names().map_err(StoreError::io("sync the directory of", name)));
        if begun.is_err() {
            // Perhaps it cannot be removed either; the next compaction or recovery will.
            let _ = self.disk.remove(name);
            self.disk.close(name);
        }
        begun
    }

    /// A segment that is there with all of this, or not at all.
    fn begin_whole(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let temporary = name.replace(".tide", TEMPORARY);
        // One that an earlier attempt left.
        let _ = self.disk.remove(&temporary);
        let begun = self
            .create(&temporary, bytes)
            .and_then(|()| self.disk.rename(&temporary, name).map_err(StoreError::io("rename", &temporary)))
            .and_then(|()| self.disk.sync_names().map_err(StoreError::io("sync the directory of", name)));
        if begun.is_err() {
            let _ = self.disk.remove(&temporary);
        }
        begun
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.disk.create(name).map_err(StoreError::io("create", name))?;
        self.disk.append(name, bytes).map_err(StoreError::io("write", name))?;
        self.disk.sync(name).map_err(StoreError::io("sync", name))
    }

    /// Where records stand that were said to be elsewhere, because they could not be copied there yet.
    pub(crate) fn displaced(&self) -> impl Iterator<Item = (Location, Location)> {
        self.doubt.iter().flat_map(|doubt| {
            let at =
                |position: Position, at: u64, len| Location { file: position.file, offset: position.offset + at, len };
            doubt.batch.places().map(move |(place, len)| (at(doubt.to, place, len), at(doubt.from, place, len)))
        })
    }

    /// Where a failed log ends; None if it has not failed, or has to be given something again first.
    pub(crate) fn failed_tail(&self) -> Option<(u64, u64)> {
        (self.current.is_none() && self.doubt.is_empty()).then_some(self.tail)
    }

    /// The number of the segment that is written, or of the next one.
    pub(crate) fn next_segment(&self) -> Option<u64> {
        match &self.current {
            Some(segment) => Some(segment.id.number()),
            None => self.doubt.is_empty().then_some(self.next_number),
        }
    }

    /// The end of the segment before the current one.
    pub(crate) fn sealed(&self) -> Option<SyncMark> {
        let (segment, synced) = self.tail;
        (segment > 0).then_some(SyncMark { segment, synced })
    }

    /// Where the next batch would stand; None while the log has failed.
    pub fn end(&self) -> Option<Position> {
        self.current.as_ref().map(|segment| Position { file: segment.id, offset: segment.written })
    }

    /// Reads one record. The bytes are checked: a damaged one is an error, never a different payload.
    pub fn read(&mut self, at: Location, into: &mut Vec<u8>) -> Result<(), StoreError> {
        let place = self.displaced().find(|(said, _)| *said == at).map_or(at, |(_, place)| place);
        read::read_record(&mut self.disk, place, None, into).map(drop)
    }

    /// Syncs, and marks the end, so that the next start can tell damage of the last batches from a torn end.
    pub fn close(mut self) -> Result<D, StoreError> {
        self.sync()?;
        self.append(&[RecordBatch::control(CLOSED, &[])], &mut Vec::new())?;
        self.sync()?;
        if let Some(segment) = &self.current {
            self.marker.settle(&mut self.disk, segment.mark());
        }
        Ok(self.disk)
    }

    /// The disk, as if the process had been killed.
    pub fn abandon(self) -> D {
        self.disk
    }
}
