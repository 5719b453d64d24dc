//! One session: what outlives a connection, if the client asked for that.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{PacketId, QoS};

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
    /// QoS 2 messages received and not yet released, sorted: a client before MQTT 5 may leave 65 535 of them.
    pub(crate) inbound: Vec<PacketId>,
    /// How many of them, at most, are left from earlier connections.
    pub(crate) inbound_before: usize,
    /// Messages sent and not yet acknowledged, in the order they were sent.
    pub(crate) inflight: VecDeque<Inflight>,
    /// How many of them the client wants at the same time.
    pub(crate) window: u16,
    /// How many of them wait to be sent again on a connection whose window is smaller than the last one's.
    pub(crate) unsent: usize,
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
    /// How many of those under way have an identifier and may not be sent before that is kept.
    pub(crate) unsynced: usize,
    /// What became of its messages, up to its open connection.
    pub(crate) ledger: Ledger,
    next_packet_id: PacketId,
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

/// A message under way.
#[derive(Debug)]
pub(crate) struct Inflight {
    pub(crate) packet_id: PacketId,
    pub(crate) stage: InflightStage,
    /// It was sent on an earlier connection, and not yet on this one.
    pub(crate) is_unsent: bool,
    /// It is sent when this turn is synced; 0 once it was.
    pub(crate) after: u64,
}

impl Inflight {
    pub(crate) fn sent(packet_id: PacketId, queued: Queued) -> Self {
        Self { packet_id, stage: InflightStage::Sent(queued), is_unsent: false, after: 0 }
    }
}

#[derive(Debug)]
pub(crate) enum InflightStage {
    /// QoS 1 or 2: sent, waiting for PUBACK or PUBREC.
    Sent(Queued),
    /// QoS 2: PUBREC came, PUBREL is sent, waiting for PUBCOMP. The message itself is no longer needed.
    Released {
        /// As it was; see `Queued`.
        place: u64,
    },
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
            inbound: Vec::new(),
            inbound_before: 0,
            inflight: VecDeque::new(),
            window: u16::MAX,
            unsent: 0,
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
            unsynced: 0,
            ledger: Ledger::default(),
            next_packet_id: PacketId::MIN,
        }
    }

    /// Whether anything is kept for the client while it is away.
    pub(crate) fn is_lasting(&self) -> bool {
        !self.expiry.is_zero()
    }

    /// Messages of the client that wait for an answer of ours, or for its PUBREL. What is left from earlier connections
    /// does not count against the window of this one (section 4.9).
    pub(crate) fn unacknowledged(&self) -> usize {
        self.inbound.len() - self.inbound_before + self.held.as_ref().map_or(0, |queue| queue.unacknowledged())
    }

    pub(crate) fn note_inbound(&mut self, id: PacketId) {
        if let Err(position) = self.inbound.binary_search(&id) {
            self.inbound.insert(position, id);
        }
    }

    /// Whether anything would be sent if there were room.
    pub(crate) fn has_more(&self) -> bool {
        self.is_waiting() || !self.bursts.is_empty()
    }

    pub(crate) fn has_window(&self) -> bool {
        self.inflight.len() < usize::from(self.window)
    }

    /// An identifier that is not in use. There is one, because a window is smaller than the number of identifiers.
    pub(crate) fn take_packet_id(&mut self) -> PacketId {
        loop {
            let id = self.next_packet_id;
            self.next_packet_id = id.checked_add(1).unwrap_or(PacketId::MIN);
            if !self.inflight.iter().any(|inflight| inflight.packet_id == id) {
                return id;
            }
        }
    }

    /// Forgets a QoS 2 message of the client; false if there is none with this identifier.
    pub(crate) fn release_inbound(&mut self, id: PacketId) -> bool {
        let Ok(position) = self.inbound.binary_search(&id) else { return false };
        self.inbound.remove(position);
        // Which ones those were is not remembered: in doubt for the client.
        self.inbound_before = self.inbound_before.min(self.inbound.len());
        true
    }

    pub(crate) fn inflight_position(&self, id: PacketId) -> Option<usize> {
        self.inflight.iter().position(|inflight| inflight.packet_id == id)
    }

    /// Takes a message that is done, or refused, from those under way.
    pub(crate) fn finish(&mut self, position: usize) -> Option<InflightStage> {
        let finished = self.inflight.remove(position)?;
        self.unsent -= usize::from(finished.is_unsent);
        self.unsynced -= usize::from(finished.after != 0);
        Some(finished.stage)
    }

    /// The client has a QoS 2 message; the answer is how far that one was before.
    pub(crate) fn release(&mut self, position: usize) -> Option<InflightStage> {
        let inflight = self.inflight.get_mut(position)?;
        self.unsent -= usize::from(core::mem::take(&mut inflight.is_unsent));
        self.unsynced -= usize::from(core::mem::take(&mut inflight.after) != 0);
        let place = match &inflight.stage {
            InflightStage::Sent(queued) => queued.place,
            InflightStage::Released { place } => *place,
        };
        Some(core::mem::replace(&mut inflight.stage, InflightStage::Released { place }))
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
        self.queue.is_some() || self.unsent > 0
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
