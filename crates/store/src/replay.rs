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

use std::collections::BTreeMap;
use std::ops::Range;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileHeader, FileId, HEADER_BYTES, Location};
use crate::frame::{CLOSED, RawRecord, RecordBatch, SNAPSHOT_END};
use crate::log::Position;
use crate::mark::{self, SyncMark};
use crate::report::RecoveryReport;
use crate::scan::{FileScan, NextBatch, ScannedRecord, read_header};

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

fn replay_segments(
    disk: &mut impl Disk,
    segments: &BTreeMap<u64, Option<FileHeader>>,
    end: Option<(u64, u64)>,
    visit: Visit<'_>,
    done: &mut Replayed,
) -> Result<(), StoreError> {
    // A crash while a segment was begun: its header comes before anything else and is synced before anything follows.
    let last = segments.iter().rev().find(|(_, header)| header.is_some()).map(|(&number, _)| number);
    for (&number, _) in segments.iter().filter(|(number, header)| header.is_none() && Some(**number) > last) {
        let id = FileId::segment(number);
        let is_short = done.sizes.get(&id).is_some_and(|size| *size <= HEADER_BYTES);
        if !is_short {
            unreadable(id, done);
        } else if done.is_known(number) {
            done.report.missing += 1;
            let held = done.held(number);
            done.report.say(format!("{id}: empty, and what it held is lost{held}; it was the newest"));
            done.repairs.push(Repair::SetFileAside { file: id });
        } else {
            if done.mark.is_none() {
                done.report.say(format!("{id}: has no records; it was just begun, or they are lost: no mark tells"));
            }
            done.repairs.push(Repair::Remove { name: id.name() });
        }
    }
    if end.is_none() {
        miss_newest(segments, done);
    }
    let last = match end {
        Some((number, end)) => (number, Some(end)),
        None => (last.unwrap_or(0), None),
    };
    for (number, end) in chain(segments, last, done.base.max(1)) {
        let id = FileId::segment(number);
        match segments.get(&number) {
            Some(Some(header)) => {
                done.report.segments += 1;
                replay_segment(disk, *header, end, visit, done)?;
            }
            Some(None) => unreadable(id, done),
            None => {
                done.report.missing += 1;
                done.report.say(format!("{id}: missing, and with it what it held"));
            }
        }
    }
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

/// The newest segment has no successor that would miss it: the mark does, and the snapshot that was written behind it.
fn miss_newest(segments: &BTreeMap<u64, Option<FileHeader>>, done: &mut Replayed) {
    let newest = segments.keys().next_back().copied();
    let marked = done.mark.map(|(_, mark)| mark.segment).filter(|number| *number >= done.base);
    let known = marked.max(done.report.snapshot.filter(|_| done.has_segment).map(FileId::number));
    let Some(number) = known.filter(|number| Some(*number) > newest) else { return };
    let id = FileId::segment(number);
    done.report.missing += 1;
    let held = done.held(number);
    done.report.say(format!("{id}: missing, and with it what it held{held}; it was the newest"));
}

/// The segments that count, in order, each with its end as its successor knows it; None for the last one. A segment that
/// nobody follows was given up when the disk failed, and its content was written again.
fn chain(segments: &BTreeMap<u64, Option<FileHeader>>, last: (u64, Option<u64>), base: u64) -> Vec<(u64, Option<u64>)> {
    let mut chain = Vec::new();
    let mut next = Some(last);
    while let Some((number, end)) = next.filter(|(number, _)| *number >= base) {
        chain.push((number, end));
        next = match segments.get(&number) {
            Some(Some(header)) if header.follows < number => Some((header.follows, Some(header.follows_end))),
            // Its header is lost, and with it what it follows: the one below, whole.
            _ => segments.range(..number).next_back().map(|(&below, _)| (below, Some(u64::MAX))),
        };
    }
    chain.reverse();
    chain
}

fn replay_segment(
    disk: &mut impl Disk,
    header: FileHeader,
    end: Option<u64>,
    visit: Visit<'_>,
    done: &mut Replayed,
) -> Result<(), StoreError> {
    let mut scan = FileScan::new(disk, header)?;
    let size = scan.end;
    let id = header.id;
    let marked = done.marked(id.number());
    if let Some(end) = end.or(marked).filter(|end| *end != u64::MAX && *end > size) {
        done.report.damaged_bytes += end - size;
        done.report.say(format!("{id}: bytes {size} to {end} are missing; they had been synced"));
    }
    scan.end = size.min(end.unwrap_or(u64::MAX));
    // Found out only when it matters.
    let mut synced = end;
    let mut doubt_from = u64::MAX;
    let mut tail = None;
    if done.purpose == Purpose::Open && end.is_none() {
        // The mark says it, too, and later.
        let flagged = last_flag(&mut scan)?.max(marked.map(|synced| synced.min(scan.end)));
        doubt_from = flagged.unwrap_or(HEADER_BYTES);
        // Without any later sync even its header may not be there, and with it what it follows.
        tail = Some(flagged.map_or((header.follows, header.follows_end), |at| (id.number(), at)));
    }
    loop {
        match scan.next()? {
            NextBatch::Batch(batch) if scan.offset > doubt_from => doubt(&scan, &batch, visit, done)?,
            NextBatch::Batch(batch) => deliver(&scan, &batch, visit, done)?,
            NextBatch::End => break,
            NextBatch::Bad => {
                let at = scan.offset;
                let synced = match synced {
                    Some(synced) => synced,
                    None => *synced.insert(last_sync(&mut scan)?.max(marked.unwrap_or(0))),
                };
                if at < synced {
                    set_aside(&mut scan, done)?;
                } else {
                    tear(id, at..scan.end, marked, done);
                    scan.end = at;
                }
            }
        }
    }
    done.tail = tail.unwrap_or((id.number(), scan.end));
    Ok(())
}

/// Everything before this was synced, as the batches behind the current place say, which is a bad one.
fn last_sync<F: crate::disk::Files>(scan: &mut FileScan<'_, F>) -> Result<u64, StoreError> {
    Ok(last_flag(scan)?.unwrap_or(0))
}

/// The last batch from here on that was written after a sync.
fn last_flag<F: crate::disk::Files>(scan: &mut FileScan<'_, F>) -> Result<Option<u64>, StoreError> {
    let (from, mut flagged) = (scan.offset, None);
    loop {
        match scan.next()? {
            NextBatch::Batch(batch) => {
                if let Some(found) = batch.first().filter(|found| found.frame.is_after_sync()) {
                    flagged = Some(found.offset);
                }
            }
            NextBatch::Bad => scan.skip_damage()?,
            NextBatch::End => break,
        }
    }
    scan.offset = from;
    Ok(flagged)
}

/// A batch that is to be written again; its records are told as if it had been.
fn doubt<F: crate::disk::Files>(
    scan: &FileScan<'_, F>,
    batch: &[ScannedRecord],
    visit: Visit<'_>,
    done: &mut Replayed,
) -> Result<(), StoreError> {
    let Some(first) = batch.first().filter(|found| !found.frame.is_control()) else {
        return deliver(scan, batch, visit, done);
    };
    let from = Position { file: scan.id(), offset: first.offset };
    let end = done.doubt.last().map_or(HEADER_BYTES, |last| last.to.offset + last.batch.bytes() as u64);
    let to = Position { file: FileId::segment(done.next_number), offset: end };
    let mut again = RecordBatch::new();
    for &found in batch {
        again.push(scan.record(found).0)?;
    }
    let place = |at: Location| Location { file: to.file, offset: at.offset - from.offset + to.offset, ..at };
    deliver(scan, batch, &mut |record, at| visit(record, place(at)), done)?;
    done.doubt.push(DoubtfulBatch { batch: again, from, to });
    Ok(())
}

/// Cuts off an end that is not whole. Whether it had been acknowledged is known only as far as syncs are.
fn tear(id: FileId, part: Range<u64>, marked: Option<u64>, done: &mut Replayed) {
    let Range { start: at, end } = part;
    done.report.torn_bytes += end - at;
    let known = match marked {
        Some(synced) => format!("all that is known to have been synced, up to byte {synced}, is before them"),
        None => "no mark tells whether they had been acknowledged".to_owned(),
    };
    done.report
        .say(format!("{id}: the last {} bytes, from byte {at}, are not whole and are cut off; {known}", end - at));
    done.repairs.push(Repair::Cut { file: id, at, end });
}
