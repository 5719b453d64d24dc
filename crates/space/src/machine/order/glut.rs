//! A glut: more is asked than can be answered in time, by clients that keep no appointments.
//!
//! ```text
//! one in 64 would be late, or was            a glut: the queue is as long as patience, and nobody gains by that
//! in a glut                                  who would wait for delay_max, or a 16th of its patience, is refused at once
//! one in 32 is refused at most for long, or nobody
//!   for five seconds                         over: a burst may wait again for as long as its clients do
//! ```
//! A queue that is full of those who will hardly be in time serves as many as a short one, each of them later. It is of use
//! only to a burst, which ends, and to a crowd of which everybody asks one thing after the other: nobody of these is late, so
//! there is no glut. Shares are counted by arrivals and not by time: a small host has few of them.

use std::time::Duration;

use tidegate_control::Timestamp;

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It waits.
    Room,
    /// It would have been late, or waited in vain.
    Late,
    /// It was refused because of the glut.
    Refusal,
}

#[derive(Debug, Default)]
pub(super) struct Glut {
    /// The share of late that was not let in, over few arrivals, and over many.
    share: f64,
    lasting: f64,
    is_on: bool,
    refused: Timestamp,
    /// Those who were told when to come back: not all at the same time.
    told: u32,
}

impl Glut {
    pub(super) fn on_arrival(&mut self, now: Timestamp, met: Met) {
        self.forget(now);
        let missed = f64::from(u8::from(met != Met::Room));
        self.share += (missed - self.share) / ARRIVALS;
        self.lasting += (missed - self.lasting) / ARRIVALS_LASTING;
        if met != Met::Room {
            self.refused = now;
        }
        if self.is_on {
            self.is_on = self.lasting >= OVER_BELOW;
        } else if met == Met::Late && self.share >= BEGINS_AT {
            // It lasts for some thousand arrivals at least: what waits has to go first, and clients ask in rounds.
            (self.is_on, self.lasting) = (true, self.share.max(2.0 * OVER_BELOW));
        }
    }

    /// How long a request with this patience may wait; none if nobody is refused for that.
    pub(super) fn wait_max(&mut self, now: Timestamp, delay_max: Duration, patience: Duration) -> Option<Duration> {
        self.forget(now);
        self.is_on.then(|| delay_max.max(patience / PATIENCE_PART))
    }

    /// When whoever was refused for it may come back: after half of its patience, or up to all of it, one behind the other.
    pub(super) fn retry_after(&mut self, patience: Duration) -> Duration {
        self.told = self.told.wrapping_add(GOLDEN);
        patience.mul_f64(0.5 + 0.5 * f64::from(self.told) / f64::from(u32::MAX))
    }

    fn forget(&mut self, now: Timestamp) {
        if now.since(self.refused) > QUIET {
            (self.share, self.lasting, self.is_on) = (0.0, 0.0, false);
        }
    }
}

/// Arrivals over which the share is taken.
const ARRIVALS: f64 = 256.0;
const ARRIVALS_LASTING: f64 = 4096.0;
/// Of 2³², so that those who are told one after the other are spread evenly.
const GOLDEN: u32 = 0x9E37_79B9;
const BEGINS_AT: f64 = 1.0 / 64.0;
const OVER_BELOW: f64 = 1.0 / 32.0;
/// Without a refusal for so long, there is no glut.
const QUIET: Duration = Duration::from_secs(5);
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

    #[test]
    fn it_ends_when_few_are_refused_or_nobody_for_a_while() {
        let glut = || {
            let mut glut = Glut::default();
            (0..100).for_each(|number| glut.on_arrival(at(number), Met::Late));
            glut
        };
        let mut lasting = glut();
        (100..2000).for_each(|number| {
            lasting.on_arrival(at(number), if number % 3 == 0 { Met::Refusal } else { Met::Room });
        });
        assert_eq!(lasting.wait_max(at(2000), TARGET, PATIENCE), Some(PATIENCE / 16));
        let mut calm = glut();
        let turn = |number| if number % 100 == 0 { Met::Refusal } else { Met::Room };
        (100..2000).for_each(|number| calm.on_arrival(at(number), turn(number)));
        assert!(calm.wait_max(at(2000), TARGET, PATIENCE).is_some(), "clients may come in rounds");
        (2000..20_000).for_each(|number| calm.on_arrival(at(number), turn(number)));
        assert_eq!(calm.wait_max(at(20_000), TARGET, PATIENCE), None);
        let mut silent = glut();
        assert!(silent.wait_max(at(5000), TARGET, PATIENCE).is_some());
        assert_eq!(silent.wait_max(at(5200), TARGET, PATIENCE), None);
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
