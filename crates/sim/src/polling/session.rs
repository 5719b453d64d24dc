//! A client as it ships: the session of the client library (`tidegate_client::session::watch`), which decides when to check,
//! to subscribe anew and to come back. The world carries what the session sends and what comes back, as its driver does on
//! sockets, and begins when all subscriptions stand.
//!
//! What is watched are the latest values of the client's item, a row each: only the newest for state, the last few where
//! every change counts, so that a session that missed some can tell how many. Notifications are numbered, as the space
//! numbers them, so that a session also learns of a loss from the next notification.

use std::sync::Arc;

use tidegate_client::session::row::{Delta, Row, Term};
use tidegate_client::session::watch::{Attempt, ExchangeFailure, Input, Watch, WatchAction};
use tidegate_control::admission::Class;
use tidegate_control::hints::{Asks, Hints};

use super::client::{Client, Control, NEVER};
use super::front::Asker;
use super::{Event, World};
use crate::chance::Stream;

pub(super) struct Session {
    pub(super) watch: Watch,
    /// When the session is turned next, nanoseconds; [`NEVER`] if nothing is planned.
    wakes_at: u64,
    request: Option<Request>,
    /// The subscription that stands: its request, and the number of the last notification that the broker made.
    subscription: Attempt,
    number: u64,
}

/// A request under way.
struct Request {
    attempt: Attempt,
    what: What,
    asks: Asks,
}

/// What is asked; versions are those that the client has.
#[derive(Clone, Copy)]
enum What {
    /// What did I miss since?
    Missed(u32),
    /// The result.
    Whole,
    /// A subscription, with the result.
    Baseline,
    /// A subscription that goes on since.
    Resumed(u32),
}

impl What {
    /// Where the space lets it wait.
    fn class(self) -> Class {
        match self {
            Self::Missed(_) | Self::Resumed(_) => Class::Check,
            Self::Whole => Class::Query,
            Self::Baseline => Class::Subscribe,
        }
    }
}

impl Session {
    pub(super) fn new(watch: Watch) -> Self {
        Self { watch, wakes_at: NEVER, request: None, subscription: Attempt::default(), number: 0 }
    }

    /// What the request of this number is, and what it says about pace.
    pub(super) fn asked(&self, attempt: u32) -> (Class, Asks) {
        let request = self.request.as_ref().filter(|request| request.attempt.0 == attempt);
        request.map_or((Class::Query, Asks::default()), |request| (request.what.class(), request.asks.clone()))
    }
}

impl Client {
    fn session(&mut self) -> Option<(&mut Session, &mut Stream)> {
        match &mut self.control {
            Control::Session(session) => Some((session, &mut self.chance)),
            Control::Pacer(_) | Control::Baseline(_) | Control::Own(_) => None,
        }
    }
}

/// Rows of an item of which every change counts: a session that missed more of them counts these.
const VALUES: u32 = 4;

/// The latest values of an item.
pub(super) struct Values {
    name: Arc<str>,
    count: u32,
}

impl Values {
    pub(super) fn new(is_state: bool) -> Self {
        Self { name: "value".into(), count: if is_state { 1 } else { VALUES } }
    }

    fn rows(&self, after: u32, until: u32) -> Vec<Row> {
        let row = |number: u32| Row::new([(Arc::clone(&self.name), Term::Uri(number.to_string()))]);
        (after..until).map(|number| row(number + 1)).collect()
    }

    fn whole(&self, version: u32) -> Vec<Row> {
        self.rows(version.saturating_sub(self.count), version)
    }

    fn delta(&self, from: u32, to: u32) -> Delta {
        let (before, now) = (from.saturating_sub(self.count), to.saturating_sub(self.count));
        Delta { added: self.rows(from.max(now), to), removed: self.rows(before, from.min(now)) }
    }
}

impl World<'_> {
    /// The world begins; subscriptions stand already.
    pub(super) fn begin_session(&mut self, client: u32) {
        let (now, is_together) = (self.now, self.config.clients.together);
        let Some((session, chance)) = self.clients[client as usize].session() else { return };
        if !self.config.clients.once {
            if let Some(WatchAction::Subscribe { attempt, .. }) = session.watch.turn(now, chance) {
                session.subscription = attempt;
                session.watch.handle(Input::Subscribed { attempt, sequence: 0, rows: Vec::new() }, now, chance);
            }
            session.watch.allow_missed();
            if is_together {
                session.watch.check_now(now);
            }
        }
        session.watch.poll_change();
        self.turn(client);
    }

    /// Its time has come.
    pub(super) fn wake(&mut self, client: u32) {
        let now = self.now.as_nanos();
        if let Some((session, _)) = self.clients[client as usize].session()
            // Else an earlier time has taken the place of this one.
            && session.wakes_at == now
        {
            session.wakes_at = NEVER;
            self.turn(client);
        }
    }

    /// Sends what the session has to send, and sees to it that it is asked again in time.
    fn turn(&mut self, client: u32) {
        let now = self.now;
        loop {
            let state = &mut self.clients[client as usize];
            if state.done {
                return;
            }
            let Some((session, chance)) = state.session() else { return };
            let Some(action) = session.watch.turn(now, chance) else { break };
            self.send(client, action);
        }
        self.note_given_up(client);
        self.plan_wake(client);
    }

    /// What had no answer in time was given up by the session when it was turned.
    fn note_given_up(&mut self, client: u32) {
        let state = &mut self.clients[client as usize];
        let is_sent = state.sent != NEVER;
        let Some((session, _)) = state.session() else { return };
        if is_sent && !session.watch.is_asking() {
            session.request = None;
            self.end_unanswered(client);
        }
    }

    fn end_unanswered(&mut self, client: u32) {
        self.clients[client as usize].sent = NEVER;
        self.ledger.timed_out += 1;
        self.tally.timed_out += u64::from(self.is_measured());
    }

    fn plan_wake(&mut self, client: u32) {
        let now = self.now.as_nanos();
        let Some((session, _)) = self.clients[client as usize].session() else { return };
        let Some(at) = session.watch.poll_timeout() else { return };
        let at = at.as_nanos().max(now + WAKE_MIN);
        if at < session.wakes_at {
            session.wakes_at = at;
            self.wheel.push(at, Event::Wake { client });
        }
    }

    fn send(&mut self, client: u32, action: WatchAction) {
        if self.clients[client as usize].sent != NEVER {
            // In place of another, which is given up with that.
            self.end_unanswered(client);
        }
        let state = &mut self.clients[client as usize];
        let known = state.known;
        let (attempt, what, asks) = match action {
            WatchAction::Check { attempt, since, asks, .. } => {
                (attempt, since.map_or(What::Whole, |_| What::Missed(known)), asks)
            }
            WatchAction::Subscribe { attempt, resume, asks } => {
                (attempt, resume.map_or(What::Baseline, |_| What::Resumed(known)), asks)
            }
        };
        state.attempt = attempt.0;
        state.sent = self.now.as_nanos();
        if state.tried == NEVER {
            state.tried = state.sent;
        }
        let is_promised = asks.ticket.is_some();
        if let Some((session, _)) = state.session() {
            session.request = Some(Request { attempt, what, asks });
        }
        self.ledger.sent += 1;
        self.tally.first_sent.get_or_insert(self.at);
        let (no_show, loss) = (self.config.clients.no_show, self.config.link.request_loss);
        // Whoever does not come for its place is one whose request never arrives.
        let is_absent = is_promised && no_show > 0.0 && self.radio.happens(no_show);
        if is_absent || (loss > 0.0 && self.radio.happens(loss)) {
            self.ledger.request_lost += 1;
        } else {
            self.after_secs(self.config.link.rtt / 2.0, Event::Arrive(Asker { client, attempt: attempt.0 }));
        }
    }

    /// An answer in time. Its content is that of the moment in which it arrives.
    pub(super) fn answer_session(&mut self, asker: Asker, hints: Hints) {
        let now = self.now;
        let state = &mut self.clients[asker.client as usize];
        let (losses, lost_at_sum, version) = (state.lost, state.lost_at_sum, state.version);
        let Some((session, chance)) = state.session() else { return };
        let Some(Request { attempt, what, .. }) = session.request.take() else { return };
        let input = match what {
            What::Missed(since) => {
                session.number += 1;
                let (sequence, delta) = (session.number, self.values.delta(since, version));
                Input::Missed { attempt, sequence, delta, hints }
            }
            What::Resumed(since) => {
                (session.subscription, session.number) = (attempt, session.number + 1);
                let (sequence, delta) = (session.number, self.values.delta(since, version));
                Input::Resumed { attempt, sequence, delta }
            }
            What::Baseline => {
                (session.subscription, session.number) = (attempt, 0);
                Input::Subscribed { attempt, sequence: 0, rows: self.values.whole(version) }
            }
            What::Whole => Input::Whole { attempt, rows: self.values.whole(version), version: None, hints },
        };
        session.watch.handle(input, now, chance);
        session.watch.poll_change();
        self.learn(asker.client, losses, lost_at_sum, version);
        self.note_success(asker.client, losses);
        self.clients[asker.client as usize].sent = NEVER;
        self.turn(asker.client);
    }

    pub(super) fn deny_session(&mut self, client: u32, hints: Hints) {
        let now = self.now;
        let state = &mut self.clients[client as usize];
        state.sent = NEVER;
        let Some((session, chance)) = state.session() else { return };
        let Some(Request { attempt, .. }) = session.request.take() else { return };
        session.watch.handle(Input::Refused { attempt, failure: ExchangeFailure::Denied(hints) }, now, chance);
        self.turn(client);
    }

    /// The item of a client has changed: its subscription has one more number, whether the notification arrives or not.
    pub(super) fn count_notification(&mut self, client: u32) {
        if let Some((session, _)) = self.clients[client as usize].session() {
            session.number += 1;
        }
    }

    /// A notification arrives. False if the session did not take it, because it waits for a new subscription.
    pub(super) fn notify_session(&mut self, client: u32) -> bool {
        let now = self.now;
        let state = &mut self.clients[client as usize];
        let version = state.version;
        let Some((session, chance)) = state.session() else { return true };
        let (attempt, sequence) = (session.subscription, Some(session.number));
        let delta = self.values.delta(version.saturating_sub(1), version);
        session.watch.handle(Input::Changed { attempt, sequence, delta, spread: None }, now, chance);
        let is_taken = session.watch.poll_change().is_some();
        self.plan_wake(client);
        is_taken
    }
}

/// Least time until a session is turned again, nanoseconds: what is due has been done.
const WAKE_MIN: u64 = 1_000_000;
