//! What became of every request, by class.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_control::admission::Class;

use crate::ask::{Answered, Refused, Source};

/// Names of the outcomes, in the order of their counters.
pub const OUTCOMES: [&str; 10] =
    ["fresh", "shared", "remembered", "busy", "late", "failed", "too_long", "closing", "unwritable", "unconfirmed"];

#[derive(Debug, Default)]
pub(crate) struct Counts([[AtomicU64; OUTCOMES.len()]; Class::COUNT]);

impl Counts {
    pub(crate) fn count(&self, class: Class, outcome: &Result<Answered, Refused>) {
        let place = match outcome {
            Ok(answered) => match answered.source {
                Source::Fresh => 0,
                Source::Shared => 1,
                Source::Remembered => 2,
            },
            Err(Refused::Busy(_)) => 3,
            Err(Refused::Late) => 4,
            Err(Refused::Failed(_)) => 5,
            Err(Refused::TooLong) => 6,
            Err(Refused::Closing) => 7,
            Err(Refused::Unwritable) => 8,
            Err(Refused::Unconfirmed) => 9,
        };
        self.0[class.index()][place].fetch_add(1, Ordering::Relaxed);
    }

    /// Class, outcome and number, without those that are zero.
    pub(crate) fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
        let of = |class: &Class| {
            let numbers = self.0[class.index()].iter().map(|number| number.load(Ordering::Relaxed));
            let name = class.name();
            OUTCOMES.into_iter().zip(numbers).map(move |(outcome, number)| (name, outcome, number)).collect::<Vec<_>>()
        };
        Class::ALL.iter().flat_map(of).filter(|(_, _, number)| *number > 0).collect()
    }
}
