//! Sockets that the core does not know: accepted, led through the handshake, handed over, turned away.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use tidegate_core::access::{BRIDGE_USER, Identity, is_own_user, own_user};
use tidegate_core::{ConnId, shard_of};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{ReasonCode, Version, version_of_connect};

use super::connection::SocketConnection;
use super::{ShardThread, token};
use crate::authenticate::{Credentials, LoginGrant, LoginRefusal};
use crate::first_packet::{First, first_packet, refusal};
use crate::handshake::{
    ConnectTerms, Handshake, HandshakeStep, PASSWORDS_WAIT, container_credentials, credentials, refuse_request,
    request_credentials,
};
use crate::handshakes::HandshakeKey;
use crate::inbox::lock;
use crate::known::{Familiarity, Print};
use crate::limits::{LINGER, PASSWORD_PATIENCE, TLS_STEPS_PER_TURN_MAX};
use crate::link::SocketLink;
use crate::listener_counts::ListenerRefusal;
use crate::password::{CheckRequester, PasswordCheck};
use crate::thread_message::{AcceptedSocket, Handover, ThreadMessage};

impl ShardThread {
    /// Somebody new. TLS costs CPU, so those handshakes go round the threads; the others are done where they come in.
    pub(super) fn arrive(&mut self, arrival: AcceptedSocket) {
        let mut arrival = Box::new(arrival);
        if arrival.listener.is_encrypted() {
            let shards = self.shared.inboxes.len();
            self.next_shard = (self.next_shard + 1) % shards;
            if self.next_shard != self.index {
                let sent = self.shared.inboxes[self.next_shard].send(ThreadMessage::Arrival(arrival));
                let Err(ThreadMessage::Arrival(back)) = sent else { return };
                arrival = back;
            }
        }
        self.welcome(*arrival);
    }

    /// The handshake begins here, unless the broker goes down: then there is nobody yet to say a word to.
    pub(super) fn welcome(&mut self, mut arrival: AcceptedSocket) {
        if self.draining.is_some() {
            return;
        }
        let key = self.handshakes.next_key();
        if arrival.link.register(self.poll.registry(), token::handshake(key.index)).is_err() {
            return;
        }
        let key = self.handshakes.insert(Handshake::new(arrival), self.now + self.rules.handshake_timeout);
        // Its first bytes are often here already: that saves a turn.
        self.advance(key);
    }

    pub(super) fn on_visitor_event(&mut self, index: usize, event: &Event) {
        if let Some(key) = self.handshakes.at(index) {
            self.advance(key);
            // Nobody waits for the answer any more: no hash is to be computed for it. (Who speaks HTTP may have said all that it
            // wanted to say, and wait nevertheless.)
            let is_request = self.handshakes.get(key).is_some_and(|handshake| handshake.is_request());
            let has_left = event.is_error() || (event.is_read_closed() && (!is_request || event.is_write_closed()));
            if has_left && self.is_checking(key) {
                drop(self.handshakes.remove(key));
            }
        }
    }

    /// Visitors that had more to read, or had to wait for their turn. Those that still have to stay in front.
    pub(super) fn advance_queued(&mut self) {
        self.tls_steps_left = TLS_STEPS_PER_TURN_MAX;
        for key in core::mem::take(&mut self.visitors_next) {
            self.handshakes.dequeue(key);
            self.advance(key);
        }
    }

    pub(super) fn advance(&mut self, key: HandshakeKey) {
        let Some(handshake) = self.handshakes.get(key) else { return };
        // Whoever came after a reload is judged by its rules, and their message is read at the start of the next turn.
        let is_behind = self.rules.generation != self.shared.generation();
        if is_behind || (self.tls_steps_left == 0 && handshake.is_handshaking()) {
            self.queue_visitor(key);
            return;
        }
        let make_id = || self.chance.client_id();
        let terms = ConnectTerms {
            limits: &self.connect_limits,
            pages: self.rules.pages(handshake.listener()),
            admits_nobody: handshake.is_amqp() && self.rules.admits_nobody(handshake.listener()),
        };
        let next = handshake.on_ready(&mut self.scratch, &terms, make_id);
        self.tls_steps_left -= usize::from(handshake.take_shaken() && self.tls_steps_left > 0);
        self.follow(key, next);
    }

    /// Goes on with a handshake in the next turn.
    fn queue_visitor(&mut self, key: HandshakeKey) {
        if self.handshakes.enqueue(key) {
            self.visitors_next.push(key);
        }
    }

    /// Visitors whose time is up.
    pub(super) fn dismiss_late(&mut self) {
        while let Some(key) = self.handshakes.pop_due(self.now) {
            let retry_after = self.after_the_backlog();
            if let Some(handshake) = self.handshakes.get(key) {
                if handshake.extend() {
                    self.handshakes.set_deadline(key, self.now + PASSWORD_PATIENCE);
                    continue;
                }
                let next = handshake.on_deadline(retry_after);
                self.follow(key, next);
            }
        }
    }

    /// Everybody that has not come in yet, because the broker goes down.
    pub(super) fn dismiss_arriving(&mut self) {
        for key in self.handshakes.keys() {
            if let Some(handshake) = self.handshakes.get(key).filter(|handshake| handshake.is_arriving()) {
                let next = handshake.refuse(ReasonCode::ServerUnavailable);
                self.follow(key, next);
            }
        }
    }

    fn follow(&mut self, key: HandshakeKey, next: HandshakeStep) {
        if let Some(trouble) = self.handshakes.get(key).and_then(Handshake::take_trouble) {
            self.event_log.handshake_trouble(&trouble, self.now);
        }
        match next {
            HandshakeStep::Wait => {}
            HandshakeStep::Again => self.queue_visitor(key),
            HandshakeStep::Check(credentials) => self.check(key, credentials),
            HandshakeStep::Linger => {
                self.handshakes.set_deadline(key, self.now + LINGER);
                // What is unread decides whether it may be closed at once.
                self.queue_visitor(key);
            }
            HandshakeStep::Close => drop(self.handshakes.remove(key)),
        }
    }

    fn check(&mut self, key: HandshakeKey, credentials: Credentials) {
        let Some(handshake) = self.handshakes.get(key) else { return };
        let Some((client_id, presence)) = handshake.checking() else { return };
        if handshake.is_inside() {
            let user = Some(own_user(client_id).unwrap_or(BRIDGE_USER).into());
            self.let_in(key, LoginGrant::of_user(user));
            return;
        }
        // Before anything is paid for, as who it says it is; as who it is when that is known: see `on_verdict`.
        let (ip, user) = (handshake.ip(), credentials.certificate_name.as_deref().or(credentials.user_name.as_deref()));
        let banned = lock(&self.shared.bans).find(client_id, user, ip, self.now);
        if let Some(left) = banned {
            handshake.count(ListenerRefusal::Banned);
            self.refuse_until(key, ReasonCode::Banned, "banned", left);
            return;
        }
        let authenticator = Arc::clone(&self.rules.authenticator);
        // Who decides elsewhere has not heard what it is called, and is asked again: see below.
        let granted = handshake.granted(self.rules.generation).filter(|_| !authenticator.asks_elsewhere(&credentials));
        if let Some(grant) = granted {
            // It is known who it is, and now what it is called.
            let known = Identity { roles: grant.roles.clone(), ..known_at(grant.user.as_ref(), credentials.listener) };
            let is_admitted = authenticator.admits_identity(&known, &credentials.client_id);
            self.on_verdict(key, if is_admitted { Ok(grant) } else { Err(LoginRefusal::NotAuthorized) });
            return;
        }
        if !authenticator.is_slow(&credentials) {
            let verdict = authenticator.login(&credentials);
            self.on_verdict(key, verdict);
            return;
        }
        // Who was let in elsewhere a moment ago waits for nobody.
        let recalled = match authenticator.recall(&credentials) {
            Some(Ok(grant)) => return self.on_verdict(key, Ok(grant)),
            refused => refused,
        };
        let (generation, print) = (self.rules.generation, self.shared.known.print(&credentials));
        match print.map_or(Familiarity::Stranger, |print| self.shared.known.find(&print, generation, self.now)) {
            Familiarity::Verified(user)
                if authenticator
                    .admits_identity(&known_at(Some(&user), credentials.listener), &credentials.client_id) =>
            {
                self.on_verdict(key, Ok(LoginGrant::of_user(Some(user))));
                return;
            }
            Familiarity::Verified(_) | Familiarity::Familiar => {}
            Familiarity::Stranger if !authenticator.is_guessable(&credentials) => {}
            Familiarity::Stranger => {
                let wait = user.and_then(|user| lock(&self.shared.attempts).wait(ip, user, self.now));
                if let Some(wait) = wait {
                    handshake.count(ListenerRefusal::Paused);
                    self.refuse_until(key, ReasonCode::ConnectionRateExceeded, "too many wrong passwords", wait);
                    return;
                }
            }
        }
        if let Some(refused) = recalled {
            self.note_attempt(ip, &credentials, print, &refused);
            return self.on_verdict(key, refused);
        }
        let shared = Arc::clone(&self.shared);
        let questions =
            if authenticator.asks_elsewhere(&credentials) { shared.elsewhere() } else { &*shared.questions };
        let asker = CheckRequester::Handshake { shard: self.index, key, presence };
        let question = PasswordCheck { asker, credentials, authenticator, generation, from: ip, print };
        if questions.ask(question).is_err() {
            handshake.count(ListenerRefusal::Busy);
            let retry_after = self.after(questions.backlog());
            self.refuse_until(key, ReasonCode::ServerBusy, PASSWORDS_WAIT, retry_after);
        }
    }

    /// When somebody may come back for whose password there was no time: a moment within the time that those who wait
    /// take and as much again, so that not all come back at once.
    fn after_the_backlog(&self) -> Duration {
        self.after(self.shared.questions.backlog())
    }

    fn after(&self, backlog: Duration) -> Duration {
        let backlog = backlog.max(Duration::from_secs(1));
        let spread = u64::try_from(backlog.as_millis()).unwrap_or(u64::MAX);
        backlog + Duration::from_millis(self.chance.seed() % spread)
    }

    /// A password thread has answered. If the rules have changed meanwhile, the answer is worth nothing: the user may be
    /// gone, or have another password. Each reload can cause one more question.
    pub(super) fn on_checked(&mut self, question: PasswordCheck, verdict: Result<LoginGrant, LoginRefusal>) {
        let CheckRequester::Handshake { key, .. } = question.asker else { return };
        let PasswordCheck { credentials, generation, from, print, .. } = question;
        if generation == self.rules.generation {
            // Whoever has left meanwhile has had its hash nevertheless.
            self.note_attempt(from, &credentials, print, &verdict);
            self.on_verdict(key, verdict);
        } else if self.is_checking(key) {
            self.check(key, credentials);
        }
    }

    fn is_checking(&mut self, key: HandshakeKey) -> bool {
        self.handshakes.get(key).is_some_and(|handshake| handshake.is_checking())
    }

    /// Somebody is known, or not let in.
    fn on_verdict(&mut self, key: HandshakeKey, verdict: Result<LoginGrant, LoginRefusal>) {
        if !self.is_checking(key) {
            // Its time was up, or the broker goes down: it has had its answer.
            return;
        }
        match verdict {
            Ok(grant) if self.is_banned(key, grant.user.as_deref()) => {}
            // A file of users, or a certificate, cannot make a bridge of anybody.
            Ok(grant) if grant.user.as_deref().is_some_and(is_own_user) => {
                self.refuse(key, ReasonCode::NotAuthorized, ListenerRefusal::NotAuthorized);
            }
            Ok(grant) => self.let_in(key, grant),
            Err(LoginRefusal::BadUserNameOrPassword | LoginRefusal::BadToken) => {
                self.refuse(key, ReasonCode::BadUserNameOrPassword, ListenerRefusal::Password);
            }
            Err(LoginRefusal::NotAuthorized) => {
                self.refuse(key, ReasonCode::NotAuthorized, ListenerRefusal::NotAuthorized);
            }
            Err(LoginRefusal::Unavailable) => {
                self.refuse(key, ReasonCode::ServerUnavailable, ListenerRefusal::Unavailable);
            }
        }
    }

    fn let_in(&mut self, key: HandshakeKey, grant: LoginGrant) {
        let generation = self.rules.generation;
        if let Some(handshake) = self.handshakes.get(key).filter(|handshake| handshake.is_login()) {
            let next = handshake.admit(grant, generation);
            return self.follow(key, next);
        }
        let handshake = self.handshakes.remove(key);
        if let Some(handover) = handshake.and_then(|handshake| handshake.into_handover(grant, generation)) {
            self.hand_over(Box::new(handover));
        }
    }

    /// Sends away whoever turns out to be banned, whatever it said it is.
    fn is_banned(&mut self, key: HandshakeKey, user: Option<&str>) -> bool {
        let Some(handshake) = self.handshakes.get(key) else { return false };
        let Some((client_id, _)) = handshake.checking() else { return false };
        let banned = lock(&self.shared.bans).find(client_id, user, handshake.ip(), self.now);
        if let Some(left) = banned {
            handshake.count(ListenerRefusal::Banned);
            self.refuse_until(key, ReasonCode::Banned, "banned", left);
        }
        banned.is_some()
    }

    /// Wrong passwords are remembered, right ones forgive them and are known again.
    fn note_attempt(
        &self,
        from: IpAddr,
        credentials: &Credentials,
        print: Option<Print>,
        verdict: &Result<LoginGrant, LoginRefusal>,
    ) {
        let Some(name) = credentials.user_name.as_deref() else { return };
        match (verdict, print) {
            (Err(LoginRefusal::BadUserNameOrPassword), print) => {
                lock(&self.shared.attempts).failed(from, name, self.now);
                if let Some(print) = print {
                    self.shared.known.forget(&print);
                }
            }
            (Ok(grant), _) if !grant.is_lasting() => {}
            (Ok(grant), print) => {
                lock(&self.shared.attempts).succeeded(from, name);
                if let Some((user, print)) = grant.user.as_ref().zip(print) {
                    self.shared.known.note(print, Arc::clone(user), self.rules.generation, self.now);
                }
            }
            (Err(LoginRefusal::NotAuthorized | LoginRefusal::BadToken | LoginRefusal::Unavailable), _) => {}
        }
    }

    fn refuse_until(&mut self, key: HandshakeKey, reason: ReasonCode, words: &str, retry_after: Duration) {
        if let Some(handshake) = self.handshakes.get(key) {
            let next = handshake.refuse_until(reason, words, retry_after);
            self.follow(key, next);
        }
    }

    fn refuse(&mut self, key: HandshakeKey, reason: ReasonCode, why: ListenerRefusal) {
        if let Some(handshake) = self.handshakes.get(key) {
            handshake.count(why);
            let next = handshake.refuse(reason);
            self.follow(key, next);
        }
    }

    /// To the shard that has its session.
    fn hand_over(&mut self, mut handover: Box<Handover>) {
        let owner = shard_of(&handover.client_id, self.shared.inboxes.len());
        if owner == self.index {
            self.adopt(*handover);
            return;
        }
        if handover.link.deregister(self.poll.registry()).is_err() {
            return;
        }
        if let Err(ThreadMessage::Handover(back)) = self.shared.inboxes[owner].send(ThreadMessage::Handover(handover)) {
            self.turn_away(*back, ReasonCode::ServerBusy);
        }
    }

    /// A client of ours.
    pub(super) fn adopt(&mut self, handover: Handover) {
        if self.draining.is_some() {
            self.turn_away(handover, ReasonCode::ServerUnavailable);
            return;
        }
        let Some(handover) = self.unless_banned(handover) else { return };
        if handover.http.is_some() {
            return self.adopt_request(handover);
        }
        if handover.amqp.is_some() {
            return self.adopt_container(handover);
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
        if let Some(upstream) = self.shared.guard.clone() {
            return self.open_upstream(&upstream, handover);
        }
        let hello =
            MqttHello { connect: &connect, client_id: &handover.client_id, identity: handover.identity.clone() };
        let Some(id) = self.shard.handle_connect(&hello, self.now) else {
            self.turn_away(handover, ReasonCode::QuotaExceeded);
            return;
        };
        let Handover { link, rest, valid_for, .. } = handover;
        self.seat(id, link, rest, valid_for);
    }

    /// A connection of the core and its socket. False: the socket is broken, and nothing is there.
    pub(super) fn seat(
        &mut self,
        id: ConnId,
        mut link: SocketLink,
        rest: Vec<u8>,
        valid_for: Option<Duration>,
    ) -> bool {
        if link.register(self.poll.registry(), token::connection(id)).is_err() {
            self.shard.handle_closed(id, tidegate_core::event::Why::Lost, self.now);
            return false;
        }
        let has_input = !rest.is_empty() || link.may_hold_input();
        self.connections.insert(SocketConnection::new(id, link, rest, self.now));
        match valid_for {
            Some(valid_for) => {
                let connections = &self.connections;
                self.login_ends.push(self.now + valid_for, id, |id| {
                    connections.peek(id.index as usize).is_some_and(|here| here.id == id)
                });
            }
            None => self.login_ends.forget(id),
        }
        if has_input {
            self.queue_read(id);
        }
        true
    }

    /// The rules changed while a client was on its way here: whoever let it in might not do so now.
    pub(super) fn ask_again(&mut self, mut handover: Handover, version: Version) {
        let certificate_name = handover.link.certificate_name().unwrap_or_default();
        let listener = handover.listener.name();
        let credentials = match (&handover.http, &handover.amqp) {
            (Some(hello), _) => request_credentials(hello, certificate_name, listener),
            (None, Some(hello)) => container_credentials(&hello.shown, &hello.container_id, certificate_name, listener),
            (None, None) => match first_packet(&handover.connect, &self.connect_limits) {
                First::Connect { connect, .. } => credentials(&connect, certificate_name, listener),
                _ => return,
            },
        };
        let key = self.handshakes.next_key();
        if handover.link.register(self.poll.registry(), token::handshake(key.index)).is_err() {
            return;
        }
        let deadline = self.now + self.rules.handshake_timeout;
        let key =
            self.handshakes.insert(Handshake::returned(handover, version, credentials.user_name.clone()), deadline);
        self.check(key, credentials);
    }

    /// Connections whose login ends: the client may come back with another token.
    pub(super) fn end_logins(&mut self) {
        while let Some(id) = self.login_ends.pop_due(self.now) {
            self.shard.handle_login_end(id, self.now);
        }
    }

    /// A CONNACK that says no, to somebody that was on the way to the core.
    pub(super) fn turn_away(&mut self, handover: Handover, reason: ReasonCode) {
        let answer = match (&handover.http, &handover.amqp) {
            (Some(hello), _) => refuse_request(hello, reason, None),
            (None, Some(_)) => tidegate_face_amqp::refusal(reason, reason.name(), None),
            (None, None) => refusal(version_of_connect(&handover.connect).unwrap_or(Version::V311), reason),
        };
        self.send_away(handover, &answer);
    }

    /// These bytes are the last that somebody hears that was on the way in.
    pub(super) fn send_away(&mut self, handover: Handover, answer: &[u8]) {
        let Handover { mut link, .. } = handover;
        // A few bytes into an empty socket: it takes them, or something is wrong with it.
        let _ = link.send([answer, &[]]);
        link.finish();
        let key = self.handshakes.next_key();
        if link.register(self.poll.registry(), token::handshake(key.index)).is_ok() {
            self.handshakes.insert(Handshake::leaving(link), self.now + LINGER);
        }
    }
}

/// A user whose password is known, at a listener.
fn known_at(user: Option<&Arc<str>>, listener: &'static str) -> Identity {
    Identity { user: user.cloned(), listener, ..Identity::default() }
}
