//! Who comes to a request queue, and what becomes of its request: plain values.

use std::time::Duration;

use tidegate_control::appointments::Ticket;
use tidegate_control::hints::{Asks, Hints};

use crate::machine::standing::KpStanding;

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caller {
    /// Its name, as a number; tickets are bound to it, and its requests share one line.
    pub client: u64,
    /// Whose it is, as a number: all KPs of one user, or of one address without a user. Households share evenly before their
    /// KPs do, so that more names gain nothing. 0: it is a household of its own.
    pub household: u64,
    /// Its role and its share.
    pub standing: KpStanding,
    /// How often it would like to ask.
    pub want: Option<Duration>,
    /// The appointment that it keeps.
    pub ticket: Option<Ticket>,
    /// It keeps appointments.
    pub accepts_tickets: bool,
    /// Its connection, if what is sent on that one behind the other is to be done in that order; 0: of none.
    pub flow: u64,
    /// It has asked more than an operator allows: nothing is asked for it, and when it may come back.
    pub limited: Option<Duration>,
}

impl Caller {
    /// A client that is a household of its own, with what it says about pace.
    pub fn new(client: u64, asks: &Asks) -> Self {
        let accepts_tickets = asks.accept.is_some() || asks.ticket.is_some();
        let standing = KpStanding::default();
        let (want, ticket) = (asks.want, asks.ticket);
        Self { client, household: 0, standing, want, ticket, accepts_tickets, flow: 0, limited: None }
    }

    /// The same, of this household and standing.
    #[must_use]
    pub fn of(self, household: u64, standing: KpStanding) -> Self {
        Self { household, standing, ..self }
    }

    /// Whose it is; itself, if it is a household of its own.
    pub(crate) fn own_household(&self) -> u64 {
        if self.household == 0 { self.client } else { self.household }
    }

    /// The same, on this connection, whose requests are done in the order in which they were sent.
    #[must_use]
    pub fn in_flow(self, flow: u64) -> Self {
        Self { flow, ..self }
    }
}

/// What became of a request at the door.
#[derive(Debug)]
pub enum Entered<T> {
    /// It waits, alone or with an equal one.
    Waits,
    /// With what it is to be told.
    Refused(T, Box<Hints>),
    /// There is no room for it, and nothing is said about when there will be.
    Dropped(T),
}

/// Where a client that was sent away stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptPlace {
    /// What waits before it.
    pub queued: Duration,
    /// When to come back.
    pub retry_after: Duration,
    /// What keeps the place; none if it could not be promised.
    pub ticket: Option<Ticket>,
}

impl KeptPlace {
    /// The same, beside what its client was told about pace.
    pub fn with_pace_of(&self, hints: &Hints) -> Hints {
        let (queued, retry_after) = (Some(self.queued), Some(self.retry_after));
        Hints { queued, retry_after, ticket: self.ticket, ..hints.clone() }
    }
}

/// Why a request waits no more, although nobody has served it.
#[derive(Debug)]
pub enum EndedWait<T> {
    /// It waited for as long as its client does.
    Late(T),
    /// Its asker has left, or has asked again since: nobody wants to know.
    Outdated(T),
    /// A later request was let in instead of it.
    Dropped(T),
    /// It was let in before anybody knew what it costs, and has a place now.
    SentAway(T, KeptPlace),
}

/// What is decided about requests for which there is no room, or no use: the policies of the papers' Table I. (An incomplete
/// answer is given by whoever evaluates.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolDecision {
    /// Away, with the time to come back.
    Denied,
    /// Away without a word about when, or let go for a later one.
    Dropped,
    /// Let in although there is no room.
    Postponed,
    /// Let go because nobody wants to know any more.
    Outdated,
}

impl PoolDecision {
    pub(crate) const ALL: [Self; 4] = [Self::Denied, Self::Dropped, Self::Postponed, Self::Outdated];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Denied => "deny",
            Self::Dropped => "drop",
            Self::Postponed => "postpone",
            Self::Outdated => "outdated",
        }
    }
}
