//! The handshakes of QoS 1 and 2, in both directions (section 4.3).

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Ack, AckKind, PacketId, Properties, ReasonCode};

use crate::session::Stage;
use crate::shard::{ConnId, Shard};

impl Shard {
    /// A QoS 1 message arrived at the client. An identifier that we do not know is nothing to quarrel about.
    pub(crate) fn handle_puback(&mut self, conn: ConnId, id: PacketId, now: Timestamp) {
        self.finish_inflight(conn, id, now, |stage| matches!(stage, Stage::Sent(_)));
    }

    /// A QoS 2 message arrived at the client, or was refused by it: a refusal ends the exchange. [MQTT-4.3.3-4]
    pub(crate) fn handle_pubrec(&mut self, conn: ConnId, id: PacketId, reason: ReasonCode, now: Timestamp) {
        if reason.is_failure() {
            self.finish_inflight(conn, id, now, |stage| matches!(stage, Stage::Sent(_)));
            return;
        }
        let Some(session) = self.session_of(conn) else { return };
        let position = session.inflight_position(id);
        let reason = if position.is_some() { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
        if let Some(position) = position
            && matches!(session.release(position), Some(Stage::Sent(_)))
        {
            session.ledger.delivered += 1;
            self.note_delivered();
        }
        self.send(conn, &Ack { kind: AckKind::PubRel, packet_id: id, reason, properties: Properties::EMPTY });
    }

    /// The client has released a QoS 2 message that it sent us. An identifier that we do not know is a mistake, but not
    /// during recovery (section 3.7.2.1): then our PUBCOMP was lost with the connection before.
    pub(crate) fn handle_pubrel(&mut self, conn: ConnId, id: PacketId) {
        let is_recovery = self.connection(conn).is_some_and(|connection| connection.is_resumed);
        let Some(session) = self.session_of(conn) else { return };
        let is_known = session.release_inbound(id) || is_recovery;
        let reason = if is_known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
        self.send(conn, &Ack { kind: AckKind::PubComp, packet_id: id, reason, properties: Properties::EMPTY });
    }

    /// A QoS 2 message is done.
    pub(crate) fn handle_pubcomp(&mut self, conn: ConnId, id: PacketId, now: Timestamp) {
        self.finish_inflight(conn, id, now, |stage| matches!(stage, Stage::Released));
    }

    /// Frees an identifier, and sends what was waiting for the window.
    fn finish_inflight(&mut self, conn: ConnId, id: PacketId, now: Timestamp, expected: impl Fn(&Stage) -> bool) {
        let Some(session) = self.session_of(conn) else { return };
        let Some(position) = session.inflight_position(id) else { return };
        if !session.inflight.get(position).is_some_and(|inflight| expected(&inflight.stage)) {
            return;
        }
        let finished = session.finish(position);
        session.ledger.delivered += u64::from(matches!(finished, Some(Stage::Sent(_))));
        let is_waiting = !session.queue.is_empty() || session.unsent > 0;
        // At the later stage it was counted when PUBREC came.
        if matches!(finished, Some(Stage::Sent(_))) {
            self.note_delivered();
        }
        if is_waiting && let Some(connection) = self.connection(conn) {
            self.pump(connection.session, now);
        }
    }

    fn note_delivered(&mut self) {
        self.stats.inflight_messages -= 1;
        self.stats.delivered += 1;
    }
}
