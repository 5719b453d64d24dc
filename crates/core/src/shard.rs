//! The whole outside surface of the broker's core. STUB while the bodies are written.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Connect, ReasonCode};

use crate::access::{Identity, Policy};
use crate::event::{Event, Stats, Why};
use crate::settings::Settings;

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
    let _ = (client_id, shards);
    todo!()
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

/// Publications and changes of interest on their way to another shard. Opaque bytes.
#[derive(Debug, Default)]
pub struct Batch(pub(crate) Vec<u8>);

/// One shard: the sessions of its clients and what it knows of all topics.
///
/// The contract in one sentence: *handle what arrived, turn once, drain every poll, sleep until `poll_timeout`*. The
/// driver must take batches from its inbox **after** it has read a socket's bytes and **before** it hands them to
/// `handle_input`: then a message published after a SUBACK was seen anywhere finds the subscription everywhere.
#[derive(Debug)]
pub struct Shard;

impl Shard {
    /// A shard among `shards`. The seed feeds everything random.
    pub fn new(index: usize, shards: usize, settings: Arc<Settings>, policy: Arc<dyn Policy>, seed: u64) -> Self {
        let _ = (index, shards, settings, policy, seed);
        todo!()
    }

    /// New rules of access; they hold for what comes next, deliveries included.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        let _ = policy;
        todo!()
    }

    /// New settings; they hold for new connections and new messages.
    pub fn set_settings(&mut self, settings: Arc<Settings>) {
        let _ = settings;
        todo!()
    }

    /// A client says hello. Its CONNACK (or refusal) is in the outbox when this returns. `Err`: the table is full; close.
    pub fn handle_connect(&mut self, hello: &Hello<'_>, now: Timestamp) -> Option<ConnId> {
        let _ = (hello, now);
        todo!()
    }

    /// Bytes of a connected client: as many whole packets as there are (bounded) are handled.
    pub fn handle_input(&mut self, conn: ConnId, bytes: &[u8], now: Timestamp) -> Progress {
        let _ = (conn, bytes, now);
        todo!()
    }

    /// The socket is gone (or the driver gave up on it). Harmless for one that is closed already.
    pub fn handle_closed(&mut self, conn: ConnId, why: Why, now: Timestamp) {
        let _ = (conn, why, now);
        todo!()
    }

    /// A batch from another shard.
    pub fn handle_batch(&mut self, batch: &Batch, now: Timestamp) {
        let _ = (batch, now);
        todo!()
    }

    /// The broker itself publishes: `$SYS` topics. Retained, QoS 0, to all shards.
    pub fn handle_system(&mut self, topic: &str, payload: &[u8], now: Timestamp) {
        let _ = (topic, payload, now);
        todo!()
    }

    /// The broker is going down: DISCONNECT with this reason to everybody that understands it, and close.
    pub fn handle_shutdown(&mut self, reason: ReasonCode, now: Timestamp) {
        let _ = (reason, now);
        todo!()
    }

    /// End one client's connection.
    pub fn handle_kick(&mut self, client_id: &str, reason: ReasonCode, now: Timestamp) {
        let _ = (client_id, reason, now);
        todo!()
    }

    /// Timers: keep-alives, wills, expiries. Bounded work.
    pub fn turn(&mut self, now: Timestamp) {
        let _ = now;
        todo!()
    }

    /// A connection that has new bytes to write; each is named once until its outbox is written.
    pub fn poll_write(&mut self) -> Option<ConnId> {
        todo!()
    }

    /// The bytes to write, oldest first, as up to two slices (for one vectored write).
    pub fn outbox(&self, conn: ConnId) -> [&[u8]; 2] {
        let _ = conn;
        todo!()
    }

    /// So many bytes were written. May refill the outbox from the session's queue; the connection is then named by
    /// `poll_write` again.
    pub fn handle_written(&mut self, conn: ConnId, bytes: usize, now: Timestamp) {
        let _ = (conn, bytes, now);
        todo!()
    }

    /// A connection to close once its outbox has been written, or at the latest after a bounded time.
    pub fn poll_close(&mut self) -> Option<ConnId> {
        todo!()
    }

    /// Whether a paused connection may be read again; asked at the end of a turn for those that were paused.
    pub fn may_read(&self, conn: ConnId) -> bool {
        let _ = conn;
        todo!()
    }

    /// What waits for another shard. Push it into that shard's bounded inbox; if it is full, give it back.
    pub fn poll_batch(&mut self, to: usize) -> Option<Batch> {
        let _ = to;
        todo!()
    }

    /// The inbox of that shard was full: try again next turn.
    pub fn handle_batch_refused(&mut self, to: usize, batch: Batch) {
        let _ = (to, batch);
        todo!()
    }

    /// When `turn` should be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        todo!()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// For tests and drains: how long a closing connection may take to flush.
    pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
}
