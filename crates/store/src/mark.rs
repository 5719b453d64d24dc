//! The high-water mark: how far the newest segment is known to have been synced.
//!
//! It is written after a sync and never waited for, so it costs a few bytes of the system's memory and no sync of its own;
//! only where a segment begins and where a store is closed it is synced, too. What it says was true when it was written, and
//! stays true: it may be late, and is never early. So what is missing below it was kept once and is lost, which a torn end
//! is not. It refuses to know what stands in segments; the log writes it, a replay reads it.
//!
//! The file has two places, written in turn, each with its checksum: one that was written by halves costs nothing but its
//! own news. Place: magic (8), count (8), segment (8), bytes of it that are synced (8), CRC-32C (4).

use crate::disk::{Disk, Files};
use crate::file::{u32_at, u64_at};

/// Name of the file.
pub(crate) const MARK: &str = "MARK";

const MAGIC: [u8; 8] = *b"TideMark";
const BYTES: usize = 36;
/// In a sector of its own: sectors are written as a whole.
const SECOND_AT: u64 = 512;

/// What is known to have been synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncMark {
    /// The newest segment; it was begun.
    pub(crate) segment: u64,
    /// So many bytes of it are on the medium.
    pub(crate) synced: u64,
}

/// Writes marks.
#[derive(Debug, Default)]
pub(crate) struct MarkWriter {
    count: u64,
    is_there: bool,
}

impl MarkWriter {
    /// Goes on behind what a replay has read.
    pub(crate) fn behind(count: Option<u64>) -> Self {
        Self { count: count.unwrap_or(0), is_there: count.is_some() }
    }

    /// Notes it. Whatever goes wrong here costs knowledge after a crash, and nothing else.
    pub(crate) fn note(&mut self, disk: &mut impl Disk, mark: SyncMark) {
        self.count += 1;
        let at = if self.count.is_multiple_of(2) { 0 } else { SECOND_AT };
        let _ = disk.note(MARK, at, &encode(self.count, mark));
    }

    /// The same, on the medium when it returns.
    pub(crate) fn settle(&mut self, disk: &mut impl Disk, mark: SyncMark) {
        self.note(disk, mark);
        let is_synced = disk.sync(MARK).is_ok();
        if is_synced && !self.is_there {
            self.is_there = disk.sync_names().is_ok();
        }
    }
}

/// The content of the file in a directory that has none.
pub(crate) fn first(mark: SyncMark) -> Vec<u8> {
    encode(0, mark)
}

fn encode(count: u64, mark: SyncMark) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend(MAGIC);
    bytes.extend(count.to_le_bytes());
    bytes.extend(mark.segment.to_le_bytes());
    bytes.extend(mark.synced.to_le_bytes());
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u64, SyncMark)> {
    let (body, sum) = bytes.split_at_checked(BYTES - 4)?;
    let is_sound = body.starts_with(&MAGIC) && u32_at(sum, 0) == crc32c::crc32c(body);
    is_sound.then(|| (u64_at(body, 8), SyncMark { segment: u64_at(body, 16), synced: u64_at(body, 24) }))
}

/// The last mark of a directory with its count; None if there is none, or none that can be read.
pub(crate) fn read(files: &mut impl Files) -> Option<(u64, SyncMark)> {
    let mut last = None;
    for at in [0, SECOND_AT] {
        let mut bytes = [0; BYTES];
        let found = files.read(MARK, at, &mut bytes).ok().filter(|len| *len == BYTES).and_then(|_| decode(&bytes));
        last = last.max(found.map(|(count, mark)| (count, mark.segment, mark.synced)));
    }
    last.map(|(count, segment, synced)| (count, SyncMark { segment, synced }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Crash, SimDisk};

    #[test]
    fn a_mark_is_never_ahead_and_one_that_is_torn_leaves_the_one_before() {
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            let (mut handle, mut marker) = (disk.boot(), MarkWriter::behind(None));
            marker.settle(&mut handle, SyncMark { segment: 1, synced: 96 });
            for synced in 97..100 {
                marker.note(&mut handle, SyncMark { segment: 1, synced });
            }
            disk.crash(Crash::Tear);
            let (_, mark) = read(&mut disk.boot()).unwrap();
            assert!(mark.segment == 1 && (96..100).contains(&mark.synced), "seed {seed}: {mark:?}");
            disk.crash(Crash::LoseUnsynced);
            assert_eq!(read(&mut disk.boot()).unwrap().1, mark);
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_no_mark() {
        let bytes = first(SyncMark { segment: 7, synced: 1234 });
        assert_eq!(decode(&bytes), Some((0, SyncMark { segment: 7, synced: 1234 })));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
    }
}
