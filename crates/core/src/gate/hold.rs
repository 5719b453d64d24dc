//! The gate of held messages, and the queue: messages of a publisher that was too fast, until their time has come.
//!
//! One queue per session, in order, within two bounds; its messages are released by a timer, and their acknowledgements
//! with them. A message never overtakes an earlier one of its session: it is released at
//! `max(now + wait, release of the last one)`.
//!
//! *When the connection breaks.* Everything stays as long as the session does, and is released in time. Nothing is
//! acknowledged on a later connection unless the client sends it again there: the identifier may stand for another
//! message by then. A QoS 2 identifier stays in `Session::inbound`, so it is routed once, however often it is sent.
//! *When the session ends*, QoS 1 and 2 are dropped and counted: nobody was ever told otherwise. QoS 0 stays behind in a
//! *ghost*, a session without a name that exists until they are released, at most a minute later; the client's next
//! session takes over from it. Who connects, publishes and leaves at once is slowed like everybody else.

use alloc::sync::Arc;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::{Pressure, Verdict};
use tidegate_wire_mqtt::Delivery;

use super::{Gate, GateArrival};
use crate::connection::Pause;
use crate::event::Event;
use crate::ledger::Loss;
use crate::limits::{GHOST_AHEAD_MAX, GHOSTS_MAX};
use crate::message::{Message, Publication, Shareable};
use crate::persist::Until;
use crate::session::{Held, HeldAnswer, HoldQueue, Session};
use crate::shard::ConnId;
use crate::state::ShardState;
use crate::timers::DueTimer;

impl ShardState {
    /// Without room a message is not even taken from the connection, unless there is a word to refuse it with: there is
    /// none at QoS 0 for most, none at all for some. At QoS 0 that has an end: the client may wait for something else.
    #[cold]
    pub(super) fn pauses_first(&mut self, arrival: GateArrival, publication: &Publication<'_>, now: Timestamp) -> bool {
        let is_qos_0 = arrival.delivery == Delivery::AtMostOnce;
        if self.hears_every_refusal(arrival.conn) || (!is_qos_0 && self.hears_refusals(arrival.conn)) {
            return false;
        }
        let queue = self.sessions.get(arrival.session).and_then(|session| session.held());
        let (class, size) = (publication.standing.class, Message::size_of(publication));
        let Some(queue) = queue.filter(|queue| !queue.has_room(class, size, &self.settings)) else {
            return false;
        };
        let mut until = queue.first_release().unwrap_or(now);
        if is_qos_0 {
            let Some(end) = self.connection_mut(arrival.conn).and_then(|it| it.may_leave_unread(now)) else {
                return false;
            };
            until = until.min(end);
        }
        self.pause(arrival.conn, until, now);
        true
    }

    /// Sets the timer for what this session waits for next: the release of a message, or the end of a pause.
    pub(crate) fn arm_release(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(index) else { return };
        let release = session.held().and_then(HoldQueue::first_release);
        let pause = session.conn().and_then(|conn| self.connections.get(conn)?.paused_until());
        let Some(next) = [release, pause].into_iter().flatten().min() else { return };
        if session.wakes_before(next) {
            return;
        }
        let generation = self.sessions.generation(index).unwrap_or(0);
        let at = self.timers.set(now, next, DueTimer::Release { session: index, generation });
        if let Some(session) = self.sessions.get_mut(index) {
            session.set_wake(at);
        }
    }

    /// The timer fired: whatever is due is released, in order.
    pub(crate) fn check_release(&mut self, index: u32, generation: u32, at: Timestamp, now: Timestamp) {
        if self.sessions.generation(index) != Some(generation) {
            return;
        }
        if !self.sessions.get_mut(index).is_some_and(|session| session.take_wake(at)) {
            return;
        }
        while self.sessions.generation(index) == Some(generation) {
            let session = self.sessions.get_mut(index);
            let Some(held) = session.and_then(|session| session.take_due(now, &mut self.stats)) else { break };
            self.release(index, &held, now);
        }
        if self.sessions.generation(index) == Some(generation) {
            self.end_pause(index, now);
            self.arm_release(index, now);
            self.bury(index);
        }
    }

    /// Another limit holds: what is held goes by that one, never later than was said, and who was not read is read again.
    pub(super) fn retime_held(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let Gate { publishers, limits, .. } = &mut self.gate;
        let Some((publisher, trouble, _)) = session.publisher().and_then(|slot| publishers.get_all(slot)) else {
            return;
        };
        let pin = trouble.as_ref().and_then(|trouble| trouble.pin());
        let mut last = now;
        for held in session.held_mut() {
            let verdict = pin.map_or(Verdict::Pass, |pin| {
                let rhythm = limits.rhythm_of(pin).unwrap_or(&mut publisher.rhythm);
                rhythm.on_publish(&pin.plan, now, Pressure::Pressed)
            });
            let wait = match verdict {
                Verdict::Pass => Duration::ZERO,
                Verdict::Hold(wait) | Verdict::Refuse(wait) | Verdict::Disconnect(wait) => wait,
            };
            held.release_at = held.release_at.min(last.max(now + wait));
            last = held.release_at;
        }
        // Nothing waits any more: nobody is to be told that it is slowed by a limit that is gone.
        let is_over = trouble.is_some_and(|trouble| trouble.shorten_wait(last, now));
        let recovered = is_over.then(|| Arc::clone(session.client_id()));
        if let Some(connection) = session.conn().and_then(|conn| self.connections.get_mut(conn)) {
            connection.shorten_pause(now);
        }
        if let Some(client_id) = recovered {
            self.tell(Event::Recovered { client_id });
        }
        self.arm_release(index, now);
    }

    fn release(&mut self, index: u32, held: &Held, now: Timestamp) {
        let conn = self.sessions.get(index).and_then(Session::conn).map(|conn| self.conn_id(conn));
        let answer_to = conn.filter(|_| held.answer == HeldAnswer::Owed);
        let message = Shareable::of(&held.message);
        if message.publication.is_expired(now) {
            // Taken, and too old for everybody, as it might have become in a queue.
            self.lose(index, Loss::HeldExpired);
            if let Some(conn) = answer_to {
                self.answer_taken(conn, held.delivery, false, Until::Now);
            }
            return;
        }
        let taken = match self.check_rules(index, &message.publication) {
            Ok(()) => self.take(answer_to, index, held.delivery, &message, held.came, now),
            Err(reason) => self.reject(answer_to, index, held.delivery, reason),
        };
        if let (Err(ending), Some(conn)) = (taken, conn) {
            let (why, will) = ending.into_parts();
            self.end_connection(conn, why, will, now);
        }
    }

    /// The connection is read again if its time has come. What the pause took does not count as silence.
    fn end_pause(&mut self, index: u32, now: Timestamp) {
        let conn = self.sessions.get(index).and_then(Session::conn);
        if let Some(connection) = conn.and_then(|conn| self.connections.get_mut(conn)) {
            connection.end_pause(now);
        }
    }

    /// Whether this is a held message, sent again: it is answered when it is released, here.
    pub(crate) fn is_held(&mut self, index: u32, delivery: Delivery) -> bool {
        self.sessions.get_mut(index).is_some_and(|session| session.is_answer_owed(delivery))
    }

    /// A session has ended: what it held is dropped, but for QoS 0, which a ghost keeps.
    pub(crate) fn leave_behind(&mut self, session: &mut Session, now: Timestamp) {
        let Some(queue) = session.take_held() else { return };
        let has_place = self.gate.ghosts.len() < GHOSTS_MAX && !self.gate.ghosts.contains_key(session.client_id());
        let mut ghost = Session::new(
            Arc::clone(session.client_id()),
            session.identity().clone(),
            session.parent(),
            session.origin(),
        );
        self.forget_held(&queue);
        for held in queue.into_messages() {
            let is_soon = held.release_at <= now + GHOST_AHEAD_MAX;
            if has_place && is_soon && held.delivery == Delivery::AtMostOnce {
                ghost.hold(held, &mut self.stats);
                // What waits is in one ledger at a time.
                session.ledger.hand_over_received(&mut ghost.ledger);
            } else {
                session.ledger.lose(Loss::HeldEnded, 1, &mut self.stats);
            }
        }
        if ghost.is_holding() {
            let client_id = Arc::clone(ghost.client_id());
            let (index, _) = self.sessions.insert(ghost);
            self.gate.ghosts.insert(client_id, index);
            self.arm_release(index, now);
        }
    }

    /// The client is back: its new session goes on with what the last one left, if it is the same user's.
    pub(crate) fn take_over_ghost(&mut self, session: &mut Session) {
        let Some(index) = self.gate.ghosts.remove(session.client_id()) else { return };
        let Some(mut ghost) = self.sessions.remove(index) else { return };
        if ghost.identity().user == session.identity().user {
            return session.take_over(ghost);
        }
        if let Some(queue) = ghost.take_held() {
            self.forget_held(&queue);
            ghost.ledger.lose(Loss::HeldEnded, queue.len() as u64, &mut self.stats);
        }
        self.departed.add(&ghost.ledger);
    }

    /// Takes a whole queue out of the gauges.
    fn forget_held(&mut self, queue: &HoldQueue) {
        self.stats.clients_held -= 1;
        self.stats.held_messages -= queue.len() as u64;
        self.stats.held_bytes -= queue.bytes() as u64;
    }

    /// A ghost that holds nothing any more is gone.
    fn bury(&mut self, index: u32) {
        let Some(session) = self.sessions.get(index).filter(|session| !session.is_holding()) else { return };
        if self.gate.ghosts.get(session.client_id()) == Some(&index) {
            self.gate.ghosts.remove(session.client_id());
            if let Some(ghost) = self.sessions.remove(index) {
                self.departed.add(&ghost.ledger);
            }
        }
    }

    /// Stops reading a connection until then. Its keep-alive clock stands still.
    pub(crate) fn pause(&mut self, conn: ConnId, until: Timestamp, now: Timestamp) {
        self.pause_as(conn, Pause { since: now, until, is_brief: false }, now);
    }

    pub(crate) fn pause_as(&mut self, conn: ConnId, pause: Pause, now: Timestamp) {
        let Some(connection) = self.connection_mut(conn) else { return };
        connection.pause(pause);
        let session = connection.session();
        self.arm_release(session, now);
    }
}
