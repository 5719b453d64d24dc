//! DISCONNECT (section 3.14): the last packet of a connection.

use crate::encode::Body;
use crate::error::Parse;
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::reader::PacketReader;
use crate::reason::ReasonCode;
use crate::sink::Sink;
use crate::version::Version;

/// The last packet of a connection. Before MQTT 5 only clients send it, and it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// The reason code.
    pub reason: ReasonCode,
    /// The properties.
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    /// A reason without further words.
    pub const fn because(reason: ReasonCode) -> Self {
        Self { reason, properties: Properties::EMPTY }
    }

    pub(crate) fn read(mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        let mut packet = Self::because(ReasonCode::Success);
        if version.is_v5() && !body.is_empty() {
            packet.reason = ReasonCode::read(body.u8()?, PacketType::Disconnect, limits.sender)?;
            if !body.is_empty() {
                packet.properties = Properties::read(&mut body, PropertySite::Disconnect, limits)?;
            }
        }
        body.finish()?;
        Ok(packet)
    }
}

impl Body for Disconnect<'_> {
    fn kind(&self) -> PacketType {
        PacketType::Disconnect
    }

    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        self.properties.write_after(self.reason, version, keep, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Peer};
    use crate::kind::Sender;
    use crate::packet::Packet;
    use crate::property::Property;
    use alloc::vec::Vec;

    fn round_trip(packet: Disconnect<'_>, version: Version, bytes: &[u8]) {
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(version), &mut out);
        assert_eq!(out, bytes);
        let expected = Decoded::Packet { packet: Packet::Disconnect(packet), consumed: bytes.len() };
        assert_eq!(decode(bytes, version, &Limits::default()), Ok(expected));
    }

    #[test]
    fn forms_of_section_3_14_2() {
        round_trip(Disconnect::because(ReasonCode::Success), Version::V311, b"\xe0\x00");
        round_trip(Disconnect::because(ReasonCode::Success), Version::V5, b"\xe0\x00");
        round_trip(Disconnect::because(ReasonCode::ServerShuttingDown), Version::V5, b"\xe0\x01\x8b");
        let list = [Property::SessionExpiry(0)];
        let packet = Disconnect { properties: Properties::new(&list), ..Disconnect::because(ReasonCode::Success) };
        round_trip(packet, Version::V5, b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00");
    }

    #[test]
    fn some_reasons_belong_to_one_side() {
        let clients = Limits::default().with_sender(Sender::Client);
        let servers = Limits::default().with_sender(Sender::Server);
        assert!(decode(b"\xe0\x01\x04", Version::V5, &clients).is_ok());
        assert!(decode(b"\xe0\x01\x04", Version::V5, &servers).is_err());
        assert!(decode(b"\xe0\x01\x8e", Version::V5, &clients).is_err());
        // [MQTT-3.14.2-2]
        assert!(decode(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00", Version::V5, &servers).is_err());
    }
}
