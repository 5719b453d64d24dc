//! One session: what outlives a connection, if the client asked for that.

mod inbound;
mod under_way;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;

use crate::access::Identity;
use crate::classes::ClassId;
use crate::crowding::Crowding;
use crate::event::Stats;
use crate::gate::hold::HoldQueue;
use crate::ledger::Ledger;
use crate::message::Message;
use crate::queue::{Item, Queue};
use crate::retained::Walk;
use crate::shares::Shares;
use crate::subscriptions::SubscriberOptions;
pub(crate) use inbound::InboundIds;
pub(crate) use under_way::{DueMessage, InflightStage, UnderWay};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client_id: Arc<str>,
    pub(crate) identity: Identity,
    /// Names this client among all of all shards, for "no local" and for the order of its messages.
    pub(crate) origin: u64,
    /// Who it belongs to; see [`parent_of`](crate::parent::parent_of). Follows `identity`.
    pub(crate) parent: u64,
    pub(crate) conn: Option<u32>,
    /// How long it is kept without a connection; `Duration::MAX` is for ever.
    pub(crate) expiry: Duration,
    /// When it ends, while there is no connection.
    pub(crate) expires_at: Option<Timestamp>,
    /// The timer that counts; others of this session are left over.
    pub(crate) timer_at: Option<Timestamp>,
    pub(crate) will: Option<Box<PendingWill>>,
    /// Filters as the client wrote them, `$share/…` included.
    pub(crate) subscriptions: BTreeMap<Box<str>, SubscriberOptions>,
    /// Retained messages that are still to be sent for some of them, by filter.
    pub(crate) bursts: BTreeMap<Box<str>, Walk>,
    /// It is among those that go on with them in the next turn.
    pub(crate) is_bursting: bool,
    /// What of theirs is bounded.
    pub(crate) shares: Shares,
    /// QoS 2 messages received and not yet released.
    pub(crate) inbound: InboundIds,
    /// Messages sent and not yet acknowledged.
    pub(crate) under_way: UnderWay,
    /// Its entry among the publishers, once it has published; only while it is connected.
    pub(crate) publisher: Option<u32>,
    /// The class of its last message on this connection.
    pub(crate) class: Option<ClassId>,
    /// Its messages that have to wait before they are taken; none if there are none.
    pub(crate) held: Option<Box<HoldQueue>>,
    /// The timer for them that counts.
    pub(crate) wake_at: Option<Timestamp>,
    /// What waits for it beyond that; none if nothing does.
    pub(crate) queue: Option<Box<Queue>>,
    /// Whose messages were lost for want of room; none if none ever was.
    pub(crate) crowding: Option<Box<Crowding>>,
    /// Bytes that may wait for it, if it is a bridge; any number of messages.
    pub(crate) spool: Option<usize>,
    /// Bytes of that which are counted as those of somebody who is away; see `gate::absent`.
    pub(crate) absent_bytes: usize,
    /// Its number in the store; 0 if it does not outlive the process.
    pub(crate) kept: u64,
    /// The turn that wrote it down first; 0 if that was in an earlier life.
    pub(crate) kept_turn: u64,
    /// The last place there that was given to a message.
    pub(crate) places: u64,
    /// What became of its messages, up to its open connection.
    pub(crate) ledger: Ledger,
}

/// A message that waits.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) message: Arc<Message>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) ids: SubscriptionIds,
    /// Its place in the store; 0 if it has none.
    pub(crate) place: u64,
    /// Since when it waits.
    pub(crate) since: Timestamp,
    /// A newer one of its topic takes its place.
    pub(crate) is_latest: bool,
}

impl Queued {
    /// It ends with its session, in the store too.
    pub(crate) fn let_go(&self) {
        if self.place != 0 {
            self.message.let_go();
        }
    }
}

/// Identifiers of the matching subscriptions: none or one in nearly every case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SubscriptionIds {
    #[default]
    None,
    One(NonZeroU32),
    /// Behind one pointer: there are many of these, and few of those.
    Many(Arc<Vec<NonZeroU32>>),
}

impl SubscriptionIds {
    pub(crate) fn as_slice(&self) -> &[NonZeroU32] {
        match self {
            Self::None => &[],
            Self::One(id) => core::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    /// Bytes that are kept elsewhere.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Many(ids) => size_of_val(ids.as_slice()),
        }
    }
}

impl FromIterator<NonZeroU32> for SubscriptionIds {
    fn from_iter<I: IntoIterator<Item = NonZeroU32>>(ids: I) -> Self {
        let mut ids = ids.into_iter();
        match (ids.next(), ids.next()) {
            (None, _) => Self::None,
            (Some(one), None) => Self::One(one),
            (Some(first), Some(second)) => Self::Many(Arc::new([first, second].into_iter().chain(ids).collect())),
        }
    }
}

/// A will, and when it is due once the connection is lost.
#[derive(Debug)]
pub(crate) struct PendingWill {
    pub(crate) message: Arc<Message>,
    pub(crate) delay: Duration,
    /// Set when the connection is gone and the delay runs.
    pub(crate) due_at: Option<Timestamp>,
    /// It is in the store.
    pub(crate) is_kept: bool,
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
            expires_at: None,
            timer_at: None,
            will: None,
            subscriptions: BTreeMap::new(),
            bursts: BTreeMap::new(),
            is_bursting: false,
            shares: Shares::default(),
            inbound: InboundIds::default(),
            under_way: UnderWay::default(),
            publisher: None,
            class: None,
            held: None,
            wake_at: None,
            queue: None,
            crowding: None,
            spool: None,
            absent_bytes: 0,
            kept: 0,
            kept_turn: 0,
            places: 0,
            ledger: Ledger::default(),
        }
    }

    /// Whether anything is kept for the client while it is away.
    pub(crate) fn is_lasting(&self) -> bool {
        !self.expiry.is_zero()
    }

    /// Messages of the client that wait for an answer of ours, or for its PUBREL.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.inbound.of_connection() + self.held.as_ref().map_or(0, |queue| queue.unacknowledged())
    }

    /// Whether anything would be sent if there were room.
    pub(crate) fn has_more(&self) -> bool {
        self.is_waiting() || !self.bursts.is_empty()
    }

    pub(crate) fn queue_len(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn queue_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Bytes in memory that wait for somebody who is away; see `gate::absent`.
    pub(crate) fn away_bytes(&self) -> usize {
        let queue = self.queue.as_ref().filter(|queue| self.conn.is_none() && queue.on_disk() == 0);
        queue.map_or(0, |queue| queue.bytes())
    }

    /// Something waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queue.is_some() || self.under_way.has_unsent()
    }

    /// Changes the queue. The gauges of all queues are kept with each change: counting a million sessions would take a
    /// turn.
    pub(crate) fn with_queue<T>(&mut self, stats: &mut Stats, change: impl FnOnce(&mut Queue, &mut Stats) -> T) -> T {
        let mut queue = self.queue.take().unwrap_or_default();
        let (len, bytes, on_disk) = (queue.len() as u64, queue.bytes() as u64, queue.on_disk() as u64);
        let answer = change(&mut queue, stats);
        stats.queued_messages = stats.queued_messages + queue.len() as u64 - len;
        stats.queued_bytes = stats.queued_bytes + queue.bytes() as u64 - bytes;
        stats.queued_on_disk = stats.queued_on_disk + queue.on_disk() as u64 - on_disk;
        self.queue = Some(queue).filter(|queue| queue.len() > 0);
        answer
    }

    pub(crate) fn dequeue(&mut self, stats: &mut Stats) -> Option<Queued> {
        self.queue.as_ref()?;
        self.with_queue(stats, |queue, _| queue.pop())
    }

    /// Takes what comes next, also if it is on disk.
    pub(crate) fn dequeue_any(&mut self, stats: &mut Stats) -> Option<Item> {
        self.queue.as_ref()?;
        self.with_queue(stats, |queue, _| queue.take())
    }
}
