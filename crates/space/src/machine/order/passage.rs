//! What comes to an order of service and what leaves it: plain values.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, QueryKey};

use super::estimate::{LONG_NANOS, Shape};
use super::lane::LineId;
use crate::machine::standing::KpStanding;

/// Servers that take from one order.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    /// Threads.
    pub threads: usize,
    /// Of these, those that may do at once what takes long.
    pub long_max: usize,
    /// What they are worth together: processors.
    pub worth: u32,
    /// Large changes that may be under way beside everything else, in pieces; if none may, a server does them in one go.
    pub apart_max: usize,
}

impl Servers {
    /// Whether there is no bound to what is under way: one thread, whose jobs wait together for the disk.
    pub(super) fn ends_together(&self) -> bool {
        self.threads == usize::MAX
    }
}

/// A request as it arrives.
#[derive(Debug)]
pub struct Arrival<T> {
    /// What kind of request it is.
    pub class: Class,
    /// Equal keys may be answered by one execution.
    pub key: Option<QueryKey>,
    /// Whose it is: requests of one client share one line.
    pub kp: KpPlace,
    /// The standing question that it checks, for this client: a later check makes an earlier one that waits out of date.
    pub check: Option<u64>,
    /// What its cost is estimated from.
    pub shape: Shape,
    /// How long its client waits.
    pub patience: Duration,
    /// How the request may wait; the queue finds out and sets it.
    pub terms: WaitTerms,
    /// The request itself.
    pub value: T,
}

/// Where the requests of a KP stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KpPlace {
    /// All KPs of one user, or of one address without a user: households share evenly before their KPs do.
    pub household: u64,
    /// The KP itself.
    pub client: u64,
    /// Its role and its share.
    pub standing: KpStanding,
}

impl From<u64> for KpPlace {
    /// A client that is a household of its own.
    fn from(client: u64) -> Self {
        Self { household: client, client, standing: KpStanding::default() }
    }
}

impl KpPlace {
    pub(super) fn line(self) -> LineId {
        LineId { household: self.household, client: self.client }
    }
}

/// How a request may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing of a request, whatever the others say")]
pub struct WaitTerms {
    /// A place was promised for now.
    pub is_promised: bool,
    /// Its client keeps appointments.
    pub keeps_appointments: bool,
    /// Until it is known what such requests cost: then it is decided whether it stays.
    pub is_provisional: bool,
    /// Others ask the same: one answer is for all of them.
    pub is_popular: bool,
    /// Whose tickets are good for it; not always the client in whose line it stands.
    pub asker: u64,
    /// Requests of one flow are taken in the order in which they came, whatever their kind; 0: of none.
    pub flow: u64,
}

/// What became of an offer.
#[derive(Debug)]
pub(crate) enum Offered<T> {
    Queued,
    Joined,
    /// It waits although there is no room for it, because its class is postponed.
    Postponed,
    /// Its client is to come back after this time.
    Denied(T, Duration),
    /// There is no room for it, and nothing is said about when there will be.
    Dropped(T),
}

/// A request whose work was stopped, and that waits again.
#[derive(Debug)]
pub(crate) struct Returned<T> {
    pub(crate) value: T,
    pub(crate) arrived: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) check: Option<u64>,
}

/// A request that ended while it waited.
#[derive(Debug)]
pub(crate) struct EndedEntry<T> {
    pub(crate) value: T,
    pub(crate) class: Class,
    pub(crate) why: EndedBy,
}

/// Why a request ended while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Its time was over.
    Time,
    /// Its asker has left, or has asked again since.
    Outdated,
    /// A later one of its client was let in instead.
    Displaced,
}

/// A request that waited, and gets a place instead.
#[derive(Debug)]
pub(crate) struct ShedEntry<T> {
    pub(crate) client: u64,
    pub(crate) place: Duration,
    pub(crate) value: T,
}

/// Work for a server.
#[derive(Debug)]
pub struct Taken<T> {
    /// To be given back when the work is done.
    pub job: Job,
    /// The request.
    pub value: T,
    /// Equal requests that get the same answer.
    pub joined: Vec<T>,
    /// How long the first one waited.
    pub queued: Duration,
}

/// A piece of work under way. Not `Clone`: each ends once.
#[derive(Debug)]
#[must_use = "a job that is not given back stays in service for ever"]
pub struct Job {
    pub(super) number: u64,
    pub(super) class: Class,
    pub(super) lane: usize,
    pub(super) line: LineId,
    pub(super) standing: KpStanding,
    pub(super) shape: Shape,
    pub(super) key: Option<QueryKey>,
    pub(super) asker: u64,
    pub(super) work: u64,
    pub(super) joined: u32,
    /// A place was promised for it.
    #[cfg(test)]
    pub(crate) is_promised: bool,
    /// Its client could have been given another time.
    pub(crate) keeps_appointments: bool,
}

impl Job {
    /// No two jobs of an order that are under way have the same.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What was estimated to take so long that a person notices.
    pub(crate) fn is_long(&self) -> bool {
        self.work >= LONG_NANOS
    }
}
