//! One session: what outlives a connection, if the client asked for that.
//!
//! Who else changes it says what is meant: a folder's file for each kind of thing, and nobody but these sees the fields. What is to be seen
//! are owners with fields of their own.

mod filters;
mod held;
mod inbound;
mod queued;
mod under_way;
mod waiting;
mod will;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::num::NonZeroUsize;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::access::Identity;
use crate::classes::ClassId;
use crate::crowding::Crowding;
use crate::ledger::Ledger;
use crate::message::{Colour, Publication};
use crate::queue::Queue;
use crate::retained::Walk;
use crate::shares::Shares;
use crate::some_time::SomeTime;
use filters::Filters;
pub(crate) use held::{Held, HeldAnswer, HoldQueue};
pub(crate) use inbound::InboundIds;
pub(crate) use queued::{Queued, SubscriptionIds};
pub(crate) use under_way::{DueMessage, InflightStage, UnderWay};
use will::Clocks;
pub(crate) use will::PendingWill;

#[derive(Debug)]
pub(crate) struct Session {
    client_id: Arc<str>,
    identity: Identity,
    /// Names this client among all of all shards, for "no local" and for the order of its messages.
    origin: u64,
    /// Who it belongs to; see [`parent_of`](crate::parent::parent_of). Follows `identity`.
    parent: u64,
    conn: Option<u32>,
    /// How long it is kept without a connection; `Duration::MAX` is for ever.
    expiry: Duration,
    /// Its clocks; none while there is a connection.
    clocks: Option<Box<Clocks>>,
    will: Option<Box<PendingWill>>,
    /// Filters as the client wrote them, `$share/…` included.
    subscriptions: Filters,
    /// Retained messages that are still to be sent for some of them, by filter; none if there are none.
    #[expect(clippy::box_collection, reason = "nearly all sessions have none: a word instead of three")]
    bursts: Option<Box<BTreeMap<Box<str>, Walk>>>,
    /// It is among those that go on with them in the next turn.
    is_bursting: bool,
    /// What of theirs is bounded.
    shares: Shares,
    /// QoS 2 messages received and not yet released.
    pub(crate) inbound: InboundIds,
    /// Messages sent and not yet acknowledged.
    pub(crate) under_way: UnderWay,
    /// Its entry among the publishers, once it has published; only while it is connected.
    publisher: Option<u32>,
    /// The class of its last message on this connection.
    class: Option<ClassId>,
    /// Its messages that have to wait before they are taken; none if there are none.
    held: Option<Box<HoldQueue>>,
    /// The timer for them that counts.
    wake_at: SomeTime,
    /// What waits for it beyond that; none if nothing does.
    queue: Option<Box<Queue>>,
    /// Whose messages were lost for want of room; none if none ever was.
    crowding: Option<Box<Crowding>>,
    /// Bytes that may wait for it, if it is a bridge; any number of messages.
    spool: Option<NonZeroUsize>,
    /// Bytes of that which are counted as those of somebody who is away; see `gate::absent`.
    absent_bytes: usize,
    /// What it is in the store; none if it does not outlive the process.
    kept: Option<Box<Kept>>,
    /// What became of its messages, up to its open connection.
    pub(crate) ledger: Ledger,
}

/// What a session is in the store.
#[derive(Debug, Default)]
struct Kept {
    /// Its number there; 0 if it has none.
    number: u64,
    /// The turn that wrote it down first; 0 if that was in an earlier life.
    turn: u64,
    /// The last place there that was given to a message.
    places: u64,
}

impl Session {
    pub(crate) fn new(client_id: Arc<str>, identity: Identity, parent: u64, origin: u64) -> Self {
        Self {
            client_id,
            parent,
            identity,
            origin,
            conn: None,
            expiry: Duration::ZERO,
            clocks: None,
            will: None,
            subscriptions: Filters::default(),
            bursts: None,
            is_bursting: false,
            shares: Shares::default(),
            inbound: InboundIds::default(),
            under_way: UnderWay::default(),
            publisher: None,
            class: None,
            held: None,
            wake_at: SomeTime::NONE,
            queue: None,
            crowding: None,
            spool: None,
            absent_bytes: 0,
            kept: None,
            ledger: Ledger::default(),
        }
    }

    #[inline]
    pub(crate) fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    #[inline]
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Names this client among all of all shards, for "no local" and for the order of its messages.
    #[inline]
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// Who it belongs to; see [`parent_of`](crate::parent::parent_of).
    #[inline]
    pub(crate) fn parent(&self) -> u64 {
        self.parent
    }

    #[inline]
    pub(crate) fn conn(&self) -> Option<u32> {
        self.conn
    }

    /// The client is there, by this connection and as this user.
    pub(crate) fn begin_connection(&mut self, conn: u32, identity: Identity, parent: u64) {
        (self.conn, self.identity, self.parent) = (Some(conn), identity, parent);
        // What it lost while it was away is not for taking too little.
        self.crowding = None;
        self.class = None;
        self.stop_clocks();
        self.inbound.begin_connection();
    }

    /// The client goes on from another address.
    pub(crate) fn set_peer(&mut self, peer: &Arc<str>) {
        self.identity.peer = Arc::clone(peer);
    }

    /// The connection is gone; this is what went over it.
    pub(crate) fn end_connection(&mut self, traffic: &Ledger) {
        self.conn = None;
        self.crowding = None;
        self.ledger.add(traffic);
    }

    /// How long it is kept without a connection; `Duration::MAX` is for ever.
    pub(crate) fn expiry(&self) -> Duration {
        self.expiry
    }

    pub(crate) fn set_expiry(&mut self, expiry: Duration) {
        self.expiry = expiry;
    }

    /// Whether anything is kept for the client while it is away.
    pub(crate) fn is_lasting(&self) -> bool {
        !self.expiry.is_zero()
    }

    /// Its entry among the publishers, once it has published; only while it is connected.
    #[inline]
    pub(crate) fn publisher(&self) -> Option<u32> {
        self.publisher
    }

    /// It publishes: this is its entry.
    pub(crate) fn set_publisher(&mut self, slot: u32) {
        self.publisher = Some(slot);
    }

    /// It is no publisher any more.
    pub(crate) fn take_publisher(&mut self) -> Option<u32> {
        self.publisher.take()
    }

    /// The class of its last message on this connection.
    #[inline]
    pub(crate) fn class(&self) -> Option<ClassId> {
        self.class
    }

    #[inline]
    pub(crate) fn note_class(&mut self, class: ClassId) {
        self.class = Some(class);
    }

    /// Bytes that may wait for it, if it is a bridge; any number of messages.
    #[inline]
    pub(crate) fn spool(&self) -> Option<usize> {
        self.spool.map(NonZeroUsize::get)
    }

    pub(crate) fn set_spool(&mut self, spool: Option<usize>) {
        self.spool = spool.map(|bytes| NonZeroUsize::new(bytes).unwrap_or(NonZeroUsize::MIN));
    }

    /// Its number in the store; 0 if it does not outlive the process.
    #[inline]
    pub(crate) fn kept(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.number)
    }

    /// Whether it outlives the process.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.number != 0)
    }

    /// The turn that wrote it down first; 0 if that was in an earlier life.
    pub(crate) fn kept_turn(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.turn)
    }

    /// From this turn on it is in the store, under this number.
    pub(crate) fn keep_as(&mut self, number: u64, turn: u64) {
        let kept = self.kept.get_or_insert_default();
        (kept.number, kept.turn) = (number, turn);
    }

    /// A place in the store for one more message.
    pub(crate) fn take_place(&mut self) -> u64 {
        let kept = self.kept.get_or_insert_default();
        kept.places += 1;
        kept.places
    }

    /// A message has this place there since an earlier life.
    pub(crate) fn note_place(&mut self, place: u64) {
        let kept = self.kept.get_or_insert_default();
        kept.places = kept.places.max(place);
    }

    /// A message for it was lost for want of room: whose, and whether nothing was usual for that one.
    pub(crate) fn note_crowding(&mut self, whose: (u64, bool), now: Timestamp) {
        Crowding::note(&mut self.crowding, whose, now);
    }

    /// How a message stands here: as more than its publisher may count on, also where that one has been too much since it came.
    #[inline]
    pub(crate) fn colour_of(&self, publication: &Publication<'_>, now: Timestamp) -> Colour {
        let is_newcomer = |crowding: &Crowding| crowding.is_newcomer(publication.origin, now);
        if self.crowding.as_deref().is_some_and(is_newcomer) { Colour::Excess } else { publication.standing.colour }
    }

    /// Whose messages were lost for want of room; none if none ever was.
    pub(crate) fn crowding(&self) -> Option<&Crowding> {
        self.crowding.as_deref()
    }

    /// Messages of the client that wait for an answer of ours, or for its PUBREL.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.inbound.of_connection() + self.held.as_ref().map_or(0, |queue| queue.unacknowledged())
    }

    /// Messages sent and not yet acknowledged.
    pub(crate) fn unconfirmed_len(&self) -> usize {
        self.under_way.unconfirmed().count()
    }

    /// Whether anything would be sent if there were room.
    pub(crate) fn has_more(&self) -> bool {
        self.is_waiting() || self.has_bursts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;

    /// There may be a million of them: what most do not have is behind a pointer, and a time that may not be there is a word.
    #[test]
    fn what_everybody_has_is_small() {
        let sizes = (size_of::<Option<Session>>(), size_of::<Option<Connection>>());
        assert!(sizes.0 <= 376 && sizes.1 <= 304, "{sizes:?}");
    }
}
