//! Windowed minimum of the response time: what an answer takes when nobody else is asking.
//!
//! The window is the longer of 64 samples and 10 minutes, so that neither a client that asks every 50 ms nor one that
//! asks every hour forgets the quiet times. Two halves are kept, the one being filled and the full one before it, so
//! the window that is really covered has between one and two times that length. 16 bytes instead of a ring of samples.
//!
//! Seconds are kept modulo 2³², 136 years, and compared by their signed difference. A half that began in the future,
//! because the clock went back, begins now: it rotates a window later at most.

use crate::time::Timestamp;

const SAMPLES: u32 = 64;
const SPAN_SECS: i32 = 600;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowedMinimum {
    /// Minimum of the half being filled and of the one before; infinite while empty. Seconds.
    filling: f32,
    full: f32,
    samples: u32,
    /// Start of the half being filled, in whole seconds of the caller's clock, modulo 2³².
    since_secs: u32,
}

impl WindowedMinimum {
    pub(crate) const EMPTY: Self = Self { filling: f32::INFINITY, full: f32::INFINITY, samples: 0, since_secs: 0 };

    pub(crate) fn on_sample(&mut self, now: Timestamp, sample: f64) {
        let now_secs = (now.as_nanos() / 1_000_000_000) as u32;
        let age_secs = now_secs.wrapping_sub(self.since_secs).cast_signed();
        if self.samples == 0 || age_secs < 0 {
            self.since_secs = now_secs;
        } else if self.samples >= SAMPLES && age_secs >= SPAN_SECS {
            *self = Self { filling: f32::INFINITY, full: self.filling, samples: 0, since_secs: now_secs };
        }
        self.samples = self.samples.saturating_add(1);
        self.filling = self.filling.min(sample as f32);
    }

    /// The minimum in seconds, unless there was no sample yet.
    pub(crate) fn value(&self) -> Option<f64> {
        let value = self.filling.min(self.full);
        value.is_finite().then(|| f64::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn the_minimum_stays_for_a_window_and_leaves_after_two() {
        let mut minimum = WindowedMinimum::EMPTY;
        assert_eq!(minimum.value(), None);
        minimum.on_sample(at(0), 0.125);
        for second in 1..=1300 {
            minimum.on_sample(at(second), 0.5);
            let expected = if second < 1200 { 0.125 } else { 0.5 };
            assert_eq!(minimum.value(), Some(expected), "after {second} s");
        }
    }

    /// Whether 64 samples and 601 s from `start` on are enough to rotate.
    fn rotates(minimum: &mut WindowedMinimum, start: u64) -> bool {
        for second in 0..=2 * 601 {
            minimum.on_sample(at(start + second), 0.5);
        }
        minimum.value() == Some(0.5)
    }

    #[test]
    fn the_window_rotates_after_any_jump_of_the_clock() {
        let (century, wrap, end) = (3_000_000_000, u64::from(u32::MAX), u64::MAX / 1_000_000_000 - 2000);
        for (before, after) in [(century, 100), (wrap - 5, wrap + 5), (end, 0), (0, end), (wrap - 300, wrap - 300)] {
            let mut minimum = WindowedMinimum::EMPTY;
            minimum.on_sample(at(before), 0.125);
            assert!(rotates(&mut minimum, after), "from {before} to {after} s");
        }
    }

    #[test]
    fn a_rare_client_keeps_64_samples() {
        let mut minimum = WindowedMinimum::EMPTY;
        minimum.on_sample(at(0), 0.125);
        for hour in 1..64 {
            minimum.on_sample(at(hour * 3600), 0.5);
        }
        assert_eq!(minimum.value(), Some(0.125));
    }
}
