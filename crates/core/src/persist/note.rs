//! The words for what changed, where it changes. Each is nothing for what does not outlive its connection.

use alloc::boxed::Box;
use alloc::sync::Arc;

use tidegate_wire_mqtt::{Delivery, PacketId, QoS};

use super::{Journal, StoreChange};
use crate::limits::UNSYNCED_BYTES_MAX;
use crate::message::{Message, Publication, Shareable};
use crate::queue::{Item, Paged};
use crate::retained::RetainOutcome;
use crate::session::{InflightStage, Queued, Session};
use crate::state::ShardState;
use crate::subscriptions::{GroupRef, SubscriberOptions};

impl Journal {
    /// Somebody needs a message: it is written before the first who does, and again if everybody before has let go of
    /// it, because it is gone then.
    pub(crate) fn need(&mut self, message: &Arc<Message>) -> u64 {
        if message.keep() == 0 {
            let number = self.number();
            message.set_number(number);
            self.push_message(message);
        }
        message.number()
    }

    /// A message waits for a session.
    pub(crate) fn queue(&mut self, session: &mut Session, queued: &mut Queued) {
        if !session.is_kept() || queued.qos == QoS::AtMostOnce {
            return;
        }
        let message = self.need(&queued.message);
        queued.place = session.take_place();
        let Queued { qos, retain, place, ref ids, .. } = *queued;
        self.push(StoreChange::Queued {
            session: session.kept(),
            place,
            message,
            qos,
            retain,
            ids: ids.as_slice().into(),
        });
    }

    pub(crate) fn send(&mut self, session: u64, place: u64, packet_id: PacketId) {
        if place != 0 {
            self.push(StoreChange::Sent { session, place, packet_id });
        }
    }

    /// A message does not wait any more.
    pub(crate) fn dequeue(&mut self, session: u64, queued: &Queued) {
        if queued.place != 0 {
            queued.message.let_go();
            self.push(StoreChange::Dequeued { session, place: queued.place });
        }
    }

    /// The same, wherever it waited.
    pub(crate) fn dequeue_item(&mut self, session: u64, item: &Item) {
        match item {
            Item::Message(queued) => self.dequeue(session, queued),
            Item::Paged(paged) => self.dequeue_paged(session, paged),
        }
    }

    /// A message does not wait on disk any more.
    pub(crate) fn dequeue_paged(&mut self, session: u64, paged: &Paged) {
        self.push(StoreChange::Dequeued { session, place: paged.place });
    }

    /// The client has a QoS 2 message.
    pub(crate) fn release(&mut self, session: u64, queued: &Queued) {
        if queued.place != 0 {
            queued.message.let_go();
            self.push(StoreChange::Released { session, place: queued.place });
        }
    }

    /// Something under way is done.
    pub(crate) fn finish(&mut self, session: u64, stage: &InflightStage) {
        match stage {
            InflightStage::Sent(queued) => self.dequeue(session, queued),
            InflightStage::Released { place: 0 } => {}
            InflightStage::Released { place } => self.push(StoreChange::Dequeued { session, place: *place }),
        }
    }

    pub(crate) fn subscribe(&mut self, session: u64, filter: &str, wish: SubscriberOptions) {
        if session != 0 {
            self.push(StoreChange::Subscribed { session, filter: filter.into(), wish });
        }
    }

    pub(crate) fn unsubscribe(&mut self, session: u64, filter: &str) {
        if session != 0 {
            self.push(StoreChange::Unsubscribed { session, filter: filter.into() });
        }
    }

    pub(crate) fn note_inbound(&mut self, session: u64, packet_id: PacketId) {
        if session != 0 {
            self.push(StoreChange::InboundNoted { session, packet_id });
        }
    }

    pub(crate) fn release_inbound(&mut self, session: u64, packet_id: PacketId) {
        if session != 0 {
            self.push(StoreChange::InboundReleased { session, packet_id });
        }
    }

    /// The will of a session is not to be kept any more.
    pub(crate) fn clear_will(&mut self, session: &mut Session) {
        if session.let_will_go() {
            self.push(StoreChange::WillCleared { session: session.kept() });
        }
    }

    /// A session has ended, with everything that waits for it.
    pub(crate) fn end_session(&mut self, session: &Session) {
        if session.is_kept() {
            self.push(StoreChange::SessionEnded { session: session.kept() });
        }
    }
}

impl ShardState {
    /// A session that is to last gets its number.
    pub(crate) fn number_session(&mut self, index: u32) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if self.journal.is_on() && !session.is_kept() && session.is_lasting() {
            let number = self.journal.number();
            session.keep_as(number, self.journal.turn());
        }
    }

    /// A session is there, or has changed: how long it lasts, and since when it has been alone.
    pub(crate) fn keep_session(&mut self, index: u32) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if !session.is_kept() {
            return;
        }
        self.journal.push(StoreChange::Session {
            session: session.kept(),
            client_id: Arc::clone(session.client_id()),
            owner: Box::new(session.identity().clone()),
            expiry: session.expiry(),
            ends: session.expires_at(),
        });
    }

    /// A session has a will, or it is due at another time.
    pub(crate) fn keep_will(&mut self, index: u32) {
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.is_kept()) else { return };
        let Some((message, delay, due)) = session.keep_will(|message| self.journal.need(message)) else { return };
        self.journal.push(StoreChange::Will { session: session.kept(), message, delay, due });
    }

    /// Whether this shard writes down what is retained under this topic. One of them does, so that the order of the log
    /// is the order of the messages; all of them see all of these.
    pub(crate) fn keeps_retained(&self, topic: &str) -> bool {
        self.journal.is_on()
            && crate::shard::shard_of(topic, self.links.shards()) == self.links.index()
            && !is_own(topic)
    }

    /// What is retained under a topic has changed, on the shard that writes it down: what was there before, and whether
    /// the message is there now.
    pub(crate) fn note_retained(&mut self, message: &Shareable<'_>, before: Option<Arc<Message>>, kept: RetainOutcome) {
        let topic = message.publication.topic;
        if kept == RetainOutcome::Full || !self.keeps_retained(topic) {
            return;
        }
        self.note_reached(message, 0);
        if kept == RetainOutcome::Older {
            return;
        }
        let now = self.retained.get(topic);
        match (&now, &before) {
            (Some(now), Some(before)) if Arc::ptr_eq(now, before) => return,
            (Some(now), _) => {
                let message = self.journal.need(now);
                self.journal.push(StoreChange::Retained { topic: topic.into(), message });
            }
            (None, Some(_)) => self.journal.push(StoreChange::RetainedCleared { topic: topic.into() }),
            (None, None) => {}
        }
        if let Some(before) = before {
            before.let_go();
        }
    }

    /// Retained messages whose lifetime is over are gone.
    pub(crate) fn forget_swept(&mut self) {
        for message in self.retained.take_swept() {
            let topic = message.view().topic;
            if self.keeps_retained(topic) {
                message.let_go();
                if self.retained.get(topic).is_none() {
                    self.journal.push(StoreChange::RetainedCleared { topic: topic.into() });
                }
            }
        }
        self.journal.end_whole();
    }

    /// Whether a message cannot be retained because the disk fails and too much waits for it. QoS 1 and 2 were asked
    /// about before.
    pub(crate) fn is_store_lost(&self, publication: &Publication<'_>) -> bool {
        publication.qos == QoS::AtMostOnce
            && self.store_trouble().is_some()
            && self.journal.unsynced_bytes() > UNSYNCED_BYTES_MAX
            && !is_own(publication.topic)
    }

    /// A message that is to be taken exactly once, though other shards have to get it: see `begin_routing`.
    pub(crate) fn prepare_routing(&mut self, index: u32, delivery: Delivery, message: &Shareable<'_>) {
        let is_once = matches!(delivery, Delivery::ExactlyOnce { .. }) && self.links.has_others();
        if !is_once || self.sessions.get(index).is_none_or(|session| !session.is_kept()) {
            return;
        }
        self.begin_routing_elsewhere(message);
    }

    /// A will that is kept is published: it is not kept any more from this turn on, and others may get it later than that.
    pub(crate) fn prepare_will(&mut self, message: &Shareable<'_>) {
        let publication = &message.publication;
        if self.links.has_others() && (publication.retain || publication.qos > QoS::AtMostOnce) {
            self.begin_routing_elsewhere(message);
        }
    }

    fn begin_routing_elsewhere(&mut self, message: &Shareable<'_>) {
        let route = self.find_route(message.publication.topic);
        if message.publication.retain || !route.shards.is_empty() || !route.groups.is_empty() {
            self.begin_routing(message);
        }
    }

    /// A QoS 2 message or the will of a lasting session is about to be sent to other shards. It is noted as taken, or as
    /// published, in this turn, so it will not come again if they never get it: somebody has to remember.
    fn begin_routing(&mut self, message: &Shareable<'_>) {
        let shared = message.share(self.memory.tally());
        let number = self.journal.need(&shared);
        message.routing.set(number);
        self.journal.push(StoreChange::Routing { message: number });
        self.journal.route(shared);
    }

    pub(super) fn end_routing(&mut self, message: &Arc<Message>) {
        self.journal.push(StoreChange::Routed { message: message.number() });
        message.let_go();
    }

    /// Such a message has reached a session, or those who keep retained messages.
    pub(crate) fn note_reached(&mut self, message: &Shareable<'_>, session: u64) {
        if message.routing.get() != 0 && self.journal.is_on() {
            self.journal.push(StoreChange::Reached { message: message.routing.get(), session });
        }
    }

    /// Such a message has reached a member of a group.
    pub(crate) fn note_reached_group(&mut self, message: &Shareable<'_>, group: &GroupRef<'_>) {
        if message.routing.get() != 0 && self.journal.is_on() {
            let (message, group) = (message.routing.get(), group.text().into());
            self.journal.push(StoreChange::ReachedGroup { message, group });
        }
    }
}

/// The broker's own topics are made anew.
fn is_own(topic: &str) -> bool {
    topic == "$SYS" || topic.starts_with("$SYS/")
}
