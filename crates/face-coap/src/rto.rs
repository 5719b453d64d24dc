//! How long to wait before a message is sent again: CoCoA+ (after draft-ietf-core-cocoa), from strong estimates (acknowledged
//! at once) and weak ones (acknowledged after a repetition, so that nobody knows which of them was meant).

use core::time::Duration;

use tidegate_control::Timestamp;

use crate::limits::{EXCHANGE_LIFETIME, RETRANSMITS_MAX};

const INITIAL: f32 = 2.0;
const SHORTEST: f32 = 0.1;
const LONGEST: f32 = 60.0;

/// Which times the repetitions of a message follow. What ships is CoCoA+; the other is there to be compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RtoRule {
    /// From what is known of the way.
    #[default]
    Cocoa,
    /// Two seconds, and twice as long each time, whatever the way is like (RFC 7252, section 4.8).
    Default,
}

/// What is known of the way to one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RtoEstimator {
    strong: Option<RoundTrip>,
    weak: Option<RoundTrip>,
    rto: f32,
    updated_at: Timestamp,
}

/// Mean and deviation, in seconds, as in RFC 6298.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    mean: f32,
    deviation: f32,
}

impl RoundTrip {
    fn update(known: &mut Option<Self>, sample: f32) -> Self {
        let next = match *known {
            None => Self { mean: sample, deviation: sample / 2.0 },
            Some(Self { mean, deviation }) => {
                Self { mean: 0.875 * mean + 0.125 * sample, deviation: 0.75 * deviation + 0.25 * (mean - sample).abs() }
            }
        };
        *known = Some(next);
        next
    }
}

impl RtoEstimator {
    /// Nothing is known.
    pub(crate) const FRESH: Self = Self { strong: None, weak: None, rto: INITIAL, updated_at: Timestamp::ZERO };

    /// Whether nothing is known.
    pub(crate) fn is_fresh(&self) -> bool {
        self.strong.is_none() && self.weak.is_none()
    }

    /// When what was learned says nothing any more.
    pub(crate) fn rests_at(&self) -> Option<Timestamp> {
        (!self.is_fresh()).then(|| self.updated_at + EXCHANGE_LIFETIME)
    }

    /// A message was acknowledged, so long after it was first sent, and sent again so often.
    pub(crate) fn on_acknowledged(&mut self, took: Duration, repetitions: u8, now: Timestamp) {
        let sample = took.as_secs_f32();
        let (estimate, weight) = match repetitions {
            0 => {
                let RoundTrip { mean, deviation } = RoundTrip::update(&mut self.strong, sample);
                (mean + 4.0 * deviation, 0.5)
            }
            1 | 2 => {
                let RoundTrip { mean, deviation } = RoundTrip::update(&mut self.weak, sample);
                (mean + deviation, 0.25)
            }
            _ => return,
        };
        self.rto = (weight * estimate + (1.0 - weight) * self.rto).clamp(SHORTEST, LONGEST);
        self.updated_at = now;
    }

    /// The time until the first repetition, before chance is added. What was learned long ago is believed less.
    pub(crate) fn first(&mut self, rule: RtoRule, now: Timestamp) -> Duration {
        if rule == RtoRule::Default {
            return Duration::from_secs_f32(INITIAL);
        }
        let age = now.since(self.updated_at).as_secs_f32();
        if self.rto < 1.0 && age > 16.0 * self.rto {
            self.rto = (2.0 * self.rto).min(1.0);
            self.updated_at = now;
        } else if self.rto > 3.0 && age > 4.0 * self.rto {
            self.rto = 1.0 + 0.5 * self.rto;
            self.updated_at = now;
        }
        Duration::from_secs_f32(self.rto)
    }

    /// The time until the next one: short times grow fast, long ones slowly.
    pub(crate) fn next(rule: RtoRule, before: Duration) -> Duration {
        let factor = match before.as_secs_f32() {
            _ if rule == RtoRule::Default => 2.0,
            short if short < 1.0 => 3.0,
            long if long > 3.0 => 1.5,
            _ => 2.0,
        };
        before.mul_f32(factor).min(Duration::from_secs_f32(LONGEST))
    }

    /// The usual time there and back; none before the first strong sample.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.strong.map(|strong| Duration::from_secs_f32(strong.mean.max(0.0)))
    }

    /// Whether a message that was sent again so often is given up.
    pub(crate) fn is_over(repetitions: u8) -> bool {
        repetitions >= RETRANSMITS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    #[test]
    fn a_fast_way_is_learned_and_a_slow_one_too() {
        let mut rto = RtoEstimator::FRESH;
        assert_eq!(rto.first(RtoRule::Cocoa, Timestamp::ZERO), Duration::from_secs(2));
        for number in 0..40 {
            rto.on_acknowledged(Duration::from_millis(40), 0, at(f64::from(number)));
        }
        let fast = rto.first(RtoRule::Cocoa, at(40.0));
        assert!(fast < Duration::from_millis(250), "{fast:?}");
        for number in 0..40 {
            rto.on_acknowledged(Duration::from_secs(5), 0, at(f64::from(41 + number)));
        }
        assert!(rto.first(RtoRule::Cocoa, at(81.0)) > Duration::from_secs(4));
    }

    #[test]
    fn weak_estimates_count_for_less_and_a_third_repetition_for_nothing() {
        let (mut strong, mut weak) = (RtoEstimator::FRESH, RtoEstimator::FRESH);
        strong.on_acknowledged(Duration::from_secs(10), 0, Timestamp::ZERO);
        weak.on_acknowledged(Duration::from_secs(10), 1, Timestamp::ZERO);
        assert!(strong.first(RtoRule::Cocoa, Timestamp::ZERO) > weak.first(RtoRule::Cocoa, Timestamp::ZERO));
        let before = weak.first(RtoRule::Cocoa, Timestamp::ZERO);
        weak.on_acknowledged(Duration::from_secs(50), 3, Timestamp::ZERO);
        assert_eq!(weak.first(RtoRule::Cocoa, Timestamp::ZERO), before);
    }

    #[test]
    fn what_was_learned_long_ago_drifts_back() {
        let mut rto = RtoEstimator::FRESH;
        for _ in 0..40 {
            rto.on_acknowledged(Duration::from_millis(10), 0, Timestamp::ZERO);
        }
        let learned = rto.first(RtoRule::Cocoa, at(0.1));
        assert!(rto.first(RtoRule::Cocoa, at(600.0)) > learned);
    }

    #[test]
    fn repetitions_wait_longer_and_longer_and_never_for_ever() {
        assert_eq!(RtoEstimator::next(RtoRule::Cocoa, Duration::from_millis(500)), Duration::from_millis(1500));
        assert_eq!(RtoEstimator::next(RtoRule::Cocoa, Duration::from_secs(2)), Duration::from_secs(4));
        assert_eq!(RtoEstimator::next(RtoRule::Cocoa, Duration::from_secs(4)), Duration::from_secs(6));
        assert_eq!(RtoEstimator::next(RtoRule::Cocoa, Duration::from_secs(59)), Duration::from_secs(60));
    }

    #[test]
    fn the_times_of_the_rfc_are_the_same_whatever_was_learned() {
        let mut rto = RtoEstimator::FRESH;
        rto.on_acknowledged(Duration::from_millis(40), 0, Timestamp::ZERO);
        assert_eq!(rto.first(RtoRule::Default, Timestamp::ZERO), Duration::from_secs(2));
        assert_eq!(RtoEstimator::next(RtoRule::Default, Duration::from_secs(4)), Duration::from_secs(8));
        assert!(rto.first(RtoRule::Cocoa, Timestamp::ZERO) < Duration::from_secs(2));
    }
}
