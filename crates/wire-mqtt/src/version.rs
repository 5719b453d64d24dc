//! The protocol versions, and how a connection tells which one it speaks.
//!
//! The version is said once, in CONNECT, and then shapes every packet of the connection. [`version_of_connect`] reads
//! it from a CONNECT that was refused, so that the refusal can be written in the sender's own language.

use crate::reader::PacketReader;

/// Set in the protocol level by a broker that connects as a bridge (mosquitto's `try_private`, its default): it wants none of
/// its own messages back, and retained ones marked as such.
pub(crate) const BRIDGE_BIT: u8 = 0x80;

/// A version of MQTT. Ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1, protocol name `MQIsdp`, level 3. Read tolerantly, as its specification asks.
    V31,
    /// MQTT 3.1.1, protocol name `MQTT`, level 4.
    V311,
    /// MQTT 5, protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// The protocol level that CONNECT carries.
    pub const fn level(self) -> u8 {
        match self {
            Self::V31 => 3,
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }

    /// The protocol name that CONNECT carries.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V31 => "MQIsdp",
            Self::V311 | Self::V5 => "MQTT",
        }
    }

    /// The number that people know it by.
    pub const fn number(self) -> &'static str {
        match self {
            Self::V31 => "3.1",
            Self::V311 => "3.1.1",
            Self::V5 => "5",
        }
    }

    /// The version of a protocol name and level, and whether a bridge speaks; the name must fit the level. MQTT 5 has options
    /// of a subscription for what the bit of bridges is for.
    pub(crate) fn of(name: &[u8], level: u8) -> Option<(Self, bool)> {
        let is_bridge = level & BRIDGE_BIT != 0;
        let version = Self::of_level(name, level & !BRIDGE_BIT)?;
        (!is_bridge || !version.is_v5()).then_some((version, is_bridge))
    }

    fn of_level(name: &[u8], level: u8) -> Option<Self> {
        match (name, level) {
            (b"MQIsdp", 3) => Some(Self::V31),
            (b"MQTT", 4) => Some(Self::V311),
            (b"MQTT", 5) => Some(Self::V5),
            _ => None,
        }
    }

    /// True for the version that has properties and reason codes.
    #[inline]
    pub const fn is_v5(self) -> bool {
        matches!(self, Self::V5)
    }
}

/// The version that a CONNECT at the start of `input` asks for, whatever else may be wrong with it.
///
/// A refused CONNECT is answered in the sender's language where it can be known: reason codes for MQTT 5, return codes
/// for the older ones. `None` when this is no CONNECT, or its name or level is unknown.
pub fn version_of_connect(input: &[u8]) -> Option<Version> {
    let mut reader = PacketReader::new(input);
    if reader.u8().ok()? >> 4 != 1 {
        return None;
    }
    reader.varint().ok()?;
    let name = reader.field().ok()?;
    Version::of(name, reader.u8().ok()?).map(|(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_a_connect_that_is_otherwise_wrong() {
        // Reserved connect flag set, body cut: still MQTT 5.
        assert_eq!(version_of_connect(b"\x10\x0d\x00\x04MQTT\x05\x01"), Some(Version::V5));
        assert_eq!(version_of_connect(b"\x10\x0d\x00\x04MQTT\x04"), Some(Version::V311));
        assert_eq!(version_of_connect(b"\x10\x0e\x00\x06MQIsdp\x03"), Some(Version::V31));
    }

    #[test]
    fn unknown_names_and_levels_have_no_version() {
        assert_eq!(version_of_connect(b"\x10\x0d\x00\x04MQTT\x06"), None);
        assert_eq!(version_of_connect(b"\x10\x0d\x00\x04MQTT\x03"), None);
        assert_eq!(version_of_connect(b"\x30\x0d\x00\x04MQTT\x05"), None);
        assert_eq!(version_of_connect(b"GET / HTTP/1.1"), None);
        assert_eq!(version_of_connect(b""), None);
    }
}
