//! Which flow has the longest queue, in constant time.
//!
//! Flows are sorted into buckets by the size of their backlog, [`STEPS`] buckets to each doubling, with a bit for every
//! bucket that is not empty. Any flow of the highest bucket has at least 8/9 of the longest backlog, and that is near
//! enough: a heap would give the exact one, at a logarithm for every push and pop instead of only for a full pool.

use alloc::vec::Vec;

use super::links::{Links, ListEnds};

/// Flows by the size of their backlog.
#[derive(Clone, Debug)]
pub(super) struct Longest {
    links: Links,
    /// Up to the highest that was ever used: a pool of a few small items has room for a few dozen, not for all.
    buckets: Vec<ListEnds>,
    /// One bit for each bucket that is not empty.
    occupied: [u64; BUCKETS / 64],
}

impl Longest {
    pub(super) fn new() -> Self {
        Self { links: Links::default(), buckets: Vec::new(), occupied: [0; BUCKETS / 64] }
    }

    /// Makes room for flows below `len`.
    pub(super) fn grow(&mut self, len: usize) {
        self.links.grow(len);
    }

    /// A backlog has changed; 0 is a flow without one.
    pub(super) fn on_change(&mut self, flow: u32, before: u64, after: u64) {
        let (old, new) = (bucket(before), bucket(after));
        if old == new {
            return;
        }
        if before > 0 {
            let list = &mut self.buckets[old];
            self.links.remove(list, flow);
            self.occupied[old / 64] &= !(u64::from(list.is_empty()) << (old % 64));
        }
        if after > 0 {
            if self.buckets.len() <= new {
                self.buckets.resize(new + 1, ListEnds::EMPTY);
            }
            self.links.push_back(&mut self.buckets[new], flow);
            self.occupied[new / 64] |= 1 << (new % 64);
        }
    }

    /// The flow that has been longest in the highest bucket.
    pub(super) fn find(&self) -> Option<u32> {
        let word = self.occupied.iter().rposition(|word| *word != 0)?;
        let bucket = word * 64 + self.occupied[word].ilog2() as usize;
        self.buckets[bucket].first()
    }
}

/// Numbers below [`STEPS`] have a bucket each; from there on there are [`STEPS`] of equal width to each doubling.
pub(super) fn bucket(backlog: u64) -> usize {
    let octave = (backlog | STEPS).ilog2() - STEPS.ilog2();
    octave as usize * STEPS as usize + (backlog >> octave) as usize
}

/// Buckets to each doubling of the backlog; a power of two.
const STEPS: u64 = 8;
/// One more than the bucket of `u64::MAX`, rounded up to whole words: (61 + 1) · 8 = 496.
const BUCKETS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_rise_without_a_gap_and_are_narrow() {
        let numbers = (0..2000).chain((11..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 15 << (bit - 3)]));
        let mut last = 0;
        for number in numbers.chain([u64::MAX]) {
            let bucket = bucket(number);
            assert!(bucket >= last && bucket < BUCKETS, "{number}");
            last = bucket;
        }
        for number in 1..2000u64 {
            let widest = (1..=number).find(|other| bucket(*other) == bucket(number)).unwrap();
            assert!(widest * 9 >= number * 8, "{widest} and {number}");
            assert!(bucket(number) - bucket(number - 1) <= 1);
        }
    }

    #[test]
    fn the_longest_is_found_as_backlogs_change() {
        let mut longest = Longest::new();
        longest.grow(3);
        assert_eq!(longest.find(), None);
        longest.on_change(0, 0, 100);
        longest.on_change(1, 0, 200);
        longest.on_change(2, 0, u64::MAX);
        assert_eq!(longest.find(), Some(2));
        longest.on_change(2, u64::MAX, 0);
        assert_eq!(longest.find(), Some(1));
        longest.on_change(1, 200, 50);
        assert_eq!(longest.find(), Some(0));
    }
}
