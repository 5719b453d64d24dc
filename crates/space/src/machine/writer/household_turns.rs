//! A queue whose households take turns: whoever was served longest ago is next, and each is served in its own order. So one
//! that sends many long updates is in its own way, and others find a place beside it.
//!
//! Knows neither requests nor time. It is as short as what is made apart, so everything is looked through.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct HouseholdTurns<T> {
    waiting: VecDeque<(u64, T)>,
    /// The turn in which a household was last served: of those that wait, and of those that were served since the one
    /// that is next was. So whoever comes one by one is not next each time.
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

    /// A newcomer has waited for as long as whoever is next, no longer.
    pub(super) fn push(&mut self, household: u64, item: T) {
        if self.of(household) == 0 {
            let (least, own) = (self.least(), self.turn(household));
            self.served.insert(household, own.max(least));
        }
        self.waiting.push_back((household, item));
    }

    /// Before everybody: it had its turn already.
    pub(super) fn push_again(&mut self, household: u64, item: T) {
        self.served.insert(household, 0);
        self.waiting.push_front((household, item));
    }

    /// The last that came.
    pub(super) fn last_mut(&mut self) -> Option<&mut T> {
        self.waiting.back_mut().map(|(_, item)| item)
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<T> {
        let places = self.waiting.iter().enumerate();
        let next = places.min_by_key(|(place, (household, _))| (self.turn(*household), *place))?.0;
        let (household, item) = self.waiting.remove(next)?;
        self.turns += 1;
        self.served.insert(household, self.turns);
        self.forget();
        Some(item)
    }

    fn turn(&self, household: u64) -> u64 {
        self.served.get(&household).copied().unwrap_or(0)
    }

    /// The turn of whoever is next.
    fn least(&self) -> u64 {
        self.waiting.iter().map(|(household, _)| self.turn(*household)).min().unwrap_or(0)
    }

    /// Whoever does not wait and would be next is as good as new. Newcomers stand behind the one that is next, so those that
    /// are left are no more than have waited beside it.
    fn forget(&mut self) {
        if self.waiting.is_empty() {
            return self.served.clear();
        }
        let least = self.least();
        let waits = |household: u64| self.waiting.iter().any(|(own, _)| *own == household);
        self.served.retain(|household, turn| *turn > least || waits(*household));
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
    fn one_that_always_has_one_more_is_not_always_next() {
        let mut queue = HouseholdTurns::default();
        for _ in 0..20 {
            queue.push(2, 2);
            queue.push(3, 3);
        }
        let mut counts = [0; 4];
        for _ in 0..30 {
            // The one that was served has its next one here before anybody is chosen.
            if queue.of(1) == 0 {
                queue.push(1, 1);
            }
            counts[queue.pop().unwrap()] += 1;
        }
        assert_eq!(counts, [0, 10, 10, 10]);
    }

    #[test]
    fn those_that_come_once_are_forgotten() {
        let mut queue = HouseholdTurns::default();
        for _ in 0..600 {
            queue.push(0, 0);
        }
        for household in 1..500 {
            queue.push(household, household);
            assert_eq!((queue.pop().is_some(), queue.pop().is_some()), (true, true));
            assert!(queue.served.len() <= 3, "{:?}", queue.served);
        }
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
