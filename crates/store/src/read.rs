//! Reads single records by their location, beside the writer: payloads of long queues stay on disk until their turn.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::disk::Files;
use crate::error::StoreError;
use crate::file::{FileId, Location};
use crate::frame::{FRAME_BYTES, RecordFrame};
use crate::scan::read_header;

/// Salts that a reader remembers.
const SALTS_MAX: usize = 256;

/// Where records are now that a compaction has copied: old place to new. It has an entry only for live records.
pub(crate) type Moves = Arc<RwLock<BTreeMap<Location, Location>>>;

/// Reads records; each thread has its own.
#[derive(Debug)]
pub struct RecordReader<F> {
    files: F,
    salts: BTreeMap<FileId, u32>,
    moves: Moves,
}

impl<F: Files> RecordReader<F> {
    pub(crate) fn new(files: F, moves: Moves) -> Self {
        Self { files, salts: BTreeMap::new(), moves }
    }

    /// Reads the payload of one record into `into`. The bytes are checked: a damaged one is an error, never a different
    /// payload.
    pub fn read(&mut self, at: Location, into: &mut Vec<u8>) -> Result<(), StoreError> {
        let place = self.place(at);
        match self.read_at(place, into) {
            // It was copied and its file removed since the line above.
            Err(StoreError::Gone { .. }) if self.place(at) != place => self.read_at(self.place(at), into),
            result => result,
        }
    }

    fn place(&self, at: Location) -> Location {
        let moves = self.moves.read().unwrap_or_else(PoisonError::into_inner);
        moves.get(&at).copied().unwrap_or(at)
    }

    fn read_at(&mut self, at: Location, into: &mut Vec<u8>) -> Result<(), StoreError> {
        let salt = read_record(&mut self.files, at, self.salts.get(&at.file).copied(), into)?.1;
        if self.salts.len() >= SALTS_MAX {
            self.salts.pop_first();
        }
        self.salts.insert(at.file, salt);
        Ok(())
    }
}

/// Reads one record; the salt of its file is read too, unless it is known.
pub(crate) fn read_record(
    files: &mut impl Files,
    at: Location,
    salt: Option<u32>,
    into: &mut Vec<u8>,
) -> Result<(RecordFrame, u32), StoreError> {
    let name = at.file.name();
    let damaged = || StoreError::Damaged { file: name.clone(), offset: at.offset };
    let salt = match salt {
        Some(salt) => salt,
        None => read_header(files, at.file).map_err(|error| gone(error, &name))?.ok_or_else(damaged)?.salt,
    };
    into.clear();
    into.resize(FRAME_BYTES + at.len as usize, 0);
    let len = files.read(&name, at.offset, into).map_err(|error| gone(StoreError::io("read", &name)(error), &name))?;
    into.truncate(len);
    let frame = RecordFrame::parse(into, salt, at.offset).filter(|frame| frame.len == at.len).ok_or_else(damaged)?;
    if !into.get(FRAME_BYTES..).is_some_and(|payload| payload.len() == at.len as usize && frame.holds(payload)) {
        into.clear();
        return Err(damaged());
    }
    into.drain(..FRAME_BYTES);
    Ok((frame, salt))
}

fn gone(error: StoreError, name: &str) -> StoreError {
    match error {
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            StoreError::Gone { file: name.to_owned() }
        }
        error => error,
    }
}
