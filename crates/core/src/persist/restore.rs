//! A shard as it was: sessions with what belongs to them, and retained messages, put back before anybody connects.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{PacketId, QoS, TopicFilter, topic};

use super::page::as_publication;
use super::{Spot, StoredMessage, SubscriberOptions};
use crate::access::Identity;
use crate::between::Address;
use crate::classes::{ClassId, OnFull};
use crate::ledger::Loss;
use crate::message::{Message, Precedence, Shareable};
use crate::parent::parent_of;
use crate::queue::{Bounds, Paged, Paging};
use crate::retained::{Room, Stamp};
use crate::route::load_of;
use crate::session::{InboundIds, InflightStage, PendingWill, Queued, Session, SubscriptionIds};
use crate::state::ShardState;
use crate::subscribe::own_filters;
use crate::subscriptions::{GroupRef, Presence};

/// A message as it was kept.
#[derive(Clone, Copy, Debug)]
pub struct SavedMessage<'a> {
    /// Quality of service it was published with.
    pub qos: QoS,
    /// The flag it was published with.
    pub retain: bool,
    /// When its lifetime ends.
    pub expires: Option<Timestamp>,
    /// Who published it; 0 if that is not known.
    pub origin: u64,
    /// How it stands among others that wait, in the words of this crate: its class, and its publisher's rate. None if nothing
    /// is known of its publisher.
    pub standing: Option<u64>,
    pub topic: &'a str,
    /// Its properties, as on the wire.
    pub properties: &'a [u8],
    pub payload: &'a [u8],
}

/// A session as it was kept.
#[derive(Debug)]
pub struct SavedSession<'a> {
    pub session: u64,
    pub client_id: &'a str,
    /// Whose it is, without an address.
    pub owner: Identity,
    /// How long it outlives its connection.
    pub expiry: Duration,
    /// When it ends; none if it was connected at the end.
    pub ends: Option<Timestamp>,
    /// Filters as the client wrote them.
    pub subscriptions: Vec<(&'a str, SubscriberOptions)>,
    /// Identifiers of QoS 2 messages that were taken and not released, in order.
    pub inbound: Vec<PacketId>,
    pub will: Option<SavedWill>,
}

/// A message for a session.
#[derive(Debug)]
pub struct SavedDelivery {
    pub place: u64,
    /// How far it is.
    pub stage: SavedStage,
    /// Quality of service of the delivery.
    pub qos: QoS,
    /// Flag of the delivery.
    pub retain: bool,
    /// Identifiers of the subscriptions that want it.
    pub ids: Vec<NonZeroU32>,
}

/// How far a delivery is.
#[derive(Debug)]
pub enum SavedStage {
    /// Not sent.
    Waiting(StoredMessage),
    /// Not sent, and not in memory. A session may have at most [`ID_SETS_MAX`](super::ID_SETS_MAX) different sets of
    /// subscription identifiers with these.
    OnDisk {
        /// Where it is.
        spot: Spot,
        /// Who published it.
        origin: u64,
        /// Bytes of its topic, properties and payload.
        bytes: usize,
        /// The lowest seven bits: one more than the number of its class, which is the lowest seven bits of
        /// [`SavedMessage::standing`]; 0 if it is not known. The eighth is the same there.
        class: u8,
    },
    /// Sent under this identifier, or about to be.
    Sent(StoredMessage, PacketId),
    /// The client has it, and the identifier is still in use.
    Released(PacketId),
}

/// A will.
#[derive(Debug)]
pub struct SavedWill {
    pub message: StoredMessage,
    /// How long after the loss of the connection.
    pub delay: Duration,
    /// When it is due; none if the client was connected at the end.
    pub due: Option<Timestamp>,
}

/// After so long all sessions are back.
const FIRST_TURN: Duration = Duration::from_millis(1);

impl ShardState {
    pub(crate) fn keep_journal(&mut self, number_max: u64) {
        self.journal.turn_on(self.links.index(), self.links.shards(), number_max);
        self.retained.keep_journal();
    }

    pub(crate) fn restore_message(&mut self, number: u64, saved: &SavedMessage<'_>) -> StoredMessage {
        let standing = saved.standing.map_or(Precedence::UNKNOWN, Precedence::from_bits);
        let publication = as_publication(saved, standing);
        let message = Message::new(&publication, self.memory.tally());
        message.set_number(number);
        StoredMessage(Arc::new(message))
    }

    pub(crate) fn may_restore_on_disk(&self, class: u8) -> bool {
        let (priority, (class, _)) = (&self.settings.priority, class_of(class));
        priority.on_full(class) != OnFull::Latest && !priority.is_capped(class)
    }

    pub(crate) fn restore_retained(&mut self, message: &StoredMessage, now: Timestamp) {
        let topic = message.0.view().topic;
        if self.keeps_retained(topic) {
            message.0.keep();
        }
        let room = Room { messages: usize::MAX, bytes: usize::MAX };
        self.retained.set(topic, Arc::clone(&message.0), Stamp { count: 0, from: Address::default() }, room, now);
    }

    /// A session as it was, without its messages: they come next ([`Self::restore_delivery`]), and then the session is
    /// put back ([`Self::restore_session`]).
    pub(crate) fn session_of_saved(&self, saved: &mut SavedSession<'_>, now: Timestamp) -> Session {
        let identity = saved.owner.clone();
        let (parent, origin) = (parent_of(&identity, self.seed), crate::connect::origin_of(saved.client_id));
        let mut session = Session::new(saved.client_id.into(), identity, parent, origin);
        session.keep_as(saved.session, 0);
        session.set_spool(self.settings.spool_of(saved.client_id));
        // A bridge that is not configured any more is kept as long as a client would be, should it come back.
        let is_given_up = session.identity().is_own() && session.spool().is_none();
        session.set_expiry(if is_given_up { saved.expiry.min(self.settings.session_expiry_max) } else { saved.expiry });
        session.inbound = InboundIds::restored(core::mem::take(&mut saved.inbound));
        session.set_will(saved.will.take().map(|will| {
            will.message.0.keep();
            PendingWill::restored(will.message.0, will.delay, will.due.unwrap_or(now + will.delay))
        }));
        session
    }

    /// Puts a session back that has its messages.
    pub(crate) fn restore_session(&mut self, mut session: Session, saved: SavedSession<'_>, now: Timestamp) {
        // A will that is due by now goes out in the first turn, or before if its client is faster: whoever wants it has to
        // be back before.
        let first = session.has_will().then_some(now + FIRST_TURN);
        let is_given_up = session.expiry() < saved.expiry;
        let ends = saved.ends.filter(|_| !is_given_up).unwrap_or(now + session.expiry());
        session.end_at(ends.max(first.unwrap_or(Timestamp::ZERO)));
        let (index, _) = self.sessions.insert(session);
        self.by_client.insert(index, &self.sessions);
        for (filter, wish) in saved.subscriptions {
            if let Ok(filter) = TopicFilter::parse(filter, &own_filters()) {
                self.subscribe_one(index, &filter, wish);
            }
        }
        self.set_group_presence(index, Presence::Offline);
        self.drop_overdue(index, now);
        self.note_absent(index);
        self.memory.forgive_absent();
        match first {
            Some(first) => self.watch_session(index, first, now),
            None => self.look_after(index, now),
        }
    }

    pub(crate) fn restore_delivery(
        &mut self,
        session: &mut Session,
        subscriptions: &[(&str, SubscriberOptions)],
        delivery: SavedDelivery,
        now: Timestamp,
    ) {
        let SavedDelivery { place, stage, qos, retain, ids } = delivery;
        session.note_place(place);
        let ids: SubscriptionIds = ids.into_iter().collect();
        let mut queued = |StoredMessage(message): StoredMessage| {
            message.keep();
            self.stats.begin_delivery(message.class());
            session.ledger.begin_delivery();
            // What it waited before is not known; it begins again.
            let wishes = subscriptions.iter().map(|(filter, wish)| (*filter, wish.is_latest));
            let is_latest = wants_latest(wishes, message.view().topic);
            let colour = message.standing().colour;
            Queued { message, qos, retain, ids: ids.clone(), place, since: now, is_latest, colour }
        };
        match stage {
            SavedStage::Waiting(message) => {
                let (queued, settings) = (queued(message), Arc::clone(&self.settings));
                let (bytes_max, class_bytes) = (usize::MAX, usize::MAX);
                let bounds = Bounds { messages_max: usize::MAX, bytes_max, class_bytes, is_spool: false };
                let paging = Paging { window: usize::MAX, turn: 0 };
                let (journal, kept) = (&mut self.journal, session.kept());
                session.with_queue(&mut self.stats, |queue, losses| {
                    // There is room for all; what only the newest is wanted of may have changed.
                    queue.offer(queued, &settings.priority, bounds, paging, |lost, _| {
                        journal.dequeue_item(kept, &lost);
                        losses.lose(Loss::Conflated, lost.class());
                    });
                });
            }
            SavedStage::OnDisk { spot, origin, bytes, class } => {
                let (class, is_by_topic) = class_of(class);
                self.stats.begin_delivery(class);
                session.ledger.begin_delivery();
                let paged = Paged::restored(spot, place, Message::size_with(bytes), class, (qos, retain));
                let priority = &self.settings.priority;
                session.with_queue(&mut self.stats, |queue, _| {
                    queue.restore(paged, &ids, (origin, is_by_topic), priority);
                });
            }
            SavedStage::Sent(message, packet_id) => {
                session.under_way.push(packet_id, InflightStage::Sent(queued(message)), 0);
                self.stats.inflight_messages += 1;
            }
            SavedStage::Released(packet_id) => {
                session.under_way.push(packet_id, InflightStage::Released { place }, 0);
            }
        }
    }

    pub(crate) fn restore_routing(
        &mut self,
        message: &StoredMessage,
        reached: &BTreeSet<u64>,
        groups: &mut BTreeSet<Box<str>>,
        now: Timestamp,
    ) {
        let shareable = Shareable::of(&message.0);
        // Whoever gets it now has it, also if the next crash comes before it is written that all have.
        shareable.routing.set(message.number());
        let publication = shareable.publication;
        if publication.retain && !reached.contains(&0) {
            self.retain(&shareable, Stamp { count: 0, from: Address::default() }, now);
        }
        let matches = self.subscriptions.matches(publication.topic);
        let is_new = |index: u32| {
            let session = self.sessions.get(index);
            session.is_some_and(|session| session.is_kept() && !reached.contains(&session.kept()))
        };
        let mut subscribers = matches.subscribers;
        subscribers.retain(|(index, _)| is_new(*index));
        for target in crate::cache::merged(subscribers, |_| true) {
            self.deliver(&target, &shareable, &mut crate::face::Frames::for_receivers(1), now);
        }
        for group in matches.groups {
            let Some((name, filter)) = self.subscriptions.group_of(group) else { continue };
            let group = GroupRef { name: &name, filter: &filter };
            let text = group.text();
            if groups.contains(&*text) {
                continue;
            }
            let (policy, sessions, connections) = (&*self.policy, &self.sessions, &self.connections);
            let load = |session| load_of(policy, sessions, connections, session, shareable.publication.topic);
            if let Some((session, wish)) = self.subscriptions.pick_local(&filter, &name, load) {
                groups.insert(text.into());
                self.deliver_shared(session, wish, Some(&group), &shareable, now);
            }
        }
    }

    pub(crate) fn end_restored_routing(&mut self, message: u64) {
        self.journal.push(super::StoreChange::Routed { message });
    }
}

/// Whether all of a session's subscriptions to a topic, of which there is one, want only the newest while they wait.
/// `subscriptions`: filters, and which of them do.
pub fn wants_latest<'a>(subscriptions: impl Iterator<Item = (&'a str, bool)> + Clone, name: &str) -> bool {
    if !subscriptions.clone().any(|(_, is_latest)| is_latest) {
        return false;
    }
    let mut wishes = subscriptions.filter(|(filter, _)| topic::matches(filter, name)).map(|(_, is_latest)| is_latest);
    wishes.next() == Some(true) && wishes.all(|is_latest| is_latest)
}

/// The class of a message on disk, and whether its topic tells it.
fn class_of(class: u8) -> (ClassId, bool) {
    let id = (class & 0x7f).checked_sub(1).map_or(ClassId::NORMAL, ClassId::from_bits);
    (id, class & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_is_wanted_if_all_subscriptions_to_a_topic_say_so() {
        let wishes = [("plain/#", false), ("latest/#", true), ("latest/both", false)];
        let wants = |topic| wants_latest(wishes.into_iter(), topic);
        assert!(wants("latest/t") && !wants("plain/t") && !wants("latest/both") && !wants("other"));
    }

    #[test]
    fn a_class_on_disk_is_the_one_in_memory() {
        assert_eq!(class_of(0), (ClassId::NORMAL, false));
        for class in 0..crate::classes::CLASSES_MAX as u8 {
            for is_by_topic in [false, true] {
                let id = ClassId::from_bits(class);
                assert_eq!(class_of((class + 1) | u8::from(is_by_topic) << 7), (id, is_by_topic));
            }
        }
    }
}
