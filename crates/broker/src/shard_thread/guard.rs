//! A guard at work: bytes in both directions, and the end. (`guard_arrival.rs` has the beginning.)
//!
//! What may pass, and when, is decided by the core and `tidegate_guard`; here are the sockets. What comes from behind is read
//! before what clients send: it is what makes room there.

use std::sync::Arc;

use mio::event::Event;
use tidegate_core::ConnId;
use tidegate_core::event::Why;
use tidegate_guard::{GuardShard, Handed, NextDown, PINGREQ, UNREAD_ENOUGH};
use tidegate_wire_mqtt::ReasonCode;

use super::ShardThread;
use super::connection::{ReadState, SocketConnection};
use super::upstream::{DownRead, UpstreamClient, UpstreamConnection};
use crate::guard::{Upstream, count};
use crate::limits::{
    DOWN_LOOK_BYTES, DOWN_TURN_BYTES_MAX, SCRATCH_BYTES, TURN_UNITS_MAX, UPSTREAM_ASK_TIMEOUT, UPSTREAM_LEAVE_TIMEOUT,
    UPSTREAM_PACKET_MAX, UPSTREAM_SHAKE_BYTES, UPSTREAM_STAYS,
};

impl ShardThread {
    pub(super) fn on_upstream_event(&mut self, index: usize, event: &Event) {
        let Some(upstream) = self.shared.guard.clone() else { return };
        let now = self.now;
        let Some(connection) = self.upstreams.get(index) else { return };
        if !connection.is_open {
            match connection.is_connected() {
                None => return,
                Some(Ok(())) => connection.is_open = true,
                Some(Err(error)) => {
                    count(&upstream.counts.unreachable);
                    upstream.fail_to_connect(&error.to_string());
                    return self.lose_upstream(index, &upstream);
                }
            }
            if matches!(connection.client, UpstreamClient::Asking(_)) {
                self.upstreams.set_deadline(index, Some(now + UPSTREAM_STAYS));
            }
        }
        let Some(connection) = self.upstreams.get(index) else { return };
        connection.is_ending |= event.is_read_closed() || event.is_error();
        if event.is_writable() {
            connection.unblock();
            self.upstreams.flush_next.push(index);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.upstreams.queue(index);
        }
    }

    /// What came from behind, all of it if there is time: it is what makes room there.
    pub(super) fn read_downs(&mut self) {
        let Some(upstream) = self.shared.guard.clone() else { return };
        let mut left = DOWN_TURN_BYTES_MAX;
        while left > 0
            && let Some(index) = self.upstreams.ready.pop_front()
        {
            if let Some(connection) = self.upstreams.get(index) {
                connection.is_queued = false;
                // One that has nothing has cost a look, too.
                left = left.saturating_sub(self.read_down(index, &upstream).max(DOWN_LOOK_BYTES));
            }
        }
        upstream.set_behind(self.index, !self.upstreams.ready.is_empty());
    }

    /// Units of work that clients have in this turn: few while what comes from behind is not read dry, by anybody. What goes
    /// on then would only fill the queues of the broker behind, which know no order.
    pub(super) fn units_of_turn(&self) -> u32 {
        let is_behind = self.shared.guard.as_ref().is_some_and(|upstream| upstream.is_behind());
        if is_behind { TURN_UNITS_MAX / 16 } else { TURN_UNITS_MAX }
    }

    /// One read, and what is made of it; how many bytes that was.
    fn read_down(&mut self, index: usize, upstream: &Arc<Upstream>) -> usize {
        // One that is gone may have left its place, in the list as well, to one that is not open yet.
        let Some(connection) = self.upstreams.get(index).filter(|connection| connection.is_open) else { return 0 };
        let (read, is_shaking) = (connection.read(&mut self.scratch[..SCRATCH_BYTES]), connection.is_shaking());
        let shaken = if connection.take_shaken() { UPSTREAM_SHAKE_BYTES } else { 0 };
        if connection.wants_flush() {
            self.upstreams.flush_next.push(index);
        }
        let Some(connection) = self.upstreams.get(index) else { return shaken };
        let read = match read {
            Ok(read) => read,
            Err(error) if matches!(connection.client, UpstreamClient::Asking(_)) => {
                upstream.fail(&error.to_string());
                self.lose_upstream(index, upstream);
                return 0;
            }
            Err(error) if is_shaking && matches!(connection.client, UpstreamClient::Waiting(_)) => {
                count(&upstream.counts.tls);
                upstream.fail(&error.to_string());
                self.lose_upstream(index, upstream);
                return shaken;
            }
            Err(_) => DownRead::Ended,
        };
        let (bytes, has_more) = match read {
            DownRead::Some(bytes) => (bytes, true),
            DownRead::Short(bytes) => (bytes, false),
            DownRead::Nothing => return shaken,
            DownRead::Ended => {
                self.end_upstream(index, upstream);
                return 0;
            }
        };
        // A packet that is not whole yet is collected; memory follows what has come, not what was announced.
        let mut kept = core::mem::take(&mut connection.kept);
        let is_kept = !kept.is_empty();
        if is_kept {
            kept.extend_from_slice(&self.scratch[..bytes]);
        }
        let scratch = core::mem::take(&mut self.scratch);
        let used = self.take_down(index, if is_kept { &kept } else { &scratch[..bytes] }, upstream);
        if let Some(connection) = self.upstreams.get(index) {
            if is_kept {
                kept.drain(..used.min(kept.len()));
            } else {
                kept.extend_from_slice(&scratch[used.min(bytes)..bytes]);
            }
            connection.kept = if kept.is_empty() { Vec::new() } else { kept };
            self.upstreams.weigh(index);
        }
        self.scratch = scratch;
        if has_more {
            self.upstreams.queue(index);
        }
        bytes + shaken
    }

    /// What there is from behind; how much of it was used.
    pub(super) fn take_down(&mut self, index: usize, bytes: &[u8], upstream: &Arc<Upstream>) -> usize {
        let Some(connection) = self.upstreams.get(index) else { return 0 };
        if bytes.len() < connection.at_least {
            return 0;
        }
        match connection.client {
            UpstreamClient::Waiting(_) => self.take_first(index, bytes, upstream),
            UpstreamClient::Connected(id) => self.hand_down(index, id, bytes, upstream),
            UpstreamClient::Asking(_) | UpstreamClient::Gone => bytes.len(),
        }
    }

    fn hand_down(&mut self, index: usize, id: ConnId, bytes: &[u8], upstream: &Arc<Upstream>) -> usize {
        let Handed { consumed, at_least, next, is_last } = self.shard.pass_down(id, bytes, &upstream.origins, self.now);
        let Some(connection) = self.upstreams.get(index) else { return consumed };
        connection.at_least = at_least;
        connection.is_last |= is_last;
        let is_garbage = next == NextDown::Garbage || at_least > UPSTREAM_PACKET_MAX;
        if next == NextDown::Full {
            connection.is_full = true;
            self.upstreams.full.push(index);
        } else if is_garbage {
            count(&upstream.counts.garbage);
            upstream.fail("what it sends is no MQTT");
            self.lose_upstream(index, upstream);
        }
        consumed
    }

    /// A client is not read for a while: the broker behind is not to take that for an end, as long as the client is there.
    pub(super) fn keep_alive_behind(&mut self, id: ConnId, index: usize) {
        let now = self.now;
        let Some(connection) = self.upstreams.get(index) else { return };
        if connection.life.due().is_some_and(|due| due <= now) {
            let client = self.connections.get(id);
            let unread = client.and_then(|client| client.link.peek(&mut self.scratch[..UNREAD_ENOUGH]).ok().flatten());
            let is_there = connection.life.look(unread.unwrap_or(0), now);
            if is_there && !connection.is_clogged() && self.shard.may_ping(id) {
                connection.push(&PINGREQ);
                connection.life.on_sent(now);
                self.upstreams.flush_next.push(index);
                if let Some(upstream) = &self.shared.guard {
                    count(&upstream.counts.pings);
                }
            }
        }
        let due = self.upstreams.get(index).and_then(|connection| connection.life.due());
        self.upstreams.look_at = self.upstreams.look_at.into_iter().chain(due).min();
    }

    /// Bytes of a client were read.
    pub(super) fn note_heard(&mut self, id: ConnId) {
        let (now, upstream) = (self.now, self.connections.get(id).and_then(|connection| connection.upstream));
        if let Some(connection) = upstream.and_then(|index| self.upstreams.get(index)) {
            connection.life.on_heard(now);
        }
    }

    /// Whether a client's upstream connection takes no more.
    pub(super) fn is_clogged(&self, id: ConnId) -> bool {
        let connection = self.connections.peek(id.index as usize).filter(|connection| connection.id == id);
        let upstream = connection.and_then(|connection| self.upstreams.peek(connection.upstream?));
        upstream.is_some_and(UpstreamConnection::is_clogged)
    }

    /// Everything that goes on to the broker behind, in one write for each.
    pub(super) fn flush_ups(&mut self) {
        let now = self.now;
        for index in core::mem::take(&mut self.upstreams.flush_next) {
            // An error is found by the next read, too, after what came before it.
            if let Some(connection) = self.upstreams.get(index)
                && connection.is_open
                && connection.flush(now).is_err()
            {
                connection.is_ending = true;
                self.upstreams.queue(index);
            }
            self.upstreams.weigh(index);
        }
    }

    /// Those whose clients have taken something are read again.
    pub(super) fn resume_downs(&mut self) {
        let Some(upstream) = self.shared.guard.clone().filter(|_| !self.upstreams.full.is_empty()) else { return };
        for index in core::mem::take(&mut self.upstreams.full) {
            let Some(connection) = self.upstreams.get(index) else { continue };
            if let UpstreamClient::Connected(id) = connection.client
                && self.shard.is_outbox_full(id)
            {
                self.upstreams.full.push(index);
                continue;
            }
            connection.is_full = false;
            let kept = core::mem::take(&mut connection.kept);
            let used = self.take_down(index, &kept, &upstream);
            if let Some(connection) = self.upstreams.get(index) {
                connection.kept = kept;
                connection.kept.drain(..used);
            }
            self.upstreams.queue(index);
        }
    }

    /// The broker behind has closed.
    fn end_upstream(&mut self, index: usize, upstream: &Arc<Upstream>) {
        let Some(connection) = self.upstreams.get(index) else { return };
        match connection.client {
            UpstreamClient::Connected(id) => {
                let (is_last, now) = (connection.is_last, self.now);
                drop(self.upstreams.remove(index));
                upstream.counts.connections.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                if let Some(connection) = self.connections.get(id) {
                    connection.upstream = None;
                    // Nobody is there for what it says.
                    connection.reading = ReadState::Stopped;
                    connection.forget_input();
                }
                let has_left = self.shard.has_said_goodbye(id);
                let asks = !is_last && !has_left && self.shard.hears_goodbye(id);
                if asks {
                    return self.ask_whether_there(id, upstream);
                }
                let why = if has_left { Why::Goodbye } else { Why::UpstreamClosed };
                self.shard.handle_upstream_end(id, why, now);
            }
            UpstreamClient::Waiting(_) => {
                count(&upstream.counts.lost);
                let hint = if connection.is_shaking() { " in a TLS handshake: does it speak TLS there?" } else { "" };
                upstream.fail(&format!("it closes connections without an answer{hint}"));
                self.lose_upstream(index, upstream);
            }
            UpstreamClient::Asking(id) => self.end_as_wanted(index, id),
            UpstreamClient::Gone => drop(self.upstreams.remove(index)),
        }
    }

    /// The broker behind is there, and wanted to end this one connection: for another of that name, if one is about to come in.
    fn end_as_wanted(&mut self, asking: usize, id: ConnId) {
        drop(self.upstreams.remove(asking));
        let has_heir = self.shard.client_id(id).is_some_and(|name| self.upstreams.awaits(name));
        let why = if has_heir { Why::TakenOver } else { Why::UpstreamClosed };
        self.shard.handle_upstream_end(id, why, self.now);
    }

    /// A connection to the broker behind ended without a word: it may be gone. The client is told what is true.
    fn ask_whether_there(&mut self, id: ConnId, upstream: &Arc<Upstream>) {
        let Some(to) = upstream.address() else {
            return self.shard.handle_upstream_end(id, Why::UpstreamLost, self.now);
        };
        // Whether somebody listens there needs no TLS.
        let opened = UpstreamConnection::open(to, None, UpstreamClient::Asking(id), self.now);
        let deadline = self.now + UPSTREAM_ASK_TIMEOUT;
        let asked = opened.and_then(|asking| self.upstreams.insert(asking, deadline, self.poll.registry()));
        // On this machine nobody there is known at once.
        if let Err(error) = asked {
            count(&upstream.counts.lost);
            upstream.fail_to_connect(&error.to_string());
            self.shard.handle_upstream_end(id, Why::UpstreamLost, self.now);
        }
    }

    /// A connection to the broker behind came to nothing.
    pub(super) fn lose_upstream(&mut self, index: usize, upstream: &Arc<Upstream>) {
        let Some(connection) = self.upstreams.remove(index) else { return };
        match connection.client {
            UpstreamClient::Waiting(handover) => self.turn_away(*handover, ReasonCode::ServerUnavailable),
            UpstreamClient::Connected(id) | UpstreamClient::Asking(id) => {
                if matches!(connection.client, UpstreamClient::Connected(_)) {
                    upstream.counts.connections.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                }
                count(&upstream.counts.lost);
                if let Some(connection) = self.connections.get(id) {
                    connection.upstream = None;
                }
                self.shard.handle_upstream_end(id, Why::UpstreamLost, self.now);
            }
            UpstreamClient::Gone => {}
        }
    }

    /// A client is gone: the broker behind hears what it had said, and then the end.
    pub(super) fn leave_upstream(&mut self, connection: &SocketConnection) {
        if let Some(index) = connection.upstream {
            if let Some(upstream) = &self.shared.guard {
                upstream.counts.connections.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            }
            self.leave_behind(index);
        }
    }

    pub(super) fn leave_behind(&mut self, index: usize) {
        let (now, deadline) = (self.now, self.now + UPSTREAM_LEAVE_TIMEOUT);
        let Some(connection) = self.upstreams.get(index) else { return };
        connection.client = UpstreamClient::Gone;
        (connection.is_full, connection.kept, connection.at_least) = (false, Vec::new(), 1);
        if connection.finish(now).is_err() {
            drop(self.upstreams.remove(index));
            return;
        }
        self.upstreams.set_deadline(index, Some(deadline));
        // What is still to come from there is thrown away: closing over it would cut off what is on its way.
        self.upstreams.queue(index);
    }

    /// Those whose time is up.
    pub(super) fn end_late_upstreams(&mut self) {
        let Some(upstream) = self.shared.guard.clone() else { return };
        while let Some(index) = self.upstreams.pop_due(self.now) {
            let Some(connection) = self.upstreams.get(index) else { continue };
            match connection.client {
                UpstreamClient::Waiting(_) if connection.is_clients_turn => {
                    self.give_up_asking(index, ReasonCode::NotAuthorized);
                }
                UpstreamClient::Waiting(_) => {
                    count(&upstream.counts.silent);
                    let timeout = upstream.config.timeout;
                    match (connection.is_open, connection.is_shaking()) {
                        (false, _) => upstream.fail_to_connect(&format!("cannot be reached within {timeout:?}")),
                        (true, true) => {
                            upstream.fail(&format!("does not come to an end of a TLS handshake within {timeout:?}"));
                        }
                        (true, false) => upstream.fail(&format!("does not answer a CONNECT within {timeout:?}")),
                    }
                    self.lose_upstream(index, &upstream);
                }
                UpstreamClient::Asking(id) if connection.is_open => self.end_as_wanted(index, id),
                UpstreamClient::Asking(_) => self.lose_upstream(index, &upstream),
                UpstreamClient::Connected(_) => {}
                UpstreamClient::Gone => drop(self.upstreams.remove(index)),
            }
        }
    }

    /// The guard goes down: who has no answer yet gets one.
    pub(super) fn dismiss_waiting(&mut self) {
        for index in self.upstreams.indices() {
            let Some(connection) = self.upstreams.peek(index) else { continue };
            if matches!(connection.client, UpstreamClient::Waiting(_))
                && let Some(UpstreamClient::Waiting(handover)) = self.upstreams.remove(index).map(|it| it.client)
            {
                self.turn_away(*handover, ReasonCode::ServerUnavailable);
            }
        }
    }
}
