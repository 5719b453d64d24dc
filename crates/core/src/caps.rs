//! What a class may have waiting, where it meets sessions: messages that waited too long go, and who publishes in a class
//! that wants to be refused is told before its message is taken.

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, Properties, ReasonCode, Version};

use crate::classes::OnFull;
use crate::deliver::bounds_of;
use crate::ledger::Loss;
use crate::limits::{CLASS_PAUSE, OVERDUE_EVERY, OVERDUE_MAX};
use crate::message::{Message, Publication};
use crate::overload::{Admission, Arrival, Pace};
use crate::shard::Shard;
use crate::timers::Due;

impl Shard {
    /// Something in this session's queue may have to go then.
    pub(crate) fn watch_overdue(&mut self, index: u32, at: Timestamp, now: Timestamp) {
        let generation = self.sessions.generation(index).unwrap_or(0);
        let queue = self.sessions.get_mut(index).and_then(|session| session.queue.as_mut());
        let Some(queue) = queue.filter(|queue| queue.overdue_at.is_none_or(|set| at < set)) else { return };
        // Not for each message by itself.
        let at = at.max(now + OVERDUE_EVERY);
        if queue.overdue_at.is_none_or(|set| at < set) {
            queue.overdue_at = Some(self.timers.set(now, at, Due::Overdue { session: index, generation }));
        }
    }

    pub(crate) fn check_overdue(&mut self, index: u32, generation: u32, at: Timestamp, now: Timestamp) {
        let is_current = self.sessions.generation(index) == Some(generation);
        let queue = self.sessions.get_mut(index).and_then(|session| session.queue.as_mut());
        if let Some(queue) = queue.filter(|queue| is_current && queue.overdue_at == Some(at)) {
            queue.overdue_at = None;
            self.drop_overdue(index, now);
        }
    }

    /// Drops what waited too long for a session, and sets the timer for what has not yet.
    pub(crate) fn drop_overdue(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.queue.is_some()) else { return };
        let (journal, kept, priority) = (&mut self.journal, session.kept, &self.settings.priority);
        let mut ledger = core::mem::take(&mut session.ledger);
        let next = session.with_queue(&mut self.stats, |queue, stats| {
            queue.drop_overdue(priority, now, OVERDUE_MAX, |lost| {
                journal.dequeue(kept, &lost);
                ledger.lose_delivery(Loss::ClassDelay, lost.message.class(), stats);
            })
        });
        session.ledger = ledger;
        self.note_absent(index);
        if let Some(at) = next {
            self.watch_overdue(index, at, now);
        }
    }

    /// Whether a message is not to be taken, because its class wants it refused when a receiver has no room for it. Asked
    /// of the receivers of this shard: what finds a queue of another one full is dropped there, and counted.
    pub(crate) fn admit_to_class(
        &mut self,
        arrival: Arrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Option<Admission> {
        let class = publication.standing.class;
        if arrival.delivery == Delivery::AtMostOnce
            || self.settings.priority.on_full(class) != OnFull::Refuse
            || !self.has_full_receiver(publication)
        {
            return None;
        }
        if self.version_of(arrival.conn) != Version::V5 {
            self.pause(arrival.conn, now + CLASS_PAUSE, now);
            return Some(Admission::Wait);
        }
        self.note_crowded_out(arrival.session);
        self.lose(arrival.session, Loss::ClassRefused);
        let pace = Pace::new(None, CLASS_PAUSE);
        let properties = pace.properties("no more room for this class in the queue of a receiver");
        self.answer_with(arrival.conn, arrival.delivery, ReasonCode::QuotaExceeded, Properties::new(&properties));
        Some(Admission::Settled)
    }

    #[cold]
    fn has_full_receiver(&mut self, publication: &Publication<'_>) -> bool {
        let (route, size) = (self.find_route(publication.topic), Message::size_of(publication));
        let (class, bounds) = (publication.standing.class, bounds_of(&self.settings, publication.standing.class));
        route.targets.iter().any(|target| {
            let session = self.sessions.get(target.session);
            let is_meant = |own| !(target.no_local && own == publication.origin);
            let queue = session.filter(|session| is_meant(session.origin)).and_then(|session| session.queue.as_ref());
            queue.is_some_and(|queue| queue.is_full(size, bounds) || queue.is_class_full(class, size, bounds))
        })
    }
}
