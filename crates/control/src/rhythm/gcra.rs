//! The practical rule: GCRA around a learned interval ι, and a bounded reaction (CONTROL §9.2).
//!
//! *Detection.* GCRA with increment ι/h (headroom h = 2) and a tolerance of burst + b increments. A message that comes
//! before tat − tolerance is early by w = tat − tolerance − now. How ι is learned, `learn` tells; while it is, the class's
//! fastest interval stands for it, and the largest batch for b.
//!
//! *Batches.* b is the largest batch of late: a second bucket counts every message, drains by one per increment, and what
//! was in it at most is known when it is empty. Only then: a flood that goes on never becomes a batch, and what is
//! larger than `burst_max` = 512 is none. Once ι is known, b at most doubles from one batch to the next. So an attacker
//! who poses as a sender of batches gets b ≤ 512 messages through at once, after some practice, and has to wait until they
//! have drained; its mean rate stays below h/ι.
//!
//! *Reaction*, to early messages only, without dimension and continuous:
//! ```text
//! over  = min(max(1, FR_short/(h·FR_avg)), 20)                FR_short over about the last 8 messages
//! delay = min(D_max, max(w, D_0·(e^(over − 1) − 1)·min(1, w·h/ι)))
//! w > D_max  ⇒  refuse;  refused for 5·D_max  ⇒  disconnect
//! ```
//! *Stalls of the broker.* A message is judged when it is seen, and charged from when its connection was read last:
//! tat' = max(tat, earliest) + ι/h. Who could not be read for a second may have sent a second's worth, and no more: all that
//! is credited is time that has passed. What is learned is learned from the times at which messages are likely to have
//! come, or a stall would look like a batch.
//!
//! The last factor makes the delay start from zero at w = 0 instead of jumping (invariant 20). A message that is not
//! held because nothing is enforced does not move tat: no debt is run up on an idle broker. tat − now
//! is a debt of messages: it shrinks with ι, and a clock that goes back takes it along.

use core::time::Duration;

use super::learn::{LearnedInterval, SILENCE_MAX};
use super::{ArrivalTime, Verdict};
use crate::time::{Timestamp, duration, seconds};

/// Times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct GcraPlan {
    pub(super) learn_intervals: u8,
    pub(super) headroom: f64,
    pub(super) burst: f64,
    pub(super) burst_max: f32,
    pub(super) delay_unit: f64,
    pub(super) delay_max: f64,
    pub(super) interval_min: f64,
    pub(super) interval_max: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Gcra {
    pub(super) interval: LearnedInterval,
    /// Theoretical arrival time of the next message, the state of GCRA.
    pub(super) arrival: Timestamp,
    pub(super) last: Timestamp,
    /// Since when messages have been refused, but for one now and then; `NEVER` while they are not.
    pub(super) refused_since: Timestamp,
    /// Mean of the last intervals with weight 1/8, seconds; negative before the first.
    pub(super) short: f32,
    /// Messages of the batch that goes on, less what has drained; and the most that one of them found before it.
    pub(super) level: f32,
    pub(super) peak: f32,
    /// b: the largest batch of late, less one.
    pub(super) batch: f32,
}

impl Gcra {
    pub(super) const NEW: Self = Self {
        interval: LearnedInterval::Unseen,
        arrival: Timestamp::ZERO,
        last: Timestamp::ZERO,
        refused_since: NEVER,
        short: -1.0,
        level: 0.0,
        peak: 0.0,
        batch: 0.0,
    };

    pub(super) fn resume(plan: &GcraPlan, interval: Duration, batch: u32, now: Timestamp) -> Self {
        let interval = plan.allowed(interval);
        Self {
            interval: LearnedInterval::learned(interval),
            arrival: now,
            last: now,
            short: interval as f32,
            batch: (batch.saturating_sub(1) as f32).min(plan.burst_max),
            ..Self::NEW
        }
    }

    pub(super) fn pin(plan: &GcraPlan, interval: Duration, now: Timestamp) -> Self {
        Self { interval: LearnedInterval::Pinned(plan.allowed(interval)), ..Self::resume(plan, interval, 0, now) }
    }

    pub(super) fn on_publish(&mut self, plan: &GcraPlan, at: ArrivalTime, enforced: bool) -> Verdict {
        let ArrivalTime { earliest, likely, seen: now } = at;
        self.watch(plan, likely, now);
        // A stranger may be as fast as its class, and send the largest batch.
        let (interval, batch) =
            self.interval().map_or((plan.interval_min, plan.burst_max), |interval| (interval, self.batch));
        let increment = interval / plan.headroom;
        let tolerance = (increment * (plan.burst + f64::from(batch))).min(TOLERANCE_MAX);
        let in_time = now.plus_secs(tolerance);
        if self.arrival <= in_time {
            self.refused_since = NEVER;
            self.take(earliest, increment);
            return Verdict::Pass;
        }
        self.on_early(plan, at, enforced, [interval, increment, tolerance])
    }

    /// A message has come before its time.
    fn on_early(
        &mut self,
        plan: &GcraPlan,
        ArrivalTime { earliest, seen: now, .. }: ArrivalTime,
        enforced: bool,
        [interval, increment, tolerance]: [f64; 3],
    ) -> Verdict {
        // Nobody owes more than what is refused, whatever the clock or a shrinking tolerance did.
        self.arrival = self.arrival.min(now.plus_secs(tolerance + plan.delay_max + increment));
        let early = self.arrival.secs_since(now.plus_secs(tolerance));
        if !enforced {
            self.refused_since = NEVER;
            return Verdict::Pass;
        }
        if early > plan.delay_max {
            return self.refuse(plan, now, early);
        }
        if early < plan.delay_max * FORGIVEN {
            self.refused_since = NEVER;
        }
        self.take(earliest, increment);
        Verdict::Hold(duration(plan.delay(early, interval, f64::from(self.short))))
    }

    fn interval(&self) -> Option<f64> {
        self.interval.known()
    }

    fn take(&mut self, earliest: Timestamp, increment: f64) {
        self.arrival = self.arrival.max(earliest).plus_secs(increment);
    }

    fn refuse(&mut self, plan: &GcraPlan, now: Timestamp, early: f64) -> Verdict {
        self.refused_since = self.refused_since.min(now);
        let retry_after = duration(early);
        if now.secs_since(self.refused_since) > PATIENCE * plan.delay_max {
            Verdict::Disconnect(retry_after)
        } else {
            Verdict::Refuse(retry_after)
        }
    }

    /// Learns from an arrival: interval, batch and short-term rate.
    fn watch(&mut self, plan: &GcraPlan, came: Timestamp, now: Timestamp) {
        if now < self.last {
            self.arrival = now + self.arrival.since(self.last);
            self.last = now;
            return;
        }
        // Read after another connection of the same publisher that was silent for longer: in which order they came nobody
        // knows, and it says nothing about the rate of late.
        let is_late = came < self.last;
        if came <= self.last
            && let LearnedInterval::Learned { mean, .. } = &mut self.interval
            && self.level > 0.0
        {
            // One of many that were read at once, and nearly all of a flood. What follows, for an interval of nothing.
            if !is_late {
                self.short = (self.short.max(0.0) * (1.0 - SHORT_WEIGHT)).max(NANOSECOND);
            }
            LearnedInterval::shorten(mean, self.batch);
            self.fill(plan);
            return;
        }
        let came = came.max(self.last);
        let latest = came.secs_since(self.last);
        self.last = came;
        if !is_late && !matches!(self.interval, LearnedInterval::Unseen) {
            let sample = self.interval().map_or(latest, |interval| latest.min(SILENCE_MAX * interval)) as f32;
            let weight = if self.short < 0.0 { 1.0 } else { SHORT_WEIGHT };
            self.short = (self.short.max(0.0) + (sample - self.short.max(0.0)) * weight).max(NANOSECOND);
        }
        self.count(plan, latest);
        let before = self.interval();
        self.interval.on_interval(plan, latest, self.batch);
        if let (Some(before), Some(interval)) = (before, self.interval())
            && interval < before * SUDDEN
        {
            // The debt is one of messages: a publisher now known to be faster must not be too early for it. Small steps
            // need no care, it drains faster than they add up.
            self.arrival = self.arrival.min(came.plus_secs(self.arrival.secs_since(came) * (interval / before)));
        }
    }

    /// Counts the messages of a batch.
    fn count(&mut self, plan: &GcraPlan, latest: f64) {
        let over = match &self.interval {
            LearnedInterval::Unseen => true,
            LearnedInterval::Pinned(_) => return,
            LearnedInterval::Learning(first) => first.ends_batch(latest),
            LearnedInterval::Learned { interval, .. } => {
                self.level -= (latest * plan.headroom / interval) as f32;
                self.level <= 0.0
            }
        };
        if over {
            self.batch *= 1.0 - (latest as f32 * FORGET_PER_SEC).min(FORGET_MAX);
            if self.peak <= plan.burst_max {
                // While learning the largest counts; later it may grow to the double of what would have passed.
                let is_known = matches!(self.interval, LearnedInterval::Learned { .. });
                let most = if is_known { 2.0 * (self.batch + plan.burst as f32).max(1.0) } else { plan.burst_max };
                self.batch = self.batch.max(self.peak.min(most));
            }
            (self.level, self.peak) = (0.0, 0.0);
        }
        self.fill(plan);
    }

    /// One more message of the batch that goes on.
    fn fill(&mut self, plan: &GcraPlan) {
        self.peak = self.peak.max(self.level);
        self.level = (self.level + 1.0).min(plan.burst_max + 1.0);
    }
}

impl GcraPlan {
    /// The delay of a message that is `early` by so much, from a publisher whose last few intervals were `short` on
    /// average. Seconds.
    pub(super) fn delay(&self, early: f64, interval: f64, short: f64) -> f64 {
        let over = (interval / (self.headroom * short.max(1e-9))).clamp(1.0, OVER_MAX);
        let scale = self.delay_unit * (early * self.headroom / interval).min(1.0);
        // In a flood the answer is nearly always D_max, and the exponential half of the work of a decision. Its first
        // terms tell: e^x − 1 ≥ x + x²/2 + x³/6.
        let x = over - 1.0;
        if scale * x * (1.0 + x * (0.5 + x / 6.0)) >= self.delay_max {
            return self.delay_max;
        }
        early.max(scale * (libm::exp(x) - 1.0)).min(self.delay_max)
    }

    /// What a message owes, of a publisher with this ι or none yet.
    pub(super) fn increment(&self, interval: Option<f64>) -> f64 {
        interval.unwrap_or(self.interval_min) / self.headroom
    }

    fn allowed(&self, interval: Duration) -> f64 {
        seconds(interval).clamp(self.interval_min, self.interval_max)
    }
}

/// Means of intervals that are all zero stop here: numbers near the smallest float are slow to calculate with.
pub(super) const NANOSECOND: f32 = 1e-9;
/// A fall of ι below this share of what it was.
const SUDDEN: f64 = 0.99;
pub(super) const NEVER: Timestamp = Timestamp::MAX;
/// Nobody may be early by more than 60 days, in seconds: with a D_max and an increment on top it can still be kept.
const TOLERANCE_MAX: f64 = 60.0 * 86_400.0;
const SHORT_WEIGHT: f32 = 1.0 / 8.0;
/// A batch is forgotten by half in a day (ln 2 / 86 400 s), or by 1/64 per batch, whichever is slower: the rare batch of a
/// fast publisher and the weekly one of a slow publisher are both still known when they return.
const FORGET_PER_SEC: f32 = core::f32::consts::LN_2 / 86_400.0;
const FORGET_MAX: f32 = 1.0 / 64.0;
/// e^19 is beyond every D_max.
const OVER_MAX: f64 = 20.0;
/// A flooder that is refused still gets one message in now and then; it is forgiven when it is below half of D_max.
const FORGIVEN: f64 = 0.5;
/// Refused for this many D_max: the connection should end.
const PATIENCE: f64 = 5.0;
