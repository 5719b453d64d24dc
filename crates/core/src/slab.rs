//! A table with stable positions: a freed position is used again, under a new generation.

use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Positions that there are, occupied or not.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Position and generation of the new entry.
    pub(crate) fn insert(&mut self, value: T) -> (u32, u32) {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return (index, slot.generation);
        }
        self.slots.push(SlabSlot { generation: 0, value: Some(value) });
        ((self.slots.len() - 1) as u32, 0)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        self.len -= 1;
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// The generation of an occupied position.
    pub(crate) fn generation(&self, index: u32) -> Option<u32> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| slot.generation)
    }

    /// The entries at `count` positions from `start` on, and where to go on after them.
    pub(crate) fn page(&self, start: u32, count: usize) -> (impl Iterator<Item = (u32, &T)>, Option<u32>) {
        let start = start as usize;
        let end = start.saturating_add(count).min(self.slots.len());
        let slots = self.slots.get(start..end).unwrap_or_default();
        let entries = slots.iter().zip(start as u32..).filter_map(|(slot, index)| Some((index, slot.value.as_ref()?)));
        (entries, (end < self.slots.len()).then_some(end as u32))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index as u32, slot.value.as_ref()?)))
    }
}
