//! PUBLISH (section 3.3): a message.
//!
//! The packet that decides the speed of everything. Reading it allocates nothing: topic, properties and payload are
//! slices of the buffer.

use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::header::{DUP, RETAIN};
use crate::kind::PacketType;
use crate::limits::{Limits, Retain};
use crate::property::{KeptProperties, Properties, PropertyId, PropertySite};
use crate::qos::{PacketId, QoS};
use crate::reader::PacketReader;
use crate::sink::Sink;
use crate::version::Version;
use crate::{text, topic};

/// How a message is handed over. What does not go together cannot be said: an identifier at QoS 0, none above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// QoS 0.
    AtMostOnce,
    /// QoS 1, to be answered with PUBACK.
    AtLeastOnce {
        /// What the answer refers to.
        packet_id: PacketId,
        /// True if this may have been sent before.
        dup: bool,
    },
    /// QoS 2, to be answered with PUBREC.
    ExactlyOnce {
        /// What the answer refers to.
        packet_id: PacketId,
        /// True if this may have been sent before.
        dup: bool,
    },
}

impl Delivery {
    /// The quality of service.
    #[inline]
    pub const fn qos(self) -> QoS {
        match self {
            Self::AtMostOnce => QoS::AtMostOnce,
            Self::AtLeastOnce { .. } => QoS::AtLeastOnce,
            Self::ExactlyOnce { .. } => QoS::ExactlyOnce,
        }
    }

    /// The packet identifier; none at QoS 0.
    #[inline]
    pub const fn packet_id(self) -> Option<PacketId> {
        match self {
            Self::AtMostOnce => None,
            Self::AtLeastOnce { packet_id, .. } | Self::ExactlyOnce { packet_id, .. } => Some(packet_id),
        }
    }

    /// True if this may have been sent before.
    #[inline]
    pub const fn dup(self) -> bool {
        match self {
            Self::AtMostOnce => false,
            Self::AtLeastOnce { dup, .. } | Self::ExactlyOnce { dup, .. } => dup,
        }
    }

    /// The first byte of a PUBLISH with this delivery, retain flag aside.
    #[inline]
    pub(crate) const fn first_byte(self) -> u8 {
        let dup = if self.dup() { DUP } else { 0 };
        PacketType::Publish.first_byte() | self.qos().bits() << 1 | dup
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Quality of service, identifier and duplicate flag.
    pub delivery: Delivery,
    /// True if the message is to be kept for later subscribers, or comes from that store.
    pub retain: bool,
    /// The topic name; empty if, in MQTT 5, a topic alias stands for it.
    pub topic: &'a str,
    /// The properties.
    pub properties: Properties<'a>,
    /// The message itself.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    #[inline]
    pub(crate) fn read(flags: u8, mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        // Not `PacketReader::text`: `check_topic` looks for U+0000 in its one pass over the name.
        let topic = text::utf8(body.field()?)?;
        let delivery = read_delivery(flags, &mut body)?;
        let properties = if version.is_v5() {
            Properties::read(&mut body, PropertySite::Publish, limits)?
        } else {
            Properties::EMPTY
        };
        check_topic(topic, &properties, version, limits)?;
        let retain = flags & RETAIN != 0;
        check_announced(delivery.qos(), retain, limits)?;
        Ok(Self { delivery, retain, topic, properties, payload: body.remainder() })
    }
}

#[inline]
fn read_delivery(flags: u8, body: &mut PacketReader<'_>) -> Parse<Delivery> {
    let dup = flags & DUP != 0;
    Ok(match flags >> 1 & 3 {
        0 => Delivery::AtMostOnce,
        1 => Delivery::AtLeastOnce { packet_id: body.packet_id()?, dup },
        // QoS 3 was refused with the fixed header.
        _ => Delivery::ExactlyOnce { packet_id: body.packet_id()?, dup },
    })
}

#[inline]
fn check_topic(topic: &str, properties: &Properties<'_>, version: Version, limits: &Limits) -> Parse<()> {
    if properties.has(PropertyId::TopicAlias) {
        let alias = properties.topic_alias();
        if alias.is_some_and(|alias| alias.get() > limits.topic_alias_max) {
            return Err(violation!(TopicAliasInvalid, "topic alias above the announced maximum", "MQTT-3.3.2-9"));
        }
        // An empty name asks for the one that the alias stands for. [MQTT-3.3.2-7] is the session's to keep.
        if topic.is_empty() {
            return Ok(());
        }
    }
    if topic.is_empty() && version.is_v5() {
        return Err(violation!(ProtocolError, "neither topic name nor topic alias", "3.3.2.3.4"));
    }
    topic::check_name(topic, limits)
}

/// What this side announced that it does not support.
#[inline]
pub(crate) fn check_announced(qos: QoS, retain: bool, limits: &Limits) -> Parse<()> {
    if qos > limits.qos_max {
        return Err(violation!(QosNotSupported, "QoS above the announced maximum", "MQTT-3.2.2-11"));
    }
    if retain && limits.retain == Retain::Unavailable {
        return Err(violation!(RetainNotSupported, "retained message where none are kept", "MQTT-3.2.2-14"));
    }
    Ok(())
}

impl Body for Publish<'_> {
    #[inline]
    fn kind(&self) -> PacketType {
        PacketType::Publish
    }

    #[inline]
    fn first_byte(&self) -> u8 {
        self.delivery.first_byte() | u8::from(self.retain)
    }

    #[inline]
    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        out.put_field(self.topic.as_bytes());
        if let Some(id) = self.delivery.packet_id() {
            out.put_u16(id.get());
        }
        if version.is_v5() {
            self.properties.write(keep, out);
        }
        out.put(self.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Encoded, Peer};
    use crate::packet::Packet;
    use crate::reason::ReasonCode;
    use alloc::vec::Vec;

    fn read<'a>(input: &'a [u8], version: Version, limits: &Limits) -> Result<Publish<'a>, ReasonCode> {
        match decode(input, version, limits) {
            Ok(Decoded::Packet { packet: Packet::Publish(publish), consumed }) if consumed == input.len() => {
                Ok(publish)
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.reason),
        }
    }

    #[test]
    fn a_message_of_3_1_1_reads_and_writes() {
        // 3.1.1, figure 3.11: topic a/b, identifier 10.
        let bytes = b"\x3b\x09\x00\x03a/b\x00\x0ahi";
        let message = read(bytes, Version::V311, &Limits::default()).unwrap();
        let packet_id = PacketId::new(10).unwrap();
        assert_eq!(message.delivery, Delivery::AtLeastOnce { packet_id, dup: true });
        assert!(message.retain);
        assert_eq!((message.topic, message.payload), ("a/b", &b"hi"[..]));
        let mut out = Vec::new();
        assert_eq!(message.encode(Peer::new(Version::V311), &mut out), Encoded::Written { len: bytes.len() });
        assert_eq!(out, bytes);
    }

    #[test]
    fn a_message_of_5_carries_properties() {
        let bytes = b"\x34\x11\x00\x03a/b\x00\x01\x07\x02\x00\x00\x00\x3c\x01\x01hi";
        let message = read(bytes, Version::V5, &Limits::default()).unwrap();
        assert_eq!(message.delivery.qos(), QoS::ExactlyOnce);
        assert_eq!(message.properties.message_expiry(), Some(60));
        let mut out = Vec::new();
        assert_eq!(message.encode(Peer::new(Version::V5), &mut out), Encoded::Written { len: bytes.len() });
        assert_eq!(out, bytes);
    }

    #[test]
    fn an_alias_may_stand_for_the_topic() {
        let bytes = b"\x30\x06\x00\x00\x03\x23\x00\x05";
        let limits = Limits { topic_alias_max: 5, ..Limits::default() };
        assert_eq!(read(bytes, Version::V5, &limits).unwrap().topic, "");
        let limits = Limits { topic_alias_max: 4, ..Limits::default() };
        assert_eq!(read(bytes, Version::V5, &limits), Err(ReasonCode::TopicAliasInvalid));
    }

    #[test]
    fn what_was_announced_as_unsupported_is_refused_with_its_own_code() {
        let limits = Limits { qos_max: QoS::AtLeastOnce, retain: Retain::Unavailable, ..Limits::default() };
        assert_eq!(read(b"\x34\x05\x00\x01a\x00\x01", Version::V311, &limits), Err(ReasonCode::QosNotSupported));
        assert_eq!(read(b"\x31\x03\x00\x01a", Version::V311, &limits), Err(ReasonCode::RetainNotSupported));
        assert!(read(b"\x32\x05\x00\x01a\x00\x01", Version::V311, &limits).is_ok());
    }

    #[test]
    fn payload_may_be_empty_and_anything() {
        assert_eq!(read(b"\x30\x03\x00\x01a", Version::V311, &Limits::default()).unwrap().payload, b"");
        assert_eq!(read(b"\x30\x05\x00\x01a\0\xff", Version::V311, &Limits::default()).unwrap().payload, b"\0\xff");
    }
}
