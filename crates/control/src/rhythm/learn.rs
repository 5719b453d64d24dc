//! The interval ι between the messages of a publisher, learned from watching it (CONTROL §9.2).
//!
//! *First.* ι = mean of the first 16 intervals, less one standard error of a Poisson publisher, 1/√n: what is not known
//! counts in its favour. The two longest count as four times the third at most, because one or two silences are not a
//! rhythm. Whether a long interval was a silence or the gap between batches only its return can tell. So if the longest
//! stands out, or nearly all came at once, learning goes on until three of the largest batches would have come; and if
//! all came faster than the class may be, up to 8·16 intervals.
//!
//! *Then.* Mean and ι in force are two numbers:
//! ```text
//! m' = m + (min(x, c·ι) − m)/w                        x: latest interval; c = max(32, 2·(b + 1)), w = max(64, 4·(b + 1)):
//!                                                     batches of b + 1 have gaps of (b + 1)·ι, and m averages four
//! ι' = m' within ι/(1 + y) ..= ι·(1 + y)              y = x·ln 2/1 h: at most by half, or to the double, in an hour
//! ```
//! The mean is not clipped to one side and neither is ι: limiting only its fall lets every chance excess of m raise ι and
//! few bring it down, until a healthy publisher exceeds its "own" rate. An attack is not learned, because y is small
//! while it lasts; slow drift is, down to the class's fastest interval.

use super::gcra::{GcraPlan, NANOSECOND};

/// Times in seconds.
#[derive(Clone, Debug)]
pub(super) enum LearnedInterval {
    /// No message yet.
    Unseen,
    Learning(FirstIntervals),
    Learned {
        /// ι.
        interval: f64,
        mean: f32,
    },
    /// Set by the operator.
    Pinned(f64),
}

/// The first intervals of a publisher, in seconds.
#[derive(Clone, Debug)]
pub(super) struct FirstIntervals {
    /// In falling order.
    pub(super) longest: [f32; 3],
    /// Sum of the others.
    pub(super) rest: f32,
    pub(super) seen: u16,
}

impl LearnedInterval {
    pub(super) fn learned(interval: f64) -> Self {
        Self::Learned { interval, mean: interval as f32 }
    }

    pub(super) fn known(&self) -> Option<f64> {
        match self {
            Self::Unseen | Self::Learning(_) => None,
            Self::Learned { interval, .. } | Self::Pinned(interval) => Some(*interval),
        }
    }

    /// `batch`: b.
    pub(super) fn on_interval(&mut self, plan: &GcraPlan, latest: f64, batch: f32) {
        match self {
            Self::Unseen => *self = Self::Learning(FirstIntervals { longest: [0.0; 3], rest: 0.0, seen: 0 }),
            Self::Pinned(_) => {}
            Self::Learning(first) => {
                first.on_interval(latest);
                if let Some(interval) = first.interval(plan) {
                    *self = Self::learned(interval);
                }
            }
            Self::Learned { interval, mean } => {
                if latest == 0.0 {
                    // One of many that were read at once: y = 0, ι stays.
                    return Self::shorten(mean, batch);
                }
                let sample = latest.min(SILENCE_MAX.max(2.0 * f64::from(batch + 1.0)) * *interval) as f32;
                *mean = (*mean + (sample - *mean) * weight(batch)).max(NANOSECOND);
                // 1/(1 + y) ≥ e^(−y): many small steps move it no faster than one large one.
                let (step, wanted) = (1.0 + latest * SLEW_PER_SEC, f64::from(*mean));
                let slewed =
                    if wanted < *interval { wanted.max(*interval / step) } else { wanted.min(*interval * step) };
                *interval = towards(*interval, slewed).clamp(plan.interval_min, plan.interval_max);
            }
        }
    }

    /// The mean after an interval of nothing.
    pub(super) fn shorten(mean: &mut f32, batch: f32) {
        *mean = (*mean - *mean * weight(batch)).max(NANOSECOND);
    }
}

/// The last `f32` on the way from one to the other: that is what can be kept, and it is never a larger step.
fn towards(from: f64, to: f64) -> f64 {
    let nearest = to as f32;
    let is_beyond = if to < from { f64::from(nearest) < to } else { f64::from(nearest) > to };
    f64::from(match (is_beyond, to < from) {
        (false, _) => nearest,
        (true, true) => nearest.next_up(),
        (true, false) => nearest.next_down(),
    })
}

impl FirstIntervals {
    /// Whether so long an interval separates two batches, as far as one can tell without ι.
    pub(super) fn ends_batch(&self, latest: f64) -> bool {
        2.0 * latest > f64::from(self.longest[0])
    }

    fn on_interval(&mut self, latest: f64) {
        let latest = latest as f32;
        let [first, second, third] = self.longest;
        self.seen = self.seen.saturating_add(1);
        self.rest += latest.min(third);
        self.longest = if latest > first {
            [latest, first, second]
        } else if latest > second {
            [first, latest, second]
        } else {
            [first, second, third.max(latest)]
        };
    }

    /// ι, once enough is known.
    fn interval(&self, plan: &GcraPlan) -> Option<f64> {
        if self.seen < plan.learn_intervals.into() {
            return None;
        }
        let [first, second, third] = self.longest.map(f64::from);
        let most = STANDS_OUT * third;
        let sum = first.min(most) + second.min(most) + third + f64::from(self.rest);
        let mean = sum / f64::from(self.seen);
        let enough = if first > most || mean < AT_ONCE {
            // Three batches: at most 30 000 messages.
            (plan.burst_max as u16 + 1) * BATCHES
        } else if mean < plan.interval_min {
            u16::from(plan.learn_intervals) * PROLONGED
        } else {
            0
        };
        if self.seen < enough {
            return None;
        }
        let favour = 1.0 - 1.0 / libm::sqrt(f64::from(self.seen));
        Some((mean * favour).clamp(plan.interval_min, plan.interval_max))
    }
}

/// The weight of an interval in the mean of a publisher with this b: see [`WEIGHT`].
fn weight(batch: f32) -> f32 {
    if batch <= BATCH_SMALL { WEIGHT } else { 0.25 / (batch + 1.0) }
}

/// A mean over about 64 messages: ± 9 % for a Poisson publisher, and four batches of 16. Over fewer batches than four it
/// would be far from the middle whenever one begins, which is when ι follows it.
const WEIGHT: f32 = 1.0 / 64.0;
const BATCH_SMALL: f32 = 15.0;
/// An interval counts as this many at most: a silence of days makes the mean half as large again, and is forgotten after
/// some hundred messages.
pub(super) const SILENCE_MAX: f64 = 32.0;
/// An interval that is so many times the third longest stands out.
const STANDS_OUT: f64 = 4.0;
/// A mean interval, in seconds, of messages that are a batch, as far as one can tell before there was a gap.
const AT_ONCE: f64 = 0.001;
/// The learning phase is prolonged to so many of the largest batches...
const BATCHES: u16 = 3;
/// ...or to this many times its length.
const PROLONGED: u16 = 8;
/// ln 2 / 3600 s.
const SLEW_PER_SEC: f64 = core::f64::consts::LN_2 / 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_longest_and_the_sum_of_the_others_in_any_order() {
        let mut intervals = [1.0, 2.0, 4.0, 8.0, 16.0];
        for _ in 0..2 {
            for turn in 0..5 {
                intervals.rotate_left(1);
                let mut first = FirstIntervals { longest: [0.0; 3], rest: 0.0, seen: 0 };
                for interval in intervals {
                    first.on_interval(interval);
                }
                assert_eq!((first.longest, first.rest), ([16.0, 8.0, 4.0], 3.0), "{intervals:?}, turn {turn}");
            }
            intervals.reverse();
        }
    }
}
