//! What a shard is made of. Each field is an owner with fields of its own that nobody else sees, and so is each session and
//! each connection: who changes one says what is meant.
//!
//! Knows no outside: `shard.rs` is that. One file per verb beside it: `connect`, `input`, `publish`, `subscribe`, `handover`;
//! admission is in `gate`, delivery in `route` and `deliver`, the end of things in `close`.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Limits, Retain, Sender};

use crate::access::Policy;
use crate::activity::ActivityLogs;
use crate::between::{Batch, ShardLinks};
use crate::cache::MatchCache;
use crate::classes::PriorityMode;
use crate::client_names::ClientNames;
use crate::connection::Connection;
use crate::event::{Event, Stats};
use crate::face::Face;
use crate::gate::share::Saturation;
use crate::gate::{Arrivals, Gate, Memory};
use crate::ledger::Ledger;
use crate::limits::{BURST_STEPS_PER_TURN_MAX, EVENTS_MAX};
use crate::measures::Meters;
use crate::name_conflicts::NameConflicts;
use crate::outbox::Spares;
use crate::persist::{Journal, PageRequests};
use crate::recording::Recording;
use crate::retained::Retained;
use crate::sample::TopicSample;
use crate::session::Session;
use crate::settings::Settings;
use crate::shard::ConnId;
use crate::slab::Slab;
use crate::subscriptions::Subscriptions;
use crate::tap::Taps;
use crate::timers::Timers;

/// The state of one shard; see [`Shard`](crate::Shard).
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) settings: Arc<Settings>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) limits: Limits,
    pub(crate) seed: u64,
    pub(crate) connections: Slab<Connection>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) by_client: ClientNames,
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
    /// What the other shards are to be told.
    pub(crate) links: ShardLinks,
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
    /// The highest count of a retained message, here or heard of; see `Stamp`.
    pub(crate) retain_count: u64,
    /// What was learned of publishers that have left.
    pub(crate) left: crate::gate::Left,
    /// Copies of messages of clients of this shard that were ever made, to receivers and to shards.
    pub(crate) copies: u64,
    pub(crate) name_conflicts: NameConflicts,
    pub(crate) taps: Taps,
    pub(crate) recording: Recording,
    pub(crate) activities: ActivityLogs,
}

impl ShardState {
    pub(crate) fn new(
        index: usize,
        shards: usize,
        settings: Arc<Settings>,
        policy: Arc<dyn Policy>,
        seed: u64,
    ) -> Self {
        let limits = limits_of(&settings);
        let gate = Gate::new(&settings.back_off, seed);
        Self {
            settings,
            policy,
            limits,
            seed,
            connections: Slab::new(),
            sessions: Slab::new(),
            by_client: ClientNames::new(seed),
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
            links: ShardLinks::new(index, shards),
            bursting: VecDeque::new(),
            burst_steps: BURST_STEPS_PER_TURN_MAX,
            events: VecDeque::new(),
            bans: VecDeque::new(),
            stats: Stats::default(),
            meters: Meters::default(),
            departed: Ledger::default(),
            subscriptions_ended: 0,
            retain_count: 0,
            left: crate::gate::Left::default(),
            copies: 0,
            name_conflicts: NameConflicts::default(),
            taps: Taps::default(),
            recording: Recording::default(),
            activities: ActivityLogs::default(),
        }
    }

    /// The face of a connection, if it is of this kind, and the memory that it may charge.
    pub(crate) fn face_mut<F: Face>(&mut self, conn: ConnId) -> Option<(&mut F, &Memory)> {
        if self.connections.generation(conn.index) != Some(conn.generation) {
            return None;
        }
        let connection = self.connections.get_mut(conn.index)?;
        let face: &mut dyn Any = connection.face_mut();
        Some((face.downcast_mut()?, &self.memory))
    }

    pub(crate) fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.policy = policy;
    }

    pub(crate) fn set_settings(&mut self, settings: Arc<Settings>) {
        self.limits = limits_of(&settings);
        self.gate.configure(&self.settings.back_off, &settings.back_off);
        if !settings.priority.classes.has_rates_of(&self.settings.priority.classes) {
            self.gate.note_new_limits();
        }
        self.settings = settings;
    }

    pub(crate) fn turn(&mut self, now: Timestamp) {
        self.turn_without_timers(now);
        self.fire_timers(now);
    }

    pub(crate) fn turn_without_timers(&mut self, now: Timestamp) {
        if self.activities.is_on() {
            self.activities.begin_turn(now);
        }
        self.settle_memory();
        self.bound_absent(now);
        self.shed(now);
        if self.gate.take_new_limits() {
            self.apply_limits(now);
        }
        self.retained.sweep(now);
        self.forget_swept();
        self.go_on_bursting(now);
    }

    pub(crate) fn may_write(&self) -> bool {
        self.links.are_told()
    }

    pub(crate) fn poll_write(&mut self) -> Option<ConnId> {
        if !self.may_write() {
            return None;
        }
        while let Some(conn) = self.to_write.pop_front() {
            if let Some(connection) = self.connection_mut(conn) {
                connection.unlist();
                if connection.is_welcomed() {
                    return Some(conn);
                }
            }
        }
        None
    }

    pub(crate) fn outbox(&self, conn: ConnId) -> [&[u8]; 2] {
        let is_open = |connection: &&Connection| connection.is_welcomed();
        self.connection(conn).filter(is_open).map_or([&[], &[]], Connection::outbox_slices)
    }

    pub(crate) fn room_ahead(&self, conn: ConnId, now: Timestamp) -> usize {
        let is_ordered = self.settings.priority.mode != PriorityMode::Off;
        let connection = self.connection(conn).filter(|_| is_ordered);
        connection.map_or(usize::MAX, |connection| connection.drain().ahead(now))
    }

    pub(crate) fn handle_written(&mut self, conn: ConnId, bytes: usize, now: Timestamp) {
        if self.connection(conn).is_none() {
            return;
        }
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        let (before, was_slow) = (connection.outbox_len(), connection.stalled_since().is_some());
        let shown: usize = connection.outbox_slices().iter().map(|slice| slice.len()).sum();
        connection.on_written(bytes, shown, &mut self.spares, now);
        self.memory.release_outbox(before - connection.outbox_len());
        let is_slow = connection.stalled_since().is_some();
        self.stats.clients_slow = self.stats.clients_slow + u64::from(is_slow) - u64::from(was_slow);
        let (session, is_closing) = (connection.session(), connection.is_closing());
        // Behind the answers there were messages that were not shown.
        if bytes > 0 && bytes == shown && connection.outbox_len() > 0 && connection.list() {
            self.to_write.push_back(conn);
        }
        if is_slow {
            self.watch(conn, now + self.settings.write_timeout, now);
        }
        if is_closing {
            return;
        }
        self.catch_up(conn);
        if self.sessions.get(session).is_some_and(Session::has_more) {
            self.pump(session, now);
        }
    }

    /// A face that keeps something back says it, now that there is room.
    fn catch_up(&mut self, conn: ConnId) {
        let room = self.settings.outbox_bytes_max / 2;
        let Some(connection) = self.connection_mut(conn) else { return };
        if connection.is_behind() && connection.outbox_len() <= room {
            connection.face_mut().catch_up();
            self.say_due(conn);
        }
    }

    pub(crate) fn handle_room(&mut self, conn: ConnId, now: Timestamp) {
        let session = self.connection(conn).filter(|connection| !connection.is_closing()).map(Connection::session);
        if let Some(session) = session.filter(|session| self.sessions.get(*session).is_some_and(Session::has_more)) {
            self.pump(session, now);
        }
    }

    pub(crate) fn excess_allowance(&self, conn: ConnId) -> Option<u32> {
        let is_ordered = self.settings.priority.mode != PriorityMode::Off;
        self.connection(conn).filter(|_| is_ordered).map(Connection::excess_allowance)
    }

    pub(crate) fn set_excess_allowance(&mut self, conn: ConnId, bytes: u32, now: Timestamp) {
        let Some(connection) = self.connection_mut(conn) else { return };
        connection.set_excess_allowance(bytes);
        if bytes > 0 {
            self.handle_room(conn, now);
        }
    }

    pub(crate) fn poll_close(&mut self) -> Option<ConnId> {
        self.to_close.pop()
    }

    pub(crate) fn may_read(&self, conn: ConnId) -> bool {
        let is_willing = |connection: &Connection| {
            !connection.is_paused()
                && connection.answer_bytes() <= self.settings.outbox_bytes_max / 2
                && !connection.is_owed_much()
        };
        !self.links.is_clogged() && self.connection(conn).is_none_or(is_willing)
    }

    pub(crate) fn set_wall_clock(&mut self, zero: Duration) {
        self.links.set_wall_clock(zero);
    }

    pub(crate) fn poll_batch(&mut self, to: usize) -> Option<Batch> {
        self.links.poll(to)
    }

    pub(crate) fn handle_batch_refused(&mut self, to: usize, batch: Batch) {
        self.links.take_back(to, batch);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        if !self.bursting.is_empty() {
            return Some(Timestamp::ZERO);
        }
        [self.timers.next(), self.retained.next_expiry()].into_iter().flatten().min()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.bans.pop_front().or_else(|| self.events.pop_front())
    }

    pub(crate) fn stats(&self) -> Stats {
        let is_first = self.links.index() == 0;
        Stats {
            connections: self.connections.len() as u64,
            sessions: (self.sessions.len() - self.gate.ghosts()) as u64,
            subscriptions: self.subscriptions.len() as u64,
            retained_messages: if is_first { self.retained.len() as u64 } else { 0 },
            retained_bytes: if is_first { self.retained.bytes() as u64 } else { 0 },
            ..self.stats.with_sums()
        }
    }

    pub(crate) fn timers(&self) -> usize {
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

    /// The place of a connection's session.
    #[inline]
    pub(crate) fn session_at(&self, conn: ConnId) -> Option<u32> {
        self.connection(conn).map(Connection::session)
    }

    pub(crate) fn session_of(&mut self, conn: ConnId) -> Option<&mut Session> {
        let session = self.session_at(conn)?;
        self.sessions.get_mut(session)
    }

    /// The session of the client that is called so.
    pub(crate) fn session_named(&self, client_id: &str) -> Option<&Session> {
        self.by_client.find(client_id, &self.sessions).and_then(|session| self.sessions.get(session))
    }

    pub(crate) fn conn_id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.connections.generation(index).unwrap_or(0) }
    }

    /// Events are for people; when nobody drains them the oldest go.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.activities.is_on() {
            self.note_event_activity(&event);
        }
        // A ban is more than news: it has room of its own.
        let events = if matches!(event, Event::Outlawed { .. }) { &mut self.bans } else { &mut self.events };
        if events.len() >= EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
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
pub enum WillFate {
    /// It is published.
    Publish,
    /// It is forgotten.
    Discard,
}
