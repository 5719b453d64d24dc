//! PUBACK, PUBREC, PUBREL and PUBCOMP (sections 3.4 to 3.7): one shape, four meanings.

use crate::encode::Body;
use crate::error::Parse;
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::qos::PacketId;
use crate::reader::PacketReader;
use crate::reason::ReasonCode;
use crate::sink::Sink;
use crate::version::Version;

/// The four packets that acknowledge a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckKind {
    /// Answer to QoS 1.
    PubAck,
    /// First answer to QoS 2.
    PubRec,
    /// Release of QoS 2.
    PubRel,
    /// Last answer to QoS 2.
    PubComp,
}

impl AckKind {
    const fn packet_type(self) -> PacketType {
        match self {
            Self::PubAck => PacketType::PubAck,
            Self::PubRec => PacketType::PubRec,
            Self::PubRel => PacketType::PubRel,
            Self::PubComp => PacketType::PubComp,
        }
    }

    const fn site(self) -> PropertySite {
        match self {
            Self::PubAck => PropertySite::PubAck,
            Self::PubRec => PropertySite::PubRec,
            Self::PubRel => PropertySite::PubRel,
            Self::PubComp => PropertySite::PubComp,
        }
    }
}

/// A step of the handshake of a message at QoS 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    pub kind: AckKind,
    /// The message it is about.
    pub packet_id: PacketId,
    /// How it went; always success before MQTT 5.
    pub reason: ReasonCode,
    /// The properties.
    pub properties: Properties<'a>,
}

impl Ack<'_> {
    /// A step that went well, with nothing to add.
    pub const fn success(kind: AckKind, packet_id: PacketId) -> Self {
        Self { kind, packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY }
    }
}

pub(crate) fn read<'a>(kind: AckKind, mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Ack<'a>> {
    let mut ack = Ack::success(kind, body.packet_id()?);
    // Short forms: without properties, and without a reason too when it is success (section 3.4.2.1).
    if version.is_v5() && !body.is_empty() {
        ack.reason = ReasonCode::read(body.u8()?, kind.packet_type(), limits.sender)?;
        if !body.is_empty() {
            ack.properties = Properties::read(&mut body, kind.site(), limits)?;
        }
    }
    body.finish()?;
    Ok(ack)
}

impl Body for Ack<'_> {
    fn kind(&self) -> PacketType {
        self.kind.packet_type()
    }

    #[inline]
    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        out.put_u16(self.packet_id.get());
        self.properties.write_after(self.reason, version, keep, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Encoded, Peer};
    use crate::packet::Packet;
    use crate::property::Property;
    use alloc::vec::Vec;

    fn round_trip(ack: Ack<'_>, version: Version, bytes: &[u8]) {
        let mut out = Vec::new();
        assert_eq!(ack.encode(Peer::new(version), &mut out), Encoded::Written { len: bytes.len() });
        assert_eq!(out, bytes);
        let expected = Decoded::Packet { packet: Packet::Ack(ack), consumed: bytes.len() };
        assert_eq!(decode(bytes, version, &Limits::default()), Ok(expected));
    }

    #[test]
    fn success_is_two_bytes_in_every_version() {
        for version in [Version::V31, Version::V311, Version::V5] {
            round_trip(Ack::success(AckKind::PubAck, PacketId::MIN), version, b"\x40\x02\x00\x01");
            round_trip(Ack::success(AckKind::PubRec, PacketId::MIN), version, b"\x50\x02\x00\x01");
            round_trip(Ack::success(AckKind::PubRel, PacketId::MIN), version, b"\x62\x02\x00\x01");
            round_trip(Ack::success(AckKind::PubComp, PacketId::MAX), version, b"\x70\x02\xff\xff");
        }
    }

    #[test]
    fn a_reason_alone_takes_three_bytes() {
        let ack = Ack { reason: ReasonCode::QuotaExceeded, ..Ack::success(AckKind::PubAck, PacketId::MIN) };
        round_trip(ack, Version::V5, b"\x40\x03\x00\x01\x97");
    }

    #[test]
    fn properties_bring_the_reason_with_them() {
        let properties = [Property::ReasonString("ok")];
        let ack = Ack { properties: Properties::new(&properties), ..Ack::success(AckKind::PubRel, PacketId::MIN) };
        round_trip(ack, Version::V5, b"\x62\x09\x00\x01\x00\x05\x1f\x00\x02ok");
    }

    #[test]
    fn long_forms_of_success_are_read_too() {
        let plain = Packet::Ack(Ack::success(AckKind::PubAck, PacketId::MIN));
        for bytes in [&b"\x40\x03\x00\x01\x00"[..], b"\x40\x04\x00\x01\x00\x00"] {
            let expected = Decoded::Packet { packet: plain, consumed: bytes.len() };
            assert_eq!(decode(bytes, Version::V5, &Limits::default()), Ok(expected));
        }
    }
}
