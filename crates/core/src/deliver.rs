//! To one receiver: now, later or not at all, each with its counter.

use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, PacketId, QoS};

use crate::access::Action;
use crate::cache::Target;
use crate::classes::{ClassId, OnFull, PriorityMode};
use crate::connect::may;
use crate::connection::Connection;
use crate::face::{Frames, OutgoingPublication};
use crate::gate::Kind;
use crate::gate::share::Door;
use crate::ledger::Loss;
use crate::limits::{AWAY_WINDOW_BYTES, OUTBOX_FREE_BYTES, OUTBOX_OF_THE_FAST};
use crate::message::Shareable;
use crate::persist::Until;
use crate::queue::{Bounds, Gone, Item, NextMessage, Paging, Queue};
use crate::session::{DueMessage, InflightStage, Queued, Session};
use crate::settings::Settings;
use crate::shard::ConnId;
use crate::state::ShardState;
use crate::subscriptions::GroupRef;

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// It is on its way, or will be when the client is back.
    UnderWay,
    /// It was dropped and counted; there is nothing to wait for.
    Done,
}

impl ShardState {
    pub(crate) fn deliver(&mut self, target: &Target, message: &Shareable<'_>, frames: &mut Frames, now: Timestamp) {
        self.deliver_for(target, None, message, frames, now);
    }

    /// `group`: whose member it is that gets it, if the message is one of which that is noted.
    pub(crate) fn deliver_for(
        &mut self,
        target: &Target,
        group: Option<&GroupRef<'_>>,
        message: &Shareable<'_>,
        frames: &mut Frames,
        now: Timestamp,
    ) {
        if self.activities.is_on() {
            let deliver = |shard: &mut Self| shard.deliver_unfollowed(target, group, message, frames, now);
            return self.deliver_followed(target.session, message, now, deliver);
        }
        self.deliver_unfollowed(target, group, message, frames, now);
    }

    fn deliver_unfollowed(
        &mut self,
        target: &Target,
        group: Option<&GroupRef<'_>>,
        message: &Shareable<'_>,
        frames: &mut Frames,
        now: Timestamp,
    ) {
        let publication = &message.publication;
        let class = publication.standing.class;
        self.stats.begin_delivery(class);
        let Some(session) = self.sessions.get_mut(target.session) else {
            self.departed.begin_delivery();
            self.departed.lose_delivery(Loss::NotAllowed, class, &mut self.stats);
            return;
        };
        session.ledger.begin_delivery();
        if !may(&*self.policy, session.identity(), session.client_id(), Action::Receive, publication.topic) {
            session.ledger.lose_delivery(Loss::NotAllowed, class, &mut self.stats);
            return;
        }
        let qos = publication.qos.min(target.qos);
        let retain = publication.retain && target.retain_as_published;
        if message.routing.get() != 0 && session.is_kept() && qos > QoS::AtMostOnce {
            let kept = session.kept();
            match group {
                Some(group) => self.note_reached_group(message, group),
                None => self.note_reached(message, kept),
            }
        }
        let Some(session) = self.sessions.get_mut(target.session) else { return };
        // Nothing overtakes what waits, and a window is no excuse to fill an outbox that nobody empties.
        let is_open = session.conn().is_some() && !session.is_waiting();
        let is_full = |conn| self.connections.get_mut(conn).is_some_and(|it| is_beyond_room(it, &self.settings, now));
        // Behind others it waits in any case: then it is not asked.
        let is_clogged = is_open && session.conn().is_some_and(is_full);
        // Without priorities there is no reason to wait: a QoS 0 message that finds no room goes.
        let is_in_time = !is_clogged || self.settings.priority.mode == PriorityMode::Off;
        if is_open && is_in_time && qos == QoS::AtMostOnce {
            // Who takes what it is given needs next to no memory: it does not pay for queues of others.
            let is_idle = |conn| self.connections.get(conn).is_some_and(|it| it.outbox_len() < OUTBOX_FREE_BYTES);
            if !self.memory.has_room(Kind::Passing, publication.payload.len()) && !session.conn().is_some_and(is_idle) {
                session.ledger.lose_delivery(Loss::MemoryOut, class, &mut self.stats);
                session.note_crowding(publication.origin, now);
                self.saturation.note_crowded();
                return;
            }
            let copy =
                OutgoingPublication { publication, delivery: Delivery::AtMostOnce, retain, ids: &target.ids, now };
            let conn = session.conn();
            let fate = self.send_now(conn, &copy, frames);
            match fate {
                SendOutcome::Done => self.saturation.note_crowded(),
                SendOutcome::UnderWay => self.saturation.note_taken(),
            }
        } else if is_open
            && !is_clogged
            && session.under_way.has_window()
            && self.memory.has_room(Kind::Queued, publication.payload.len())
        {
            let (ids, message) = (target.ids.clone(), message.share(self.memory.tally()));
            let conn = session.conn();
            self.saturation.note_taken();
            let queued = Queued { message, qos, retain, ids, place: 0, since: now, is_latest: target.is_latest };
            let (packet_id, may_be_sent) = self.put_under_way(target.session, queued);
            let delivery = delivery_of(qos, packet_id, false);
            let copy = OutgoingPublication { publication, delivery, retain, ids: &target.ids, now };
            if may_be_sent && self.send_now(conn, &copy, frames) == SendOutcome::Done {
                self.forget_last(target.session, packet_id);
            }
        } else {
            self.enqueue(target, qos, retain, message, now);
        }
    }

    pub(crate) fn may_receive(&self, session: u32, topic: &str) -> bool {
        self.sessions
            .get(session)
            .is_some_and(|session| self.may(session.identity(), session.client_id(), Action::Receive, topic))
    }

    /// Keeps a message for later, within the bounds of the session's queue.
    fn enqueue(&mut self, target: &Target, qos: QoS, retain: bool, message: &Shareable<'_>, now: Timestamp) {
        let generation = self.sessions.generation(target.session).unwrap_or(0);
        let Some(session) = self.sessions.get_mut(target.session) else { return };
        let (class, settings) = (message.publication.standing.class, &self.settings);
        let is_away = session.conn().is_none();
        if is_away && (!session.is_lasting() || (qos == QoS::AtMostOnce && !settings.queue_qos0)) {
            session.ledger.lose_delivery(Loss::Away, class, &mut self.stats);
            return;
        }
        let bounds = bounds_of(settings, session.spool(), class);
        let size = message.publication.payload.len();
        if !self.memory.has_room(Kind::Queued, size) {
            session.ledger.lose_delivery(Loss::MemoryOut, class, &mut self.stats);
            session.note_crowding(tallied(message.publication.origin, is_away), now);
            self.saturation.note_crowded();
            return;
        }
        let is_full = session.queue_len() >= bounds.messages_max || session.queue_bytes() + size > bounds.bytes_max;
        let mut is_own_loss = false;
        if is_full && let Some(queue) = session.queue_mut().filter(|_| !is_away) {
            is_own_loss = !queue.may_replace(now) && queue.is_own_loss(&message.publication, qos);
            self.saturation.note_full(now);
        }
        let is_turned_away = match settings.priority.on_full(class) {
            OnFull::DropNewest => is_full,
            OnFull::DropLongest => is_own_loss,
            OnFull::DropOldest | OnFull::Latest | OnFull::Refuse => false,
        };
        // Of a spool it may be a lower class that pays.
        if is_turned_away && !target.is_latest && !bounds.is_spool {
            // Not worth being kept for a moment.
            session.ledger.lose_delivery(Loss::QueueFull, class, &mut self.stats);
            session.note_crowding(tallied(message.publication.origin, is_away), now);
            let is_closed = is_own_loss && session.queue().is_some_and(|queue| queue.lasts(now) == Some(true));
            self.saturation.note_turned_away(if is_closed { Door::Closed } else { Door::Ajar });
            return;
        }
        let origin = message.publication.origin;
        let (ids, message) = (target.ids.clone(), message.share(self.memory.tally()));
        let mut queued = Queued { message, qos, retain, ids, place: 0, since: now, is_latest: target.is_latest };
        let overdue_at = queued.overdue_at(&settings.priority);
        self.journal.queue(session, &mut queued);
        let window = if is_away { settings.queue_memory_max.min(AWAY_WINDOW_BYTES) } else { settings.queue_memory_max };
        let paging = Paging { window, turn: self.journal.turn() };
        let held_before = session.queue().and_then(Queue::held_turn);
        let (journal, kept) = (&mut self.journal, session.kept());
        let mut is_own_lost = false;
        session.with_queue(&mut self.stats, |queue, losses| {
            queue.offer(queued, &settings.priority, bounds, paging, |lost, gone| {
                is_own_lost |= gone != Gone::Conflated && lost.may_be_of(origin);
                journal.dequeue_item(kept, &lost);
                losses.lose_item(&lost, gone);
                if gone != Gone::Conflated {
                    losses.note_crowding(tallied(lost.origin(), is_away), now);
                }
            });
        });
        if is_own_lost {
            self.saturation.note_crowded();
        } else {
            self.saturation.note_taken();
        }
        let held = session.queue().and_then(Queue::held_turn);
        if held == Some(paging.turn) && held != held_before {
            self.journal.page_after_turn(target.session, generation);
        }
        if let Some(at) = overdue_at {
            self.watch_overdue(target.session, at, now);
        }
        if is_away {
            self.note_absent(target.session);
            self.bound_absent(now);
        }
    }

    /// Gives a message an identifier. The answer is whether it may be sent now: QoS 2 to a lasting session may not before
    /// the identifier is kept, or a crash would make it two messages; and nothing of QoS 1 overtakes those.
    fn put_under_way(&mut self, index: u32, mut queued: Queued) -> (PacketId, bool) {
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
                    session.note_crowding(copy.publication.origin, copy.now);
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
        let (retain, ids, conn, since) = (queued.retain, queued.ids.clone(), session.conn(), queued.since);
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
        let copy = OutgoingPublication { publication: &shareable.publication, delivery, retain, ids: &ids, now };
        let fate = self.send_now(conn, &copy, &mut Frames::for_receivers(1));
        match (fate, delivery.packet_id()) {
            (SendOutcome::Done, Some(packet_id)) => self.forget_last(index, packet_id),
            // Not those that begin their wait now: they are measured with all others of this turn.
            (SendOutcome::UnderWay, None) if since < now => self.meters.note_delivered(message.class(), since, now),
            _ => {}
        }
    }

    /// Takes back what was just put under way.
    fn forget_last(&mut self, session: u32, packet_id: PacketId) {
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

    /// Messages that a session takes with it when it ends.
    pub(crate) fn count_lost(&mut self, session: &mut Session) {
        for (queued, _) in session.under_way.unconfirmed() {
            queued.let_go();
            self.stats.inflight_messages -= 1;
            session.ledger.lose_delivery(Loss::SessionEnded, queued.message.class(), &mut self.stats);
        }
        while let Some(item) = session.dequeue_any(&mut self.stats) {
            if let Item::Message(queued) = &item {
                queued.let_go();
            }
            session.ledger.lose_delivery(Loss::SessionEnded, item.class(), &mut self.stats);
        }
    }
}

pub(crate) fn delivery_of(qos: QoS, packet_id: PacketId, dup: bool) -> Delivery {
    match qos {
        QoS::AtMostOnce => Delivery::AtMostOnce,
        QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
        QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
    }
}

/// How much may wait for one session when a message of this class comes; `spool` is that of a bridge.
pub(crate) fn bounds_of(settings: &Settings, spool: Option<usize>, class: ClassId) -> Bounds {
    Bounds {
        messages_max: if spool.is_some() { usize::MAX } else { settings.queue_messages_max },
        bytes_max: spool.unwrap_or(settings.queue_bytes_max),
        class_bytes: settings.priority.bytes_max(class),
        is_spool: spool.is_some(),
    }
}

/// Whether more waits in an outbox than there is room for.
#[inline]
fn is_beyond_room(connection: &mut Connection, settings: &Settings, now: Timestamp) -> bool {
    let waiting = connection.outbox_len();
    // Most receivers are told by this alone, for every message: the room is never less than the reach.
    (waiting > connection.reach().min(settings.outbox_bytes_max) && waiting > room(connection, settings, now))
        || connection.is_without_credit()
}

/// Bytes that may wait in an outbox before messages wait elsewhere, or go: what is in it cannot be overtaken. Without
/// priorities nothing is.
fn room(connection: &mut Connection, settings: &Settings, now: Timestamp) -> usize {
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

/// Whose loss it is said to be: a tally by publisher is for whoever is there to lose, a million that are away would have one each.
fn tallied(origin: u64, is_away: bool) -> u64 {
    if is_away { 0 } else { origin }
}
