//! Clients of a guard on their way to the broker behind: asked for there, asked for more (AUTH), let in, or not.
//!
//! Who somebody is, that broker says. Until then it is who it says it is: that costs the user of this name nothing, and
//! wrong passwords make the address wait that they came from, as they do at a door of our own.

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_core::event::Why;
use tidegate_guard::{
    AUTH_BYTES_MAX, AuthAnswer, DISCONNECT, FirstAnswer, GuardHello, GuardShard, LifeWatch, auth_answer, first_answer,
    is_goodbye, is_wrong_password, keep_alive_of,
};
use tidegate_wire_mqtt::{ReasonCode, Version, version_of_connect};

use super::connection::SocketConnection;
use super::upstream::{UpstreamClient, UpstreamConnection};
use super::{ShardThread, token};
use crate::first_packet::{First, first_packet, refusal, refusal_until};
use crate::guard::{Upstream, count};
use crate::handshake::credentials;
use crate::inbox::lock;
use crate::known::{Familiarity, Print};
use crate::limits::{AUTH_STEPS_MAX, READ_BYTES_MAX};
use crate::link::SourceState;
use crate::listener_counts::ListenerRefusal;
use crate::thread_message::Handover;

/// A user name that somebody gives, and by which it is known again with its password.
struct Claim {
    from: IpAddr,
    user: String,
    print: Option<Print>,
}

impl ShardThread {
    /// A client that wants to go on to the broker behind.
    pub(super) fn open_upstream(&mut self, upstream: &Arc<Upstream>, handover: Handover) {
        let Some(handover) = self.unless_it_must_wait(handover) else { return };
        let judged = self.shard.judge_arrival(&handover.client_id, &handover.identity, self.now);
        if let Err((reason, later)) = judged {
            let version = version_of_connect(&handover.connect).unwrap_or(Version::V311);
            let answer = match later {
                Some((words, retry_after)) => refusal_until(version, reason, words, retry_after),
                None => refusal(version, reason),
            };
            return self.send_away(handover, &answer);
        }
        let Some(to) = upstream.address() else {
            count(&upstream.counts.unreachable);
            return self.turn_away(handover, ReasonCode::ServerUnavailable);
        };
        let deadline = self.now + upstream.config.timeout;
        let opened = upstream
            .tls_session()
            .and_then(|tls| UpstreamConnection::open(to, tls, UpstreamClient::Gone, self.now))
            .and_then(|connection| self.upstreams.insert(connection, deadline, self.poll.registry()));
        match opened {
            Ok(index) => self.upstreams.ask_for(index, handover),
            Err(error) => {
                count(&upstream.counts.unreachable);
                upstream.fail_to_connect(&format!("{to}: {error}"));
                self.turn_away(handover, ReasonCode::ServerUnavailable);
            }
        }
    }

    /// Sends away whoever has given too many wrong passwords of late, unless this one was right before.
    fn unless_it_must_wait(&mut self, handover: Handover) -> Option<Handover> {
        let Some(claim) = self.claim_of(&handover) else { return Some(handover) };
        let known = claim.print.map(|print| self.shared.known.find(&print, self.rules.generation, self.now));
        if !matches!(known, None | Some(Familiarity::Stranger)) {
            return Some(handover);
        }
        let wait = lock(&self.shared.attempts).wait(claim.from, &claim.user, self.now);
        let Some(wait) = wait else { return Some(handover) };
        handover.listener.counts.refuse(ListenerRefusal::Paused);
        let version = version_of_connect(&handover.connect).unwrap_or(Version::V311);
        let (reason, words) = (ReasonCode::ConnectionRateExceeded, "too many wrong passwords");
        self.send_away(handover, &refusal_until(version, reason, words, wait));
        None
    }

    /// None: it gives no name, so there is nothing to guess.
    fn claim_of(&self, handover: &Handover) -> Option<Claim> {
        let First::Connect { connect, .. } = first_packet(&handover.connect, &self.connect_limits) else { return None };
        let shown = credentials(&connect, None, handover.listener.name());
        let print = self.shared.known.print(&shown);
        Some(Claim { from: handover.peer.ip(), user: shown.user_name?, print })
    }

    /// What the broker behind says to a CONNECT; how much of it was used.
    pub(super) fn take_first(&mut self, index: usize, bytes: &[u8], upstream: &Arc<Upstream>) -> usize {
        match first_answer(bytes) {
            FirstAnswer::Incomplete { at_least } => {
                if let Some(connection) = self.upstreams.get(index) {
                    connection.at_least = at_least;
                }
                0
            }
            FirstAnswer::Step(size) => {
                self.pass_step(index, &bytes[..size], upstream);
                size
            }
            FirstAnswer::Welcome(size) => {
                if let Some(connection) = self.upstreams.get(index) {
                    connection.at_least = 1;
                }
                self.admit(index, &bytes[..size], upstream);
                size + self.take_down(index, &bytes[size..], upstream)
            }
            FirstAnswer::Unwelcome(size) => {
                upstream.succeed();
                count(&upstream.counts.refused);
                if let Some(handover) = self.upstreams.take_waiting(index) {
                    drop(self.upstreams.remove(index));
                    self.note_refused(&handover, &bytes[..size]);
                    self.send_away(handover, &bytes[..size]);
                }
                size
            }
            FirstAnswer::Unusable(why) => {
                count(&upstream.counts.garbage);
                upstream.fail(why);
                self.lose_upstream(index, upstream);
                0
            }
        }
    }

    /// Somebody is not let in: its address pays for that, and not whom it claimed to be.
    fn note_refused(&mut self, handover: &Handover, connack: &[u8]) {
        self.shard.handle_declined(&handover.client_id, &handover.identity, self.now);
        let version = version_of_connect(&handover.connect).unwrap_or(Version::V311);
        let Some(claim) = self.claim_of(handover).filter(|_| is_wrong_password(connack, version)) else { return };
        lock(&self.shared.attempts).failed(claim.from, &claim.user, self.now);
        if let Some(print) = claim.print {
            self.shared.known.forget(&print);
        }
    }

    fn note_let_in(&self, handover: &Handover) {
        let Some(claim) = self.claim_of(handover) else { return };
        lock(&self.shared.attempts).succeeded(claim.from, &claim.user);
        if let Some(print) = claim.print {
            self.shared.known.note(print, claim.user.into(), self.rules.generation, self.now);
        }
    }

    /// The broker behind lets a client in.
    fn admit(&mut self, index: usize, connack: &[u8], upstream: &Arc<Upstream>) {
        upstream.succeed();
        let now = self.now;
        let Some(handover) = self.upstreams.take_waiting(index) else { return };
        self.note_let_in(&handover);
        let Some(handover) = self.unless_banned(handover) else { return self.decline(index) };
        let First::Connect { connect, .. } = first_packet(&handover.connect, &self.connect_limits) else {
            self.decline(index);
            return self.turn_away(handover, ReasonCode::UnspecifiedError);
        };
        let keep_alive = keep_alive_of(connect.keep_alive, connack, connect.version);
        let (client_id, identity, bytes) = (&*handover.client_id, handover.identity.clone(), handover.connect.len());
        let hello = GuardHello { connect: &connect, bytes, client_id, identity };
        let Some(id) = self.shard.handle_admitted(&hello, now) else {
            self.decline(index);
            return self.turn_away(handover, ReasonCode::QuotaExceeded);
        };
        let Handover { mut link, rest, .. } = handover;
        if link.register(self.poll.registry(), token::connection(id)).is_err() {
            self.shard.handle_closed(id, Why::Lost, now);
            return self.leave_behind(index);
        }
        count(&upstream.counts.connects);
        count(&upstream.counts.connections);
        if let Some(connection) = self.upstreams.get(index) {
            connection.client = UpstreamClient::Connected(id);
            connection.life = LifeWatch::new(keep_alive, now);
        }
        self.upstreams.set_deadline(index, None);
        self.shard.put_through(id, connack, tidegate_core::Through::Answer, now);
        let has_input = !rest.is_empty() || link.may_hold_input();
        let mut connection = SocketConnection::new(id, link, rest, now);
        connection.upstream = Some(index);
        self.connections.insert(connection);
        if has_input {
            self.queue_read(id);
        }
    }

    /// The broker behind has let in a client that is not let in here: nothing was said to it, and its will is not to be published.
    fn decline(&mut self, index: usize) {
        if let Some(connection) = self.upstreams.get(index) {
            connection.push(&DISCONNECT);
        }
        self.leave_behind(index);
    }

    /// The broker behind wants to know more before it lets a client in (AUTH of MQTT 5): that is between the two of them.
    fn pass_step(&mut self, index: usize, packet: &[u8], upstream: &Arc<Upstream>) {
        let (deadline, registry) = (self.now + upstream.config.timeout, self.poll.registry());
        let Some(connection) = self.upstreams.get(index) else { return };
        let UpstreamClient::Waiting(handover) = &mut connection.client else { return };
        upstream.succeed();
        (connection.steps, connection.at_least) = (connection.steps + 1, 1);
        let knows = version_of_connect(&handover.connect) == Some(Version::V5);
        if !knows || connection.steps > AUTH_STEPS_MAX {
            count(&upstream.counts.garbage);
            upstream.fail("it asks with AUTH for more than a client can say");
            return self.lose_upstream(index, upstream);
        }
        // A few bytes into an empty socket: it takes them, or something is wrong with it.
        let is_asked = handover.link.send([packet, &[]]).is_ok_and(|sent| sent.taken == packet.len())
            && handover.link.register(registry, token::asked(index)).is_ok();
        if !is_asked {
            return self.give_up_asking(index, ReasonCode::UnspecifiedError);
        }
        connection.is_clients_turn = true;
        self.upstreams.set_deadline(index, Some(deadline));
    }

    /// A client that was asked for more may have said something.
    pub(super) fn on_asked_event(&mut self, index: usize) {
        let Some(upstream) = self.shared.guard.clone() else { return };
        let deadline = self.now + upstream.config.timeout;
        // One that was asked may have left its place to one that was not.
        let Some(connection) = self.upstreams.get(index).filter(|connection| connection.steps > 0) else { return };
        let UpstreamClient::Waiting(handover) = &mut connection.client else { return };
        let said = loop {
            let has_room = handover.rest.len() <= AUTH_BYTES_MAX;
            match handover.link.receive(&mut self.scratch[..READ_BYTES_MAX]) {
                Ok(received) if received.source != SourceState::Ended && has_room => {
                    handover.rest.extend_from_slice(&self.scratch[..received.bytes]);
                    if received.source != SourceState::More {
                        break auth_answer(&handover.rest);
                    }
                }
                // It is gone, or talks without end.
                _ => break AuthAnswer::OutOfPlace,
            }
        };
        // What TLS and WebSockets have to say of their own.
        let _ = handover.link.send([&[], &[]]);
        match said {
            AuthAnswer::Incomplete => {}
            AuthAnswer::Step(size) if connection.is_clients_turn => {
                let step: Vec<u8> = handover.rest.drain(..size).collect();
                connection.is_clients_turn = false;
                self.upstreams.set_deadline(index, Some(deadline));
                self.upstreams.take(index, &step);
                if is_goodbye(&step) {
                    drop(self.upstreams.take_waiting(index));
                    self.leave_behind(index);
                }
            }
            AuthAnswer::Step(_) | AuthAnswer::OutOfPlace => self.give_up_asking(index, ReasonCode::ProtocolError),
        }
    }

    /// A client does not say what it was asked for.
    pub(super) fn give_up_asking(&mut self, index: usize, reason: ReasonCode) {
        let Some(handover) = self.upstreams.take_waiting(index) else { return };
        self.leave_behind(index);
        self.shard.handle_declined(&handover.client_id, &handover.identity, self.now);
        self.turn_away(handover, reason);
    }
}
