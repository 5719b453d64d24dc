//! A small state for the tests: numbered boxes, put on a shelf, kept where they stand, and taken away.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses its part; a test that cannot set up has failed"
)]

use std::collections::BTreeMap;

use tidegate_store::disk::Disk;
use tidegate_store::{
    Location, Log, LogOptions, LogState, Placement, RawRecord, RecordBatch, RecoveryReport, SnapshotSink, StoreError,
};

pub const PUT: u8 = 1;
pub const TAKE: u8 = 2;
pub const STANDS: u8 = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shelf(pub BTreeMap<u32, Location>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    Put(u32, Vec<u8>),
    Take(u32),
}

pub fn batch(moves: &[Move]) -> RecordBatch {
    let mut batch = RecordBatch::new();
    for step in moves {
        let (tag, number, content): (_, _, &[u8]) = match step {
            Move::Put(number, content) => (PUT, number, content),
            Move::Take(number) => (TAKE, number, &[]),
        };
        let payload = [&number.to_le_bytes()[..], content].concat();
        batch.push(RawRecord { tag, version: 1, is_skippable: false, payload: &payload }).unwrap();
    }
    batch
}

impl LogState for Shelf {
    fn apply(&mut self, record: RawRecord<'_>, at: Location) -> Result<(), StoreError> {
        let (number, rest) = record.payload.split_first_chunk().unwrap();
        let number = u32::from_le_bytes(*number);
        match record.tag {
            PUT => drop(self.0.insert(number, at)),
            TAKE => drop(self.0.remove(&number)),
            STANDS => {
                let word = |n: usize| u64::from_le_bytes(*rest[n * 8..].first_chunk().unwrap());
                let file = tidegate_store::FileId::from_bits(word(0));
                self.0.insert(number, Location { file, offset: word(1), len: word(2) as u32 });
            }
            tag => return Err(StoreError::Record { tag, what: "unknown" }),
        }
        Ok(())
    }

    fn live(&self, each: &mut dyn FnMut(Location)) {
        self.0.values().for_each(|at| each(*at));
    }

    fn dump(&self, sink: &mut dyn SnapshotSink) -> Result<(), StoreError> {
        for (number, &at) in &self.0 {
            if sink.keep(at)? == Placement::InPlace {
                let words = [at.file.to_bits(), at.offset, at.len.into()];
                let mut payload = number.to_le_bytes().to_vec();
                payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                sink.push(RawRecord { tag: STANDS, version: 1, is_skippable: false, payload: &payload })?;
            }
        }
        Ok(())
    }
}

/// Boxes and what is in them.
pub type Contents = BTreeMap<u32, Vec<u8>>;

pub fn model(batches: &[Vec<Move>]) -> Contents {
    let mut contents = Contents::new();
    for step in batches.iter().flatten() {
        match step {
            Move::Put(number, content) => drop(contents.insert(*number, content.clone())),
            Move::Take(number) => drop(contents.remove(number)),
        }
    }
    contents
}

pub fn small() -> LogOptions {
    LogOptions { segment_bytes: 400, compact_bytes_min: 1500, ..LogOptions::default() }
}

pub fn open<D: Disk>(disk: D, options: LogOptions) -> Result<(Log<D>, Shelf, RecoveryReport), StoreError> {
    let mut shelf = Shelf::default();
    let (log, report) = Log::open(disk, options, |record, at| shelf.apply(record, at))?;
    Ok((log, shelf, report))
}

/// What can be read, box by box; a damaged one is left out.
pub fn contents<D: Disk>(log: &mut Log<D>, shelf: &Shelf) -> Contents {
    let mut contents = Contents::new();
    for (&number, &at) in &shelf.0 {
        let mut payload = Vec::new();
        match log.read(at, &mut payload) {
            Ok(()) => drop(contents.insert(number, payload[4..].to_vec())),
            Err(StoreError::Damaged { .. }) => {}
            Err(error) => panic!("box {number} at {at:?}: {error}"),
        }
    }
    contents
}

pub fn append<D: Disk>(log: &mut Log<D>, moves: &[Move]) -> Result<(), StoreError> {
    log.append(&[batch(moves)], &mut Vec::new())
}
