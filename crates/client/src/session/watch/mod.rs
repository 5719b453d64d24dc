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

mod hear;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::appointments::Ticket;
use tidegate_control::hints::{Accept, Asks, Hints};
use tidegate_control::pacer::{Outcome, Pacer, PacerPlan, PacerSnapshot};
use tidegate_control::rand_core::Rng;

use super::comeback::Comeback;
use super::row::{Delta, Row, View};
use crate::limits::ANSWER_TIMEOUT;

/// How changes come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// By notifications, and checks find what was lost.
    #[default]
    Push,
    /// By checks only: for brokers without subscriptions.
    Poll,
}

/// What a watch is made from.
#[derive(Clone, Debug)]
pub struct WatchPlan {
    /// How checks are paced.
    pub pacer: Arc<PacerPlan>,
    /// How changes come.
    pub delivery: Delivery,
    /// How long an answer to a check is awaited.
    pub check_timeout: Duration,
}

/// The number of a request; an answer to another one is late and changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u32);

/// What the driver shall send.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Subscribe, in place of a subscription that there may be.
    Subscribe {
        /// The number to answer with, also with each notification of the subscription.
        attempt: Attempt,
        /// The subscription before and the number of its last notification, if the view is exactly that state: a broker
        /// that can, tells what was missed since.
        resume: Option<(Attempt, u64)>,
        /// What to tell the broker about pace.
        asks: Asks,
    },
    /// Ask for the result.
    Check {
        /// The number to answer with.
        attempt: Attempt,
        /// Ask what was missed since this notification, if the broker can tell: of the subscription of that attempt.
        since: Option<(Attempt, u64)>,
        /// The name of the version that was seen last; an equal one need not be sent again.
        version: Option<Box<str>>,
        /// What to tell the broker about pace.
        asks: Asks,
    },
}

/// What arrived.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The subscription stands.
    Subscribed {
        /// Of which request.
        attempt: Attempt,
        /// The number of the baseline.
        sequence: u64,
        /// The whole result.
        rows: Vec<Row>,
    },
    /// The subscription goes on: exactly this was missed.
    Resumed {
        /// Of which request.
        attempt: Attempt,
        /// It counts as the notification of this number.
        sequence: u64,
        /// What was missed.
        delta: Delta,
    },
    /// A notification.
    Changed {
        /// Of which subscription.
        attempt: Attempt,
        /// Its number, if the broker numbers.
        sequence: Option<u64>,
        /// What it says.
        delta: Delta,
        /// `pace-spread-ms`, if it was said.
        spread: Option<Duration>,
    },
    /// A subscription is over, without our wish.
    Ended {
        /// Which.
        attempt: Attempt,
        /// What was said about coming back.
        hints: Hints,
    },
    /// The answer to a check: the whole result.
    Whole {
        /// Of which request.
        attempt: Attempt,
        /// The result.
        rows: Vec<Row>,
        /// The name of its version.
        version: Option<Box<str>>,
        /// What was said about pace.
        hints: Hints,
    },
    /// The answer to a check: exactly what was missed.
    Missed {
        /// Of which request.
        attempt: Attempt,
        /// It counts as the notification of this number.
        sequence: u64,
        /// What was missed.
        delta: Delta,
        /// What was said about pace.
        hints: Hints,
    },
    /// The answer to a check what was missed, if that is no longer known: the whole result, in place of everything up to
    /// a notification.
    Fresh {
        /// Of which request.
        attempt: Attempt,
        /// It counts as the notification of this number.
        sequence: u64,
        /// The result.
        rows: Vec<Row>,
        /// What was said about pace.
        hints: Hints,
    },
    /// The answer to a check: nothing has changed since the version that was named.
    NotModified {
        /// Of which request.
        attempt: Attempt,
        /// What was said about pace.
        hints: Hints,
    },
    /// No answer to a request.
    Refused {
        /// Of which request.
        attempt: Attempt,
        /// Why.
        failure: Failure,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The broker said no for now.
    Denied(Hints),
    /// It said nothing in time.
    TimedOut,
    /// The connection broke, or what came made no sense; the next may be tried after this time.
    Failed(Option<Duration>),
    /// The broker does not know this kind of check.
    Unsupported,
}

/// How a change was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The whole result, at the beginning.
    Baseline,
    /// A notification.
    Notification,
    /// A check, or the subscription that followed a loss or a cut.
    Check,
}

/// A difference of the result that has not been told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Rows that are new.
    pub added: Vec<Row>,
    /// Rows that are gone.
    pub removed: Vec<Row>,
    /// Notifications that were lost before this, as far as can be known: what they said is contained, if the level of
    /// control is any but `none`.
    pub lost: u32,
    /// How the last part of it was learnt.
    pub source: Source,
}

impl Change {
    /// This change and then another, as one.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let before = Delta { added: self.added, removed: self.removed };
        let Delta { added, removed } = before.then(Delta { added: next.added, removed: next.removed });
        let source = if self.source == Source::Baseline { Source::Baseline } else { next.source };
        Self { added, removed, lost: self.lost.saturating_add(next.lost), source }
    }
}

/// Numbers of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notifications that were applied.
    pub notifications: u64,
    /// Checks that were sent.
    pub checks: u64,
    /// Checks that were answered.
    pub answered: u64,
    /// Requests that were refused.
    pub denied: u64,
    /// Requests without an answer in time, or whose connection broke.
    pub failed: u64,
    /// Lost notifications that came to light by their numbers.
    pub gaps: u64,
    /// Losses that came to light by checks.
    pub losses: u64,
    /// Changes that were missed while there was no subscription.
    pub away: u64,
    /// Subscriptions.
    pub subscribed: u64,
    /// Those of them that went on where the one before had ended.
    pub resumed: u64,
}

/// What a watch is doing, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchStats {
    /// The pacer: AST, RBT, σ, estimates.
    pub pacer: PacerSnapshot,
    /// What happened so far.
    pub counts: Counts,
    /// A subscription stands.
    pub is_live: bool,
    /// When the next check is due.
    pub next_check: Option<Timestamp>,
    /// Distinct rows of the view.
    pub rows: usize,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Watch {
    plan: Arc<WatchPlan>,
    view: View,
    /// A whole result has been seen.
    is_founded: bool,
    pacer: Pacer,
    attempts: u32,
    subscription: Subscription,
    check: Check,
    /// When the regular check is due.
    next: Option<Timestamp>,
    /// When what a gap announced is to be fetched.
    fetch: Option<Timestamp>,
    /// Lost notifications that are known by their numbers and not repaired.
    gap: u32,
    can_tell_missed: bool,
    version: Option<Box<str>>,
    ticket: Option<Ticket>,
    pending: Option<Box<Change>>,
    counts: Counts,
}

#[derive(Clone, Debug, Default)]
struct Subscription {
    /// The one that stands, and the number of its last notification.
    live: Option<(Attempt, u64)>,
    /// The one before, while the view is exactly the state of its last notification.
    before: Option<(Attempt, u64)>,
    /// The one that was asked for, and when.
    asking: Option<(Attempt, Timestamp)>,
    due: Option<Timestamp>,
    /// Notifications up to this number were contained in the answer to a check.
    overtaken: u64,
    comeback: Comeback,
}

#[derive(Clone, Debug)]
enum Check {
    Idle,
    Asking(Box<Asking>),
    /// The answer is not the view: a notification may still be on its way.
    Settling {
        until: Timestamp,
        print: u64,
        losses: u32,
        latency: Duration,
        hints: Box<Hints>,
    },
    /// It is known what was missed and how many notifications would have said it. Those that are still on their way were
    /// not lost.
    Overtaken {
        until: Timestamp,
        losses: u32,
        latency: Duration,
        hints: Box<Hints>,
    },
    /// Something was lost: a new subscription will tell. `sent` is when it was asked for, `answered` what is known
    /// already of the check that found out.
    Repairing {
        losses: u32,
        answered: Option<Box<(Duration, Hints)>>,
    },
}

#[derive(Clone, Debug)]
struct Asking {
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
        let first = pacer.first_delay(rng).map(|delay| now + delay);
        let (next, due) = match plan.delivery {
            Delivery::Push => (first, Some(now)),
            // Somebody waits for the first result.
            Delivery::Poll => (Some(now), None),
        };
        Self {
            plan: Arc::clone(plan),
            view: View::default(),
            is_founded: false,
            pacer,
            attempts: 0,
            subscription: Subscription { due, ..Subscription::default() },
            check: Check::Idle,
            next,
            fetch: None,
            gap: 0,
            can_tell_missed: false,
            version: None,
            ticket: None,
            pending: None,
            counts: Counts::default(),
        }
    }

    /// The result as it is known.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What it is doing.
    pub fn stats(&self) -> WatchStats {
        WatchStats {
            pacer: self.pacer.snapshot(),
            counts: self.counts,
            is_live: self.subscription.live.is_some(),
            next_check: self.next,
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
    pub fn poll_change(&mut self) -> Option<Change> {
        self.pending.take().map(|change| *change)
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
            Check::Idle => self.next.into_iter().chain(self.fetch).min(),
            Check::Asking(asking) => Some(asking.sent + self.plan.check_timeout),
            Check::Settling { until, .. } | Check::Overtaken { until, .. } => Some(*until),
            Check::Repairing { .. } => None,
        };
        [subscription.due, asked, check].into_iter().flatten().min()
    }

    /// What to send now. To be called until it is nothing.
    pub fn turn<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) -> Option<Action> {
        self.expire(now, rng);
        if self.subscription.due.is_some_and(|due| now >= due) {
            return Some(self.subscribe(now));
        }
        match &mut self.check {
            Check::Settling { until, losses, latency, hints, .. } if now >= *until => {
                let answered = Some(Box::new((*latency, std::mem::take(&mut **hints))));
                self.check = Check::Repairing { losses: *losses, answered };
                // If there is none any more, the next one is on its way and tells the same.
                self.subscription.live.is_some().then(|| self.subscribe(now))
            }
            Check::Idle if self.next.into_iter().chain(self.fetch).any(|due| now >= due) => {
                // What was missed since the last number would leave out the numbers before it: a gap needs a baseline.
                Some(if self.gap > 0 && self.subscription.live.is_some() {
                    self.check = Check::Repairing { losses: 0, answered: None };
                    self.subscribe(now)
                } else {
                    self.ask(now)
                })
            }
            _ => None,
        }
    }

    fn attempt(&mut self) -> Attempt {
        self.attempts = self.attempts.wrapping_add(1);
        Attempt(self.attempts)
    }

    fn asks(&mut self, deadline: Duration) -> Asks {
        let (want, ticket, accept) = (Some(self.pacer.want()), self.ticket.take(), Some(Accept::Ticket));
        Asks { deadline: Some(deadline), want, version: None, ticket, accept }
    }

    fn subscribe(&mut self, now: Timestamp) -> Action {
        let attempt = self.attempt();
        if matches!(self.check, Check::Repairing { .. }) {
            self.begin();
        }
        if self.gap == 0 && self.subscription.live.is_some() {
            // Nobody listens to it from here on, so that what was missed is exactly what the answer says.
            self.subscription.before = self.subscription.live.take();
        }
        self.subscription.due = None;
        self.subscription.asking = Some((attempt, now));
        Action::Subscribe { attempt, resume: self.subscription.before, asks: self.asks(ANSWER_TIMEOUT) }
    }

    fn ask(&mut self, now: Timestamp) -> Action {
        let attempt = self.attempt();
        let live = self.subscription.live;
        self.begin();
        self.check = Check::Asking(Box::new(Asking {
            attempt,
            sent: now,
            trail: vec![self.view.print()],
            overlap: Some(Delta::default()),
            live,
        }));
        self.counts.checks += 1;
        let since = live.filter(|_| self.can_tell_missed);
        let asks = self.asks(self.plan.check_timeout);
        Action::Check { attempt, since, version: self.version.clone(), asks }
    }

    /// A request of the pacer's is being sent.
    fn begin(&mut self) {
        self.pacer.on_sent();
        (self.next, self.fetch) = (None, None);
    }

    /// A request of the pacer's is over.
    fn end<R: Rng + ?Sized>(&mut self, now: Timestamp, outcome: &Outcome, rng: &mut R) {
        self.ticket = outcome.hints().and_then(|hints| hints.ticket);
        self.next = self.pacer.on_outcome(now, outcome, rng).map(|delay| now + delay);
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
            self.handle(Input::Refused { attempt, failure: Failure::TimedOut }, now, rng);
        }
        if let Check::Asking(asking) = &self.check
            && now >= asking.sent + self.plan.check_timeout
        {
            let attempt = asking.attempt;
            self.handle(Input::Refused { attempt, failure: Failure::TimedOut }, now, rng);
        }
        if let Check::Overtaken { until, .. } = &self.check
            && now >= *until
        {
            self.end_overtaken(now, rng);
        }
    }

    /// Notes a difference for the owner; several become one.
    fn tell(&mut self, delta: Delta, lost: u32, source: Source) {
        if delta.is_empty() && lost == 0 && source != Source::Baseline {
            return;
        }
        let change = Change { added: delta.added, removed: delta.removed, lost, source };
        let change = match self.pending.take() {
            None => change,
            Some(before) => before.then(change),
        };
        self.pending = Some(Box::new(change));
    }
}
