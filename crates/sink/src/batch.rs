//! How many messages go together, and when.
//!
//! ```text
//! ready    as many as the batch may have, or their bytes, or the oldest has waited its time
//! taken    the next batch may be twice as large, up to what is configured
//! failed   it may be half as large; nothing goes for as long as the receiver says, else U(0, 100 ms · 2ⁿ), a minute at most
//! outage   the first batch after it has 16 messages
//! rate     what the operator has set (GCRA): a batch of n messages is n of them
//! ```
//! One batch is under way at a time: a receiver that takes a second for each is asked once a second.
//!
//! Told: [`BatchPace::on_sent`], [`BatchPace::on_taken`], [`BatchPace::on_failed`], [`BatchPace::on_refused`]; asked:
//! [`BatchPace::verdict`].

use std::time::Duration;

use tidegate_client::session::reconnect::Reconnect;
use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::rand_core::Rng;

use crate::limits::{
    BATCH_BYTES, BATCH_FIRST, BATCH_MESSAGES, BATCH_MESSAGES_MAX, BATCH_WAIT, PAUSE_MAX, RATE_BURST, SAME_BATCH_TRIES,
};

/// What the operator says about batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Messages of one batch at most.
    pub messages: usize,
    /// Bytes of one batch at most; a larger message goes alone.
    pub bytes: usize,
    /// How long a message may wait for others.
    pub wait: Duration,
    /// Messages a second at most.
    pub rate_max: Option<u32>,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { messages: BATCH_MESSAGES, bytes: BATCH_BYTES, wait: BATCH_WAIT, rate_max: None }
    }
}

/// Whether a batch goes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchVerdict {
    /// So many messages go now.
    Go(usize),
    /// Nothing goes before then.
    At(Timestamp),
    /// There is nothing.
    Empty,
}

/// The state of it.
#[derive(Clone, Debug)]
pub struct BatchPace {
    config: BatchConfig,
    /// Messages that the next batch may have.
    size: usize,
    /// Nothing goes before.
    pause_until: Timestamp,
    /// When the next is due by the rate.
    due: Timestamp,
    reconnect: Reconnect,
    /// Failures in a row.
    failures: u32,
}

impl BatchPace {
    /// Nothing was sent yet.
    pub fn new(config: BatchConfig) -> Self {
        let messages = config.messages.clamp(1, BATCH_MESSAGES_MAX);
        Self {
            config: BatchConfig { messages, ..config },
            size: messages.min(BATCH_FIRST),
            pause_until: Timestamp::ZERO,
            due: Timestamp::ZERO,
            reconnect: Reconnect::default(),
            failures: 0,
        }
    }

    /// Messages that the next batch may have.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Failures since something was taken.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Until when nothing goes; none if that is over.
    pub fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.pause_until).filter(|until| *until > now)
    }

    /// What to do with what is held: its sizes, oldest first, and since when the oldest is there.
    pub fn verdict(
        &self,
        held: impl Iterator<Item = usize>,
        oldest: Option<Timestamp>,
        now: Timestamp,
    ) -> BatchVerdict {
        let Some(oldest) = oldest else { return BatchVerdict::Empty };
        let (mut count, mut bytes, mut is_full) = (0, 0_usize, false);
        for size in held {
            bytes = bytes.saturating_add(size);
            if count > 0 && bytes > self.config.bytes {
                is_full = true;
                break;
            }
            count += 1;
            if count >= self.size {
                is_full = true;
                break;
            }
        }
        if count == 0 {
            return BatchVerdict::Empty;
        }
        let earliest = self.pause_until.max(self.due);
        let at = if is_full { earliest } else { earliest.max(oldest + self.config.wait) };
        if at > now { BatchVerdict::At(at) } else { BatchVerdict::Go(count) }
    }

    /// So many messages went.
    pub fn on_sent(&mut self, count: usize, now: Timestamp) {
        let Some(rate) = self.config.rate_max else { return };
        let interval = Duration::from_secs(1) / rate.max(1);
        let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(RATE_BURST.as_nanos() as u64));
        self.due = self.due.max(earliest) + interval.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// A batch was taken.
    pub fn on_taken(&mut self) {
        (self.reconnect, self.failures) = (Reconnect::default(), 0);
        self.size = (self.size * 2).min(self.config.messages);
    }

    /// A batch was not taken now. Whether the same batch is to go again, rather than a smaller one.
    pub fn on_failed<R: Rng + ?Sized>(&mut self, after: Option<Duration>, now: Timestamp, rng: &mut R) -> bool {
        self.pause(after, now, rng);
        let is_same = self.failures < SAME_BATCH_TRIES;
        self.failures = self.failures.saturating_add(1);
        if !is_same {
            // What is too much for a receiver in trouble is less each time, and after the trouble begins small.
            self.size = (self.size / 2).clamp(1, BATCH_FIRST.max(1));
        }
        is_same
    }

    /// Nothing for a while.
    pub fn pause<R: Rng + ?Sized>(&mut self, after: Option<Duration>, now: Timestamp, rng: &mut R) {
        let hints = Hints { retry_after: after.map(|after| after.min(PAUSE_MAX)), ..Hints::default() };
        self.pause_until = now + self.reconnect.on_failure(now, Some(&hints), rng);
    }

    /// Something in a batch of so many is not wanted: the next one has half of them, so that it is found.
    pub fn on_refused(&mut self, count: usize) {
        self.size = (count / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn pace(messages: usize, bytes: usize, rate_max: Option<u32>) -> BatchPace {
        BatchPace::new(BatchConfig { messages, bytes, wait: Duration::from_millis(50), rate_max })
    }

    #[test]
    fn a_batch_goes_when_it_is_full_by_number_or_bytes_or_when_the_oldest_has_waited() {
        let pace = pace(4, 100, None);
        let verdict = |sizes: &[usize], now| pace.verdict(sizes.iter().copied(), Some(at(10)), at(now));
        assert_eq!(verdict(&[1; 3], 20), BatchVerdict::At(at(60)));
        assert_eq!(verdict(&[1; 3], 60), BatchVerdict::Go(3));
        assert_eq!(verdict(&[1; 9], 10), BatchVerdict::Go(4));
        assert_eq!(verdict(&[60, 60, 1], 10), BatchVerdict::Go(1));
        assert_eq!(verdict(&[500], 60), BatchVerdict::Go(1), "one that is too large goes alone");
        assert_eq!(pace.verdict([].into_iter(), None, at(99)), BatchVerdict::Empty);
    }

    #[test]
    fn after_failures_batches_are_smaller_and_grow_again_when_one_is_taken() {
        let (mut pace, mut rng) = (pace(1000, 1 << 20, None), Xoshiro256PlusPlus::seed_from_u64(3));
        for _ in 0..10 {
            pace.on_taken();
        }
        assert_eq!(pace.size(), 1000);
        assert!(pace.on_failed(None, at(0), &mut rng) && pace.on_failed(None, at(0), &mut rng), "the same again");
        assert!(!pace.on_failed(Some(Duration::from_secs(7)), at(1000), &mut rng));
        assert_eq!(pace.size(), BATCH_FIRST);
        let until = pace.paused_until(at(1000)).unwrap();
        assert!(until >= at(8000) && until <= at(9000), "{until:?}");
        assert!(
            matches!(pace.verdict([1; 99].into_iter(), Some(at(0)), at(2000)), BatchVerdict::At(when) if when == until)
        );
        pace.on_taken();
        assert_eq!((pace.size(), pace.failures()), (2 * BATCH_FIRST, 0));
        pace.on_refused(9);
        assert_eq!(pace.size(), 4);
    }

    proptest! {
        #[test]
        fn no_batch_is_larger_than_is_said_and_no_rate_is_exceeded(
            messages in 1..50_usize, bytes in 1..500_usize, rate in 1..200_u32, sizes in prop::collection::vec(1..120_usize, 1..300),
        ) {
            let (mut pace, mut now, mut rest, mut sent) = (pace(messages, bytes, Some(rate)), at(1000), &sizes[..], 0);
            let begun = now;
            while !rest.is_empty() {
                match pace.verdict(rest.iter().copied(), Some(begun), now) {
                    BatchVerdict::Go(count) => {
                        prop_assert!(count >= 1 && count <= messages);
                        prop_assert!(count == 1 || rest[..count].iter().sum::<usize>() <= bytes);
                        pace.on_sent(count, now);
                        pace.on_taken();
                        sent += count;
                        rest = &rest[count..];
                        // A batch beyond the rate is paid for by the time after it.
                        let allowed = now.since(begun).as_secs_f64() * f64::from(rate);
                        let burst = (RATE_BURST.as_secs_f64() * f64::from(rate)).max(1.0) + messages as f64;
                        prop_assert!(sent as f64 <= allowed + burst + 1.0, "{sent} in {allowed}");
                    }
                    BatchVerdict::At(when) => {
                        prop_assert!(when > now);
                        now = when;
                    }
                    BatchVerdict::Empty => prop_assert!(false, "there is something"),
                }
            }
        }
    }
}
