//! What the records add up to: everything that outlives the broker, without the messages themselves, which stay on disk
//! and are known by place.
//!
//! A record that speaks of a session or message that is not there is passed over and counted: damage elsewhere may have
//! taken it, and one lost batch must not cost the others.

mod dump;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use tidegate_core::persist::SubscriberOptions;
use tidegate_store::Location;
use tidegate_wire_mqtt::{PacketId, QoS};

use super::{MessageRecord, RHYTHM_MS_MAX, Record};

/// Everything that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreImage {
    sessions: BTreeMap<u64, SessionImage>,
    messages: BTreeMap<u64, Stored>,
    retained: BTreeMap<Box<str>, u64>,
    /// Messages on their way to sessions, and those that have them.
    routing: BTreeMap<u64, RoutingImage>,
    rhythms: BTreeMap<Box<str>, (u64, Box<[u8]>)>,
    limits: BTreeMap<Box<str>, (u64, u32)>,
    bans: BTreeMap<Box<str>, (Option<u64>, Box<str>)>,
    clock_ms: u64,
    /// Highest number of a message or session ever seen: the next one is higher.
    id_max: u64,
    orphans: u64,
    skipped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    at: Location,
    /// See `Outline`; there are millions of these.
    origin: u64,
    bytes: u32,
    class: u8,
    /// Queues, retained topics and wills that need it.
    users: u32,
}

/// What is known of a message without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The session that published it.
    pub origin: u64,
    /// Bytes of its topic, properties and payload.
    pub bytes: u32,
    /// In the lowest seven bits one more than those of how it stands, which are its class, or 0 if nothing is known; the
    /// eighth is the same there: whether its topic tells the class.
    pub class: u8,
}

/// Bytes of a message of which only the place is known.
const UNKNOWN: u32 = u32::MAX;

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionImage {
    pub client_id: Box<str>,
    /// Who the client is, if it said so.
    pub principal: Option<Box<str>>,
    /// Seconds that it outlives its connection; None is for ever.
    pub expiry_s: Option<u32>,
    /// When it ends; None if it was connected at the end.
    pub ends_ms: Option<u64>,
    /// Filters as the client wrote them.
    pub subscriptions: BTreeMap<Box<str>, SubscriberOptions>,
    /// Messages that wait or are under way, by place.
    pub queue: BTreeMap<u64, QueueEntry>,
    /// Identifiers of QoS 2 messages that were taken and not released.
    pub inbound: BTreeSet<PacketId>,
    /// The will of the session.
    pub will: Option<WillImage>,
}

/// A message in a session's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Which one; see [`StoreImage::message`].
    pub message: u64,
    /// Quality of service of the delivery.
    pub qos: QoS,
    /// Flag of the delivery.
    pub retain: bool,
    /// How far the delivery is.
    pub stage: DeliveryStage,
    /// Identifiers of the subscriptions that want it; None is none.
    pub ids: Option<Box<[NonZeroU32]>>,
}

impl QueueEntry {
    fn released(packet_id: PacketId) -> Self {
        Self { message: 0, qos: QoS::ExactlyOnce, retain: false, stage: DeliveryStage::Released(packet_id), ids: None }
    }
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryStage {
    /// Not sent.
    Waiting,
    /// Sent under this identifier.
    Sent(PacketId),
    /// QoS 2: the client has it, and has not yet said that the identifier is free. The message is no longer kept.
    Released(PacketId),
}

/// Those whom a message on its way has reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingImage {
    /// Sessions; 0 is whoever keeps the retained messages.
    pub sessions: BTreeSet<u64>,
    /// Shared subscriptions, as their members write them.
    pub groups: BTreeSet<Box<str>>,
}

/// A will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WillImage {
    /// The number of the will's message.
    pub message: u64,
    /// Seconds between the loss of the connection and the will.
    pub delay_s: u32,
    /// When it is due; None if the client was connected at the end.
    pub due_ms: Option<u64>,
}

impl StoreImage {
    /// Sessions by number.
    pub fn sessions(&self) -> impl Iterator<Item = (u64, &SessionImage)> {
        self.sessions.iter().map(|(&session, image)| (session, image))
    }

    /// Where a message is; the record there is a [`super::MessageRecord`].
    pub fn message(&self, id: u64) -> Option<Location> {
        self.messages.get(&id).map(|stored| stored.at)
    }

    /// What is known of a message besides; none if an earlier release wrote it.
    pub fn outline(&self, id: u64) -> Option<Outline> {
        let Stored { origin, bytes, class, .. } = *self.messages.get(&id)?;
        (bytes != UNKNOWN).then_some(Outline { origin, bytes, class })
    }

    /// Number of messages that somebody needs, and of some that nobody does yet.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Topics with their retained messages.
    pub fn retained(&self) -> impl Iterator<Item = (&str, u64)> {
        self.retained.iter().map(|(topic, &message)| (&**topic, message))
    }

    /// QoS 2 messages that were taken and may not have reached everybody, with those whom they have reached.
    pub fn routing(&self) -> impl Iterator<Item = (u64, &RoutingImage)> {
        self.routing.iter().map(|(&message, reached)| (message, reached))
    }

    /// What was learned about publishers, and when they published last; those who have been away for too long are left
    /// out.
    pub fn rhythms(&self) -> impl Iterator<Item = (&str, u64, &[u8])> {
        let is_fresh = |seen_ms: u64| seen_ms.saturating_add(RHYTHM_MS_MAX) > self.clock_ms;
        let fresh = self.rhythms.iter().filter(move |(_, (seen_ms, _))| is_fresh(*seen_ms));
        fresh.map(|(key, (seen_ms, state))| (&**key, *seen_ms, &**state))
    }

    /// What operators have set: for whom, nanoseconds between two messages, and how many at once.
    pub fn limits(&self) -> impl Iterator<Item = (&str, u64, u32)> {
        self.limits.iter().map(|(subject, (interval_ns, burst))| (&**subject, *interval_ns, *burst))
    }

    /// Who may not come in, until when, and why; bans that have ended are left out.
    pub fn bans(&self) -> impl Iterator<Item = (&str, Option<u64>, &str)> {
        let holds = |until: Option<u64>| until.is_none_or(|until| until > self.clock_ms);
        let bans = self.bans.iter().filter(move |(_, (until, _))| holds(*until));
        bans.map(|(subject, (until, reason))| (&**subject, *until, &**reason))
    }

    /// The latest time of the wall clock that was written down; 0 if none was.
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// Highest number of a message or session that was ever used and is known of.
    pub fn id_max(&self) -> u64 {
        self.id_max
    }

    /// Records passed over because what they speak of is not there.
    pub fn orphans(&self) -> u64 {
        self.orphans
    }

    /// Records passed over because a newer release wrote them and said that one may.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn take(&mut self, record: Record<'_>, at: Location) {
        let is_known = match record {
            Record::Message(MessageRecord { id, origin, standing, topic, properties, payload, .. }) => {
                let bytes = u32::try_from(topic.len() + properties.len() + payload.len()).unwrap_or(u32::MAX);
                self.store(id, at, Some(Outline { origin, bytes, class: standing.map_or(0, class_of) }));
                true
            }
            Record::MessageAt { id, at } => {
                self.store(id, at, None);
                true
            }
            Record::MessageStands { id, at, origin, bytes, class } => {
                // Nothing writes one above: it would not be known.
                let class = u8::try_from(class).unwrap_or(0);
                self.store(id, at, Some(Outline { origin, bytes, class }));
                true
            }
            Record::Session { session, client_id, principal, expiry_s, ends_ms } => {
                self.id_max = self.id_max.max(session);
                let image = self.sessions.entry(session).or_default();
                image.client_id = client_id.into();
                image.principal = principal.map(Into::into);
                (image.expiry_s, image.ends_ms) = (expiry_s, ends_ms);
                true
            }
            Record::SessionEnded { session } => self.end_session(session),
            Record::Retained { topic, message } => {
                let is_known = self.use_message(message);
                let before = if is_known {
                    self.retained.insert(topic.into(), message)
                } else {
                    // The message before it was to be replaced; an old value is worse than none.
                    self.retained.remove(topic)
                };
                self.leave(before);
                is_known
            }
            Record::RetainedCleared { topic } => {
                let before = self.retained.remove(topic);
                self.leave(before);
                true
            }
            Record::Routing { message } => {
                let is_known = self.use_message(message);
                if is_known && self.routing.insert(message, RoutingImage::default()).is_some() {
                    self.leave(Some(message));
                }
                is_known
            }
            // From a shard that is later than the one that knows that it is done.
            Record::Reached { message, session } => {
                self.routing.get_mut(&message).map(|reached| reached.sessions.insert(session));
                true
            }
            Record::ReachedGroup { message, group } => {
                self.routing.get_mut(&message).map(|reached| reached.groups.insert(group.into()));
                true
            }
            Record::Routed { message } => {
                let is_known = self.routing.remove(&message).is_some();
                self.leave(Some(message).filter(|_| is_known));
                is_known
            }
            Record::Rhythm { key, seen_ms, state } => {
                self.rhythms.insert(key.into(), (seen_ms, state.into()));
                true
            }
            Record::RhythmForgotten { key } => {
                self.rhythms.remove(key);
                true
            }
            Record::Ban { subject, until_ms, reason } => {
                self.bans.insert(subject.into(), (until_ms, reason.into()));
                true
            }
            Record::BanLifted { subject } => {
                self.bans.remove(subject);
                true
            }
            Record::Limit { subject, interval_ns, burst } => {
                self.limits.insert(subject.into(), (interval_ns, burst));
                true
            }
            Record::LimitLifted { subject } => {
                self.limits.remove(subject);
                true
            }
            Record::Numbers { id_max } => {
                self.id_max = self.id_max.max(id_max);
                true
            }
            Record::Clock { now_ms } => {
                self.clock_ms = self.clock_ms.max(now_ms);
                true
            }
            of_session => self.take_of_session(of_session).is_some(),
        };
        self.orphans += u64::from(!is_known);
    }

    /// Records of one session; None if what they speak of is not there.
    fn take_of_session(&mut self, record: Record<'_>) -> Option<()> {
        match record {
            Record::Subscribed { session, filter, wish } => {
                self.sessions.get_mut(&session)?.subscriptions.insert(filter.into(), wish);
            }
            Record::Unsubscribed { session, filter } => {
                self.sessions.get_mut(&session)?.subscriptions.remove(filter)?;
            }
            Record::Queued { session, place, message, qos, retain, ids } => {
                if !self.sessions.contains_key(&session) || !self.use_message(message) {
                    return None;
                }
                let ids = (!ids.is_empty()).then(|| ids.into_boxed_slice());
                let entry = QueueEntry { message, qos, retain, stage: DeliveryStage::Waiting, ids };
                let before = self.sessions.get_mut(&session)?.queue.insert(place, entry);
                self.leave_entry(before.as_ref());
            }
            Record::Dequeued { session, place } => {
                let entry = self.sessions.get_mut(&session)?.queue.remove(&place)?;
                self.leave_entry(Some(&entry));
            }
            Record::Sent { session, place, packet_id } => {
                let entry = self.sessions.get_mut(&session)?.queue.get_mut(&place)?;
                if matches!(entry.stage, DeliveryStage::Released(_)) {
                    return None;
                }
                entry.stage = DeliveryStage::Sent(packet_id);
            }
            Record::Released { session, place } => {
                let entry = self.sessions.get_mut(&session)?.queue.get_mut(&place)?;
                let DeliveryStage::Sent(packet_id) = entry.stage else { return None };
                let before = std::mem::replace(entry, QueueEntry::released(packet_id));
                self.leave_entry(Some(&before));
            }
            Record::ReleasedAt { session, place, packet_id } => {
                let before = self.sessions.get_mut(&session)?.queue.insert(place, QueueEntry::released(packet_id));
                self.leave_entry(before.as_ref());
            }
            Record::InboundNoted { session, packet_id } => {
                self.sessions.get_mut(&session)?.inbound.insert(packet_id);
            }
            Record::InboundReleased { session, packet_id } => {
                self.sessions.get_mut(&session)?.inbound.remove(&packet_id).then_some(())?;
            }
            Record::Will { session, message, delay_s, due_ms } => {
                if !self.sessions.contains_key(&session) || !self.use_message(message) {
                    return None;
                }
                let will = WillImage { message, delay_s, due_ms };
                let before = self.sessions.get_mut(&session)?.will.replace(will);
                self.leave(before.map(|before| before.message));
            }
            Record::WillCleared { session } => {
                let will = self.sessions.get_mut(&session)?.will.take()?;
                self.leave(Some(will.message));
            }
            _ => {}
        }
        Some(())
    }

    fn store(&mut self, id: u64, at: Location, outline: Option<Outline>) {
        self.id_max = self.id_max.max(id);
        let Outline { origin, bytes, class } = outline.unwrap_or(Outline { origin: 0, bytes: UNKNOWN, class: 0 });
        let users = self.messages.get(&id).map_or(0, |stored| stored.users);
        self.messages.insert(id, Stored { at, origin, bytes, class, users });
    }

    fn use_message(&mut self, id: u64) -> bool {
        let Some(stored) = self.messages.get_mut(&id) else { return false };
        stored.users += 1;
        true
    }

    fn leave_entry(&mut self, entry: Option<&QueueEntry>) {
        self.leave(entry.filter(|entry| !matches!(entry.stage, DeliveryStage::Released(_))).map(|entry| entry.message));
    }

    fn leave(&mut self, id: Option<u64>) {
        let Some(id) = id else { return };
        if let Some(stored) = self.messages.get_mut(&id) {
            stored.users -= 1;
            if stored.users == 0 {
                self.messages.remove(&id);
            }
        }
    }

    fn end_session(&mut self, session: u64) -> bool {
        let Some(image) = self.sessions.remove(&session) else { return false };
        for entry in image.queue.values() {
            self.leave_entry(Some(entry));
        }
        self.leave(image.will.map(|will| will.message));
        true
    }
}

/// As in [`Outline`], of how a message stands.
fn class_of(standing: u64) -> u8 {
    let bits = standing as u8;
    ((bits & 0x7f).min(0x7e) + 1) | (bits & 0x80)
}

#[cfg(test)]
impl StoreImage {
    /// What counts, without places, counters and messages that nobody needs.
    pub(super) fn essence(&self) -> Self {
        let nowhere = Location { file: tidegate_store::FileId::from_bits(0), offset: 0, len: 0 };
        let mut image = Self { orphans: 0, skipped: 0, ..self.clone() };
        image.bans = self.bans().map(|(subject, until, reason)| (subject.into(), (until, reason.into()))).collect();
        image.rhythms = self.rhythms().map(|(key, seen_ms, state)| (key.into(), (seen_ms, state.into()))).collect();
        image.messages.retain(|_, stored| stored.users > 0);
        image.messages.values_mut().for_each(|stored| stored.at = nowhere);
        image
    }

    pub(super) fn live_messages(&self) -> Vec<(u64, Location)> {
        self.messages.iter().filter(|(_, stored)| stored.users > 0).map(|(&id, stored)| (id, stored.at)).collect()
    }
}
