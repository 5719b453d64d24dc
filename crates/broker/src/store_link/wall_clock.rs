//! The time of day for what outlives the process: written as milliseconds since 1970, which clocks agree on only more or
//! less.
//!
//! Within a run the time is that of the start plus what the monotonic clock has counted: a clock that is set does not
//! end sessions. Between two runs the store remembers the last time it saw. A start before that time, or more than a year
//! after it, knows that the clock has jumped (a board without a battery starts in 1970), and takes it that no time has
//! passed: sessions live longer than they should, instead of all ending at once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_control::Timestamp;

/// Longer than this nobody was switched off.
const AWAY_MS_MAX: u64 = 366 * 24 * 3600 * 1000;

/// Converts between the clock of the process and the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    at: Timestamp,
    ms: u64,
}

impl WallClock {
    /// Now, by the clock of this machine and the last time that was written down (0: none was).
    pub fn now(at: Timestamp, last_ms: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(at, u64::try_from(since.as_millis()).unwrap_or(0), last_ms)
    }

    /// The same with a time of day that is given.
    pub fn new(at: Timestamp, now_ms: u64, last_ms: u64) -> Self {
        let has_jumped = last_ms > 0 && !(last_ms..last_ms.saturating_add(AWAY_MS_MAX)).contains(&now_ms);
        Self { at, ms: if has_jumped { last_ms } else { now_ms } }
    }

    /// The time of day.
    pub fn ms(&self, at: Timestamp) -> u64 {
        if at >= self.at {
            self.ms.saturating_add(millis(at.since(self.at)))
        } else {
            self.ms.saturating_sub(millis(self.at.since(at)))
        }
    }

    /// The time of the process; its beginning, for what lies before that.
    pub fn timestamp(&self, ms: u64) -> Timestamp {
        if ms >= self.ms {
            self.at + Duration::from_millis(ms - self.ms)
        } else {
            let ago = Duration::from_millis(self.ms - ms);
            Timestamp::from_nanos(self.at.as_nanos().saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)))
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f120_a_clock_that_jumps_between_two_runs_counts_as_no_time() {
        let at = Timestamp::from_secs_f64(5.0);
        let (last, day) = (1_800_000_000_000, 24 * 3600 * 1000);
        assert_eq!(WallClock::new(at, last + day, last).ms(at), last + day);
        assert_eq!(WallClock::new(at, 1000, last).ms(at), last, "1970");
        assert_eq!(WallClock::new(at, last + 400 * day, last).ms(at), last, "a year later");
        assert_eq!(WallClock::new(at, last, 0).ms(at), last, "the first start");
    }

    #[test]
    fn times_go_there_and_back() {
        let wall = WallClock::new(Timestamp::from_secs_f64(5.0), 1_800_000_000_000, 0);
        let later = Timestamp::from_secs_f64(65.0);
        assert_eq!(wall.timestamp(wall.ms(later)), later);
        assert_eq!(wall.timestamp(0), Timestamp::ZERO);
    }
}
