//! SUBACK and UNSUBACK (sections 3.9 and 3.11): one reason code for each filter that was asked for.

use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::qos::PacketId;
use crate::reader::PacketReader;
use crate::reason::ReasonCode;
use crate::sink::Sink;
use crate::version::Version;
use crate::wire_list::{ListSource, wire_list};

/// Answer to SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// The SUBSCRIBE that is answered.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: Properties<'a>,
    /// One for each filter, in order. Before MQTT 5 every failure is 0x80.
    pub reasons: ReasonCodes<'a>,
}

/// Answer to UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    /// The UNSUBSCRIBE that is answered.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: Properties<'a>,
    /// One for each filter, in order. None before MQTT 5.
    pub reasons: ReasonCodes<'a>,
}

impl<'a> SubAck<'a> {
    pub(crate) fn read(mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        let packet_id = body.packet_id()?;
        let properties = Properties::read_in(version, &mut body, PropertySite::SubAck, limits)?;
        let reasons = if version.is_v5() {
            ReasonCodes::read(body, PacketType::SubAck, limits)?
        } else {
            ReasonCodes::read_return_codes(body)?
        };
        Ok(Self { packet_id, properties, reasons })
    }
}

impl<'a> UnsubAck<'a> {
    pub(crate) fn read(mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        let packet_id = body.packet_id()?;
        if !version.is_v5() {
            body.finish()?;
            return Ok(Self { packet_id, properties: Properties::EMPTY, reasons: ReasonCodes::new(&[]) });
        }
        let properties = Properties::read(&mut body, PropertySite::UnsubAck, limits)?;
        let reasons = ReasonCodes::read(body, PacketType::UnsubAck, limits)?;
        Ok(Self { packet_id, properties, reasons })
    }
}

impl Body for SubAck<'_> {
    fn kind(&self) -> PacketType {
        PacketType::SubAck
    }

    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        out.put_u16(self.packet_id.get());
        if version.is_v5() {
            self.properties.write(keep, out);
        }
        for reason in self.reasons.iter() {
            let failed_before_v5 = !version.is_v5() && reason.is_failure();
            out.put_u8(if failed_before_v5 { ReasonCode::UnspecifiedError.code() } else { reason.code() });
        }
    }
}

impl Body for UnsubAck<'_> {
    fn kind(&self) -> PacketType {
        PacketType::UnsubAck
    }

    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        out.put_u16(self.packet_id.get());
        if version.is_v5() {
            self.properties.write(keep, out);
            self.reasons.iter().for_each(|reason| out.put_u8(reason.code()));
        }
    }
}

wire_list! {
    /// A list of reason codes.
    ReasonCodes<'a>, ReasonCode, next_on_wire
}

fn next_on_wire(reader: &mut PacketReader<'_>) -> Parse<ReasonCode> {
    let code = ReasonCode::from_code(reader.u8()?);
    code.ok_or(violation!(MalformedPacket, "unknown reason code", "4.13.1"))
}

impl<'a> ReasonCodes<'a> {
    fn read(body: PacketReader<'a>, packet: PacketType, limits: &Limits) -> Parse<Self> {
        let codes = body.remainder();
        if codes.is_empty() {
            return Err(match packet {
                PacketType::SubAck => violation!(ProtocolError, "SUBACK without reason codes", "MQTT-3.8.4-6"),
                _ => violation!(ProtocolError, "UNSUBACK without reason codes", "MQTT-3.11.3-1"),
            });
        }
        for &code in codes {
            ReasonCode::read(code, packet, limits.sender)?;
        }
        Ok(Self(ListSource::Wire(codes)))
    }

    /// The return codes of 3.1.1 have the numbers of reason codes; there are four.
    fn read_return_codes(body: PacketReader<'a>) -> Parse<Self> {
        let codes = body.remainder();
        if codes.is_empty() {
            return Err(violation!(ProtocolError, "SUBACK without return codes", "MQTT-3.8.4-5 (3.1.1)"));
        }
        if codes.iter().any(|code| !matches!(code, 0 | 1 | 2 | 0x80)) {
            return Err(violation!(ProtocolError, "reserved return code", "MQTT-3.9.3-2 (3.1.1)"));
        }
        Ok(Self(ListSource::Wire(codes)))
    }

    /// The number of reason codes.
    pub const fn len(&self) -> usize {
        match self.0 {
            ListSource::Wire(codes) => codes.len(),
            ListSource::Typed(codes) => codes.len(),
        }
    }

    /// True if there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Peer};
    use crate::packet::Packet;
    use alloc::vec::Vec;

    const GRANTED: &[ReasonCode] = &[ReasonCode::GrantedQos1, ReasonCode::NotAuthorized];

    fn encoded(packet: &impl Encode, version: Version) -> Vec<u8> {
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(version), &mut out);
        out
    }

    #[test]
    fn suback_of_each_version() {
        let reasons = ReasonCodes::new(GRANTED);
        let packet = SubAck { packet_id: PacketId::MIN, properties: Properties::EMPTY, reasons };
        assert_eq!(encoded(&packet, Version::V311), b"\x90\x04\x00\x01\x01\x80");
        let bytes = encoded(&packet, Version::V5);
        assert_eq!(bytes, b"\x90\x05\x00\x01\x00\x01\x87");
        let expected = Decoded::Packet { packet: Packet::SubAck(packet), consumed: 7 };
        assert_eq!(decode(&bytes, Version::V5, &Limits::default()), Ok(expected));
    }

    #[test]
    fn unsuback_says_nothing_before_version_5() {
        let reasons = ReasonCodes::new(&[ReasonCode::NoSubscriptionExisted]);
        let packet = UnsubAck { packet_id: PacketId::MIN, properties: Properties::EMPTY, reasons };
        assert_eq!(encoded(&packet, Version::V311), b"\xb0\x02\x00\x01");
        assert_eq!(encoded(&packet, Version::V5), b"\xb0\x04\x00\x01\x00\x11");
    }
}
