//! How messages are handed over at least once, and exactly once, in both directions.

use alloc::collections::BTreeSet;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{PacketId, QoS};

use crate::connection::Connection;
use crate::face::ClientAnswer;
use crate::ledger::Loss;
use crate::session::{InflightStage, Queued};
use crate::shard::ConnId;
use crate::state::ShardState;

/// What a client says of a message that it was sent. An unknown number is nothing to quarrel about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It has a message that it is to have at least once: done.
    Received,
    /// It has a message that it is to have exactly once, and remembers its number until it is released.
    Stored,
    /// It does not want a message that it is to have exactly once: done.
    Declined,
    /// It has forgotten the number of a message that was released: done.
    Completed,
}

/// A confirmation that does not fit its message: whoever confuses them has lost count of what it has received, and a
/// message that it was promised once might come twice, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misstep {
    /// `Received` for a message that it is to have exactly once.
    ReceivedInPlaceOfStored,
    /// `Stored`, `Declined` or `Completed` for a message that it is to have at least once.
    StoredInPlaceOfReceived,
    /// `Completed` for a message that was not released.
    CompletedInPlaceOfStored,
}

impl ShardState {
    pub(crate) fn confirm(
        &mut self,
        conn: ConnId,
        number: PacketId,
        confirmation: Confirmation,
        now: Timestamp,
    ) -> Result<(), Misstep> {
        self.check_confirmation(conn, number, confirmation)?;
        if self.activities.is_on() {
            self.note_confirmed(conn, number, confirmation, now);
        }
        match confirmation {
            Confirmation::Received | Confirmation::Declined => {
                self.finish_inflight(conn, number, now, |stage| matches!(stage, InflightStage::Sent(_)));
            }
            Confirmation::Stored => self.note_stored(conn, number, now),
            Confirmation::Completed => {
                self.finish_inflight(conn, number, now, |stage| matches!(stage, InflightStage::Released { .. }));
            }
        }
        Ok(())
    }

    fn note_stored(&mut self, conn: ConnId, id: PacketId, now: Timestamp) {
        let Some(session) = self.session_at(conn) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let position = session.under_way.position(id);
        let is_known = position.is_some();
        if let Some(position) = position
            && let Some(InflightStage::Sent(queued)) = session.under_way.release(position)
        {
            self.journal.release(session.kept(), &queued);
            session.ledger.finish_delivery();
            self.stats.inflight_messages -= 1;
            self.stats.finish_delivery(queued.message.class());
            self.meters.note_delivered(queued.message.class(), queued.since, now);
        }
        // Released before that is kept, it would be sent again after a crash, to a client that has forgotten it.
        let until = self.journal.until_synced_for(session.kept());
        self.reply(conn, &ClientAnswer::Release { number: id, is_known }, until);
    }

    fn check_confirmation(&mut self, conn: ConnId, id: PacketId, confirmation: Confirmation) -> Result<(), Misstep> {
        let Some(session) = self.session_of(conn) else { return Ok(()) };
        let stage = session.under_way.position(id).and_then(|position| session.under_way.stage(position));
        let Some(stage) = stage else { return Ok(()) };
        match (confirmation, stage) {
            (
                Confirmation::Received,
                InflightStage::Sent(Queued { qos: QoS::ExactlyOnce, .. }) | InflightStage::Released { .. },
            ) => Err(Misstep::ReceivedInPlaceOfStored),
            (
                Confirmation::Stored | Confirmation::Declined | Confirmation::Completed,
                InflightStage::Sent(Queued { qos: QoS::AtLeastOnce, .. }),
            ) => Err(Misstep::StoredInPlaceOfReceived),
            (Confirmation::Completed, InflightStage::Sent(Queued { qos: QoS::ExactlyOnce, .. })) => {
                Err(Misstep::CompletedInPlaceOfStored)
            }
            (Confirmation::Received | Confirmation::Stored | Confirmation::Declined, InflightStage::Sent(_))
            | (Confirmation::Completed, InflightStage::Released { .. }) => {
                if let Some(connection) = self.connection_mut(conn) {
                    connection.note_expected();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The client has released a QoS 2 message that it sent us. An identifier that we do not know is a mistake, but not
    /// during recovery (section 3.7.2.1): then our answer was lost with the connection before.
    pub(crate) fn release_number(&mut self, conn: ConnId, id: PacketId) {
        let is_recovery = self.connection(conn).is_some_and(Connection::is_resumed);
        let Some(session) = self.session_at(conn) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let was_there = session.inbound.remove(id);
        if was_there {
            self.journal.release_inbound(session.kept(), id);
        }
        let is_known = was_there || is_recovery;
        let until = self.journal.until_synced_for(session.kept());
        self.reply(conn, &ClientAnswer::Complete { number: id, is_known }, until);
    }

    /// Frees an identifier, and sends what was waiting for the window.
    fn finish_inflight(
        &mut self,
        conn: ConnId,
        id: PacketId,
        now: Timestamp,
        expected: impl Fn(&InflightStage) -> bool,
    ) {
        let Some(session) = self.session_at(conn) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let Some(position) = session.under_way.position(id) else { return };
        if !session.under_way.stage(position).is_some_and(expected) {
            return;
        }
        let finished = session.under_way.finish(position);
        if let Some(stage) = &finished {
            self.journal.finish(session.kept(), stage);
        }
        if let Some(InflightStage::Sent(_)) = finished {
            session.ledger.finish_delivery();
        }
        let is_waiting = session.has_more();
        // At the later stage it was counted when it was stored there.
        if let Some(InflightStage::Sent(queued)) = finished {
            self.note_delivered(&queued, now);
        }
        if is_waiting && let Some(connection) = self.connection(conn) {
            self.pump(connection.session(), now);
        }
    }

    /// Nobody will confirm this message, which was at least once on its way: it is lost.
    pub(crate) fn lose_inflight(&mut self, conn: ConnId, id: PacketId, loss: Loss, now: Timestamp) {
        let Some(index) = self.session_at(conn) else { return };
        let Some(session) = self.sessions.get_mut(index) else { return };
        let Some(position) = session.under_way.position(id) else { return };
        if !matches!(session.under_way.stage(position), Some(InflightStage::Sent(_))) {
            return;
        }
        if let Some(stage) = session.under_way.finish(position) {
            self.journal.finish(session.kept(), &stage);
            let is_waiting = session.has_more();
            if let InflightStage::Sent(queued) = stage {
                self.stats.inflight_messages -= 1;
                self.lose_delivery(index, loss, queued.message.class());
            }
            if is_waiting {
                self.pump(index, now);
            }
        }
    }

    /// The client gives these messages back, or found nobody to take them until now: they are sent again as soon as there is room.
    pub(crate) fn offer_again(&mut self, conn: ConnId, numbers: &BTreeSet<PacketId>, now: Timestamp) {
        let Some(index) = self.session_at(conn) else { return };
        if let Some(session) = self.sessions.get_mut(index) {
            session.under_way.offer_again(numbers);
            self.pump(index, now);
        }
    }

    fn note_delivered(&mut self, queued: &Queued, now: Timestamp) {
        self.stats.inflight_messages -= 1;
        self.stats.finish_delivery(queued.message.class());
        self.meters.note_delivered(queued.message.class(), queued.since, now);
    }
}
