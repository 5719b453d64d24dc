//! What goes out to a connection: one copy, what waits in a queue, what may be sent now that it is kept; and what does not.

use crate::classes::PriorityMode;
use crate::connection::Connection;
use crate::face::{Frames, OutgoingPublication};
use crate::ledger::Loss;
use crate::limits::OUTBOX_OF_THE_FAST;
use crate::message::{Colour, Precedence, Publication, Shareable};
use crate::persist::Until;
use crate::queue::NextMessage;
use crate::session::{DueMessage, InflightStage, Queued, Session};
use crate::settings::Settings;
use crate::shard::ConnId;
use crate::state::ShardState;
use alloc::sync::Arc;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, PacketId, QoS};

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// It is on its way, or will be when the client is back.
    UnderWay,
    /// It was dropped and counted; there is nothing to wait for.
    Done,
}

pub(crate) fn delivery_of(qos: QoS, packet_id: PacketId, dup: bool) -> Delivery {
    match qos {
        QoS::AtMostOnce => Delivery::AtMostOnce,
        QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
        QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
    }
}

/// Whether more waits in an outbox than there is room for.
#[inline]
pub(super) fn is_beyond_room(connection: &mut Connection, settings: &Settings, now: Timestamp) -> bool {
    let waiting = connection.outbox_len();
    // Most receivers are told by this alone, for every message: the room is never less than the reach.
    (waiting > connection.reach().min(settings.outbox_bytes_max) && waiting > room(connection, settings, now))
        || connection.is_without_credit()
}

/// Bytes that may wait in an outbox before messages wait elsewhere, or go: what is in it cannot be overtaken. Without
/// priorities nothing is.
pub(super) fn room(connection: &mut Connection, settings: &Settings, now: Timestamp) -> usize {
    match settings.priority.mode {
        PriorityMode::Off => settings.outbox_bytes_max,
        _ => connection.room(settings.outbox_bytes_max, now).min(outbox_most(settings)),
    }
}

/// Bytes of any outbox. Where its room follows the pace of its receiver, only one that takes them in a moment has as much: a
/// message that waits in a queue instead costs as much again, and is there for no longer.
fn outbox_most(settings: &Settings) -> usize {
    let times = if settings.priority.mode == PriorityMode::Off { 1 } else { OUTBOX_OF_THE_FAST };
    settings.outbox_bytes_max.saturating_mul(times)
}

impl ShardState {
    /// Gives a message an identifier. The answer is whether it may be sent now: QoS 2 to a lasting session may not before
    /// the identifier is kept, or a crash would make it two messages; and nothing of QoS 1 overtakes those.
    pub(super) fn put_under_way(&mut self, index: u32, mut queued: Queued) -> (PacketId, bool) {
        let Some(session) = self.sessions.get_mut(index) else { return (PacketId::MIN, false) };
        let packet_id = session.under_way.take_packet_id();
        if queued.place == 0 {
            self.journal.queue(session, &mut queued);
        }
        self.journal.send(session.kept(), queued.place, packet_id);
        let is_kept = queued.place != 0;
        let waits = is_kept && (queued.qos == QoS::ExactlyOnce || session.under_way.has_unsynced());
        let after =
            if waits { self.journal.wait_for_turn(index, self.sessions.generation(index).unwrap_or(0)) } else { 0 };
        if let Some(session) = self.sessions.get_mut(index) {
            session.under_way.push(packet_id, InflightStage::Sent(queued), after);
        }
        self.stats.inflight_messages += 1;
        (packet_id, !waits)
    }

    /// Identifiers of a session are kept: its messages are sent, in order.
    pub(crate) fn send_synced(&mut self, index: u32, now: Timestamp) {
        loop {
            let Some(session) = self.sessions.get_mut(index) else { return };
            let is_synced = |turn| self.journal.is_met(Until::Synced(turn));
            let Some(DueMessage { position, packet_id, queued }) = session.under_way.take_synced(is_synced) else {
                return;
            };
            let (delivery, conn) = (delivery_of(queued.qos, packet_id, false), session.conn());
            let (publication, retain, ids) = (&queued.message.view(), queued.retain, &queued.ids);
            let copy = OutgoingPublication { publication, delivery, retain, ids, now };
            if self.send_now(conn, &copy, &mut Frames::for_receivers(1)) == SendOutcome::Done
                && let Some(session) = self.sessions.get_mut(index)
            {
                self.journal.dequeue(session.kept(), &queued);
                session.under_way.finish(position);
                self.stats.inflight_messages -= 1;
            }
        }
    }

    /// Appends one copy to an outbox. A QoS 0 message that finds the outbox full is dropped; others have a window.
    /// A message that the client does not accept counts as delivered. [MQTT-3.1.2-25]
    pub(crate) fn send_now(
        &mut self,
        conn: Option<u32>,
        copy: &OutgoingPublication<'_>,
        frames: &mut Frames,
    ) -> SendOutcome {
        let Some(index) = conn else { return SendOutcome::UnderWay };
        let generation = self.connections.generation(index).unwrap_or(0);
        let Some(connection) = self.connections.get_mut(index).filter(|connection| !connection.is_closing()) else {
            return SendOutcome::UnderWay;
        };
        if copy.delivery == Delivery::AtMostOnce {
            let (session, class) = (connection.session(), copy.publication.standing.class);
            if connection.outbox_len() > outbox_most(&self.settings) || connection.is_without_credit() {
                self.lose_delivery(session, Loss::OutboxFull, class);
                if let Some(session) = self.sessions.get_mut(session) {
                    session.note_crowding(copy.publication.whose(), copy.now);
                }
                return SendOutcome::Done;
            }
        }
        let Some(written) = connection.put_publication(copy, frames, &self.memory, &mut self.spares) else {
            let session = connection.session();
            self.lose_delivery(session, Loss::TooLarge, copy.publication.standing.class);
            return SendOutcome::Done;
        };
        self.stats.publish_sent += 1;
        if copy.delivery == Delivery::AtMostOnce {
            connection.note_delivered();
            self.stats.finish_delivery(copy.publication.standing.class);
        }
        if copy.publication.standing.colour == Colour::Excess {
            connection.note_excess(written);
        }
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += written as u64;
        self.memory.charge_outbox(written);
        if connection.list() {
            self.to_write.push_back(ConnId { index, generation });
        }
        if self.activities.is_on() {
            let session = connection.session();
            self.note_sending(session, copy);
        }
        SendOutcome::UnderWay
    }

    /// Sends what waits in a session's queue, as far as window and outbox allow.
    pub(crate) fn pump(&mut self, index: u32, now: Timestamp) {
        while self.send_again(index, now) {}
        self.pump_queue(index, now);
        self.burst(index, now);
    }

    fn pump_queue(&mut self, index: u32, now: Timestamp) {
        // The same for all: what they fill is the outbox, and its room is asked for once.
        let conn = self.sessions.get(index).and_then(Session::conn);
        let connection = conn.and_then(|conn| self.connections.get_mut(conn));
        let room = connection.map_or(0, |connection| room(connection, &self.settings, now));
        while self.pump_one(index, room, now) {}
        self.want_page(index);
    }

    /// False when there is nothing more to send, or no room for it.
    fn pump_one(&mut self, index: u32, room: usize, now: Timestamp) -> bool {
        let Some(session) = self.sessions.get_mut(index) else { return false };
        let Some(conn) = session.conn() else { return false };
        let has_window = session.under_way.has_window();
        let Some(queue) = session.queue_mut() else { return false };
        // Little at a time, so that what comes next can still be chosen.
        let room = room.min(self.settings.outbox_bytes_max / 2);
        // Asked first: who would be next lies in memory that nobody has touched for long.
        let is_full = |connection: &Connection| connection.outbox_len() > room || connection.is_without_credit();
        if self.connections.get(conn).is_some_and(is_full) {
            return false;
        }
        let holds = |connection: &Connection| connection.holds(Colour::Excess);
        if self.connections.get(conn).is_some_and(holds) && queue.is_all_in_excess() {
            return false;
        }
        // Whoever has a window takes whatever is next: it need not be looked at before it is taken.
        if !(has_window && queue.is_all_here()) {
            let NextMessage::Message(qos) = queue.next() else { return false };
            if qos > QoS::AtMostOnce && !has_window {
                return false;
            }
        }
        let Some(queued) = session.dequeue(&mut self.stats) else { return false };
        if let Some(queue) = session.queue_mut() {
            queue.note_sent(now);
        }
        self.meters.note_scheduled(queued.message.class(), queued.since, now);
        self.send_queued(index, queued, now);
        true
    }

    pub(crate) fn send_queued(&mut self, index: u32, queued: Queued, now: Timestamp) {
        let message = Arc::clone(&queued.message);
        let shareable = Shareable::of(&message);
        if shareable.publication.is_expired(now) {
            self.forget_queued(index, &queued);
            self.lose_delivery(index, Loss::Expired, message.class());
            return;
        }
        if queued.overdue_at(&self.settings.priority).is_some_and(|at| at <= now) {
            self.forget_queued(index, &queued);
            self.lose_delivery(index, Loss::ClassDelay, message.class());
            return;
        }
        // Rules may have changed while it waited.
        if !self.may_receive(index, shareable.publication.topic) {
            self.forget_queued(index, &queued);
            self.lose_delivery(index, Loss::NotAllowed, message.class());
            return;
        }
        let Some(session) = self.sessions.get_mut(index) else { return };
        let (retain, ids, conn) = (queued.retain, queued.ids.clone(), session.conn());
        let (since, colour) = (queued.since, queued.colour);
        let delivery = if queued.qos == QoS::AtMostOnce {
            Delivery::AtMostOnce
        } else {
            let qos = queued.qos;
            let (packet_id, may_be_sent) = self.put_under_way(index, queued);
            if !may_be_sent {
                return;
            }
            delivery_of(qos, packet_id, false)
        };
        let standing = Precedence { colour, ..shareable.publication.standing };
        let publication = &Publication { standing, ..shareable.publication };
        let copy = OutgoingPublication { publication, delivery, retain, ids: &ids, now };
        let fate = self.send_now(conn, &copy, &mut Frames::for_receivers(1));
        match (fate, delivery.packet_id()) {
            (SendOutcome::Done, Some(packet_id)) => self.forget_last(index, packet_id),
            // Not those that begin their wait now: they are measured with all others of this turn.
            (SendOutcome::UnderWay, None) if since < now => self.meters.note_delivered(message.class(), since, now),
            _ => {}
        }
    }

    /// Takes back what was just put under way.
    pub(super) fn forget_last(&mut self, session: u32, packet_id: PacketId) {
        if let Some(session) = self.sessions.get_mut(session)
            && let Some(stage) = session.under_way.take_back(packet_id)
        {
            self.journal.finish(session.kept(), &stage);
            self.stats.inflight_messages -= 1;
        }
    }

    /// What was queued is dropped instead of sent.
    fn forget_queued(&mut self, index: u32, queued: &Queued) {
        if let Some(session) = self.sessions.get(index) {
            self.journal.dequeue(session.kept(), queued);
        }
    }
}
