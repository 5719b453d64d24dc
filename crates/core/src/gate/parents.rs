//! What the publishers of one parent are used to, all together: more identifiers, or an hour of training with each of them,
//! must not add up to the broker.
//!
//! The sum of what was learned of all publishers that are known, connected or remembered, grows no further beyond a quarter
//! of what the loop can do: identifiers that are trained one after the other count as those that are trained together.
//! Whoever is forgotten leaves the sum, and has no claim either. Grants of the operator do not count. What the loop can do is messages by the time that was spent on turns; that is low while little happens, so the
//! best second of late counts, and never less than `CAPACITY_MIN`.

use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;

/// The parents of the publishers that are known.
#[derive(Debug)]
pub(crate) struct Parents {
    sums: HashMap<u64, Sum, FixedState>,
    /// Messages a second.
    capacity: f32,
    messages: u64,
    busy: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    rate: f64,
    publishers: u32,
}

impl Parents {
    pub(crate) fn new(seed: u64) -> Self {
        let sums = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { sums, capacity: CAPACITY_MIN, messages: 0, busy: Duration::ZERO }
    }

    /// A publisher is known that is used to this.
    pub(crate) fn join(&mut self, parent: u64, rate: f32) {
        let sum = self.sums.entry(parent).or_default();
        sum.rate += f64::from(rate);
        sum.publishers += 1;
    }

    /// It is known no more.
    pub(crate) fn leave(&mut self, parent: u64, rate: f32) {
        let Some(sum) = self.sums.get_mut(&parent) else { return };
        sum.rate = (sum.rate - f64::from(rate)).max(0.0);
        sum.publishers = sum.publishers.saturating_sub(1);
        if sum.publishers == 0 {
            self.sums.remove(&parent);
        }
    }

    /// What one of them is used to has changed by so much.
    pub(crate) fn shift(&mut self, parent: u64, change: f32) {
        if let Some(sum) = self.sums.get_mut(&parent) {
            sum.rate = (sum.rate + f64::from(change)).max(0.0);
        }
    }

    /// By how much the claims of a parent may grow.
    pub(crate) fn room(&self, parent: u64) -> f32 {
        let sum = self.sums.get(&parent).map_or(0.0, |sum| sum.rate);
        self.capacity * PART - sum as f32
    }

    /// A turn took so long, and so many messages were taken in all turns so far.
    #[inline]
    pub(crate) fn on_turn(&mut self, messages: u64, took: Duration) {
        self.busy += took;
        if self.busy >= SAMPLE {
            let rate = (messages - self.messages) as f32 / self.busy.as_secs_f32();
            (self.messages, self.busy) = (messages, Duration::ZERO);
            self.capacity = rate.max(self.capacity * FORGET).max(CAPACITY_MIN);
        }
    }
}

#[cfg(test)]
impl Parents {
    /// A loop that can do so much.
    pub(crate) fn of_capacity(capacity: f32) -> Self {
        Self { capacity, ..Self::new(1) }
    }
}

/// The part of the loop that one parent may be used to.
const PART: f32 = 0.25;
/// A slow core takes as many messages in a second.
const CAPACITY_MIN: f32 = 50_000.0;
/// Time spent working after which the pace of it is told.
const SAMPLE: Duration = Duration::from_secs(1);
/// A best second is forgotten by half after an hour of work.
const FORGET: f32 = 0.999_807_5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_has_a_quarter_of_what_the_loop_can_do() {
        let mut parents = Parents::new(1);
        assert_eq!(parents.room(7), 12_500.0);
        parents.join(7, 10_000.0);
        parents.join(7, 1000.0);
        parents.shift(7, 500.0);
        assert_eq!((parents.room(7), parents.room(8)), (1000.0, 12_500.0));
        parents.leave(7, 10_500.0);
        assert_eq!(parents.room(7), 11_500.0);
        parents.leave(7, 1000.0);
        assert!(parents.sums.is_empty());
    }

    #[test]
    fn the_best_second_of_work_says_what_the_loop_can_do() {
        let mut parents = Parents::new(1);
        (1..=1000).for_each(|n| parents.on_turn(n * 400, Duration::from_millis(1)));
        assert_eq!(parents.room(1), 100_000.0);
        (1..=5000).for_each(|n| parents.on_turn(400_000 + n, Duration::from_millis(1)));
        assert!(parents.room(1) > 99_000.0, "a quiet hour is no weaker machine");
    }
}
