//! A subscription that the broker has handed over: it notifies no more, and its client asks what was missed.
//!
//! The question is by the number of the last notification, so the answer says exactly what came since: a reader notices
//! nothing but delay. The pacer looks for losses and learns nothing from these checks; it goes on when the broker notifies
//! again. What a broker says is clamped, and who paces itself exactly as the papers do accepts no delegation.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::{Delegate, Hints};
use tidegate_control::pacer::Outcome;
use tidegate_control::rand_core::Rng;

use super::{Attempt, ChangeDelivery, ChangeSource, Watch};
use crate::limits::{DELEGATED_MAX, DELEGATED_MIN};
use crate::session::reconnect::part_of;
use crate::session::row::Delta;

impl Watch {
    /// Whether the broker is told that it may hand the subscription over.
    pub(super) fn accepts_delegation(&self) -> bool {
        self.plan.delivery == ChangeDelivery::Push && !self.plan.pacer.is_exact()
    }

    pub(super) fn on_delegated<R: Rng + ?Sized>(
        &mut self,
        attempt: Attempt,
        sequence: u64,
        every: Option<Duration>,
        now: Timestamp,
        rng: &mut R,
    ) {
        let Some((live, last)) = self.subscription.live.filter(|(live, _)| *live == attempt) else { return };
        let missing = u32::try_from(sequence.saturating_sub(last)).unwrap_or(u32::MAX);
        if missing > 0 {
            self.subscription.live = Some((live, sequence));
            self.counts.gaps += u64::from(missing);
            self.gap = self.gap.saturating_add(missing);
            self.tell(Delta::default(), missing, ChangeSource::Notification);
        }
        match every.filter(|_| self.accepts_delegation()) {
            Some(every) => self.delegate(every, now, rng),
            None => self.take_back(now, rng),
        }
        if missing > 0 {
            // A gap needs a baseline, whoever brings what follows.
            self.next = Some(self.next.map_or(now, |next| next.min(now + DELEGATED_MIN)));
        }
    }

    /// What an answer to a check says about it.
    pub(super) fn heed_delegation<R: Rng + ?Sized>(&mut self, hints: &Hints, now: Timestamp, rng: &mut R) {
        match hints.delegate {
            Some(Delegate::Check) if self.accepts_delegation() && self.subscription.live.is_some() => {
                if let Some(every) = hints.interval {
                    self.delegate(every, now, rng);
                }
            }
            Some(Delegate::Push) => self.take_back(now, rng),
            // Who was taken back hears of it by a notice of its own, which may be on its way.
            Some(Delegate::Check) | None => {}
        }
    }

    fn delegate<R: Rng + ?Sized>(&mut self, every: Duration, now: Timestamp, rng: &mut R) {
        let every = every.clamp(DELEGATED_MIN, DELEGATED_MAX);
        if self.delegated.replace(every).is_none() {
            self.counts.delegations += 1;
            // Many are told at once, and must not ask at once.
            (self.next, self.fetch) = (Some(now + part_of(every, rng)), None);
        }
    }

    /// It is notified again, or there is no subscription any more: checks look for losses only, as they did before.
    pub(super) fn take_back<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) {
        if self.delegated.take().is_some() {
            let delay = self.pacer.first_delay(rng);
            self.timeout_ms = delay.map(super::millis);
            self.next = delay.map(|delay| now + delay);
        }
    }

    /// When the next check is due: what the pacer says, or the broker, if it has handed over.
    pub(super) fn next_after<R: Rng + ?Sized>(
        &self,
        at: Timestamp,
        delay: Option<Duration>,
        outcome: &Outcome,
        rng: &mut R,
    ) -> Option<Timestamp> {
        let Some(every) = self.delegated else { return delay.map(|delay| at + delay) };
        let told = outcome.hints().and_then(|hints| Some((hints.retry_after?.min(DELEGATED_MAX), hints.ticket)));
        Some(
            at + match (outcome, told) {
                (Outcome::Denied { .. }, Some((slot, Some(_)))) => slot,
                (Outcome::Denied { .. }, Some((least, None))) => least.max(every) + part_of(every / 2, rng),
                // Three quarters to five: who was told together does not stay together.
                _ => every.mul_f64(0.75) + part_of(every / 2, rng),
            },
        )
    }
}
