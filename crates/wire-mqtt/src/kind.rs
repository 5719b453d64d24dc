//! The fifteen packet types, and who may send which.

use crate::version::Version;

/// Type of a control packet: the upper four bits of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// A client asks for a connection.
    Connect = 1,
    /// The server's answer to CONNECT.
    ConnAck = 2,
    /// A message.
    Publish = 3,
    /// Answer to a message at QoS 1.
    PubAck = 4,
    /// First answer to a message at QoS 2.
    PubRec = 5,
    /// Release of a message at QoS 2.
    PubRel = 6,
    /// Last answer to a message at QoS 2.
    PubComp = 7,
    /// A client subscribes.
    Subscribe = 8,
    /// The server's answer to SUBSCRIBE.
    SubAck = 9,
    /// A client unsubscribes.
    Unsubscribe = 10,
    /// The server's answer to UNSUBSCRIBE.
    UnsubAck = 11,
    /// A client shows that it lives.
    PingReq = 12,
    /// The server's answer to PINGREQ.
    PingResp = 13,
    /// The last packet of a connection.
    Disconnect = 14,
    /// A step of an enhanced authentication (MQTT 5).
    Auth = 15,
}

impl PacketType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Connect,
        Self::ConnAck,
        Self::Publish,
        Self::PubAck,
        Self::PubRec,
        Self::PubRel,
        Self::PubComp,
        Self::Subscribe,
        Self::SubAck,
        Self::Unsubscribe,
        Self::UnsubAck,
        Self::PingReq,
        Self::PingResp,
        Self::Disconnect,
        Self::Auth,
    ];

    /// From the upper four bits of the first byte; `None` for the reserved type 0, and for AUTH before MQTT 5.
    #[inline]
    pub(crate) fn from_bits(bits: u8, version: Version) -> Option<Self> {
        let kind = *Self::ALL.get(usize::from(bits).wrapping_sub(1))?;
        if kind == Self::Auth && !version.is_v5() { None } else { Some(kind) }
    }

    /// The first byte of such a packet with the flags that it must have; PUBLISH adds its own.
    pub(crate) const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.fixed_flags()
    }

    /// The lower four bits that all types but PUBLISH must have. [MQTT-2.1.3-1]
    pub(crate) const fn fixed_flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    /// Name as the specifications write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::ConnAck => "CONNACK",
            Self::Publish => "PUBLISH",
            Self::PubAck => "PUBACK",
            Self::PubRec => "PUBREC",
            Self::PubRel => "PUBREL",
            Self::PubComp => "PUBCOMP",
            Self::Subscribe => "SUBSCRIBE",
            Self::SubAck => "SUBACK",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::UnsubAck => "UNSUBACK",
            Self::PingReq => "PINGREQ",
            Self::PingResp => "PINGRESP",
            Self::Disconnect => "DISCONNECT",
            Self::Auth => "AUTH",
        }
    }
}

/// Whose packets are read. Some packets, reason codes and properties are legal in one direction only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A client: what a broker reads.
    Client,
    /// A server: what a client reads.
    Server,
    /// Unknown: what a sniffer or a test reads. Only what is illegal in both directions is refused.
    #[default]
    Either,
}

impl Sender {
    /// True if this sender may send such a packet in this version.
    #[inline]
    pub(crate) fn may_send(self, kind: PacketType, version: Version) -> bool {
        use PacketType::{ConnAck, Connect, Disconnect, PingReq, PingResp, SubAck, Subscribe, UnsubAck, Unsubscribe};
        match self {
            Self::Either => true,
            Self::Client => !matches!(kind, ConnAck | SubAck | UnsubAck | PingResp),
            // Before MQTT 5 a server closes without a word: DISCONNECT came from clients only.
            Self::Server if kind == Disconnect => version.is_v5(),
            Self::Server => !matches!(kind, Connect | Subscribe | Unsubscribe | PingReq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_specification() {
        for (at, kind) in PacketType::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at + 1);
            assert_eq!(PacketType::from_bits(kind as u8, Version::V5), Some(kind));
        }
        assert_eq!(PacketType::from_bits(0, Version::V5), None);
        assert_eq!(PacketType::from_bits(15, Version::V311), None);
    }

    #[test]
    fn directions_follow_table_2_1() {
        for kind in PacketType::ALL {
            let either_way = Sender::Client.may_send(kind, Version::V5) || Sender::Server.may_send(kind, Version::V5);
            assert!(either_way, "{}", kind.name());
        }
        assert!(!Sender::Client.may_send(PacketType::ConnAck, Version::V5));
        assert!(!Sender::Server.may_send(PacketType::PingReq, Version::V311));
        assert!(!Sender::Server.may_send(PacketType::Disconnect, Version::V311));
        assert!(Sender::Server.may_send(PacketType::Disconnect, Version::V5));
    }
}
