//! Reads one file, batch by batch, and finds the next sound batch after damage.

use crate::disk::Files;
use crate::error::StoreError;
use crate::file::{FileHeader, FileId, HEADER_BYTES, Location};
use crate::frame::{FRAME_BYTES, RawRecord, RecordFrame};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, SCAN_BYTES};

/// A record of the batch that was read last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedRecord {
    pub(crate) frame: RecordFrame,
    pub(crate) offset: u64,
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum NextBatch {
    /// A batch, complete and sound.
    Batch(Vec<ScannedRecord>),
    /// No sound batch begins here, though there are bytes.
    Bad,
    End,
}

/// A walk through one file.
pub(crate) struct FileScan<'f, F> {
    files: &'f mut F,
    header: FileHeader,
    name: String,
    /// Where the next batch begins.
    pub(crate) offset: u64,
    /// Nothing behind this counts.
    pub(crate) end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl<'f, F: Files> FileScan<'f, F> {
    /// From the first record to the end of the file.
    pub(crate) fn new(files: &'f mut F, header: FileHeader) -> Result<Self, StoreError> {
        let name = header.id.name();
        let end = files.size(&name).map_err(StoreError::io("read", &name))?;
        Ok(Self { files, header, name, offset: HEADER_BYTES.min(end), end, buffer: Vec::new(), buffer_at: 0 })
    }

    pub(crate) fn id(&self) -> FileId {
        self.header.id
    }

    /// Reads what begins at `offset`, and moves there behind it if it is sound.
    pub(crate) fn next(&mut self) -> Result<NextBatch, StoreError> {
        if self.offset >= self.end {
            return Ok(NextBatch::End);
        }
        let Some(found) = self.batch()? else { return Ok(NextBatch::Bad) };
        if let Some(last) = found.last() {
            self.offset = last.offset + last.frame.bytes() as u64;
        }
        Ok(NextBatch::Batch(found))
    }

    /// Moves to the next sound batch behind the bad place, or to the end.
    pub(crate) fn skip_damage(&mut self) -> Result<(), StoreError> {
        while self.offset < self.end {
            self.offset += 1;
            if self.batch()?.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<Option<Vec<ScannedRecord>>, StoreError> {
        let start = self.offset;
        let (mut at, mut found) = (start, Vec::new());
        loop {
            let salt = self.header.salt;
            let Some(frame) = self.window(at, FRAME_BYTES)?.and_then(|bytes| RecordFrame::parse(bytes, salt, at))
            else {
                return Ok(None);
            };
            let total = (at - start) as usize + frame.bytes();
            if frame.is_first() != (at == start) || total > BATCH_BYTES_MAX || found.len() >= BATCH_RECORDS_MAX {
                return Ok(None);
            }
            let is_sound =
                self.window(at + FRAME_BYTES as u64, frame.len as usize)?.is_some_and(|bytes| frame.holds(bytes));
            if !is_sound {
                return Ok(None);
            }
            found.push(ScannedRecord { frame, offset: at });
            if frame.is_last() {
                return Ok(Some(found));
            }
            at += frame.bytes() as u64;
        }
    }

    /// Bytes of the file; None if it ends before. The whole current batch stays in the buffer.
    fn window(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>, StoreError> {
        let need_end = at + len as u64;
        if need_end > self.end {
            return Ok(None);
        }
        if at < self.buffer_at || need_end > self.buffer_at + self.buffer.len() as u64 {
            let from = self.offset.min(at);
            let need = (need_end - from) as usize;
            // A long batch doubles its window instead of moving it record by record.
            let room = if need > SCAN_BYTES { need * 2 } else { SCAN_BYTES };
            let room = room.min((self.end - from) as usize);
            self.buffer.resize(room, 0);
            let read =
                self.files.read(&self.name, from, &mut self.buffer).map_err(StoreError::io("read", &self.name))?;
            self.buffer.truncate(read);
            self.buffer_at = from;
        }
        let start = (at - self.buffer_at) as usize;
        Ok(self.buffer.get(start..start + len))
    }

    /// A record of the last batch, with its place.
    pub(crate) fn record(&self, found: ScannedRecord) -> (RawRecord<'_>, Location) {
        let ScannedRecord { frame, offset } = found;
        let start = (offset - self.buffer_at) as usize + FRAME_BYTES;
        let payload = self.buffer.get(start..start + frame.len as usize).unwrap_or_default();
        let record = RawRecord { tag: frame.tag, version: frame.version, is_skippable: frame.is_skippable(), payload };
        (record, Location { file: self.header.id, offset, len: frame.len })
    }
}

/// The header of a file; None if it is not sound.
pub(crate) fn read_header(files: &mut impl Files, id: FileId) -> Result<Option<FileHeader>, StoreError> {
    let mut bytes = [0; HEADER_BYTES as usize];
    let name = id.name();
    let len = files.read(&name, 0, &mut bytes).map_err(StoreError::io("read", &name))?;
    FileHeader::parse(bytes.get(..len).unwrap_or_default(), id)
}
