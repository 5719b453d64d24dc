//! A request on its way through the machines, and what they have to know of whoever made it.

use tidegate_control::Timestamp;
use tidegate_control::admission::Class;
use tidegate_control::hints::Hints;

use super::delegation::DelegationTerms;
use super::query_name::QueryName;
use super::request::{AnswerDelivery, SpaceRequest};

/// Whoever waits for an answer. It may leave, or withdraw its request, at any moment and on any thread: so it is asked, and
/// answers at once.
pub(crate) trait Requester {
    /// Nobody waits any more.
    fn is_gone(&self) -> bool;

    /// The request is about to be done; false if it was withdrawn, and must not be.
    fn begin(&self) -> bool;

    /// What the request did is about to be handed to the disk.
    fn submit(&self);

    /// The text of the request is not needed any more: memory that it is charged with is given back.
    fn release(&mut self);
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct PendingRequest<R, C> {
    pub(crate) ask: SpaceRequest<C>,
    pub(crate) class: Class,
    /// None if nobody can share its answer.
    pub(crate) name: Option<Box<QueryName>>,
    pub(crate) began: Timestamp,
    pub(crate) until: Timestamp,
    /// A part of the answer is better than none.
    pub(crate) accepts_partial: bool,
    /// The standing question that it checks, and for whom: a later check of the same makes this one out of date.
    pub(crate) check: Option<u64>,
    /// Whose it is, for whoever asks why.
    pub(crate) client: u64,
    /// The connection whose requests are done in the order in which they were sent; 0: of none.
    pub(crate) flow: u64,
    /// All of the same user or address.
    pub(crate) household: u64,
    /// What becomes of an answer that is too long to be held.
    pub(crate) delivery: AnswerDelivery,
    /// Whether a subscription may be handed over to its client, and how soon.
    pub(crate) delegation: DelegationTerms,
    /// What its client is told about pace.
    pub(crate) hints: Hints,
    pub(crate) requester: R,
}

impl<R: Requester, C> PendingRequest<R, C> {
    /// Whether nobody waits for it any more.
    pub(crate) fn is_left(&self) -> bool {
        // A change that was sent is done, whoever waits for the confirmation.
        self.class != Class::Update && self.requester.is_gone()
    }

    /// Whether an answer would come too late.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.requester.is_gone() || self.until <= now
    }
}
