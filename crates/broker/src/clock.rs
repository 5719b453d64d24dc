//! The only clock of the process: time since it was made, the same for all threads; or, for tests that need an hour of
//! it, a clock that is set by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_control::Timestamp;

use crate::limits::WAKE_LAG_MAX;

/// A monotonic clock with an origin of its own. Copies agree.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    Machine(Instant),
    ByHand(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that shows zero now.
    pub(crate) fn start() -> Self {
        Self::Machine(Instant::now())
    }

    /// A clock that stands still, a while after the origin.
    pub(crate) fn by_hand() -> Self {
        Self::ByHand(Arc::new(AtomicU64::new(1_000_000_000_000)))
    }

    /// Sets a clock that is set by hand forward.
    pub(crate) fn advance(&self, time: Duration) {
        if let Self::ByHand(nanos) = self {
            nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// The time of day, since 1970, at which this clock showed zero, by the clock of the machine.
    pub(crate) fn zero(&self) -> Duration {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        day.saturating_sub(self.now().since(Timestamp::ZERO))
    }

    /// How long something took that began then; no time at all by a clock that is set by hand while it happens.
    pub(crate) fn took(&self, begin: Timestamp, end: Timestamp) -> Duration {
        match self {
            Self::Machine(_) => end.since(begin),
            Self::ByHand(_) => Duration::ZERO,
        }
    }

    /// Since when a socket that is found ready now may have been so, if that was not looked for while a turn took so
    /// long: the machine may have let us wait, too. Nobody waits for a clock that is set by hand.
    pub(crate) fn before(&self, now: Timestamp, took: Duration) -> Timestamp {
        match self {
            Self::Machine(_) => {
                let lag = u64::try_from((took + WAKE_LAG_MAX).as_nanos()).unwrap_or(u64::MAX);
                Timestamp::from_nanos(now.as_nanos().saturating_sub(lag))
            }
            Self::ByHand(_) => now,
        }
    }

    /// The time. Read once per turn, so that everything in a turn happens at the same moment.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(match self {
            Self::Machine(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Self::ByHand(nanos) => nanos.load(Ordering::SeqCst),
        })
    }
}
