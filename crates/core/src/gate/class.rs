//! The gate of classes: who publishes in a class that wants to be refused is told before its message is taken.

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::Delivery;

use super::{Admission, GateArrival, Refusal};
use crate::classes::OnFull;
use crate::deliver::bounds_of;
use crate::ledger::Loss;
use crate::limits::CLASS_PAUSE;
use crate::message::{Message, Publication};
use crate::state::ShardState;

impl ShardState {
    /// Whether a message is not to be taken, because its class wants it refused when a receiver has no room for it. Asked
    /// of the receivers of this shard: what finds a queue of another one full is dropped there, and counted.
    pub(crate) fn admit_to_class(
        &mut self,
        arrival: GateArrival,
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
        if !self.hears_refusals(arrival.conn) {
            self.pause(arrival.conn, now + CLASS_PAUSE, now);
            return Some(Admission::Wait);
        }
        self.note_crowded_out(arrival.session);
        self.lose(arrival.session, Loss::ClassRefused);
        Some(Refusal::later(CLASS_PAUSE, "no more room for this class in the queue of a receiver"))
    }

    #[cold]
    fn has_full_receiver(&mut self, publication: &Publication<'_>) -> bool {
        let (route, size) = (self.find_route(publication.topic), Message::size_of(publication));
        let class = publication.standing.class;
        route.targets.iter().any(|target| {
            let session = self.sessions.get(target.session);
            let is_meant = |own| !(target.no_local && own == publication.origin);
            let Some(session) = session.filter(|session| is_meant(session.origin())) else { return false };
            let bounds = bounds_of(&self.settings, session.spool(), class);
            session.queue().is_some_and(|queue| queue.is_full(size, bounds) || queue.is_class_full(class, size, bounds))
        })
    }
}
