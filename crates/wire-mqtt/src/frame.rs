//! A PUBLISH encoded once for many receivers.
//!
//! Fan-out sends nearly the same bytes to everybody. A frame is encoded once per version and per "with or without
//! packet identifier"; each receiver gets a copy in which flags, identifier and remaining lifetime are patched in
//! place. What would change lengths (subscription identifiers, a topic alias, the other layout) is put together from
//! the pieces of the same frame, without encoding properties or topic again.
//!
//! The payload may stay outside, so that large ones are shared: then a frame writes everything before it.

use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};
use core::ops::Range;

use crate::encode::{Encoded, Peer};
use crate::header::RETAIN;
use crate::property::{Property, PropertyId};
use crate::publish::{Delivery, Publish};
use crate::sink::{Counter, Sink};
use crate::varint;
use crate::version::Version;

/// Where the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadPlace {
    /// Copied into the frame: the frame writes whole packets.
    Inside,
    /// Kept by the caller, who sends it after what the frame writes.
    Outside,
}

/// What an outgoing topic alias does (section 3.3.2.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutgoingAlias {
    /// There is none.
    #[default]
    None,
    /// Send the topic, and from now on the alias stands for it.
    Define(NonZeroU16),
    /// Send the alias instead of the topic.
    Use(NonZeroU16),
}

/// What differs between receivers.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'p> {
    /// Quality of service, identifier and duplicate flag for this receiver.
    pub delivery: Delivery,
    /// The retain flag for this receiver.
    pub retain: bool,
    /// Seconds left to live, when the message has a lifetime. [MQTT-3.3.2-6]
    pub message_expiry: Option<u32>,
    /// Identifiers of the receiver's subscriptions that matched. Ignored before MQTT 5.
    pub subscription_ids: &'p [NonZeroU32],
    /// The topic alias. Ignored before MQTT 5.
    pub alias: OutgoingAlias,
}

impl Patch<'_> {
    /// A patch that changes delivery and retain flag only.
    pub const fn new(delivery: Delivery, retain: bool) -> Self {
        Self { delivery, retain, message_expiry: None, subscription_ids: &[], alias: OutgoingAlias::None }
    }

    /// True if lengths stay as they are.
    #[inline]
    fn is_flat(&self) -> bool {
        self.subscription_ids.is_empty() && self.alias == OutgoingAlias::None
    }
}

/// A PUBLISH encoded once for many receivers.
#[derive(Clone, Debug)]
pub struct PublishFrame {
    /// The packet as it would be sent, flags and identifier zero; the payload is missing if it is outside.
    bytes: Vec<u8>,
    version: Version,
    /// Bytes of the whole packet, payload included.
    packet_len: usize,
    /// The topic with its length.
    topic: Range<usize>,
    /// Where the packet identifier is, in a frame that has one.
    packet_id_at: Option<usize>,
    /// The properties without their length; empty before MQTT 5.
    properties: Range<usize>,
    /// Where the value of the Message Expiry Interval is, if there is one.
    expiry_at: Option<usize>,
}

impl PublishFrame {
    /// Encode a message for receivers of this version. `None` if MQTT has no encoding for it.
    ///
    /// The delivery decides which receivers get a plain copy: those at QoS 0, or those above it. Topic alias and
    /// subscription identifiers of `message` are left out; they belong to one connection.
    pub fn new(message: &Publish<'_>, version: Version, place: PayloadPlace) -> Option<Self> {
        let mut properties = Vec::new();
        if version.is_v5() {
            message.properties.encode(&mut properties, belongs_to_message);
        }
        let mut measured = Counter::default();
        measured.put_field(message.topic.as_bytes());
        if version.is_v5() {
            varint::write(properties.len().min(varint::MAX), &mut measured);
            message.properties.encode(&mut measured, belongs_to_message);
        }
        let id_len = if message.delivery.packet_id().is_some() { 2 } else { 0 };
        let remaining = measured.total()? + id_len + message.payload.len();
        if remaining > varint::MAX {
            return None;
        }
        Some(Self::assemble(message, version, place, &properties, remaining))
    }

    fn assemble(
        message: &Publish<'_>,
        version: Version,
        place: PayloadPlace,
        properties: &[u8],
        remaining: usize,
    ) -> Self {
        let inside = if place == PayloadPlace::Inside { message.payload } else { &[] };
        let mut bytes = Vec::with_capacity(HEADER_MAX + remaining - message.payload.len() + inside.len());
        bytes.put_u8(Delivery::AtMostOnce.first_byte());
        varint::write(remaining, &mut bytes);
        let packet_len = bytes.len() + remaining;
        let topic_at = bytes.len();
        bytes.put_field(message.topic.as_bytes());
        let topic = topic_at..bytes.len();
        let packet_id_at = message.delivery.packet_id().map(|_| {
            bytes.put_u16(0);
            topic.end
        });
        if version.is_v5() {
            varint::write(properties.len(), &mut bytes);
        }
        let properties_at = bytes.len();
        bytes.put(properties);
        let properties = properties_at..bytes.len();
        let expiry_at = find_expiry(message, version).map(|at| properties.start + at);
        bytes.put(inside);
        Self { bytes, version, packet_len, topic, packet_id_at, properties, expiry_at }
    }

    /// Bytes of the packet for a receiver without alias and subscription identifiers, payload included.
    pub fn packet_len(&self) -> usize {
        self.packet_len
    }

    /// Append the packet for one receiver, without the payload if that is outside. The length in the result counts the
    /// bytes that were appended.
    #[inline]
    pub fn write(&self, patch: &Patch<'_>, peer: Peer, out: &mut Vec<u8>) -> Encoded {
        let same_layout = self.packet_id_at.is_some() == patch.delivery.packet_id().is_some();
        if !same_layout || (!patch.is_flat() && self.version.is_v5()) {
            return self.write_pieces(patch, peer, out);
        }
        self.write_flat(patch.delivery, patch.retain, patch.message_expiry, peer, out)
    }

    /// The same for a receiver without topic alias and subscription identifiers, whose delivery has a packet identifier if
    /// the frame has one: what most of many receivers are.
    #[inline]
    pub fn write_flat(
        &self,
        delivery: Delivery,
        retain: bool,
        message_expiry: Option<u32>,
        peer: Peer,
        out: &mut Vec<u8>,
    ) -> Encoded {
        if self.packet_len > peer.packet_bytes_max as usize {
            return Encoded::TooLarge;
        }
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let Some(copy) = out.get_mut(start..) else { return Encoded::TooLarge };
        if let Some(first) = copy.first_mut() {
            *first = first_byte(delivery, retain);
        }
        if let (Some(at), Some(id)) = (self.packet_id_at, delivery.packet_id()) {
            put_at(copy, at, &id.get().to_be_bytes());
        }
        if let (Some(at), Some(left)) = (self.expiry_at, message_expiry) {
            put_at(copy, at, &left.to_be_bytes());
        }
        Encoded::Written { len: self.bytes.len() }
    }

    /// The way for everything that changes lengths: same pieces, new header.
    fn write_pieces(&self, patch: &Patch<'_>, peer: Peer, out: &mut Vec<u8>) -> Encoded {
        let mut counter = Counter::default();
        self.write_head(patch, &mut counter);
        let remaining = counter.len() + self.payload_len();
        let packet_len = 1 + varint::size(remaining) + remaining;
        if remaining > varint::MAX || packet_len > peer.packet_bytes_max as usize {
            return Encoded::TooLarge;
        }
        let start = out.len();
        let payload = self.bytes.get(self.properties.end..).unwrap_or_default();
        out.reserve(HEADER_MAX + counter.len() + payload.len());
        out.put_u8(first_byte(patch.delivery, patch.retain));
        varint::write(remaining, out);
        self.write_head(patch, out);
        // The message's own properties end the head, at the same distance from its end as in the frame.
        if let (Some(at), Some(left)) = (self.expiry_at, patch.message_expiry) {
            let from_end = self.properties.end - at;
            let at = out.len() - from_end;
            put_at(out, at, &left.to_be_bytes());
        }
        out.put(payload);
        Encoded::Written { len: out.len() - start }
    }

    /// Everything between fixed header and payload.
    fn write_head(&self, patch: &Patch<'_>, out: &mut impl Sink) {
        match patch.alias {
            OutgoingAlias::Use(_) if self.version.is_v5() => out.put_u16(0),
            _ => out.put(self.bytes.get(self.topic.clone()).unwrap_or_default()),
        }
        if let Some(id) = patch.delivery.packet_id() {
            out.put_u16(id.get());
        }
        if self.version.is_v5() {
            let own = self.bytes.get(self.properties.clone()).unwrap_or_default();
            let mut added = Counter::default();
            write_added(patch, &mut added);
            varint::write(added.len() + own.len(), out);
            write_added(patch, out);
            out.put(own);
        }
    }

    fn payload_len(&self) -> usize {
        self.packet_len - self.properties.end
    }
}

/// The properties that belong to one receiver.
fn write_added(patch: &Patch<'_>, out: &mut impl Sink) {
    if let OutgoingAlias::Define(alias) | OutgoingAlias::Use(alias) = patch.alias {
        Property::TopicAlias(alias).write(out);
    }
    patch.subscription_ids.iter().for_each(|&id| Property::SubscriptionId(id).write(out));
}

fn belongs_to_message(property: &Property<'_>) -> bool {
    !matches!(property.id(), PropertyId::TopicAlias | PropertyId::SubscriptionId)
}

/// Where the value of the Message Expiry Interval is among the encoded properties.
fn find_expiry(message: &Publish<'_>, version: Version) -> Option<usize> {
    if !version.is_v5() || !message.properties.has(PropertyId::MessageExpiry) {
        return None;
    }
    let mut before = Counter::default();
    for property in message.properties.iter().filter(belongs_to_message) {
        if property.id() == PropertyId::MessageExpiry {
            return Some(before.len() + 1);
        }
        property.write(&mut before);
    }
    None
}

#[inline]
fn first_byte(delivery: Delivery, retain: bool) -> u8 {
    delivery.first_byte() | if retain { RETAIN } else { 0 }
}

#[inline]
fn put_at(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Type, and a length of four bytes.
const HEADER_MAX: usize = 5;
