//! The retained messages that answer a subscription, at the pace of who gets them.
//!
//! A subscription starts a walk over the retained topics (`retained::Walk`), kept in the session. It takes a step when
//! there is room in outbox and window, and rests otherwise: nothing is queued, nothing is dropped for want of room, and
//! a million topics cost a session the place where it stands. What is sent is what is retained *then*: a message that was
//! deleted meanwhile is not sent, of one that was replaced the new one is. The walk outlives the connection with its
//! session, and ends with the subscription.
//!
//! Messages that are published meanwhile do not wait for the walk; it goes on when none of them waits. So it never goes
//! back from a newer state to an older one; only a message that was not itself retained may be followed by the retained
//! one of its topic, which is marked as such.

use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{QoS, TopicFilter};

use crate::connection::Connection;
use crate::limits::{BURST_STEPS_MAX, BURST_STEPS_PER_TURN_MAX};
use crate::retained::{Walk, WalkStep};
use crate::session::{Queued, SubscriptionIds};
use crate::state::ShardState;

/// How a walk was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// No room: whoever makes some goes on.
    Waiting,
    /// It has had its share of this turn.
    Unfinished,
    Done,
}

impl ShardState {
    /// Everything that is retained now is to be sent for this subscription; from the start, if that was under way.
    pub(crate) fn start_burst(&mut self, index: u32, filter: &TopicFilter<'_>) {
        if let Some(session) = self.sessions.get_mut(index) {
            session.start_burst(filter);
        }
    }

    /// Sends retained messages while there is room, and a bounded number of steps.
    pub(crate) fn burst(&mut self, index: u32, now: Timestamp) {
        let share = BURST_STEPS_MAX.min(self.burst_steps);
        let mut steps = share;
        self.go_through_bursts(index, &mut steps, now);
        self.burst_steps -= share - steps;
    }

    fn go_through_bursts(&mut self, index: u32, steps: &mut usize, now: Timestamp) {
        while let Some(session) = self.sessions.get_mut(index).filter(|session| session.conn().is_some()) {
            let Some((filter, mut walk)) = session.take_burst() else { return };
            let left = self.go_on(index, &filter, &mut walk, steps, now);
            if left == Left::Done {
                continue;
            }
            if let Some(session) = self.sessions.get_mut(index) {
                session.put_burst_back(filter, walk);
                if left == Left::Unfinished && session.list_for_bursts() {
                    self.bursting.push_back(index);
                }
            }
            return;
        }
    }

    fn go_on(&mut self, index: u32, filter: &str, walk: &mut Walk, steps: &mut usize, now: Timestamp) -> Left {
        loop {
            let Some(session) = self.sessions.get(index) else { return Left::Done };
            let Some(wish) = session.subscription(filter) else { return Left::Done };
            let connection = session.conn().and_then(|conn| self.connections.get(conn));
            let outbox = connection.map_or(0, Connection::outbox_len);
            // The SUBACK that is owed comes before what it announces.
            let is_owed = connection.is_some_and(Connection::is_owed);
            let is_full =
                outbox > self.settings.outbox_bytes_max / 2 || connection.is_some_and(Connection::is_without_credit);
            // What waits in the queue may be older than what is retained: it goes first.
            if is_owed || session.is_waiting() || is_full {
                return Left::Waiting;
            }
            if *steps == 0 {
                return Left::Unfinished;
            }
            *steps -= 1;
            let message = match self.retained.step(walk, now) {
                WalkStep::Found(message) => message,
                WalkStep::Nothing => continue,
                WalkStep::End => return Left::Done,
            };
            let qos = message.view().qos.min(wish.qos);
            if qos > QoS::AtMostOnce && !session.under_way.has_window() {
                return Left::Waiting;
            }
            walk.advance();
            self.stats.begin_delivery(message.class());
            if let Some(session) = self.sessions.get_mut(index) {
                session.ledger.begin_delivery();
            }
            let ids = wish.id.map_or(SubscriptionIds::None, SubscriptionIds::One);
            let message = Arc::clone(&message);
            let (colour, is_latest) = (message.standing().colour, wish.is_latest);
            let queued = Queued { message, qos, retain: true, ids, place: 0, since: now, is_latest, colour };
            self.send_queued(index, queued, now);
        }
    }

    /// A turn begins. Goes on with walks that had their share of an earlier one, as far as this turn's steps go.
    pub(crate) fn go_on_bursting(&mut self, now: Timestamp) {
        self.burst_steps = BURST_STEPS_PER_TURN_MAX;
        for _ in 0..self.bursting.len() {
            if self.burst_steps == 0 {
                return;
            }
            let Some(index) = self.bursting.pop_front() else { return };
            if let Some(session) = self.sessions.get_mut(index) {
                session.unlist_for_bursts();
            }
            self.burst(index, now);
        }
    }
}
