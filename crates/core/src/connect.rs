//! CONNECT: a session is found, taken over, cleaned or made, and the client is told what holds from now on.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    ConnAck, Connect, Encode, Encoded, Peer, Properties, Property, QoS, ReasonCode, Version, Will,
};

use crate::access::{Action, Identity, Policy};
use crate::aliases::AliasesOut;
use crate::connection::Connection;
use crate::event::{Event, Why};
use crate::gate::{Pace, Turned, is_own_notice};
use crate::limits::{CONNECTIONS_MAX, STORE_PAUSE};
use crate::message::{Message, Publication, Standing};
use crate::parent::parent_of;
use crate::persist::Trouble;
use crate::session::{PendingWill, Session};
use crate::shard::{ConnId, Hello};
use crate::state::{ShardState, WillFate};
use crate::subscriptions::Presence;
use crate::timers::DueTimer;

impl ShardState {
    pub(crate) fn handle_connect(&mut self, hello: &Hello<'_>, now: Timestamp) -> Option<ConnId> {
        if self.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.settle_memory();
        self.stats.packets_received += 1;
        // It has passed the strict decoder, so that there is one way to write it: this is what came.
        self.stats.bytes_received += hello.connect.encoded_len(hello.connect.version).unwrap_or(0) as u64;
        let conn = self.greet(hello, now);
        self.journal.end_whole();
        Some(conn)
    }

    /// While nothing can be kept, nobody is promised a session that would have to be. One from before goes on.
    fn check_store(&self, hello: &Hello<'_>) -> Result<(), ReasonCode> {
        let is_new = hello.connect.clean_start || !self.by_client.contains_key(hello.client_id);
        let is_lasting = !self.session_expiry(hello.connect).is_zero();
        if self.store_trouble().is_some() && is_new && is_lasting {
            return Err(ReasonCode::ServerUnavailable);
        }
        Ok(())
    }

    fn greet(&mut self, hello: &Hello<'_>, now: Timestamp) -> ConnId {
        if let Err(reason) = self.check_hello(hello) {
            return self.refuse(hello, reason, Properties::EMPTY, now);
        }
        if let Err(Turned { reason, retry_after, words }) = self.check_arrival(hello, now) {
            let pace = Pace::new(None, retry_after);
            return self.refuse(hello, reason, Properties::new(&pace.properties(words)), now);
        }
        if let Err(reason) = self.check_store(hello) {
            let pace = Pace::new(None, STORE_PAUSE);
            let words = self.store_trouble().map_or("", Trouble::words);
            return self.refuse(hello, reason, Properties::new(&pace.properties(words)), now);
        }
        let session_present = self.claim_session(hello, now);
        let session = if session_present.is_some() { session_present } else { self.open_session(hello) };
        let Some(session) = session else {
            return self.refuse(hello, ReasonCode::QuotaExceeded, Properties::EMPTY, now);
        };
        let conn = self.attach(hello, session, now);
        if let Some(connection) = self.connection_mut(conn) {
            connection.is_resumed = session_present.is_some();
        }
        self.tell(Event::Connected {
            conn,
            client_id: hello.client_id.into(),
            session_present: session_present.is_some(),
            identity: hello.identity.clone(),
            version: hello.connect.version,
            keep_alive: self.keep_alive(hello.connect),
        });
        self.send_connack(conn, hello, session_present.is_some());
        self.hold_connack(conn, session);
        self.resume(session, now);
        conn
    }

    fn check_hello(&mut self, hello: &Hello<'_>) -> Result<(), ReasonCode> {
        let connect = hello.connect;
        if hello.client_id.is_empty() || hello.client_id.len() > self.settings.client_id_bytes_max {
            return Err(ReasonCode::ClientIdentifierNotValid);
        }
        if connect.properties.authentication_method().is_some() {
            return Err(ReasonCode::BadAuthenticationMethod);
        }
        if !self.accepts_connack(hello) {
            // Better no connection than one without an answer.
            return Err(ReasonCode::PacketTooLarge);
        }
        if let Some(will) = connect.will {
            if will.qos > self.settings.qos_max {
                return Err(ReasonCode::QosNotSupported);
            }
            if will.retain && !self.settings.retain_available {
                return Err(ReasonCode::RetainNotSupported);
            }
            if !self.may(&hello.identity, hello.client_id, Action::Publish, will.topic) {
                let event = Event::Denied { client_id: hello.client_id.into(), what: "will", topic: will.topic.into() };
                self.tell(event);
                return Err(ReasonCode::NotAuthorized);
            }
        }
        // The identifier is a good one and its bearer may come in, only not together: "not allowed by the Server" (table 3-1
        // of MQTT 5, 0x85; before, table 3.1, 0x02), which tells the client what it has to change.
        if self.belongs_to_another(hello) { Err(ReasonCode::ClientIdentifierNotValid) } else { Ok(()) }
    }

    /// Whether the identifier has a session that another user made: whoever took it over would end that session, and the
    /// messages that wait in it (F039). A session that nobody in particular has made gives way to a user (see
    /// `claim_session`), or anybody could occupy a user's identifier; nothing of a user's gives way to nobody.
    fn belongs_to_another(&self, hello: &Hello<'_>) -> bool {
        let session = self.by_client.get(hello.client_id).and_then(|session| self.sessions.get(*session));
        session.is_some_and(|session| {
            let is_another = session.identity.user.is_some() && session.identity.user != hello.identity.user;
            is_another && (self.settings.bind_sessions || session.conn.is_some() || hello.identity.user.is_none())
        })
    }

    /// The session from before, if the client wants to go on with it; whoever is connected to it has to leave.
    fn claim_session(&mut self, hello: &Hello<'_>, now: Timestamp) -> Option<u32> {
        let session = *self.by_client.get(hello.client_id)?;
        if let Some(conn) = self.sessions.get(session)?.conn {
            let conn = self.conn_id(conn);
            self.end_connection(conn, Why::TakenOver, WillFate::Publish, now);
        }
        // It may have ended with the connection that was just closed.
        let session = *self.by_client.get(hello.client_id)?;
        // A session that gives way to another user leaves it nothing: neither messages nor subscriptions.
        let is_another = self.sessions.get(session)?.identity.user != hello.identity.user;
        if hello.connect.clean_start || is_another {
            self.end_session(session, now);
            return None;
        }
        // Its delay is over, only its timer has not come yet, as before the first turn after a start. [MQTT-3.1.3-9]
        self.publish_due_will(session, now);
        Some(session)
    }

    fn open_session(&mut self, hello: &Hello<'_>) -> Option<u32> {
        if self.sessions.len() >= self.settings.sessions_max {
            return None;
        }
        let client_id: Arc<str> = hello.client_id.into();
        // The same for every session of a client: what it sent before a reconnect is not overtaken by what it sends after.
        let origin = origin_of(&client_id);
        let parent = parent_of(&hello.identity, self.seed);
        let mut session = Session::new(Arc::clone(&client_id), hello.identity.clone(), parent, origin);
        self.take_over_ghost(&mut session);
        let (index, _) = self.sessions.insert(session);
        self.by_client.insert(client_id, index);
        Some(index)
    }

    /// Connects a session with its new connection and takes over what the CONNECT says.
    fn attach(&mut self, hello: &Hello<'_>, index: u32, now: Timestamp) -> ConnId {
        let connect = hello.connect;
        let settings = Arc::clone(&self.settings);
        let aliases = connect.properties.topic_alias_maximum().unwrap_or(0).min(settings.topic_alias_out_max);
        let aliases = (aliases > 0).then(|| Box::new(AliasesOut::new(aliases, self.seed, &self.memory)));
        let mut connection = Connection::new(connect, index, now, aliases);
        let keep_alive = self.keep_alive(connect);
        connection.patience = (keep_alive > 0).then(|| Duration::from_millis(u64::from(keep_alive) * 1500));
        let patience = connection.patience;
        let (conn, generation) = self.connections.insert(connection);
        let expiry = self.session_expiry(connect);
        if let Some(session) = self.sessions.get_mut(index) {
            session.expiry = expiry;
        }
        self.number_session(index);
        let will = connect.will.map(|will| self.pending_will(index, &will));
        if let Some(session) = self.sessions.get_mut(index) {
            session.conn = Some(conn);
            session.class = None;
            session.identity = hello.identity.clone();
            session.parent = parent_of(&session.identity, self.seed);
            session.expires_at = None;
            session.timer_at = None;
            self.journal.clear_will(session);
            session.will = will.map(Box::new);
            let receive_max = connect.properties.receive_maximum().map_or(u16::MAX, NonZeroU16::get);
            session.window = receive_max.min(settings.inflight_max).max(1);
            session.inbound_before = session.inbound.len();
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

    fn pending_will(&self, session: u32, will: &Will<'_>) -> PendingWill {
        let publication = Publication {
            topic: will.topic,
            payload: will.payload,
            properties: will.properties,
            qos: will.qos,
            retain: will.retain,
            // The lifetime starts when it is published; see `publish_will`.
            expires: None,
            origin: self.sessions.get(session).map_or(0, |session| session.origin),
            // And so does its class.
            standing: Standing::UNKNOWN,
        };
        let delay = Duration::from_secs(will.properties.will_delay().unwrap_or(0).into());
        let message = Arc::new(Message::new(&publication, self.memory.tally()));
        PendingWill { message, delay, due_at: None, is_kept: false }
    }

    fn session_expiry(&self, connect: &Connect<'_>) -> Duration {
        let wanted = match connect.version {
            Version::V5 => match connect.properties.session_expiry().unwrap_or(0) {
                u32::MAX => Duration::MAX,
                seconds => Duration::from_secs(seconds.into()),
            },
            _ if connect.clean_start => Duration::ZERO,
            _ => self.settings.session_expiry_v3,
        };
        wanted.min(self.settings.session_expiry_max)
    }

    /// Seconds of silence that are agreed on; 0 is without end.
    fn keep_alive(&self, connect: &Connect<'_>) -> u16 {
        match (self.settings.keep_alive_max, connect.version) {
            (Some(most), Version::V5) if connect.keep_alive == 0 || connect.keep_alive > most => most,
            _ => connect.keep_alive,
        }
    }

    fn send_connack(&mut self, conn: ConnId, hello: &Hello<'_>, session_present: bool) {
        let list = self.connack_properties(hello);
        let packet = ConnAck { session_present, reason: ReasonCode::Success, properties: Properties::new(&list) };
        self.send(conn, &packet);
    }

    /// Whether the client accepts a packet as large as the CONNACK that is due to it.
    fn accepts_connack(&self, hello: &Hello<'_>) -> bool {
        let Some(packet_bytes_max) = hello.connect.properties.maximum_packet_size() else { return true };
        let list = self.connack_properties(hello);
        let packet = ConnAck { session_present: true, reason: ReasonCode::Success, properties: Properties::new(&list) };
        let peer = Peer { packet_bytes_max: packet_bytes_max.get(), ..Peer::new(hello.connect.version) };
        !matches!(packet.encode(peer, &mut Vec::new()), Encoded::TooLarge)
    }

    fn connack_properties<'h>(&self, hello: &'h Hello<'_>) -> Vec<Property<'h>> {
        let (connect, settings) = (hello.connect, &self.settings);
        let mut list: Vec<Property<'_>> = Vec::new();
        if connect.version == Version::V5 {
            let wanted = connect.properties.session_expiry().unwrap_or(0);
            let granted = u32::try_from(self.session_expiry(connect).as_secs()).unwrap_or(u32::MAX);
            if granted != wanted {
                list.push(Property::SessionExpiry(granted));
            }
            list.extend(NonZeroU16::new(settings.receive_max).map(Property::ReceiveMaximum));
            if settings.qos_max < QoS::ExactlyOnce {
                list.push(Property::MaximumQos(settings.qos_max));
            }
            if !settings.retain_available {
                list.push(Property::RetainAvailable(false));
            }
            list.extend(NonZeroU32::new(settings.packet_bytes_max).map(Property::MaximumPacketSize));
            if connect.client_id.is_empty() {
                list.push(Property::AssignedClientId(hello.client_id));
            }
            list.push(Property::TopicAliasMaximum(settings.topic_alias_max));
            let keep_alive = self.keep_alive(connect);
            if keep_alive != connect.keep_alive {
                list.push(Property::ServerKeepAlive(keep_alive));
            }
        }
        list
    }

    /// A CONNACK that refuses. The connection belongs to no session and closes at once.
    fn refuse(&mut self, hello: &Hello<'_>, reason: ReasonCode, properties: Properties<'_>, now: Timestamp) -> ConnId {
        let connection = Connection::new(hello.connect, u32::MAX, now, None);
        let (index, generation) = self.connections.insert(connection);
        let conn = ConnId { index, generation };
        self.send(conn, &ConnAck { session_present: false, reason, properties });
        if let Some(connection) = self.connection_mut(conn) {
            connection.is_closing = true;
        }
        self.to_close.push(conn);
        let identity = hello.identity.clone();
        self.tell(Event::Refused { client_id: hello.client_id.into(), identity, reason });
        conn
    }

    /// Encodes a packet into a connection's outbox. A packet that the client would not accept is not sent.
    pub(crate) fn send(&mut self, conn: ConnId, packet: &impl Encode) {
        if self.connection(conn).is_none() {
            return;
        }
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        let peer = connection.peer;
        let written = connection.outbox.answer(&mut self.spares, |out| {
            let _ = packet.encode(peer, out);
        });
        self.note_sent(conn, written);
    }

    /// The last packet of a connection: nothing that is there already may come after it.
    pub(crate) fn send_last(&mut self, conn: ConnId, packet: &impl Encode) {
        let Some(connection) = self.connection_mut(conn) else { return };
        let mut bytes = alloc::vec::Vec::new();
        let _ = packet.encode(connection.peer, &mut bytes);
        if let Some(connection) = self.connections.get_mut(conn.index) {
            connection.outbox.writer(&mut self.spares).extend_from_slice(&bytes);
        }
        self.note_sent(conn, bytes.len());
    }

    /// A packet that answers the client is in its outbox.
    fn note_sent(&mut self, conn: ConnId, written: usize) {
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        if written > 0 {
            self.stats.packets_sent += 1;
            self.stats.bytes_sent += written as u64;
            connection.traffic.bytes_sent += written as u64;
            self.memory.charge_outbox(written);
            connection.answer_bytes += written;
            if !connection.is_listed {
                connection.is_listed = true;
                self.to_write.push_back(conn);
            }
        }
    }

    pub(crate) fn may(&self, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool {
        may(&*self.policy, identity, client_id, action, topic)
    }
}

/// Asked of every message and every receiver: the broker's own rules concern few topics.
#[inline]
pub(crate) fn may(policy: &dyn Policy, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool {
    if topic.as_bytes().first() == Some(&b'$') {
        // Nobody writes to `$SYS`, whatever the rules say.
        if action == Action::Publish && (topic == "$SYS" || topic.starts_with("$SYS/")) {
            return false;
        }
        if is_own_notice(client_id, action, topic) {
            return true;
        }
    }
    policy.allows(identity, client_id, action, topic)
}

/// The number that a client's messages carry: the same on every shard and after a restart. Two clients may share one;
/// then they share a line in queues, too.
pub(crate) fn origin_of(client_id: &str) -> u64 {
    foldhash::quality::FixedState::with_seed(ORIGIN_SEED).hash_one(client_id).max(1)
}

const ORIGIN_SEED: u64 = 0x7469_6465_6761_7465;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Open;
    use crate::settings::Settings;

    #[test]
    fn a_connect_is_one_packet_with_its_bytes() {
        let mut shard = ShardState::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
        let connect = Connect {
            version: Version::V311,
            clean_start: true,
            keep_alive: 60,
            properties: Properties::EMPTY,
            client_id: "x",
            will: None,
            user_name: None,
            password: None,
        };
        let hello = Hello { connect: &connect, client_id: "x", identity: Identity::default() };
        assert!(shard.handle_connect(&hello, Timestamp::ZERO).is_some());
        // Two of fixed header, ten of variable header, three of identifier.
        assert_eq!((shard.stats().packets_received, shard.stats().bytes_received), (1, 15));
        let event = shard.poll_event();
        assert!(matches!(event, Some(Event::Connected { version: Version::V311, keep_alive: 60, .. })), "{event:?}");
    }
}
