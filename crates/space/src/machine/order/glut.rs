//! A glut: more is asked than can be answered in time, by clients that keep no appointments.
//!
//! ```text
//! one in 64 would be late, or was     a glut: the queue is as long as patience, and nobody gains by that
//! in a glut                           who would wait for delay_max, or a 16th of its patience, is refused at once
//! after five seconds                  over: a burst may wait again for as long as its clients do
//! late ones again within a minute     a glut of twice the time, up to a minute
//! ```
//! A queue that is full of those who will hardly be in time serves as many as a short one, each of them later. It is of use
//! only to a burst, which ends, and to a crowd of which everybody asks one thing after the other: nobody of these is late, so
//! there is no glut. A glut ends by the clock and not by who is refused: those whom it refuses itself must not keep it alive.
//! The share is counted by arrivals and not by time: a small host has few of them.

use std::time::Duration;

use tidegate_control::Timestamp;

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It waits, or was refused because of the glut.
    Room,
    /// It would have been late, or waited in vain.
    Late,
}

#[derive(Debug, Default)]
pub(super) struct Glut {
    /// The share of late ones among the last arrivals.
    share: f64,
    /// When the last glut ends, or ended, and for how long it lasts.
    until: Timestamp,
    lasts: Duration,
    /// Those who were told when to come back: not all at the same time.
    told: u32,
}

impl Glut {
    pub(super) fn on_arrival(&mut self, now: Timestamp, met: Met) {
        self.share += (f64::from(u8::from(met == Met::Late)) - self.share) / ARRIVALS;
        if met == Met::Late && self.share >= BEGINS_AT && !self.is_on(now) {
            let is_back = self.lasts > Duration::ZERO && now.since(self.until) <= BACK_WITHIN;
            self.lasts = if is_back { (self.lasts * 2).min(LASTS_MAX) } else { LASTS };
            self.until = now + self.lasts;
            // Who is late next is late in spite of it, or after it.
            self.share = 0.0;
        }
    }

    fn is_on(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// How long a request with this patience may wait without being part of a glut.
    pub(super) fn short_wait(delay_max: Duration, patience: Duration) -> Duration {
        delay_max.max(patience / PATIENCE_PART)
    }

    /// How long a request with this patience may wait; none if nobody is refused for that.
    pub(super) fn wait_max(&self, now: Timestamp, delay_max: Duration, patience: Duration) -> Option<Duration> {
        self.is_on(now).then(|| Self::short_wait(delay_max, patience))
    }

    /// When whoever was refused for it may come back: after half of its patience, or up to all of it, one behind the other.
    pub(super) fn retry_after(&mut self, patience: Duration) -> Duration {
        self.told = self.told.wrapping_add(GOLDEN);
        patience.mul_f64(0.5 + 0.5 * f64::from(self.told) / f64::from(u32::MAX))
    }
}

/// Arrivals over which the share is taken.
const ARRIVALS: f64 = 256.0;
/// Of 2³², so that those who are told one after the other are spread evenly.
const GOLDEN: u32 = 0x9E37_79B9;
const BEGINS_AT: f64 = 1.0 / 64.0;
/// A first glut.
const LASTS: Duration = Duration::from_secs(5);
const LASTS_MAX: Duration = Duration::from_secs(60);
/// One that begins so soon after another is the same trouble.
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// The part of its patience for which a request may wait in a glut.
const PATIENCE_PART: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_few_late_ones_among_many_are_no_glut_and_one_in_fifty_is() {
        for (every, is_glut) in [(100, false), (50, true), (3, true)] {
            let mut glut = Glut::default();
            for number in 0..1000 {
                glut.on_arrival(at(number), if number % every == 0 { Met::Late } else { Met::Room });
            }
            assert_eq!(glut.wait_max(at(1000), TARGET, PATIENCE).is_some(), is_glut, "one in {every}");
        }
    }

    fn late_ones(glut: &mut Glut, from: u64) {
        (0..20).for_each(|number| glut.on_arrival(at(from + number), Met::Late));
    }

    #[test]
    fn it_ends_five_seconds_after_it_began_whoever_is_refused_meanwhile() {
        let mut glut = Glut::default();
        late_ones(&mut glut, 0);
        assert_eq!(glut.wait_max(at(20), TARGET, PATIENCE), Some(PATIENCE / 16));
        (20..4900).for_each(|number| glut.on_arrival(at(number), Met::Room));
        assert!(glut.wait_max(at(4900), TARGET, PATIENCE).is_some());
        assert_eq!(glut.wait_max(at(5100), TARGET, PATIENCE), None);
    }

    #[test]
    fn trouble_that_comes_back_is_met_for_twice_as_long_and_at_most_a_minute() {
        let mut glut = Glut::default();
        let mut now = 0;
        for lasts in [5, 10, 20, 40, 60, 60] {
            late_ones(&mut glut, now);
            assert!(glut.wait_max(at(now + lasts * 1000 - 100), TARGET, PATIENCE).is_some(), "{lasts} s");
            now += lasts * 1000 + 100;
            assert_eq!(glut.wait_max(at(now), TARGET, PATIENCE), None, "{lasts} s");
        }
        // After a quiet while it is another trouble.
        now += 61_000;
        late_ones(&mut glut, now);
        assert_eq!(glut.wait_max(at(now + 5100), TARGET, PATIENCE), None);
    }

    #[test]
    fn those_who_are_refused_do_not_come_back_together() {
        let mut glut = Glut::default();
        let mut times: Vec<Duration> = (0..100).map(|_| glut.retry_after(PATIENCE)).collect();
        assert!(times.iter().all(|time| (PATIENCE / 2..=PATIENCE).contains(time)));
        times.sort_unstable();
        let widest = times.windows(2).map(|pair| pair[1].abs_diff(pair[0])).max().unwrap();
        assert!(widest < Duration::from_millis(30), "{widest:?}: a hundred within a second");
    }

    #[test]
    fn patience_that_is_said_counts() {
        let mut glut = Glut::default();
        (0..100).for_each(|number| glut.on_arrival(at(number), Met::Late));
        assert_eq!(glut.wait_max(at(100), TARGET, Duration::from_secs(1)), Some(TARGET));
        assert_eq!(glut.wait_max(at(100), TARGET, Duration::from_secs(16)), Some(Duration::from_secs(1)));
    }
}
