//! CONNACK (section 3.2): the server's answer to CONNECT.

use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::reader::PacketReader;
use crate::reason::ReasonCode;
use crate::sink::Sink;
use crate::version::Version;

/// The server's answer to CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// True if the server goes on with a session that it has. 3.1 cannot say it.
    pub session_present: bool,
    /// Success or why not. Written as the nearest return code before MQTT 5.
    pub reason: ReasonCode,
    /// The properties.
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    pub(crate) fn read(mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        let flags = body.u8()?;
        if flags > 1 {
            return Err(violation!(MalformedPacket, "reserved bits in the acknowledge flags", "MQTT-3.2.2-1"));
        }
        let session_present = flags == 1;
        let reason = read_reason(body.u8()?, version, limits)?;
        if session_present && reason != ReasonCode::Success {
            return Err(violation!(ProtocolError, "session present in a refusal", "MQTT-3.2.2-6"));
        }
        let properties = Properties::read_in(version, &mut body, PropertySite::ConnAck, limits)?;
        body.finish()?;
        Ok(Self { session_present, reason, properties })
    }
}

fn read_reason(code: u8, version: Version, limits: &Limits) -> Parse<ReasonCode> {
    if version.is_v5() {
        return ReasonCode::read(code, PacketType::ConnAck, limits.sender);
    }
    ReasonCode::from_connack_return_code(code).ok_or(violation!(ProtocolError, "reserved return code", "3.2.2.3"))
}

impl Body for ConnAck<'_> {
    fn kind(&self) -> PacketType {
        PacketType::ConnAck
    }

    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        let says_present = version > Version::V31 && self.session_present && self.reason == ReasonCode::Success;
        out.put_u8(u8::from(says_present));
        if version.is_v5() {
            out.put_u8(self.reason.code());
            self.properties.write(keep, out);
        } else {
            out.put_u8(self.reason.connack_return_code());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Peer};
    use crate::packet::Packet;
    use crate::property::Property;
    use alloc::vec::Vec;
    use core::num::NonZeroU16;

    fn encoded(packet: &ConnAck<'_>, version: Version) -> Vec<u8> {
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(version), &mut out);
        out
    }

    fn accepted() -> ConnAck<'static> {
        ConnAck { session_present: true, reason: ReasonCode::Success, properties: Properties::EMPTY }
    }

    #[test]
    fn acceptance_of_each_version() {
        assert_eq!(encoded(&accepted(), Version::V31), b"\x20\x02\x00\x00");
        assert_eq!(encoded(&accepted(), Version::V311), b"\x20\x02\x01\x00");
        assert_eq!(encoded(&accepted(), Version::V5), b"\x20\x03\x01\x00\x00");
    }

    #[test]
    fn refusals_use_the_words_of_the_version() {
        // [MQTT-3.2.2-4 (3.1.1)] A refusal never says that a session is present.
        let refused = ConnAck { reason: ReasonCode::NotAuthorized, ..accepted() };
        assert_eq!(encoded(&refused, Version::V311), b"\x20\x02\x00\x05");
        assert_eq!(encoded(&refused, Version::V5), b"\x20\x03\x00\x87\x00");
    }

    #[test]
    fn properties_read_back() {
        let list = [Property::ReceiveMaximum(NonZeroU16::MIN), Property::AssignedClientId("x")];
        let packet = ConnAck { properties: Properties::new(&list), ..accepted() };
        let bytes = encoded(&packet, Version::V5);
        assert_eq!(bytes, b"\x20\x0a\x01\x00\x07\x21\x00\x01\x12\x00\x01x");
        let expected = Decoded::Packet { packet: Packet::ConnAck(packet), consumed: bytes.len() };
        assert_eq!(decode(&bytes, Version::V5, &Limits::default()), Ok(expected));
    }
}
