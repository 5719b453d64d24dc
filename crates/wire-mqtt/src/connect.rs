//! CONNECT (section 3.1): who speaks, in which version, and what is to be said when the connection dies.

use crate::connect_flags::ConnectFlags;
use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::header::check_connect_flags;
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::publish;
use crate::qos::QoS;
use crate::reader::PacketReader;
use crate::sink::Sink;
use crate::topic;
use crate::version::{BRIDGE_BIT, Version};

/// A client asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version of this packet and of all that follow.
    pub version: Version,
    /// True if a broker connects as a bridge, which it says by a bit of the protocol level before MQTT 5. Not in the standard.
    pub is_bridge: bool,
    /// True if a session from before is to be forgotten; "clean session" before MQTT 5.
    pub clean_start: bool,
    /// Seconds after which a silent client counts as dead; 0 is never.
    pub keep_alive: u16,
    /// The properties.
    pub properties: Properties<'a>,
    /// The client identifier. Empty if the server is to choose one.
    pub client_id: &'a str,
    /// What to publish when the connection ends without a DISCONNECT.
    pub will: Option<Will<'a>>,
    /// User name.
    pub user_name: Option<&'a str>,
    /// Password; before MQTT 5 only together with a user name, and not written without one.
    pub password: Option<&'a [u8]>,
}

/// A message for the case of death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    /// Quality of service to publish it with.
    pub qos: QoS,
    /// True if it is to be retained.
    pub retain: bool,
    /// The properties of the will.
    pub properties: Properties<'a>,
    /// The topic name.
    pub topic: &'a str,
    /// The message.
    pub payload: &'a [u8],
}

impl<'a> Connect<'a> {
    pub(crate) fn read(header_flags: u8, mut body: PacketReader<'a>, limits: &Limits) -> Parse<Self> {
        let name = body.field()?;
        let (version, is_bridge) = Version::of(name, body.u8()?).ok_or(violation!(
            UnsupportedProtocolVersion,
            "unknown protocol name or level",
            "MQTT-3.1.2-2"
        ))?;
        check_connect_flags(header_flags, version)?;
        let flags = ConnectFlags::read(body.u8()?, version)?;
        let keep_alive = body.u16()?;
        let properties = Properties::read_in(version, &mut body, PropertySite::Connect, limits)?;
        let client_id = body.text()?;
        check_client_id(client_id, flags.clean_start, version)?;
        let will = match flags.will {
            Some((qos, retain)) => Some(Will::read(&mut body, qos, retain, version, limits)?),
            None => None,
        };
        let user_name = if flags.user_name && !missing_in_v31(&body, version) { Some(body.text()?) } else { None };
        let password = if flags.password && !missing_in_v31(&body, version) { Some(body.field()?) } else { None };
        body.finish()?;
        let clean_start = flags.clean_start;
        Ok(Self { version, is_bridge, clean_start, keep_alive, properties, client_id, will, user_name, password })
    }

    fn flags(&self) -> ConnectFlags {
        ConnectFlags {
            clean_start: self.clean_start,
            will: self.will.map(|will| (will.qos, will.retain)),
            password: self.writable_password().is_some(),
            user_name: self.user_name.is_some(),
        }
    }

    fn writable_password(&self) -> Option<&'a [u8]> {
        self.password.filter(|_| self.version.is_v5() || self.user_name.is_some())
    }
}

/// 3.1 asks servers to bear a user name or password that was announced and is missing: there the length wins.
fn missing_in_v31(body: &PacketReader<'_>, version: Version) -> bool {
    version == Version::V31 && body.is_empty()
}

fn check_client_id(client_id: &str, clean_start: bool, version: Version) -> Parse<()> {
    let may_be_empty = match version {
        Version::V31 => false,
        Version::V311 => clean_start,
        Version::V5 => true,
    };
    if client_id.is_empty() && !may_be_empty {
        return Err(violation!(
            ClientIdentifierNotValid,
            "no client identifier for a session that is to last",
            "MQTT-3.1.3-8 (3.1.1)"
        ));
    }
    Ok(())
}

impl<'a> Will<'a> {
    fn read(body: &mut PacketReader<'a>, qos: QoS, retain: bool, version: Version, limits: &Limits) -> Parse<Self> {
        publish::check_announced(qos, retain, limits)?;
        let properties = Properties::read_in(version, body, PropertySite::Will, limits)?;
        let topic = body.text()?;
        topic::check_name(topic, limits)?;
        let payload = body.field()?;
        Ok(Self { qos, retain, properties, topic, payload })
    }
}

impl Body for Connect<'_> {
    fn kind(&self) -> PacketType {
        PacketType::Connect
    }

    /// CONNECT is written in its own version; the one of the connection is only decided by it.
    fn write_body(&self, _: Version, keep: KeptProperties, out: &mut impl Sink) {
        let version = self.version;
        out.put_field(version.protocol_name().as_bytes());
        let bridge = if self.is_bridge && !version.is_v5() { BRIDGE_BIT } else { 0 };
        out.put_u8(version.level() | bridge);
        out.put_u8(self.flags().byte());
        out.put_u16(self.keep_alive);
        if version.is_v5() {
            self.properties.write(keep, out);
        }
        out.put_field(self.client_id.as_bytes());
        if let Some(will) = self.will {
            if version.is_v5() {
                will.properties.write(keep, out);
            }
            out.put_field(will.topic.as_bytes());
            out.put_field(will.payload);
        }
        if let Some(user_name) = self.user_name {
            out.put_field(user_name.as_bytes());
        }
        if let Some(password) = self.writable_password() {
            out.put_field(password);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode_connect};
    use crate::encode::{Encode, Peer};
    use crate::packet::Packet;
    use crate::reason::ReasonCode;
    use alloc::vec::Vec;

    fn read(bytes: &[u8]) -> Result<Connect<'_>, ReasonCode> {
        match decode_connect(bytes, &Limits::before_connect()) {
            Ok(Decoded::Packet { packet: Packet::Connect(packet), consumed }) if consumed == bytes.len() => Ok(packet),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.reason),
        }
    }

    fn reads_and_writes(bytes: &[u8]) -> Connect<'_> {
        let packet = read(bytes).unwrap();
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(packet.version), &mut out);
        assert_eq!(out, bytes);
        packet
    }

    #[test]
    fn a_full_connect_of_3_1_1() {
        let packet =
            reads_and_writes(b"\x10\x1a\x00\x04MQTT\x04\xee\x00\x0a\x00\x02id\x00\x01t\x00\x01m\x00\x01u\x00\x01p");
        assert_eq!((packet.version, packet.keep_alive, packet.client_id), (Version::V311, 10, "id"));
        let will = packet.will.unwrap();
        assert_eq!((will.qos, will.retain, will.topic, will.payload), (QoS::AtLeastOnce, true, "t", &b"m"[..]));
        assert_eq!((packet.user_name, packet.password), (Some("u"), Some(&b"p"[..])));
    }

    #[test]
    fn a_connect_of_5_with_properties_and_will_properties() {
        let packet = reads_and_writes(
            b"\x10\x23\x00\x04MQTT\x05\x46\x00\x3c\x05\x11\x00\x00\x00\x0a\
              \x00\x02id\x05\x18\x00\x00\x00\x05\x00\x01t\x00\x00\x00\x02pw",
        );
        assert_eq!(packet.properties.session_expiry(), Some(10));
        assert_eq!(packet.will.unwrap().properties.will_delay(), Some(5));
        assert_eq!((packet.user_name, packet.password), (None, Some(&b"pw"[..])));
    }

    #[test]
    fn a_connect_of_3_1_is_borne_with() {
        let packet = reads_and_writes(b"\x10\x10\x00\x06MQIsdp\x03\x02\x00\x0a\x00\x02id");
        assert_eq!(packet.version, Version::V31);
        // Bits that its specification calls unused, in the first byte and among the connect flags; and will flags without
        // a will, which mean nothing.
        for flags in [0x03, 0x1b, 0x23, 0x3b] {
            for first in 0x10..=0x1f {
                let bytes = [&[first, 0x10], &b"\x00\x06MQIsdp\x03"[..], &[flags], b"\x00\x0a\x00\x02id"].concat();
                let packet = read(&bytes).unwrap();
                assert!(packet.clean_start && packet.will.is_none(), "{bytes:x?}");
            }
        }
        assert!(read(b"\x10\x16\x00\x06MQIsdp\x03\x1e\x00\x0a\x00\x02id\x00\x01t\x00\x01m").is_err(), "QoS 3");
        // User name and password announced, neither there.
        let packet = read(b"\x10\x10\x00\x06MQIsdp\x03\xc2\x00\x0a\x00\x02id").unwrap();
        assert_eq!((packet.user_name, packet.password), (None, None));
    }

    #[test]
    fn f011_an_empty_client_id_needs_a_clean_session_before_5() {
        assert!(read(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00").is_ok());
        let refused = read(b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00");
        assert_eq!(refused, Err(ReasonCode::ClientIdentifierNotValid));
        assert!(read(b"\x10\x0d\x00\x04MQTT\x05\x00\x00\x00\x00\x00\x00").is_ok());
    }

    #[test]
    fn a_bridge_says_so_by_a_bit_of_the_level() {
        for bytes in
            [&b"\x10\x0d\x00\x04MQTT\x84\x02\x00\x0a\x00\x01b"[..], b"\x10\x0f\x00\x06MQIsdp\x83\x02\x00\x0a\x00\x01b"]
        {
            assert!(reads_and_writes(bytes).is_bridge);
        }
        assert!(!read(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x0a\x00\x01b").unwrap().is_bridge);
    }

    #[test]
    fn f008_unknown_names_and_levels_are_unsupported_versions() {
        for bytes in [
            &b"\x10\x0c\x00\x04MQTT\x06\x02\x00\x00\x00\x00"[..],
            b"\x10\x0c\x00\x04MQTT\x00\x02\x00\x00\x00\x00",
            b"\x10\x0c\x00\x04MQTT\x85\x02\x00\x00\x00\x00",
            b"\x10\x0c\x00\x04MQTT\x86\x02\x00\x00\x00\x00",
            b"\x10\x0c\x00\x04mqtt\x04\x02\x00\x00\x00\x00",
            b"\x10\x0e\x00\x06MQIsdp\x04\x02\x00\x00\x00\x00",
            b"\x10\x0c\x00\x00MQTT\x04\x02\x00\x00\x00\x00",
        ] {
            assert_eq!(read(bytes), Err(ReasonCode::UnsupportedProtocolVersion), "{bytes:x?}");
        }
    }
}
