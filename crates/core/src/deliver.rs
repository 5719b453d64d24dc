//! To one receiver: now, later or not at all, each with its counter.

mod send;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, QoS};

use crate::access::Action;
use crate::cache::Target;
use crate::classes::{ClassId, OnFull, PriorityMode};
use crate::connect::may;
use crate::face::{Frames, OutgoingPublication};
use crate::gate::Kind;
use crate::gate::share::Door;
use crate::ledger::Loss;
use crate::limits::{AWAY_WINDOW_BYTES, OUTBOX_FREE_BYTES};
use crate::message::{Colour, Precedence, Publication, Shareable};
use crate::queue::{Bounds, Gone, Item, Paging, Queue};
use crate::session::{Queued, Session};
use crate::settings::Settings;
use crate::state::ShardState;
use crate::subscriptions::GroupRef;
use send::is_beyond_room;
pub(crate) use send::{SendOutcome, delivery_of};

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
        let colour = session.colour_of(publication, now);
        let here;
        let publication = if colour == publication.standing.colour {
            publication
        } else {
            here = Publication { standing: Precedence { colour, ..publication.standing }, ..*publication };
            &here
        };
        let is_full = |conn| {
            let connection = self.connections.get_mut(conn);
            connection.is_some_and(|it| it.holds(colour) || is_beyond_room(it, &self.settings, now))
        };
        // Behind others it waits in any case: then it is not asked.
        let is_clogged = is_open && session.conn().is_some_and(is_full);
        // Without priorities there is no reason to wait: a QoS 0 message that finds no room goes.
        let is_in_time = !is_clogged || self.settings.priority.mode == PriorityMode::Off;
        if is_open && is_in_time && qos == QoS::AtMostOnce {
            // Who takes what it is given needs next to no memory: it does not pay for queues of others.
            let is_idle = |conn| self.connections.get(conn).is_some_and(|it| it.outbox_len() < OUTBOX_FREE_BYTES);
            if !self.memory.has_room(Kind::Passing, publication.payload.len()) && !session.conn().is_some_and(is_idle) {
                session.ledger.lose_delivery(Loss::MemoryOut, class, &mut self.stats);
                session.note_crowding(publication.whose(), now);
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
            let (place, is_latest) = (0, target.is_latest);
            let queued = Queued { message, qos, retain, ids, place, since: now, is_latest, colour };
            let (packet_id, may_be_sent) = self.put_under_way(target.session, queued);
            let delivery = delivery_of(qos, packet_id, false);
            let copy = OutgoingPublication { publication, delivery, retain, ids: &target.ids, now };
            if may_be_sent && self.send_now(conn, &copy, frames) == SendOutcome::Done {
                self.forget_last(target.session, packet_id);
            }
        } else {
            let holds = |conn| self.connections.get(conn).is_some_and(|it| it.holds(Colour::Excess));
            let is_beside_held = colour == Colour::Entitled && session.conn().is_some_and(holds);
            self.enqueue(target, (qos, retain, colour), message, now);
            // What is held back is no reason for others to wait, and its outbox may be empty: nothing else would send them.
            if is_beside_held {
                self.pump(target.session, now);
            }
        }
    }

    pub(crate) fn may_receive(&self, session: u32, topic: &str) -> bool {
        self.sessions
            .get(session)
            .is_some_and(|session| self.may(session.identity(), session.client_id(), Action::Receive, topic))
    }

    /// Keeps a message for later, within the bounds of the session's queue.
    fn enqueue(
        &mut self,
        target: &Target,
        (qos, retain, colour): (QoS, bool, Colour),
        message: &Shareable<'_>,
        now: Timestamp,
    ) {
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
            session.note_crowding(tallied(message.publication.whose(), is_away), now);
            self.saturation.note_crowded();
            return;
        }
        let is_full = session.queue_len() >= bounds.messages_max || session.queue_bytes() + size > bounds.bytes_max;
        let mut is_own_loss = false;
        if is_full && let Some(queue) = session.queue_mut().filter(|_| !is_away) {
            is_own_loss = !queue.may_replace(now) && queue.is_own_loss(&message.publication, qos, colour);
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
            session.note_crowding(tallied(message.publication.whose(), is_away), now);
            let is_closed = is_own_loss && session.queue().is_some_and(|queue| queue.lasts(now) == Some(true));
            self.saturation.note_turned_away(if is_closed { Door::Closed } else { Door::Ajar });
            return;
        }
        let origin = message.publication.origin;
        let (ids, message) = (target.ids.clone(), message.share(self.memory.tally()));
        let (place, is_latest) = (0, target.is_latest);
        let mut queued = Queued { message, qos, retain, ids, place, since: now, is_latest, colour };
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
                    losses.note_crowding(tallied(lost.whose(), is_away), now);
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

/// How much may wait for one session when a message of this class comes; `spool` is that of a bridge.
pub(crate) fn bounds_of(settings: &Settings, spool: Option<usize>, class: ClassId) -> Bounds {
    Bounds {
        messages_max: if spool.is_some() { usize::MAX } else { settings.queue_messages_max },
        bytes_max: spool.unwrap_or(settings.queue_bytes_max),
        class_bytes: settings.priority.bytes_max(class),
        is_spool: spool.is_some(),
    }
}

/// Whose loss it is said to be: a tally by publisher is for whoever is there to lose, a million that are away would have one each.
fn tallied(whose: (u64, bool), is_away: bool) -> (u64, bool) {
    if is_away { (0, false) } else { whose }
}
