//! Whoever waits no more is forgotten, with what was known of it: places, parents, and entries of lists that are void.

use core::cmp::Reverse;

use super::fair::Fair;
use super::{LISTS, ReadOrder, ReadParent, is_entry};

impl ReadOrder {
    /// A flow that is in no list waits no more.
    pub(super) fn discharge(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        flow.is_waiting = false;
        flow.stamp = flow.stamp.wrapping_add(1);
        let parent = flow.parent;
        self.free_flows.push(index);
        self.waiting -= 1;
        let it = &mut self.parents[parent as usize];
        it.waiting -= 1;
        if it.waiting > 0 {
            return;
        }
        it.n = 0;
        self.waiting_parents -= 1;
        if it.u > self.clock {
            it.is_ahead = true;
            self.ahead_len += 1;
            self.ahead.push(Reverse((it.u, parent)));
        } else {
            self.forget_parent(parent);
        }
        if self.waiting == 0 {
            self.reset();
        }
    }

    /// Everybody was read dry: nobody has had more than there was.
    fn reset(&mut self) {
        self.flows.clear();
        self.free_flows.clear();
        self.parents.clear();
        self.free_parents.clear();
        self.by_key.clear();
        self.orders.iter_mut().for_each(Fair::clear);
        self.ahead.clear();
        self.promised.clear();
        (self.clock, self.ahead_len, self.since_excess, self.parents_in) = (0, 0, 0, [0; LISTS]);
    }

    pub(super) fn parent(&mut self, key: u64) -> u32 {
        if let Some(index) = self.by_key.get(&key) {
            return *index;
        }
        let index = self.free_parents.pop().unwrap_or_else(|| {
            self.parents.push(ReadParent::default());
            (self.parents.len() - 1) as u32
        });
        let it = &mut self.parents[index as usize];
        let stamp = it.stamp.wrapping_add(1);
        *it = ReadParent { key, stamp, is_used: true, ..ReadParent::default() };
        self.by_key.insert(key, index);
        index
    }

    pub(super) fn forget_parent(&mut self, index: u32) {
        let it = &mut self.parents[index as usize];
        it.is_used = false;
        self.by_key.remove(&it.key);
        self.free_parents.push(index);
    }

    /// Entries of flows and parents that are gone must not outnumber those that count.
    pub(super) fn sweep(&mut self) {
        let most = 4 * self.waiting as usize + SWEEP_MIN;
        if self.promised.len() > most {
            let flows = &self.flows;
            self.promised.retain(|Reverse((_, index, stamp))| is_entry(flows, *index, *stamp));
        }
        let parents = &self.parents;
        if self.ahead.len() > 4 * self.ahead_len as usize + SWEEP_MIN {
            self.ahead
                .retain(|Reverse((u, index))| parents.get(*index as usize).is_some_and(|it| it.is_ahead && it.u == *u));
        }
        for order in &mut self.orders {
            if order.len() > most {
                order.retain(|entry| {
                    parents.get(entry.key as usize).is_some_and(|it| it.is_used && it.stamp == entry.stamp)
                });
            }
        }
    }
}

/// Void entries that nobody minds.
pub(super) const SWEEP_MIN: usize = 64;
