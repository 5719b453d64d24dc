//! The waiting items: one slab for all of them, one queue of slots for each flow.
//!
//! The pool knows how much waits and where, and refuses to know who is next. Slots are reused from a free list, the last
//! one freed first, so that a pool which is far from full stays in the cache.

use alloc::vec::Vec;

use super::links::NIL;
use super::longest::Longest;

/// Slots that an empty pool keeps for the next items. Whoever has had a million waiting gives their room back.
const SLOTS_KEPT: usize = 256;

/// First in, first out for every flow, within one bound for all of them.
#[derive(Clone, Debug)]
pub(super) struct Pool<T> {
    slots: Vec<PoolSlot<T>>,
    /// The first free slot of `slots`.
    free: u32,
    /// By flow.
    queues: Vec<FlowQueue>,
    longest: Longest,
    items: u32,
    /// Queues that are not empty.
    busy: u32,
    backlog: u64,
    items_max: u32,
    backlog_max: u64,
}

#[derive(Clone, Debug)]
struct PoolSlot<T> {
    item: Option<T>,
    cost: u32,
    /// The slot behind this one in the same queue, or the next free one.
    next: u32,
}

/// What waits for one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowQueue {
    first: u32,
    last: u32,
    pub(super) items: u32,
    pub(super) backlog: u64,
}

impl FlowQueue {
    pub(super) const EMPTY: Self = Self { first: NIL, last: NIL, items: 0, backlog: 0 };
}

impl<T> Pool<T> {
    /// `items_max` is less than [`NIL`].
    pub(super) fn new(items_max: u32, backlog_max: u64) -> Self {
        let (slots, queues, longest) = (Vec::new(), Vec::new(), Longest::new());
        Self { slots, free: NIL, queues, longest, items: 0, busy: 0, backlog: 0, items_max, backlog_max }
    }

    pub(super) const fn items(&self) -> u32 {
        self.items
    }

    pub(super) const fn busy(&self) -> usize {
        self.busy as usize
    }

    pub(super) const fn backlog(&self) -> u64 {
        self.backlog
    }

    /// Whether an item of this cost would be too much.
    pub(super) fn is_full(&self, cost: u32) -> bool {
        self.items >= self.items_max || self.backlog + u64::from(cost) > self.backlog_max
    }

    /// Makes room for flows below `len`.
    pub(super) fn grow(&mut self, len: usize) {
        if self.queues.len() < len {
            self.queues.resize(len, FlowQueue::EMPTY);
            self.longest.grow(len);
        }
    }

    /// The queue of a flow, also of one never heard of.
    pub(super) fn queue(&self, flow: u32) -> FlowQueue {
        self.queues.get(flow as usize).copied().unwrap_or(FlowQueue::EMPTY)
    }

    /// A flow with about the longest backlog.
    pub(super) fn longest(&self) -> Option<u32> {
        self.longest.find()
    }

    /// Appends to the queue of a flow that has grown already, and returns how many items wait there now.
    pub(super) fn put(&mut self, flow: u32, item: T, cost: u32) -> u32 {
        let slot = self.occupy(item, cost);
        let queue = &mut self.queues[flow as usize];
        match queue.last {
            NIL => queue.first = slot,
            last => self.slots[last as usize].next = slot,
        }
        queue.last = slot;
        queue.items += 1;
        self.busy += u32::from(queue.items == 1);
        let before = queue.backlog;
        queue.backlog += u64::from(cost);
        self.longest.on_change(flow, before, queue.backlog);
        self.items += 1;
        self.backlog += u64::from(cost);
        queue.items
    }

    /// The oldest item of a flow.
    pub(super) fn first(&self, flow: u32) -> Option<&T> {
        self.slots.get(self.queue(flow).first as usize)?.item.as_ref()
    }

    /// The items of a flow, the oldest first.
    pub(super) fn of_flow(&self, flow: u32) -> impl Iterator<Item = &T> {
        self.waiting(self.queue(flow))
    }

    /// All items, flow by flow, the oldest of each first.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.queues.iter().flat_map(|queue| self.waiting(*queue))
    }

    fn waiting(&self, queue: FlowQueue) -> impl Iterator<Item = &T> {
        let first = self.slots.get(queue.first as usize);
        let slots = core::iter::successors(first, |slot| self.slots.get(slot.next as usize));
        slots.filter_map(|slot| slot.item.as_ref())
    }

    /// Takes the oldest item of a flow with its cost.
    pub(super) fn take(&mut self, flow: u32) -> Option<(T, u32)> {
        let queue = self.queues.get_mut(flow as usize)?;
        let slot = self.slots.get_mut(queue.first as usize)?;
        let (item, cost) = (slot.item.take()?, slot.cost);
        let freed = core::mem::replace(&mut queue.first, slot.next);
        slot.next = core::mem::replace(&mut self.free, freed);
        if queue.first == NIL {
            queue.last = NIL;
        }
        queue.items -= 1;
        self.busy -= u32::from(queue.items == 0);
        let before = queue.backlog;
        queue.backlog -= u64::from(cost);
        self.longest.on_change(flow, before, queue.backlog);
        self.items -= 1;
        self.backlog -= u64::from(cost);
        if self.items == 0 && self.slots.len() > SLOTS_KEPT {
            (self.slots, self.free) = (Vec::new(), NIL);
        }
        Some((item, cost))
    }

    fn occupy(&mut self, item: T, cost: u32) -> u32 {
        let filled = PoolSlot { item: Some(item), cost, next: NIL };
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            let index = core::mem::replace(&mut self.free, slot.next);
            *slot = filled;
            return index;
        }
        self.slots.push(filled);
        (self.slots.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_before_the_slab_grows() {
        let mut pool = Pool::new(10, 100);
        pool.grow(2);
        for round in 0..50 {
            assert_eq!(pool.put(0, round, 1), 1);
            assert_eq!(pool.put(1, round, 2), 1);
            assert_eq!(pool.take(0), Some((round, 1)));
            assert_eq!(pool.take(1), Some((round, 2)));
        }
        assert_eq!(pool.slots.len(), 2);
        assert_eq!((pool.items(), pool.backlog()), (0, 0));
    }

    #[test]
    fn an_empty_pool_gives_back_the_room_of_many() {
        let mut pool = Pool::new(10_000, 1_000_000);
        pool.grow(1);
        for round in 0..2 {
            for item in 0..5_000 {
                pool.put(0, item, 1);
            }
            for item in 0..5_000 {
                assert_eq!(pool.take(0), Some((item, 1)), "round {round}");
            }
            assert!(pool.slots.capacity() <= SLOTS_KEPT, "{} slots are kept", pool.slots.capacity());
        }
    }

    #[test]
    fn a_flow_never_heard_of_has_an_empty_queue() {
        let mut pool: Pool<()> = Pool::new(1, 1);
        assert_eq!(pool.queue(7).items, 0);
        assert_eq!(pool.take(7), None);
        assert_eq!(pool.longest(), None);
    }
}
