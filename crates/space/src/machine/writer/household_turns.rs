//! A queue whose households take turns: whoever was served longest ago is next, and each is served in its own order. So one
//! that sends many long updates is in its own way, and others find a place beside it.
//!
//! Knows neither requests nor time. It is as short as what is made apart, so everything is looked through.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct HouseholdTurns<T> {
    waiting: VecDeque<(u64, T)>,
    /// The turn in which a household was last served; of those that wait only.
    served: BTreeMap<u64, u64>,
    turns: u64,
}

impl<T> Default for HouseholdTurns<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), served: BTreeMap::new(), turns: 0 }
    }
}

impl<T> HouseholdTurns<T> {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many of a household wait.
    pub(super) fn of(&self, household: u64) -> usize {
        self.waiting.iter().filter(|(own, _)| *own == household).count()
    }

    pub(super) fn push(&mut self, household: u64, item: T) {
        self.waiting.push_back((household, item));
    }

    /// Before everybody: it had its turn already.
    pub(super) fn push_again(&mut self, household: u64, item: T) {
        self.served.remove(&household);
        self.waiting.push_front((household, item));
    }

    /// The last that came.
    pub(super) fn last_mut(&mut self) -> Option<&mut T> {
        self.waiting.back_mut().map(|(_, item)| item)
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<T> {
        let turn = |household: &u64| self.served.get(household).copied().unwrap_or(0);
        let next = self.waiting.iter().enumerate().min_by_key(|(place, (household, _))| (turn(household), *place))?.0;
        let (household, item) = self.waiting.remove(next)?;
        self.turns += 1;
        if self.of(household) > 0 {
            self.served.insert(household, self.turns);
        } else {
            self.served.remove(&household);
        }
        Some(item)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().map(|(_, item)| item)
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = T> {
        self.waiting.into_iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn households_take_turns_and_each_is_served_in_its_own_order() {
        let mut queue = HouseholdTurns::default();
        for number in 0..5 {
            queue.push(1, (1, number));
        }
        queue.push(2, (2, 0));
        queue.push(3, (3, 0));
        queue.push(2, (2, 1));
        let order: Vec<(u64, i32)> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (1, 3), (1, 4)]);
        assert!(queue.is_empty() && queue.served.is_empty());
    }

    #[test]
    fn what_was_tried_comes_before_everybody() {
        let mut queue = HouseholdTurns::default();
        for number in 0..3 {
            queue.push(1, number);
        }
        queue.push(2, 10);
        let first = queue.pop().unwrap();
        queue.push_again(1, first);
        assert_eq!((queue.pop(), queue.pop(), queue.of(1)), (Some(0), Some(10), 2));
    }
}
