//! The whole outside surface of the broker's core.
//!
//! A [`Shard`] owns its connections, sessions, queues and outboxes; nothing in it is locked, and it knows no socket and
//! no clock. Its methods come in four families: getters; `handle_*` (something happened outside); `turn` (act); `poll_*`
//! (what the driver must do). One file per input: `connect`, `input`, `publish`, `subscribe`, `acks`; delivery is in
//! `route` and `deliver`, the end of things in `close`.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Connect, Limits, ReasonCode, Retain, Sender};

use crate::access::{Identity, Policy};
use crate::cache::MatchCache;
use crate::classes::PriorityMode;
use crate::connection::Connection;
use crate::envelope::Envelope;
use crate::event::{Event, Stats, Why};
use crate::gate::share::Saturation;
use crate::gate::{Arrivals, Gate, Memory};
use crate::ledger::Ledger;
use crate::limits::{BATCH_BYTES_PAUSE, BURST_STEPS_PER_TURN_MAX, EVENTS_MAX};
use crate::measures::Meters;
use crate::outbox::Spares;
use crate::persist::{Journal, PageRequests};
use crate::recording::Recording;
use crate::retained::Retained;
use crate::sample::TopicSample;
use crate::session::Session;
use crate::settings::Settings;
use crate::slab::Slab;
use crate::subscriptions::Subscriptions;
use crate::tap::Taps;
use crate::timers::Timers;

/// A connection of one shard. The driver keeps it beside the socket; a stale one is harmless everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Position in the shard's table: small and dense, usable as an index into the driver's own table.
    pub index: u32,
    /// Which of the connections that had this position.
    pub generation: u32,
}

/// Which shard owns the session of this client. All connections of a client belong there.
pub fn shard_of(client_id: &str, shards: usize) -> usize {
    // Any hash will do that all threads agree on; it decides about balance, not about safety.
    let hash = FixedState::with_seed(0).hash_one(client_id);
    (hash % shards.max(1) as u64) as usize
}

/// A CONNECT that has been read, and whose sender has been authenticated.
#[derive(Debug)]
pub struct Hello<'a> {
    /// The packet.
    pub connect: &'a Connect<'a>,
    /// The client identifier: the packet's own, or the one that was made up because that was empty.
    pub client_id: &'a str,
    /// Who it is.
    pub identity: Identity,
}

/// What reading a connection's bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were used; the driver keeps the rest.
    pub consumed: usize,
    /// Bytes (from the start of what is kept) that must be there before it is worth calling again.
    pub at_least: usize,
    /// Go on reading, or not.
    pub then: Then,
    /// Units of work that it was; see [`Portion`](crate::Portion).
    pub units: u32,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Read on.
    Continue,
    /// Do not read this connection until [`Shard::may_read`] says so.
    Pause,
    /// It is over: write what is in the outbox (bounded in time) and close. `poll_close` names it too.
    Close,
}

/// Publications or changes of interest on their way to another shard. Opaque bytes.
#[derive(Debug)]
pub struct Batch {
    from: usize,
    lane: Lane,
    bytes: Vec<u8>,
}

/// What a batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Changes of interest: small and rare, and no answer is written before they are taken. An inbox should have room for
    /// these when it has none for messages.
    Interest,
    /// Messages. If the inbox is full they wait here, and publishers with them.
    Messages,
}

impl Batch {
    /// What it holds.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// What waits for one other shard, by lane.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) interest: Vec<u8>,
    pub(crate) messages: Vec<u8>,
}

/// One shard: the sessions of its clients and what it knows of all topics.
///
/// The contract in one sentence: *handle what arrived, turn once, drain every poll, sleep until `poll_timeout`*. The
/// driver must take batches from its inbox **after** it has read a socket's bytes and **before** it hands them to
/// `handle_input`: then a message published after a SUBACK was seen anywhere finds the subscription everywhere.
#[derive(Debug)]
pub struct Shard {
    pub(crate) index: usize,
    pub(crate) settings: Arc<Settings>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) limits: Limits,
    pub(crate) seed: u64,
    pub(crate) connections: Slab<Connection>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) by_client: HashMap<Arc<str>, u32, FixedState>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) cache: MatchCache,
    pub(crate) retained: Retained,
    pub(crate) sample: TopicSample,
    pub(crate) timers: Timers,
    pub(crate) gate: Gate,
    pub(crate) saturation: Saturation,
    pub(crate) arrivals: Arrivals,
    pub(crate) memory: Memory,
    pub(crate) spares: Spares,
    /// What is to outlive the process, and is not kept yet.
    pub(crate) journal: Journal,
    pub(crate) page_requests: PageRequests,
    /// Connections with something new to write, and connections to close.
    pub(crate) to_write: VecDeque<ConnId>,
    pub(crate) to_close: Vec<ConnId>,
    /// What the other shards are to be told, by shard.
    pub(crate) outgoing: Vec<Outgoing>,
    /// Sessions that have retained messages to send and the room for it, in order; see `burst`.
    pub(crate) bursting: VecDeque<u32>,
    /// Steps that are left for them in this turn.
    pub(crate) burst_steps: usize,
    pub(crate) events: VecDeque<Event>,
    /// Those that must not be lost among the others.
    bans: VecDeque<Event>,
    pub(crate) stats: Stats,
    pub(crate) meters: Meters,
    /// The ledgers of sessions that have ended, and of nobody in particular.
    pub(crate) departed: Ledger,
    /// Subscriptions that ended with their session.
    pub(crate) subscriptions_ended: u64,
    /// One bit for each other shard that refused a change of interest and has not taken it yet.
    interest_refused: u64,
    /// The highest count of a retained message, here or heard of; see `Stamp`.
    pub(crate) retain_count: u64,
    /// What was learned of publishers that have left.
    pub(crate) left: crate::gate::Left,
    /// Copies of messages of clients of this shard that were ever made, to receivers and to shards.
    pub(crate) copies: u64,
    pub(crate) taps: Taps,
    pub(crate) recording: Recording,
}

impl Shard {
    /// For tests and drains: how long a closing connection may take to flush.
    pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

    /// A shard among `shards` (64 at most). The seed feeds the hash tables and numbers parents: it is drawn at each start,
    /// told to nobody, and the same for all shards of a broker.
    pub fn new(index: usize, shards: usize, settings: Arc<Settings>, policy: Arc<dyn Policy>, seed: u64) -> Self {
        let limits = limits_of(&settings);
        let gate = Gate::new(&settings.back_off, seed);
        Self {
            index,
            settings,
            policy,
            limits,
            seed,
            connections: Slab::new(),
            sessions: Slab::new(),
            by_client: HashMap::with_hasher(FixedState::with_seed(seed)),
            subscriptions: Subscriptions::new(seed),
            cache: MatchCache::new(seed),
            retained: Retained::new(seed),
            sample: TopicSample::default(),
            timers: Timers::default(),
            gate,
            saturation: Saturation::new(seed),
            arrivals: Arrivals::new(seed),
            memory: Memory::new(usize::MAX),
            spares: Spares::default(),
            journal: Journal::default(),
            page_requests: PageRequests::default(),
            to_write: VecDeque::new(),
            to_close: Vec::new(),
            outgoing: (0..shards.clamp(1, 64)).map(|_| Outgoing::default()).collect(),
            bursting: VecDeque::new(),
            burst_steps: BURST_STEPS_PER_TURN_MAX,
            events: VecDeque::new(),
            bans: VecDeque::new(),
            stats: Stats::default(),
            meters: Meters::default(),
            departed: Ledger::default(),
            subscriptions_ended: 0,
            interest_refused: 0,
            retain_count: 0,
            left: crate::gate::Left::default(),
            copies: 0,
            taps: Taps::default(),
            recording: Recording::default(),
        }
    }

    /// New rules of access; they hold for what comes next, deliveries included.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.policy = policy;
    }

    /// New settings; they hold for new connections and new messages.
    pub fn set_settings(&mut self, settings: Arc<Settings>) {
        self.limits = limits_of(&settings);
        self.gate.configure(&self.settings.back_off, &settings.back_off);
        self.settings = settings;
    }

    /// A batch from another shard.
    pub fn handle_batch(&mut self, batch: &Batch, now: Timestamp) {
        let mut bytes = &*batch.bytes;
        while let Some(envelope) = Envelope::read(&mut bytes) {
            self.handle_envelope(batch.from, &envelope, now);
            self.journal.end_whole();
        }
        debug_assert!(bytes.is_empty(), "a batch that only this crate writes can be read");
    }

    /// Timers: keep-alives, wills, expiries, releases. Retained messages that were not all sent. Bounded work.
    pub fn turn(&mut self, now: Timestamp) {
        self.turn_without_timers(now);
        self.fire_timers(now);
    }

    /// A turn of a driver that comes so late that timers are long due, and that has not read yet what came in time.
    pub fn turn_without_timers(&mut self, now: Timestamp) {
        self.settle_memory();
        self.bound_absent();
        self.shed(now);
        if self.gate.take_new_limits() {
            self.apply_limits(now);
        }
        self.retained.sweep(now);
        self.forget_swept();
        self.go_on_bursting(now);
    }

    /// Whether anything may be written. Not while another shard has refused a change of interest: the answer to who caused
    /// it may be in any outbox, and must not be seen before it is true.
    pub fn may_write(&self) -> bool {
        self.interest_refused == 0
    }

    /// A connection that has new bytes to write; each is named once until its outbox is written. None while nothing may be.
    pub fn poll_write(&mut self) -> Option<ConnId> {
        if !self.may_write() {
            return None;
        }
        while let Some(conn) = self.to_write.pop_front() {
            if let Some(connection) = self.connection_mut(conn) {
                connection.is_listed = false;
                if connection.connack_after.is_none() {
                    return Some(conn);
                }
            }
        }
        None
    }

    /// The bytes to write next, as up to two slices (for one vectored write); what `handle_written` then lists again has
    /// more.
    pub fn outbox(&self, conn: ConnId) -> [&[u8]; 2] {
        let is_open = |connection: &&Connection| connection.connack_after.is_none();
        self.connection(conn).filter(is_open).map_or([&[], &[]], |connection| connection.outbox.slices())
    }

    /// Bytes that this connection takes in a moment, by its pace of late: what may lie before it where nothing can be
    /// overtaken. Without priorities nothing is, and there is no need to keep it short.
    pub fn room_ahead(&self, conn: ConnId, now: Timestamp) -> usize {
        let is_ordered = self.settings.priority.mode != PriorityMode::Off;
        let connection = self.connection(conn).filter(|_| is_ordered);
        connection.map_or(usize::MAX, |connection| connection.drain.ahead(now))
    }

    /// So many bytes were written; none, if the socket takes no more. May refill the outbox from the session's queue; the connection is then named by
    /// `poll_write` again.
    pub fn handle_written(&mut self, conn: ConnId, bytes: usize, now: Timestamp) {
        if self.connection(conn).is_none() {
            return;
        }
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        let (before, was_slow) = (connection.outbox.len(), connection.stalled_since.is_some());
        let shown: usize = connection.outbox.slices().iter().map(|slice| slice.len()).sum();
        connection.on_written(bytes, shown, &mut self.spares, now);
        self.memory.release_outbox(before - connection.outbox.len());
        let is_slow = connection.stalled_since.is_some();
        self.stats.clients_slow = self.stats.clients_slow + u64::from(is_slow) - u64::from(was_slow);
        let (session, is_closing) = (connection.session, connection.is_closing);
        // Behind the answers there were messages that were not shown.
        if bytes > 0 && bytes == shown && connection.outbox.len() > 0 && !connection.is_listed {
            connection.is_listed = true;
            self.to_write.push_back(conn);
        }
        if connection.stalled_since.is_some() && !connection.is_watched {
            self.watch(conn, now + self.settings.write_timeout, now);
        }
        if !is_closing && self.sessions.get(session).is_some_and(Session::has_more) {
            self.pump(session, now);
        }
    }

    /// A connection to close once its outbox has been written, or at the latest after a bounded time. The driver closes
    /// the socket and says so with `handle_closed`, which frees its place.
    pub fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop()
    }

    /// Whether a paused connection may be read again; asked at the end of a turn for those that were paused.
    pub fn may_read(&self, conn: ConnId) -> bool {
        let is_willing = |connection: &Connection| {
            connection.pause.is_none()
                && connection.answer_bytes <= self.settings.outbox_bytes_max / 2
                && !connection.is_owed_much()
        };
        !self.is_clogged() && self.connection(conn).is_none_or(is_willing)
    }

    /// What waits for another shard, changes of interest first. Push it into that shard's bounded inbox before anything
    /// is written to a socket; if the inbox is full, give it back and ask again next turn.
    pub fn poll_batch(&mut self, to: usize) -> Option<Batch> {
        let Outgoing { interest, messages } = self.outgoing.get_mut(to)?;
        let (lane, bytes) = if interest.is_empty() { (Lane::Messages, messages) } else { (Lane::Interest, interest) };
        self.interest_refused &= !(1 << to);
        (!bytes.is_empty()).then(|| Batch { from: self.index, lane, bytes: core::mem::take(bytes) })
    }

    /// The inbox of that shard was full: try again next turn. If these were changes of interest, nothing may be written
    /// until then; see [`Shard::may_write`].
    pub fn handle_batch_refused(&mut self, to: usize, batch: Batch) {
        let Some(outgoing) = self.outgoing.get_mut(to) else { return };
        let bytes = match batch.lane {
            Lane::Interest => {
                self.interest_refused |= 1 << to;
                &mut outgoing.interest
            }
            Lane::Messages => &mut outgoing.messages,
        };
        let mut first = batch.bytes;
        first.append(bytes);
        *bytes = first;
    }

    /// When `turn` should be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if !self.bursting.is_empty() {
            return Some(Timestamp::ZERO);
        }
        [self.timers.next(), self.retained.next_expiry()].into_iter().flatten().min()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.bans.pop_front().or_else(|| self.events.pop_front())
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let is_first = self.index == 0;
        Stats {
            connections: self.connections.len() as u64,
            sessions: (self.sessions.len() - self.gate.ghosts()) as u64,
            subscriptions: self.subscriptions.len() as u64,
            retained_messages: if is_first { self.retained.len() as u64 } else { 0 },
            retained_bytes: if is_first { self.retained.bytes() as u64 } else { 0 },
            ..self.stats.with_sums()
        }
    }

    /// Timers that are set, those that mean nothing any more included.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// The connection, if the identifier is not stale.
    pub(crate) fn connection(&self, conn: ConnId) -> Option<&Connection> {
        self.connections.get(conn.index).filter(|_| self.connections.generation(conn.index) == Some(conn.generation))
    }

    pub(crate) fn connection_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        if self.connections.generation(conn.index) != Some(conn.generation) {
            return None;
        }
        self.connections.get_mut(conn.index)
    }

    pub(crate) fn conn_id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.connections.generation(index).unwrap_or(0) }
    }

    /// Events are for people; when nobody drains them the oldest go.
    pub(crate) fn tell(&mut self, event: Event) {
        // A ban is more than news: it has room of its own.
        let events = if matches!(event, Event::Outlawed { .. }) { &mut self.bans } else { &mut self.events };
        if events.len() >= EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    pub(crate) fn other_shards(&self) -> impl Iterator<Item = usize> + use<> {
        let index = self.index;
        (0..self.outgoing.len()).filter(move |shard| *shard != index)
    }

    /// A change of interest, to all other shards.
    pub(crate) fn tell_others(&mut self, envelope: &Envelope<'_>) {
        for shard in self.other_shards() {
            envelope.write(&mut self.outgoing[shard].interest);
        }
    }

    /// So much waits for another shard that clients should wait, too.
    pub(crate) fn is_clogged(&self) -> bool {
        let most = |outgoing: &Outgoing| outgoing.messages.len().max(outgoing.interest.len());
        self.outgoing.iter().any(|outgoing| most(outgoing) >= BATCH_BYTES_PAUSE)
    }
}

fn limits_of(settings: &Settings) -> Limits {
    Limits {
        packet_bytes_max: settings.packet_bytes_max,
        topic_levels_max: settings.topic_levels_max,
        topic_alias_max: settings.topic_alias_max,
        qos_max: settings.qos_max,
        retain: if settings.retain_available { Retain::Available } else { Retain::Unavailable },
        ..Limits::default().with_sender(Sender::Client)
    }
}

/// How a connection ended, for what happens to its will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WillFate {
    Publish,
    Discard,
}

/// The reason code that a `Why` is told with; none where nobody is left to tell.
pub(crate) fn reason_of(why: &Why) -> Option<ReasonCode> {
    match why {
        Why::Goodbye | Why::Lost => None,
        Why::KeepAlive => Some(ReasonCode::KeepAliveTimeout),
        Why::TooFast { .. } => Some(ReasonCode::MessageRateTooHigh),
        Why::NotReading { .. } => Some(ReasonCode::QuotaExceeded),
        Why::TakenOver => Some(ReasonCode::SessionTakenOver),
        Why::Protocol { reason, .. } | Why::Ended(reason) => Some(*reason),
    }
}
