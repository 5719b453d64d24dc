//! Results as bags of rows, and the differences between them.
//!
//! A difference gives each row a signed count. Differences add up, which is how pending notifications merge: for sets
//! this is (A1,R1) then (A2,R2) = added (A1∖R2)∪(A2∖R1), removed (R1∖A2)∪(R2∖A1); for bags it is the same with counts.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::query::{Row, term_bytes};

/// What entered and what left a result. A row that entered twice is listed twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultDelta {
    /// Rows that are new.
    pub added: Vec<Row>,
    /// Rows that are gone.
    pub removed: Vec<Row>,
}

impl ResultDelta {
    /// True if nothing entered or left.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Rows in both lists.
    pub fn len(&self) -> usize {
        self.added.len() + self.removed.len()
    }

    /// About the bytes it takes.
    pub fn bytes(&self) -> usize {
        let row = |row: &Row| 32 + row.iter().flatten().map(term_bytes).sum::<usize>();
        self.added.iter().chain(&self.removed).map(row).sum()
    }

    /// One delta with the effect of all, in this order.
    pub fn merged<'a>(deltas: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut counts = RowCounts::default();
        for delta in deltas {
            for row in &delta.added {
                counts.add(row, 1);
            }
            for row in &delta.removed {
                counts.add(row, -1);
            }
        }
        counts.into_delta()
    }
}

/// Signed counts of rows. Rows come out in the order in which they first went in, so that runs repeat.
#[derive(Clone, Default)]
pub(crate) struct RowCounts {
    counts: HashMap<Row, (usize, i64), FixedState>,
}

impl RowCounts {
    pub(crate) fn add(&mut self, row: &Row, count: i64) {
        if let Some((_, known)) = self.counts.get_mut(row) {
            *known += count;
        } else {
            let place = self.counts.len();
            self.counts.insert(Row::clone(row), (place, count));
        }
    }

    /// Rows and their counts, except those that came to nothing.
    pub(crate) fn into_ordered(self) -> impl Iterator<Item = (Row, i64)> {
        let rows = self.counts.into_iter().filter(|(_, (_, count))| *count != 0);
        let ordered: BTreeMap<usize, (Row, i64)> = rows.map(|(row, (place, count))| (place, (row, count))).collect();
        ordered.into_values()
    }

    pub(crate) fn into_delta(self) -> ResultDelta {
        let mut delta = ResultDelta::default();
        for (row, count) in self.into_ordered() {
            let list = if count > 0 { &mut delta.added } else { &mut delta.removed };
            list.extend(std::iter::repeat_n(row, count.unsigned_abs() as usize));
        }
        delta
    }
}

/// A result that is kept: how often each row is in it.
#[derive(Default)]
pub(crate) struct Bag {
    counts: HashMap<Row, i64, FixedState>,
}

impl Bag {
    /// Distinct rows.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(crate) fn add(&mut self, row: Row, count: i64) {
        let known = self.counts.entry(row).or_insert(0);
        *known += count;
    }

    /// Applies a difference and says which rows appeared or disappeared altogether: the difference of the set.
    pub(crate) fn apply_as_set(&mut self, difference: RowCounts) -> ResultDelta {
        let mut delta = ResultDelta::default();
        for (row, count) in difference.into_ordered() {
            let known = self.counts.get(&row).copied().unwrap_or(0);
            let now = known + count;
            if now > 0 {
                self.counts.insert(Row::clone(&row), now);
            } else {
                self.counts.remove(&row);
            }
            match (known > 0, now > 0) {
                (false, true) => delta.added.push(row),
                (true, false) => delta.removed.push(row),
                _ => {}
            }
        }
        delta
    }

    /// The difference to another result, which takes this one's place.
    pub(crate) fn replace(&mut self, new: Self) -> ResultDelta {
        let mut difference = RowCounts::default();
        let mut gone: Vec<_> = self.counts.iter().filter(|(row, _)| !new.counts.contains_key(*row)).collect();
        gone.sort_unstable_by_key(|(row, _)| format!("{row:?}"));
        for (row, count) in gone {
            difference.add(row, -count);
        }
        let mut changed: Vec<_> =
            new.counts.iter().filter(|(row, count)| self.counts.get(*row) != Some(*count)).collect();
        changed.sort_unstable_by_key(|(row, _)| format!("{row:?}"));
        for (row, count) in changed {
            difference.add(row, count - self.counts.get(row).copied().unwrap_or(0));
        }
        *self = new;
        difference.into_delta()
    }

    /// Makes a set of it.
    pub(crate) fn flatten(&mut self) {
        for count in self.counts.values_mut() {
            *count = (*count).min(1);
        }
    }

    /// Every row, as often as it is in the result.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.counts.iter().flat_map(|(row, count)| std::iter::repeat_n(Row::clone(row), (*count).max(0) as usize))
    }

    /// Every row once.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = Row> + '_ {
        self.counts.iter().filter(|(_, count)| **count > 0).map(|(row, _)| Row::clone(row))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oxrdf::Literal;
    use proptest::prelude::*;

    use super::*;

    fn row(n: u8) -> Row {
        Arc::from([Some(Literal::from(u32::from(n)).into())])
    }

    fn delta(added: &[u8], removed: &[u8]) -> ResultDelta {
        let rows = |list: &[u8]| list.iter().map(|n| row(*n)).collect();
        ResultDelta { added: rows(added), removed: rows(removed) }
    }

    #[test]
    fn deltas_compose_as_the_design_says() {
        let merged = ResultDelta::merged([&delta(&[1, 2], &[3, 4]), &delta(&[3, 5], &[1, 6])]);
        assert_eq!(merged, delta(&[2, 5], &[4, 6]));
    }

    #[test]
    fn counts_matter() {
        assert_eq!(ResultDelta::merged([&delta(&[1, 1], &[]), &delta(&[], &[1])]), delta(&[1], &[]));
        let mut bag = Bag::default();
        bag.add(row(1), 2);
        let mut difference = RowCounts::default();
        difference.add(&row(1), -1);
        assert_eq!(bag.apply_as_set(difference.clone()), delta(&[], &[]));
        assert_eq!(bag.apply_as_set(difference), delta(&[], &[1]));
    }

    proptest! {
        #[test]
        fn merging_in_any_grouping_gives_the_same(lists in prop::collection::vec((prop::collection::vec(0..5u8, 0..4), prop::collection::vec(0..5u8, 0..4)), 0..6), cut in 0..6usize) {
            let deltas: Vec<_> = lists.iter().map(|(added, removed)| delta(added, removed)).collect();
            let cut = cut.min(deltas.len());
            let (front, back) = (ResultDelta::merged(&deltas[..cut]), ResultDelta::merged(&deltas[cut..]));
            let sorted = |delta: ResultDelta| {
                let mut lists = [delta.added, delta.removed].map(|list| list.iter().map(|row| format!("{row:?}")).collect::<Vec<_>>());
                for list in &mut lists {
                    list.sort_unstable();
                }
                lists
            };
            prop_assert_eq!(sorted(ResultDelta::merged([&front, &back])), sorted(ResultDelta::merged(&deltas)));
        }
    }
}
