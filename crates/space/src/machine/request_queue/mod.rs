//! An order of service with its appointment book and its advice: who waits, who is sent away with a place that is kept, and
//! how fast everybody should ask. Pure: time and chance are arguments.
//!
//! ```text
//! shows a ticket that the book knows           in, before others, up to half of the time
//! accepts tickets, and would wait too long     away with a ticket; what is let in is in the book, and promises come behind it
//! keeps a place, and would wait too long       away with another ticket
//! would be late, or is one too many            away with the time to come back
//! else                                         waits
//! ```
//! Only who says that it keeps appointments is given one: who does not know tickets would otherwise be refused for the sake
//! of promises that nobody keeps, for as long as it asks. And no more is promised than what those who keep no appointments
//! leave, half of the time at least. A place is as long as the request that it is for: what others of its shape took, or,
//! while nothing was served yet, what the first has taken so far. Everybody who says how often it wants to ask is told by
//! how much to stretch that; while few are refused such a client is refused without a place, and slows down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_core::Rng;
use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, PoolConfig};
use tidegate_control::advice::{AdviceConfig, Declared, Strain, StretchAdvice};
use tidegate_control::appointments::{
    Appointment, Appointments, AppointmentsConfig, Refusals, Server, Ticket, TicketKey, Visitor,
};
use tidegate_control::hints::{Asks, Hints};

use crate::limits::{WANT_MAX, WANTS_MAX};
use crate::machine::order::{Arrival, Job, Offered, Order, Servers, Shape, Taken};

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caller {
    /// Its name, as a number; tickets are bound to it, and its requests share one line.
    pub client: u64,
    /// How often it would like to ask.
    pub want: Option<Duration>,
    /// The appointment that it keeps.
    pub ticket: Option<Ticket>,
    /// It keeps appointments.
    pub accepts_tickets: bool,
}

impl Caller {
    /// A client, with what it says about pace.
    pub fn new(client: u64, asks: &Asks) -> Self {
        let accepts_tickets = asks.accept.is_some() || asks.ticket.is_some();
        Self { client, want: asks.want, ticket: asks.ticket, accepts_tickets }
    }
}

/// What became of a request at the door.
#[derive(Debug)]
pub enum Entered<T> {
    /// It waits, alone or with an equal one.
    Waits,
    /// With what it is to be told.
    Refused(T, Box<Hints>),
}

/// Requests that wait for one kind of server.
#[derive(Debug)]
pub struct RequestQueue<T> {
    order: Order<T>,
    worth: u32,
    book: Appointments,
    denial_cost: Duration,
    utilisation: f64,
    advice: StretchAdvice,
    /// Nothing was served yet: what it costs is only assumed.
    is_untried: bool,
    /// Jobs that were served.
    served: u32,
    /// Share of the jobs of late that were of those who keep no appointments.
    unpromised: f64,
    wants: BTreeMap<u64, Want>,
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

impl<T> RequestQueue<T> {
    /// None for a configuration that makes no sense.
    pub fn new(config: &PoolConfig, servers: Servers, key: TicketKey) -> Option<Self> {
        // The order bounds what waits; the book comes behind all of that.
        let book = AppointmentsConfig::default();
        Some(Self {
            order: Order::new(config, servers)?,
            worth: servers.worth.max(1),
            book: Appointments::new(&book, key).ok()?,
            denial_cost: book.denial_cost,
            utilisation: book.utilisation,
            advice: StretchAdvice::new(&AdviceConfig::default()).ok()?,
            is_untried: true,
            served: 0,
            unpromised: 0.0,
            wants: BTreeMap::new(),
            silent: BTreeSet::new(),
        })
    }

    /// What everybody of a class is told, and this one about what it wants.
    pub fn hints(&mut self, now: Timestamp, class: Class, caller: &Caller) -> Hints {
        self.forget_silent(now);
        // Whatever a client says, a stretched want is a time that can be told.
        let want = caller.want.map(|want| want.min(WANT_MAX));
        let stretch = want.map(|want| self.declare(now, class, caller, want));
        let interval = stretch.zip(want).map(|(stretch, want)| want.mul_f64(stretch));
        Hints { permitted: Some(self.order.permitted(class)), stretch, interval, ..Hints::default() }
    }

    /// A request arrives, with what [`RequestQueue::hints`] said to its caller.
    pub fn offer(
        &mut self,
        now: Timestamp,
        request: Arrival<T>,
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
        mut request: Arrival<T>,
        caller: &Caller,
        hints: &Hints,
        chance: &mut impl Rng,
    ) -> Entered<T> {
        let (class, shape) = (request.class, request.shape);
        let backlog = self.order.backlog(now);
        self.book.on_backlog(now, backlog);
        let server = if backlog.is_zero() { Server::Idle } else { Server::Busy };
        request.is_promised = caller.ticket.is_some() && {
            let visitor = Visitor { client: &caller.client.to_le_bytes(), work: Duration::ZERO, ticket: caller.ticket };
            self.book.is_kept(now, &visitor)
        };
        request.keeps_appointments = caller.accepts_tickets;
        // Equal questions are never sent away: together they cost nothing.
        let may_leave = caller.accepts_tickets && request.key.is_none();
        let wait = self.order.wait_of(now, class, caller.client, shape);
        if self.is_untried && self.order.is_working() && self.order.items() >= COLD_ITEMS {
            self.book.on_backlog(now, COLD_WAIT);
        }
        // A promise that was made too early is renewed: who waits to the end of its patience is answered in vain. What the
        // request costs itself does not count: it would be as dear at every other time.
        let is_broken = request.is_promised && wait > request.patience / 2;
        if may_leave && (!request.is_promised || is_broken) {
            let delay_max = self.order.delay_max(class);
            // Whoever is let in is in the book, too: what is promised comes behind.
            let is_full = wait > delay_max || self.book.wait(now) > delay_max.div_f64(self.utilisation);
            let server = if is_full { server } else { Server::Idle };
            let denied = self.decide(now, (class, shape), caller, server, chance);
            if let Appointment::Deny { .. } = denied {
                return Entered::Refused(request.value, Box::new(sent_away(denied, backlog, hints)));
            }
        }
        let (value, retry_after) = match self.order.offer(now, request) {
            Offered::Queued | Offered::Joined => return Entered::Waits,
            Offered::Denied(value, retry_after) => (value, retry_after),
        };
        let plain = || Hints { queued: Some(backlog), retry_after: Some(retry_after), ..hints.clone() };
        if !caller.accepts_tickets {
            return Entered::Refused(value, Box::new(plain()));
        }
        let hints = match self.decide(now, (class, shape), caller, Server::Busy, chance) {
            // The book sees room where the order has none: no promise.
            Appointment::Admit => plain(),
            denied @ Appointment::Deny { .. } => sent_away(denied, backlog, hints),
        };
        Entered::Refused(value, Box::new(hints))
    }

    /// Asks the book for a place, with as much work as leaves room for those who have none.
    fn decide(
        &mut self,
        now: Timestamp,
        (class, shape): (Class, Shape),
        caller: &Caller,
        server: Server,
        chance: &mut impl Rng,
    ) -> Appointment {
        let left = 1.0 - self.unpromised.min(UNPROMISED_MAX);
        let mut cost = self.order.cost_of(class, shape);
        if self.is_untried {
            // Nobody knows what anything costs here, and what is under way is not cheaper than what it has taken so far.
            cost = cost.max(self.order.longest(now));
        }
        let work = (cost / self.worth).div_f64(left);
        let visitor = Visitor { client: &caller.client.to_le_bytes(), work, ticket: None };
        // Whoever says how often it wants to ask comes again by itself, and slower; not because nobody knows what it costs.
        let slows = caller.want.is_some() && !self.is_untried;
        let refusals = if slows { Refusals::Any } else { Refusals::WithSlot };
        self.book.decide_for(now, &visitor, server, refusals, chance)
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
            return self.advice.stretch(self.order.cost(class) / self.worth);
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

    /// The next request for a free server; none if nothing waits that this server may do.
    pub fn take(&mut self, now: Timestamp) -> Option<Taken<T>> {
        self.order.take(now)
    }

    /// Those who waited too long.
    pub fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.order.poll_ended()).collect()
    }

    /// Everything that waits. Nothing counts as under way any more.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.order.clear()
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
        self.served = self.served.saturating_add(1);
        if self.served <= COLD && self.served.is_power_of_two() {
            self.order.reassess();
        }
    }

    /// A job was given up after this time.
    pub fn cancelled(&mut self, job: Job, elapsed: Duration) {
        self.order.on_cancelled(job, elapsed);
    }
}

fn sent_away(denied: Appointment, backlog: Duration, hints: &Hints) -> Hints {
    let (retry_after, ticket) = match denied {
        Appointment::Admit => (Duration::ZERO, None),
        Appointment::Deny { retry_after, ticket } => (retry_after, ticket),
    };
    Hints { queued: Some(backlog), retry_after: Some(retry_after), ticket, ..hints.clone() }
}

/// Requests that wait while the first is under way, and nobody knows what they cost; and when others are told to come.
const COLD_ITEMS: usize = 8;
const COLD_WAIT: Duration = Duration::from_millis(100);
/// Jobs after which it is known what they cost.
const COLD: u32 = 64;
/// However many come without tickets, half of the time can be promised.
const UNPROMISED_MAX: f64 = 0.5;
/// Jobs over which the share of those who keep no appointments is taken.
const UNPROMISED_SAMPLES: f64 = 64.0;
/// Silent ones looked at with each request: more than come, so that none stays.
const SILENT_LOOKS: usize = 4;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
