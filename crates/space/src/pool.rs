//! A request pool with its appointment book and its advice: who is taken, who is sent away with a place that is kept, and
//! how fast everybody should ask. Pure: time and chance are arguments.
//!
//! ```text
//! shows a ticket that the book knows      in, with more room than others find
//! promises lie ahead and nobody is idle   away with a ticket, behind them: first come, first served
//! the pool has no room for it             away with a ticket
//! ```
//! Equal questions are never sent away for promises: together they cost nothing. Everybody who says how often it wants to
//! ask is told by how much to stretch that, so that it all fits.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rand_core::Rng;
use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, Job, Offered, PoolConfig, Request, RequestPool, Taken};
use tidegate_control::advice::{AdviceConfig, Declared, Strain, StretchAdvice};
use tidegate_control::appointments::{
    Appointment, Appointments, AppointmentsConfig, Server, Ticket, TicketKey, Visitor,
};
use tidegate_control::hints::Hints;

use crate::limits::{WANT_MAX, WANTS_MAX};

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caller {
    /// Its name, as a number; tickets are bound to it.
    pub client: u64,
    /// How often it would like to ask.
    pub want: Option<Duration>,
    /// The appointment that it keeps.
    pub ticket: Option<Ticket>,
}

/// What became of a request at the door.
#[derive(Debug)]
pub(crate) enum Entered<T> {
    Waits,
    /// With what it is to be told.
    Refused(T, Box<Hints>),
}

pub(crate) struct Pool<T> {
    queues: RequestPool<T>,
    servers: u32,
    book: Appointments,
    denial_cost: Duration,
    advice: StretchAdvice,
    /// Nothing was served yet: what it costs is only assumed.
    is_untried: bool,
    wants: HashMap<u64, Want>,
    /// Until when each want is believed, the first to go first.
    silent: BTreeSet<(Timestamp, u64)>,
}

/// What a client wants.
#[derive(Debug, Default)]
struct Want {
    declared: Declared,
    until: Timestamp,
    /// It was sent away: when it comes next, that is not of its own accord.
    is_refused: bool,
}

/// Promises that lie further ahead than this are not overtaken: what a class may have waiting anyway.
const AHEAD_MAX: Duration = Duration::from_millis(100);

impl<T> Pool<T> {
    /// None for a configuration that makes no sense.
    pub(crate) fn new(config: &PoolConfig, key: TicketKey) -> Option<Self> {
        // The pool bounds what waits; the book comes behind all of that.
        let book = AppointmentsConfig { target: Duration::from_millis(1), ..AppointmentsConfig::default() };
        Some(Self {
            queues: RequestPool::new(config).ok()?,
            servers: config.servers,
            book: Appointments::new(&book, key).ok()?,
            denial_cost: book.denial_cost,
            advice: StretchAdvice::new(&AdviceConfig::default()).ok()?,
            is_untried: true,
            wants: HashMap::new(),
            silent: BTreeSet::new(),
        })
    }

    /// What everybody of a class is told, and this one about what it wants.
    pub(crate) fn hints(&mut self, now: Timestamp, class: Class, caller: &Caller) -> Hints {
        self.forget_silent(now);
        // Whatever a client says, a stretched want is a time that can be told.
        let want = caller.want.map(|want| want.min(WANT_MAX));
        let stretch = want.map(|want| self.declare(now, class, caller, want));
        let interval = stretch.zip(want).map(|(stretch, want)| want.mul_f64(stretch));
        Hints { permitted: Some(self.queues.permitted(class)), stretch, interval, ..Hints::default() }
    }

    pub(crate) fn offer(
        &mut self,
        now: Timestamp,
        request: Request<T>,
        caller: &Caller,
        hints: &Hints,
        chance: &mut impl Rng,
    ) -> Entered<T> {
        let entered = self.admit(now, request, caller, hints, chance);
        if let (Entered::Refused(..), Some(want)) = (&entered, self.wants.get_mut(&caller.client)) {
            want.is_refused = true;
        }
        entered
    }

    fn admit(
        &mut self,
        now: Timestamp,
        request: Request<T>,
        caller: &Caller,
        hints: &Hints,
        chance: &mut impl Rng,
    ) -> Entered<T> {
        let class = request.class;
        let backlog = self.queues.backlog_total(now);
        self.book.on_backlog(now, backlog);
        let is_idle = backlog.is_zero();
        let is_behind = request.key.is_none() && !is_idle && self.book.wait(now) > AHEAD_MAX;
        let is_promised = caller.ticket.is_some();
        if is_promised || is_behind {
            match self.decide(now, class, caller, is_idle, chance) {
                Appointment::Admit => {}
                denied @ Appointment::Deny { .. } => {
                    return Entered::Refused(request.value, Box::new(sent_away(denied, backlog, hints)));
                }
            }
        }
        let offered =
            if is_promised { self.queues.offer_promised(now, request) } else { self.queues.offer(now, request) };
        let (value, retry_after) = match offered {
            Offered::Queued | Offered::Joined | Offered::Parked { .. } => return Entered::Waits,
            Offered::Denied { value, retry_after, .. } => (value, retry_after),
            Offered::Dropped { value, .. } | Offered::Immediate(value) => (value, AHEAD_MAX),
        };
        let unbooked = Caller { ticket: None, ..*caller };
        let hints = match self.decide(now, class, &unbooked, false, chance) {
            // The book sees room where the class has none: no promise.
            Appointment::Admit => Hints { queued: Some(backlog), retry_after: Some(retry_after), ..hints.clone() },
            denied @ Appointment::Deny { .. } => sent_away(denied, backlog, hints),
        };
        Entered::Refused(value, Box::new(hints))
    }

    fn decide(
        &mut self,
        now: Timestamp,
        class: Class,
        caller: &Caller,
        is_idle: bool,
        chance: &mut impl Rng,
    ) -> Appointment {
        let client = caller.client.to_le_bytes();
        let visitor = Visitor { client: &client, work: self.queues.cost(class) / self.servers, ticket: caller.ticket };
        let server = if is_idle { Server::Idle } else { Server::Busy };
        self.book.decide(now, &visitor, server, chance)
    }

    /// The factor by which this want, like everybody's, is to be stretched.
    fn declare(&mut self, now: Timestamp, class: Class, caller: &Caller, wanted: Duration) -> f64 {
        let client = caller.client;
        let before = self.stretch(now, class);
        if self.wants.len() >= WANTS_MAX && !self.wants.contains_key(&client) {
            return before;
        }
        let mut want = self.wants.remove(&client).unwrap_or_default();
        self.silent.remove(&(want.until, client));
        let was_refused = std::mem::take(&mut want.is_refused);
        if caller.ticket.is_none() && !was_refused {
            self.advice.on_check(now, before);
        }
        self.advice.declare(&mut want.declared, wanted);
        let stretch = self.stretch(now, class);
        want.until = now + self.advice.patience(&want.declared, stretch);
        self.silent.insert((want.until, client));
        self.wants.insert(client, want);
        stretch
    }

    fn stretch(&self, now: Timestamp, class: Class) -> f64 {
        if self.is_untried {
            return self.advice.stretch(self.queues.cost(class) / self.servers);
        }
        let wait = self.book.wait(now);
        // The book sees only those who find others before them; when nobody does, nobody is refused.
        let refused = if wait.is_zero() { 0.0 } else { self.book.refused() };
        self.advice.advise(&Strain { denials: self.denial_cost.mul_f64(refused), wait })
    }

    /// Whoever has been silent for several intervals wants nothing any more.
    fn forget_silent(&mut self, now: Timestamp) {
        for _ in 0..SILENT_LOOKS {
            let Some((_, client)) = self.silent.first().copied().filter(|(until, _)| *until <= now) else { return };
            self.silent.pop_first();
            if let Some(mut want) = self.wants.remove(&client) {
                self.advice.withdraw(&mut want.declared);
            }
        }
    }

    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Taken<T>> {
        self.queues.take(now)
    }

    /// Those who waited too long.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.queues.poll_ended()).map(|ended| ended.value).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// A job was done in this time, or was not done.
    pub(crate) fn served(&mut self, job: Job, elapsed: Option<Duration>) {
        match elapsed {
            Some(elapsed) => {
                self.queues.on_served(job, elapsed);
                self.advice.on_served(elapsed / self.servers);
                self.is_untried = false;
            }
            None => self.queues.on_cancelled(job),
        }
    }
}

fn sent_away(denied: Appointment, backlog: Duration, hints: &Hints) -> Hints {
    let (retry_after, ticket) = match denied {
        Appointment::Admit => (Duration::ZERO, None),
        Appointment::Deny { retry_after, ticket } => (retry_after, ticket),
    };
    Hints { queued: Some(backlog), retry_after: Some(retry_after), ticket, ..hints.clone() }
}

/// Silent ones looked at with each request: more than come, so that none stays.
const SILENT_LOOKS: usize = 4;

#[cfg(test)]
mod tests;
