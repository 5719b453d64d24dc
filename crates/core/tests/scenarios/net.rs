//! Shards and clients joined without sockets: bytes are carried by hand, time passes by hand. What clients say and hear:
//! `talk`.

mod talk;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open, Policy};
use tidegate_core::event::{Event, Stats, Why};
use tidegate_core::persist::StoreChange;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Progress, Reading, Shard, Then, shard_of};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{Connect, Encode, Peer, Properties, ReasonCode, Version, Will};

pub(crate) use crate::got::{Forbid, Got, Options, ack, lasting, lasting_v311, message, options};
use crate::shelf::Shelf;

/// A client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire(usize);

struct End {
    shard: usize,
    conn: ConnId,
    version: Version,
    received: Vec<u8>,
    /// Sent, and not yet taken by the shard, which does not want to read now.
    unread: Vec<u8>,
    /// The shard has asked not to be handed more until it may be.
    is_paused: bool,
    is_closed: bool,
    /// The client reads nothing, and its socket is full.
    is_stalled: bool,
}

pub(crate) struct Net {
    are_batches_held: bool,
    are_batches_refused: bool,
    /// What is to be written takes until somebody says so.
    is_disk_slow: bool,
    /// Changes that were told.
    pub(crate) changes: usize,
    /// Messages that were said to be on their way to other shards, and to be there.
    pub(crate) routings: usize,
    pub(crate) routed: usize,
    /// Bytes that went from shard to shard.
    pub(crate) crossed: usize,
    /// The last turn of each shard that was told.
    told: Vec<u64>,
    pub(crate) shelf: Shelf,
    pub(crate) shards: Vec<Shard>,
    ends: Vec<End>,
    pub(crate) now: Timestamp,
    pub(crate) events: VecDeque<Event>,
}

impl Net {
    pub(crate) fn new(shards: usize) -> Self {
        Self::with(shards, Settings::default(), Open)
    }

    pub(crate) fn with(shards: usize, mut settings: Settings, policy: impl Policy + 'static) -> Self {
        // Every scenario holds with a store, too, and if everything that may be is on disk: `TIDEGATE_TEST_JOURNAL=1`.
        let is_durable = std::env::var_os("TIDEGATE_TEST_JOURNAL").is_some();
        if is_durable && settings.queue_memory_max == Settings::default().queue_memory_max {
            settings.queue_memory_max = 1;
        }
        let policy: Arc<dyn Policy> = Arc::new(policy);
        let settings = Arc::new(settings);
        let shards: Vec<Shard> =
            (0..shards).map(|index| Shard::new(index, shards, Arc::clone(&settings), Arc::clone(&policy), 7)).collect();
        let mut net = Self {
            are_batches_held: false,
            are_batches_refused: false,
            is_disk_slow: false,
            changes: 0,
            routings: 0,
            routed: 0,
            crossed: 0,
            told: vec![0; shards.len()],
            shelf: Shelf::default(),
            shards,
            ends: Vec::new(),
            now: Timestamp::from_secs_f64(1000.0),
            events: VecDeque::new(),
        };
        if is_durable {
            net.shards.iter_mut().for_each(|shard| shard.keep_journal(0));
        }
        net
    }

    /// With a store that keeps everything at once.
    pub(crate) fn durable(shards: usize) -> Self {
        Self::durable_with(shards, Settings::default())
    }

    pub(crate) fn durable_with(shards: usize, settings: Settings) -> Self {
        let mut net = Self::with(shards, settings, Open);
        net.shards.iter_mut().for_each(|shard| shard.keep_journal(0));
        net
    }

    /// From now on nothing that is written is kept.
    pub(crate) fn hold_disk(&mut self) {
        self.is_disk_slow = true;
    }

    /// And now everything is.
    pub(crate) fn release_disk(&mut self) {
        self.is_disk_slow = false;
        self.shelf.sync();
        for shard in 0..self.shards.len() {
            self.shards[shard].handle_synced(self.told[shard], self.now);
        }
        self.settle();
    }

    fn carry_journal(&mut self, shard: usize) -> bool {
        let Some(turn) = self.shards[shard].poll_journal() else { return false };
        self.told[shard] = turn.position;
        self.changes += turn.changes.len();
        let count = |is_it: fn(&StoreChange) -> bool| turn.changes.iter().filter(|change| is_it(change)).count();
        self.routings += count(|change| matches!(change, StoreChange::Routing { .. }));
        self.routed += count(|change| matches!(change, StoreChange::Routed { .. }));
        self.shelf.write(&turn);
        if !self.is_disk_slow {
            self.shelf.sync();
            self.shards[shard].handle_synced(turn.position, self.now);
        }
        true
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.settle();
    }

    /// Time passes, and every timer fires at its time.
    pub(crate) fn live(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.shards.iter().filter_map(Shard::poll_timeout).min().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Connects and returns the wire; the CONNACK is still to be received.
    pub(crate) fn dial(&mut self, client_id: &str, options: &Options<'_>) -> Wire {
        let will = options.will.map(|(topic, payload, qos, retain)| Will {
            qos,
            retain,
            properties: Properties::new(&options.will_properties),
            topic,
            payload: payload.as_bytes(),
        });
        let connect = Connect {
            version: options.version,
            is_bridge: false,
            clean_start: options.clean,
            keep_alive: options.keep_alive,
            properties: Properties::new(&options.properties),
            client_id,
            will,
            user_name: None,
            password: None,
        };
        let name = if client_id.is_empty() { "auto-1" } else { client_id };
        let identity = Identity {
            user: options.user.map(Into::into),
            peer: options.peer.into(),
            listener: "mqtt",
            roles: None,
            claims: None,
        };
        let shard = shard_of(name, self.shards.len());
        let hello = MqttHello { connect: &connect, client_id: name, identity };
        let conn = self.shards[shard].handle_connect(&hello, self.now).unwrap();
        self.ends.push(End {
            shard,
            conn,
            version: options.version,
            received: Vec::new(),
            unread: Vec::new(),
            is_paused: false,
            is_closed: false,
            is_stalled: false,
        });
        self.settle();
        Wire(self.ends.len() - 1)
    }

    /// Connects and swallows the CONNACK.
    pub(crate) fn connect(&mut self, client_id: &str, options: &Options<'_>) -> Wire {
        let wire = self.dial(client_id, options);
        let got = self.receive(wire);
        assert!(matches!(got.first(), Some(Got::ConnAck { reason: ReasonCode::Success, .. })), "{got:?}");
        wire
    }

    /// Connects and takes the CONNACK only: what follows it stays to be received.
    pub(crate) fn connect_quietly(&mut self, client_id: &str, options: &Options<'_>) -> Wire {
        let wire = self.dial(client_id, options);
        let first = self.receive_one(wire);
        assert!(matches!(first, Some(Got::ConnAck { reason: ReasonCode::Success, .. })), "{first:?}");
        wire
    }

    pub(crate) fn v5(&mut self, client_id: &str) -> Wire {
        self.connect(client_id, &Options::default())
    }

    pub(crate) fn send(&mut self, wire: Wire, packet: &impl Encode) {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(self.ends[wire.0].version), &mut bytes);
        self.send_bytes(wire, &bytes);
    }

    pub(crate) fn send_bytes(&mut self, wire: Wire, bytes: &[u8]) {
        self.ends[wire.0].unread.extend_from_slice(bytes);
        self.feed(wire.0);
        self.settle();
    }

    /// Bytes as they come, whole packets or not.
    pub(crate) fn offer(&mut self, wire: Wire, bytes: &[u8]) -> Progress {
        let End { shard, conn, .. } = self.ends[wire.0];
        let progress = self.shards[shard].handle_input(conn, bytes, self.now);
        self.settle();
        progress
    }

    /// Bytes that may have come at any time since then: nobody looked.
    pub(crate) fn offer_since(&mut self, wire: Wire, bytes: &[u8], since: Timestamp) -> Progress {
        let End { shard, conn, .. } = self.ends[wire.0];
        let progress = self.shards[shard].handle_input_since(conn, bytes, since, self.now);
        self.settle();
        progress
    }

    /// Bytes of a connection that has not been read dry for so long; no more than so many units of them.
    pub(crate) fn offer_portion(&mut self, wire: Wire, bytes: &[u8], unread: Duration, units: u32) -> Progress {
        let End { shard, conn, .. } = self.ends[wire.0];
        let dry_at = Timestamp::from_nanos(self.now.as_nanos() - unread.as_nanos() as u64);
        let portion = Portion { since: self.now, dry_at, units };
        let progress = self.shards[shard].handle_portion(conn, bytes, &portion, self.now);
        self.settle();
        progress
    }

    /// How its connection stands among those that wait to be read, having been read dry just now.
    pub(crate) fn reading(&self, wire: Wire) -> Reading {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].reading(conn, self.now, self.now)
    }

    /// How many of its next packets are entitled, of one visit.
    pub(crate) fn entitled(&self, wire: Wire) -> u32 {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].entitled(conn, self.now, self.now)
    }

    /// So many bytes of a packet are there now, and more are to come.
    pub(crate) fn arrive(&mut self, wire: Wire, bytes: usize) {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].handle_partial(conn, bytes, self.now);
        self.settle();
    }

    /// Whole packets, while everything else stands still: nothing is carried until somebody settles.
    pub(crate) fn slip(&mut self, wire: Wire, bytes: &[u8]) {
        let End { shard, conn, .. } = self.ends[wire.0];
        let progress = self.shards[shard].handle_input(conn, bytes, self.now);
        assert_eq!(progress.consumed, bytes.len());
    }

    /// From now on the client reads nothing, or reads again.
    pub(crate) fn stall(&mut self, wire: Wire, is_stalled: bool) {
        self.ends[wire.0].is_stalled = is_stalled;
        if !is_stalled {
            self.write(wire.0);
        }
        self.settle();
    }

    /// The driver has something of this client, and reads others first.
    pub(crate) fn set_unread(&mut self, wire: Wire, is_unread: bool) {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].set_unread(conn, is_unread);
    }

    pub(crate) fn excess_allowance(&self, wire: Wire) -> Option<u32> {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].excess_allowance(conn)
    }

    /// The driver has looked at what this client has not read.
    pub(crate) fn set_excess_allowance(&mut self, wire: Wire, bytes: u32) {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].set_excess_allowance(conn, bytes, self.now);
        self.settle();
    }

    /// A client that is stalled takes so many bytes of what waits for it, or of what then comes from its queue.
    pub(crate) fn take(&mut self, wire: Wire, bytes: usize) -> Vec<u8> {
        let End { shard, conn, .. } = self.ends[wire.0];
        let mut taken = Vec::new();
        while taken.len() < bytes {
            let waiting = self.shards[shard].outbox(conn).concat();
            let part = &waiting[..waiting.len().min(bytes - taken.len())];
            if part.is_empty() {
                break;
            }
            taken.extend_from_slice(part);
            self.shards[shard].handle_written(conn, part.len(), self.now);
        }
        taken
    }

    /// Bytes that wait for the client.
    pub(crate) fn waiting(&self, wire: Wire) -> usize {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].outbox(conn).iter().map(|slice| slice.len()).sum()
    }

    /// Whether the shard wants to read this client now.
    pub(crate) fn may_read(&self, wire: Wire) -> bool {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.shards[shard].may_read(conn)
    }

    /// Hands over what a client has sent, if the shard reads; true if it took something.
    fn feed(&mut self, end: usize) -> bool {
        let End { shard, conn, ref mut unread, ref mut is_paused, .. } = self.ends[end];
        if unread.is_empty() || (*is_paused && !self.shards[shard].may_read(conn)) {
            return false;
        }
        let progress = self.shards[shard].handle_input(conn, unread, self.now);
        unread.drain(..progress.consumed);
        *is_paused = progress.then == Then::Pause;
        if progress.then == Then::Continue {
            assert_eq!(unread.len(), 0, "whole packets only");
        }
        progress.consumed > 0
    }

    /// One turn of every shard, with nothing carried anywhere.
    pub(crate) fn settle_slowly(&mut self) {
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.turn(now));
    }

    /// The socket breaks.
    pub(crate) fn cut(&mut self, wire: Wire) {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.ends[wire.0].is_closed = true;
        self.shards[shard].handle_closed(conn, Why::Lost, self.now);
        self.settle();
    }

    pub(crate) fn is_closed(&self, wire: Wire) -> bool {
        self.ends[wire.0].is_closed
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.shards.iter().for_each(|shard| sum.add(&shard.stats()));
        sum
    }

    /// Turns every shard and carries everything until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            let mut moved = false;
            for shard in 0..self.shards.len() {
                self.shards[shard].turn(self.now);
                moved |= self.shards[shard].poll_timeout().is_some_and(|at| at <= self.now);
                // As the contract says: what is to be kept first, then what goes to other shards.
                moved |= self.carry_journal(shard);
                moved |= self.carry_batches(shard);
                moved |= self.carry_writes(shard);
                moved |= self.shelf.serve(&mut self.shards[shard], self.now);
                while let Some(event) = self.shards[shard].poll_event() {
                    self.events.push_back(event);
                }
            }
            for end in 0..self.ends.len() {
                moved |= self.feed(end);
            }
            if !moved {
                for shard in &mut self.shards {
                    assert_eq!(shard.stats().check(), Ok(()), "{:?}", shard.stats());
                    assert_eq!(shard.audit(), Ok(()), "the clients' ledgers and the shard's: {:?}", shard.stats());
                    shard.handle_turned(Duration::from_micros(50));
                    let measured = shard.measures().e2e_latency.map(|spread| spread.count);
                    assert_eq!(measured, shard.stats().by_class.map(|class| class.delivered), "each delivery once");
                    assert_eq!(shard.measures().delayed.iter().sum::<u64>(), shard.stats().publish_held);
                }
                return;
            }
        }
        panic!("the shards do not come to rest");
    }

    fn carry_writes(&mut self, shard: usize) -> bool {
        let mut moved = false;
        while let Some(conn) = self.shards[shard].poll_write() {
            moved = true;
            if let Some(end) = self.ends.iter().rposition(|end| end.shard == shard && end.conn == conn) {
                self.write(end);
            } else {
                let bytes = self.shards[shard].outbox(conn).concat().len();
                self.shards[shard].handle_written(conn, bytes, self.now);
            }
        }
        while let Some(conn) = self.shards[shard].poll_close() {
            moved = true;
            if let Some(end) = self.ends.iter_mut().rfind(|end| end.shard == shard && end.conn == conn) {
                end.is_closed = true;
            }
            self.shards[shard].handle_closed(conn, Why::Lost, self.now);
        }
        moved
    }

    fn write(&mut self, end: usize) {
        let End { shard, conn, is_stalled, ref mut received, .. } = self.ends[end];
        let bytes = if is_stalled { Vec::new() } else { self.shards[shard].outbox(conn).concat() };
        received.extend_from_slice(&bytes);
        self.shards[shard].handle_written(conn, bytes.len(), self.now);
    }

    /// From now on nothing goes from shard to shard.
    pub(crate) fn hold_batches(&mut self) {
        self.are_batches_held = true;
    }

    /// From now on every inbox is full.
    pub(crate) fn refuse_batches(&mut self) {
        self.are_batches_refused = true;
    }

    /// And now it does again, or has room again.
    pub(crate) fn release_batches(&mut self) {
        self.are_batches_held = false;
        self.are_batches_refused = false;
        self.settle();
    }

    fn carry_batches(&mut self, from: usize) -> bool {
        let mut moved = false;
        if self.are_batches_held {
            return false;
        }
        for to in 0..self.shards.len() {
            if self.are_batches_refused {
                if let Some(batch) = self.shards[from].poll_batch(to) {
                    self.shards[from].handle_batch_refused(to, batch);
                }
                continue;
            }
            while let Some(batch) = self.shards[from].poll_batch(to) {
                moved = true;
                self.crossed += batch.size();
                self.shards[to].handle_batch(&batch, self.now).unwrap();
            }
        }
        moved
    }
}
