//! Who takes more than its share.
//!
//! Under pressure not everybody who is out of rhythm is to blame: when a machine is slow, or everybody is in a hurry,
//! messages arrive in heaps, and slowing all of them helps nobody. Slowed is whoever takes several times what each
//! would have if all had the same. With few publishers nobody can have several times its share, so the factor grows with
//! their number; who publishes alone stands in nobody's way.
//!
//! Counted in windows of a second; judged by the last one, and by the one that goes on once half of it is over.

use core::time::Duration;

use tidegate_control::Timestamp;

/// What all publishers of a shard sent of late.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    window: u32,
    ends: Timestamp,
    count: u32,
    before: u32,
}

/// What one of them sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    window: u32,
    count: u32,
    before: u32,
}

impl Shares {
    /// Counts a message.
    #[inline]
    pub(crate) fn count(&mut self, share: &mut Share, now: Timestamp) {
        if now >= self.ends {
            self.turn_over(now);
        }
        if share.window != self.window {
            let is_next = share.window.wrapping_add(1) == self.window;
            *share = Share { window: self.window, count: 0, before: if is_next { share.count } else { 0 } };
        }
        self.count = self.count.saturating_add(1);
        share.count = share.count.saturating_add(1);
    }

    #[cold]
    fn turn_over(&mut self, now: Timestamp) {
        // After a silence the window before is one in which nothing came.
        let is_next = now.since(self.ends) < WINDOW;
        self.before = if is_next { self.count } else { 0 };
        self.window = self.window.wrapping_add(if is_next { 1 } else { 2 });
        self.count = 0;
        self.ends = now + WINDOW;
    }

    /// Whether one of so many publishers takes more than its share. `share` was counted just now.
    pub(crate) fn is_exceeded(&self, share: &Share, publishers: usize, now: Timestamp) -> bool {
        let is_over = |own: u32, all: u32| {
            let (own, all, publishers) = (u64::from(own), u64::from(all), publishers as u64);
            own >= MESSAGES_MIN && 2 * own * publishers > all * (publishers + 1).min(2 * SHARE_FACTOR)
        };
        // In the first heap of a window, whoever is read first has everything.
        let is_telling = self.ends.since(now) < WINDOW / 2;
        publishers > 1 && (is_over(share.before, self.before) || (is_telling && is_over(share.count, self.count)))
    }

    /// Whether one of so many publishers has had what it may have of this window while the broker is strained: twice what
    /// each would have if all had the same, by the window before. `share` was counted just now.
    pub(crate) fn is_used_up(&self, share: &Share, publishers: usize) -> bool {
        let (own, all, publishers) = (u64::from(share.count), u64::from(self.before), publishers as u64);
        publishers > 1 && all > 0 && own > MESSAGES_MIN && own * publishers > all * STRAINED_FACTOR
    }
}

const WINDOW: Duration = Duration::from_secs(1);
/// So many times its share is too much.
const SHARE_FACTOR: u64 = 4;
/// So many times its share is left to those of the lowest class while the broker is strained.
const STRAINED_FACTOR: u64 = 2;
/// Fewer messages in a second press nobody, whatever share of all they are.
const MESSAGES_MIN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(1_000_000 + millis)
    }

    /// Messages per second of each; who exceeds its share after three seconds.
    fn exceeding(rates: &[u64]) -> Vec<usize> {
        let (mut shares, mut own) = (Shares::default(), vec![Share::default(); rates.len()]);
        for millis in 0..3000 {
            for (share, rate) in own.iter_mut().zip(rates) {
                let due = millis * rate / 1000 != (millis + 1) * rate / 1000;
                let many = (rate / 1000).max(1);
                (0..if due { many } else { 0 }).for_each(|_| shares.count(share, at(millis)));
            }
        }
        let is_exceeded = |(_, share): &(usize, &Share)| shares.is_exceeded(share, rates.len(), at(2999));
        own.iter().enumerate().filter(is_exceeded).map(|(place, _)| place).collect()
    }

    #[test]
    fn nobody_exceeds_its_share_where_all_are_in_a_hurry() {
        assert_eq!(exceeding(&[1000; 50]), []);
        assert_eq!(exceeding(&[1000, 900, 1300]), []);
        assert_eq!(exceeding(&[5000]), [], "alone");
        assert_eq!(exceeding(&[1, 1, 15]), [], "so few press nobody");
    }

    #[test]
    fn the_flooder_exceeds_it() {
        let mut rates = vec![5; 20];
        rates.push(1000);
        assert_eq!(exceeding(&rates), [20]);
        assert_eq!(exceeding(&[1, 1000]), [1], "even beside a single other");
    }

    #[test]
    fn twice_its_share_is_what_one_gets_while_the_broker_is_strained() {
        let rates = [1000, 200, 100, 100, 100, 5, 5, 5, 5, 5];
        let (mut shares, mut own) = (Shares::default(), [Share::default(); 10]);
        let mut passed = [0; 10];
        for millis in 0..10_000 {
            for (n, rate) in rates.iter().enumerate() {
                if millis * rate / 1000 != (millis + 1) * rate / 1000 {
                    shares.count(&mut own[n], at(millis));
                    passed[n] += u64::from(!shares.is_used_up(&own[n], rates.len()));
                }
            }
        }
        // 1525 a second are some 150 for each; in the first second nobody knows.
        assert!((3500..4000).contains(&passed[0]), "{passed:?}");
        assert_eq!(passed[1..], [2000, 1000, 1000, 1000, 50, 50, 50, 50, 50]);
    }

    #[test]
    fn what_was_sent_before_a_silence_is_forgotten() {
        let (mut shares, mut flooder, mut other) = (Shares::default(), Share::default(), Share::default());
        (0..1000).for_each(|_| shares.count(&mut flooder, at(0)));
        shares.count(&mut other, at(5000));
        shares.count(&mut flooder, at(5001));
        assert!(!shares.is_exceeded(&flooder, 2, at(5001)), "{shares:?} {flooder:?}");
    }
}
