//! Fair shares by tags: whoever has the lowest is next, and pays by its tag moving on.
//!
//! Start-time fair queueing: a tag advances by cost / weight, and whoever begins to wait begins where service is now. An
//! item of any cost is paid at once, without rounds in which nobody is served. Who has gone is skipped when its entry
//! comes up (`stamp`).

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

/// Cost of one unit at weight 1.
pub(super) const ONE: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FairEntry {
    pub(super) tag: u64,
    /// Of equal tags, who came first.
    turn: u64,
    pub(super) key: u32,
    pub(super) stamp: u32,
}

#[derive(Debug, Default)]
pub(super) struct Fair {
    heap: BinaryHeap<Reverse<FairEntry>>,
    /// The tag that is served now.
    clock: u64,
    turns: u64,
}

impl Fair {
    /// Waits from `tag` on, or from where service is now.
    pub(super) fn push(&mut self, key: u32, stamp: u32, tag: u64) {
        self.turns += 1;
        let entry = FairEntry { tag: tag.max(self.clock), turn: self.turns, key, stamp };
        self.heap.push(Reverse(entry));
    }

    pub(super) fn pop(&mut self) -> Option<FairEntry> {
        let Reverse(entry) = self.heap.pop()?;
        self.clock = self.clock.max(entry.tag);
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn retain(&mut self, mut is_valid: impl FnMut(&FairEntry) -> bool) {
        self.heap.retain(|Reverse(entry)| is_valid(entry));
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        (self.clock, self.turns) = (0, 0);
    }
}

/// By how much a tag moves on for so many units.
pub(super) fn charge(units: u32, weight: u32) -> u64 {
    u64::from(units) * ONE / u64::from(weight.max(1))
}
