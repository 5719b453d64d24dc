//! Rhythms of publishers as records: a part of the publishers in each turn, every few minutes, with those who have left
//! since, and all at an orderly end.
//! What was learned since the last time is lost in a crash: it is learned again.

use std::path::Path;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::persist::SavedRhythm;
use tidegate_store::disk::FsDisk;
use tidegate_store::{Log, LogOptions, RecordBatch, StoreError};

use super::records::{Record, StoreImage, TEXT_BYTES_MAX};
use super::wall_clock::WallClock;

/// How often what was learned is written down: a rhythm changes by a few percent in this time.
const EVERY: Duration = Duration::from_secs(300);
/// Publishers that are looked at in one turn: about a tenth of a millisecond.
const PLACES_PER_TURN: u32 = 1000;
/// The layout of a rhythm: interval in nanoseconds (8), messages at once (4).
const STATE_BYTES: usize = 12;

/// Where one shard is with it.
#[derive(Debug)]
pub(super) struct Rhythms {
    /// When the next round begins, or the next part of this one.
    due: Timestamp,
    next: u32,
    /// Who has not published since then is written down already.
    since: Timestamp,
    begun: Timestamp,
}

impl Rhythms {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { due: now + EVERY, next: 0, since: now, begun: now }
    }

    pub(super) fn due(&self) -> Timestamp {
        self.due
    }

    /// The next part, if it is time for it.
    pub(super) fn write(&mut self, shard: &mut Shard, wall: &WallClock, now: Timestamp) -> Option<RecordBatch> {
        if now < self.due {
            return None;
        }
        let mut left = Vec::new();
        if self.next == 0 {
            self.begun = now;
            left = shard.take_left_rhythms();
        }
        let (mut rhythms, next) = shard.rhythms(self.next, PLACES_PER_TURN, self.since, now);
        rhythms.splice(0..0, left);
        self.next = next.unwrap_or(0);
        if next.is_none() {
            self.since = self.begun;
            self.due = now + EVERY;
        }
        batch(&rhythms, wall)
    }

    /// Everything that is not written yet.
    pub(super) fn write_all(&mut self, shard: &mut Shard, wall: &WallClock, now: Timestamp) -> Vec<RecordBatch> {
        let mut batches = Vec::new();
        self.next = 0;
        loop {
            self.due = now;
            batches.extend(self.write(shard, wall, now));
            if self.next == 0 {
                return batches;
            }
        }
    }
}

fn batch(rhythms: &[SavedRhythm], wall: &WallClock) -> Option<RecordBatch> {
    let mut batch = RecordBatch::new();
    for SavedRhythm { key, interval, batch: at_once, last_at } in rhythms {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let state = [&nanos.to_le_bytes()[..], &at_once.to_le_bytes()].concat();
        let record = Record::Rhythm { key, seen_ms: wall.ms(*last_at), state: &state };
        // A client identifier may be as long as text in the store, and this has a few bytes more: then it is learned anew.
        if key.len() <= TEXT_BYTES_MAX && record.push_to(&mut batch).is_err() {
            break;
        }
    }
    (!batch.is_empty()).then_some(batch)
}

/// Writes what was learned by `now` into the store of a broker that is to start with it: for tools, which cannot wait until a
/// broker of their own has learned it.
pub fn write_learned(dir: &Path, learned: &[SavedRhythm], now: Timestamp) -> Result<(), StoreError> {
    let (mut log, _) = Log::open(FsDisk::open(dir)?, LogOptions::default(), |_, _| Ok(()))?;
    let wall = WallClock::now(now, 0);
    let batches: Vec<RecordBatch> =
        learned.chunks(PLACES_PER_TURN as usize).filter_map(|part| batch(part, &wall)).collect();
    log.append(&batches, &mut Vec::new())?;
    log.close().map(drop)
}

/// Puts back what is in the image.
pub(super) fn restore(image: &StoreImage, shards: &mut [Shard], wall: &WallClock, now: Timestamp) -> usize {
    let mut restored = 0;
    for (key, seen_ms, state) in image.rhythms() {
        let Some((nanos, at_once)) = read(state) else { continue };
        let (interval, last_at) = (Duration::from_nanos(nanos), wall.timestamp(seen_ms));
        let saved = SavedRhythm { key: key.to_owned(), interval, batch: at_once, last_at };
        for shard in &mut *shards {
            shard.restore_rhythm(&saved, now);
        }
        restored += 1;
    }
    restored
}

fn read(state: &[u8]) -> Option<(u64, u32)> {
    let state: &[u8; STATE_BYTES] = state.try_into().ok()?;
    let (nanos, rest) = state.split_first_chunk()?;
    Some((u64::from_le_bytes(*nanos), u32::from_le_bytes(*rest.first_chunk()?)))
}
