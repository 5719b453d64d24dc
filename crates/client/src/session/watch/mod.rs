//! One persistent query: the papers' object, without a socket.
//!
//! It holds a view of a result that lives elsewhere. Notifications move it, *checks* find what no notification told, and a
//! new subscription repairs it: only a baseline is atomically consistent with the notifications that follow.
//!
//! - told: [`Watch::handle`], [`Watch::check_now`]
//! - asked: [`Watch::turn`] (what to send now), [`Watch::poll_change`], [`Watch::poll_timeout`]
//! - getters: [`Watch::view`], [`Watch::stats`]
//!
//! The contract: *handle what arrived, turn until there is nothing to send, take the change, come back at the timeout*.
//! A subscription that fails comes back with full jitter; a check that fails is the pacer's affair.

mod delegated;
mod exchange;
mod input;
#[cfg(test)]
mod tests;

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::appointments::Ticket;
use tidegate_control::hints::{Accept, Asks, Hints};
use tidegate_control::pacer::{Outcome, Pacer};
use tidegate_control::rand_core::Rng;

use super::reconnect::Reconnect;
use super::row::{Delta, View};
use crate::limits::{ANSWER_TIMEOUT, DEADLINE_SHARE, GRACE};
use crate::prelude::*;
pub use exchange::{
    Attempt, ChangeDelivery, ChangeSource, ExchangeFailure, Input, ResultChange, WatchAction, WatchCounts, WatchPlan,
    WatchStats,
};

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Watch {
    plan: Arc<WatchPlan>,
    view: View,
    /// A whole result has been seen.
    is_founded: bool,
    pacer: Pacer,
    attempts: u32,
    subscription: WatchSubscription,
    check: WatchCheck,
    /// When the regular check is due.
    next: Option<Timestamp>,
    /// t, as the pacer has drawn it.
    timeout_ms: Option<u32>,
    /// When what a gap announced is to be fetched.
    fetch: Option<Timestamp>,
    /// Lost notifications that are known by their numbers and not repaired.
    gap: u32,
    can_tell_missed: bool,
    /// The broker does not notify for now: it is asked so often.
    delegated: Option<Duration>,
    /// The check under way is one of those; the pacer knows nothing of it.
    is_fetching: bool,
    version: Option<Box<str>>,
    ticket: Option<Ticket>,
    pending: Option<Box<ResultChange>>,
    counts: WatchCounts,
}

#[derive(Clone, Debug, Default)]
struct WatchSubscription {
    /// The one that stands, and the number of its last notification.
    live: Option<(Attempt, u64)>,
    /// The one before, while the view is exactly the state of its last notification.
    before: Option<(Attempt, u64)>,
    /// The one that was asked for, and when.
    asking: Option<(Attempt, Timestamp)>,
    due: Option<Timestamp>,
    /// Notifications up to this number were contained in the answer to a check.
    overtaken: u64,
    reconnect: Reconnect,
}

#[derive(Clone, Debug)]
enum WatchCheck {
    Idle,
    Asking(Box<OpenCheck>),
    /// The answer is not the view: a notification may still be on its way.
    Settling {
        print: u64,
        suspicion: Box<Suspicion>,
    },
    /// It is known what was missed and how many notifications would have said it. Those that are still on their way were
    /// not lost.
    Overtaken(Box<Suspicion>),
    /// Something was lost: a new subscription will tell. `suspicion` is what is known of the check that found out; none if
    /// the subscription itself is the check.
    Repairing {
        losses: u32,
        suspicion: Option<Box<Suspicion>>,
    },
}

/// A check was answered, and what it shows may be a loss or only a notification that is late. The delay until the next
/// check counts from the answer, whenever the question is settled.
#[derive(Clone, Debug)]
struct Suspicion {
    /// When the check was answered.
    at: Timestamp,
    /// What has not come by then was lost: after a grace, and before the next check would be due.
    until: Timestamp,
    losses: u32,
    latency: Duration,
    hints: Hints,
    /// The pacer if it is a loss, and the delay that it then says.
    if_lost: (Pacer, Option<Duration>),
}

#[derive(Clone, Debug)]
struct OpenCheck {
    attempt: Attempt,
    sent: Timestamp,
    /// States that the view went through since.
    trail: Vec<u64>,
    /// What notifications changed since; none if it was too much to remember.
    overlap: Option<Delta>,
    /// The subscription that stood then, and the number of its last notification.
    live: Option<(Attempt, u64)>,
}

impl Watch {
    /// A watch that begins now.
    pub fn new<R: Rng + ?Sized>(plan: &Arc<WatchPlan>, now: Timestamp, rng: &mut R) -> Self {
        let mut pacer = Pacer::new(&plan.pacer);
        let first = pacer.first_delay(rng);
        let (next, due) = match plan.delivery {
            ChangeDelivery::Push => (first.map(|delay| now + delay), Some(now)),
            ChangeDelivery::Poll => {
                // Somebody waits for the first result: what fails is tried again soon.
                pacer.on_user_waiting();
                (Some(now), None)
            }
        };
        Self {
            plan: Arc::clone(plan),
            view: View::default(),
            is_founded: false,
            pacer,
            attempts: 0,
            subscription: WatchSubscription { due, ..WatchSubscription::default() },
            check: WatchCheck::Idle,
            next,
            timeout_ms: first.map(millis),
            fetch: None,
            gap: 0,
            can_tell_missed: false,
            delegated: None,
            is_fetching: false,
            version: None,
            ticket: None,
            pending: None,
            counts: WatchCounts::default(),
        }
    }

    /// The result as it is known.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The state of the watch in numbers.
    pub fn stats(&self) -> WatchStats {
        WatchStats {
            pacer: self.pacer.snapshot(),
            counts: self.counts,
            is_live: self.subscription.live.is_some(),
            delegated: self.delegated,
            next_check: self.next,
            timeout: self.timeout_ms.map(|t| Duration::from_millis(t.into())).filter(|_| self.delegated.is_none()),
            rows: self.view.len(),
        }
    }

    /// When a subscription is asked for again, if there is none.
    pub fn returns_at(&self) -> Option<Timestamp> {
        self.subscription.due
    }

    /// The broker can tell what was missed since a notification.
    pub fn allow_missed(&mut self) {
        self.can_tell_missed = true;
    }

    /// Somebody wants to be sure now.
    pub fn check_now(&mut self, now: Timestamp) {
        self.pacer.on_user_waiting();
        self.next = Some(now);
    }

    /// What has changed since this was asked last.
    pub fn poll_change(&mut self) -> Option<ResultChange> {
        self.pending.take().map(|change| *change)
    }

    /// Whether a request is under way: neither answered, nor refused, nor given up.
    pub fn is_asking(&self) -> bool {
        self.subscription.asking.is_some() || matches!(self.check, WatchCheck::Asking(_))
    }

    /// Whether there is a change to be taken.
    pub fn has_change(&self) -> bool {
        self.pending.is_some()
    }

    /// When to turn again, if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let subscription = &self.subscription;
        let asked = subscription.asking.map(|(_, sent)| sent + ANSWER_TIMEOUT);
        let check = match &self.check {
            WatchCheck::Idle => self.next.into_iter().chain(self.fetch).min(),
            WatchCheck::Asking(asking) => Some(asking.sent + self.plan.check_timeout),
            WatchCheck::Settling { suspicion, .. } | WatchCheck::Overtaken(suspicion) => Some(suspicion.until),
            WatchCheck::Repairing { .. } => None,
        };
        [subscription.due, asked, check].into_iter().flatten().min()
    }

    /// What to send now. To be called until it is nothing.
    pub fn turn<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) -> Option<WatchAction> {
        self.expire(now, rng);
        if self.subscription.due.is_some_and(|due| now >= due) {
            return Some(self.subscribe(now));
        }
        match core::mem::replace(&mut self.check, WatchCheck::Idle) {
            WatchCheck::Settling { suspicion, .. } if now >= suspicion.until => {
                self.check = WatchCheck::Repairing { losses: suspicion.losses, suspicion: Some(suspicion) };
                // If there is none any more, the next one is on its way and tells the same.
                self.subscription.live.is_some().then(|| self.subscribe(now))
            }
            WatchCheck::Idle if self.next.into_iter().chain(self.fetch).any(|due| now >= due) => {
                // What was missed since the last number would leave out the numbers before it: a gap needs a baseline.
                Some(if self.gap > 0 && self.subscription.live.is_some() {
                    self.check = WatchCheck::Repairing { losses: 0, suspicion: None };
                    self.subscribe(now)
                } else {
                    self.ask(now)
                })
            }
            other => {
                self.check = other;
                None
            }
        }
    }

    fn attempt(&mut self) -> Attempt {
        self.attempts = self.attempts.wrapping_add(1);
        Attempt(self.attempts)
    }

    fn asks(&mut self, deadline: Duration) -> Asks {
        let (want, ticket, accept) = (Some(self.pacer.want()), self.ticket.take(), Some(Accept::Ticket));
        // The answer has to travel, too.
        Asks { deadline: Some(deadline.mul_f64(DEADLINE_SHARE)), want, ticket, accept, ..Asks::default() }
    }

    fn subscribe(&mut self, now: Timestamp) -> WatchAction {
        let attempt = self.attempt();
        if matches!(self.check, WatchCheck::Repairing { .. }) {
            self.is_fetching = false;
            self.begin();
        }
        if self.gap == 0 && self.subscription.live.is_some() {
            // Nobody listens to it from here on, so that what was missed is exactly what the answer says.
            self.subscription.before = self.subscription.live.take();
        }
        self.subscription.due = None;
        self.subscription.asking = Some((attempt, now));
        let asks = Asks { delegate: self.accepts_delegation(), ..self.asks(ANSWER_TIMEOUT) };
        WatchAction::Subscribe { attempt, resume: self.subscription.before, asks }
    }

    fn ask(&mut self, now: Timestamp) -> WatchAction {
        let attempt = self.attempt();
        let live = self.subscription.live;
        self.is_fetching = self.delegated.is_some();
        self.begin();
        self.check = WatchCheck::Asking(Box::new(OpenCheck {
            attempt,
            sent: now,
            trail: vec![self.view.print()],
            overlap: Some(Delta::default()),
            live,
        }));
        self.counts.checks += 1;
        let since = live.filter(|_| self.can_tell_missed || self.is_fetching);
        let delegate = since.is_some() && self.accepts_delegation();
        let asks = Asks { delegate, ..self.asks(self.plan.check_timeout) };
        WatchAction::Check { attempt, since, version: self.version.clone(), asks }
    }

    /// A request of the pacer's is being sent.
    fn begin(&mut self) {
        if !self.is_fetching {
            self.pacer.on_sent();
        }
        (self.next, self.fetch) = (None, None);
    }

    /// A request of the pacer's is over, and was so at this time.
    fn end<R: Rng + ?Sized>(&mut self, at: Timestamp, outcome: &Outcome, rng: &mut R) {
        let is_fetched = core::mem::take(&mut self.is_fetching);
        let delay = if is_fetched { None } else { self.pacer.on_outcome(at, outcome, rng) };
        self.timeout_ms = delay.map(millis);
        self.next = self.next_after(at, delay, outcome, rng);
        self.count(outcome);
    }

    /// A check was answered, and this may be a loss.
    fn suspect<R: Rng + ?Sized>(
        &self,
        at: Timestamp,
        losses: u32,
        (latency, hints): (Duration, Hints),
        rng: &mut R,
    ) -> Box<Suspicion> {
        let mut pacer = self.pacer.clone();
        let outcome = Outcome::Answered { latency, losses, not_modified: false, hints: hints.clone() };
        let delay = pacer.on_outcome(at, &outcome, rng);
        let until = at + delay.map_or(GRACE, |delay| delay.min(GRACE));
        Box::new(Suspicion { at, until, losses, latency, hints, if_lost: (pacer, delay) })
    }

    /// It is known how many were lost.
    fn settle<R: Rng + ?Sized>(&mut self, suspicion: Suspicion, losses: u32, rng: &mut R) {
        let Suspicion { at, losses: suspected, latency, hints, if_lost: (pacer, delay), .. } = suspicion;
        let outcome = Outcome::Answered { latency, losses, not_modified: false, hints };
        if losses != suspected {
            return self.end(at, &outcome, rng);
        }
        self.pacer = pacer;
        self.timeout_ms = delay.map(millis);
        self.next = self.next_after(at, delay, &outcome, rng);
        self.count(&outcome);
    }

    fn count(&mut self, outcome: &Outcome) {
        self.ticket = outcome.hints().and_then(|hints| hints.ticket);
        match outcome {
            Outcome::Answered { losses, .. } => {
                self.counts.answered += 1;
                self.counts.losses += u64::from(*losses);
            }
            Outcome::Denied { .. } => self.counts.denied += 1,
            Outcome::TimedOut | Outcome::Failed => self.counts.failed += 1,
        }
    }

    /// Gives up what had no answer in time.
    fn expire<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) {
        if let Some((attempt, sent)) = self.subscription.asking
            && now >= sent + ANSWER_TIMEOUT
        {
            self.handle(Input::Refused { attempt, failure: ExchangeFailure::TimedOut }, now, rng);
        }
        if let WatchCheck::Asking(asking) = &self.check
            && now >= asking.sent + self.plan.check_timeout
        {
            let attempt = asking.attempt;
            self.handle(Input::Refused { attempt, failure: ExchangeFailure::TimedOut }, now, rng);
        }
        if let WatchCheck::Overtaken(suspicion) = &self.check
            && now >= suspicion.until
        {
            self.end_overtaken(rng);
        }
    }

    /// Notes a difference for the owner; several become one.
    fn tell(&mut self, delta: Delta, lost: u32, source: ChangeSource) {
        if delta.is_empty() && lost == 0 && source != ChangeSource::Baseline {
            return;
        }
        let change = ResultChange { added: delta.added, removed: delta.removed, lost, source };
        let change = match self.pending.take() {
            None => change,
            Some(before) => before.then(change),
        };
        self.pending = Some(Box::new(change));
    }
}

/// A delay is at most thirty days, which fit.
fn millis(delay: Duration) -> u32 {
    u32::try_from(delay.as_millis()).unwrap_or(u32::MAX)
}
