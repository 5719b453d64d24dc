//! The time of day, for times that leave the process: nanoseconds since 1970, 0 where there is no time.

use core::time::Duration;

use tidegate_control::Timestamp;

/// Converts between the clock of the process and the time of day. Shards of one process have the same one, so that what
/// goes from one to the other comes back to the nanosecond; other nodes agree as well as their clocks do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wall {
    /// The time of day when the clock of the process showed zero.
    zero: u64,
}

impl Wall {
    /// The clock of the process showed zero at this time after the beginning of 1970.
    pub(crate) fn new(zero: Duration) -> Self {
        Self { zero: u64::try_from(zero.as_nanos()).unwrap_or(u64::MAX) }
    }

    pub(crate) fn nanos(self, at: Option<Timestamp>) -> u64 {
        at.map_or(0, |at| self.zero.saturating_add(at.as_nanos()).max(1))
    }

    /// What was over before the clock of the process began is over now.
    pub(crate) fn timestamp(self, nanos: u64) -> Option<Timestamp> {
        (nanos != 0).then(|| Timestamp::from_nanos(nanos.saturating_sub(self.zero)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_same_there_and_back_and_moves_with_the_clock_of_the_other_node() {
        let at = Timestamp::from_secs_f64(65.25);
        for zero in [0, 1, 1_800_000_000] {
            let wall = Wall::new(Duration::from_secs(zero));
            assert_eq!(wall.timestamp(wall.nanos(Some(at))), Some(at));
            assert_eq!(wall.timestamp(wall.nanos(None)), None);
        }
        let (here, there) = (Wall::new(Duration::from_secs(1000)), Wall::new(Duration::from_secs(1060)));
        assert_eq!(
            there.timestamp(here.nanos(Some(at))),
            Some(Timestamp::from_secs_f64(5.25)),
            "it began a minute later"
        );
        assert_eq!(
            there.timestamp(here.nanos(Some(Timestamp::from_secs_f64(3.0)))),
            Some(Timestamp::ZERO),
            "long over"
        );
        assert_eq!(
            here.timestamp(here.nanos(Some(Timestamp::MAX))).map(|at| at > Timestamp::from_secs_f64(1e9)),
            Some(true)
        );
    }
}
