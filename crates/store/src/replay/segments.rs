//! Segments of the log, in the order of their numbers, up to the first that cannot be trusted.

use super::{DoubtfulBatch, Purpose, Repair, Replayed, Visit, deliver, set_aside, unreadable};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::{FileHeader, FileId, HEADER_BYTES, Location};
use crate::frame::RecordBatch;
use crate::log::Position;
use crate::scan::{FileScan, NextBatch, ScannedRecord};
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) fn replay_segments(
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
pub(super) fn chain(
    segments: &BTreeMap<u64, Option<FileHeader>>,
    last: (u64, Option<u64>),
    base: u64,
) -> Vec<(u64, Option<u64>)> {
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
pub(super) fn doubt<F: crate::disk::Files>(
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
