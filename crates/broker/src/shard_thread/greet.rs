//! Sockets that the core does not know: accepted, led through the handshake, handed over, turned away.

use std::sync::Arc;

use mio::event::Event;
use tidegate_core::{Hello, shard_of};
use tidegate_wire_mqtt::{ReasonCode, Version, version_of_connect};

use super::connection::Connection;
use super::{ShardThread, token};
use crate::authenticate::{Credentials, Refusal};
use crate::first_packet::{First, first_packet, refusal};
use crate::inbox::lock;
use crate::letter::{Arrival, Handover, Letter};
use crate::limits::{LINGER, TLS_STEPS_PER_TURN_MAX};
use crate::password::{Asker, Question};
use crate::visitor::{Next, Terms, Visitor, credentials};
use crate::visitors::Key;

impl ShardThread {
    /// Somebody new. TLS costs CPU, so those handshakes go round the threads; the others are done where they come in.
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let mut arrival = Box::new(arrival);
        if arrival.door.is_encrypted() {
            let shards = self.common.inboxes.len();
            self.next_shard = (self.next_shard + 1) % shards;
            if self.next_shard != self.index {
                let sent = self.common.inboxes[self.next_shard].send(Letter::Arrival(arrival));
                let Err(Letter::Arrival(back)) = sent else { return };
                arrival = back;
            }
        }
        self.welcome(*arrival);
    }

    /// The handshake begins here, unless the broker goes down: then there is nobody yet to say a word to.
    pub(super) fn welcome(&mut self, mut arrival: Arrival) {
        if self.draining.is_some() {
            return;
        }
        let key = self.visitors.next_key();
        if arrival.link.register(self.poll.registry(), token::visitor(key.index)).is_err() {
            return;
        }
        let key = self.visitors.insert(Visitor::new(arrival), self.now + self.rules.handshake_timeout);
        // Its first bytes are often here already: that saves a turn.
        self.advance(key);
    }

    pub(super) fn on_visitor_event(&mut self, index: usize, _: &Event) {
        if let Some(key) = self.visitors.at(index) {
            self.advance(key);
        }
    }

    /// Visitors that had more to read, or had to wait for their turn. Those that still have to stay in front.
    pub(super) fn advance_queued(&mut self) {
        self.tls_steps_left = TLS_STEPS_PER_TURN_MAX;
        for key in core::mem::take(&mut self.visitors_next) {
            self.visitors.dequeue(key);
            self.advance(key);
        }
    }

    fn advance(&mut self, key: Key) {
        let Some(visitor) = self.visitors.get(key) else { return };
        if self.tls_steps_left == 0 && visitor.is_handshaking() {
            self.queue_visitor(key);
            return;
        }
        let make_id = || self.chance.client_id();
        let terms = Terms { limits: &self.connect_limits, origins: self.rules.origins.as_deref() };
        let next = visitor.on_ready(&mut self.scratch, &terms, make_id);
        self.tls_steps_left -= usize::from(visitor.take_shaken() && self.tls_steps_left > 0);
        self.follow(key, next);
    }

    /// Goes on with a visitor in the next turn.
    fn queue_visitor(&mut self, key: Key) {
        if self.visitors.enqueue(key) {
            self.visitors_next.push(key);
        }
    }

    /// Visitors whose time is up.
    pub(super) fn dismiss_late(&mut self) {
        while let Some(key) = self.visitors.pop_due(self.now) {
            if let Some(visitor) = self.visitors.get(key) {
                let next = visitor.on_deadline();
                self.follow(key, next);
            }
        }
    }

    /// Everybody that has not come in yet, because the broker goes down.
    pub(super) fn dismiss_arriving(&mut self) {
        for key in self.visitors.keys() {
            if let Some(visitor) = self.visitors.get(key).filter(|visitor| visitor.is_arriving()) {
                let next = visitor.refuse(ReasonCode::ServerUnavailable);
                self.follow(key, next);
            }
        }
    }

    fn follow(&mut self, key: Key, next: Next) {
        if let Some(trouble) = self.visitors.get(key).and_then(Visitor::take_trouble) {
            self.journal.handshake_trouble(&trouble, self.now);
        }
        match next {
            Next::Wait => {}
            Next::Again => self.queue_visitor(key),
            Next::Check(credentials) => self.check(key, credentials),
            Next::Linger => {
                self.visitors.set_deadline(key, self.now + LINGER);
                // What is unread decides whether it may be closed at once.
                self.queue_visitor(key);
            }
            Next::Close => drop(self.visitors.remove(key)),
        }
    }

    fn check(&mut self, key: Key, credentials: Credentials) {
        let Some(visitor) = self.visitors.get(key) else { return };
        let (ip, user) = visitor.claim();
        let user = user.or(credentials.certificate_name.as_deref());
        let banned = lock(&self.common.bans).find(&credentials.client_id, user, ip, self.now);
        if let Some(left) = banned {
            let next = visitor.refuse_until(ReasonCode::Banned, "banned", left);
            self.follow(key, next);
            return;
        }
        let authenticator = Arc::clone(&self.rules.authenticator);
        if !authenticator.is_slow(&credentials) {
            let verdict = authenticator.authenticate(&credentials);
            self.on_verdict(key, verdict);
            return;
        }
        let wait = user.and_then(|user| lock(&self.common.attempts).wait(ip, user, self.now));
        if let Some((wait, visitor)) = wait.zip(self.visitors.get(key)) {
            let words = "too many wrong passwords";
            let next = visitor.refuse_until(ReasonCode::ConnectionRateExceeded, words, wait);
            self.follow(key, next);
            return;
        }
        let generation = self.rules.generation;
        let asker = Asker::Visitor { shard: self.index, key };
        let question = Question { asker, credentials, authenticator, generation };
        if self.common.questions.ask(question).is_err() {
            self.refuse(key, ReasonCode::ServerBusy);
        }
    }

    /// A password thread has answered. If the rules have changed meanwhile, the answer is worth nothing: the user may be
    /// gone, or have another password. Each reload can cause one more question.
    pub(super) fn on_checked(&mut self, question: Question, verdict: Result<Option<Arc<str>>, Refusal>) {
        let Question { asker, credentials, generation, .. } = question;
        let Asker::Visitor { key, .. } = asker else { return };
        if generation == self.rules.generation {
            self.on_verdict(key, verdict);
        } else if self.is_checking(key) {
            self.check(key, credentials);
        }
    }

    fn is_checking(&mut self, key: Key) -> bool {
        self.visitors.get(key).is_some_and(|visitor| visitor.is_checking())
    }

    /// Somebody is known, or not let in.
    fn on_verdict(&mut self, key: Key, verdict: Result<Option<Arc<str>>, Refusal>) {
        if !self.is_checking(key) {
            // Its time was up, or the broker goes down: it has had its answer.
            return;
        }
        self.note_attempt(key, &verdict);
        match verdict {
            Ok(user) => {
                let (visitor, generation) = (self.visitors.remove(key), self.rules.generation);
                if let Some(handover) = visitor.and_then(|visitor| visitor.into_handover(user, generation)) {
                    self.hand_over(Box::new(handover));
                }
            }
            Err(Refusal::BadUserNameOrPassword) => self.refuse(key, ReasonCode::BadUserNameOrPassword),
            Err(Refusal::NotAuthorized) => self.refuse(key, ReasonCode::NotAuthorized),
        }
    }

    /// Wrong passwords are remembered, right ones forgive them.
    fn note_attempt(&mut self, key: Key, verdict: &Result<Option<Arc<str>>, Refusal>) {
        let Some(visitor) = self.visitors.get(key) else { return };
        let (ip, Some(user)) = visitor.claim() else { return };
        match verdict {
            Err(Refusal::BadUserNameOrPassword) => lock(&self.common.attempts).failed(ip, user, self.now),
            Ok(_) => lock(&self.common.attempts).succeeded(ip, user),
            Err(Refusal::NotAuthorized) => {}
        }
    }

    fn refuse(&mut self, key: Key, reason: ReasonCode) {
        if let Some(visitor) = self.visitors.get(key) {
            let next = visitor.refuse(reason);
            self.follow(key, next);
        }
    }

    /// To the shard that has its session.
    fn hand_over(&mut self, mut handover: Box<Handover>) {
        let owner = shard_of(&handover.client_id, self.common.inboxes.len());
        if owner == self.index {
            self.adopt(*handover);
            return;
        }
        if handover.link.deregister(self.poll.registry()).is_err() {
            return;
        }
        if let Err(Letter::Handover(back)) = self.common.inboxes[owner].send(Letter::Handover(handover)) {
            self.turn_away(*back, ReasonCode::ServerBusy);
        }
    }

    /// A client of ours.
    pub(super) fn adopt(&mut self, handover: Handover) {
        if self.draining.is_some() {
            self.turn_away(handover, ReasonCode::ServerUnavailable);
            return;
        }
        // What another thread could read can be read here, unless a reload made the rules stricter in between.
        let First::Connect { connect, .. } = first_packet(&handover.connect, &self.connect_limits) else {
            self.turn_away(handover, ReasonCode::UnspecifiedError);
            return;
        };
        if handover.generation < self.rules.generation {
            let version = connect.version;
            self.ask_again(handover, version);
            return;
        }
        let hello = Hello { connect: &connect, client_id: &handover.client_id, identity: handover.identity.clone() };
        let Some(id) = self.shard.handle_connect(&hello, self.now) else {
            self.turn_away(handover, ReasonCode::QuotaExceeded);
            return;
        };
        let Handover { mut link, rest, .. } = handover;
        if link.register(self.poll.registry(), token::connection(id)).is_err() {
            self.shard.handle_closed(id, tidegate_core::event::Why::Lost, self.now);
            return;
        }
        let has_input = !rest.is_empty() || link.may_hold_input();
        self.connections.insert(Connection::new(id, link, rest, self.now));
        if has_input {
            self.queue_read(id);
        }
    }

    /// The rules changed while a client was on its way here: whoever let it in might not do so now.
    fn ask_again(&mut self, mut handover: Handover, version: Version) {
        let certificate_name = handover.link.certificate_name().unwrap_or_default();
        let First::Connect { connect, .. } = first_packet(&handover.connect, &self.connect_limits) else { return };
        let credentials = credentials(&connect, &handover.client_id, certificate_name);
        let key = self.visitors.next_key();
        if handover.link.register(self.poll.registry(), token::visitor(key.index)).is_err() {
            return;
        }
        let deadline = self.now + self.rules.handshake_timeout;
        let key = self.visitors.insert(Visitor::returned(handover, version), deadline);
        self.check(key, credentials);
    }

    /// A CONNACK that says no, to somebody that was on the way to the core.
    fn turn_away(&mut self, handover: Handover, reason: ReasonCode) {
        let Handover { mut link, connect, .. } = handover;
        let version = version_of_connect(&connect).unwrap_or(Version::V311);
        // A few bytes into an empty socket: it takes them, or something is wrong with it.
        let _ = link.send([&refusal(version, reason), &[]]);
        link.finish();
        let key = self.visitors.next_key();
        if link.register(self.poll.registry(), token::visitor(key.index)).is_ok() {
            self.visitors.insert(Visitor::leaving(link), self.now + LINGER);
        }
    }
}
