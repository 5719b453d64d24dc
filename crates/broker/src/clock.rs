//! The only clock of the process: time since it was made, the same for all threads.

use std::time::Instant;

use tidegate_control::Timestamp;

/// A monotonic clock with an origin of its own. Copies agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that shows zero now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time. Read once per turn, so that everything in a turn happens at the same moment.
    pub(crate) fn now(self) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
