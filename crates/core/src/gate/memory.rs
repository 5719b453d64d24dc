//! The gate of memory, and the budget of one shard: what is charged, and who is refused first when it runs short (F066).
//!
//! Kept messages charge themselves (`MessageBytes`): the charge is part of the message and goes with its last holder, whether
//! that is a queue, a window, a hold, a will or the retained ones. A message that a thousand sessions wait for is there
//! once and is charged once; each place in a queue costs a little more. Outboxes are counted byte by byte; connections,
//! sessions, subscriptions and publishers at fixed costs, which are estimates; the keys of retained topics by their
//! length, topic aliases likewise, and the matches that are remembered. What the driver keeps (input, batches on their way) it tells.
//!
//! The last part of the budget is kept for those who need it most: see [`Kind`]. Answers are never refused; who does not
//! take them is not read on. What is charged is bytes asked for: an allocator needs more, which is why the budget of a
//! process should be well below what the machine has.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::Delivery;

use super::absent::Absent;
use super::{Admission, GateArrival, Refusal};
use crate::connection::Connection;
use crate::ledger::Loss;
use crate::limits::{CACHE_BYTES_MAX, MEMORY_PAUSE};
use crate::message::Publication;
use crate::session::Session;
use crate::state::ShardState;

/// Bytes of the messages that a shard keeps. Only one thread ever counts; a message may be dropped on another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageBytes(Arc<AtomicUsize>);

impl MessageBytes {
    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes that are charged as long as this is there.
#[derive(Debug)]
pub struct Charge {
    tally: MessageBytes,
    bytes: usize,
}

impl Charge {
    pub(crate) fn none(tally: &MessageBytes) -> Self {
        Self { tally: tally.clone(), bytes: 0 }
    }

    /// So many more, and so many less.
    pub fn change(&mut self, more: usize, less: usize) {
        self.tally.add(more);
        self.tally.take(less);
        self.bytes = self.bytes + more - less;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.tally.take(self.bytes);
    }
}

/// What memory is asked for, from those who are refused first to those who are refused last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A retained message: it would stay for ever.
    Retained,
    /// A session, a subscription: they stay for long.
    Session,
    /// Bytes of QoS 0 in an outbox, a message that is held: to be had again soon.
    Passing,
    /// A message that comes in, and has to be kept until its receivers have it.
    Incoming,
    /// A copy of one that is in already: it was acknowledged, so there should be room for it.
    Queued,
}

impl Kind {
    /// Up to which part of the budget it is served, in thousandths.
    const fn share(self) -> usize {
        match self {
            Self::Retained => 850,
            Self::Session => 880,
            Self::Passing => 900,
            Self::Incoming => 930,
            Self::Queued => 980,
        }
    }
}

/// One part of so many of the budget is for matches that are remembered.
const MATCHES_PART: usize = 16;

/// What waits for clients that are away may be so much of the budget, in thousandths: whoever comes finds room.
const ABSENT_SHARE: usize = 500;

/// The budget of a shard. What is left beyond all shares is for answers, and for what is counted at the end of a turn only.
#[derive(Debug)]
pub struct Memory {
    tally: MessageBytes,
    /// Bytes in all outboxes.
    outboxes: usize,
    /// Fixed costs and what the driver keeps, as of the beginning of this input or turn.
    settled: usize,
    outside: usize,
    max: usize,
    /// What waits for those who are away.
    pub(super) absent: Absent,
}

impl Memory {
    /// A budget of so many bytes.
    pub fn new(max: usize) -> Self {
        Self { tally: MessageBytes::default(), outboxes: 0, settled: 0, outside: 0, max, absent: Absent::default() }
    }

    /// A charge of nothing yet, which grows and shrinks with what is remembered, and is given back with it.
    pub fn charge(&self) -> Charge {
        Charge::none(&self.tally)
    }

    /// What kept messages charge themselves to.
    #[inline]
    pub(crate) fn tally(&self) -> &MessageBytes {
        &self.tally
    }

    /// Bytes that are charged by what is kept.
    pub fn charged(&self) -> usize {
        self.tally.bytes()
    }

    /// So many bytes more lie in outboxes, or are owed to clients.
    #[inline]
    pub(crate) fn charge_outbox(&mut self, bytes: usize) {
        self.outboxes += bytes;
    }

    /// So many less do.
    #[inline]
    pub(crate) fn release_outbox(&mut self, bytes: usize) {
        self.outboxes -= bytes;
    }

    /// What waits for clients that are away.
    pub(crate) fn absent_bytes(&self) -> usize {
        self.absent.bytes()
    }

    /// So much waits for a session that is away now, and so much did before.
    pub(crate) fn change_absent(&mut self, session: u32, before: usize, now: usize) {
        self.absent.change(session, before, now);
    }

    /// What waits now for clients that are away may stay.
    pub(crate) fn forgive_absent(&mut self) {
        self.absent.forgive();
    }

    /// Whether so many bytes may be asked for.
    #[inline]
    pub fn has_room(&self, kind: Kind, bytes: usize) -> bool {
        bytes <= self.room(kind)
    }

    /// Bytes that may still be asked for.
    #[inline]
    pub(crate) fn room(&self, kind: Kind) -> usize {
        (self.max / 1000).saturating_mul(kind.share()).saturating_sub(self.used())
    }

    /// Whether those who are away have more than their part.
    #[inline]
    pub(crate) fn is_absent_excess(&self) -> bool {
        let part = (self.max / 1000).saturating_mul(ABSENT_SHARE);
        self.absent.bytes() > part && self.used() > part
    }

    /// What matches that are remembered may take: they can be found again, so they take little where there is little.
    #[inline]
    pub(crate) fn room_for_matches(&self) -> usize {
        CACHE_BYTES_MAX.min(self.max / MATCHES_PART)
    }

    fn used(&self) -> usize {
        self.tally.bytes() + self.outboxes + self.settled
    }
}

impl ShardState {
    pub(crate) fn set_memory(&mut self, max: usize, outside: usize) {
        self.memory.max = max;
        self.memory.outside = outside;
        self.settle_memory();
    }

    pub(crate) fn memory_used(&self) -> usize {
        let Self { memory, .. } = self;
        memory.tally().bytes() + memory.outboxes + self.fixed_costs()
    }

    /// Asks whether there is memory to keep a message in. Who cannot be told is not read for a while.
    #[inline]
    pub(super) fn admit_to_memory(
        &mut self,
        arrival: GateArrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Option<Admission> {
        let needs_none = arrival.delivery == Delivery::AtMostOnce;
        if needs_none || self.memory.has_room(Kind::Incoming, publication.payload.len()) {
            return None;
        }
        Some(self.refuse_for_memory(arrival, now))
    }

    #[cold]
    fn refuse_for_memory(&mut self, arrival: GateArrival, now: Timestamp) -> Admission {
        if !self.hears_refusals(arrival.conn) {
            self.pause(arrival.conn, now + MEMORY_PAUSE, now);
            return Admission::Wait;
        }
        self.lose(arrival.session, Loss::MemoryIn);
        Refusal::later(MEMORY_PAUSE, "out of memory")
    }

    /// Brings the fixed costs up to date: once for each input and turn.
    pub(crate) fn settle_memory(&mut self) {
        self.memory.settled = self.fixed_costs();
    }

    fn fixed_costs(&self) -> usize {
        let stats = &self.stats;
        let places = (stats.queued_messages + stats.inflight_messages + stats.held_messages) as usize;
        self.connections.len() * CONNECTION_COST
            + self.sessions.len() * SESSION_COST
            + self.subscriptions.len() * SUBSCRIPTION_COST
            + self.gate.publishers_known() * PUBLISHER_COST
            + self.retained.bytes_beside()
            + self.cache.bytes()
            + places * PLACE_COST
            + self.links.bytes()
            + self.memory.outside
    }
}

/// The connection here, its socket and tables in the driver, its timer, and what an allocator adds.
const CONNECTION_COST: usize = size_of::<Connection>() + 512;
/// The session, its name three times, its place in the table of clients.
const SESSION_COST: usize = size_of::<Session>() + 256;
/// Its text in the session, and nodes of the tree.
const SUBSCRIPTION_COST: usize = 320;
/// What is known of a publisher, its key twice.
pub(super) const PUBLISHER_COST: usize = 256;
/// A message's place in a queue or window.
const PLACE_COST: usize = 64;
