//! How long things took, in buckets, by class: what counters cannot tell.
//!
//! The data plane pays next to nothing for it. A message that is taken, routed and written in one turn is not measured
//! itself: the driver says how long the turn took ([`Shard::handle_turned`](crate::Shard::handle_turned)), and all of them took that long, at most.
//! Only what had to wait (held, queued, owed, under way) is looked at one by one; it has its own timestamp anyway.
//!
//! No lock, no clock; each shard has its own, and they can be added up.

use alloc::boxed::Box;
use core::time::Duration;

use tidegate_control::{Spread, Timestamp};
use tidegate_wire_mqtt::{QoS, ReasonCode};

use crate::classes::{CLASSES_MAX, ClassId};
use crate::event::{Stats, Why};
use crate::state::ShardState;

/// What one shard has measured; sums over shards are meaningful. Classes are in the order of [`Stats::by_class`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// PUBLISH packets that had to wait because their publisher was too fast.
    pub delayed: [u64; CLASSES_MAX],
    /// How long those were made to wait.
    pub publish_delay: Spread,
    /// The same in usual intervals of their publishers, where those are known.
    pub backoff_factor: Spread,
    /// From a PUBLISH of QoS 1 (first) or 2 to our acknowledgement, of those that were taken.
    pub ack_latency: [[Spread; CLASSES_MAX]; 2],
    /// From a message's coming to a receiver's shard until it was written (QoS 0) or acknowledged; as many as were
    /// delivered.
    pub e2e_latency: [Spread; CLASSES_MAX],
    /// How long messages waited in a receiver's queue for their turn, of those that had to.
    pub scheduler_wait: [Spread; CLASSES_MAX],
    /// How long a turn of the loop took: whoever became ready meanwhile has waited for it.
    pub loop_lag: Spread,
    /// Connections that ended, in the order of [`CLOSED`].
    pub closed: [u64; CLOSED.len()],
}

/// Why connections ended, in short.
pub const CLOSED: [&str; 12] = [
    "client",
    "lost",
    "keep_alive",
    "taken_over",
    "protocol",
    "too_fast",
    "not_reading",
    "shutdown",
    "admin",
    "not_authorized",
    "other",
    "upstream",
];

impl Measures {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in self.delayed.iter_mut().zip(&other.delayed).chain(self.closed.iter_mut().zip(&other.closed))
        {
            *sum += part;
        }
        let mut other = *other;
        for (sum, part) in self.spreads_mut().zip(other.spreads_mut()) {
            sum.add(part);
        }
    }

    fn spreads_mut(&mut self) -> impl Iterator<Item = &mut Spread> {
        let single = [&mut self.publish_delay, &mut self.backoff_factor, &mut self.loop_lag];
        let by_class = self.e2e_latency.iter_mut().chain(&mut self.scheduler_wait);
        single.into_iter().chain(by_class).chain(self.ack_latency.iter_mut().flatten())
    }
}

/// What is measured, and what this turn has not measured yet.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    all: Box<Measures>,
    /// Acknowledgements of this turn to messages of this turn.
    answered: [[u64; CLASSES_MAX]; 2],
    has_answered: bool,
}

/// A message that is to be acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedAck {
    came: Timestamp,
    qos: QoS,
    class: ClassId,
}

impl AwaitedAck {
    pub(crate) fn new(qos: QoS, class: ClassId, came: Timestamp) -> Self {
        Self { came, qos, class }
    }
}

impl Meters {
    /// An acknowledgement goes out.
    #[inline]
    pub(crate) fn note_answer(&mut self, asked: AwaitedAck, now: Timestamp) {
        let (kind, class) = (usize::from(asked.qos == QoS::ExactlyOnce), asked.class.index());
        if asked.came == now {
            self.answered[kind][class] += 1;
            self.has_answered = true;
        } else {
            self.all.ack_latency[kind][class].note(now.since(asked.came));
        }
    }

    /// A message leaves a queue to be sent.
    #[inline]
    pub(crate) fn note_scheduled(&mut self, class: ClassId, since: Timestamp, now: Timestamp) {
        self.all.scheduler_wait[class.index()].note(now.since(since));
    }

    /// A message has reached a receiver that it had to wait for.
    #[inline]
    pub(crate) fn note_delivered(&mut self, class: ClassId, since: Timestamp, now: Timestamp) {
        self.all.e2e_latency[class.index()].note(now.since(since));
    }

    /// A publisher is too fast: a message of it has to wait.
    pub(crate) fn note_delay(&mut self, class: ClassId, delay: Duration, interval: Option<Duration>) {
        self.all.delayed[class.index()] += 1;
        self.all.publish_delay.note(delay);
        if let Some(interval) = interval.filter(|interval| !interval.is_zero()) {
            self.all.backoff_factor.note_ratio(delay.as_secs_f64() / interval.as_secs_f64());
        }
    }

    pub(crate) fn note_closed(&mut self, why: &Why) {
        self.all.closed[place_of(why)] += 1;
    }

    fn turned(&mut self, stats: &Stats, took: Duration) {
        self.all.loop_lag.note(took);
        for (spread, class) in self.all.e2e_latency.iter_mut().zip(&stats.by_class) {
            // All others are in it already.
            let at_once = class.delivered.saturating_sub(spread.count);
            if at_once > 0 {
                spread.note_many(took, at_once);
            }
        }
        if core::mem::take(&mut self.has_answered) {
            let spreads = self.all.ack_latency.iter_mut().flatten();
            for (spread, count) in spreads.zip(self.answered.iter_mut().flatten()).filter(|(_, count)| **count > 0) {
                spread.note_many(took, core::mem::take(count));
            }
        }
    }
}

/// Where a reason is in [`CLOSED`].
fn place_of(why: &Why) -> usize {
    match why {
        Why::Goodbye => 0,
        Why::Lost => 1,
        Why::KeepAlive => 2,
        Why::TakenOver => 3,
        Why::Protocol { .. } => 4,
        Why::TooFast { .. } => 5,
        Why::NotReading { .. } => 6,
        Why::Ended(ReasonCode::ServerShuttingDown) => 7,
        Why::Ended(ReasonCode::AdministrativeAction) => 8,
        Why::Ended(ReasonCode::NotAuthorized) => 9,
        Why::Ended(_) => 10,
        Why::UpstreamClosed | Why::UpstreamLost => 11,
    }
}

impl ShardState {
    pub(crate) fn handle_turned(&mut self, took: Duration) {
        self.meters.turned(&self.stats, took);
        self.gate.on_turn(self.stats.publish_received, took);
    }

    pub(crate) fn measures(&self) -> &Measures {
        &self.meters.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_shards_are_sums_of_everything() {
        let mut one = Measures::default();
        one.publish_delay.note(Duration::from_millis(3));
        one.backoff_factor.note_ratio(2.5);
        one.ack_latency[1][7].note(Duration::from_secs(100));
        one.e2e_latency[2].note_many(Duration::from_micros(20), 5);
        one.scheduler_wait[0].note(Duration::ZERO);
        one.loop_lag.note(Duration::from_micros(70));
        (one.delayed[1], one.closed[10]) = (3, 4);
        let mut sum = one;
        sum.add(&one);
        let twice = |of: fn(&Measures) -> u64| assert_eq!(of(&sum), 2 * of(&one));
        twice(|all| all.delayed[1]);
        twice(|all| all.closed[10]);
        let count = |mut all: Measures| all.spreads_mut().map(|spread| spread.count).sum::<u64>();
        assert_eq!((count(one), count(sum)), (10, 20));
        assert!(
            (sum.backoff_factor.sum_ratio() - 5.0).abs() < 1e-9
                && (one.e2e_latency[2].sum_seconds() - 1e-4).abs() < 1e-9
        );
    }

    #[test]
    fn what_was_done_at_once_took_as_long_as_the_turn() {
        let (mut meters, mut stats) = (Meters::default(), Stats::default());
        let (early, now) = (Timestamp::ZERO, Timestamp::ZERO + Duration::from_secs(1));
        stats.by_class[1].delivered = 4;
        meters.note_delivered(ClassId::NORMAL, early, now);
        meters.note_answer(AwaitedAck::new(QoS::AtLeastOnce, ClassId::NORMAL, now), now);
        meters.note_answer(AwaitedAck::new(QoS::AtLeastOnce, ClassId::NORMAL, early), now);
        for _ in 0..2 {
            meters.turned(&stats, Duration::from_micros(10));
        }
        let (delivered, answered) = (&meters.all.e2e_latency[1], &meters.all.ack_latency[0][1]);
        assert_eq!((delivered.count, delivered.buckets[0], answered.count, answered.buckets[0]), (4, 3, 2, 1));
        assert_eq!(meters.all.loop_lag.count, 2);
    }
}
