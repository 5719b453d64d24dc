//! How hard the broker is pressed: one level from 0 to 4, with its cause, and slow to change its mind downwards.
//!
//! The driver measures five things, once in a tenth of a second, and tells them as a [`Signal`]:
//! - *lag*: how long a turn of its loop takes;
//! - *entitled*: how long those wait to be read who send what is usual for them, or next to nothing (`order`);
//! - *unread*: for how long somebody has not been read dry, whoever it is;
//! - *memory*: bytes in use of a budget;
//! - *store*: how long the disk has been with what it does now. A second is level 1 and ten are level 2, and nothing is
//!   more: to turn away clients that are there helps no disk.
//!
//! | level | lag, entitled | unread | memory | at this level (`core`, `broker`) |
//! | --- | --- | --- | --- | --- |
//! | 0 calm | | | | everybody was read dry within a second |
//! | 1 busy | | 1 s | 60 % | excess waits: who sends it is told a pace |
//! | 2 strained | 50 ms, for a second | | 75 % | new connections are paced |
//! | 3 overloaded | 1 s | | 85 % | no new sessions or retained topics; known clients come in |
//! | 4 emergency | | | 95 % | messages that have to be kept are refused; the largest backlog is cut off |
//!
//! No level gates a publisher: who is served first is the order's to say.
//!
//! *Up* at once for memory, and after two samples in a row for time, because one long turn is an accident. *Down* one
//! level in five seconds, and only while everything is below seven tenths of what the level was entered at (memory: five
//! hundredths below), so that a load at a threshold does not flap (F140). A clock that jumps moves the level by one step
//! down at most, and never up (F141).

#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::config::{ConfigError, named, span};
use crate::time::{Timestamp, seconds};

named! {
    "level of pressure";
    /// How hard the broker is pressed.
    pub enum Level {
        /// Not at all.
        #[default]
        Calm = "calm",
        /// Work is waiting.
        Busy = "busy",
        /// It waits longer than it should.
        Strained = "strained",
        /// Much longer, or memory runs short.
        Overloaded = "overloaded",
        /// Memory is all but used up.
        Emergency = "emergency",
    }
}

named! {
    "cause of pressure";
    /// What a level is owed to.
    pub enum Cause {
        /// The loop turns slowly, or never rests.
        #[default]
        Lag = "lag",
        /// Clients wait to be read.
        Backlog = "backlog",
        /// The disk does not take what has to be kept.
        Store = "store",
        /// Memory.
        Memory = "memory",
    }
}

impl Level {
    /// The number, 0 to 4.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The level of a number; the highest one for what is beyond.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Emergency)
    }

    fn below(self) -> Self {
        Self::from_number(self.number().saturating_sub(1))
    }
}

/// What was measured since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signal {
    /// How long a turn took, in the mean.
    pub turn: Duration,
    /// How long those wait to be read who send what is usual, at most.
    pub entitled: Duration,
    /// For how long somebody has not been read dry.
    pub unread: Duration,
    /// How long the store has been busy with one thing.
    pub store: Duration,
    /// Bytes in use, and how many there may be.
    pub memory_used: u64,
    /// See `memory_used`.
    pub memory_max: u64,
}

/// Configuration of the gauge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureConfig {
    /// How long a client that sends what is usual may wait until it is read. 1 ms ..= 1 min.
    pub target: Duration,
    /// How long somebody may have something unread before that is level 1. 1 ms ..= 1 min.
    pub unread: Duration,
    /// A level is left after everything was below it for this long. 5 s ..= 1 h.
    pub calm: Duration,
}

impl Default for PressureConfig {
    fn default() -> Self {
        Self { target: Duration::from_millis(50), unread: Duration::from_secs(1), calm: CALM_MIN }
    }
}

/// One change of level per this time, downwards.
pub const CALM_MIN: Duration = Duration::from_secs(5);

impl PressureConfig {
    /// Checks every field.
    pub fn build(&self) -> Result<PressurePlan, ConfigError> {
        Ok(PressurePlan {
            target: span("target", self.target, Duration::from_millis(1), Duration::from_secs(60))?,
            unread: span("unread", self.unread, Duration::from_millis(1), Duration::from_secs(60))?,
            calm: {
                span("calm", self.calm, CALM_MIN, Duration::from_secs(3600))?;
                self.calm
            },
        })
    }
}

/// A configuration that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct PressurePlan {
    target: f64,
    unread: f64,
    calm: Duration,
}

/// The gauge itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauge {
    level: Level,
    cause: Cause,
    since: Timestamp,
    /// The last sample by which the level was still needed.
    needed_at: Timestamp,
    /// What the last sample of time alone would have meant: the next one has to confirm it.
    suspected: (Level, Level),
}

impl Gauge {
    /// The level in force.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What it is owed to; none while all is calm.
    pub fn cause(&self) -> Option<Cause> {
        (self.level > Level::Calm).then_some(self.cause)
    }

    /// Since when it has been in force.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// A sample; the answer is the level from now on.
    pub fn on_sample(&mut self, plan: &PressurePlan, signal: &Signal, now: Timestamp) -> Level {
        if now < self.needed_at {
            // The clock went back: what it showed before is no measure of anything.
            (self.needed_at, self.since) = (now, self.since.min(now));
        }
        let (entered, cause) = self.confirmed(plan, signal);
        let (kept, kept_cause) = highest(plan.levels(signal, Edge::Leave));
        if entered > self.level {
            (self.level, self.cause, self.since, self.needed_at) = (entered, cause, now, now);
        } else if kept >= self.level {
            self.needed_at = now;
            // The same level for another reason is worth knowing.
            self.cause = kept_cause;
        } else if now.since(self.needed_at) >= plan.calm {
            (self.level, self.since, self.needed_at) = (self.level.below(), now, now);
            if kept > Level::Calm {
                self.cause = kept_cause;
            }
        }
        self.level
    }

    /// The level that this sample calls for, and what of the last one it confirms.
    fn confirmed(&mut self, plan: &PressurePlan, signal: &Signal) -> (Level, Cause) {
        let [(lag, _), (backlog, _), store, memory] = plan.levels(signal, Edge::Enter);
        let (lag_before, backlog_before) = core::mem::replace(&mut self.suspected, (lag, backlog));
        highest([(lag.min(lag_before), Cause::Lag), (backlog.min(backlog_before), Cause::Backlog), store, memory])
    }
}

/// Whether a level is to be entered, or only not yet left.
#[derive(Clone, Copy)]
enum Edge {
    Enter,
    Leave,
}

impl PressurePlan {
    fn levels(&self, signal: &Signal, edge: Edge) -> [(Level, Cause); 4] {
        // A level is left at less than what it is entered at.
        let (part, less) = match edge {
            Edge::Enter => (1.0, 0),
            Edge::Leave => (0.7, 50),
        };
        let by_time = |time: Duration| {
            let ratio = seconds(time) / (self.target * part);
            match ratio {
                // A crowded machine is late by a few tenths of a second now and then; to turn clients away helps nobody.
                ratio if ratio >= OVERLOADED_TARGETS => Level::Overloaded,
                ratio if ratio >= 1.0 => Level::Strained,
                _ => Level::Calm,
            }
        };
        let store = match seconds(signal.store) / part {
            secs if secs >= STORE_STRAINED => Level::Strained,
            secs if secs >= STORE_BUSY => Level::Busy,
            _ => Level::Calm,
        };
        let unread = if seconds(signal.unread) >= self.unread * part { Level::Busy } else { Level::Calm };
        let thousandths = match signal.memory_max {
            0 => 0,
            most => u128::from(signal.memory_used) * 1000 / u128::from(most),
        };
        let memory = MEMORY_THOUSANDTHS.iter().filter(|entry| thousandths >= **entry - less).count() as u8;
        [
            (by_time(signal.turn), Cause::Lag),
            (by_time(signal.entitled).max(unread), Cause::Backlog),
            (store, Cause::Store),
            (Level::from_number(memory), Cause::Memory),
        ]
    }
}

/// Of equal ones the last: memory is the one that cannot be waited out.
fn highest(levels: [(Level, Cause); 4]) -> (Level, Cause) {
    let mut highest = levels[0];
    for level in levels {
        if level.0 >= highest.0 {
            highest = level;
        }
    }
    highest
}

/// Targets that make level 3: a second, by default.
const OVERLOADED_TARGETS: f64 = 20.0;
/// Seconds that the disk takes for one thing, at levels 1 and 2.
const STORE_BUSY: f64 = 1.0;
const STORE_STRAINED: f64 = 10.0;
/// Parts of the budget at which levels 1 to 4 begin.
const MEMORY_THOUSANDTHS: [u128; 4] = [600, 750, 850, 950];
