//! What arrives, and what it means for the view, for the losses and for the next request.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{Level, Outcome};
use tidegate_control::rand_core::Rng;

use super::{Attempt, ChangeDelivery, ChangeSource, ExchangeFailure, Input, OpenCheck, Suspicion, Watch, WatchCheck};
use crate::limits::{MISSED_MAX, OVERLAP_ROWS_MAX, ROWS_MAX, TRAIL_MAX};
use crate::prelude::*;
use crate::session::row::{Delta, Row, View};

impl Watch {
    /// Something arrived.
    pub fn handle<R: Rng + ?Sized>(&mut self, input: Input, now: Timestamp, rng: &mut R) {
        match input {
            Input::Subscribed { attempt, sequence, rows } => {
                let told = (rows.len() <= ROWS_MAX).then(|| self.view.difference(&View::of(rows)));
                self.on_subscribed(attempt, sequence, told, now, rng);
            }
            Input::Resumed { attempt, sequence, delta } => {
                let told = self.subscription.before.is_some().then_some(delta);
                let subscribed = self.counts.subscribed;
                self.on_subscribed(attempt, sequence, told, now, rng);
                self.counts.resumed += self.counts.subscribed - subscribed;
            }
            Input::Changed { attempt, sequence, delta, spread } => {
                if self.subscription.live.is_some_and(|(live, _)| live == attempt) {
                    self.on_changed(sequence, delta, spread, now, rng);
                }
            }
            Input::Delegated { attempt, sequence, every } => self.on_delegated(attempt, sequence, every, now, rng),
            Input::Ended { attempt, hints } => self.on_ended(attempt, &hints, now, rng),
            Input::Whole { attempt, rows, version, hints } => {
                if let Some(asking) = self.take_asking(attempt) {
                    self.version = version;
                    self.on_whole(&asking, rows, hints, now, rng);
                }
            }
            Input::Missed { attempt, sequence, delta, hints } => {
                if let Some(asking) = self.take_asking(attempt) {
                    let told = asking.overlap.clone().map(|overlap| overlap.inverse().then(delta));
                    self.on_missed(&asking, sequence, told, hints, now, rng);
                }
            }
            Input::Fresh { attempt, sequence, rows, hints } => {
                if let Some(asking) = self.take_asking(attempt) {
                    let told = (rows.len() <= ROWS_MAX).then(|| self.view.difference(&View::of(rows)));
                    self.on_missed(&asking, sequence, told, hints, now, rng);
                }
            }
            Input::NotModified { attempt, hints } => {
                if let Some(asking) = self.take_asking(attempt) {
                    let latency = now.since(asking.sent);
                    self.end(now, &Outcome::Answered { latency, losses: 0, not_modified: true, hints }, rng);
                }
            }
            Input::Refused { attempt, failure } => self.on_refused(attempt, &failure, now, rng),
        }
    }

    /// The check of this number, if it is the one under way.
    fn take_asking(&mut self, attempt: Attempt) -> Option<Box<OpenCheck>> {
        match &self.check {
            WatchCheck::Asking(asking) if asking.attempt == attempt => {}
            _ => return None,
        }
        match core::mem::replace(&mut self.check, WatchCheck::Idle) {
            WatchCheck::Asking(asking) => Some(asking),
            _ => None,
        }
    }

    fn on_subscribed<R: Rng + ?Sized>(
        &mut self,
        attempt: Attempt,
        sequence: u64,
        told: Option<Delta>,
        now: Timestamp,
        rng: &mut R,
    ) {
        let Some((_, sent)) = self.subscription.asking.filter(|(asked, _)| *asked == attempt) else { return };
        let Some(delta) = told else {
            return self.on_refused(attempt, &ExchangeFailure::Failed(None), now, rng);
        };
        self.subscription.asking = None;
        self.subscription.before = None;
        self.subscription.live = Some((attempt, sequence));
        self.subscription.overtaken = sequence;
        // Said anew if it is so.
        self.take_back(now, rng);
        self.subscription.reconnect.on_success(now);
        self.counts.subscribed += 1;
        self.version = None;
        let delta = self.view.apply(delta);
        let changed = losses_of(&delta);
        let gap = core::mem::take(&mut self.gap);
        let was_founded = core::mem::replace(&mut self.is_founded, true);
        let lost = match core::mem::replace(&mut self.check, WatchCheck::Idle) {
            WatchCheck::Repairing { losses, suspicion } => {
                let losses = losses.max(gap);
                match suspicion {
                    Some(suspicion) => self.settle(*suspicion, losses, rng),
                    None => self.end(now, &Outcome::answered(now.since(sent), losses), rng),
                }
                // What a gap had lost was told with the gap.
                losses.saturating_sub(gap)
            }
            other => {
                self.check = other;
                if was_founded {
                    self.counts.away += u64::from(changed);
                    self.pacer.on_late_answer(now, changed);
                }
                if was_founded { changed } else { 0 }
            }
        };
        self.note_state();
        self.tell(delta, lost, if was_founded { ChangeSource::Check } else { ChangeSource::Baseline });
    }

    fn on_changed<R: Rng + ?Sized>(
        &mut self,
        sequence: Option<u64>,
        delta: Delta,
        spread: Option<Duration>,
        now: Timestamp,
        rng: &mut R,
    ) {
        // Whoever is notified is not to check; the notice may have been lost.
        self.take_back(now, rng);
        let Some((_, last)) = &mut self.subscription.live else { return };
        let (missing, is_sound) = match sequence {
            None => (0, true),
            // Told already, by a check that overtook it.
            Some(number) if number <= self.subscription.overtaken => return self.on_late(rng),
            // A number that cannot be: what it says is not to be trusted, and something is amiss.
            Some(number) if number <= *last => (1, false),
            Some(number) => (number - core::mem::replace(last, number) - 1, true),
        };
        let is_sound = is_sound && self.view.len() + delta.added.len() <= ROWS_MAX;
        let missing = u32::try_from(missing).unwrap_or(u32::MAX).max(u32::from(!is_sound));
        self.counts.notifications += u64::from(is_sound);
        self.counts.gaps += u64::from(missing);
        let done = if is_sound { self.view.apply(delta) } else { Delta::default() };
        self.note_overlap(&done);
        self.note_state();
        self.tell(done, missing, ChangeSource::Notification);
        if missing > 0 {
            let is_first = self.gap == 0;
            self.gap = self.gap.saturating_add(missing);
            // The papers know regular checks only: the next one finds what is missing.
            if !self.plan.pacer.is_exact() {
                self.plan_fetch(is_first, spread, now, rng);
            }
        }
        match core::mem::replace(&mut self.check, WatchCheck::Idle) {
            WatchCheck::Settling { print, suspicion } if print == self.view.print() => self.settle(*suspicion, 0, rng),
            other => self.check = other,
        }
    }

    /// Something is known to be missing. It is fetched soon; but whoever has a place keeps it, because what comes before its
    /// time is sent away, and while everybody has to wait longer, only that part of the time to the next check is saved that
    /// nobody has to wait: losses are many then, and would be most of what is asked.
    fn plan_fetch<R: Rng + ?Sized>(&mut self, is_first: bool, spread: Option<Duration>, now: Timestamp, rng: &mut R) {
        if self.ticket.is_some() {
            return;
        }
        let stretch = self.pacer.stretch();
        if stretch > 1.0 {
            let rest = self.next.map_or(Duration::ZERO, |next| next.since(now));
            if is_first && !rest.is_zero() {
                self.next = Some(now + rest.mul_f64(1.0 - 1.0 / stretch));
            }
        } else if let Some(delay) = self.pacer.on_push_hint(spread, rng) {
            self.fetch = Some(now + delay);
        }
    }

    fn on_ended<R: Rng + ?Sized>(&mut self, attempt: Attempt, hints: &Hints, now: Timestamp, rng: &mut R) {
        if self.subscription.asking.is_some_and(|(asked, _)| asked == attempt) {
            return self.on_refused(attempt, &ExchangeFailure::Failed(hints.retry_after), now, rng);
        }
        if self.subscription.live.is_none_or(|(live, _)| live != attempt) {
            return;
        }
        self.subscription.before = self.subscription.live.take().filter(|_| self.gap == 0);
        // Whatever was lost on it is found by the baseline of the next.
        self.gap = 0;
        self.take_back(now, rng);
        if self.subscription.asking.is_none() && self.subscription.due.is_none() {
            let delay = self.subscription.reconnect.on_failure(now, Some(hints), rng);
            self.subscription.due = Some(now + delay);
        }
    }

    fn on_whole<R: Rng + ?Sized>(
        &mut self,
        asking: &OpenCheck,
        rows: Vec<Row>,
        hints: Hints,
        now: Timestamp,
        rng: &mut R,
    ) {
        let latency = now.since(asking.sent);
        let live = self.subscription.live.map(|(attempt, _)| attempt);
        if rows.len() > ROWS_MAX {
            return self.end(now, &Outcome::Failed, rng);
        }
        let mut losses = 0;
        match live {
            None if asking.live.is_none() => {
                self.subscription.before = None;
                let delta = self.view.replace(rows);
                let was_founded = core::mem::replace(&mut self.is_founded, true);
                losses = if was_founded { losses_of(&delta) } else { 0 };
                let lost = if self.plan.delivery == ChangeDelivery::Poll { 0 } else { losses };
                self.tell(delta, lost, if was_founded { ChangeSource::Check } else { ChangeSource::Baseline });
            }
            // It may be older than what notifications have told meanwhile, and the next baseline is on its way.
            None => self.version = None,
            Some(_) => {
                let print = View::print_of(&rows);
                if !asking.trail.contains(&print) && print != self.view.print() {
                    self.version = None;
                    let losses = losses_of(&self.view.difference(&View::of(rows))).max(1);
                    let suspicion = self.suspect(now, losses, (latency, hints), rng);
                    self.check = WatchCheck::Settling { print, suspicion };
                    return;
                }
                if print != self.view.print() {
                    self.version = None;
                }
            }
        }
        self.end(now, &Outcome::Answered { latency, losses, not_modified: false, hints }, rng);
    }

    /// `told` leads from the view to the state of that number; notifications of meanwhile are contained in it.
    fn on_missed<R: Rng + ?Sized>(
        &mut self,
        asking: &OpenCheck,
        sequence: u64,
        told: Option<Delta>,
        hints: Hints,
        now: Timestamp,
        rng: &mut R,
    ) {
        self.heed_delegation(&hints, now, rng);
        let latency = now.since(asking.sent);
        let live = self.subscription.live.zip(asking.live).filter(|((live, _), (of, _))| live == of);
        if let Some(((_, last), (_, since))) = live
            && !(since..=last.saturating_add(MISSED_MAX)).contains(&sequence)
        {
            return self.distrust(now, rng);
        }
        let live = live.map(|(live, _)| live).filter(|(_, last)| *last <= sequence);
        let (Some((attempt, last)), Some(delta)) = (live, told) else {
            // Of another subscription, or it cannot be told apart from what came meanwhile: the next check asks anew.
            return self.end(now, &Outcome::Answered { latency, losses: 0, not_modified: false, hints }, rng);
        };
        // What has no number yet was not lost: the answer is how it is told.
        let numbered = u32::try_from(sequence.saturating_sub(last).saturating_sub(1)).unwrap_or(u32::MAX);
        self.subscription.live = Some((attempt, sequence));
        self.subscription.overtaken = sequence;
        let gap = core::mem::take(&mut self.gap);
        let done = self.view.apply(delta);
        let losses = losses_of(&done).min(numbered).max(gap);
        self.note_state();
        self.tell(done, 0, ChangeSource::Check);
        if losses == 0 {
            return self.end(now, &Outcome::Answered { latency, losses, not_modified: false, hints }, rng);
        }
        self.check = WatchCheck::Overtaken(self.suspect(now, losses, (latency, hints), rng));
    }

    /// A check was answered with a number that cannot be. If it were believed, every notification up to it would be taken
    /// for told: the subscription is begun anew, with a baseline.
    fn distrust<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) {
        self.end(now, &Outcome::Failed, rng);
        (self.subscription.live, self.subscription.before) = (None, None);
        self.gap = 0;
        self.take_back(now, rng);
        if self.subscription.asking.is_none() && self.subscription.due.is_none() {
            let delay = self.subscription.reconnect.on_failure(now, None, rng);
            self.subscription.due = Some(now + delay);
        }
    }

    /// A notification that a check has overtaken: it was late, not lost.
    fn on_late<R: Rng + ?Sized>(&mut self, rng: &mut R) {
        match core::mem::replace(&mut self.check, WatchCheck::Idle) {
            WatchCheck::Overtaken(suspicion) if suspicion.losses <= 1 => self.settle(*suspicion, 0, rng),
            WatchCheck::Overtaken(suspicion) => {
                let Suspicion { at, losses, latency, hints, .. } = *suspicion;
                self.check = WatchCheck::Overtaken(self.suspect(at, losses - 1, (latency, hints), rng));
            }
            other => self.check = other,
        }
    }

    /// What has not come by now was lost.
    pub(super) fn end_overtaken<R: Rng + ?Sized>(&mut self, rng: &mut R) {
        match core::mem::replace(&mut self.check, WatchCheck::Idle) {
            WatchCheck::Overtaken(suspicion) => {
                let losses = suspicion.losses;
                self.tell(Delta::default(), losses, ChangeSource::Check);
                self.settle(*suspicion, losses, rng);
            }
            other => self.check = other,
        }
    }

    fn on_refused<R: Rng + ?Sized>(
        &mut self,
        attempt: Attempt,
        failure: &ExchangeFailure,
        now: Timestamp,
        rng: &mut R,
    ) {
        if let Some(asking) = self.take_asking(attempt) {
            if *failure == ExchangeFailure::Unsupported {
                // Asked in the other way, at once: nobody is to blame.
                self.can_tell_missed = false;
                self.counts.checks = self.counts.checks.saturating_sub(1);
                self.next = Some(asking.sent);
                return;
            }
            return self.end(now, &outcome_of(failure), rng);
        }
        if self.subscription.asking.is_none_or(|(asked, _)| asked != attempt) {
            return;
        }
        self.subscription.asking = None;
        let hints = match failure {
            ExchangeFailure::Denied(hints) => hints.clone(),
            ExchangeFailure::Failed(again) => Hints { retry_after: *again, ..Hints::default() },
            ExchangeFailure::TimedOut | ExchangeFailure::Unsupported => Hints::default(),
        };
        if let WatchCheck::Repairing { suspicion, .. } = &mut self.check {
            // The delay now counts from the repair that succeeds.
            *suspicion = None;
            self.end(now, &outcome_of(failure), rng);
            self.next = None;
        } else {
            match failure {
                ExchangeFailure::Denied(_) => self.counts.denied += 1,
                _ => self.counts.failed += 1,
            }
            self.ticket = hints.ticket;
        }
        let delay = self.subscription.reconnect.on_failure(now, Some(&hints), rng);
        self.subscription.due = Some(now + delay);
    }

    /// A state of the view, for the check under way.
    fn note_state(&mut self) {
        let print = self.view.print();
        if let WatchCheck::Asking(asking) = &mut self.check {
            if asking.trail.len() == TRAIL_MAX {
                asking.trail.remove(0);
            }
            asking.trail.push(print);
        }
    }

    /// A notification, for the check under way.
    fn note_overlap(&mut self, delta: &Delta) {
        if let WatchCheck::Asking(asking) = &mut self.check {
            let before = asking.overlap.take();
            asking.overlap = before
                .filter(|before| before.len() + delta.len() <= OVERLAP_ROWS_MAX)
                .map(|before| before.then(delta.clone()));
        }
    }

    /// The level of control.
    pub fn level(&self) -> Level {
        self.pacer.snapshot().level
    }
}

/// k of a difference: each lost notification moved at least one row.
fn losses_of(delta: &Delta) -> u32 {
    u32::try_from(delta.added.len().max(delta.removed.len())).unwrap_or(u32::MAX)
}

fn outcome_of(failure: &ExchangeFailure) -> Outcome {
    match failure {
        ExchangeFailure::Denied(hints) => Outcome::Denied { hints: hints.clone() },
        ExchangeFailure::TimedOut => Outcome::TimedOut,
        ExchangeFailure::Failed(_) | ExchangeFailure::Unsupported => Outcome::Failed,
    }
}
