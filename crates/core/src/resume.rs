//! A session on a new connection: what was under way is sent again.

use tidegate_control::Timestamp;

use crate::connection::Connection;
use crate::deliver::{SendOutcome, delivery_of};
use crate::face::{ClientAnswer, Frames, OutgoingPublication};
use crate::ledger::Loss;
use crate::persist::Until;
use crate::session::DueMessage;
use crate::state::ShardState;

impl ShardState {
    /// A session goes on with a new connection: everything under way is sent again, in order and within the window of
    /// this connection, then what waits. [MQTT-4.4.0-1]
    pub(crate) fn resume(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let Some(conn) = session.conn() else { return };
        let (kept, steps) = (session.kept(), session.under_way.begin_again());
        let conn = self.conn_id(conn);
        for (packet_id, is_unsent) in steps {
            if is_unsent {
                self.send_again(index, now);
            } else {
                // Behind a welcome that waits for the same, it need not wait itself.
                let until = self.journal.until_synced_for(kept);
                let is_held = self.connection(conn).is_some_and(|connection| connection.welcome_after() == Some(until));
                let until = if is_held { Until::Now } else { until };
                self.reply(conn, &ClientAnswer::Release { number: packet_id, is_known: true }, until);
            }
        }
        self.pump(index, now);
    }

    /// Sends again the first message that was under way on an earlier connection; false if there is none, or no window.
    /// Lifetimes do not matter any more: delivery has begun, and the client may know the identifier.
    pub(crate) fn send_again(&mut self, index: u32, now: Timestamp) -> bool {
        let Some(session) = self.sessions.get_mut(index) else { return false };
        let conn = session.conn();
        let connection = conn.and_then(|conn| self.connections.get(conn));
        let outbox = connection.map_or(0, Connection::outbox_len);
        if outbox > self.settings.outbox_bytes_max || connection.is_some_and(Connection::is_without_credit) {
            return false;
        }
        let Some(DueMessage { position, packet_id, queued }) = session.under_way.take_unsent() else { return false };
        let delivery = delivery_of(queued.qos, packet_id, true);
        let publication = queued.message.view();
        // Rules may have changed while the client was away.
        if !self.may_receive(index, publication.topic) {
            if let Some(session) = self.sessions.get_mut(index) {
                self.journal.dequeue(session.kept(), &queued);
                session.under_way.finish(position);
            }
            self.stats.inflight_messages -= 1;
            self.lose_delivery(index, Loss::NotAllowed, publication.standing.class);
            return true;
        }
        let (retain, ids) = (queued.retain, &queued.ids);
        let copy = OutgoingPublication { publication: &publication, delivery, retain, ids, now };
        let fate = self.send_now(conn, &copy, &mut Frames::for_receivers(1));
        if fate == SendOutcome::Done
            && let Some(session) = self.sessions.get_mut(index)
        {
            self.journal.dequeue(session.kept(), &queued);
            session.under_way.finish(position);
            self.stats.inflight_messages -= 1;
        }
        true
    }
}
