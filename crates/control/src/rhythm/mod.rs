//! A publisher's rhythm: learn it, and slow the one that breaks it (paper 003, P22).
//!
//! The broker keeps one [`Rhythm`] per principal, tells it every PUBLISH that arrives, and is told what to do with it: a
//! [`Verdict`]. The state survives reconnects, so that a new connection does not buy a new learning phase.
//! Retransmissions, wills and refreshed retained messages are not told. Arrival times are those of the socket, not of
//! the read loop: a publisher that was held sends its backlog in one breath, and would be held for ever.
//!
//! Two rules: [`RhythmRule::Practical`] (`gcra`, the default, with what it knows of a publisher in `learn`) and the paper's
//! own (`paper`), as formula or rounded as in its Table I. This module decides; queues, acknowledgements and timers are elsewhere.

mod gcra;
mod learn;
mod packed;
mod paper;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::claim::ClaimPlan;
use crate::config::{ConfigError, at_most, count, named, number, span};
use crate::time::{Timestamp, duration, nanos};
use gcra::{Gcra, GcraPlan};
use packed::{PackedGcra, PackedPaper, on_tick};
use paper::{Paper, PaperPlan};

named! {
    "rhythm rule";
    /// How a publisher that breaks its rhythm is recognised and slowed.
    pub enum RhythmRule {
        /// GCRA around a slowly learned interval; bounded, dimensionless reaction.
        #[default]
        Practical = "practical",
        /// Paper 003: the mean of the first N messages, and e^FR seconds of delay.
        Paper = "paper",
        /// The same, truncated to the digits of its Table I.
        PaperTable = "paper-table",
    }
}

named! {
    "enforcement";
    /// When a broken rhythm has consequences.
    pub enum Enforcement {
        /// Only where something is scarce, by the order of service: nobody is held or refused for its rhythm.
        #[default]
        Pressure = "pressure",
        /// Always.
        Always = "always",
    }
}

/// Whether the broker, or a receiver, is short of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Nothing is short.
    Idle,
    /// Something is short.
    Pressed,
}

/// When a message arrived, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalTime {
    earliest: Timestamp,
    likely: Timestamp,
    seen: Timestamp,
}

impl ArrivalTime {
    /// Not before `earliest`, when its connection was read last; at about `likely`, if all that came since came evenly; and
    /// it is seen only now. Whatever is later than that is taken for it.
    pub fn new(earliest: Timestamp, likely: Timestamp, seen: Timestamp) -> Self {
        let likely = likely.min(seen);
        Self { earliest: earliest.min(likely), likely, seen }
    }

    /// The best guess.
    pub fn likely(&self) -> Timestamp {
        self.likely
    }
}

/// Seen as it arrived.
impl From<Timestamp> for ArrivalTime {
    fn from(now: Timestamp) -> Self {
        Self { earliest: now, likely: now, seen: now }
    }
}

/// What to do with the message that has just arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the message waits for this decision"]
pub enum Verdict {
    /// Take it.
    Pass,
    /// Take it after this time, and its acknowledgement with it; later messages of this publisher stay behind it.
    Hold(Duration),
    /// Do not take it: it would have to be held too long. QoS 0 is dropped, QoS 1 and 2 get "quota exceeded" with this
    /// time to come back, or no acknowledgement where the protocol has no such word.
    Refuse(Duration),
    /// It has been refused for so long that the connection should end, with this time to come back.
    Disconnect(Duration),
}

/// Configuration of the rhythm control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RhythmConfig {
    /// The rule by which a publisher's rhythm is judged.
    pub rule: RhythmRule,
    /// When it has consequences (practical rule; the paper's always has).
    pub enforcement: Enforcement,
    /// N of the paper: messages before FR_avg is known. 2 ..= 1000.
    pub learn_messages: u32,
    /// Practical: intervals of the learning phase; up to eight times as many if they leave doubts, or three of the largest
    /// batches if there seem to be any. 2 ..= 254.
    pub learn_intervals: u32,
    /// h: the rate may be this many times the learned one. 1 ..= 100.
    pub headroom: f64,
    /// Messages that may come at once, on top of the rate. 0 ..= 10 000.
    pub burst: u32,
    /// The largest batch that is learned; as many may come at once beyond `burst`. 0 (learn none) ..= 10 000.
    pub burst_max: u32,
    /// D_0: unit of the practical delay; 0 for no more than what the rate asks for. ..= 1 h.
    pub delay_unit: Duration,
    /// D_max: the longest delay of the practical rule; the optional maximum of the paper's. 1 ms ..= 1 day.
    pub delay_max: Duration,
    /// Whether `delay_max` also bounds the paper's rule (it mentions a maximum and gives none).
    pub paper_bounded: bool,
    /// ι_floor: no publisher is taken to be faster than this, whatever it did while it was watched. 1 µs ..= `interval_max`.
    pub interval_min: Duration,
    /// ι_ceil: nor slower than this. ..= 30 days.
    pub interval_max: Duration,
}

impl Default for RhythmConfig {
    fn default() -> Self {
        Self {
            rule: RhythmRule::default(),
            enforcement: Enforcement::default(),
            learn_messages: 4,
            learn_intervals: 16,
            headroom: 2.0,
            burst: 8,
            burst_max: 512,
            delay_unit: Duration::from_secs(1),
            delay_max: Duration::from_secs(30),
            paper_bounded: false,
            interval_min: Duration::from_millis(1),
            interval_max: Duration::from_secs(86_400),
        }
    }
}

impl RhythmConfig {
    /// Checks every field and the relations between them.
    pub fn build(&self) -> Result<RhythmPlan, ConfigError> {
        let (ms, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
        let delay_max = span("delay_max", self.delay_max, ms, day)?;
        let interval_max = span("interval_max", self.interval_max, Duration::from_micros(1), day * 30)?;
        let interval_min = span("interval_min", self.interval_min, Duration::from_micros(1), day * 30)?;
        at_most("interval_min", self.interval_min, "interval_max", self.interval_max)?;
        Ok(RhythmPlan {
            rule: self.rule,
            enforcement: self.enforcement,
            gcra: GcraPlan {
                learn_intervals: count("learn_intervals", self.learn_intervals.into(), 2, 254)? as u8,
                headroom: number("headroom", self.headroom, 1.0, 100.0)?,
                burst: count("burst", self.burst.into(), 0, 10_000)? as f64,
                burst_max: count("burst_max", self.burst_max.into(), 0, 10_000)? as f32,
                delay_unit: span("delay_unit", self.delay_unit, Duration::ZERO, Duration::from_secs(3600))?,
                delay_max,
                interval_min,
                interval_max,
            },
            paper: PaperPlan {
                learn_messages: count("learn_messages", self.learn_messages.into(), 2, 1000)? as u32,
                delay_max: self.paper_bounded.then_some(delay_max),
                table: self.rule == RhythmRule::PaperTable,
            },
        })
    }
}

/// A configuration that has been checked; one per class of publishers.
#[derive(Clone, Copy, Debug)]
pub struct RhythmPlan {
    rule: RhythmRule,
    enforcement: Enforcement,
    gcra: GcraPlan,
    paper: PaperPlan,
}

impl RhythmPlan {
    /// Whether a broken rhythm has consequences of its own. Otherwise nobody is held or refused, and what is scarce is
    /// served in order (`claim`, `order`): nobody need tell a [`Rhythm`] anything.
    pub fn is_enforced(&self) -> bool {
        self.rule != RhythmRule::Practical || self.enforcement == Enforcement::Always
    }

    /// The numbers of claims under this plan.
    pub fn claim(&self) -> ClaimPlan {
        let GcraPlan { headroom, burst, burst_max, .. } = self.gcra;
        ClaimPlan { headroom: headroom as f32, burst: burst as f32, batch_max: burst_max }
    }
}

/// What is known of one publisher: at most 36 bytes.
#[derive(Clone, Debug)]
pub struct Rhythm(RhythmState);

#[derive(Clone, Debug)]
enum RhythmState {
    Gcra(PackedGcra),
    Paper(PackedPaper),
}

impl From<Gcra> for Rhythm {
    fn from(gcra: Gcra) -> Self {
        Self(RhythmState::Gcra(PackedGcra::close(&gcra)))
    }
}

impl From<Paper> for Rhythm {
    fn from(paper: Paper) -> Self {
        Self(RhythmState::Paper(PackedPaper::close(&paper)))
    }
}

impl Rhythm {
    /// A publisher that has not published yet.
    pub fn new(plan: &RhythmPlan) -> Self {
        match plan.rule {
            RhythmRule::Practical => Gcra::NEW.into(),
            RhythmRule::Paper | RhythmRule::PaperTable => Paper::NEW.into(),
        }
    }

    /// A publisher whose interval is known from before a restart. The practical rule goes on learning from there.
    pub fn resume(plan: &RhythmPlan, interval: Duration, now: Timestamp) -> Self {
        Self::resume_batches(plan, interval, 1, now)
    }

    /// The same for one that is known to send `batch` messages at once, as [`batch`](Self::batch) told.
    pub fn resume_batches(plan: &RhythmPlan, interval: Duration, batch: u32, now: Timestamp) -> Self {
        match plan.rule {
            RhythmRule::Practical => Gcra::resume(&plan.gcra, interval, batch, now).into(),
            RhythmRule::Paper | RhythmRule::PaperTable => Paper::resume(interval, now).into(),
        }
    }

    /// A publisher whose interval the operator has set: it stays, whatever the publisher does, and batches get `burst` and
    /// no more. Within the class's bounds.
    pub fn pin(plan: &RhythmPlan, interval: Duration, now: Timestamp) -> Self {
        match plan.rule {
            RhythmRule::Practical => Gcra::pin(&plan.gcra, interval, now).into(),
            // The paper's mean is frozen in any case.
            RhythmRule::Paper | RhythmRule::PaperTable => Paper::resume(interval, now).into(),
        }
    }

    /// A message arrived.
    pub fn on_publish(&mut self, plan: &RhythmPlan, now: Timestamp, pressure: Pressure) -> Verdict {
        self.on_arrival(plan, ArrivalTime::from(now), pressure)
    }

    /// A message is seen that may have arrived before: nobody had the time to look. (CONTROL B8)
    pub fn on_arrival(&mut self, plan: &RhythmPlan, at: ArrivalTime, pressure: Pressure) -> Verdict {
        match &mut self.0 {
            RhythmState::Gcra(packed) => {
                let enforced = plan.enforcement == Enforcement::Always || pressure != Pressure::Idle;
                let at =
                    ArrivalTime { earliest: on_tick(at.earliest), likely: on_tick(at.likely), seen: on_tick(at.seen) };
                let mut gcra = packed.open(at.seen);
                let verdict = gcra.on_publish(&plan.gcra, at, enforced);
                *packed = PackedGcra::close(&gcra);
                verdict
            }
            RhythmState::Paper(packed) => {
                let mut paper = packed.open();
                let verdict = paper.on_publish(&plan.paper, at);
                *packed = PackedPaper::close(&paper);
                verdict
            }
        }
    }

    /// The message that just passed or was to be held was not taken after all (no room, or too long a wait): it owes
    /// nothing. Without this a publisher that is refused most of the time would run up a debt for what was never sent on.
    pub fn give_back(&mut self, plan: &RhythmPlan) {
        match &mut self.0 {
            RhythmState::Gcra(gcra) => gcra.give_back(nanos(duration(plan.gcra.increment(gcra.interval())))),
            RhythmState::Paper(_) => {}
        }
    }

    /// The interval in force between messages; `None` while learning. It starts somewhat below what was seen, in the
    /// publisher's favour, and follows the mean by at most a factor of two per hour.
    pub fn interval(&self) -> Option<Duration> {
        self.interval_secs().map(duration)
    }

    fn interval_secs(&self) -> Option<f64> {
        match &self.0 {
            RhythmState::Gcra(gcra) => gcra.interval(),
            RhythmState::Paper(paper) => paper.open().interval(),
        }
    }

    /// The learned rate in messages per second; `None` while learning.
    pub fn rate(&self) -> Option<f64> {
        self.interval_secs().map(|seconds| 1.0 / seconds.max(1e-9))
    }

    /// Messages that this publisher is known to send at once, at least 1 (practical; always 1 with the paper's rule).
    pub fn batch(&self) -> u32 {
        match &self.0 {
            RhythmState::Gcra(gcra) => gcra.batch() as u32 + 1,
            RhythmState::Paper(_) => 1,
        }
    }

    /// The rate of the last few messages (practical) or of the last two (paper), per second; 0 before the second one.
    pub fn current_rate(&self) -> f64 {
        match &self.0 {
            RhythmState::Gcra(gcra) if gcra.short() < 0.0 => 0.0,
            RhythmState::Gcra(gcra) => 1.0 / f64::from(gcra.short()).max(1e-9),
            RhythmState::Paper(paper) => paper.open().current_rate(),
        }
    }

    /// When the last message came, as seen from now; something of no use before the first.
    pub fn last_at(&self, now: Timestamp) -> Timestamp {
        match &self.0 {
            RhythmState::Gcra(gcra) => gcra.last(now),
            RhythmState::Paper(paper) => paper.open().last(),
        }
    }
}
