//! How a claim learns: what a second says of the rate, and how much of it is believed.

use super::{
    Claim, ClaimPlan, FADE, HOUR, LEARN_MESSAGES, LEARN_SECONDS, LEARNED, RATE_MAX, RATE_MIN, SECONDS_MAX, SILENCE_MAX,
    YOUNG_MAX, YOUNG_SHIFT, YOUNG_SILENCE, YOUNG_SLACK, YOUNG_STEP, fade, ms,
};
use crate::compact;
use crate::time::Timestamp;

impl Claim {
    /// Seconds that have begun since the last message; one if the clock went back.
    pub(super) fn seconds_until(&self, now: Timestamp) -> u32 {
        let (now, last) = (ms(now), u32::from_le_bytes(self.last_ms));
        match (now / 1000).wrapping_sub(last / 1000) {
            seconds if seconds <= u32::MAX / 1000 => seconds,
            // Around the end of the count, every 49 days; or backwards.
            _ if now.wrapping_sub(last) < u32::MAX / 2 => now.wrapping_sub(last) / 1000 + 1,
            _ => 1,
        }
    }

    /// Learns from a second in which so many came, none if it was not calm, and from silent calm ones after it.
    pub(super) fn study(&mut self, plan: &ClaimPlan, count: Option<u32>, silent: u32, room: f32) {
        let seconds = silent + u32::from(count.is_some());
        if self.flags & LEARNED == 0 {
            let (messages, calm) = self.learning();
            let messages = messages.saturating_add(count.unwrap_or(0));
            let calm = calm.saturating_add(seconds).min(u16::MAX.into());
            let [a, b, c, d] = messages.to_le_bytes();
            let [e, f] = (calm as u16).to_le_bytes();
            self.body = [a, b, c, d, e, f, 0, 0];
            if calm >= LEARN_SECONDS && messages >= LEARN_MESSAGES && room > 0.0 {
                let rate = (messages as f32 / calm as f32).min(room);
                self.learn(plan, rate, self.batch());
                self.flags |= YOUNG_MAX << YOUNG_SHIFT;
            }
            return;
        }
        let [mut rate, mean] = self.rates();
        let weight = (1.0_f32 / 64.0).min(rate / 16.0);
        let mut next = mean;
        if let Some(count) = count {
            next += (count as f32 - next) * weight;
            if self.is_young() {
                rate = rate.min(next * YOUNG_SLACK);
            }
        }
        let missed = if self.is_young() { silent.min(YOUNG_SILENCE) } else { silent };
        if missed > 0 {
            next *= libm::powf(1.0 - weight, missed as f32);
        }
        let step = |seconds: u32| libm::exp2f(seconds.min(SECONDS_MAX) as f32 / HOUR);
        let rate = if next > rate {
            // Only by seconds that were calm, and not beyond what is left for its parent.
            next.min(rate * step(seconds)).min(rate + room.max(0.0))
        } else {
            next.max(rate / step(seconds))
        };
        self.set_rates(rate.clamp(RATE_MIN, RATE_MAX), next);
    }

    /// What was learned has not been confirmed yet.
    fn is_young(&self) -> bool {
        self.flags >> YOUNG_SHIFT > 0
    }

    /// So many seconds before this one are over.
    pub(super) fn grow_older(&mut self, now: Timestamp, passed: u32) {
        let second = ms(now) / 1000;
        let steps = second / YOUNG_STEP - second.saturating_sub(passed) / YOUNG_STEP;
        let left = u32::from(self.flags >> YOUNG_SHIFT).saturating_sub(steps) as u8;
        self.flags = self.flags & ((1 << YOUNG_SHIFT) - 1) | left << YOUNG_SHIFT;
    }

    /// The second that went on is over, and so many have begun since.
    pub(super) fn count_second(&mut self, count: u32, passed: u32) {
        if passed > SILENCE_MAX {
            (self.recent, self.age, self.before, self.count) = ([0; 2], 0, [0; 2], [0; 3]);
            return;
        }
        let mean = (self.recent() * FADE + count as f32 * (1.0 - FADE)) * fade((passed - 1) as f32);
        self.recent = compact::close(mean).to_le_bytes();
        self.before = compact::close(count as f32 / passed.max(1) as f32).to_le_bytes();
        self.age = self.age.saturating_add(passed.min(255) as u8);
        self.count = [0; 3];
    }

    pub(super) fn learning(&self) -> (u32, u32) {
        let [a, b, c, d, e, f, ..] = self.body;
        (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]).into())
    }
}
