//! The broker's side: shards with their loops, and the sockets between them and the clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Hello, Shard, Then, shard_of};
use tidegate_wire_mqtt::{Decoded, Limits, Packet, Sender, Version, decode};

use super::super::crowd::Who;
use super::super::model::Scenario;
use super::line::Line;

/// Bytes that lie in the sockets towards a client that does not read, where nothing can be overtaken: little, because what is
/// to be seen here is the order of the broker's own queue.
const DOWN_BYTES: usize = 4 * 1024;
/// Work of a copy.
const COPY_UNITS: f64 = 1.0 / 8.0;
const LISTENER: &str = "mqtt";

/// The two directions of a connection.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) conn: Option<ConnId>,
    shard: usize,
    /// Bytes towards the broker that it has not read.
    pub(super) up: Vec<u8>,
    /// Bytes towards the client that it has not taken.
    pub(super) down: Vec<u8>,
    /// It takes more from then on.
    pub(super) again_ns: Option<u64>,
    /// So many unread bytes are worth reading.
    at_least: usize,
    is_queued: bool,
    is_paused: bool,
    /// The socket took less than there was.
    is_full: bool,
}

struct Loop {
    shard: Shard,
    line: Line,
    /// Clients by the place of their connection.
    clients: Vec<Option<usize>>,
    /// Units of work that may be done; below zero while more was done than there was time for.
    credit: f64,
    paused: Vec<ConnId>,
    /// Sockets that have room again.
    writable: Vec<ConnId>,
}

pub(super) struct Host {
    loops: Vec<Loop>,
    capacity: f64,
    pub(super) ends: Vec<End>,
    /// Clients that were cut off in this turn.
    pub(super) cut: Vec<usize>,
    /// Clients to whom something was written.
    heard: BTreeSet<usize>,
    idle_ns: u64,
}

impl Host {
    pub(super) fn new(scenario: &Scenario, settings: Settings, clients: usize) -> Self {
        let (count, settings) = (usize::from(scenario.shards.max(1)), Arc::new(settings));
        let a_loop = |index| Loop {
            shard: Shard::new(index, count, Arc::clone(&settings), Arc::new(Open), 7),
            line: Line::default(),
            clients: Vec::new(),
            credit: 0.0,
            paused: Vec::new(),
            writable: Vec::new(),
        };
        Self {
            loops: (0..count).map(a_loop).collect(),
            capacity: scenario.capacity,
            ends: (0..clients).map(|_| End::default()).collect(),
            cut: Vec::new(),
            heard: BTreeSet::new(),
            idle_ns: 0,
        }
    }

    /// A client comes; the first packet is its CONNECT. False if it is not let in.
    pub(super) fn connect(&mut self, client: usize, who: &Who, bytes: &[u8], now: u64) -> bool {
        let limits = Limits::default().with_sender(Sender::Client);
        let Ok(Decoded::Packet { packet: Packet::Connect(connect), consumed }) = decode(bytes, Version::V5, &limits)
        else {
            return false;
        };
        let [network, host] = who.address;
        let identity = Identity {
            user: who.user.map(Into::into),
            peer: format!("10.1.{network}.{host}:{}", 1024 + client).into(),
            listener: LISTENER,
        };
        let shard = shard_of(&who.id, self.loops.len());
        let a_loop = &mut self.loops[shard];
        let hello = Hello { connect: &connect, client_id: &who.id, identity };
        let Some(conn) = a_loop.shard.handle_connect(&hello, Timestamp::from_nanos(now)) else { return false };
        let place = conn.index as usize;
        if a_loop.clients.len() <= place {
            a_loop.clients.resize(place + 1, None);
        }
        a_loop.clients[place] = Some(client);
        self.ends[client] = End { conn: Some(conn), shard, up: bytes[consumed..].to_vec(), ..End::default() };
        self.queue(client, now);
        true
    }

    /// A client drops its connection.
    pub(super) fn disconnect(&mut self, client: usize, now: u64) {
        let end = std::mem::take(&mut self.ends[client]);
        if let Some(conn) = end.conn {
            let a_loop = &mut self.loops[end.shard];
            a_loop.clients[conn.index as usize] = None;
            a_loop.shard.handle_closed(conn, Why::Lost, Timestamp::from_nanos(now));
        }
    }

    /// A client has something for the loop to read.
    pub(super) fn queue(&mut self, client: usize, _now: u64) {
        let end = &mut self.ends[client];
        let is_ready = end.up.len() >= end.at_least.max(1) && !end.is_queued && !end.is_paused;
        let Some(conn) = end.conn.filter(|_| is_ready) else { return };
        end.is_queued = true;
        let a_loop = &mut self.loops[end.shard];
        a_loop.line.push(conn);
    }

    /// A client has taken something: its socket has room again.
    pub(super) fn on_taken(&mut self, client: usize) {
        let end = &mut self.ends[client];
        if let Some(conn) = end.conn.filter(|_| end.is_full && end.down.len() < DOWN_BYTES / 2) {
            end.is_full = false;
            self.loops[end.shard].writable.push(conn);
        }
    }

    pub(super) fn take_heard(&mut self, into: &mut BTreeSet<usize>) {
        into.append(&mut self.heard);
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.heard.is_empty() || self.loops.iter().any(|it| !it.line.is_empty() || !it.writable.is_empty())
    }

    /// When a shard has something to do by itself.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let paused = self.loops.iter().any(|it| !it.paused.is_empty()).then_some(0);
        let timers = self.loops.iter().filter_map(|it| it.shard.poll_timeout());
        timers.map(Timestamp::as_nanos).chain(paused).min()
    }

    /// One turn of every loop.
    pub(super) fn turn(&mut self, now: u64, tick_ns: u64) {
        // Who had nothing to do has not saved that up.
        let ticks = now.saturating_sub(self.idle_ns).div_ceil(tick_ns).clamp(1, 1_000_000) as f64;
        self.idle_ns = now;
        let per_tick = self.capacity * tick_ns as f64 * 1e-9;
        for index in 0..self.loops.len() {
            let credit = &mut self.loops[index].credit;
            *credit = (*credit + per_tick * ticks).min(per_tick);
            self.loops[index].shard.turn(Timestamp::from_nanos(now));
            self.read(index, now);
            self.resume(index, now);
        }
        self.exchange(now);
        for index in 0..self.loops.len() {
            self.write(index, now);
            self.close(index, now);
            while self.loops[index].shard.poll_event().is_some() {}
        }
    }

    fn read(&mut self, index: usize, now: u64) {
        let a_loop = &mut self.loops[index];
        while a_loop.credit > 0.0
            && let Some((conn, bytes)) = a_loop.line.pop()
        {
            let Some(client) = a_loop.clients.get(conn.index as usize).copied().flatten() else { continue };
            let end = &mut self.ends[client];
            if end.conn != Some(conn) {
                continue;
            }
            end.is_queued = false;
            let most = bytes.max(end.at_least).min(end.up.len());
            let progress = a_loop.shard.handle_input(conn, &end.up[..most], Timestamp::from_nanos(now));
            let used = progress.consumed.min(end.up.len());
            a_loop.credit -= units(&end.up[..used]) + used as f64 / 1024.0;
            end.up.drain(..used);
            end.at_least = progress.at_least;
            match progress.then {
                Then::Pause => {
                    end.is_paused = true;
                    a_loop.paused.push(conn);
                }
                Then::Continue if end.up.len() >= end.at_least.max(1) => {
                    end.is_queued = true;
                    a_loop.line.push(conn);
                }
                Then::Continue | Then::Close => {}
            }
        }
    }

    fn resume(&mut self, index: usize, now: u64) {
        let paused = std::mem::take(&mut self.loops[index].paused);
        for conn in paused {
            let a_loop = &mut self.loops[index];
            let Some(client) = a_loop.clients.get(conn.index as usize).copied().flatten() else { continue };
            if self.ends[client].conn != Some(conn) {
                continue;
            }
            if a_loop.shard.may_read(conn) {
                self.ends[client].is_paused = false;
                self.queue(client, now);
            } else {
                a_loop.paused.push(conn);
            }
        }
    }

    fn exchange(&mut self, now: u64) {
        for from in 0..self.loops.len() {
            for to in 0..self.loops.len() {
                while let Some(batch) = self.loops[from].shard.poll_batch(to) {
                    self.loops[to].shard.handle_batch(&batch, Timestamp::from_nanos(now));
                }
            }
        }
    }

    fn write(&mut self, index: usize, now: u64) {
        let mut next = std::mem::take(&mut self.loops[index].writable);
        let mut rounds = 0;
        loop {
            let named = next.pop().or_else(|| self.loops[index].shard.poll_write());
            let Some(conn) = named else { return };
            self.write_one(index, conn, now);
            rounds += 1;
            // A shard that always has more to write would be a defect of it.
            if rounds > 100_000 {
                return;
            }
        }
    }

    fn write_one(&mut self, index: usize, conn: ConnId, now: u64) {
        let a_loop = &mut self.loops[index];
        let Some(client) = a_loop.clients.get(conn.index as usize).copied().flatten() else { return };
        let end = &mut self.ends[client];
        if end.conn != Some(conn) || end.is_full {
            return;
        }
        let mut taken = 0;
        let slices = a_loop.shard.outbox(conn);
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        for slice in slices {
            let room = DOWN_BYTES.saturating_sub(end.down.len());
            let part = &slice[..slice.len().min(room)];
            end.down.extend_from_slice(part);
            taken += part.len();
        }
        end.is_full = taken < total;
        a_loop.credit -= COPY_UNITS * taken as f64 / MEAN_COPY_BYTES;
        if taken > 0 {
            self.heard.insert(client);
        }
        if taken > 0 || end.is_full {
            a_loop.shard.handle_written(conn, taken, Timestamp::from_nanos(now));
        }
    }

    fn close(&mut self, index: usize, now: u64) {
        while let Some(conn) = self.loops[index].shard.poll_close() {
            let a_loop = &mut self.loops[index];
            a_loop.shard.handle_closed(conn, Why::Lost, Timestamp::from_nanos(now));
            let client = a_loop.clients.get_mut(conn.index as usize).and_then(Option::take);
            if let Some(client) = client.filter(|client| self.ends[*client].conn == Some(conn)) {
                self.ends[client] = End::default();
                self.cut.push(client);
            }
        }
    }

    /// Every message is somewhere.
    pub(super) fn check(&self) -> Result<(), String> {
        for a_loop in &self.loops {
            let wrong = |wrong| format!("a message is missing in the broker's ledger: {wrong:?}");
            a_loop.shard.stats().check().map_err(wrong)?;
        }
        Ok(())
    }
}

/// Small messages on the wire, by which copies are counted without being read again.
const MEAN_COPY_BYTES: f64 = 90.0;

/// Packets that these bytes are, one unit each.
fn units(mut bytes: &[u8]) -> f64 {
    let mut count = 0;
    while bytes.len() >= 2 {
        let (mut length, mut shift, mut at) = (0_usize, 0, 1);
        while let Some(byte) = bytes.get(at) {
            length |= usize::from(byte & 127) << shift;
            (shift, at) = (shift + 7, at + 1);
            if byte & 128 == 0 || shift > 21 {
                break;
            }
        }
        count += 1;
        bytes = bytes.get(at + length..).unwrap_or_default();
    }
    f64::from(count)
}
