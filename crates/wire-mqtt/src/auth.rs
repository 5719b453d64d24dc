//! AUTH (section 3.15): a step of an enhanced authentication. MQTT 5 only.

use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertyId, PropertySite};
use crate::reader::PacketReader;
use crate::reason::ReasonCode;
use crate::sink::Sink;
use crate::version::Version;

/// A step of an enhanced authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Success, continue, or once more.
    pub reason: ReasonCode,
    /// The properties: method and data.
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    pub(crate) fn read(mut body: PacketReader<'a>, limits: &Limits) -> Parse<Self> {
        let code = if body.is_empty() { ReasonCode::Success.code() } else { body.u8()? };
        let reason = ReasonCode::read(code, PacketType::Auth, limits.sender)?;
        let properties = if body.is_empty() && reason == ReasonCode::Success {
            Properties::EMPTY
        } else {
            Properties::read(&mut body, PropertySite::Auth, limits)?
        };
        body.finish()?;
        // The short form has no room for the method that section 3.15.2.2.2 demands; it is allowed all the same.
        let bare_success = reason == ReasonCode::Success && properties.is_empty();
        if !bare_success && !properties.has(PropertyId::AuthenticationMethod) {
            return Err(violation!(ProtocolError, "AUTH without an authentication method", "3.15.2.2.2"));
        }
        Ok(Self { reason, properties })
    }
}

impl Body for Auth<'_> {
    fn kind(&self) -> PacketType {
        PacketType::Auth
    }

    fn write_body(&self, _version: Version, keep: KeptProperties, out: &mut impl Sink) {
        if self.reason == ReasonCode::Success && self.properties.is_empty_under(keep) {
            return;
        }
        out.put_u8(self.reason.code());
        self.properties.write(keep, out);
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

    #[test]
    fn a_step_reads_and_writes() {
        let list = [Property::AuthenticationMethod("m"), Property::AuthenticationData(b"\x00")];
        let step = Auth { reason: ReasonCode::ContinueAuthentication, properties: Properties::new(&list) };
        let bytes = b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01\x00";
        let mut out = Vec::new();
        let _ = step.encode(Peer::new(Version::V5), &mut out);
        assert_eq!(out, bytes);
        let expected = Decoded::Packet { packet: Packet::Auth(step), consumed: bytes.len() };
        assert_eq!(decode(bytes, Version::V5, &Limits::default()), Ok(expected));
    }

    #[test]
    fn success_is_for_servers_and_a_new_start_for_clients() {
        let clients = Limits::default().with_sender(Sender::Client);
        let servers = Limits::default().with_sender(Sender::Server);
        assert!(decode(b"\xf0\x00", Version::V5, &clients).is_err());
        assert!(decode(b"\xf0\x00", Version::V5, &servers).is_ok());
        let again = b"\xf0\x06\x19\x04\x15\x00\x01m";
        assert!(decode(again, Version::V5, &clients).is_ok());
        assert!(decode(again, Version::V5, &servers).is_err());
    }
}
