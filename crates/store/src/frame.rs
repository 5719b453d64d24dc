//! Frames: how one record stands in a file, and batches of them on their way there.
//!
//! Frame: length of the payload (4), checksum of the payload (4), tag (1), version (1), flags (1), zero (1), checksum of
//! these twelve bytes and the place in the file, salted by the file (4), payload. Two checksums instead of one, so that
//! after damage the next record is found without trusting a length, and so that the payload's is computed by whoever
//! submits it and not by the one writer.

use crate::error::StoreError;
use crate::file::u32_at;
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_BYTES_MAX};

/// Bytes before each payload.
pub const FRAME_BYTES: usize = 16;
const SUM_AT: usize = 12;
const FLAGS_AT: usize = 10;

/// First record of a batch.
const FIRST: u8 = 1;
/// Last record of a batch.
const LAST: u8 = 2;
/// All that stands before it was synced when it was written: damage there is damage, not a write that never ended.
const SYNCED: u8 = 4;
/// May be left out by a release that does not know its tag.
const SKIPPABLE: u8 = 8;
/// A word of the store itself.
const CONTROL: u8 = 16;
const KNOWN: u8 = FIRST | LAST | SYNCED | SKIPPABLE | CONTROL;

/// Tags of control records.
pub(crate) const CLOSED: u8 = 1;
pub(crate) const SNAPSHOT_END: u8 = 2;
pub(crate) const SETTLED: u8 = 3;

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordFrame {
    pub(crate) len: u32,
    pub(crate) sum: u32,
    pub(crate) tag: u8,
    pub(crate) version: u8,
    flags: u8,
}

impl RecordFrame {
    pub(crate) fn is_first(self) -> bool {
        self.flags & FIRST != 0
    }

    pub(crate) fn is_last(self) -> bool {
        self.flags & LAST != 0
    }

    pub(crate) fn is_after_sync(self) -> bool {
        self.flags & SYNCED != 0
    }

    pub(crate) fn is_skippable(self) -> bool {
        self.flags & SKIPPABLE != 0
    }

    pub(crate) fn is_control(self) -> bool {
        self.flags & CONTROL != 0
    }

    /// With the payload.
    pub(crate) fn bytes(self) -> usize {
        FRAME_BYTES + self.len as usize
    }

    /// The frame that begins here, if it is one.
    pub(crate) fn parse(bytes: &[u8], salt: u32, offset: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<FRAME_BYTES>()?;
        // The cheap test first: a search for the next record comes here for every byte.
        if bytes[11] != 0 || bytes[FLAGS_AT] & !KNOWN != 0 || u32_at(bytes, SUM_AT) != head_sum(bytes, salt, offset) {
            return None;
        }
        let len = u32_at(bytes, 0);
        let frame = Self { len, sum: u32_at(bytes, 4), tag: bytes[8], version: bytes[9], flags: bytes[FLAGS_AT] };
        (len as usize <= RECORD_BYTES_MAX).then_some(frame)
    }

    pub(crate) fn holds(self, payload: &[u8]) -> bool {
        crc32c::crc32c(payload) == self.sum
    }
}

fn head_sum(head: &[u8; FRAME_BYTES], salt: u32, offset: u64) -> u32 {
    let mut bytes = [0; SUM_AT + 8];
    bytes[..SUM_AT].copy_from_slice(&head[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(salt, &bytes)
}

/// A record as the store sees it: a tag, a version and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// The kind of the record.
    pub tag: u8,
    /// Version of its layout.
    pub version: u8,
    /// Whether a reader that does not know the tag may go on without it.
    pub is_skippable: bool,
    /// The content of the record.
    pub payload: &'a [u8],
}

/// Records that are kept together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBatch {
    /// Frames, complete but for the second checksum and the flags that depend on the place.
    bytes: Vec<u8>,
    records: usize,
}

impl RecordBatch {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record.
    pub fn push(&mut self, record: RawRecord<'_>) -> Result<(), StoreError> {
        let flags = if record.is_skippable { SKIPPABLE } else { 0 };
        self.put(record.tag, record.version, flags, |out| out.extend_from_slice(record.payload))
    }

    /// Adds a record that is written in place: large ones are not copied twice.
    pub fn push_with(&mut self, tag: u8, version: u8, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), StoreError> {
        self.put(tag, version, 0, write)
    }

    pub(crate) fn control(tag: u8, payload: &[u8]) -> Self {
        let mut batch = Self::new();
        // A few bytes: no limit is near.
        let _ = batch.put(tag, 0, CONTROL, |out| out.extend_from_slice(payload));
        batch
    }

    fn put(&mut self, tag: u8, version: u8, flags: u8, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), StoreError> {
        if self.records >= BATCH_RECORDS_MAX {
            return Err(StoreError::TooLarge { bytes: self.bytes.len(), bytes_max: BATCH_BYTES_MAX });
        }
        let start = self.bytes.len();
        self.bytes.extend([0; FRAME_BYTES]);
        write(&mut self.bytes);
        let payload = &self.bytes[start + FRAME_BYTES..];
        let len = payload.len();
        if len > RECORD_BYTES_MAX || self.bytes.len() > BATCH_BYTES_MAX {
            self.bytes.truncate(start);
            return Err(StoreError::TooLarge { bytes: len, bytes_max: RECORD_BYTES_MAX });
        }
        let sum = crc32c::crc32c(payload);
        let head = &mut self.bytes[start..start + SUM_AT];
        head[..4].copy_from_slice(&(len as u32).to_le_bytes());
        head[4..8].copy_from_slice(&sum.to_le_bytes());
        head[8..].copy_from_slice(&[tag, version, flags, 0]);
        self.records += 1;
        Ok(())
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes that it takes in the log.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Where each record begins, counted from the start of the batch, and the length of its payload: with the place of
    /// the batch they are the locations.
    pub fn places(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let len = self.bytes.get(at..at + 4).map(|bytes| u32_at(bytes, 0))?;
            let place = (at as u64, len);
            at += FRAME_BYTES + len as usize;
            Some(place)
        })
    }

    /// Writes the frames as they stand at `offset` of a file.
    pub(crate) fn write(&self, out: &mut Vec<u8>, salt: u32, offset: u64, is_after_sync: bool) {
        let base = out.len();
        out.extend_from_slice(&self.bytes);
        for (record, (at, _)) in self.places().enumerate() {
            let Some(head) = out[base + at as usize..].first_chunk_mut::<FRAME_BYTES>() else { return };
            let first = if record == 0 { FIRST | if is_after_sync { SYNCED } else { 0 } } else { 0 };
            head[FLAGS_AT] |= first | if record + 1 == self.records { LAST } else { 0 };
            let sum = head_sum(head, salt, offset + at);
            head[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u8, payload: &[u8]) -> RawRecord<'_> {
        RawRecord { tag, version: 3, is_skippable: tag == 9, payload }
    }

    #[test]
    fn frames_read_back_only_where_they_were_written() {
        let mut batch = RecordBatch::new();
        batch.push(record(7, b"one")).unwrap();
        batch.push(record(9, b"")).unwrap();
        let mut out = vec![0xff; 5];
        batch.write(&mut out, 42, 1000, true);
        let first = RecordFrame::parse(&out[5..], 42, 1000).unwrap();
        assert!(first.is_first() && first.is_after_sync() && !first.is_last() && first.holds(b"one"));
        let second = RecordFrame::parse(&out[5 + first.bytes()..], 42, 1000 + first.bytes() as u64).unwrap();
        assert!(second.is_last() && !second.is_first() && second.is_skippable() && second.tag == 9);
        assert_eq!(RecordFrame::parse(&out[5..], 42, 1001), None, "another place");
        assert_eq!(RecordFrame::parse(&out[5..], 43, 1000), None, "another file");
        assert_eq!(batch.places().collect::<Vec<_>>(), [(0, 3), (19, 0)]);
    }

    #[test]
    fn zeroes_are_no_frame() {
        for salt in [0, 1, u32::MAX] {
            for offset in 0..4096 {
                let is_frame = RecordFrame::parse(&[0; 64], salt, offset).is_some_and(RecordFrame::is_first);
                assert!(!is_frame, "no batch begins in zeroes");
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_head_is_seen() {
        let mut batch = RecordBatch::new();
        batch.push(record(1, b"payload")).unwrap();
        let mut out = Vec::new();
        batch.write(&mut out, 5, 96, false);
        for bit in 0..FRAME_BYTES * 8 {
            let mut damaged = out.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordFrame::parse(&damaged, 5, 96), None, "bit {bit}");
        }
    }
}
