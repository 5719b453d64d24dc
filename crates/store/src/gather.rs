//! How long to wait for more before a group is written.
//!
//! One sync takes the same time for one batch and for a thousand. While a sync is under way the next group gathers by
//! itself. But producers that wait for their answer come back only after it: the first one back would get a group of its
//! own, and the others would wait for that. So after a group of n the writer waits until half of them are back, for at
//! most half a sync, and never longer than the maximum. Where one producer is alone, nothing waits.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather {
    delay_max: Duration,
    /// Batches that are expected, from the groups before.
    expected: usize,
    last_sync: Duration,
}

impl Gather {
    pub(crate) fn new(delay_max: Duration) -> Self {
        Self { delay_max, expected: 0, last_sync: Duration::ZERO }
    }

    pub(crate) fn on_group(&mut self, batches: usize, sync: Duration) {
        // Follows growth at once and shrinks by halves: producers that left cost a few short waits.
        self.expected = batches.max(self.expected / 2);
        self.last_sync = sync;
    }

    /// How long to wait in all, from the first batch on, with so many batches there; zero to go.
    pub(crate) fn wait(&self, pending: usize) -> Duration {
        if pending * 2 >= self.expected { Duration::ZERO } else { (self.last_sync / 2).min(self.delay_max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_lone_producer_never_waits() {
        let mut gather = Gather::new(5 * MS);
        assert_eq!(gather.wait(1), Duration::ZERO);
        gather.on_group(1, MS);
        assert_eq!(gather.wait(1), Duration::ZERO);
    }

    #[test]
    fn many_producers_are_waited_for_and_not_for_long() {
        let mut gather = Gather::new(5 * MS);
        gather.on_group(100, 4 * MS);
        assert_eq!((gather.wait(1), gather.wait(50)), (2 * MS, Duration::ZERO));
        gather.on_group(100, 400 * MS);
        assert_eq!(gather.wait(1), 5 * MS, "a slow disk does not make it slower");
        for _ in 0..7 {
            gather.on_group(1, MS);
        }
        assert_eq!(gather.wait(1), Duration::ZERO, "those who left are forgotten");
    }
}
