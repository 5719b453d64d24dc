//! From a packet to bytes.
//!
//! Every packet can write its body into any [`Sink`]; the body is written twice, first into a counter, so that the
//! length is exact and nothing is written of a packet that the receiver would refuse. Diagnostics give way to the
//! receiver's maximum packet size, as the specification asks of each packet that has them (for instance
//! [MQTT-3.4.2-2]).
//!
//! Strings are written as they are: whoever makes up a topic checks it with [`crate::topic`].

use crate::kind::PacketType;
use crate::property::KeptProperties;
use crate::sink::{Counter, Sink};
use crate::varint;
use crate::version::Version;

/// Whether reason strings and user properties are welcome in acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Diagnostics {
    /// The peer takes them, as by default.
    #[default]
    Send,
    /// The peer's CONNECT had Request Problem Information 0: only PUBLISH, CONNACK and DISCONNECT may carry them.
    /// [MQTT-3.1.2-29]
    Omit,
}

/// What the receiver of a packet understands and accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The version of the connection.
    pub version: Version,
    /// The Maximum Packet Size that the peer announced.
    pub packet_bytes_max: u32,
    /// What the peer said about diagnostics.
    pub diagnostics: Diagnostics,
}

impl Peer {
    /// A peer that announced nothing in particular.
    pub const fn new(version: Version) -> Self {
        Self { version, packet_bytes_max: u32::MAX, diagnostics: Diagnostics::Send }
    }
}

/// What became of a packet that was to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Encoded {
    /// All of it was written.
    Written {
        /// Bytes that were appended.
        len: usize,
    },
    /// Written without reason string or user properties, which would not have fitted.
    Trimmed {
        /// Bytes that were appended.
        len: usize,
    },
    /// Nothing was written: the packet is larger than the peer accepts or than MQTT can say.
    TooLarge,
    /// Nothing was written: this version has no such packet.
    NotInVersion,
}

/// Packets can be encoded.
pub trait Encode {
    /// Append the packet to `out`, if the peer accepts it.
    fn encode(&self, peer: Peer, out: &mut impl Sink) -> Encoded;

    /// Bytes of the whole packet with everything in it; `None` if MQTT has no encoding for it.
    fn encoded_len(&self, version: Version) -> Option<usize>;
}

/// A packet that can write what follows its fixed header.
pub(crate) trait Body {
    /// The type of the packet.
    fn kind(&self) -> PacketType;

    /// The first byte: type and flags.
    #[inline]
    fn first_byte(&self) -> u8 {
        self.kind().first_byte()
    }

    /// Append all that follows the fixed header.
    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink);
}

impl<T: Body> Encode for T {
    #[inline]
    fn encode(&self, peer: Peer, out: &mut impl Sink) -> Encoded {
        let first_choice = first_choice(self.kind(), peer);
        if let Some(remaining) = fitting(self, peer, first_choice) {
            return Encoded::Written { len: write(self, remaining, peer, first_choice, out) };
        }
        encode_trimmed(self, peer, first_choice, out)
    }

    #[inline]
    fn encoded_len(&self, version: Version) -> Option<usize> {
        let remaining = fitting(self, Peer::new(version), KeptProperties::Everything)?;
        Some(1 + varint::size(remaining) + remaining)
    }
}

#[cold]
fn encode_trimmed(packet: &impl Body, peer: Peer, first_choice: KeptProperties, out: &mut impl Sink) -> Encoded {
    if packet.kind() == PacketType::Auth && !peer.version.is_v5() {
        return Encoded::NotInVersion;
    }
    let mut choice = first_choice;
    while let Some(keep) = choice.less().filter(|_| has_diagnostics(packet.kind())) {
        choice = keep;
        if let Some(remaining) = fitting(packet, peer, keep) {
            return Encoded::Trimmed { len: write(packet, remaining, peer, keep, out) };
        }
    }
    Encoded::TooLarge
}

/// Bytes of the body, if the peer accepts the packet in this form.
#[inline]
fn fitting(packet: &impl Body, peer: Peer, keep: KeptProperties) -> Option<usize> {
    if packet.kind() == PacketType::Auth && !peer.version.is_v5() {
        return None;
    }
    let mut counter = Counter::default();
    packet.write_body(peer.version, keep, &mut counter);
    let remaining = counter.total()?;
    let whole = 1 + varint::size(remaining) + remaining;
    if remaining > varint::MAX || whole > peer.packet_bytes_max as usize { None } else { Some(remaining) }
}

#[inline]
fn write(packet: &impl Body, remaining: usize, peer: Peer, keep: KeptProperties, out: &mut impl Sink) -> usize {
    let len = 1 + varint::size(remaining) + remaining;
    out.reserve(len);
    out.put_u8(packet.first_byte());
    varint::write(remaining, out);
    packet.write_body(peer.version, keep, out);
    len
}

#[inline]
fn first_choice(kind: PacketType, peer: Peer) -> KeptProperties {
    let exempt = matches!(kind, PacketType::Publish | PacketType::ConnAck | PacketType::Disconnect);
    if peer.diagnostics == Diagnostics::Omit && !exempt && has_diagnostics(kind) {
        KeptProperties::Essential
    } else {
        KeptProperties::Everything
    }
}

/// True for packets whose reason string and user properties only explain. In CONNECT, PUBLISH and the two requests user
/// properties belong to the application and are never dropped.
#[inline]
const fn has_diagnostics(kind: PacketType) -> bool {
    use PacketType as T;
    !matches!(kind, T::Connect | T::Publish | T::Subscribe | T::Unsubscribe | T::PingReq | T::PingResp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::{Ack, AckKind};
    use crate::auth::Auth;
    use crate::packet::Packet;
    use crate::property::{Properties, Property};
    use crate::publish::{Delivery, Publish};
    use crate::qos::PacketId;
    use crate::reason::ReasonCode;
    use alloc::vec::Vec;
    use std::vec;

    const EXPLAINED: &[Property<'_>] = &[Property::ReasonString("slow down"), Property::UserProperty("pace-ms", "20")];

    fn explained() -> Packet<'static> {
        let properties = Properties::new(EXPLAINED);
        let reason = ReasonCode::QuotaExceeded;
        Packet::Ack(Ack { kind: AckKind::PubAck, packet_id: PacketId::MIN, reason, properties })
    }

    #[test]
    fn the_reason_string_goes_first_and_the_user_property_next() {
        // [MQTT-3.4.2-2], [MQTT-3.4.2-3]
        let whole = explained().encoded_len(Version::V5).unwrap();
        let mut peer = Peer::new(Version::V5);
        for (max, expected) in [
            (whole, Encoded::Written { len: whole }),
            (whole - 1, Encoded::Trimmed { len: whole - 12 }),
            (whole - 13, Encoded::Trimmed { len: 5 }),
            (5, Encoded::Trimmed { len: 5 }),
            (4, Encoded::TooLarge),
        ] {
            peer.packet_bytes_max = max as u32;
            let mut out = Vec::new();
            assert_eq!(explained().encode(peer, &mut out), expected, "{max}");
            assert!(out.len() <= max);
        }
    }

    #[test]
    fn a_peer_without_interest_in_problems_gets_bare_acknowledgements() {
        // [MQTT-3.1.2-29]
        let peer = Peer { diagnostics: Diagnostics::Omit, ..Peer::new(Version::V5) };
        let mut out = Vec::new();
        assert_eq!(explained().encode(peer, &mut out), Encoded::Written { len: 5 });
        assert_eq!(out, b"\x40\x03\x00\x01\x97");
    }

    #[test]
    fn user_properties_of_a_message_are_never_dropped() {
        let properties = Properties::new(&[Property::UserProperty("a", "b")]);
        let message = Publish { delivery: Delivery::AtMostOnce, retain: false, topic: "t", properties, payload: b"" };
        let len = message.encoded_len(Version::V5).unwrap();
        let peer = Peer { packet_bytes_max: len as u32 - 1, ..Peer::new(Version::V5) };
        let mut out = Vec::new();
        assert_eq!(message.encode(peer, &mut out), Encoded::TooLarge);
        assert!(out.is_empty());
    }

    #[test]
    fn fields_beyond_a_two_byte_length_are_refused() {
        let long = "x".repeat(65_536);
        let message = Publish {
            delivery: Delivery::AtMostOnce,
            retain: false,
            topic: &long,
            properties: Properties::EMPTY,
            payload: b"",
        };
        assert_eq!(message.encoded_len(Version::V311), None);
        let mut out = vec![];
        assert_eq!(message.encode(Peer::new(Version::V311), &mut out), Encoded::TooLarge);
        let properties = [Property::ContentType(&long)];
        let message = Publish { topic: "t", properties: Properties::new(&properties), ..message };
        assert_eq!(message.encode(Peer::new(Version::V5), &mut out), Encoded::TooLarge);
        assert!(out.is_empty());
    }

    #[test]
    fn auth_exists_in_version_5_only() {
        let auth = Auth { reason: ReasonCode::Success, properties: Properties::EMPTY };
        assert_eq!(auth.encode(Peer::new(Version::V311), &mut Vec::new()), Encoded::NotInVersion);
    }
}
