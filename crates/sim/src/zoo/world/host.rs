//! The broker's side: shards with their loops, and the sockets between them and the clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_control::order::{ReadOrder, ReadPlace, Served};
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::persist::SavedRhythm;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Reading, Shard, Then, shard_of};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{Decoded, Limits, Packet, Sender, Version, decode};

use super::super::crowd::ClientIdentity;
use super::super::model::ZooScenario;
use super::SOCKET_DOWN_BYTES;

/// Units of a turn, at least.
const UNITS_MIN: u32 = 8;
const LISTENER: &str = "mqtt";
/// Publishers that are looked at at a time.
const PLACES: u32 = 1000;

/// The two directions of a connection.
#[derive(Debug, Default)]
pub(super) struct HostConnection {
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
    /// Since when its bytes may have come, and when it was last known to be read dry.
    silent_at: Timestamp,
    dry_at: Timestamp,
    /// While it waits to be read in order.
    place: Option<ReadPlace>,
    /// The socket took less than there was.
    is_full: bool,
}

struct Loop {
    shard: Shard,
    /// Connections that became ready, and those that are read in order because a turn could not read everybody.
    ready: Vec<ConnId>,
    order: ReadOrder,
    /// Clients by the place of their connection.
    clients: Vec<Option<usize>>,
    /// Units of work that may be done; below zero while more was done than there was time for.
    credit: f64,
    paused: Vec<ConnId>,
    /// Sockets that have room again.
    writable: Vec<ConnId>,
}

pub(super) struct ZooHost {
    loops: Vec<Loop>,
    capacity: f64,
    pub(super) ends: Vec<HostConnection>,
    /// Clients that were cut off in this turn.
    pub(super) cut: Vec<usize>,
    /// Clients to whom something was written.
    heard: BTreeSet<usize>,
    /// When the loops turned last, and when they looked at their sockets.
    turned_ns: u64,
    looked_at: Timestamp,
}

impl ZooHost {
    pub(super) fn new(scenario: &ZooScenario, settings: Settings, clients: usize) -> Self {
        let (count, settings) = (usize::from(scenario.shards.max(1)), Arc::new(settings));
        let a_loop = |index| Loop {
            shard: Shard::new(index, count, Arc::clone(&settings), Arc::new(Open), 7),
            ready: Vec::new(),
            order: ReadOrder::default(),
            clients: Vec::new(),
            credit: 0.0,
            paused: Vec::new(),
            writable: Vec::new(),
        };
        Self {
            loops: (0..count).map(a_loop).collect(),
            capacity: scenario.capacity,
            ends: (0..clients).map(|_| HostConnection::default()).collect(),
            cut: Vec::new(),
            heard: BTreeSet::new(),
            turned_ns: 0,
            looked_at: Timestamp::ZERO,
        }
    }

    /// A client comes; the first packet is its CONNECT. False if it is not let in.
    pub(super) fn connect(&mut self, client: usize, who: &ClientIdentity, bytes: &[u8], now: u64) -> bool {
        let limits = Limits::default().with_sender(Sender::Client);
        let Ok(Decoded::Packet { packet: Packet::Connect(connect), consumed }) = decode(bytes, Version::V5, &limits)
        else {
            return false;
        };
        let [network, host] = who.address;
        let identity = Identity {
            user: who.user.map(Into::into),
            // The addresses that the same clients have on sockets: what is learned here is known there.
            peer: format!("127.1.{network}.{host}:{}", 1024 + client).into(),
            listener: LISTENER,
            roles: None,
            claims: None,
        };
        let shard = shard_of(&who.id, self.loops.len());
        let a_loop = &mut self.loops[shard];
        let hello = MqttHello { connect: &connect, client_id: &who.id, identity };
        let Some(conn) = a_loop.shard.handle_connect(&hello, Timestamp::from_nanos(now)) else { return false };
        let place = conn.index as usize;
        if a_loop.clients.len() <= place {
            a_loop.clients.resize(place + 1, None);
        }
        a_loop.clients[place] = Some(client);
        self.ends[client] =
            HostConnection { conn: Some(conn), shard, up: bytes[consumed..].to_vec(), ..HostConnection::default() };
        self.queue(client);
        true
    }

    /// A client drops its connection.
    pub(super) fn disconnect(&mut self, client: usize, now: u64) {
        let end = std::mem::take(&mut self.ends[client]);
        if let Some(conn) = end.conn {
            let a_loop = &mut self.loops[end.shard];
            if let Some(place) = end.place {
                a_loop.order.leave(place);
            }
            a_loop.clients[conn.index as usize] = None;
            a_loop.shard.handle_closed(conn, Why::Lost, Timestamp::from_nanos(now));
        }
    }

    /// A client has something for the loop to read.
    pub(super) fn queue(&mut self, client: usize) {
        let end = &mut self.ends[client];
        let is_ready = end.up.len() >= end.at_least.max(1) && !end.is_queued && !end.is_paused;
        let Some(conn) = end.conn.filter(|_| is_ready) else { return };
        end.is_queued = true;
        // It was silent when the loop looked last.
        end.silent_at = end.silent_at.max(self.looked_at);
        end.dry_at = end.silent_at;
        self.loops[end.shard].ready.push(conn);
    }

    /// A client has taken something: its socket has room again.
    pub(super) fn on_taken(&mut self, client: usize) {
        let end = &mut self.ends[client];
        if let Some(conn) = end.conn.filter(|_| end.is_full && end.down.len() < SOCKET_DOWN_BYTES / 2) {
            end.is_full = false;
            self.loops[end.shard].writable.push(conn);
        }
    }

    pub(super) fn take_heard(&mut self, into: &mut BTreeSet<usize>) {
        into.append(&mut self.heard);
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.heard.is_empty()
            || self.loops.iter().any(|it| !it.order.is_empty() || !it.ready.is_empty() || !it.writable.is_empty())
    }

    /// When a shard has something to do by itself.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let paused = self.loops.iter().any(|it| !it.paused.is_empty()).then_some(0);
        let timers = self.loops.iter().filter_map(|it| it.shard.poll_timeout());
        timers.map(Timestamp::as_nanos).chain(paused).min()
    }

    /// A tick begins. A loop that slept until now would have seen whatever came before it.
    pub(super) fn wake(&mut self, now: u64, tick_ns: u64) {
        self.looked_at = self.looked_at.max(Timestamp::from_nanos(now.saturating_sub(tick_ns)));
    }

    /// One turn of every loop.
    pub(super) fn turn(&mut self, now: u64, tick_ns: u64) {
        let ticks = now.saturating_sub(self.turned_ns).div_ceil(tick_ns).clamp(1, 1_000_000) as f64;
        self.turned_ns = now;
        let per_tick = self.capacity * tick_ns as f64 * 1e-9;
        for index in 0..self.loops.len() {
            let credit = &mut self.loops[index].credit;
            // Who had nothing to do has not saved that up.
            *credit = (*credit + per_tick * ticks).min(per_tick);
            self.loops[index].shard.turn(Timestamp::from_nanos(now));
            let units = (per_tick as u32).max(UNITS_MIN);
            self.read_all(index, units, Timestamp::from_nanos(now));
            self.resume(index);
        }
        self.looked_at = Timestamp::from_nanos(now);
        self.exchange(now);
        for index in 0..self.loops.len() {
            self.write(index, now);
            self.close(index, now);
            while self.loops[index].shard.poll_event().is_some() {}
        }
    }

    /// As the broker's loop does: while every turn reads everybody dry, whoever is ready is read as it comes; when a turn
    /// has left somebody unread, the next ones ask who is next. A turn is as long as a tick.
    fn read_all(&mut self, index: usize, units: u32, now: Timestamp) {
        let ready = std::mem::take(&mut self.loops[index].ready);
        let is_orderly = !self.loops[index].order.is_empty();
        for conn in ready {
            let Some(client) = self.client(index, conn) else { continue };
            if is_orderly || self.loops[index].credit <= 0.0 {
                self.wait(index, client, 0, now);
            } else {
                let (used, has_more) = self.read(index, client, (units / 8).max(1), now);
                if has_more {
                    self.wait(index, client, used, now);
                }
            }
        }
        if is_orderly {
            self.loops[index].order.begin_turn(units, now);
            while self.loops[index].credit > 0.0 && self.visit(index, now) {}
        }
    }

    /// Reads one that waits; false if nobody does.
    fn visit(&mut self, index: usize, now: Timestamp) -> bool {
        let Loop { order, shard, clients, .. } = &mut self.loops[index];
        let ends = &self.ends;
        let client_at = |key: u32| clients.get(key as usize).copied().flatten();
        let entitled = |key: u32| {
            let end = client_at(key).map(|client| &ends[client]);
            end.and_then(|end| Some(shard.entitled(end.conn?, end.dry_at, now))).unwrap_or_default()
        };
        let Some(visit) = order.next(now, entitled) else { return false };
        let waiting = client_at(visit.key).filter(|client| ends[*client].place == Some(visit.place));
        let Some(client) = waiting.filter(|client| ends[*client].is_queued) else {
            order.served(visit.place, 1, Served::Dry, now);
            return true;
        };
        let (used, has_more) = self.read(index, client, visit.units, now);
        let end = &mut self.ends[client];
        let a_loop = &mut self.loops[index];
        let served = if let Some(conn) = end.conn.filter(|_| has_more) {
            Served::More(a_loop.shard.reading(conn, end.dry_at, now).standing)
        } else {
            end.place = None;
            Served::Dry
        };
        a_loop.order.served(visit.place, used, served, now);
        true
    }

    /// From now on it is read in order. `spent`: what it was just served without that.
    fn wait(&mut self, index: usize, client: usize, spent: u32, now: Timestamp) {
        let end = &mut self.ends[client];
        let Some(conn) = end.conn.filter(|_| end.place.is_none() && end.is_queued) else { return };
        let a_loop = &mut self.loops[index];
        let Reading { parent, standing } = a_loop.shard.reading(conn, end.dry_at, now);
        end.place = Some(a_loop.order.wait(conn.index, parent, standing, spent, now));
    }

    /// Reads one that is queued: what that took, and whether there is more.
    fn read(&mut self, index: usize, client: usize, units: u32, now: Timestamp) -> (u32, bool) {
        let end = &mut self.ends[client];
        let Some(conn) = end.conn else { return (0, false) };
        let a_loop = &mut self.loops[index];
        let portion = Portion { since: end.silent_at, dry_at: end.dry_at, units };
        let progress = a_loop.shard.handle_portion(conn, &end.up, &portion, now);
        end.up.drain(..progress.consumed.min(end.up.len()));
        (end.at_least, end.silent_at) = (progress.at_least, now);
        a_loop.credit -= f64::from(progress.units);
        let has_more = progress.then == Then::Continue && end.up.len() >= end.at_least.max(1);
        end.is_queued = has_more;
        if progress.then == Then::Pause {
            end.is_paused = true;
            a_loop.paused.push(conn);
        }
        (progress.units, has_more)
    }

    /// The client of a connection that is still there.
    fn client(&self, index: usize, conn: ConnId) -> Option<usize> {
        let client = self.loops[index].clients.get(conn.index as usize).copied().flatten()?;
        (self.ends[client].conn == Some(conn)).then_some(client)
    }

    fn resume(&mut self, index: usize) {
        let paused = std::mem::take(&mut self.loops[index].paused);
        for conn in paused {
            let Some(client) = self.client(index, conn) else { continue };
            if self.loops[index].shard.may_read(conn) {
                let end = &mut self.ends[client];
                end.is_paused = false;
                if end.up.len() >= end.at_least.max(1) {
                    end.is_queued = true;
                    self.loops[index].ready.push(conn);
                }
            } else {
                self.loops[index].paused.push(conn);
            }
        }
    }

    fn exchange(&mut self, now: u64) {
        for from in 0..self.loops.len() {
            for to in 0..self.loops.len() {
                while let Some(batch) = self.loops[from].shard.poll_batch(to) {
                    let taken = self.loops[to].shard.handle_batch(&batch, Timestamp::from_nanos(now));
                    debug_assert!(taken.is_ok(), "shards of one broker understand each other: {taken:?}");
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
            let room = SOCKET_DOWN_BYTES.saturating_sub(end.down.len());
            let part = &slice[..slice.len().min(room)];
            end.down.extend_from_slice(part);
            taken += part.len();
        }
        end.is_full = taken < total;
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
                let end = std::mem::take(&mut self.ends[client]);
                if let Some(place) = end.place {
                    self.loops[index].order.leave(place);
                }
                self.cut.push(client);
            }
        }
    }

    /// What was learned of publishers.
    pub(super) fn learned(&self, now: Timestamp) -> Vec<SavedRhythm> {
        let mut all = Vec::new();
        for a_loop in &self.loops {
            let mut next = Some(0);
            while let Some(from) = next {
                let (part, then) = a_loop.shard.rhythms(from, PLACES, Timestamp::ZERO, now);
                all.extend(part);
                next = then;
            }
        }
        all
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
