//! How the space is, and what happens after its owner has panicked: in pure code, driven by `supervisor`.
//!
//! The owner's panic may have left the data half changed, so the space begins anew from its log. Whoever panics again and
//! again is given longer and longer pauses, and at last is left alone: a text that brings the owner down each time must
//! not keep the machine busy with reading the log.

use std::time::Duration;

/// Whether the space serves, begins anew, or has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The space serves.
    Serving,
    /// It begins anew from its log; whoever asks is told to come back.
    Restarting,
    /// It was given up, until the process is restarted.
    Down,
    /// Another node may have it, who may have confirmed what is not here; whoever asks is told to come back, or to ask there.
    Unsure,
}

impl Condition {
    /// Its name for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Restarting => "restarting",
            Self::Down => "down",
            Self::Unsure => "unsure",
        }
    }

    pub(crate) const fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Serving,
            1 => Self::Restarting,
            3 => Self::Unsure,
            _ => Self::Down,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Serving => 0,
            Self::Restarting => 1,
            Self::Down => 2,
            Self::Unsure => 3,
        }
    }

    /// What a client is told while nobody is served.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Unsure => {
                "this node does not know whether the smart space is still its own: come back, or ask another node"
            }
            _ => "the smart space has failed; it begins anew from what is kept, or was given up",
        }
    }

    /// When whoever asks is to come back; never refused while it serves.
    pub(crate) const fn retry_after(self) -> Duration {
        match self {
            Self::Serving | Self::Restarting | Self::Unsure => Duration::from_secs(1),
            Self::Down => Duration::from_secs(60),
        }
    }
}

/// The first pause, if nothing else is said; each further one is twice as long.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest; and the pause between attempts to read a log that cannot be read.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Restarts in a row. With the pauses above, the last comes half a minute after the first: long enough for an operator's
/// tools to see it, short enough that nobody waits for a space that does not come back.
const RESTARTS_MAX: u32 = 8;
/// Whoever has served for so long begins to count anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Restarts so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarts {
    pause_min: Duration,
    in_a_row: u32,
}

impl Restarts {
    pub(crate) fn new(pause_min: Duration) -> Self {
        Self { pause_min, in_a_row: 0 }
    }

    /// It has failed after serving for so long: the pause before it begins anew, or none if it stays down.
    pub(crate) fn on_failure(&mut self, served: Duration) -> Option<Duration> {
        if served >= FORGOTTEN_AFTER {
            self.in_a_row = 0;
        }
        if self.in_a_row >= RESTARTS_MAX {
            return None;
        }
        let pause = self.pause_min.saturating_mul(1 << self.in_a_row.min(16)).min(PAUSE_MAX);
        self.in_a_row += 1;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_with_giving_up() {
        let mut restarts = Restarts::new(PAUSE_MIN);
        let pauses: Vec<_> = std::iter::from_fn(|| restarts.on_failure(Duration::from_secs(1))).collect();
        let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1600, 3200, 6400, 10_000]);
        assert_eq!(restarts.on_failure(FORGOTTEN_AFTER / 2), None, "and it stays that way");
    }

    #[test]
    fn whoever_served_for_long_begins_anew() {
        let mut restarts = Restarts::new(PAUSE_MIN);
        for _ in 0..100 {
            assert_eq!(restarts.on_failure(FORGOTTEN_AFTER), Some(PAUSE_MIN));
        }
    }

    #[test]
    fn names_and_codes_are_of_one_mind() {
        for condition in [Condition::Serving, Condition::Restarting, Condition::Down, Condition::Unsure] {
            assert_eq!(Condition::of_code(condition.code()), condition);
        }
    }
}
