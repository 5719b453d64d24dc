//! The store of the simulated space: the real log on a disk that fails, written to when the world says so. What the
//! store's own thread does in the field is done here step by step.

use std::collections::VecDeque;

use tidegate_graph::SpaceLimits;
use tidegate_store::disk::sim::{Crash, DiskFault, SimDisk};
use tidegate_store::{Log, LogOptions, LogState, RecordBatch};

use super::Dice;
use crate::machine::writer::{StoreHealth, Write};
use crate::space_store::{RestoredSpace, SpaceImage, write_down};

pub(super) struct Store {
    disk: SimDisk,
    log: Option<Log<SimDisk>>,
    /// What was handed over and is not stored, with the version that each leads to.
    waiting: VecDeque<(u64, Vec<RecordBatch>)>,
    /// The version of the last change that is on the medium.
    pub(super) stored: u64,
    pub(super) health: StoreHealth,
    /// There is room only for what makes it smaller.
    is_full: bool,
}

impl Store {
    pub(super) fn new(seed: u64) -> Self {
        let (disk, waiting) = (SimDisk::new(seed), VecDeque::new());
        Self { disk, log: None, waiting, stored: 0, health: StoreHealth::Fine, is_full: false }
    }

    /// Reads what is there, as a start of the process does.
    pub(super) fn open(&mut self, limits: SpaceLimits) -> RestoredSpace {
        // Whatever fails at a start is an error of the operator's; the next one is in good order.
        self.disk.set_broken(None);
        let options = LogOptions { segment_bytes: 2000, is_rewritten: true, ..LogOptions::default() };
        let (log, image) = loop {
            let mut image = SpaceImage::default();
            if let Ok((log, report)) = Log::open(self.disk.boot(), options, |record, at| image.apply(record, at)) {
                assert!(!report.is_damaged(), "{report}");
                assert_eq!(image.holes(), 0, "every change follows the one before");
                break (log, image);
            }
        };
        let restored = image.restore(limits);
        (self.log, self.stored, self.health) = (Some(log), restored.space.version(), StoreHealth::Fine);
        self.waiting.clear();
        restored
    }

    pub(super) fn submit(&mut self, version: u64, write: &Write) {
        self.waiting.push_back((version, write_down(&write.kept()).unwrap().into()));
    }

    pub(super) fn is_stored(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Something goes wrong, or is well again.
    pub(super) fn disturb(&mut self, dice: &mut Dice) {
        match dice.below(4) {
            0 => self.disk.set_broken(Some([DiskFault::Full, DiskFault::Device][dice.below(2) as usize])),
            1 => self.disk.set_broken(None),
            2 => self.is_full = !self.is_full,
            _ => self.disk.fail_call(dice.below(4), DiskFault::Device),
        }
    }

    pub(super) fn mend(&mut self) {
        self.is_full = false;
        self.disk.set_broken(None);
    }

    /// Writes what waits, with one sync. True if something was stored.
    pub(super) fn write(&mut self) -> bool {
        let well = self.well();
        let Some(log) = &mut self.log else { return false };
        if self.waiting.is_empty() && !log.is_failed() {
            self.health = well;
            return false;
        }
        let batches: Vec<RecordBatch> = self.waiting.iter().flat_map(|(_, batches)| batches.clone()).collect();
        let written = if log.is_failed() {
            log.repair_with(&batches, &mut Vec::new())
        } else {
            log.append(&batches, &mut Vec::new()).and_then(|()| log.sync())
        };
        if written.is_err() {
            self.health = StoreHealth::Failed;
            return false;
        }
        self.health = well;
        self.stored = self.waiting.back().map_or(self.stored, |(version, _)| *version);
        if log.is_segment_full() {
            let _ = log.rotate();
        }
        !std::mem::take(&mut self.waiting).is_empty()
    }

    /// How a store is that does not fail.
    fn well(&self) -> StoreHealth {
        if self.is_full { StoreHealth::Full } else { StoreHealth::Fine }
    }

    /// Writes what was handed over, as far as that is possible, and lets go. Whether everything is stored.
    pub(super) fn close(&mut self) -> bool {
        self.write();
        let is_stored = self.is_stored();
        if let Some(log) = self.log.take().filter(|log| !log.is_failed()) {
            let _ = log.close();
        }
        is_stored
    }

    pub(super) fn crash(&mut self, dice: &mut Dice) {
        let how = match dice.below(4) {
            0 => Crash::Process,
            1 => Crash::LoseUnsynced,
            2 => Crash::KeepBytes(dice.below(300) as usize),
            _ => Crash::Tear,
        };
        self.disk.set_broken(None);
        self.disk.crash(how);
        self.log = None;
    }
}
