//! Connections that the core knows: read, written and closed.
//!
//! *Reading.* While every turn reads everybody dry, whoever is ready is read, as it comes. When a turn has left somebody
//! unread, the next ones ask `tidegate_control::order` who is next and how much of it: bytes that are read from a socket
//! and not handled yet wait here, in order, a read's worth at most.

use mio::event::Event;
use tidegate_control::order::{Served, Visit};
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Portion, Progress, Reading as Standing, Shard, Then};
use tidegate_face_mqtt::MqttShard;
use tidegate_guard::GuardShard;

use super::connection::{ReadState, SocketConnection, Spoken, StreamEnd};
use super::{ShardThread, token};
use crate::handshake::Handshake;
use crate::limits::{
    BYTES_OF_A_UNIT, LINGER, READ_BYTES_MAX, READ_BYTES_MIN, SILENCE, TURN_READ_BYTES_MAX, TURN_UNITS_MAX, UNIT_BYTES,
};
use crate::link::SourceState;

/// What reading a connection came to.
struct Read {
    /// Units of work.
    units: u32,
    /// There may be more to read now.
    has_more: bool,
}

impl Read {
    const NOTHING: Self = Self { units: 0, has_more: false };
}

impl ShardThread {
    /// A socket is ready. Events may be stale or late; all they do is make us try.
    pub(super) fn on_connection_event(&mut self, index: usize, event: &Event) {
        let Some(connection) = self.connections.at(index) else { return };
        let id = connection.id;
        if event.is_read_closed() {
            connection.end = connection.end.max(StreamEnd::Announced);
        }
        if event.is_writable() && connection.blocked {
            connection.blocked = false;
            self.write_next.push(id);
        }
        if event.is_error() && connection.reading == ReadState::Paused {
            // A reset while nobody reads. Those that are read find it themselves, after what came before it.
            self.lose(id);
        } else if (event.is_readable() || event.is_read_closed()) && connection.reading == ReadState::Idle {
            connection.reading = ReadState::Queued;
            connection.silent_at = connection.silent_at.max(self.silent_at);
            connection.dry_at = connection.silent_at;
            self.ready.push(id);
        }
    }

    /// Everybody who is ready, if there is time for everybody; else in order.
    pub(super) fn read_all(&mut self) {
        let ready = core::mem::take(&mut self.ready);
        let units_max = self.units_of_turn();
        if self.order.is_empty() && units_max == TURN_UNITS_MAX {
            self.read_left = TURN_READ_BYTES_MAX;
            for &id in &ready {
                if self.read_left == 0 {
                    self.wait_to_be_read(id, 0);
                } else if self.is_queued(id) {
                    let read = self.read(id, u32::MAX, READ_BYTES_MAX);
                    if read.has_more {
                        self.wait_to_be_read(id, read.units);
                    }
                }
            }
        } else {
            for &id in &ready {
                self.wait_to_be_read(id, 0);
            }
            self.read_in_order(units_max);
        }
        // Its memory is used again.
        self.ready = ready;
        self.ready.clear();
    }

    fn read_in_order(&mut self, units_max: u32) {
        self.order.begin_turn(units_max, self.now);
        let mut left = units_max;
        while left > 0 {
            let (connections, shard, now) = (&self.connections, &self.shard, self.now);
            let entitled = |key: u32| {
                let connection = connections.peek(key as usize);
                connection.map_or(0, |connection| shard.entitled(connection.id, connection.dry_at, now))
            };
            let Some(visit) = self.order.next(now, entitled) else { break };
            left = left.saturating_sub(self.visit(&visit).max(1));
        }
    }

    /// Serves one that waits, and says where it stands then. The answer is what that took.
    fn visit(&mut self, visit: &Visit) -> u32 {
        let connection = self.connections.at(visit.key as usize);
        let Some(connection) = connection.filter(|it| it.place == Some(visit.place) && it.reading == ReadState::Queued)
        else {
            self.order.served(visit.place, 1, Served::Dry, self.now);
            return 1;
        };
        let (id, dry_at) = (connection.id, connection.dry_at);
        self.meter.on_visit(visit.order, visit.waited, self.now.since(dry_at));
        let most = (visit.units as usize).saturating_mul(UNIT_BYTES).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        let read = self.read(id, visit.units, most);
        let served = if read.has_more {
            Served::More(self.shard.reading(id, dry_at, self.now).standing)
        } else {
            if let Some(connection) = self.connections.get(id) {
                connection.place = None;
            }
            self.shard.set_unread(id, false);
            Served::Dry
        };
        self.order.served(visit.place, read.units, served, self.now);
        read.units
    }

    /// From now on it is read in order. `spent`: what it was just served without that.
    fn wait_to_be_read(&mut self, id: ConnId, spent: u32) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.reading != ReadState::Queued || connection.place.is_some() {
            return;
        }
        let Standing { parent, standing } = self.shard.reading(id, connection.dry_at, self.now);
        connection.place = Some(self.order.wait(id.index, parent, standing, spent, self.now));
        self.shard.set_unread(id, true);
    }

    fn is_queued(&mut self, id: ConnId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.reading == ReadState::Queued)
    }

    /// Reads a connection in the next turn, or in this one if its turn has not come.
    pub(super) fn queue_read(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get(id)
            && matches!(connection.reading, ReadState::Idle | ReadState::Paused)
        {
            connection.reading = ReadState::Queued;
            self.ready.push(id);
        }
    }

    /// One bounded read of one that is queued, and what the core makes of so many units of it. Whether it is queued still
    /// is whether there is more.
    fn read(&mut self, id: ConnId, units: u32, most: usize) -> Read {
        if self.is_clogged(id) {
            // The broker behind takes no more of it: neither is it read.
            if let Some(connection) = self.connections.get(id) {
                connection.reading = ReadState::Paused;
                self.paused.push(id);
            }
            return Read::NOTHING;
        }
        let Some(connection) = self.connections.get(id) else { return Read::NOTHING };
        let Ok((filled, received)) = connection.fill(&mut self.scratch, most) else {
            self.lose(id);
            return Read::NOTHING;
        };
        if received.source == SourceState::Ended {
            connection.end = StreamEnd::Reached;
        }
        self.read_left = self.read_left.saturating_sub(received.bytes);
        // What is read of a packet that is not whole yet is work, too.
        let partial = (received.bytes / BYTES_OF_A_UNIT) as u32;
        if connection.link.wants_write() {
            self.write_next.push(id);
        }
        if received.bytes > 0 && connection.upstream.is_some() {
            self.note_heard(id);
        }
        // After the bytes were read and before the core sees them: whoever sent them may have acted on an answer of
        // another shard, which was written after its batch was put in here.
        self.take_batches();
        let Some(connection) = self.connections.get(id) else { return Read::NOTHING };
        let bytes = connection.bytes(filled, &self.scratch);
        if bytes.is_empty() {
            connection.keep_all(filled, &self.scratch);
            if received.bytes > 0 {
                let kept = connection.kept();
                self.shard.handle_partial(id, kept, self.now);
            }
            return Read { units: partial, has_more: self.after_read(id, received.source, Then::Continue) };
        }
        let portion = Portion { since: connection.silent_at, dry_at: connection.dry_at, units };
        let progress = match (connection.upstream, &self.shared.guard, connection.spoken) {
            (Some(upstream), Some(guard), _) => {
                let (progress, passed) = self.shard.pass_portion(id, bytes, &portion, &guard.origins, self.now);
                self.upstreams.take(upstream, &bytes[..passed]);
                progress
            }
            (_, _, Spoken::Http) => {
                let web = self.web.get_or_insert_default();
                web.handle_portion(&mut self.shard, &self.rules, id, bytes, &portion, self.now)
            }
            (_, _, Spoken::Amqp) => {
                let amqp = self.amqp.get_or_insert_default();
                amqp.handle_portion(&mut self.shard, id, bytes, &portion, self.now)
            }
            _ => self.shard.handle_portion(id, bytes, &portion, self.now),
        };
        let Progress { then, units, .. } = progress;
        connection.silent_at = self.now;
        connection.keep(filled, &self.scratch, progress);
        Read { units: if units == 0 { partial } else { units }, has_more: self.after_read(id, received.source, then) }
    }

    /// Whether there may be more to read now.
    fn after_read(&mut self, id: ConnId, source: SourceState, then: Then) -> bool {
        self.connections.count(id);
        let Some(connection) = self.connections.get(id) else { return false };
        match then {
            Then::Close => stop_reading(connection),
            Then::Pause => {
                connection.reading = ReadState::Paused;
                self.paused.push(id);
            }
            Then::Continue => {
                let more = match source {
                    SourceState::More => connection.end != StreamEnd::Reached,
                    SourceState::Short => connection.end == StreamEnd::Announced,
                    SourceState::Drained | SourceState::Ended => false,
                };
                if connection.has_work() || more {
                    return true;
                }
                connection.reading = ReadState::Idle;
                if connection.end == StreamEnd::Reached && !self.answer_and_close(id) {
                    self.lose(id);
                }
            }
        }
        false
    }

    /// Those that the core did not want to read may be read again.
    pub(super) fn resume_paused(&mut self) {
        let mut paused = core::mem::take(&mut self.paused);
        self.upstreams.look_at = None;
        paused.retain(|&id| {
            if !self.shard.may_read(id) || self.is_clogged(id) {
                let upstream = self.connections.get(id).map(|connection| connection.upstream);
                if let Some(Some(upstream)) = upstream {
                    self.keep_alive_behind(id, upstream);
                }
                return upstream.is_some();
            }
            self.queue_read(id);
            false
        });
        self.paused = paused;
    }

    /// One vectored write for each connection that has something new.
    pub(super) fn write_all(&mut self) {
        if !self.shard.may_write() {
            return;
        }
        // After everything was decided: what was decided by who was asleep is not said. Once is enough for all sockets: who falls asleep between
        // here and the last of them says late what was decided while nobody else could have the log.
        let may_speak = self.shared.may_speak();
        self.silenced = (!may_speak).then(|| self.now + SILENCE);
        if !may_speak {
            return;
        }
        self.turn_number = self.turn_number.wrapping_add(1);
        for id in core::mem::take(&mut self.write_next) {
            self.write(id);
        }
        while let Some(id) = self.shard.poll_write() {
            self.write(id);
        }
    }

    /// Those that have no socket of their own, or none any more.
    fn write_nowhere(&mut self, id: ConnId) {
        if !self.write_stream(id) {
            self.write_datagrams(id);
            self.write_secure_datagrams(id);
        }
    }

    fn write(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return self.write_nowhere(id) };
        if connection.blocked {
            return;
        }
        if connection.written_in == self.turn_number {
            // Written, and filled again from its queue: others first.
            if self.shard.outbox(id).iter().any(|slice| !slice.is_empty()) {
                self.write_next.push(id);
            }
            return;
        }
        connection.written_in = self.turn_number;
        match connection.link.send(self.shard.outbox(id)) {
            Ok(sent) => {
                connection.blocked = sent.blocked;
                if sent.blocked {
                    connection.link.keep_unsent(self.shard.room_ahead(id, self.now));
                }
                let closing = connection.closing;
                if sent.taken > 0 || sent.blocked {
                    self.shard.handle_written(id, sent.taken, self.now);
                    self.note_written(id, sent.taken);
                }
                if closing {
                    self.finish_if_written(id);
                }
            }
            Err(_) => self.lose(id),
        }
    }

    /// Connections that the core wants closed.
    pub(super) fn close_all(&mut self) {
        while let Some(id) = self.shard.poll_close() {
            let Some(connection) = self.connections.get(id) else {
                if !self.close_datagrams(id) && !self.close_secure_datagrams(id) {
                    self.shard.handle_closed(id, Why::Lost, self.now);
                    self.forget_request(id);
                }
                continue;
            };
            connection.closing = true;
            stop_reading(connection);
            if !self.finish_if_written(id) {
                self.closings.push_back((self.now + Shard::CLOSE_TIMEOUT, id));
            }
        }
        while let Some(&(deadline, id)) = self.closings.front() {
            if deadline > self.now && self.connections.get(id).is_some() {
                break;
            }
            self.closings.pop_front();
            self.lose(id);
        }
    }

    /// Says goodbye when the last byte is out.
    pub(super) fn finish_if_written(&mut self, id: ConnId) -> bool {
        let is_written = self.shard.outbox(id).iter().all(|slice| slice.is_empty());
        if !is_written || self.connections.get(id).is_none_or(|connection| connection.blocked) {
            return false;
        }
        let Some(connection) = self.connections.remove(id) else { return false };
        self.leave_order(&connection);
        self.leave_upstream(&connection);
        self.forget(&connection);
        let mut link = connection.link;
        link.finish();
        if connection.end == StreamEnd::Reached || link.drain(&mut self.scratch) {
            return true;
        }
        let key = self.handshakes.next_key();
        if link.register(self.poll.registry(), token::handshake(key.index)).is_ok() {
            self.handshakes.insert(Handshake::leaving(link), self.now + LINGER);
        }
        true
    }

    /// The peer, or its socket, is gone, or has had time enough.
    fn lose(&mut self, id: ConnId) {
        if let Some(mut connection) = self.connections.remove(id) {
            self.leave_order(&connection);
            self.leave_upstream(&connection);
            if connection.closing || connection.spoken != Spoken::Http || !self.keep_stream(id) {
                self.forget(&connection);
            }
            // A layer may have words for it: a TLS alert, a WebSocket close.
            connection.link.say_goodbye();
        }
    }

    /// The socket is gone, and so is the connection.
    fn forget(&mut self, connection: &SocketConnection) {
        // Who speaks HTTP has no other way to say goodbye; and what a client of a guard says of it goes to the broker behind.
        let has_left = connection.upstream.is_some() && self.shard.has_said_goodbye(connection.id);
        let why = if connection.spoken == Spoken::Http || has_left { Why::Goodbye } else { Why::Lost };
        self.shard.handle_closed(connection.id, why, self.now);
        match connection.spoken {
            Spoken::Mqtt => {}
            Spoken::Http => self.forget_request(connection.id),
            Spoken::Amqp => self.forget_container(connection.id),
        }
    }

    pub(super) fn leave_order(&mut self, connection: &SocketConnection) {
        if let Some(place) = connection.place {
            self.order.leave(place);
        }
    }
}

fn stop_reading(connection: &mut SocketConnection) {
    connection.reading = ReadState::Stopped;
    connection.forget_input();
}
