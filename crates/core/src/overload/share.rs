//! What each publisher sends: of late, and compared with the others.
//!
//! *Share.* Under pressure not everybody who is out of rhythm is to blame: when a machine is slow, or everybody is in a
//! hurry, messages arrive in heaps, and slowing all of them helps nobody. Slowed is whoever takes several times what each
//! would have if all had the same. With few publishers nobody can have several times its share, so the factor grows with
//! their number; who publishes alone stands in nobody's way. Counted by seconds; judged by the last one, and by the one
//! that goes on once half of it is over.
//!
//! *Rate.* Messages per second, averaged over the last ten seconds or so: the counts of seconds with weights that fall by e
//! in ten of them. Somebody who sends 200 messages every five seconds has a rate of about 40.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::compact;

/// What all publishers of a shard sent of late.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// The second that goes on.
    second: u32,
    count: u32,
    before: u32,
}

/// What one of them sent: ten bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// The second of its last message, modulo 2¹⁶.
    second: [u8; 2],
    /// Messages in it, and in the second before.
    count: [u8; 3],
    before: [u8; 2],
    /// Mean of the seconds before, less than it should be by what is missing of its first seconds.
    mean: [u8; 2],
    /// Seconds since it began to publish.
    age: u8,
}

impl Shares {
    /// A message comes: whether it is its publisher's first in this second.
    #[inline]
    pub(crate) fn begin(&mut self, share: &mut Share, now: Timestamp) -> bool {
        let second = second_of(now);
        if second != self.second {
            // A second in which nothing came is one, too. So is a clock that went back.
            self.before = if second == self.second.wrapping_add(1) { self.count } else { 0 };
            (self.second, self.count) = (second, 0);
        }
        let is_first = share.second != (second as u16).to_le_bytes();
        if is_first {
            share.go_on(second);
        }
        is_first
    }

    /// Counts it.
    #[inline]
    pub(crate) fn count(&mut self, share: &mut Share) {
        self.count = self.count.saturating_add(1);
        share.set_count(share.count().saturating_add(1));
    }

    /// The interval of somebody who sends so many times as much as the others do on average.
    #[cold]
    pub(crate) fn fair(&self, share: &Share, publishers: usize) -> Duration {
        let (all, own) =
            if self.before > self.count { (self.before, share.before()) } else { (self.count, share.count()) };
        let others = publishers.saturating_sub(1).max(1) as f64;
        let fair = f64::from(all.saturating_sub(own)) / others * SHARE_FACTOR as f64;
        Duration::from_secs_f64(1.0 / fair.max(MESSAGES_MIN as f64))
    }

    /// Whether one of so many publishers takes more than its share. `share` was counted just now.
    pub(crate) fn is_exceeded(&self, share: &Share, publishers: usize, now: Timestamp) -> bool {
        let is_over = |own: u32, all: u32| {
            let (own, all, publishers) = (u64::from(own), u64::from(all), publishers as u64);
            own >= MESSAGES_MIN && 2 * own * publishers > all * (publishers + 1).min(2 * SHARE_FACTOR)
        };
        // In the first heap of a second, whoever is read first has everything.
        let is_telling = 2 * part_of(now) > SECOND;
        publishers > 1 && (is_over(share.before(), self.before) || (is_telling && is_over(share.count(), self.count)))
    }

    /// Whether one of so many publishers has had what it may have of this window while the broker is strained: twice what
    /// each would have if all had the same, by the window before. `share` was counted just now.
    pub(crate) fn is_used_up(&self, share: &Share, publishers: usize) -> bool {
        let (own, all, publishers) = (u64::from(share.count()), u64::from(self.before), publishers as u64);
        publishers > 1 && all > 0 && own > MESSAGES_MIN && own * publishers > all * STRAINED_FACTOR
    }
}

impl Share {
    /// Messages per second over the last ten seconds, less if it began to publish later.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        let mut share = *self;
        let second = second_of(now);
        if share.second != (second as u16).to_le_bytes() {
            share.go_on(second);
        }
        let part = part_of(now) as f32 / SECOND as f32;
        let sum = share.mean() * fade(part) + share.count() as f32 * (1.0 - FADE);
        // What was never watched is not missing; but nobody's rate is told from less than a second.
        f64::from(sum / (1.0 - fade((f32::from(share.age) + part).max(1.0))))
    }

    /// Since when it publishes, without a silence of a minute; four minutes at most.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_secs(self.age.into())
    }

    /// Its seconds up to this one are over.
    #[cold]
    fn go_on(&mut self, second: u32) {
        let passed = (second as u16).wrapping_sub(u16::from_le_bytes(self.second));
        self.second = (second as u16).to_le_bytes();
        if self.age == 0 && self.count() == 0 || passed > SILENCE_MAX {
            *self = Self { second: self.second, ..Self::default() };
            return;
        }
        let mean = (self.mean() * FADE + self.count() as f32 * (1.0 - FADE)) * fade(f32::from(passed - 1));
        let before = if passed == 1 { self.count() } else { 0 };
        self.mean = compact::close(mean).to_le_bytes();
        self.before = compact::close(before as f32).to_le_bytes();
        self.age = self.age.saturating_add(passed.min(255) as u8);
        self.set_count(0);
    }

    fn count(&self) -> u32 {
        let [a, b, c] = self.count;
        u32::from_le_bytes([a, b, c, 0])
    }

    fn set_count(&mut self, count: u32) {
        let [a, b, c, _] = count.min(COUNT_MAX).to_le_bytes();
        self.count = [a, b, c];
    }

    fn before(&self) -> u32 {
        compact::open(u16::from_le_bytes(self.before)) as u32
    }

    fn mean(&self) -> f32 {
        compact::open(u16::from_le_bytes(self.mean))
    }
}

/// What is left of a second's weight so many seconds later.
fn fade(seconds: f32) -> f32 {
    libm::expf(-seconds / RATE_WINDOW.as_secs() as f32)
}

fn second_of(now: Timestamp) -> u32 {
    (now.as_nanos() / SECOND) as u32
}

/// Nanoseconds of the second that goes on.
fn part_of(now: Timestamp) -> u64 {
    now.as_nanos() % SECOND
}

const SECOND: u64 = 1_000_000_000;
/// Over how long a rate is averaged.
pub const RATE_WINDOW: Duration = Duration::from_secs(10);
/// e^(−1/10).
const FADE: f32 = 0.904_837_4;
/// After so many silent seconds it is as if it had just begun.
const SILENCE_MAX: u16 = 60;
const COUNT_MAX: u32 = (1 << 24) - 1;
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

    fn count(shares: &mut Shares, share: &mut Share, now: Timestamp) {
        shares.begin(share, now);
        shares.count(share);
    }

    /// Messages per second of each; who exceeds its share after three seconds.
    fn exceeding(rates: &[u64]) -> Vec<usize> {
        let (mut shares, mut own) = (Shares::default(), vec![Share::default(); rates.len()]);
        for millis in 0..3000 {
            for (share, rate) in own.iter_mut().zip(rates) {
                let due = millis * rate / 1000 != (millis + 1) * rate / 1000;
                let many = (rate / 1000).max(1);
                (0..if due { many } else { 0 }).for_each(|_| count(&mut shares, share, at(millis)));
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
                    count(&mut shares, &mut own[n], at(millis));
                    passed[n] += u64::from(!shares.is_used_up(&own[n], rates.len()));
                }
            }
        }
        // 1525 a second are some 150 for each; in the first second nobody knows.
        assert!((3500..4000).contains(&passed[0]), "{passed:?}");
        assert_eq!(passed[1..], [2000, 1000, 1000, 1000, 50, 50, 50, 50, 50]);
    }

    #[test]
    fn a_fair_rate_is_four_times_that_of_the_others() {
        let (mut shares, mut flooder, mut others) = (Shares::default(), Share::default(), vec![Share::default(); 20]);
        for millis in 0..1000 {
            count(&mut shares, &mut flooder, at(millis));
            let due = others.iter_mut().filter(|_| millis % 100 == 0);
            due.for_each(|other| count(&mut shares, other, at(millis)));
        }
        assert_eq!(shares.fair(&flooder, 21), Duration::from_millis(25), "they send ten a second each");
        assert_eq!(shares.fair(&flooder, 1), Duration::from_secs(1) / 800);
        assert_eq!(Shares::default().fair(&flooder, 0), Duration::from_secs(1) / 16);
    }

    #[test]
    fn what_was_sent_before_a_silence_is_forgotten() {
        let (mut shares, mut flooder, mut other) = (Shares::default(), Share::default(), Share::default());
        (0..1000).for_each(|_| count(&mut shares, &mut flooder, at(0)));
        count(&mut shares, &mut other, at(5000));
        count(&mut shares, &mut flooder, at(5001));
        assert!(!shares.is_exceeded(&flooder, 2, at(5001)), "{shares:?} {flooder:?}");
    }

    /// What is shown of somebody who sends `batch` messages every so many milliseconds, least and most, from `from` on.
    fn shown(batch: u32, every: u64, from: u64, to: u64) -> (f64, f64) {
        let (mut shares, mut share) = (Shares::default(), Share::default());
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for millis in (0..to).step_by(10) {
            (0..if millis % every == 0 { batch } else { 0 }).for_each(|_| count(&mut shares, &mut share, at(millis)));
            if millis >= from {
                let rate = share.rate(at(millis));
                (least, most) = (least.min(rate), most.max(rate));
            }
        }
        (least, most)
    }

    #[test]
    fn a_rate_is_that_of_the_last_ten_seconds_however_the_messages_are_heaped() {
        let within = |(least, most): (f64, f64), from: f64, to: f64| {
            assert!(least >= from && most <= to, "{least} to {most}");
        };
        within(shown(1, 100, 20_000, 60_000), 9.0, 11.0);
        within(shown(10, 1000, 20_000, 60_000), 9.0, 11.5);
        within(shown(200, 5000, 30_000, 90_000), 28.0, 55.0);
        within(shown(1, 100, 2000, 4000), 8.0, 13.0);
        within(shown(20, 10, 1500, 4000), 1900.0, 2300.0);
    }

    #[test]
    fn a_rate_fades_and_a_new_start_is_one() {
        let (mut shares, mut share) = (Shares::default(), Share::default());
        (0..30_000).step_by(10).for_each(|millis| count(&mut shares, &mut share, at(millis)));
        let rate = |share: &Share, millis| share.rate(at(millis));
        assert!((95.0..105.0).contains(&rate(&share, 30_000)), "{}", rate(&share, 30_000));
        assert!((33.0..41.0).contains(&rate(&share, 40_000)), "{}", rate(&share, 40_000));
        assert!(rate(&share, 89_000) < 0.5);
        assert_eq!(rate(&share, 200_000), 0.0);
        (200_000..202_000).step_by(10).for_each(|millis| count(&mut shares, &mut share, at(millis)));
        assert!((95.0..110.0).contains(&rate(&share, 202_000)), "{}", rate(&share, 202_000));
        assert_eq!(Share::default().rate(at(0)), 0.0);
    }
}
