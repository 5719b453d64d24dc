//! A message: borrowed while it is on its way through a turn, owned and shared once somebody has to keep it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use tidegate_control::Timestamp;
pub(crate) use tidegate_control::claim::Colour;
use tidegate_wire_mqtt::{Properties, Property, QoS};

use crate::classes::ClassId;
use crate::gate::MessageBytes;
use crate::parent::PARENT_MAX;
use crate::persist::Spot;

/// A message in flight: slices of the buffer it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publication<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) properties: Properties<'a>,
    /// Quality of service it was published with.
    pub(crate) qos: QoS,
    /// The flag it was published with.
    pub(crate) retain: bool,
    /// When its lifetime ends.
    pub(crate) expires: Option<Timestamp>,
    /// The session that published it; see `Session::origin`.
    pub(crate) origin: u64,
    pub(crate) standing: Precedence,
}

/// How a message stands among others that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Precedence {
    pub(crate) class: ClassId,
    /// Its topic tells the class, so that all messages to this topic have the same.
    pub(crate) is_by_topic: bool,
    /// Its publisher's rate, as the bits of an `f32`: in the same order, and the same on every shard.
    pub(crate) rate: u32,
    /// Whether its publisher was within its claim when it came.
    pub(crate) colour: Colour,
    /// Nothing was usual for its publisher when it came. Not kept.
    pub(crate) is_newcomer: bool,
    /// Who its publisher belongs to; see [`parent_of`](crate::parent::parent_of). 0 if that is not known.
    pub(crate) parent: u64,
}

impl Precedence {
    /// Nothing is known of its publisher.
    pub(crate) const UNKNOWN: Self = Self::of(ClassId::NORMAL);

    pub(crate) const fn of(class: ClassId) -> Self {
        Self { class, is_by_topic: false, rate: RATE_UNKNOWN, colour: Colour::Entitled, is_newcomer: false, parent: 0 }
    }

    /// As a number, to be kept; none if nothing is known. From the lowest bit: class and whether its topic tells it 8,
    /// rate 32, parent 23 of its bits, colour 1. Numbers from before there were the last two have zeroes there.
    /// (What is kept is read in another life at the soonest, or leaves at once: there the parent has another number.)
    pub(crate) fn bits(self) -> Option<u64> {
        let flags = self.class.bits() | u8::from(self.is_by_topic) << 7;
        let claim = (self.parent & PARENT_KEPT) << 40 | u64::from(self.colour == Colour::Excess) << 63;
        (Self { is_newcomer: false, ..self } != Self::UNKNOWN)
            .then_some(claim | u64::from(self.rate) << 8 | u64::from(flags))
    }

    /// From such a number. Classes are known by their place: another configuration may mean another one by it.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            class: ClassId::from_bits(bits as u8 & 0x7f),
            is_by_topic: bits & 0x80 != 0,
            rate: (bits >> 8) as u32,
            colour: if bits >> 63 == 0 { Colour::Entitled } else { Colour::Excess },
            is_newcomer: false,
            parent: bits >> 40 & PARENT_KEPT,
        }
    }

    /// Parent, colour and whether it is a newcomer's as one number; see [`Self::set_claim`].
    pub(crate) fn claim(&self) -> u64 {
        let colour = u64::from(self.colour == Colour::Excess) << 63;
        self.parent & PARENT_MAX | colour | u64::from(self.is_newcomer) << 62
    }

    /// From such a number.
    pub(crate) fn set_claim(&mut self, claim: u64) {
        self.colour = if claim >> 63 == 0 { Colour::Entitled } else { Colour::Excess };
        self.is_newcomer = claim >> 62 & 1 == 1;
        self.parent = claim & PARENT_MAX;
    }
}

/// What is kept of a parent on disk.
const PARENT_KEPT: u64 = (1 << 23) - 1;
/// Behind every rate: those who still learn are last (CONTROL §9.1).
pub(crate) const RATE_UNKNOWN: u32 = u32::MAX;

impl Publication<'_> {
    /// The number of its publisher, and whether nothing was usual for that one when it came.
    pub(crate) fn whose(&self) -> (u64, bool) {
        (self.origin, self.standing.is_newcomer)
    }

    /// Whole seconds left to live, at least one while there is any; None without a lifetime. [MQTT-3.3.2-6]
    pub(crate) fn seconds_left(&self, now: Timestamp) -> Option<u32> {
        self.expires.map(|at| u32::try_from(at.since(now).as_millis().div_ceil(1000)).unwrap_or(u32::MAX))
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// When a message with these properties, published now, expires.
pub(crate) fn expiry(properties: &Properties<'_>, now: Timestamp) -> Option<Timestamp> {
    properties.message_expiry().map(|seconds| now + Duration::from_secs(seconds.into()))
}

/// A message that is kept: one allocation for its bytes, shared by all who keep it, and charged until the last of them
/// lets go of it.
#[derive(Debug)]
pub(crate) struct Message {
    /// Topic, properties and payload, one after the other.
    bytes: Box<[u8]>,
    topic_len: u32,
    properties_len: u32,
    qos: QoS,
    retain: bool,
    standing: Precedence,
    expires: Option<Timestamp>,
    origin: u64,
    tally: MessageBytes,
    /// Its number in the store, and how many there need it on behalf of this shard; it is gone from there with the last.
    /// Only one thread ever changes them.
    number: AtomicU64,
    needed_by: AtomicU32,
    /// Where it is there, once that is known; else zeroes.
    spot: [AtomicU64; 2],
}

impl Drop for Message {
    fn drop(&mut self) {
        self.tally.take(self.size());
    }
}

impl Message {
    pub(crate) fn new(publication: &Publication<'_>, tally: &MessageBytes) -> Self {
        let size = publication.topic.len() + publication.payload.len();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(publication.topic.as_bytes());
        if !publication.properties.is_empty() {
            publication.properties.encode(&mut bytes, belongs_to_message);
        }
        let properties_len = bytes.len() - publication.topic.len();
        bytes.extend_from_slice(publication.payload);
        let message = Self {
            bytes: bytes.into_boxed_slice(),
            topic_len: publication.topic.len() as u32,
            properties_len: properties_len as u32,
            qos: publication.qos,
            retain: publication.retain,
            standing: publication.standing,
            expires: publication.expires,
            origin: publication.origin,
            tally: tally.clone(),
            number: AtomicU64::new(0),
            needed_by: AtomicU32::new(0),
            spot: [AtomicU64::new(0), AtomicU64::new(0)],
        };
        tally.add(message.size());
        message
    }

    pub(crate) fn view(&self) -> Publication<'_> {
        let (topic, rest) = self.bytes.split_at(self.topic_len as usize);
        let (properties, payload) = rest.split_at(self.properties_len as usize);
        Publication {
            // It was a `str` when it was put in; checking is cheaper than unsafe code is worth.
            topic: core::str::from_utf8(topic).unwrap_or_default(),
            payload,
            properties: if properties.is_empty() { Properties::EMPTY } else { Properties::from_encoded(properties) },
            qos: self.qos,
            retain: self.retain,
            expires: self.expires,
            origin: self.origin,
            standing: self.standing,
        }
    }

    /// The first byte of all, to have its memory fetched.
    #[inline]
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
        self.set_spot(Spot::default());
    }

    /// Where the store has it under its number.
    pub(crate) fn set_spot(&self, Spot([high, low]): Spot) {
        self.spot[0].store(high, Ordering::Relaxed);
        self.spot[1].store(low, Ordering::Relaxed);
    }

    pub(crate) fn spot(&self) -> Option<Spot> {
        let spot = Spot([self.spot[0].load(Ordering::Relaxed), self.spot[1].load(Ordering::Relaxed)]);
        (spot != Spot::default()).then_some(spot)
    }

    /// One more needs it in the store; how many did before.
    pub(crate) fn keep(&self) -> u32 {
        self.needed_by.fetch_add(1, Ordering::Relaxed)
    }

    /// One less does.
    pub(crate) fn let_go(&self) {
        self.needed_by.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn standing(&self) -> &Precedence {
        &self.standing
    }

    pub(crate) fn class(&self) -> ClassId {
        self.standing.class
    }

    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// Bytes that it would cost to keep this.
    pub(crate) fn size_of(publication: &Publication<'_>) -> usize {
        let mut properties = Vec::new();
        if !publication.properties.is_empty() {
            publication.properties.encode(&mut properties, belongs_to_message);
        }
        publication.topic.len() + properties.len() + publication.payload.len() + size_of::<Self>()
    }

    /// Bytes that one with so many bytes of topic, properties and payload costs to keep.
    pub(crate) fn size_with(bytes: usize) -> usize {
        bytes + size_of::<Self>()
    }

    /// Bytes that it costs to keep.
    pub(crate) fn size(&self) -> usize {
        Self::size_with(self.bytes.len())
    }
}

/// What belongs to one connection, or to a will before it is published, stays behind when a message is kept or sent on.
pub(crate) fn belongs_to_message(property: &Property<'_>) -> bool {
    !matches!(property, Property::TopicAlias(_) | Property::SubscriptionId(_) | Property::WillDelay(_))
}

/// A publication that becomes a shared message when the first receiver has to keep it.
pub(crate) struct Shareable<'a> {
    pub(crate) publication: Publication<'a>,
    shared: OnceCell<Arc<Message>>,
    /// Its number while it is on its way to other shards and must reach everybody exactly once; else 0. See
    /// `persist::StoreChange::Routing`.
    pub(crate) routing: Cell<u64>,
}

impl<'a> Shareable<'a> {
    pub(crate) fn new(publication: Publication<'a>) -> Self {
        Self { publication, shared: OnceCell::new(), routing: Cell::new(0) }
    }

    pub(crate) fn of(message: &'a Arc<Message>) -> Self {
        Self { publication: message.view(), shared: OnceCell::from(Arc::clone(message)), routing: Cell::new(0) }
    }

    pub(crate) fn share(&self, tally: &MessageBytes) -> Arc<Message> {
        Arc::clone(self.shared.get_or_init(|| Arc::new(Message::new(&self.publication, tally))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_from_before_there_were_claims_are_entitled_and_of_nobody() {
        let old = u64::from(1.5_f32.to_bits()) << 8 | 0x82;
        let standing = Precedence { is_by_topic: true, rate: 1.5_f32.to_bits(), ..Precedence::of(ClassId::LOW) };
        assert_eq!(Precedence::from_bits(old), standing);
        assert_eq!(standing.bits(), Some(old));
        assert_eq!(Precedence::UNKNOWN.bits(), None);
    }

    proptest! {
        #[test]
        fn a_standing_outlives_being_kept_and_being_sent(
            class in 0..8_u8, is_by_topic: bool, rate: u32, is_excess: bool, is_newcomer: bool,
            parent in 0..=PARENT_MAX,
        ) {
            let class = ClassId::from_bits(class);
            let colour = if is_excess { Colour::Excess } else { Colour::Entitled };
            let standing = Precedence { class, is_by_topic, rate, colour, is_newcomer, parent };
            let kept = Precedence { parent: parent & PARENT_KEPT, is_newcomer: false, ..standing };
            prop_assert_eq!(standing.bits().map_or(Precedence::UNKNOWN, Precedence::from_bits), kept);
            let mut sent = Precedence { colour: Colour::Entitled, is_newcomer: false, parent: 0, ..standing };
            sent.set_claim(standing.claim());
            prop_assert_eq!(sent, standing);
        }
    }
}
