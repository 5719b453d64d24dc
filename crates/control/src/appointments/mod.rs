//! Deny with a slot: "not now, come back in 3.2 s, your place is kept".
//!
//! One number of state: `vt`, the virtual time at which all accepted *and promised* work will be finished.
//! ```text
//! h = max(vt, now) − now
//! valid ticket                    admit                                       its work is in vt already
//! idle, or h ≤ target             admit           vt = max(vt, now) + w/ρ
//! h ≤ 10·target, few refused      deny, no promise: try again in U(1, 2)·10·target;  vt += w_deny/ρ
//! h ≤ horizon                     deny with slot  slot = vt, vt += (w + w_deny)/ρ
//! else                            deny, no promise: come back in U(1, 2)·horizon;  vt += w_deny/ρ
//! slip: measured backlog > h      ⇒  vt = now + backlog, at most now + 2·horizon
//! always: vt ≤ now + horizon + (horizon + w_deny)/ρ                           the end of the furthest promise
//! kept, and the server is late    deny with slot  behind those who were late before it, not behind all; in a half to the
//!                                 whole of the time for which it has been, if that is sooner and will pass
//! ```
//! A place that was promised too early costs one request more, one that was promised too late an idle server: so nobody
//! is sent further than a server has been slow, which may be over at any moment.
//!
//! A full book is not always overload: at 95 % of the capacity chance alone fills it now and then. A slot would then do
//! harm, because everybody who comes before it finds the book full, too, and asks twice; so while less than half of the
//! visitors is sent away, they are asked to try again shortly, and their work is not in `vt`.
//!
//! Admitting whenever the server is idle makes it work-conserving, so no-shows cost order, not throughput. A burst of
//! 10 000 clients drains in 1.09 × the ideal time with two requests each (CONTROL §8.4). Not from the papers.
//!
//! The clock may be wrong. A ticket that has once been too late stays so when the clock goes back by less than the grace
//! period, so that none is honoured twice. If it goes back further a new *epoch* begins: all tickets are void, as after a
//! restart, h is kept, and slots are given on the new time.

#[cfg(test)]
mod tests;
mod ticket;

use alloc::collections::BTreeSet;
use core::time::Duration;

use rand_core::Rng;

pub use ticket::{Ticket, TicketKey};

use crate::config::{ConfigError, number, span};
use crate::draw;
use crate::time::{Timestamp, duration, nanos, seconds};

/// Configuration of the appointment book.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppointmentsConfig {
    /// ρ: the share of the time that is given away. 0.1 ..= 1.
    pub utilisation: f64,
    /// Work that may be waiting before anybody is sent away. 1 ms ..= 1 min.
    pub target: Duration,
    /// The furthest promise. 1 s ..= 1 h.
    pub horizon: Duration,
    /// `w_deny`: what a denial itself costs. ..= 1 s.
    pub denial_cost: Duration,
    /// How early or late a ticket is still honoured. 1 ms ..= 1 min.
    pub grace: Duration,
}

impl Default for AppointmentsConfig {
    fn default() -> Self {
        Self {
            utilisation: 1.0,
            target: Duration::from_millis(100),
            horizon: Duration::from_secs(120),
            denial_cost: Duration::from_micros(50),
            grace: Duration::from_secs(1),
        }
    }
}

/// How a visitor may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusals {
    /// While few are refused, without a slot: one that asks again and again slows down then, which helps more than a slot.
    Any,
    /// With a slot, as far as the book reaches: it came once, and waits.
    WithSlot,
}

/// Whether the server has anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// It waits for work: whoever comes is served.
    Idle,
    /// The server works.
    Busy,
}

/// Somebody at the door.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// The principal to which a ticket is bound.
    pub client: &'a [u8],
    /// Estimated work; at least a microsecond and at most the horizon is counted.
    pub work: Duration,
    /// The ticket that was shown.
    pub ticket: Option<Ticket>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the visitor waits for this answer, and its work is in the book already"]
pub enum Appointment {
    /// Come in.
    Admit,
    /// Come back in `retry_after`; with a ticket this is a promise, without one it is advice.
    Deny {
        /// Time until the slot.
        retry_after: Duration,
        /// The ticket to be shown at that time.
        ticket: Option<Ticket>,
    },
}

/// What a ticket is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// Its time has come, and it is used up.
    Due,
    /// Its time will come after this; it is still good then.
    Early(Duration),
    /// It is no ticket of this client, too old, or used up.
    Unknown,
}

/// By how much a server is later than it promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// It was promised before anybody knew better: what is promised now holds.
    Usual(Duration),
    /// It is slower than on a usual day, which may be over at any moment.
    Passing(Duration),
}

/// The appointment book.
#[derive(Clone, Debug)]
pub struct Appointments {
    utilisation: f64,
    target: Duration,
    horizon: Duration,
    denial_cost: f64,
    grace: Duration,
    key: TicketKey,
    /// When all accepted and promised work will be finished.
    virtual_time: Timestamp,
    /// The end of the furthest promise.
    promised: Timestamp,
    /// Latest time that this epoch has seen.
    latest: Timestamp,
    /// How often the clock went back by more than the grace period.
    epoch: u64,
    /// Honoured tickets that are still within the grace period, by slot; with their signatures, because a slot may have been
    /// given twice when places were renewed.
    honoured: BTreeSet<(Timestamp, u64)>,
    /// When those whose places were renewed will be done, since when places have been, and when one was last.
    renewed: Timestamp,
    late_since: Timestamp,
    late_at: Timestamp,
    /// Share of the visitors without a valid ticket that was sent away of late.
    refused: f64,
}

impl Appointments {
    /// An empty book. The key signs the tickets; it must come from a random source and stay in the process.
    pub fn new(config: &AppointmentsConfig, key: TicketKey) -> Result<Self, ConfigError> {
        let ms = Duration::from_millis(1);
        span("target", config.target, ms, Duration::from_secs(60))?;
        span("horizon", config.horizon, Duration::from_secs(1), Duration::from_secs(3600))?;
        span("grace", config.grace, ms, Duration::from_secs(60))?;
        Ok(Self {
            utilisation: number("utilisation", config.utilisation, 0.1, 1.0)?,
            target: config.target,
            horizon: config.horizon,
            denial_cost: span("denial_cost", config.denial_cost, Duration::ZERO, Duration::from_secs(1))?,
            grace: config.grace,
            key,
            virtual_time: Timestamp::ZERO,
            promised: Timestamp::ZERO,
            latest: Timestamp::ZERO,
            epoch: 0,
            honoured: BTreeSet::new(),
            renewed: Timestamp::ZERO,
            late_since: Timestamp::ZERO,
            late_at: Timestamp::ZERO,
            refused: 0.0,
        })
    }

    /// Admits a visitor, or gives it a slot.
    pub fn decide<R: Rng + ?Sized>(
        &mut self,
        now: Timestamp,
        visitor: &Visitor<'_>,
        server: Server,
        rng: &mut R,
    ) -> Appointment {
        self.decide_for(now, visitor, server, Refusals::Any, rng)
    }

    /// The same for a visitor that may need a slot however few are refused.
    pub fn decide_for<R: Rng + ?Sized>(
        &mut self,
        now: Timestamp,
        visitor: &Visitor<'_>,
        server: Server,
        refusals: Refusals,
        rng: &mut R,
    ) -> Appointment {
        self.on_time(now);
        if visitor.ticket.is_some() && self.present(now, visitor, self.grace) == Presented::Due {
            return Appointment::Admit;
        }
        let start = self.virtual_time.max(now);
        let wait = start.since(now);
        let work = seconds(visitor.work.clamp(WORK_MIN, self.horizon));
        if server == Server::Idle || wait <= self.target {
            // An idle server takes what comes, but it must not close the book for hours.
            self.virtual_time = (start + duration(work / self.utilisation)).min(now + self.furthest());
            self.refused -= self.refused * REFUSED_WEIGHT;
            return Appointment::Admit;
        }
        self.refused += (1.0 - self.refused) * REFUSED_WEIGHT;
        let shortly = self.target * SHORTLY;
        if refusals == Refusals::Any && wait <= shortly && self.refused <= REFUSED_FEW {
            self.virtual_time = start + duration(self.denial_cost / self.utilisation);
            let retry_after = duration(draw::uniform(rng, 1.0, 2.0) * seconds(shortly));
            return Appointment::Deny { retry_after, ticket: None };
        }
        if wait <= self.horizon {
            let ticket = self.key.sign(visitor.client, start, self.epoch);
            self.virtual_time = start + duration((work + self.denial_cost) / self.utilisation);
            self.promised = self.virtual_time;
            return Appointment::Deny { retry_after: wait, ticket: Some(ticket) };
        }
        // Denials alone must not push the book further and further away.
        let furthest = now + self.horizon * 2;
        self.virtual_time = (start + duration(self.denial_cost / self.utilisation)).min(furthest).max(start);
        let retry_after = duration(draw::uniform(rng, 1.0, 2.0) * seconds(self.horizon));
        Appointment::Deny { retry_after, ticket: None }
    }

    /// What the ticket of a visitor is worth; one that is due is used up with that. Whoever comes before its time by no more
    /// than `early`, or the grace period, is in time.
    pub fn present(&mut self, now: Timestamp, visitor: &Visitor<'_>, early: Duration) -> Presented {
        self.on_time(now);
        let Some(ticket) = visitor.ticket else { return Presented::Unknown };
        let name = (ticket.slot, ticket.mac);
        // Late by the latest time there was: slots older than that have been forgotten. And nothing further was promised.
        let is_over = self.latest.since(ticket.slot) > self.grace || ticket.slot.since(now) > self.furthest();
        if is_over || self.honoured.contains(&name) || !self.key.has_signed(visitor.client, ticket, self.epoch) {
            return Presented::Unknown;
        }
        let rest = ticket.slot.since(now);
        if rest > early.max(self.grace) {
            return Presented::Early(rest);
        }
        if self.honoured.len() >= HONOURED_MAX {
            return Presented::Unknown;
        }
        self.honoured.insert(name);
        Presented::Due
    }

    /// A place, without asking whether there is room now: for whoever was let in before anybody knew what it costs. Without
    /// a ticket if the book does not reach so far.
    pub fn assign(&mut self, now: Timestamp, visitor: &Visitor<'_>) -> (Duration, Option<Ticket>) {
        self.on_time(now);
        let start = self.virtual_time.max(now);
        let wait = start.since(now);
        if wait > self.horizon {
            return (wait.min(self.horizon * 2), None);
        }
        let work = seconds(visitor.work.clamp(WORK_MIN, self.horizon));
        self.virtual_time = start + duration((work + self.denial_cost) / self.utilisation);
        self.promised = self.virtual_time;
        (wait, Some(self.key.sign(visitor.client, start, self.epoch)))
    }

    /// Another place for a visitor whose ticket is used up and who would wait for too long, by so much: the server is later
    /// than it was promised; for a while, or because it was taken for faster than it is.
    pub fn renew<R: Rng + ?Sized>(
        &mut self,
        now: Timestamp,
        visitor: &Visitor<'_>,
        late: Lateness,
        rng: &mut R,
    ) -> (Duration, Ticket) {
        self.on_time(now);
        if now.since(self.late_at) > LATE_PAUSE {
            (self.late_since, self.renewed) = (now, now);
        }
        self.late_at = now;
        let (late, lasted) = match late {
            Lateness::Usual(late) => (late, self.horizon),
            Lateness::Passing(late) => (late, now.since(self.late_since).max(LATE_MIN)),
        };
        let work = seconds(visitor.work.clamp(WORK_MIN, self.horizon));
        let start = self.renewed.max(now + late);
        let slot = if start.since(now) <= lasted {
            self.renewed = start + duration(work / self.utilisation);
            start
        } else {
            now + duration(draw::uniform(rng, 0.5, 1.0) * seconds(lasted.min(self.horizon)))
        };
        self.promised = self.promised.max(slot);
        self.virtual_time = self.virtual_time.max(slot);
        (slot.since(now), self.key.sign(visitor.client, slot, self.epoch))
    }

    /// The measured backlog: promises made before the server became slower slip.
    pub fn on_backlog(&mut self, now: Timestamp, backlog: Duration) {
        self.on_time(now);
        let wait = self.wait(now);
        if backlog > wait {
            self.virtual_time = now + backlog.min(self.horizon * 2);
        }
    }

    /// Those who come for their places have to wait: what is promised from now on is that much further away.
    pub fn slip(&mut self, now: Timestamp, by: Duration) {
        self.promised = (self.promised.max(now) + by).min(now + self.furthest()).max(self.promised);
        self.virtual_time = self.virtual_time.max(self.promised);
    }

    /// All that waits is measured, and whoever was let in is part of it: the book is as long as that and its promises. A
    /// server that was faster than it was taken to be has room at once.
    pub fn settle(&mut self, now: Timestamp, backlog: Duration) {
        self.on_time(now);
        self.virtual_time = self.promised.max(now + backlog.min(self.horizon * 2));
    }

    /// How long a visitor without a ticket would wait now.
    pub fn wait(&self, now: Timestamp) -> Duration {
        self.virtual_time.since(now).min(self.furthest())
    }

    /// The share of the visitors that was sent away of late, each at the price of a denial: mean of the last 64 or so
    /// that had no valid ticket.
    pub fn refused(&self) -> f64 {
        self.refused
    }

    /// The end of the furthest promise, from now.
    fn furthest(&self) -> Duration {
        self.horizon + duration((seconds(self.horizon) + self.denial_cost) / self.utilisation)
    }

    /// Follows the clock wherever it goes, and forgets tickets that have expired.
    fn on_time(&mut self, now: Timestamp) {
        if self.latest.since(now) > self.grace {
            self.virtual_time = now + self.virtual_time.since(self.latest);
            self.promised = now + self.promised.since(self.latest);
            self.epoch += 1;
            self.honoured.clear();
            self.latest = now;
        }
        self.latest = self.latest.max(now);
        let oldest = Timestamp::from_nanos(self.latest.as_nanos().saturating_sub(nanos(self.grace)));
        while self.honoured.first().is_some_and(|(slot, _)| *slot < oldest) {
            self.honoured.pop_first();
        }
    }
}

/// The least time for which a server is taken to be late, and the time after which one that was late is not any more.
const LATE_MIN: Duration = Duration::from_secs(2);
const LATE_PAUSE: Duration = Duration::from_secs(5);
/// The least work that a visitor is counted with; it keeps slots distinct.
const WORK_MIN: Duration = Duration::from_micros(1);
/// Honoured tickets remembered at once. Enough for 130 000 slots a second; beyond, a ticket is worth no more than none.
const HONOURED_MAX: usize = 262_144;
/// How many targets of waiting may be chance rather than overload.
const SHORTLY: u32 = 10;
/// As long as no larger share is refused, it is chance.
const REFUSED_FEW: f64 = 0.5;
/// Weight of one visitor in the share of those refused.
const REFUSED_WEIGHT: f64 = 1.0 / 64.0;
