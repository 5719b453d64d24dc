//! Connections that the core knows: read, written and closed.

use mio::event::Event;
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Progress, ReadOrder, Shard, Then};

use super::connection::{Connection, End, Reading};
use super::read_queue::bytes_at_once;
use super::{ShardThread, token};
use crate::limits::LINGER;
use crate::link::Source;
use crate::visitor::Visitor;

impl ShardThread {
    /// A socket is ready. Events may be stale or late; all they do is make us try.
    pub(super) fn on_connection_event(&mut self, index: usize, event: &Event) {
        let Some(connection) = self.connections.at(index) else { return };
        let id = connection.id;
        if event.is_read_closed() {
            connection.end = connection.end.max(End::Announced);
        }
        if event.is_writable() && connection.blocked {
            connection.blocked = false;
            self.write_next.push(id);
        }
        if event.is_error() && connection.reading == Reading::Paused {
            // A reset while nobody reads. Those that are read find it themselves, after what came before it.
            self.lose(id);
        } else if (event.is_readable() || event.is_read_closed()) && connection.reading == Reading::Idle {
            connection.reading = Reading::Queued;
            connection.silent_at = connection.silent_at.max(self.silent_at);
            self.ready.push(id, self.shard.read_order(id));
        }
    }

    /// Those that became ready, the important first. Who finds the budget spent goes on waiting, in line.
    pub(super) fn read_ready(&mut self) {
        for order in ReadOrder::ALL {
            while self.read_left > self.ready.reserved_behind(order)
                && let Some(id) = self.ready.pop(order)
            {
                self.read_from_queue(id);
            }
        }
        self.read_next.append(&mut self.ready);
    }

    /// The first so many of those that had more to read than one turn allows, in order, as far as the budget goes.
    pub(super) fn read_queued(&mut self, lens: [usize; ReadOrder::ALL.len()]) {
        for (order, len) in ReadOrder::ALL.into_iter().zip(lens) {
            for _ in 0..len {
                if self.read_left <= self.read_next.reserved_behind(order) {
                    break;
                }
                let Some(id) = self.read_next.pop(order) else { break };
                self.served += 1;
                self.read_from_queue(id);
            }
        }
    }

    fn read_from_queue(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get(id)
            && connection.reading == Reading::Queued
        {
            connection.reading = Reading::Idle;
            self.read(id);
        }
    }

    /// Reads a connection in the next turn, or in this one if its turn has not come.
    pub(super) fn queue_read(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get(id)
            && matches!(connection.reading, Reading::Idle | Reading::Paused)
        {
            connection.reading = Reading::Queued;
            self.read_next.push(id, self.shard.read_order(id));
        }
    }

    /// One bounded read, and what the core makes of it.
    fn read(&mut self, id: ConnId) {
        if self.read_left == 0 {
            self.queue_read(id);
            return;
        }
        let Some(connection) = self.connections.get(id) else { return };
        let most = bytes_at_once(self.shard.level(), self.shard.read_order(id));
        let Ok((filled, received)) = connection.fill(&mut self.scratch, most) else {
            self.lose(id);
            return;
        };
        if received.source == Source::Ended {
            connection.end = End::Reached;
        }
        self.read_left = self.read_left.saturating_sub(received.bytes);
        if connection.link.wants_write() {
            self.write_next.push(id);
        }
        // After the bytes were read and before the core sees them: whoever sent them may have acted on an answer of
        // another shard, which was written after its batch was put in here.
        self.take_batches();
        let Some(connection) = self.connections.get(id) else { return };
        let bytes = connection.bytes(filled, &self.scratch);
        if bytes.is_empty() {
            connection.keep_all(filled, &self.scratch);
            if received.bytes > 0 {
                let kept = connection.kept();
                self.shard.handle_partial(id, kept, self.now);
            }
            self.after_read(id, received.source, Then::Continue);
            return;
        }
        let since = connection.silent_at;
        let progress @ Progress { then, .. } = self.shard.handle_input_since(id, bytes, since, self.now);
        connection.silent_at = self.now;
        connection.keep(filled, &self.scratch, progress);
        self.after_read(id, received.source, then);
    }

    fn after_read(&mut self, id: ConnId, source: Source, then: Then) {
        self.connections.count(id);
        let Some(connection) = self.connections.get(id) else { return };
        match then {
            Then::Close => stop_reading(connection),
            Then::Pause => {
                connection.reading = Reading::Paused;
                self.paused.push(id);
            }
            Then::Continue => {
                let more = match source {
                    Source::More => connection.end != End::Reached,
                    Source::Short => connection.end == End::Announced,
                    Source::Drained | Source::Ended => false,
                };
                if connection.has_work() || more {
                    self.queue_read(id);
                } else if connection.end == End::Reached {
                    self.lose(id);
                }
            }
        }
    }

    /// Those that the core did not want to read may be read again.
    pub(super) fn resume_paused(&mut self) {
        let mut paused = core::mem::take(&mut self.paused);
        paused.retain(|&id| {
            if !self.shard.may_read(id) {
                return self.connections.get(id).is_some();
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
        self.turn_number = self.turn_number.wrapping_add(1);
        for id in core::mem::take(&mut self.write_next) {
            self.write(id);
        }
        while let Some(id) = self.shard.poll_write() {
            self.write(id);
        }
    }

    fn write(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return };
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
                let closing = connection.closing;
                if sent.taken > 0 || sent.blocked {
                    self.shard.handle_written(id, sent.taken, self.now);
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
                self.shard.handle_closed(id, Why::Lost, self.now);
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
    fn finish_if_written(&mut self, id: ConnId) -> bool {
        let is_written = self.shard.outbox(id).iter().all(|slice| slice.is_empty());
        if !is_written || self.connections.get(id).is_none_or(|connection| connection.blocked) {
            return false;
        }
        let Some(connection) = self.connections.remove(id) else { return false };
        self.shard.handle_closed(id, Why::Lost, self.now);
        let mut link = connection.link;
        link.finish();
        if connection.end == End::Reached || link.drain(&mut self.scratch) {
            return true;
        }
        let key = self.visitors.next_key();
        if link.register(self.poll.registry(), token::visitor(key.index)).is_ok() {
            self.visitors.insert(Visitor::leaving(link), self.now + LINGER);
        }
        true
    }

    /// The peer, or its socket, is gone, or has had time enough.
    fn lose(&mut self, id: ConnId) {
        if let Some(mut connection) = self.connections.remove(id) {
            self.shard.handle_closed(id, Why::Lost, self.now);
            // A layer may have words for it: a TLS alert, a WebSocket close.
            connection.link.say_goodbye();
        }
    }
}

fn stop_reading(connection: &mut Connection) {
    connection.reading = Reading::Stopped;
    connection.forget_input();
}
