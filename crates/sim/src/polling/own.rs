//! Algorithms of your own: what a reader writes to compare it with the rest (docs/own-algorithm.md).

use std::fmt;

use tidegate_control::pacer::Outcome;

use super::config::Polling;
use crate::chance::Stream;

/// How a check ended. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CheckEnd {
    /// With an answer that showed so many losses.
    Answered {
        /// From the request to the answer.
        latency: f64,
        losses: u32,
        /// How long the request waited in the broker, if it says so.
        queued: Option<f64>,
    },
    /// With a refusal, and perhaps the time after which another try is worth it.
    Refused { retry_after: Option<f64> },
    /// With nothing, until the client had no more patience.
    TimedOut,
}

impl CheckEnd {
    pub(super) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered { latency, losses, hints, .. } => Self::Answered {
                latency: latency.as_secs_f64(),
                losses: *losses,
                queued: hints.queued.map(|queued| queued.as_secs_f64()),
            },
            Outcome::Denied { hints } => Self::Refused { retry_after: hints.retry_after.map(|it| it.as_secs_f64()) },
            _ => Self::TimedOut,
        }
    }
}

/// When a client checks again. One for each client; chance is an argument, so that a seed repeats a run.
pub trait OwnAlgorithm {
    /// A check ended: seconds until the next one.
    fn next_check(&mut self, ended: CheckEnd, chance: &mut Stream) -> f64;
}

/// An algorithm under its name in scenarios.
#[derive(Clone, Copy)]
pub struct Own {
    /// What `clients.algorithm` calls it.
    pub name: &'static str,
    /// Makes one for a client of this world.
    pub make: fn(&Polling) -> Box<dyn OwnAlgorithm>,
}

impl fmt::Debug for Own {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Own {}
