//! What one subscriber has seen of one publisher, told by sequence numbers.

use std::collections::BTreeSet;

/// Gaps that are remembered, so that a late message can be told from a second copy. A broker that drops more has lost
/// them anyway; then a late one counts as a second copy.
const MISSING_MAX: u64 = 10_000;

/// A message in the eyes of its subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceCheck {
    /// In order, perhaps after a gap.
    New,
    /// For the first time, but after a later one.
    Late,
    /// Not for the first time.
    Again,
}

/// The messages of one publisher at one subscriber.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedStream {
    next: u64,
    missing: BTreeSet<u64>,
}

impl ReceivedStream {
    /// The message with this number arrived.
    #[inline]
    pub(super) fn see(&mut self, sequence: u64) -> SequenceCheck {
        if sequence >= self.next {
            let gap = sequence - self.next;
            if gap > 0 && self.missing.len() as u64 + gap <= MISSING_MAX {
                self.missing.extend(self.next..sequence);
            }
            self.next = sequence + 1;
            SequenceCheck::New
        } else if self.missing.remove(&sequence) {
            SequenceCheck::Late
        } else {
            SequenceCheck::Again
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_told_from_twice() {
        use SequenceCheck::{Again, Late, New};
        let mut stream = ReceivedStream::default();
        let seen: Vec<_> = [0, 1, 2, 5, 4, 4, 2, 3, 6].into_iter().map(|number| stream.see(number)).collect();
        assert_eq!(seen, [New, New, New, New, Late, Again, Again, Late, New]);
        assert!(stream.missing.is_empty());
    }

    #[test]
    fn a_huge_gap_costs_no_memory() {
        let mut stream = ReceivedStream::default();
        assert_eq!(stream.see(u64::MAX / 2), SequenceCheck::New);
        assert!(stream.missing.is_empty());
    }
}
