//! What the space leaves to the broker beside it while that is pressed: both have the same processors, and whoever sends a
//! message must not wait because somebody counts something for seconds.
//!
//! ```text
//! level 0, 1, or pressed for memory or the disk       nothing changes: there is a processor for whoever wants one, or none
//!                                                     would help (bytes are charged to the budget of the process anyway)
//! level 2 and more, for want of processors            of what takes long only as many at once as there are processors
//!                                                     without a shard, and always one
//!   and the space may keep more busy than those       what is done beside requests (pieces of a large change, standing
//!                                                     queries, long updates) rests after each turn, as long as that took at
//!                                                     level 2, twice as long at 3, three times at 4
//! ```
//! Short requests are not touched at any level, nothing is refused for it, and everything goes on: a rest is in
//! proportion to the work before it. What is told to clients follows by itself, because costs are measured by the clock. On a
//! machine with processors enough for both nothing changes, whatever the level.
//!
//! Pure: time is an argument; driven by `front_desk`.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::pressure::{Cause, Level};

use crate::limits::{BUSY_THREADS, LONG_READERS, PRESSURE_INTERVAL};

/// How hard the process is pressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpacePressure {
    /// The level of the broker.
    pub level: Level,
    /// What that is owed to; none at level 0.
    pub cause: Option<Cause>,
    /// Processors of the machine that no thread of the broker counts on.
    pub spare_processors: usize,
}

/// What is left to others.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// None while nobody has said.
    pressure: Option<SpacePressure>,
    asked: Option<Timestamp>,
}

impl Yielding {
    /// Whether it is time to ask for the pressure again.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.asked.is_none_or(|asked| now.since(asked) >= PRESSURE_INTERVAL)
    }

    pub(crate) fn hear(&mut self, now: Timestamp, pressure: SpacePressure) {
        (self.pressure, self.asked) = (Some(pressure), Some(now));
    }

    /// What is said of processors, if they are what is short.
    fn short(&self) -> Option<SpacePressure> {
        let is_short =
            |it: &SpacePressure| it.level >= Level::Strained && matches!(it.cause, Some(Cause::Lag | Cause::Backlog));
        self.pressure.filter(is_short)
    }

    /// Requests that take long and may be under way at once.
    pub(crate) fn long_max(&self) -> usize {
        self.short().map_or(LONG_READERS, |it| it.spare_processors.clamp(1, LONG_READERS))
    }

    /// How long something rests that is done beside requests and has just taken so long.
    pub(crate) fn rest(&self, took: Duration) -> Duration {
        let part = |it: SpacePressure| took.saturating_mul(u32::from(it.level.number()) - 1);
        self.short().filter(|it| it.spare_processors < BUSY_THREADS).map_or(Duration::ZERO, part)
    }

    /// Whether anything is left to others now.
    pub(crate) fn is_on(&self) -> bool {
        self.long_max() < LONG_READERS || self.rest(Duration::from_secs(1)) > Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(level: u8, cause: Cause, spare_processors: usize) -> Yielding {
        let (level, mut yielding) = (Level::from_number(level), Yielding::default());
        yielding.hear(Timestamp::ZERO, SpacePressure { level, cause: Some(cause), spare_processors });
        yielding
    }

    #[test]
    fn nothing_changes_while_it_is_calm_or_something_else_is_short_or_there_are_processors_enough() {
        let calm = [at(0, Cause::Lag, 0), at(1, Cause::Backlog, 0), at(4, Cause::Memory, 0), at(2, Cause::Store, 0)];
        for yielding in calm.into_iter().chain([Yielding::default(), at(4, Cause::Lag, BUSY_THREADS)]) {
            assert_eq!((yielding.long_max(), yielding.rest(Duration::from_secs(9))), (LONG_READERS, Duration::ZERO));
            assert!(!yielding.is_on());
        }
    }

    #[test]
    fn the_harder_it_is_pressed_the_longer_the_rest_and_one_may_always_be_long() {
        let second = Duration::from_secs(1);
        for (level, rest) in [(2, second), (3, second * 2), (4, second * 3)] {
            assert_eq!((at(level, Cause::Lag, 0).long_max(), at(level, Cause::Lag, 0).rest(second)), (1, rest));
        }
        let some = at(3, Cause::Backlog, LONG_READERS);
        assert_eq!((some.long_max(), some.rest(second), some.is_on()), (LONG_READERS, second * 2, true));
    }

    #[test]
    fn it_is_asked_again_after_a_while() {
        let (mut yielding, now) = (Yielding::default(), Timestamp::from_secs_f64(1.0));
        assert!(yielding.is_due(now));
        yielding.hear(now, SpacePressure::default());
        assert!(!yielding.is_due(now + PRESSURE_INTERVAL / 2) && yielding.is_due(now + PRESSURE_INTERVAL));
    }
}
