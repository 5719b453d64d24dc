//! A set of positions of shards: 64 in place, more behind a pointer.
//!
//! Asked for every message, so the usual case is one number. There is no largest position; what it costs is what was put
//! in, and positions are bounded by `SHARDS_MAX`.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Positions of shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardSet {
    /// Positions below 64, a bit each.
    low: u64,
    /// The others; the last word is never zero, so that equal sets are equal.
    high: Box<[u64]>,
}

/// Positions in one word.
const WORD: usize = 64;

impl ShardSet {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        let high: u32 = self.high.iter().map(|word| word.count_ones()).sum();
        (self.low.count_ones() + high) as usize
    }

    #[inline]
    pub(crate) fn contains(&self, shard: usize) -> bool {
        self.word(shard / WORD) & 1 << (shard % WORD) != 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, shard: usize) {
        if shard < WORD {
            self.low |= 1 << shard;
        } else {
            self.insert_high(shard);
        }
    }

    #[cold]
    fn insert_high(&mut self, shard: usize) {
        let mut words = Vec::from(core::mem::take(&mut self.high));
        let at = shard / WORD - 1;
        if words.len() <= at {
            words.resize(at + 1, 0);
        }
        words[at] |= 1 << (shard % WORD);
        self.high = words.into_boxed_slice();
    }

    #[inline]
    pub(crate) fn remove(&mut self, shard: usize) {
        if shard < WORD {
            self.low &= !(1 << shard);
        } else if self.contains(shard) {
            self.remove_high(shard);
        }
    }

    #[cold]
    fn remove_high(&mut self, shard: usize) {
        let mut words = Vec::from(core::mem::take(&mut self.high));
        words[shard / WORD - 1] &= !(1 << (shard % WORD));
        while words.last() == Some(&0) {
            words.pop();
        }
        self.high = words.into_boxed_slice();
    }

    /// Adds all of another set.
    #[inline]
    pub(crate) fn add(&mut self, other: &Self) {
        self.low |= other.low;
        if !other.high.is_empty() {
            other.iter().for_each(|shard| self.insert(shard));
        }
    }

    /// All positions, in order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        let high =
            self.high.iter().enumerate().flat_map(|(at, word)| bits(*word).map(move |bit| (at + 1) * WORD + bit));
        bits(self.low).chain(high)
    }

    fn word(&self, at: usize) -> u64 {
        match at.checked_sub(1) {
            None => self.low,
            Some(at) => self.high.get(at).copied().unwrap_or(0),
        }
    }
}

/// The bits of a word that are set.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        // Without its lowest bit.
        word &= word.wrapping_sub(1);
        (bit < WORD).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(usize),
        Remove(usize),
        Add(BTreeSet<usize>),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            3 => (0..300_usize).prop_map(Operation::Insert),
            3 => (0..300_usize).prop_map(Operation::Remove),
            1 => prop::collection::btree_set(0..300_usize, 0..6).prop_map(Operation::Add),
        ]
    }

    fn set_of(shards: &BTreeSet<usize>) -> ShardSet {
        let mut set = ShardSet::default();
        for shard in shards {
            set.insert(*shard);
        }
        set
    }

    proptest! {
        #[test]
        fn it_is_the_set_that_a_tree_is(operations in prop::collection::vec(operation(), 1..60)) {
            let (mut set, mut model) = (ShardSet::default(), BTreeSet::new());
            for operation in operations {
                match operation {
                    Operation::Insert(shard) => {
                        set.insert(shard);
                        model.insert(shard);
                    }
                    Operation::Remove(shard) => {
                        set.remove(shard);
                        model.remove(&shard);
                    }
                    Operation::Add(other) => {
                        set.add(&set_of(&other));
                        model.extend(other);
                    }
                }
                prop_assert!(set.iter().eq(model.iter().copied()));
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
                prop_assert!((0..320).all(|shard| set.contains(shard) == model.contains(&shard)));
                prop_assert_eq!(&set, &set_of(&model), "whatever was in it before");
            }
        }
    }
}
