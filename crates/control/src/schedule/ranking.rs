//! Who has the lowest tag, among a few or many.
//!
//! A queue has a handful of busy flows nearly always, and each message that leaves takes one out and puts it back behind:
//! in a tree of one entry that is an allocation given back and taken again. A few are a sorted list, which allocates
//! nothing: the one that was served leaves at one end and comes back near the other, so next to none of them are moved.
//! More than [`FEW_MAX`] are a tree, so that nobody pays for the flows of others.

use alloc::collections::{BTreeSet, VecDeque};

/// Half of so many are moved, at worst, in about the time in which a tree finds its place for one.
const FEW_MAX: usize = 128;
/// A tree with fewer becomes a list again; well below the maximum, so that they do not take turns.
const FEW_AGAIN: usize = FEW_MAX / 2;

/// Entries by tag, then by number, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    /// The lowest first: that one leaves. Empty while `many` is not.
    few: VecDeque<(u64, u32)>,
    many: BTreeSet<(u64, u32)>,
}

impl Ranking {
    pub(super) fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// The number with the lowest tag.
    pub(super) fn first(&self) -> Option<u32> {
        self.few.front().or_else(|| self.many.first()).map(|(_, id)| *id)
    }

    pub(super) fn insert(&mut self, tag: u64, id: u32) {
        if self.many.is_empty() && self.few.len() < FEW_MAX {
            let place = self.few.partition_point(|entry| *entry < (tag, id));
            if self.few.get(place) != Some(&(tag, id)) {
                self.few.insert(place, (tag, id));
            }
            return;
        }
        self.many.extend(self.few.drain(..));
        self.many.insert((tag, id));
    }

    pub(super) fn remove(&mut self, tag: u64, id: u32) {
        if self.many.is_empty() {
            let place = self.few.partition_point(|entry| *entry < (tag, id));
            if self.few.get(place) == Some(&(tag, id)) {
                self.few.remove(place);
            }
            return;
        }
        self.many.remove(&(tag, id));
        if self.many.len() <= FEW_AGAIN {
            self.few.extend(core::mem::take(&mut self.many));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_ranking_is_a_sorted_set(steps in proptest::collection::vec((0_u8..5, 0_u64..9, 0_u32..64), 0..600)) {
            let (mut ranking, mut model) = (Ranking::default(), BTreeSet::new());
            for (kind, tag, id) in steps {
                if kind > 1 {
                    ranking.insert(tag, id);
                    model.insert((tag, id));
                } else {
                    ranking.remove(tag, id);
                    model.remove(&(tag, id));
                }
                prop_assert_eq!(ranking.first(), model.first().map(|(_, id)| *id));
                prop_assert_eq!((ranking.len(), ranking.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(ranking.few.is_empty() || ranking.many.is_empty());
            }
            // A tree becomes a list again on the way.
            for (tag, id) in model {
                prop_assert_eq!(ranking.first(), Some(id));
                ranking.remove(tag, id);
                prop_assert!(ranking.few.is_empty() || ranking.many.is_empty());
            }
            prop_assert!(ranking.is_empty());
        }
    }
}
