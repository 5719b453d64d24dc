//! An order of service with its appointment book and its advice: who waits, who is sent away with a place that is kept, and
//! how fast everybody should ask. Pure: time and chance are arguments.
//!
//! ```text
//! shows a ticket that the book knows           in, before others, up to half of the time
//!   long before its time                       away with the same ticket: the place is kept
//!   and would wait too long                    away with another: behind those who were late before it
//! accepts tickets, and would wait too long     away with a ticket; what is let in is in the book, and promises come behind it
//!   and nobody knows yet what it costs         waits until somebody does, and is sent away then (`cold`)
//! would be late, or is one too many            away with the time to come back
//! else                                         waits
//! ```
//! Only who says that it keeps appointments is given one: who does not know tickets would otherwise be refused for the sake
//! of promises that nobody keeps, for as long as it asks. And no more is promised than what those who keep no appointments
//! leave, half of the time at least. A place is as long as the request that it is for: what others of its shape take on a
//! usual day. Everybody who says how often it wants to ask is told by how much to stretch that (`wants`); while few are
//! refused such a client is refused without a place, and slows down.

mod cold;
mod names;
mod outcome;
mod popular;
mod wants;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_core::Rng;
use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, PoolConfig};
use tidegate_control::advice::{AdviceConfig, StretchAdvice};
use tidegate_control::appointments::{
    Appointment, Appointments, AppointmentsConfig, Lateness, Presented, Refusals, Server, Ticket, TicketKey, Visitor,
};
use tidegate_control::hints::Hints;

use crate::limits::WANT_MAX;
use crate::machine::order::{
    Arrival, EndedBy, EndedEntry, Job, KpPlace, Offered, Order, Returned, Servers, Shape, Taken, WaitTerms,
};
use crate::machine::standing::KpRole;
use cold::ColdStart;
use names::NameBook;
pub(crate) use outcome::PoolDecision;
pub use outcome::{Caller, EndedWait, Entered, KeptPlace};
use popular::PopularQuestions;
use wants::Want;

/// Requests that wait for one kind of server.
#[derive(Debug)]
pub struct RequestQueue<T> {
    order: Order<T>,
    worth: u32,
    book: Appointments,
    utilisation: f64,
    advice: StretchAdvice,
    /// Nothing was served yet: what it costs is only assumed.
    is_untried: bool,
    cold: ColdStart<T>,
    /// Share of the jobs of late that were of those who keep no appointments.
    unpromised: f64,
    names: NameBook,
    popular: PopularQuestions,
    /// What became of requests that found no room, or that nobody waited for, by class.
    decisions: [[u64; PoolDecision::ALL.len()]; Class::COUNT],
    wants: BTreeMap<u64, Want>,
    /// Until when each want is believed, the first to go first.
    silent: BTreeSet<(Timestamp, u64)>,
}

impl<T> RequestQueue<T> {
    /// None for a configuration that makes no sense.
    pub fn new(config: &PoolConfig, servers: Servers, key: TicketKey) -> Option<Self> {
        Self::watching(config, servers, key, |_| false)
    }

    /// The same, where it can be seen whether whoever made a request has left.
    pub(crate) fn watching(
        config: &PoolConfig,
        servers: Servers,
        key: TicketKey,
        is_gone: fn(&T) -> bool,
    ) -> Option<Self> {
        // The order bounds what waits; the book comes behind all of that.
        let book = AppointmentsConfig { denial_cost: Duration::ZERO, ..AppointmentsConfig::default() };
        Some(Self {
            order: Order::new(config, servers, is_gone)?,
            worth: servers.worth.max(1),
            book: Appointments::new(&book, key).ok()?,
            utilisation: book.utilisation,
            advice: StretchAdvice::new(&AdviceConfig::default()).ok()?,
            is_untried: true,
            cold: ColdStart::default(),
            unpromised: 0.0,
            names: NameBook::default(),
            popular: PopularQuestions::default(),
            decisions: [[0; PoolDecision::ALL.len()]; Class::COUNT],
            wants: BTreeMap::new(),
            silent: BTreeSet::new(),
        })
    }

    /// So many that take long may be under way at once from now on.
    pub(crate) fn set_long_max(&mut self, long_max: usize) {
        self.order.set_long_max(long_max);
    }

    /// What everybody of a class is told, and this one about what it wants.
    pub fn hints(&mut self, now: Timestamp, class: Class, caller: &Caller) -> Hints {
        if self.order.is_paper() {
            return Hints { permitted: Some(self.order.permitted(now, class)), ..Hints::default() };
        }
        self.forget_silent(now);
        // Whatever a client says, a stretched want is a time that can be told.
        let want = caller.want.map(|want| want.min(WANT_MAX));
        let stretch = want.map(|want| self.declare(now, class, caller, want));
        let interval = stretch.zip(want).map(|(stretch, want)| want.mul_f64(stretch));
        Hints { permitted: Some(self.order.permitted(now, class)), stretch, interval, ..Hints::default() }
    }

    /// A request arrives, with what [`RequestQueue::hints`] said to its caller.
    pub fn offer(
        &mut self,
        now: Timestamp,
        mut request: Arrival<T>,
        caller: &Caller,
        hints: &Hints,
        chance: &mut impl Rng,
    ) -> Entered<T> {
        self.end_cold(now);
        let class = request.class;
        request.kp = self.place_among(now, caller);
        request.shape = request.shape.asked_by(caller.client);
        match self.admit(now, request, caller, chance) {
            Ok(()) => Entered::Waits,
            Err((value, None)) => {
                self.decided(class, PoolDecision::Dropped);
                Entered::Dropped(value)
            }
            Err((value, Some(place))) => {
                self.decided(class, PoolDecision::Denied);
                self.note_sent_away(caller.client, place.retry_after);
                Entered::Refused(value, Box::new(place.with_pace_of(hints)))
            }
        }
    }

    /// Where the requests of a caller stand: newcomers of a household in one line. While something of it waits that is where
    /// its next one waits, too, known by now or not: it is served in the order in which it came.
    fn place_among(&mut self, now: Timestamp, caller: &Caller) -> KpPlace {
        let Caller { client, household, standing, .. } = *caller;
        if household == 0 {
            return KpPlace { household: client, client, standing };
        }
        let is_known = self.names.on_heard(now, household, client);
        let now_in = if is_known { client } else { household };
        KpPlace { household, client: self.order.stands_with(household, client).unwrap_or(now_in), standing }
    }

    fn decided(&mut self, class: Class, decision: PoolDecision) {
        self.decisions[class.index()][decision as usize] += 1;
    }

    /// How often each decision was made about requests of a class, by [`PoolDecision::ALL`].
    pub(crate) fn decisions(&self, class: Class) -> [u64; PoolDecision::ALL.len()] {
        self.decisions[class.index()]
    }

    fn admit(
        &mut self,
        now: Timestamp,
        mut request: Arrival<T>,
        caller: &Caller,
        chance: &mut impl Rng,
    ) -> Result<(), (T, Option<KeptPlace>)> {
        if self.order.is_paper() {
            return self.enter(now, request).map_err(|(value, retry_after)| {
                let queued = self.order.backlog(now);
                (value, retry_after.map(|retry_after| KeptPlace { queued, retry_after, ticket: None }))
            });
        }
        let (class, shape, patience, kp) = (request.class, request.shape, request.patience, request.kp);
        let queued = self.order.backlog(now);
        let is_cold = self.is_cold();
        self.book.settle(now, if is_cold { self.cold_backlog() } else { queued });
        let server = if queued.is_zero() { Server::Idle } else { Server::Busy };
        // Who comes to an idle server is in time, and who can wait for its time in the queue may.
        let early = if server == Server::Idle { Duration::MAX } else { patience / 2 };
        let presented = self.book.present(now, &visitor(&caller.client.to_le_bytes(), caller.ticket), early);
        if let Presented::Early(rest) = presented {
            return Err((request.value, Some(KeptPlace { queued, retry_after: rest, ticket: caller.ticket })));
        }
        let is_promised = presented == Presented::Due;
        let wait = self.order.wait_of(now, class, kp, shape);
        // What others ask, too, is never sent away: together they cost nothing.
        let is_popular = request.key.is_some_and(|key| self.popular.on_asked(now, key, caller.client));
        request.terms = WaitTerms {
            is_promised,
            keeps_appointments: caller.accepts_tickets,
            is_provisional: false,
            is_popular,
            asker: caller.client,
            flow: caller.flow,
        };
        let may_leave = caller.accepts_tickets && !is_popular;
        // A promise that was made too early is renewed: who waits to the end of its patience is answered in vain. What the
        // request costs itself does not count: it would be as dear at every other time.
        if may_leave && is_promised && wait > patience / 2 {
            let late = wait.saturating_sub(self.order.delay_max(class).min(patience / 4));
            let place = self.renew(now, (class, shape), caller, late, chance);
            return Err((request.value, Some(KeptPlace { queued, ..place })));
        }
        if is_promised {
            self.slip(now, wait, class, shape);
        }
        if may_leave && !is_promised {
            let delay_max = self.order.delay_max(class);
            // Whoever is let in is in the book, too: what is promised comes behind; but a service comes before what customers
            // were promised.
            let is_booked = || self.book.wait(now) > delay_max.div_f64(self.utilisation);
            let is_full = wait > delay_max || kp.standing.role == KpRole::Customer && is_booked();
            if is_full && is_cold {
                request.terms.is_provisional = true;
            } else {
                let server = if is_full { server } else { Server::Idle };
                if let Some(place) = self.decide(now, (class, shape), caller, server, chance) {
                    return Err((request.value, Some(KeptPlace { queued, ..place })));
                }
            }
        }
        let is_provisional = request.terms.is_provisional;
        let (value, retry_after) = match self.enter(now, request) {
            Ok(()) => {
                if is_provisional {
                    self.cold.on_waiting(now, patience);
                }
                return Ok(());
            }
            Err((value, None)) => return Err((value, None)),
            Err((value, Some(retry_after))) => (value, retry_after),
        };
        let place = if !caller.accepts_tickets {
            None
        } else if is_promised {
            // It came in time, and its ticket is used up: it keeps its place.
            Some(self.renew(now, (class, shape), caller, retry_after, chance))
        } else if is_cold {
            // Not sooner than what is under way has taken by now: the guess may be too low by orders of magnitude.
            let retry_after = self.turn_of_overflow(now).max(self.order.longest(now));
            Some(KeptPlace { queued, retry_after, ticket: None })
        } else {
            // None if the book sees room where the order has none: no promise.
            self.decide(now, (class, shape), caller, Server::Busy, chance)
        };
        let plain = KeptPlace { queued, retry_after, ticket: None };
        Err((value, Some(place.map_or(plain, |place| KeptPlace { queued, ..place }))))
    }

    /// Offers it to the order; or when to come back, if that is said.
    fn enter(&mut self, now: Timestamp, request: Arrival<T>) -> Result<(), (T, Option<Duration>)> {
        let class = request.class;
        match self.order.offer(now, request) {
            Offered::Queued | Offered::Joined => Ok(()),
            Offered::Postponed => {
                self.decided(class, PoolDecision::Postponed);
                Ok(())
            }
            Offered::Denied(value, retry_after) => Err((value, Some(retry_after))),
            Offered::Dropped(value) => Err((value, None)),
        }
    }

    /// Another place for somebody whose promise cannot be kept, so much later.
    fn renew(
        &mut self,
        now: Timestamp,
        (class, shape): (Class, Shape),
        caller: &Caller,
        late: Duration,
        chance: &mut impl Rng,
    ) -> KeptPlace {
        let client = caller.client.to_le_bytes();
        let (usual, is_usual) = self.order.usual_of(class, shape);
        let visitor = Visitor { work: self.shared(usual), ..visitor(&client, None) };
        let late = if is_usual { Lateness::Usual(late) } else { Lateness::Passing(late) };
        let (retry_after, ticket) = self.book.renew(now, &visitor, late, chance);
        KeptPlace { queued: Duration::ZERO, retry_after, ticket: Some(ticket) }
    }

    /// Asks the book for a place; none if there is room now.
    fn decide(
        &mut self,
        now: Timestamp,
        (class, shape): (Class, Shape),
        caller: &Caller,
        server: Server,
        chance: &mut impl Rng,
    ) -> Option<KeptPlace> {
        let client = caller.client.to_le_bytes();
        let visitor = Visitor { work: self.place_of(now, class, shape), ..visitor(&client, None) };
        // Whoever says how often it wants to ask comes again by itself, and slower; not because nobody knows what it costs.
        let slows = caller.want.is_some() && !self.is_untried;
        let refusals = if slows { Refusals::Any } else { Refusals::WithSlot };
        match self.book.decide_for(now, &visitor, server, refusals, chance) {
            Appointment::Admit => None,
            Appointment::Deny { retry_after, ticket } => {
                Some(KeptPlace { queued: Duration::ZERO, retry_after, ticket })
            }
        }
    }

    /// How long a place for such a request is.
    fn place_of(&self, now: Timestamp, class: Class, shape: Shape) -> Duration {
        let cost = if self.is_untried {
            // Nobody knows what anything costs here, and what is under way is not cheaper than what it has taken so far.
            self.order.place_of(class, shape).max(self.order.longest(now))
        } else {
            self.order.place_of(class, shape)
        };
        self.shared(cost)
    }

    /// What a cost takes of the book: as much as leaves room for those who have no place there.
    fn shared(&self, cost: Duration) -> Duration {
        (cost / self.worth).div_f64(1.0 - self.unpromised.min(UNPROMISED_MAX))
    }

    /// Places were too dense if those who come for them find others waiting: up to one place more is left free then.
    fn slip(&mut self, now: Timestamp, wait: Duration, class: Class, shape: Shape) {
        let meant = self.order.delay_max(class).mul_f64(MEANT_WAIT);
        let late = wait.saturating_sub(meant);
        if !late.is_zero() {
            let part = late.as_secs_f64() / meant.as_secs_f64().max(1e-9);
            let place = self.place_of(now, class, shape);
            self.book.slip(now, place.mul_f64(part.min(1.0)));
        }
    }

    /// The next request for a free server; none if nothing waits that this server may do.
    pub fn take(&mut self, now: Timestamp) -> Option<Taken<T>> {
        self.take_but(now, &[])
    }

    /// The same, of other flows than these, which are in ascending order: something of them is under way that may be overtaken.
    pub(crate) fn take_but(&mut self, now: Timestamp, held: &[u64]) -> Option<Taken<T>> {
        self.end_cold(now);
        self.order.take(now, held)
    }

    /// Those whose wait has ended without a turn.
    pub fn drain(&mut self) -> Vec<EndedWait<T>> {
        let mut ended = self.cold.drain();
        while let Some(EndedEntry { value, class, why }) = self.order.poll_ended() {
            ended.push(match why {
                EndedBy::Time => EndedWait::Late(value),
                EndedBy::Outdated => {
                    self.decided(class, PoolDecision::Outdated);
                    EndedWait::Outdated(value)
                }
                EndedBy::Displaced => {
                    self.decided(class, PoolDecision::Dropped);
                    EndedWait::Dropped(value)
                }
            });
        }
        ended
    }

    /// Everything that waits. Nothing counts as under way any more.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let mut all = self.order.clear();
        all.extend(self.cold.drain().into_iter().map(|ended| match ended {
            EndedWait::Late(value)
            | EndedWait::Outdated(value)
            | EndedWait::Dropped(value)
            | EndedWait::SentAway(value, _) => value,
        }));
        all
    }

    /// Estimated time until all that waits is under way.
    pub fn backlog(&self, now: Timestamp) -> Duration {
        self.order.backlog(now)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// A job was done in this time. To be said before its client is answered.
    pub fn served(&mut self, job: Job, elapsed: Duration) {
        let share = if job.keeps_appointments { 0.0 } else { 1.0 };
        self.unpromised += (share - self.unpromised) / UNPROMISED_SAMPLES;
        self.order.on_served(job, elapsed);
        self.advice.on_served(elapsed / self.worth);
        self.is_untried = false;
        if self.cold.on_served() {
            self.order.reassess();
        }
    }

    /// A job that is to be stopped, by its number, because it takes long and was not taken for that. To be asked now and then.
    pub(crate) fn poll_yielding(&mut self, now: Timestamp) -> Option<u64> {
        self.order.poll_yielding(now)
    }

    /// A job was stopped after this time: its requests wait again.
    pub(crate) fn take_back(&mut self, job: Job, requests: Vec<Returned<T>>, elapsed: Duration) {
        self.order.take_back(job, requests, elapsed);
    }

    /// A job was given up after this time.
    pub fn cancelled(&mut self, job: Job, elapsed: Duration) {
        self.order.on_cancelled(job, elapsed);
    }
}

/// What a refusal costs: little, and a small part of what is refused.
fn denial_cost(cost: Duration) -> Duration {
    (cost / DENIAL_PART).min(DENIAL_MAX)
}

fn visitor(client: &[u8], ticket: Option<Ticket>) -> Visitor<'_> {
    Visitor { client, work: Duration::ZERO, ticket }
}

/// A refusal costs this part of a request, and no more than this.
const DENIAL_PART: u32 = 16;
const DENIAL_MAX: Duration = Duration::from_micros(50);
/// The part of the longest wait that is meant to be: a host that is always busy and has few to refuse.
const MEANT_WAIT: f64 = 0.4;
/// However many come without tickets, half of the time can be promised.
const UNPROMISED_MAX: f64 = 0.5;
/// Jobs over which the share of those who keep no appointments is taken.
const UNPROMISED_SAMPLES: f64 = 64.0;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod in_order;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
