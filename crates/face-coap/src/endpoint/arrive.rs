//! What comes to this door: strangers, requests, and answers to what was said.

use core::net::SocketAddr;
use core::time::Duration;

use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_core::datagrams::{Admission, Chance, NotAdmitted};
use tidegate_core::{ConnId, Hello, Portion, Progress, ReadStep, Shard, Then};

use super::CoapEndpoint;
use crate::limits::{AMPLIFICATION_MAX, BUSY, EXCHANGES_MAX, PEERS_MAX};
use crate::link::{CoapLink, Sight, whole_seconds};
use crate::message::{Answer, MessageKind, Request, code, write, write_empty};
use crate::peers::Peer;
use crate::request;

/// Answers to strangers that wait to be sent; one for each datagram of a turn at most.
const REPLIES_MAX: usize = 256;

impl CoapEndpoint {
    /// A stranger's request: it is let in, or told why not.
    pub(super) fn meet(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        (request, size): (&Request, usize),
        admission: &mut dyn Admission,
        now: Timestamp,
    ) -> Option<ConnId> {
        // Nobody can send from an address of this machine but this machine.
        let is_proved = self.are_proved
            || from.ip().is_loopback()
            || request.echo.as_ref().is_some_and(|echo| self.echo.is_proof(echo, from, now));
        if !is_proved {
            self.stats.challenged += 1;
            let echo = self.echo.value(from, now);
            self.answer_stranger(
                from,
                (request, size),
                &Answer { echo: Some(&echo), ..Answer::new(code::UNAUTHORIZED) },
            );
            return None;
        }
        let has_room = self.peers.len() < PEERS_MAX && self.crowd.has_room(from.ip());
        let full = if has_room { Ok(()) } else { Err(NotAdmitted::Full) };
        let client_id = self.id_of(from);
        let identity = match full.and_then(|()| admission.admit(from, &client_id)) {
            Ok(identity) => identity,
            Err(why) => {
                self.stats.refused += 1;
                let answer = match why {
                    NotAdmitted::Unknown => Answer::new(code::UNAUTHORIZED),
                    NotAdmitted::Banned => Answer::new(code::FORBIDDEN),
                    NotAdmitted::Full => busy(),
                };
                self.answer_stranger(from, (request, size), &answer);
                return None;
            }
        };
        let link = CoapLink::new(shard.memory().charge(), Chance::new(self.chance.draw()), self.rule, now);
        let hello = Hello {
            client_id: &client_id,
            identity,
            face: alloc::boxed::Box::new(link),
            objection: None,
            is_clean: true,
            expiry: Duration::ZERO,
            keep_alive: 0,
            window: 1,
            // More than there are exchanges: the face says no before the core has to.
            inbound_max: EXCHANGES_MAX as u16 * 2,
            will: None,
            bytes: 0,
        };
        let Some(conn) = shard.connect(hello, now) else {
            self.answer_stranger(from, (request, size), &busy());
            return None;
        };
        self.peers.insert(Peer { address: from, conn, deadline: Timestamp::MAX, observers: 0 });
        self.crowd.enter(from.ip());
        Some(conn)
    }

    pub(super) fn on_request(
        &mut self,
        shard: &mut Shard,
        (conn, from): (ConnId, SocketAddr),
        (request, bytes): (&Request, &[u8]),
        dry_at: Timestamp,
        now: Timestamp,
    ) {
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        if link.recall(request.exchange.message, now) == Sight::Repeated {
            shard.say_due(conn);
            return self.settle(shard, conn);
        }
        let portion = Portion { since: dry_at.min(now), dry_at: dry_at.min(now), units: u32::MAX };
        let Progress { consumed, then, .. } =
            shard.handle_portion_by(conn, bytes, &portion, now, |shard, rest, moment| {
                if rest.is_empty() {
                    return ReadStep::Incomplete { at_least: 1 };
                }
                let (is_publication, handled) = request::handle(shard, conn, request, rest.len(), moment);
                ReadStep::Packet { size: rest.len(), is_publication, handled }
            });
        if let Some((link, _)) = shard.face_mut::<CoapLink>(conn) {
            link.observations.release();
            link.notify(now);
        }
        if then == Then::Pause && consumed == 0 {
            // It is not read for a while, and is told so; what it would have published is counted.
            if request.is_publication() {
                shard.refuse_unread(conn, bytes.len(), now);
            }
            if let Some((link, _)) = shard.face_mut::<CoapLink>(conn) {
                link.respond(&request.exchange, &busy(), now);
            }
        }
        if then == Then::Close && shard.outbox(conn).iter().all(|slice| slice.is_empty()) {
            self.answer_stranger(from, (request, bytes.len()), &busy());
        }
        shard.say_due(conn);
        self.settle(shard, conn);
    }

    pub(super) fn on_ack(&mut self, shard: &mut Shard, known: Option<ConnId>, message: u16, now: Timestamp) {
        let Some(conn) = known else {
            self.stats.stray += 1;
            return;
        };
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        if !link.confirmables.acknowledge(message, now) {
            self.stats.stray += 1;
        }
        link.notify(now);
        shard.say_due(conn);
    }

    /// An observer that resets a notification wants no more of them (RFC 7641, section 3.6).
    pub(super) fn on_reset(&mut self, shard: &mut Shard, known: Option<ConnId>, message: u16, now: Timestamp) {
        let Some(conn) = known else {
            self.stats.stray += 1;
            return;
        };
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        let observer = link.confirmables.reset(message, now).or_else(|| link.observations.observer_of(message));
        let ended = observer.and_then(|token| {
            link.confirmables.forget(token);
            link.observations.remove(token, &mut link.charge)
        });
        link.notify(now);
        if let Some(filter) = ended {
            request::unsubscribe(shard, conn, &filter);
        }
        shard.say_due(conn);
    }

    /// An answer to somebody of whom nothing is remembered, never larger than three times what was asked.
    fn answer_stranger(&mut self, to: SocketAddr, (request, size): (&Request, usize), answer: &Answer<'_>) {
        let exchange = &request.exchange;
        let bytes = match (exchange.is_confirmable, exchange.wants(answer.code)) {
            (true, true) => write(MessageKind::Acknowledgement, exchange.message, exchange.token, answer),
            (true, false) => write_empty(MessageKind::Acknowledgement, exchange.message),
            (false, true) => {
                let number = self.chance.draw() as u16;
                write(MessageKind::NonConfirmable, number, exchange.token, answer)
            }
            (false, false) => return,
        };
        if bytes.len() <= size.saturating_mul(AMPLIFICATION_MAX) {
            self.reply(to, bytes);
        } else {
            self.stats.unanswered += 1;
        }
    }

    pub(super) fn reply(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, bytes));
        }
    }
}

fn busy() -> Answer<'static> {
    Answer { max_age: Some(whole_seconds(BUSY)), ..Answer::new(code::UNAVAILABLE) }
}
