//! The practical rule: GCRA around a learned interval ι, and a bounded reaction (CONTROL §9.2).
//!
//! *Learning.* ι is the mean of the first 16 intervals, then follows them with weight 1/16. It may shrink at most by half
//! in an hour (slow drift is learned, an attack is not), and a silence counts as four intervals at most (a sensor that
//! was off for three days has not become a slow one). While learning, the class's fastest interval stands for ι.
//!
//! *Detection.* GCRA with increment ι/h (headroom h = 2) and a tolerance of 8 increments. A message that comes before
//! tat − tolerance is early by w = tat − tolerance − now.
//!
//! *Reaction*, to early messages only, without dimension and continuous:
//! ```text
//! over  = min(max(1, FR_short/(h·FR_avg)), 20)                FR_short over about the last 8 messages
//! delay = min(D_max, max(w, D_0·(e^(over − 1) − 1)·min(1, w·h/ι)))
//! w > D_max  ⇒  refuse;  refused for 5·D_max  ⇒  disconnect
//! ```
//! The last factor makes the delay start from zero at w = 0 instead of jumping (invariant 20). A message that is not
//! held because nothing is enforced does not move tat: no debt is run up on an idle broker.

use core::time::Duration;

use super::Verdict;
use crate::time::{Timestamp, duration, seconds};

/// Times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct GcraPlan {
    pub(super) learn_intervals: u8,
    pub(super) headroom: f64,
    pub(super) burst: f64,
    pub(super) delay_unit: f64,
    pub(super) delay_max: f64,
    pub(super) interval_min: f64,
    pub(super) interval_max: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Gcra {
    /// Theoretical arrival time of the next message, the state of GCRA.
    arrival: Timestamp,
    last: Timestamp,
    /// Since when messages have been refused, but for one now and then.
    refused_since: Option<Timestamp>,
    /// Learned interval in seconds; the sum of the intervals while learning.
    interval: f64,
    /// Mean of the last intervals with weight 1/8, seconds; negative before the first.
    short: f32,
    /// Intervals seen, up to the length of the learning phase; `LEARNED` after it.
    intervals: u8,
    started: bool,
}

impl Gcra {
    pub(super) const NEW: Self = Self {
        arrival: Timestamp::ZERO,
        last: Timestamp::ZERO,
        refused_since: None,
        interval: 0.0,
        short: -1.0,
        intervals: 0,
        started: false,
    };

    pub(super) fn resume(plan: &GcraPlan, interval: Duration, now: Timestamp) -> Self {
        let interval = seconds(interval).clamp(plan.interval_min, plan.interval_max);
        Self {
            arrival: now,
            last: now,
            interval,
            short: interval as f32,
            intervals: LEARNED,
            started: true,
            ..Self::NEW
        }
    }

    pub(super) fn on_publish(&mut self, plan: &GcraPlan, now: Timestamp, enforced: bool) -> Verdict {
        self.learn(plan, now);
        let interval = self.interval().unwrap_or(plan.interval_min);
        let increment = interval / plan.headroom;
        let tolerance = duration(increment * plan.burst);
        let early = self.arrival.since(now + tolerance);
        if early.is_zero() {
            self.refused_since = None;
            self.take(now, increment);
            return Verdict::Pass;
        }
        if !enforced {
            self.refused_since = None;
            return Verdict::Pass;
        }
        let early = seconds(early);
        if early > plan.delay_max {
            return self.refuse(plan, now, early);
        }
        if early < plan.delay_max * FORGIVEN {
            self.refused_since = None;
        }
        self.take(now, increment);
        Verdict::Hold(duration(plan.delay(early, interval, f64::from(self.short))))
    }

    pub(super) fn interval(&self) -> Option<f64> {
        (self.intervals == LEARNED).then_some(self.interval)
    }

    pub(super) fn current_rate(&self) -> f64 {
        if self.short < 0.0 { 0.0 } else { 1.0 / f64::from(self.short).max(1e-9) }
    }

    fn take(&mut self, now: Timestamp, increment: f64) {
        self.arrival = self.arrival.max(now) + duration(increment);
    }

    fn refuse(&mut self, plan: &GcraPlan, now: Timestamp, early: f64) -> Verdict {
        let since = *self.refused_since.get_or_insert(now);
        let retry_after = duration(early);
        if seconds(now.since(since)) > PATIENCE * plan.delay_max {
            Verdict::Disconnect(retry_after)
        } else {
            Verdict::Refuse(retry_after)
        }
    }

    fn learn(&mut self, plan: &GcraPlan, now: Timestamp) {
        if !self.started {
            self.started = true;
            self.last = now;
            return;
        }
        let latest = seconds(now.since(self.last));
        self.last = self.last.max(now);
        let weight = if self.short < 0.0 { 1.0 } else { SHORT_WEIGHT };
        self.short = self.short.max(0.0) + (latest as f32 - self.short.max(0.0)) * weight;
        if self.intervals == LEARNED {
            self.follow(plan, latest);
            return;
        }
        self.interval += latest;
        self.intervals += 1;
        if self.intervals >= plan.learn_intervals {
            let mean = self.interval / f64::from(self.intervals);
            self.interval = mean.clamp(plan.interval_min, plan.interval_max);
            self.intervals = LEARNED;
        }
    }

    /// Moves the learned interval towards the latest one.
    fn follow(&mut self, plan: &GcraPlan, latest: f64) {
        let sample = latest.min(SILENCE_MAX * self.interval);
        let moved = self.interval + (sample - self.interval) * LEARN_WEIGHT;
        // 1/(1+y) ≥ e^(−y): many small steps never shrink it faster than 2^(−t/1 h).
        let slewed = self.interval / (1.0 + latest * SLEW_PER_SEC);
        self.interval = moved.max(slewed).clamp(plan.interval_min, plan.interval_max);
    }
}

impl GcraPlan {
    /// The delay of a message that is `early` by so much, from a publisher whose last few intervals were `short` on
    /// average. Seconds.
    pub(super) fn delay(&self, early: f64, interval: f64, short: f64) -> f64 {
        let over = (interval / (self.headroom * short.max(1e-9))).clamp(1.0, OVER_MAX);
        let ramp = (early * self.headroom / interval).min(1.0);
        early.max(self.delay_unit * (libm::exp(over - 1.0) - 1.0) * ramp).min(self.delay_max)
    }
}

/// Value of `intervals` once the learning phase is over.
const LEARNED: u8 = u8::MAX;
const LEARN_WEIGHT: f64 = 1.0 / 16.0;
const SHORT_WEIGHT: f32 = 1.0 / 8.0;
/// A silence counts as this many intervals at most.
const SILENCE_MAX: f64 = 4.0;
/// Half an interval per hour: ln 2 / 3600 s.
const SLEW_PER_SEC: f64 = core::f64::consts::LN_2 / 3600.0;
/// e^19 is beyond every D_max.
const OVER_MAX: f64 = 20.0;
/// A flooder that is refused still gets one message in now and then; it is forgiven when it is below half of D_max.
const FORGIVEN: f64 = 0.5;
/// Refused for this many D_max: the connection should end.
const PATIENCE: f64 = 5.0;
