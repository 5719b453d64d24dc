//! When publishers with rhythms of their own send: periodic, jittered, in batches. Times and chance come from a seed, so
//! that every broker gets the same load.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_sim::chance::Stream;

/// The rhythm of one publisher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beat {
    /// Messages a second, in the mean.
    pub(super) per_s: f64,
    /// By which share an interval may be longer or shorter, evenly spread.
    pub(super) jitter: f64,
    /// Messages that are sent at once.
    pub(super) batch: u32,
}

impl Beat {
    /// As regular as a clock.
    pub(super) const fn periodic(per_s: f64) -> Self {
        Self { per_s, jitter: 0.0, batch: 1 }
    }

    fn step_ns(&self) -> f64 {
        1e9 * f64::from(self.batch) / self.per_s
    }
}

/// A message that is due: who sends it, and when it should have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueMessage {
    pub(super) publisher: usize,
    pub(super) at_ns: u64,
}

/// The publishers of one flow, by the time of their next message.
#[derive(Clone, Debug)]
pub(super) struct Beats {
    beat: Beat,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// Messages of the batch under way that are still to be sent.
    rest: Option<(DueMessage, u32)>,
    chance: Stream,
}

impl Beats {
    /// So many publishers, each beginning at some point of its first period.
    pub(super) fn new(count: usize, beat: Beat, start_ns: u64, seed: u64) -> Self {
        let mut beats = Self { beat, next: BinaryHeap::new(), rest: None, chance: Stream::of(seed, "beats") };
        for publisher in 0..count {
            let at_ns = start_ns + (beats.chance.unit() * beat.step_ns()) as u64;
            beats.next.push(Reverse((at_ns, publisher)));
        }
        beats
    }

    /// The next message, if its time has come.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<DueMessage> {
        if let Some((due, left)) = self.rest.take() {
            self.rest = (left > 1).then_some((due, left - 1));
            return Some(due);
        }
        let &Reverse((at_ns, publisher)) = self.next.peek().filter(|Reverse((at_ns, _))| *at_ns <= now_ns)?;
        self.next.pop();
        let stretch = 1.0 + self.beat.jitter * (2.0 * self.chance.unit() - 1.0);
        // From the time at which it was due, not at which it was taken: a late generator does not slow the load.
        let step_ns = (self.beat.step_ns() * stretch).max(1.0) as u64;
        self.next.push(Reverse((at_ns + step_ns, publisher)));
        let due = DueMessage { publisher, at_ns };
        self.rest = (self.beat.batch > 1).then_some((due, self.beat.batch - 1));
        Some(due)
    }

    /// When the next message is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.next.peek().map(|Reverse((at_ns, _))| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(beat: Beat, seconds: u64) -> Vec<DueMessage> {
        let mut beats = Beats::new(3, beat, 0, 7);
        std::iter::from_fn(|| beats.take(seconds * 1_000_000_000)).collect()
    }

    #[test]
    fn everybody_sends_at_its_rate() {
        for (jitter, batch) in [(0.0, 1), (0.3, 1), (0.3, 5)] {
            let all = sent(Beat { per_s: 10.0, jitter, batch }, 100);
            for publisher in 0..3 {
                let count = all.iter().filter(|due| due.publisher == publisher).count();
                assert!((950..=1050).contains(&count), "{count} with {jitter} and {batch}");
            }
        }
    }

    #[test]
    fn a_period_is_exact_and_a_batch_has_one_time() {
        let periodic: Vec<u64> =
            sent(Beat::periodic(4.0), 5).iter().filter(|due| due.publisher == 1).map(|due| due.at_ns).collect();
        assert!(periodic.windows(2).all(|pair| pair[1] - pair[0] == 250_000_000));
        let batches = sent(Beat { per_s: 4.0, jitter: 0.0, batch: 4 }, 5);
        assert!(batches.chunks(4).all(|batch| batch.iter().all(|due| *due == batch[0])));
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let all: Vec<u64> = sent(Beat { per_s: 10.0, jitter: 0.3, batch: 1 }, 60)
            .iter()
            .filter(|due| due.publisher == 0)
            .map(|due| due.at_ns)
            .collect();
        assert!(all.windows(2).all(|pair| (70_000_000..=130_000_000).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn a_late_generator_does_not_slow_the_load() {
        let mut beats = Beats::new(1, Beat::periodic(10.0), 0, 7);
        let first = beats.due_ns().unwrap();
        assert_eq!(beats.take(first.saturating_sub(1)), None);
        let all: Vec<u64> = std::iter::from_fn(|| beats.take(first + 1_000_000_000)).map(|due| due.at_ns).collect();
        assert_eq!(all.len(), 11);
    }
}
