//! A client comes: a session is found, taken over, cleaned or made, and the client is told so.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hash::BuildHasher;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Properties, QoS, ReasonCode};

use crate::access::{Action, GIVEN_IDS, Identity, Policy, own_user};
use crate::connection::Connection;
use crate::event::{Event, Why};
use crate::face::{ClientAnswer, Face};
use crate::gate::{NameProof, is_own_notice};
use crate::limits::{BRIDGE_WINDOW_MAX, CONNECTIONS_MAX, STORE_PAUSE};
use crate::message::{Message, Precedence, Publication};
use crate::parent::parent_of;
use crate::session::{PendingWill, Session};
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};
use crate::subscriptions::Presence;
use crate::timers::DueTimer;

/// A client that wants to come in, and that has been authenticated.
#[derive(Debug)]
pub struct Hello<'a> {
    /// What it is called: by itself, or by who made a name up for it.
    pub client_id: &'a str,
    pub identity: Identity,
    /// How it is spoken to.
    pub face: Box<dyn Face>,
    /// Why the face would not let it in.
    pub objection: Option<ReasonCode>,
    /// It wants nothing of a session from before.
    pub is_clean: bool,
    /// How long its session is to outlive the connection.
    pub expiry: Duration,
    /// Seconds of silence that are agreed on; 0 is without end.
    pub keep_alive: u16,
    /// Messages that it wants to have unconfirmed at the same time, at most.
    pub window: u16,
    /// Messages of it that may wait for an answer, at most, as it was told.
    pub inbound_max: u16,
    /// What is to be published when the connection is lost.
    pub will: Option<ClientWill<'a>>,
    /// Bytes that all this took on the way.
    pub bytes: usize,
}

/// What a client wants to be published when its connection is lost.
#[derive(Clone, Copy, Debug)]
pub struct ClientWill<'a> {
    pub topic: &'a str,
    /// What it says.
    pub payload: &'a [u8],
    /// Its attributes.
    pub properties: Properties<'a>,
    /// Its guarantee.
    pub qos: QoS,
    /// Whether it is to be kept for those who come later.
    pub retain: bool,
    /// How long after the loss.
    pub delay: Duration,
}

/// A client that is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwelcome {
    pub(crate) reason: ReasonCode,
    /// Why, in words, and when to come back.
    pub(crate) later: Option<(&'static str, Duration)>,
}

impl From<ReasonCode> for Unwelcome {
    fn from(reason: ReasonCode) -> Self {
        Self { reason, later: None }
    }
}

impl ShardState {
    pub(crate) fn connect(&mut self, hello: Hello<'_>, now: Timestamp) -> Option<ConnId> {
        if self.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.settle_memory();
        self.stats.packets_received += 1;
        self.stats.bytes_received += hello.bytes as u64;
        let conn = match self.judge(&hello, now) {
            Ok(()) => self.greet(hello, now),
            Err(Unwelcome { reason, later }) => self.refuse(hello, reason, later, now),
        };
        self.journal.end_whole();
        Some(conn)
    }

    /// The same for a client that another broker, behind this one, has let in: who it is was judged there.
    pub(crate) fn connect_admitted(&mut self, hello: Hello<'_>, now: Timestamp) -> Option<ConnId> {
        if self.connections.len() >= CONNECTIONS_MAX || self.sessions.len() >= self.settings.sessions_max {
            return None;
        }
        self.settle_memory();
        self.stats.packets_received += 1;
        self.stats.bytes_received += hello.bytes as u64;
        self.settle_arrival(hello.client_id, &hello.identity, true, now);
        let conn = self.greet(hello, now);
        self.journal.end_whole();
        Some(conn)
    }

    /// Whether a client may come in.
    fn judge(&mut self, hello: &Hello<'_>, now: Timestamp) -> Result<(), Unwelcome> {
        self.check_hello(hello)?;
        self.check_arrival(hello.client_id, &hello.identity, NameProof::Proven, now)?;
        self.check_store(hello)
    }

    /// While nothing can be kept, nobody is promised a session that would have to be. One from before goes on.
    fn check_store(&self, hello: &Hello<'_>) -> Result<(), Unwelcome> {
        let is_new = hello.is_clean || self.session_named(hello.client_id).is_none();
        match self.store_trouble() {
            Some(trouble) if is_new && !hello.expiry.is_zero() => {
                Err(Unwelcome { reason: ReasonCode::ServerUnavailable, later: Some((trouble.words(), STORE_PAUSE)) })
            }
            _ => Ok(()),
        }
    }

    fn greet(&mut self, hello: Hello<'_>, now: Timestamp) -> ConnId {
        let before = self.claim_session(&hello, now);
        let is_resumed = before.is_some();
        let Some(session) = before.or_else(|| self.open_session(&hello)) else {
            return self.refuse(hello, ReasonCode::QuotaExceeded, None, now);
        };
        let (client_id, identity) = (hello.client_id.into(), hello.identity.clone());
        let (protocol, keep_alive) = (hello.face.protocol(), hello.keep_alive);
        let conn = self.attach(hello, session, now);
        if let Some(connection) = self.connection_mut(conn) {
            connection.set_resumed(is_resumed);
        }
        let session_present = is_resumed;
        self.tell(Event::Connected { conn, client_id, session_present, identity, protocol, keep_alive });
        self.send(conn, &ClientAnswer::Welcome { is_resumed });
        self.hold_welcome(conn, session);
        self.resume(session, now);
        conn
    }

    fn check_hello(&mut self, hello: &Hello<'_>) -> Result<(), ReasonCode> {
        let is_too_long = hello.client_id.len() > self.settings.client_id_bytes_max && !hello.identity.is_own();
        // Whoever could be a bridge could take what waits for it.
        let is_reserved = own_user(hello.client_id).is_some() != hello.identity.is_own();
        let begins_with = |ids: &str| hello.client_id.starts_with(ids);
        let is_given = GIVEN_IDS.into_iter().any(begins_with) && !hello.face.given_ids().is_some_and(begins_with);
        if hello.client_id.is_empty() || is_too_long || is_reserved || is_given {
            return Err(ReasonCode::ClientIdentifierNotValid);
        }
        if let Some(objection) = hello.objection {
            return Err(objection);
        }
        if let Some(will) = &hello.will {
            self.check_will(&hello.identity, hello.client_id, will)?;
        }
        // The identifier is a good one and its bearer may come in, only not together: "not allowed by the Server" (table 3-1
        // of MQTT 5, 0x85; before, table 3.1, 0x02), which tells the client what it has to change.
        if self.belongs_to_another(hello) { Err(ReasonCode::ClientIdentifierNotValid) } else { Ok(()) }
    }

    fn check_will(&mut self, identity: &Identity, client_id: &str, will: &ClientWill<'_>) -> Result<(), ReasonCode> {
        if will.qos > self.settings.qos_max {
            return Err(ReasonCode::QosNotSupported);
        }
        if will.retain && !self.settings.retain_available {
            return Err(ReasonCode::RetainNotSupported);
        }
        if !self.may_publish(identity, client_id, will.topic, will.payload) {
            self.tell(Event::Denied { client_id: client_id.into(), what: "will", topic: will.topic.into() });
            return Err(ReasonCode::NotAuthorized);
        }
        Ok(())
    }

    /// Another will, or none, for a client that is connected.
    pub(crate) fn set_will(&mut self, conn: ConnId, will: Option<ClientWill<'_>>) -> Result<(), ReasonCode> {
        let Some(index) = self.connection(conn).map(Connection::session) else { return Ok(()) };
        let Some(session) = self.sessions.get(index) else { return Ok(()) };
        let (identity, client_id) = (session.identity().clone(), Arc::clone(session.client_id()));
        if let Some(will) = &will {
            self.check_will(&identity, &client_id, will)?;
        }
        let will = will.map(|will| self.pending_will(index, &will));
        if let Some(session) = self.sessions.get_mut(index) {
            self.journal.clear_will(session);
            session.set_will(will);
        }
        self.keep_will(index);
        self.journal.end_whole();
        Ok(())
    }

    /// Whether the identifier has a session that another user made: whoever took it over would end that session, and the
    /// messages that wait in it (F039). A session that nobody in particular has made gives way to a user (see
    /// `claim_session`), or anybody could occupy a user's identifier; nothing of a user's gives way to nobody.
    fn belongs_to_another(&self, hello: &Hello<'_>) -> bool {
        let session = self.session_named(hello.client_id);
        session.is_some_and(|session| {
            let is_another = session.identity().user.is_some() && session.identity().user != hello.identity.user;
            is_another && (self.settings.bind_sessions || session.conn().is_some() || hello.identity.user.is_none())
        })
    }

    /// The session from before, if the client wants to go on with it; whoever is connected to it has to leave.
    fn claim_session(&mut self, hello: &Hello<'_>, now: Timestamp) -> Option<u32> {
        let session = self.by_client.find(hello.client_id, &self.sessions)?;
        if let Some(conn) = self.sessions.get(session)?.conn() {
            let conn = self.conn_id(conn);
            self.note_takeover(conn, session, now);
            self.end_connection(conn, Why::TakenOver, WillFate::Publish, now);
        }
        // It may have ended with the connection that was just closed.
        let session = self.by_client.find(hello.client_id, &self.sessions)?;
        // A session that gives way to another user leaves it nothing: neither messages nor subscriptions.
        let is_another = self.sessions.get(session)?.identity().user != hello.identity.user;
        if hello.is_clean || is_another {
            self.end_session(session, now);
            return None;
        }
        // Its delay is over, only its timer has not come yet, as before the first turn after a start. [MQTT-3.1.3-9]
        self.publish_due_will(session, now);
        Some(session)
    }

    fn note_takeover(&mut self, conn: ConnId, session: u32, now: Timestamp) {
        let seen_at = self.connection_mut(conn).map(|connection| connection.seen_at());
        if let (Some(seen_at), Some(session)) = (seen_at, self.sessions.get(session)) {
            self.name_conflicts.note(session.client_id(), seen_at, now);
        }
    }

    fn open_session(&mut self, hello: &Hello<'_>) -> Option<u32> {
        if self.sessions.len() >= self.settings.sessions_max {
            return None;
        }
        let client_id: Arc<str> = hello.client_id.into();
        // The same for every session of a client: what it sent before a reconnect is not overtaken by what it sends after.
        let origin = origin_of(&client_id);
        let parent = parent_of(&hello.identity, self.seed);
        let spool = self.settings.spool_of(&client_id);
        let mut session = Session::new(client_id, hello.identity.clone(), parent, origin);
        session.set_spool(spool);
        self.take_over_ghost(&mut session);
        let (index, _) = self.sessions.insert(session);
        self.by_client.insert(index, &self.sessions);
        Some(index)
    }

    /// Connects a session with its new connection and takes over what the client says.
    fn attach(&mut self, hello: Hello<'_>, index: u32, now: Timestamp) -> ConnId {
        let connection = Connection::new(hello.face, index, hello.inbound_max, now).with_keep_alive(hello.keep_alive);
        let patience = connection.patience();
        let (conn, generation) = self.connections.insert(connection);
        // The other broker may be away for longer than any client.
        let is_own = hello.identity.is_own();
        let expiry = if is_own { hello.expiry } else { hello.expiry.min(self.settings.session_expiry_max) };
        let window_max = if is_own { BRIDGE_WINDOW_MAX } else { self.settings.inflight_max };
        if let Some(session) = self.sessions.get_mut(index) {
            session.set_expiry(expiry);
        }
        self.number_session(index);
        let will = hello.will.map(|will| self.pending_will(index, &will));
        if let Some(session) = self.sessions.get_mut(index) {
            let parent = parent_of(&hello.identity, self.seed);
            session.begin_connection(conn, hello.identity, parent);
            self.journal.clear_will(session);
            session.set_will(will);
            session.under_way.set_window(hello.window.min(window_max).max(1));
            session.set_spool(self.settings.spool_of(session.client_id()));
        }
        if let Some(patience) = patience {
            self.timers.set(now, now + patience, DueTimer::KeepAlive { conn, generation });
        }
        self.note_absent(index);
        self.keep_session(index);
        self.keep_will(index);
        self.recognise(index, now);
        self.arm_release(index, now);
        self.set_group_presence(index, Presence::Online);
        self.stats.connects += 1;
        ConnId { index: conn, generation }
    }

    fn pending_will(&self, session: u32, will: &ClientWill<'_>) -> PendingWill {
        let publication = Publication {
            topic: will.topic,
            payload: will.payload,
            properties: will.properties,
            qos: will.qos,
            retain: will.retain,
            // The lifetime starts when it is published; see `publish_will`.
            expires: None,
            origin: self.sessions.get(session).map_or(0, Session::origin),
            // And so does its class.
            standing: Precedence::UNKNOWN,
        };
        let message = Arc::new(Message::new(&publication, self.memory.tally()));
        PendingWill::new(message, will.delay)
    }

    /// The client is told that it is not let in. The connection belongs to no session and closes at once.
    fn refuse(
        &mut self,
        hello: Hello<'_>,
        reason: ReasonCode,
        later: Option<(&'static str, Duration)>,
        now: Timestamp,
    ) -> ConnId {
        let connection = Connection::new(hello.face, u32::MAX, hello.inbound_max, now);
        let (index, generation) = self.connections.insert(connection);
        let conn = ConnId { index, generation };
        self.send(conn, &ClientAnswer::Unwelcome { reason, later });
        if let Some(connection) = self.connection_mut(conn) {
            connection.close();
        }
        self.to_close.push(conn);
        self.tell(Event::Refused { client_id: hello.client_id.into(), identity: hello.identity, reason });
        conn
    }

    /// Says something to a client, if its face has words for it.
    pub(crate) fn send(&mut self, conn: ConnId, answer: &ClientAnswer<'_>) {
        if self.connection(conn).is_none() {
            return;
        }
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        let written = connection.answer(answer, &mut self.spares);
        self.note_sent(conn, written);
    }

    /// The last word to a connection: nothing that is there already may come after it.
    pub(crate) fn send_last(&mut self, conn: ConnId, answer: &ClientAnswer<'_>) {
        let Some(connection) = self.connection_mut(conn) else { return };
        let bytes = connection.words_for(answer);
        if let Some(connection) = self.connections.get_mut(conn.index).filter(|_| !bytes.is_empty()) {
            connection.put_last(&bytes, &mut self.spares);
        }
        self.note_sent(conn, bytes.len());
    }

    /// A packet that answers the client is in its outbox.
    pub(crate) fn note_sent(&mut self, conn: ConnId, written: usize) {
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        if written > 0 {
            self.stats.packets_sent += 1;
            self.stats.bytes_sent += written as u64;
            self.memory.charge_outbox(written);
            connection.note_answer(written);
            if connection.list() {
                self.to_write.push_back(conn);
            }
        }
    }

    pub(crate) fn may(&self, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool {
        may(&*self.policy, identity, client_id, action, topic)
    }

    /// Whether a client may publish this. Nobody writes to `$SYS`, whatever the rules say, but a bridge of mosquitto's says
    /// there whether it is connected.
    pub(crate) fn may_publish(&self, identity: &Identity, client_id: &str, topic: &str, payload: &[u8]) -> bool {
        let is_state = payload.len() <= STATE_BYTES_MAX && is_own_state(client_id, topic);
        is_state || self.may(identity, client_id, Action::Publish, topic)
    }
}

/// What a bridge says at its state topic: 0 or 1. Who may publish nothing else has no more to say there.
const STATE_BYTES_MAX: usize = 1;

/// Asked of every message and every receiver: the broker's own rules concern few topics.
#[inline]
pub(crate) fn may(policy: &dyn Policy, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool {
    if topic.as_bytes().first() == Some(&b'$') {
        if action == Action::Publish && (topic == "$SYS" || topic.starts_with("$SYS/")) {
            return false;
        }
        if is_own_notice(client_id, action, topic) {
            return true;
        }
    }
    // What a bridge may do, its topics say.
    (identity.is_own() && action != Action::Prioritize) || policy.allows(identity, client_id, action, topic)
}

/// `$SYS/broker/connection/<client id>/state`: every mosquitto that bridges writes it, as its will, too. Under its own name only.
fn is_own_state(client_id: &str, topic: &str) -> bool {
    let name = topic.strip_prefix("$SYS/broker/connection/").and_then(|rest| rest.strip_suffix("/state"));
    name == Some(client_id) && !client_id.contains(['/', '+', '#'])
}

/// The number that a client's messages carry: the same on every shard and after a restart. Two clients may share one;
/// then they share a line in queues, too.
pub fn origin_of(client_id: &str) -> u64 {
    foldhash::quality::FixedState::with_seed(ORIGIN_SEED).hash_one(client_id).max(1)
}

const ORIGIN_SEED: u64 = 0x7469_6465_6761_7465;
