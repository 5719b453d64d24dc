//! The lowest order key first, whatever it costs the others: P22 as it is written.
//!
//! Kept to reproduce the paper and to compare with. A publisher with a high key waits for as long as anyone with a lower
//! one has something to send (B15); the practical rule is [`super::drr`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Who is next by key, ties by flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Strict {
    /// By flow.
    keys: Vec<u64>,
    /// The flows with something waiting.
    busy: BTreeSet<(u64, u32)>,
}

impl Strict {
    pub(super) fn grow(&mut self, len: usize) {
        if self.keys.len() < len {
            self.keys.resize(len, KEY_UNKNOWN);
        }
    }

    pub(super) fn next(&self) -> Option<u32> {
        self.busy.first().map(|(_, flow)| *flow)
    }

    pub(super) fn on_busy(&mut self, flow: u32) {
        self.busy.insert((self.keys[flow as usize], flow));
    }

    pub(super) fn on_emptied(&mut self, flow: u32) {
        self.busy.remove(&(self.keys[flow as usize], flow));
    }

    pub(super) fn set_order(&mut self, flow: u32, key: u64) {
        let old = core::mem::replace(&mut self.keys[flow as usize], key);
        if old != key && self.busy.remove(&(old, flow)) {
            self.busy.insert((key, flow));
        }
    }

    /// Forgets the key of a flow with an empty queue.
    pub(super) fn forget(&mut self, flow: u32) {
        if let Some(key) = self.keys.get_mut(flow as usize) {
            *key = KEY_UNKNOWN;
        }
    }
}

/// Without a key: last, as those are who still learn (CONTROL 9.1).
const KEY_UNKNOWN: u64 = u64::MAX;
