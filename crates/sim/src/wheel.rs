//! What happens next: a hierarchical timing wheel.
//!
//! A binary heap with a million events misses the cache at every step; here an event is put into a slot by its time and
//! touched again once per level at most. Six levels of 64 slots; what lies in the slot of the present is sorted. Order is
//! exact: by time, and events of the same time in the order in which they were added, so that a run can be repeated.

/// Events by time, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    levels: [Level; LEVELS],
    entries: Vec<WheelEntry<T>>,
    /// The first free entry.
    free: u32,
    /// Events of the present slot in order, from `taken` on.
    present: Vec<(u64, T)>,
    taken: usize,
    /// The present, in ticks.
    tick: u64,
    len: usize,
}

#[derive(Clone, Debug)]
struct Level {
    /// Which slots have something in them.
    occupied: u64,
    slots: [List; SLOTS],
}

/// A queue through [`WheelEntry::next`].
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

#[derive(Clone, Debug)]
struct WheelEntry<T> {
    at: u64,
    next: u32,
    value: T,
}

const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// A tick is 2^14 ns, some 16 µs; all levels together reach 13 days.
const TICK_BITS: u32 = 14;
const NONE: u32 = u32::MAX;

/// The latest time that can be told apart: some 13 days. Later events come then.
pub const HORIZON: u64 = (1 << (TICK_BITS + SLOT_BITS * LEVELS as u32)) - 1;

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        let empty = Level { occupied: 0, slots: [List { first: NONE, last: NONE }; SLOTS] };
        Self {
            levels: std::array::from_fn(|_| empty.clone()),
            entries: Vec::new(),
            free: NONE,
            present: Vec::new(),
            taken: 0,
            tick: 0,
            len: 0,
        }
    }
}

impl<T: Copy> Wheel<T> {
    /// Events that are still to come.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. One of the past comes at once.
    pub fn push(&mut self, at: u64, value: T) {
        let at = at.min(HORIZON);
        self.len += 1;
        let tick = at >> TICK_BITS;
        if tick <= self.tick {
            let behind = self.present[self.taken..].partition_point(|&(other, _)| other <= at);
            self.present.insert(self.taken + behind, (at, value));
            return;
        }
        let entry = WheelEntry { at, next: NONE, value };
        let index = if self.free == NONE {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.entries[index as usize], entry).next;
            index
        };
        self.file(index, tick);
    }

    /// Takes the next event, with its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        while self.taken == self.present.len() {
            self.present.clear();
            self.taken = 0;
            self.advance()?;
        }
        let event = self.present[self.taken];
        self.taken += 1;
        self.len -= 1;
        Some(event)
    }

    /// Puts an entry into the slot of its tick, which lies in the future.
    fn file(&mut self, index: u32, tick: u64) {
        let level = (tick ^ self.tick).ilog2() / SLOT_BITS;
        let slot = (tick >> (SLOT_BITS * level)) as usize % SLOTS;
        let level = &mut self.levels[level as usize];
        let list = &mut level.slots[slot];
        if level.occupied & (1 << slot) == 0 {
            level.occupied |= 1 << slot;
            list.first = index;
        } else {
            self.entries[list.last as usize].next = index;
        }
        list.last = index;
    }

    /// Goes to the next slot with something in it, on the lowest level that has one; none if there is nothing left.
    fn advance(&mut self) -> Option<()> {
        for number in 0..LEVELS {
            let shift = SLOT_BITS * number as u32;
            let here = (self.tick >> shift) as usize % SLOTS;
            // Only what is ahead: a slot behind would be in the next turn of the level above, which is filed there.
            let ahead = self.levels[number].occupied & (!1 << here);
            if ahead == 0 {
                continue;
            }
            let slot = ahead.trailing_zeros() as usize;
            self.levels[number].occupied &= !(1 << slot);
            let above = self.tick >> (shift + SLOT_BITS);
            self.tick = ((above << SLOT_BITS) | slot as u64) << shift;
            self.unfile(self.levels[number].slots[slot].first);
            return Some(());
        }
        None
    }

    /// Moves a list to where it belongs now: the present, or a lower level.
    fn unfile(&mut self, first: u32) {
        let mut index = first;
        while index != NONE {
            let WheelEntry { at, next, value } = self.entries[index as usize];
            let tick = at >> TICK_BITS;
            if tick == self.tick {
                self.present.push((at, value));
                self.entries[index as usize].next = self.free;
                self.free = index;
            } else {
                self.entries[index as usize].next = NONE;
                self.file(index, tick);
            }
            index = next;
        }
        // Stable: equal times stay in the order in which they were added.
        self.present.sort_by_key(|&(at, _)| at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A naive model: time and number of arrival.
    #[derive(Default)]
    struct Model {
        events: BTreeMap<(u64, u64), u32>,
        added: u64,
        now: u64,
    }

    fn delays() -> impl Strategy<Value = u64> {
        prop_oneof![0..3_u64, 0..100_000_u64, 0..10_000_000_000_u64, 0..HORIZON, Just(1 << 14), Just(1 << 20)]
    }

    proptest! {
        #[test]
        fn events_come_by_time_and_then_in_the_order_of_their_arrival(
            steps in proptest::collection::vec((delays(), any::<bool>()), 1..300)
        ) {
            let (mut wheel, mut model) = (Wheel::default(), Model::default());
            for (value, (delay, pops)) in steps.into_iter().enumerate() {
                let at = (model.now + delay).min(HORIZON);
                wheel.push(at, value as u32);
                model.events.insert((at, model.added), value as u32);
                model.added += 1;
                if pops {
                    let ((at, _), value) = model.events.pop_first().unwrap();
                    model.now = at;
                    prop_assert_eq!(wheel.pop(), Some((at, value)));
                }
                prop_assert_eq!(wheel.len(), model.events.len());
            }
            while let Some(((at, _), value)) = model.events.pop_first() {
                prop_assert_eq!(wheel.pop(), Some((at, value)));
            }
            prop_assert_eq!(wheel.pop(), None);
            prop_assert!(wheel.is_empty());
        }
    }
}
