//! How hard the broker is pressed: one level from 0 to 4, with its cause, and slow to change its mind downwards.
//!
//! The driver measures four things, once in a tenth of a second, and tells them as a [`Signal`]:
//! - *lag*: how long a turn of its loop takes, and which part of the time it has been working of late;
//! - *backlog*: how long whoever is ready and unread has to wait;
//! - *memory*: bytes in use of a budget;
//! - *store*: how long the disk has been with what it does now. Ten targets are level 1 and a hundred level 2, and nothing
//!   is more: to turn away clients that are there helps no disk.
//!
//! | level | lag, backlog | or working | memory | at this level (`core`, `broker`) |
//! | --- | --- | --- | --- | --- |
//! | 0 calm | | | | nobody is slowed |
//! | 1 busy | ½·target | 90 % with somebody unread | 60 % | publishers out of rhythm are slowed |
//! | 2 strained | target | | 75 % | new connections are paced; who sends a lot of little weight is read less at once, and its QoS 0 shed |
//! | 3 overloaded | 10·target | | 85 % | no new sessions or retained topics; known clients come in |
//! | 4 emergency | | | 95 % | messages that have to be kept are refused; the largest backlog is cut off |
//!
//! *Up* at once for memory, and after two samples in a row for time, because one long turn is an accident. *Down* one
//! level in five seconds, and only while everything is below seven tenths of what the level was entered at (memory: five
//! hundredths below), so that a load at a threshold does not flap (F140). A clock that jumps moves the level by one step
//! down at most, and never up (F141). CONTROL §9.2 asks for enforcement at ½·target, which is level 1.

#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::config::{ConfigError, named, number, span};
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
    /// Which part of the time was spent working, 0 to 1; 0 if nobody was left waiting.
    pub saturation: f64,
    /// How long whoever is unread waits, by the last turns.
    pub backlog: Duration,
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
    /// How long a client that is ready may wait until it is read. 1 ms ..= 1 min.
    pub target: Duration,
    /// Working for this part of the time while somebody waits is level 1. 0.1 ..= 1.
    pub saturation: f64,
    /// A level is left after everything was below it for this long. 5 s ..= 1 h.
    pub calm: Duration,
}

impl Default for PressureConfig {
    fn default() -> Self {
        Self { target: Duration::from_millis(100), saturation: 0.9, calm: CALM_MIN }
    }
}

/// One change of level per this time, downwards.
pub const CALM_MIN: Duration = Duration::from_secs(5);

impl PressureConfig {
    /// Checks every field.
    pub fn build(&self) -> Result<PressurePlan, ConfigError> {
        Ok(PressurePlan {
            target: span("target", self.target, Duration::from_millis(1), Duration::from_secs(60))?,
            saturation: number("saturation", self.saturation, 0.1, 1.0)?,
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
    saturation: f64,
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
                ratio if ratio >= 10.0 => Level::Overloaded,
                ratio if ratio >= 1.0 => Level::Strained,
                ratio if ratio >= 0.5 => Level::Busy,
                _ => Level::Calm,
            }
        };
        let store = match seconds(signal.store) / (self.target * part) {
            ratio if ratio >= 100.0 => Level::Strained,
            ratio if ratio >= 10.0 => Level::Busy,
            _ => Level::Calm,
        };
        let saturated = if signal.saturation >= self.saturation * part { Level::Busy } else { Level::Calm };
        let thousandths = match signal.memory_max {
            0 => 0,
            most => u128::from(signal.memory_used) * 1000 / u128::from(most),
        };
        let memory = MEMORY_THOUSANDTHS.iter().filter(|entry| thousandths >= **entry - less).count() as u8;
        [
            (by_time(signal.turn).max(saturated), Cause::Lag),
            (by_time(signal.backlog), Cause::Backlog),
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

/// Parts of the budget at which levels 1 to 4 begin.
const MEMORY_THOUSANDTHS: [u128; 4] = [600, 750, 850, 950];
