//! What somebody who never published may send before others: subscriptions, pings, and the answers to what it was sent.
//!
//! *The bound.* A connection that has not published is entitled to 128 packets at once and 32 a second, 16 of them in one
//! visit of the loop; what answers a delivery that is under way is not counted, because others wait for it. What is
//! beyond is excess. With its first PUBLISH it is a publisher, and a stranger is in excess from that message on: who was
//! silent for years and wakes as a flooder has had one visit, 16 packets. More connections gain nothing, as always: the
//! entitled are served by parent first. Who *is* known and was silent has its bucket, 8 + b messages (`claim`).
//!
//! Knows no packets and no sessions; told of each packet by `input` and of each confirmation by `handover`.

use core::time::Duration;

use tidegate_control::Timestamp;

/// How a connection stands as long as it does not publish.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silent {
    /// When its bucket is full.
    full_at: Timestamp,
    /// The packet that is handled now answers a delivery.
    is_answer: bool,
}

impl Silent {
    /// What is handled now was to be expected.
    #[inline]
    pub(crate) fn note_answer(&mut self) {
        self.is_answer = true;
    }

    /// A packet that is no PUBLISH was handled.
    #[inline]
    pub(crate) fn spend(&mut self, now: Timestamp) {
        if !core::mem::take(&mut self.is_answer) {
            self.full_at = (self.full_at.max(now) + INTERVAL).min(now + DEPTH);
        }
    }

    /// How many packets are entitled now, of one visit.
    pub(crate) fn tokens(&self, now: Timestamp) -> u32 {
        let left = DEPTH.saturating_sub(self.full_at.since(now));
        ((left.as_nanos() / INTERVAL.as_nanos()) as u32).min(VISIT_PACKETS)
    }

    /// From when on the next one is; zero if it is now.
    pub(crate) fn entitled_at(&self, now: Timestamp) -> Timestamp {
        match self.full_at.since(now).checked_sub(DEPTH.saturating_sub(INTERVAL)) {
            Some(wait) if !wait.is_zero() => now + wait,
            _ => Timestamp::ZERO,
        }
    }
}

/// An application subscribes to a hundred topics when it starts; a device pings twice a minute.
const PACKETS_MAX: u32 = 128;
/// A second by 32.
const INTERVAL: Duration = Duration::from_micros(31_250);
const DEPTH: Duration = Duration::from_micros(31_250 * PACKETS_MAX as u64);
/// What may be a flood is known after so many.
const VISIT_PACKETS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is sent when, no more than 128 and 32 a second are entitled, and answers are free.
        #[test]
        fn a_silent_connection_is_entitled_to_its_bucket_and_its_answers(
            packets in prop::collection::vec((0_u64..400, any::<bool>()), 1..2000),
        ) {
            let start = Timestamp::from_secs_f64(1000.0);
            let (mut silent, mut now, mut entitled) = (Silent::default(), start, 0_u32);
            for (millis, is_answer) in packets {
                now = now + Duration::from_millis(millis / 8);
                let tokens = silent.tokens(now);
                prop_assert_eq!(tokens > 0, silent.entitled_at(now) == Timestamp::ZERO);
                prop_assert!(silent.entitled_at(now) <= now + INTERVAL);
                if is_answer {
                    silent.note_answer();
                } else {
                    entitled += u32::from(tokens > 0);
                }
                silent.spend(now);
                if is_answer {
                    prop_assert_eq!(silent.tokens(now), tokens);
                }
            }
            let most = 128.0 + 32.0 * now.since(start).as_secs_f64();
            prop_assert!(f64::from(entitled) <= most + 1.0, "{entitled} of {most}");
        }
    }
}
