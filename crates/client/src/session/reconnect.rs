//! When to try again after something failed that somebody waits for: a connection, a subscription.
//!
//! ```text
//! n-th failure in a row     U(0, min(60 s, 100 ms · 2^n))        full jitter
//! "come back in r"          r + the same, with U over one second at most
//! an appointment            r, exactly: slots are distinct already
//! "with many others, W"     U(0, W), if that is more than the window
//! ```
//! A success counts as one only after it has lasted 30 s: a broker that takes connections and drops them is not well.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::rand_core::Rng;

use crate::limits::{COMEBACK_MAX, COMEBACK_MIN, HINT_MAX, STABLE_AFTER};

/// The state of coming back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconnect {
    failures: u8,
    since: Option<Timestamp>,
}

impl Reconnect {
    /// A connection was made.
    pub fn on_success(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    /// It failed, or what worked has ended; the answer is how long to wait.
    pub fn on_failure<R: Rng + ?Sized>(&mut self, now: Timestamp, hints: Option<&Hints>, rng: &mut R) -> Duration {
        if self.since.take().is_some_and(|since| now.since(since) >= STABLE_AFTER) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let window = COMEBACK_MIN.saturating_mul(1 << self.failures.min(16)).min(COMEBACK_MAX);
        let Some(told) = hints.and_then(|hints| hints.retry_after) else {
            let spread = hints.and_then(|hints| hints.spread).unwrap_or_default();
            return part_of(window.max(spread.min(HINT_MAX)), rng);
        };
        let told = told.min(HINT_MAX);
        if hints.is_some_and(|hints| hints.ticket.is_some()) {
            return told.max(COMEBACK_MIN);
        }
        told.max(COMEBACK_MIN) + part_of(window.min(Duration::from_secs(1)), rng)
    }

    /// Failures in a row.
    pub fn failures(&self) -> u8 {
        self.failures
    }
}

/// A uniform part of a time.
pub(crate) fn part_of<R: Rng + ?Sized>(whole: Duration, rng: &mut R) -> Duration {
    whole.mul_f64((rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;
    use tidegate_control::appointments::Ticket;

    use super::*;

    #[test]
    fn the_window_doubles_to_a_minute_and_closes_only_after_a_stable_time() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut reconnect = Reconnect::default();
        let at = |secs: u64| Timestamp::from_nanos(secs * 1_000_000_000);
        for failure in 1..=40_u32 {
            let window = Duration::from_millis(100) * 2_u32.pow(failure.min(10));
            let wait = reconnect.on_failure(at(0), None, &mut rng);
            assert!(wait <= window.min(COMEBACK_MAX), "{failure}: {wait:?}");
        }
        reconnect.on_success(at(10));
        reconnect.on_failure(at(20), None, &mut rng);
        assert_eq!(reconnect.failures(), 41, "ten seconds are not stable");
        reconnect.on_success(at(30));
        reconnect.on_failure(at(90), None, &mut rng);
        assert_eq!(reconnect.failures(), 1);
    }

    #[test]
    fn an_appointment_is_kept_and_absurd_advice_is_clamped() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let ticket = Some(Ticket { slot: Timestamp::ZERO, mac: 1 });
        let told = Hints { retry_after: Some(Duration::from_secs(3)), ticket, ..Hints::default() };
        assert_eq!(Reconnect::default().on_failure(Timestamp::ZERO, Some(&told), &mut rng), Duration::from_secs(3));
        let never = Hints { retry_after: Some(Duration::MAX), ..Hints::default() };
        assert!(Reconnect::default().on_failure(Timestamp::ZERO, Some(&never), &mut rng) <= HINT_MAX * 2);
        let now = Hints { retry_after: Some(Duration::ZERO), ..Hints::default() };
        assert!(Reconnect::default().on_failure(Timestamp::ZERO, Some(&now), &mut rng) >= COMEBACK_MIN);
    }

    #[test]
    fn who_is_cut_with_many_others_comes_back_within_the_time_that_is_said() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut mean = |secs| {
            let told = Hints { spread: Some(Duration::from_secs(secs)), ..Hints::default() };
            let mut wait = || Reconnect::default().on_failure(Timestamp::ZERO, Some(&told), &mut rng);
            let waits: Vec<Duration> = (0..1000).map(|_| wait()).collect();
            assert!(waits.iter().all(|wait| *wait <= HINT_MAX.min(Duration::from_secs(secs.max(1)))));
            waits.iter().sum::<Duration>().as_secs_f64() / 1000.0
        };
        assert!((4.0..6.0).contains(&mean(10)) && mean(0) < 0.2 && (120.0..180.0).contains(&mean(u64::MAX)));
    }
}
