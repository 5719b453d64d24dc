//! Topics over HTTP: connections as those of MQTT are, read by `tidegate_face_http`. What is different is done here: a
//! request may belong to somebody else than the one before it on the same socket, and a stream may outlive its socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Portion, Progress, Shard};
use tidegate_face_http::{Arrival, Entered, HttpDoor, HttpStats, Waits};
use tidegate_wire_mqtt::{ReasonCode, Version};

use super::connection::{ReadState, Spoken};
use super::{ShardThread, token};
use crate::handshake::{Handshake, PagesHere};
use crate::listener::OpenListener;
use crate::thread_message::{AcceptedSocket, Handover, Rules};

/// The door of one shard.
#[derive(Debug, Default)]
pub(super) struct WebDoor {
    door: HttpDoor,
    /// Where those with a socket came in.
    places: BTreeMap<ConnId, WebPlace>,
    /// Those that wait to begin anew, or to be closed, when all is written; each once.
    settling: Vec<ConnId>,
    /// What was last shown of its counters.
    shown: Option<HttpStats>,
}

#[derive(Debug)]
struct WebPlace {
    listener: Arc<OpenListener>,
    peer: SocketAddr,
    is_settling: bool,
}

impl WebDoor {
    /// When to go on without being told.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.door.poll_timeout()
    }

    pub(super) fn handle_portion(
        &mut self,
        shard: &mut Shard,
        rules: &Rules,
        id: ConnId,
        bytes: &[u8],
        portion: &Portion,
        now: Timestamp,
    ) -> Progress {
        let name = self.places.get(&id).map_or("", |place| place.listener.name());
        let pages = PagesHere(rules.pages(name));
        let progress = self.door.handle_portion(shard, id, bytes, portion, (&pages, now));
        if self.door.will_wait(shard, id)
            && let Some(place) = self.places.get_mut(&id)
            && !std::mem::replace(&mut place.is_settling, true)
        {
            self.settling.push(id);
        }
        progress
    }
}

impl ShardThread {
    /// From now on HTTP is spoken here.
    pub(crate) fn open_requests(&mut self) {
        self.web = Some(Box::default());
    }

    /// A client of HTTP is ours.
    pub(super) fn adopt_request(&mut self, handover: Handover) {
        if handover.generation < self.rules.generation {
            // Which version, nobody asks of HTTP.
            return self.ask_again(handover, Version::V311);
        }
        let Some(hello) = &handover.http else { return };
        let (client_id, peer) = (handover.client_id.as_str(), handover.peer);
        let arrival = Arrival { client_id, identity: handover.identity.clone(), peer, hello };
        let web = self.web.get_or_insert_default();
        let Some(Entered { conn, is_resumed }) = web.door.enter(&mut self.shard, arrival, self.now) else {
            return self.turn_away(handover, ReasonCode::QuotaExceeded);
        };
        if is_resumed && let Some(mut before) = self.connections.remove(conn) {
            // Its reader has left it, and nobody has told us yet.
            self.leave_order(&before);
            before.link.say_goodbye();
            self.shard.set_excess_allowance(conn, Shard::NO_EXCESS_YET, self.now);
        }
        let Handover { link, rest, valid_for, listener, peer, .. } = handover;
        web_of(&mut self.web).places.insert(conn, WebPlace { listener, peer, is_settling: false });
        if !self.seat(conn, link, rest, valid_for) {
            return self.forget_request(conn);
        }
        if let Some(connection) = self.connections.get(conn) {
            connection.spoken = Spoken::Http;
        }
        self.write_next.push(conn);
    }

    /// A client says no more, and may be waiting for answers. True: it gets them, and then it is closed.
    pub(super) fn answer_and_close(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.connections.get(id).filter(|connection| connection.spoken == Spoken::Http) else {
            return false;
        };
        let Some(web) = &mut self.web else { return false };
        let Some(place) = web.places.get_mut(&id).filter(|_| web.door.handle_end(&mut self.shard, id)) else {
            return false;
        };
        connection.reading = ReadState::Stopped;
        if !std::mem::replace(&mut place.is_settling, true) {
            web.settling.push(id);
        }
        true
    }

    /// The socket of a stream is gone. True: its connection stays in the core, for who comes back.
    pub(super) fn keep_stream(&mut self, id: ConnId) -> bool {
        let Some(web) = &mut self.web else { return false };
        let is_kept = self.draining.is_none() && web.door.handle_lost(&mut self.shard, id, self.now);
        if is_kept {
            web.places.remove(&id);
            // What was not read went with the socket.
            self.shard.set_excess_allowance(id, Shard::NO_EXCESS_YET, self.now);
        }
        is_kept
    }

    /// False if it is no stream without a socket.
    pub(super) fn write_stream(&mut self, id: ConnId) -> bool {
        let Some(web) = &mut self.web else { return false };
        web.door.write_nowhere(&mut self.shard, id, self.now)
    }

    /// The core has no such connection any more.
    pub(super) fn forget_request(&mut self, id: ConnId) {
        if let Some(web) = &mut self.web {
            web.places.remove(&id);
            web.door.forget(id);
        }
    }

    /// Streams that were silent for long, or that nobody came back to.
    pub(super) fn turn_requests(&mut self) {
        let Some(web) = &mut self.web else { return };
        web.door.turn(&mut self.shard, self.now);
        let stats = web.door.stats();
        if web.shown != Some(stats) {
            web.shown = Some(stats);
            self.shared.extra_metrics.show_http(self.index, stats);
        }
    }

    /// Connections that are to begin anew, or to be closed, once everything is written.
    pub(super) fn settle_requests(&mut self) {
        let Some(web) = self.web.as_mut().filter(|web| !web.settling.is_empty()) else { return };
        let mut settling = std::mem::take(&mut web.settling);
        settling.retain(|&id| !self.settle(id));
        web_of(&mut self.web).settling.append(&mut settling);
    }

    /// True when there is nothing more to wait for.
    fn settle(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.connections.get(id) else { return true };
        let is_written = self.shard.outbox(id).iter().all(|slice| slice.is_empty()) && !connection.blocked;
        if connection.closing {
            return true;
        }
        match web_of(&mut self.web).door.waits(&mut self.shard, id).filter(|_| is_written) {
            None => false,
            Some(Waits::Nothing) => {
                if let Some(place) = web_of(&mut self.web).places.get_mut(&id) {
                    place.is_settling = false;
                }
                true
            }
            Some(Waits::Close) => self.finish_if_written(id),
            Some(Waits::Switch) => self.begin_anew(id),
        }
    }

    /// The next request of a connection is somebody else's: it is as if it had come in just now.
    fn begin_anew(&mut self, id: ConnId) -> bool {
        // They wait where they are: nobody is lost.
        let Some(permit) = self.shared.handshakes.take(self.rules.handshakes_max) else { return false };
        let Some(mut connection) = self.connections.remove(id) else { return true };
        let place = web_of(&mut self.web).places.remove(&id);
        self.leave_order(&connection);
        self.shard.handle_closed(id, Why::Goodbye, self.now);
        self.forget_request(id);
        let Some(WebPlace { listener, peer, .. }) = place else { return true };
        let (input, mut link) = (connection.take_input(), connection.link);
        let key = self.handshakes.next_key();
        if link.register(self.poll.registry(), token::handshake(key.index)).is_ok() {
            let handshake = Handshake::again(AcceptedSocket { link, peer, listener, permit }, input);
            let key = self.handshakes.insert(handshake, self.now + self.rules.handshake_timeout);
            self.advance(key);
        }
        true
    }
}

/// The door, which is there as long as anybody asks for it.
fn web_of(web: &mut Option<Box<WebDoor>>) -> &mut WebDoor {
    web.get_or_insert_default()
}
