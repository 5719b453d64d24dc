//! Finds out what a directory holds: which snapshot, which segments behind it, which part of each, and what is damaged.
//!
//! It changes nothing: it returns repairs, which opening carries out ([`crate::repair`]) and a check only tells.
//!
//! Damage is told from a write that never ended by what was synced. A segment's successor says how far it counts, so
//! everything before that was on the disk once: damage there is set aside, and reading goes on behind it. In the last
//! segment a batch that begins after a sync says so, and the mark ([`crate::mark`]) says how far the last known sync went.
//! Behind both, the first bad byte ends the log: nobody knows of a sync of what was written after it, and it may have
//! arrived in any order. Which segment was the last one is in the mark, too, and in a snapshot: one that is gone, or empty,
//! is missed.
//!
//! What stands behind the last known sync is *in doubt*: a process that was killed may have promised it, and the sync may
//! have failed all the same, after which the system shows the bytes and has lost them. So whoever opens a store to
//! write copies that part into the next segment before it relies on any of it ([`Purpose::Open`]).

mod segments;

use std::collections::BTreeMap;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileHeader, FileId, HEADER_BYTES, Location};
use crate::frame::{CLOSED, RawRecord, RecordBatch, SNAPSHOT_END};
use crate::log::Position;
use crate::mark::{self, SyncMark};
use crate::report::RecoveryReport;
use crate::scan::{FileScan, NextBatch, ScannedRecord, read_header};
use segments::replay_segments;

/// What has to be done before anything is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Copy this part of the file aside.
    SetAside { file: FileId, from: u64, to: u64 },
    /// Copy the rest aside and cut it off.
    Cut { file: FileId, at: u64, end: u64 },
    /// Rename the whole file.
    SetFileAside { file: FileId },
    /// Nothing in it was ever promised.
    Remove { name: String },
}

/// What a replay found.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) report: RecoveryReport,
    pub(crate) repairs: Vec<Repair>,
    /// Files of the store and their sizes.
    pub(crate) sizes: BTreeMap<FileId, u64>,
    /// The first segment that is not in the snapshot.
    pub(crate) base: u64,
    /// The last segment of the log and its end.
    pub(crate) tail: (u64, u64),
    /// Where the next segment begins, for those who open.
    pub(crate) next_number: u64,
    /// What has to be written again at its beginning, before anything else.
    pub(crate) doubt: Vec<DoubtfulBatch>,
    /// What is known to have been synced, with the count of the mark that says so.
    pub(crate) mark: Option<(u64, SyncMark)>,
    /// The snapshot was written when its segment had been begun.
    has_segment: bool,
    purpose: Purpose,
}

/// What a replay is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To know what is there.
    #[default]
    Look,
    /// To go on behind it: what is in doubt is said to be where it will be copied to.
    Open,
}

/// A batch of which nobody knows whether it was synced.
#[derive(Clone, Debug)]
pub(crate) struct DoubtfulBatch {
    pub(crate) batch: RecordBatch,
    /// Where it stands now, and where it will.
    pub(crate) from: Position,
    pub(crate) to: Position,
}

/// Takes each record with its place.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(RawRecord<'_>, Location) -> Result<(), StoreError>;

/// Where a compaction ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionEnd {
    /// Everything below this segment is read.
    pub(crate) segment: u64,
    /// The last one and its end, if that segment is not there to say so.
    pub(crate) tail: Option<(u64, u64)>,
}

/// Reads everything that lies before a segment, in order.
pub(crate) fn replay(
    disk: &mut impl Disk,
    before: Option<CompactionEnd>,
    visit: Visit<'_>,
) -> Result<Replayed, StoreError> {
    replay_for(Purpose::Look, disk, before, visit)
}

/// Replays for a purpose.
pub(crate) fn replay_for(
    purpose: Purpose,
    disk: &mut impl Disk,
    before: Option<CompactionEnd>,
    visit: Visit<'_>,
) -> Result<Replayed, StoreError> {
    let mut done = Replayed { purpose, ..Replayed::default() };
    list(disk, before.map(|before| before.segment), &mut done)?;
    // Of no use to a compaction: it reads what has a successor.
    done.mark = if before.is_none() { mark::read(disk) } else { None };
    let numbers = done.sizes.keys().map(|id| id.number()).chain(done.mark.map(|(_, mark)| mark.segment));
    done.next_number = numbers.max().unwrap_or(0) + 1;
    let mut headers = BTreeMap::new();
    for &id in done.sizes.keys() {
        // Another format is found here, before anything is touched.
        headers.insert(id, read_header(disk, id)?);
    }
    let snapshots: Vec<FileId> = headers.keys().copied().filter(|id| id.is_snapshot()).collect();
    for id in snapshots.into_iter().rev() {
        match headers.get(&id).copied().flatten() {
            Some(header) => {
                replay_snapshot(disk, header, visit, &mut done)?;
                break;
            }
            None => unreadable(id, &mut done),
        }
    }
    let segments: BTreeMap<u64, Option<FileHeader>> = headers
        .iter()
        .filter(|(id, _)| !id.is_snapshot() && id.number() >= done.base)
        .map(|(id, header)| (id.number(), *header))
        .collect();
    // The segment behind is not read, but it knows how far the one before it counts.
    let end = match before {
        Some(CompactionEnd { tail: Some(tail), .. }) => Some(tail),
        Some(CompactionEnd { segment, .. }) => {
            let header = read_header(disk, FileId::segment(segment))?;
            header.map(|header| (header.follows, header.follows_end))
        }
        None => None,
    };
    replay_segments(disk, &segments, end, visit, &mut done)?;
    Ok(done)
}

fn list(disk: &mut impl Disk, before: Option<u64>, done: &mut Replayed) -> Result<(), StoreError> {
    let place = disk.place();
    for name in disk.list().map_err(StoreError::io("list", &place))? {
        match FileId::parse(&name) {
            Some(id) if before.is_none_or(|before| id.number() < before) => {
                let size = disk.size(&name).map_err(StoreError::io("read", &name))?;
                done.sizes.insert(id, size);
            }
            // A snapshot that was not finished; the one before it still counts.
            None if name.ends_with(TEMPORARY) && before.is_none() => done.repairs.push(Repair::Remove { name }),
            _ => {}
        }
    }
    Ok(())
}

/// Ends the name of a file that does not count yet.
pub(crate) const TEMPORARY: &str = ".tide.tmp";

fn unreadable(id: FileId, done: &mut Replayed) {
    let size = done.sizes.get(&id).copied().unwrap_or(0);
    done.report.damaged_bytes += size;
    done.report.say(format!("{id}: its header is damaged, {size} bytes cannot be read; the file is set aside"));
    done.repairs.push(Repair::SetFileAside { file: id });
}

fn replay_snapshot(
    disk: &mut impl Disk,
    header: FileHeader,
    visit: Visit<'_>,
    done: &mut Replayed,
) -> Result<(), StoreError> {
    done.report.snapshot = Some(header.id);
    done.base = header.id.number();
    done.has_segment = header.follows_end == 0;
    let mut scan = FileScan::new(disk, header)?;
    let mut is_complete = false;
    loop {
        match scan.next()? {
            NextBatch::Batch(batch) => {
                is_complete |= batch.iter().any(|found| found.frame.is_control() && found.frame.tag == SNAPSHOT_END);
                deliver(&scan, &batch, visit, done)?;
            }
            NextBatch::Bad => set_aside(&mut scan, done)?,
            NextBatch::End => break,
        }
    }
    if !is_complete {
        done.report.missing += 1;
        done.report.say(format!("{}: the end of the snapshot is missing", header.id));
    }
    Ok(())
}

fn deliver<F: crate::disk::Files>(
    scan: &FileScan<'_, F>,
    batch: &[ScannedRecord],
    visit: Visit<'_>,
    done: &mut Replayed,
) -> Result<(), StoreError> {
    for &found in batch {
        done.report.bytes += found.frame.bytes() as u64;
        done.report.is_closed = found.frame.is_control() && found.frame.tag == CLOSED;
        if !found.frame.is_control() {
            let (record, at) = scan.record(found);
            visit(record, at)?;
            done.report.records += 1;
        }
    }
    Ok(())
}

fn set_aside<F: crate::disk::Files>(scan: &mut FileScan<'_, F>, done: &mut Replayed) -> Result<(), StoreError> {
    let from = scan.offset;
    scan.skip_damage()?;
    let (id, to) = (scan.id(), scan.offset);
    done.report.damaged_bytes += to - from;
    done.report.say(format!("{id}: bytes {from} to {to} are damaged and set aside; reading went on behind them"));
    done.repairs.push(Repair::SetAside { file: id, from, to });
    Ok(())
}

impl Replayed {
    /// Whether a segment with this number is known to have been there.
    fn is_known(&self, number: u64) -> bool {
        let is_marked = self.mark.is_some_and(|(_, mark)| number <= mark.segment && number >= self.base);
        is_marked || (self.has_segment && self.report.snapshot == Some(FileId::snapshot(number)))
    }

    /// How much of a segment is known to have been synced.
    fn marked(&self, number: u64) -> Option<u64> {
        self.mark.filter(|(_, mark)| mark.segment == number).map(|(_, mark)| mark.synced)
    }

    /// The same in words, of a segment that is lost.
    fn held(&self, number: u64) -> String {
        match self.marked(number).map(|synced| synced.saturating_sub(HEADER_BYTES)) {
            Some(0) => ", though no sync of anything in it is known".to_owned(),
            Some(bytes) => format!(", at least {bytes} bytes"),
            None => String::new(),
        }
    }
}
