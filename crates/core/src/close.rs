//! The end of connections and sessions, and the wills that follow.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{ReasonCode, TopicFilter};

use crate::access::Identity;
use crate::connection::Connection;
use crate::event::{Event, Why};
use crate::face::ClientAnswer;
use crate::ledger::{Ledger, Loss};
use crate::message::{Message, Shareable, expiry};
use crate::report::Parting;
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};
use crate::subscribe::own_filters;
use crate::subscriptions::Presence;
use crate::timers::DueTimer;

impl ShardState {
    pub(crate) fn handle_closed(&mut self, conn: ConnId, why: Why, now: Timestamp) {
        let Some(connection) = self.connection(conn) else { return };
        if !connection.is_closing() {
            self.detach(conn, why, WillFate::Publish, now);
        }
        if let Some(mut connection) = self.connections.remove(conn.index) {
            self.memory.release_outbox(connection.outbox_len() + connection.owed_bytes());
            self.stats.clients_slow -= u64::from(connection.stalled_since().is_some());
            connection.clear_outbox(&mut self.spares);
        }
        self.journal.end_whole();
    }

    pub(crate) fn handle_shutdown(&mut self, reason: ReasonCode, now: Timestamp) {
        let open: Vec<u32> =
            self.connections.iter().filter(|(_, open)| !open.is_closing()).map(|(index, _)| index).collect();
        for index in open {
            self.end_connection(self.conn_id(index), Why::Ended(reason), WillFate::Publish, now);
        }
    }

    pub(crate) fn handle_kick(&mut self, client_id: &str, reason: ReasonCode, now: Timestamp) {
        let session = self.session_named(client_id);
        if let Some(conn) = session.and_then(Session::conn) {
            self.end_connection(self.conn_id(conn), Why::Ended(reason), WillFate::Publish, now);
        }
    }

    pub(crate) fn handle_session_end(&mut self, client_id: &str, reason: ReasonCode, now: Timestamp) {
        self.handle_kick(client_id, reason, now);
        // Without a connection it may have ended already.
        if let Some(index) = self.by_client.find(client_id, &self.sessions) {
            self.end_session(index, now);
        }
    }

    pub(crate) fn handle_expel(
        &mut self,
        concerns: impl Fn(&str, &Identity) -> bool,
        reason: ReasonCode,
        now: Timestamp,
    ) {
        let is_meant = |session: &&Session| concerns(session.client_id(), session.identity());
        let sessions = self.sessions.iter().map(|(_, session)| session);
        let open: Vec<u32> = sessions.filter(is_meant).filter_map(Session::conn).collect();
        for conn in open {
            self.end_connection(self.conn_id(conn), Why::Ended(reason), WillFate::Publish, now);
        }
    }

    /// A login that has ended, of a connection that may be gone.
    pub(crate) fn handle_login_end(&mut self, conn: ConnId, now: Timestamp) {
        self.end_connection(conn, Why::Ended(ReasonCode::MaximumConnectTime), WillFate::Publish, now);
    }

    /// Ends a connection from this side: the client is told if its version has words for it, the session goes on without
    /// it, and the driver is asked to close the socket.
    pub(crate) fn end_connection(&mut self, conn: ConnId, why: Why, will: WillFate, now: Timestamp) {
        if self.connection(conn).is_none_or(Connection::is_closing) {
            return;
        }
        self.send_last(conn, &ClientAnswer::Goodbye(&why));
        self.detach(conn, why, will, now);
        self.to_close.push(conn);
    }

    /// The same without a word.
    pub(crate) fn cut(&mut self, conn: ConnId, why: Why, now: Timestamp) {
        self.detach(conn, why, WillFate::Publish, now);
        self.to_close.push(conn);
    }

    /// Takes a connection from its session.
    fn detach(&mut self, conn: ConnId, why: Why, will: WillFate, now: Timestamp) {
        let Some(connection) = self.connection_mut(conn) else { return };
        connection.close();
        let (index, protocol, since) = (connection.session(), connection.face().protocol(), connection.since());
        let traffic = connection.take_traffic().as_ledger();
        self.meters.note_closed(&why);
        let Some(session) = self.sessions.get_mut(index) else { return };
        session.end_connection(&traffic);
        if !self.settings.queue_qos0 && session.queue().is_some() {
            session.with_queue(&mut self.stats, |queue, losses| {
                queue.drop_passing(|lost| losses.lose(Loss::Away, lost.message.class()));
            });
        }
        let (identity, ledger) = (session.identity().clone(), session.ledger.clone());
        let mut parting = Box::new(Parting { identity, protocol, since, at: now, ledger });
        let (client_id, ends_now) = (Arc::clone(session.client_id()), !session.is_lasting());
        if will == WillFate::Discard {
            self.journal.clear_will(session);
            session.set_will(None);
        }
        self.leave_gate(index, now);
        self.set_group_presence(index, Presence::Offline);
        if !ends_now {
            self.tell(Event::Disconnected { conn, client_id, why, parting });
            self.start_clocks(index, now);
            self.note_absent(index);
            self.bound_absent(now);
            return;
        }
        if let Some(session) = self.dissolve(index, now) {
            // What its end has cost belongs to this client's account: nobody can ask for it later. What it sent and a
            // ghost still holds was received all the same.
            parting.ledger = Ledger { received: parting.ledger.received, ..session.ledger };
        }
        self.tell(Event::Disconnected { conn, client_id: Arc::clone(&client_id), why, parting });
        self.tell(Event::SessionEnded { client_id });
    }

    /// A session without a connection ends later, and so does its will.
    fn start_clocks(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        session.start_clocks(now);
        self.keep_session(index);
        self.keep_will(index);
        self.look_after(index, now);
    }

    /// Does what is due for a session without a connection, and sets the timer for what is not.
    pub(crate) fn look_after(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(index) else { return };
        if session.is_expired(now) {
            self.stats.sessions_expired += 1;
            self.end_session(index, now);
            return;
        }
        self.publish_due_will(index, now);
        self.watch_session(index, now, now);
    }

    /// Publishes a will whose delay is over.
    pub(crate) fn publish_due_will(&mut self, index: u32, now: Timestamp) {
        if self.sessions.get(index).is_some_and(|session| session.is_will_due(now)) {
            self.publish_will(index, now);
        }
    }

    /// Sets the timer for what is due next for a session without a connection, for this time at the earliest.
    pub(crate) fn watch_session(&mut self, index: u32, earliest: Timestamp, now: Timestamp) {
        if let Some(next) = self.sessions.get(index).and_then(Session::next_deadline) {
            let generation = self.sessions.generation(index).unwrap_or(0);
            let at = self.timers.set(now, next.max(earliest), DueTimer::Session { session: index, generation });
            if let Some(session) = self.sessions.get_mut(index) {
                session.set_timer(at);
            }
        }
    }

    /// Ends a session: its will is published, its subscriptions and messages go.
    pub(crate) fn end_session(&mut self, index: u32, now: Timestamp) {
        if let Some(session) = self.dissolve(index, now) {
            self.tell(Event::SessionEnded { client_id: Arc::clone(session.client_id()) });
        }
    }

    /// The same, to be told by the caller; what is left of the session is its account.
    fn dissolve(&mut self, index: u32, now: Timestamp) -> Option<Session> {
        self.publish_will(index, now);
        let mut session = self.sessions.remove(index)?;
        self.memory.change_absent(index, session.replace_absent_bytes(0), 0);
        self.by_client.remove(session.client_id(), index);
        self.end_subscriptions(index, &session);
        // Before it is noted that the session has ended: somebody must need its messages, or they are gone.
        self.hand_over(&mut session, now);
        self.journal.end_session(&session);
        self.count_lost(&mut session);
        self.leave_behind(&mut session, now);
        self.departed.add(&session.ledger);
        Some(session)
    }

    fn end_subscriptions(&mut self, index: u32, session: &Session) {
        self.subscriptions_ended += session.subscriptions().len() as u64;
        for (text, _) in session.subscriptions() {
            // By the widest limits: those of today may be narrower than when it was made, and a subscription that stays
            // behind would belong to whoever gets this place next.
            if let Ok(filter) = TopicFilter::parse(text, &own_filters()) {
                self.unsubscribe_one(index, &filter);
            }
        }
    }

    fn publish_will(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let was_kept = session.is_will_kept();
        self.journal.clear_will(session);
        let Some(message) = session.take_will() else { return };
        let (identity, client_id) = (session.identity().clone(), Arc::clone(session.client_id()));
        let mut publication = message.view();
        // It was allowed when the client connected; rules may have changed since.
        if !self.may_publish(&identity, &client_id, publication.topic, publication.payload) {
            self.stats.wills_denied += 1;
            self.tell(Event::Denied { client_id, what: "will", topic: publication.topic.into() });
            return;
        }
        publication.expires = expiry(&publication.properties, now);
        publication.standing = self.classify(index, &publication, now);
        publication.standing.colour = self.colour_of_will(&identity, &client_id, now);
        let message = Arc::new(Message::new(&publication, self.memory.tally()));
        let message = Shareable::of(&message);
        if was_kept {
            self.prepare_will(&message);
        }
        self.publish_shareable(&message, now);
    }

    pub(crate) fn check_alive(&mut self, conn: ConnId, now: Timestamp) {
        let Some(connection) = self.connection(conn).filter(|connection| !connection.is_closing()) else { return };
        let Some(patience) = connection.patience() else { return };
        // The clock stands still while we do not listen; who is not read because of others cannot be heard either.
        let is_deaf =
            connection.is_paused() || connection.is_unread() || connection.is_owed_much() || self.links.is_clogged();
        let seen_at = if is_deaf { now } else { connection.seen_at() };
        let deadline = seen_at + patience;
        if deadline <= now {
            // [MQTT-3.1.2-22]
            self.end_connection(conn, Why::KeepAlive, WillFate::Publish, now);
        } else {
            self.timers.set(now, deadline, DueTimer::KeepAlive { conn: conn.index, generation: conn.generation });
        }
    }

    pub(crate) fn check_session(&mut self, index: u32, generation: u32, at: Timestamp, now: Timestamp) {
        let is_current = self.sessions.generation(index) == Some(generation);
        let session = self.sessions.get(index).filter(|session| is_current && session.conn().is_none());
        if session.is_some_and(|session| session.is_timer(at)) {
            self.look_after(index, now);
        }
    }
}
