//! The only notion of time in this crate.
//!
//! A [`Timestamp`] is a number of nanoseconds since an origin that the caller chooses: the start of the process, or zero
//! of a simulation. It must come from a monotonic clock; if it goes backwards all the same, differences saturate at zero
//! and nothing worse happens. Durations enter and leave the public functions as [`Duration`]; in between the formulas
//! work on seconds as `f64`, and the two conversions below are the only border between those worlds. They are total: no
//! `f64` whatsoever makes them panic, and what comes out is never negative and never more than [`DURATION_MAX`].

use core::ops::Add;
use core::time::Duration;

/// The longest time that this crate ever returns: 2⁶⁴ − 1 nanoseconds, about 584 years. Paper 003 without a maximum asks
/// for e¹⁰⁰ seconds; this is what it gets.
pub const DURATION_MAX: Duration = Duration::from_nanos(u64::MAX);

/// A point in time: nanoseconds since an origin chosen by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The end of time; also what an overflowing addition gives.
    pub const MAX: Self = Self(u64::MAX);

    /// A timestamp from nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A timestamp from seconds since the origin; NaN and negative values give the origin.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(nanos(duration(secs)))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin, for formulas and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Seconds since `earlier`; the same number as `seconds(self.since(earlier))`, without the detour by way of
    /// `Duration`, which is half of the time of a decision about a message.
    pub(crate) fn secs_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e9
    }

    /// So many seconds later; the same as `self + duration(seconds)`.
    pub(crate) fn plus_secs(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * 1e9 + 0.5) as u64))
    }

    /// Time passed since `earlier`; zero if the clock went backwards.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::MAX`].
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }
}

/// A duration in whole nanoseconds, saturating at [`DURATION_MAX`].
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration as seconds, for the formulas: finite and not negative.
pub(crate) fn seconds(duration: Duration) -> f64 {
    // Divided, not multiplied by 1e-9: 60 s must be 60.0.
    nanos(duration) as f64 / 1e9
}

/// Seconds as a duration: NaN and negative values give zero, too large ones [`DURATION_MAX`].
pub(crate) fn duration(seconds: f64) -> Duration {
    // Rounded to the nearest. `as` saturates, and maps NaN to 0: exactly what is promised.
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

/// A time as people write it: a number with a unit (us, ms, s, m, h, d), or a number of seconds.
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Duration::try_from_secs_f64(digits.trim().parse::<f64>().ok()? * factor).ok()
}

const UNITS: [(&str, f64); 8] =
    [("", 1.0), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_float_becomes_a_duration() {
        for (seconds, expected) in [
            (f64::NAN, Duration::ZERO),
            (f64::NEG_INFINITY, Duration::ZERO),
            (-1.0, Duration::ZERO),
            (-0.0, Duration::ZERO),
            (f64::MIN_POSITIVE, Duration::ZERO),
            (1.5, Duration::from_millis(1500)),
            (f64::INFINITY, DURATION_MAX),
            (f64::MAX, DURATION_MAX),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_clock_that_goes_backwards_gives_zero() {
        let early = Timestamp::from_nanos(5);
        let late = Timestamp::from_nanos(7);
        assert_eq!(late.since(early), Duration::from_nanos(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn addition_ends_at_the_end_of_time() {
        assert_eq!(Timestamp::from_nanos(1) + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MAX + Duration::from_nanos(1), Timestamp::MAX);
    }

    #[test]
    fn a_time_is_read_with_its_unit_or_in_seconds() {
        for (text, millis) in [("250ms", 250), (" 2s ", 2000), ("1.5", 1500), ("1m", 60_000), ("0.5h", 1_800_000)] {
            assert_eq!(parse_time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "-1s", "1x", "1 2s", "nans", "infs", "1e30d", "ms5"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }
}
