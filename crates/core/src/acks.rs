//! The handshakes of QoS 1 and 2, in both directions (section 4.3).

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Ack, AckKind, PacketId, Properties, QoS, ReasonCode};

use crate::input::{Ending, Handled};
use crate::session::{Queued, Stage};
use crate::shard::ConnId;
use crate::state::ShardState;

impl ShardState {
    /// A QoS 1 message arrived at the client. An identifier that we do not know is nothing to quarrel about.
    pub(crate) fn handle_puback(&mut self, conn: ConnId, id: PacketId, now: Timestamp) -> Handled {
        self.check_answer(conn, id, AckKind::PubAck)?;
        self.finish_inflight(conn, id, now, |stage| matches!(stage, Stage::Sent(_)));
        Ok(())
    }

    /// A QoS 2 message arrived at the client, or was refused by it: a refusal ends the exchange. [MQTT-4.3.3-4]
    pub(crate) fn handle_pubrec(&mut self, conn: ConnId, id: PacketId, reason: ReasonCode, now: Timestamp) -> Handled {
        self.check_answer(conn, id, AckKind::PubRec)?;
        if reason.is_failure() {
            self.finish_inflight(conn, id, now, |stage| matches!(stage, Stage::Sent(_)));
            return Ok(());
        }
        let Some(session) = self.connection(conn).map(|connection| connection.session) else { return Ok(()) };
        let Some(session) = self.sessions.get_mut(session) else { return Ok(()) };
        let position = session.inflight_position(id);
        let reason = if position.is_some() { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
        if let Some(position) = position
            && let Some(Stage::Sent(queued)) = session.release(position)
        {
            self.journal.release(session.kept, &queued);
            session.ledger.delivered += 1;
            self.stats.inflight_messages -= 1;
            self.stats.finish_delivery(queued.message.class());
            self.meters.note_delivered(queued.message.class(), queued.since, now);
        }
        // Released before that is kept, it would be sent again after a crash, to a client that has forgotten it.
        let until = self.journal.until_synced_for(session.kept);
        let answer = Ack { kind: AckKind::PubRel, packet_id: id, reason, properties: Properties::EMPTY };
        self.reply(conn, &answer, until);
        Ok(())
    }

    /// PUBACK answers QoS 1, PUBREC answers QoS 2, and PUBCOMP what was released. Whoever confuses them has lost count of
    /// what it has received, and a message that it was promised once might come twice, or never. [MQTT-4.13.1-1]
    fn check_answer(&mut self, conn: ConnId, id: PacketId, answer: AckKind) -> Handled {
        let Some(session) = self.session_of(conn) else { return Ok(()) };
        let under_way = session.inflight_position(id).and_then(|position| session.inflight.get(position));
        let Some(under_way) = under_way else { return Ok(()) };
        let wrong = |detail| Err(Ending::protocol(ReasonCode::ProtocolError, detail));
        match (answer, &under_way.stage) {
            (AckKind::PubAck, Stage::Sent(Queued { qos: QoS::ExactlyOnce, .. }) | Stage::Released { .. }) => {
                wrong("PUBACK for a message of QoS 2 (section 4.3.3)")
            }
            (AckKind::PubRec | AckKind::PubComp, Stage::Sent(Queued { qos: QoS::AtLeastOnce, .. })) => {
                wrong("PUBREC or PUBCOMP for a message of QoS 1 (section 4.3.2)")
            }
            (AckKind::PubComp, Stage::Sent(Queued { qos: QoS::ExactlyOnce, .. })) => {
                wrong("PUBCOMP in place of PUBREC (section 4.3.3)")
            }
            (AckKind::PubAck | AckKind::PubRec, Stage::Sent(_)) | (AckKind::PubComp, Stage::Released { .. }) => {
                if let Some(connection) = self.connection_mut(conn) {
                    connection.silent.note_answer();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The client has released a QoS 2 message that it sent us. An identifier that we do not know is a mistake, but not
    /// during recovery (section 3.7.2.1): then our PUBCOMP was lost with the connection before.
    pub(crate) fn handle_pubrel(&mut self, conn: ConnId, id: PacketId) {
        let is_recovery = self.connection(conn).is_some_and(|connection| connection.is_resumed);
        let Some(session) = self.connection(conn).map(|connection| connection.session) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let was_there = session.release_inbound(id);
        if was_there {
            self.journal.release_inbound(session.kept, id);
        }
        let is_known = was_there || is_recovery;
        let reason = if is_known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
        let until = self.journal.until_synced_for(session.kept);
        let answer = Ack { kind: AckKind::PubComp, packet_id: id, reason, properties: Properties::EMPTY };
        self.reply(conn, &answer, until);
    }

    /// A QoS 2 message is done.
    pub(crate) fn handle_pubcomp(&mut self, conn: ConnId, id: PacketId, now: Timestamp) -> Handled {
        self.check_answer(conn, id, AckKind::PubComp)?;
        self.finish_inflight(conn, id, now, |stage| matches!(stage, Stage::Released { .. }));
        Ok(())
    }

    /// Frees an identifier, and sends what was waiting for the window.
    fn finish_inflight(&mut self, conn: ConnId, id: PacketId, now: Timestamp, expected: impl Fn(&Stage) -> bool) {
        let Some(session) = self.connection(conn).map(|connection| connection.session) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let Some(position) = session.inflight_position(id) else { return };
        if !session.inflight.get(position).is_some_and(|inflight| expected(&inflight.stage)) {
            return;
        }
        let finished = session.finish(position);
        if let Some(stage) = &finished {
            self.journal.finish(session.kept, stage);
        }
        session.ledger.delivered += u64::from(matches!(finished, Some(Stage::Sent(_))));
        let is_waiting = session.has_more();
        // At the later stage it was counted when PUBREC came.
        if let Some(Stage::Sent(queued)) = finished {
            self.note_delivered(&queued, now);
        }
        if is_waiting && let Some(connection) = self.connection(conn) {
            self.pump(connection.session, now);
        }
    }

    fn note_delivered(&mut self, queued: &Queued, now: Timestamp) {
        self.stats.inflight_messages -= 1;
        self.stats.finish_delivery(queued.message.class());
        self.meters.note_delivered(queued.message.class(), queued.since, now);
    }
}
