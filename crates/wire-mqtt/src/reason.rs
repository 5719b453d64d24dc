//! Reason codes (section 2.4): every one, its name, and the packets that may carry it.
//!
//! The older versions have a few return codes instead. They appear here as the reason code of the same meaning, so that
//! nobody behind the codec needs two vocabularies; [`ReasonCode::connack_return_code`] and its inverse translate.

use crate::error::{Parse, violation};
use crate::kind::{PacketType, Sender};

// Places where a reason code may stand. DISCONNECT and AUTH differ by sender.
const CONNACK: u16 = 1 << 0;
const PUBACK: u16 = 1 << 1;
const PUBREC: u16 = 1 << 2;
const PUBREL: u16 = 1 << 3;
const PUBCOMP: u16 = 1 << 4;
const SUBACK: u16 = 1 << 5;
const UNSUBACK: u16 = 1 << 6;
const FROM_CLIENT: u16 = 1 << 7;
const FROM_SERVER: u16 = 1 << 8;
const AUTH_CLIENT: u16 = 1 << 9;
const AUTH_SERVER: u16 = 1 << 10;
const DISCONNECT: u16 = FROM_CLIENT | FROM_SERVER;
const PUB_ANSWER: u16 = PUBACK | PUBREC;
const PUB_ALL: u16 = PUB_ANSWER | PUBREL | PUBCOMP;

macro_rules! reason_codes {
    ($($name:ident = $code:literal, $text:literal, $places:expr;)+) => {
        /// What became of a request, or why a connection ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $(#[doc = $text] $name = $code,)+
        }

        impl ReasonCode {
            /// All codes, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// From the number on the wire.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Name as the specification writes it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            const fn places(self) -> u16 {
                match self {
                    $(Self::$name => $places,)+
                }
            }
        }
    };
}

reason_codes! {
    Success = 0x00, "Success", CONNACK | PUB_ALL | SUBACK | UNSUBACK | DISCONNECT | AUTH_SERVER;
    GrantedQos1 = 0x01, "Granted QoS 1", SUBACK;
    GrantedQos2 = 0x02, "Granted QoS 2", SUBACK;
    DisconnectWithWill = 0x04, "Disconnect with Will Message", FROM_CLIENT;
    NoMatchingSubscribers = 0x10, "No matching subscribers", PUB_ANSWER;
    NoSubscriptionExisted = 0x11, "No subscription existed", UNSUBACK;
    ContinueAuthentication = 0x18, "Continue authentication", AUTH_CLIENT | AUTH_SERVER;
    ReAuthenticate = 0x19, "Re-authenticate", AUTH_CLIENT;
    UnspecifiedError = 0x80, "Unspecified error", CONNACK | PUB_ANSWER | SUBACK | UNSUBACK | DISCONNECT;
    MalformedPacket = 0x81, "Malformed Packet", CONNACK | DISCONNECT;
    ProtocolError = 0x82, "Protocol Error", CONNACK | DISCONNECT;
    ImplementationSpecificError = 0x83, "Implementation specific error",
        CONNACK | PUB_ANSWER | SUBACK | UNSUBACK | DISCONNECT;
    UnsupportedProtocolVersion = 0x84, "Unsupported Protocol Version", CONNACK;
    ClientIdentifierNotValid = 0x85, "Client Identifier not valid", CONNACK;
    BadUserNameOrPassword = 0x86, "Bad User Name or Password", CONNACK;
    NotAuthorized = 0x87, "Not authorized", CONNACK | PUB_ANSWER | SUBACK | UNSUBACK | FROM_SERVER;
    ServerUnavailable = 0x88, "Server unavailable", CONNACK;
    ServerBusy = 0x89, "Server busy", CONNACK | FROM_SERVER;
    Banned = 0x8a, "Banned", CONNACK;
    ServerShuttingDown = 0x8b, "Server shutting down", FROM_SERVER;
    BadAuthenticationMethod = 0x8c, "Bad authentication method", CONNACK | FROM_SERVER;
    KeepAliveTimeout = 0x8d, "Keep Alive timeout", FROM_SERVER;
    SessionTakenOver = 0x8e, "Session taken over", FROM_SERVER;
    TopicFilterInvalid = 0x8f, "Topic Filter invalid", SUBACK | UNSUBACK | FROM_SERVER;
    TopicNameInvalid = 0x90, "Topic Name invalid", CONNACK | PUB_ANSWER | DISCONNECT;
    PacketIdentifierInUse = 0x91, "Packet Identifier in use", PUB_ANSWER | SUBACK | UNSUBACK;
    PacketIdentifierNotFound = 0x92, "Packet Identifier not found", PUBREL | PUBCOMP;
    ReceiveMaximumExceeded = 0x93, "Receive Maximum exceeded", DISCONNECT;
    TopicAliasInvalid = 0x94, "Topic Alias invalid", DISCONNECT;
    PacketTooLarge = 0x95, "Packet too large", CONNACK | DISCONNECT;
    MessageRateTooHigh = 0x96, "Message rate too high", DISCONNECT;
    QuotaExceeded = 0x97, "Quota exceeded", CONNACK | PUB_ANSWER | SUBACK | DISCONNECT;
    AdministrativeAction = 0x98, "Administrative action", DISCONNECT;
    PayloadFormatInvalid = 0x99, "Payload format invalid", CONNACK | PUB_ANSWER | DISCONNECT;
    RetainNotSupported = 0x9a, "Retain not supported", CONNACK | FROM_SERVER;
    QosNotSupported = 0x9b, "QoS not supported", CONNACK | FROM_SERVER;
    UseAnotherServer = 0x9c, "Use another server", CONNACK | FROM_SERVER;
    ServerMoved = 0x9d, "Server moved", CONNACK | FROM_SERVER;
    SharedSubscriptionsNotSupported = 0x9e, "Shared Subscriptions not supported", SUBACK | FROM_SERVER;
    ConnectionRateExceeded = 0x9f, "Connection rate exceeded", CONNACK | FROM_SERVER;
    MaximumConnectTime = 0xa0, "Maximum connect time", FROM_SERVER;
    SubscriptionIdentifiersNotSupported = 0xa1, "Subscription Identifiers not supported", SUBACK | FROM_SERVER;
    WildcardSubscriptionsNotSupported = 0xa2, "Wildcard Subscriptions not supported", SUBACK | FROM_SERVER;
}

impl ReasonCode {
    /// The number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// True for 0x80 and above: the request failed.
    pub const fn is_failure(self) -> bool {
        self.code() >= 0x80
    }

    /// True if such a packet from such a sender may carry this code.
    pub const fn allowed_in(self, packet: PacketType, sender: Sender) -> bool {
        self.places() & places_of(packet, sender) != 0
    }

    /// Read the code of a packet of MQTT 5, which must be one of that packet's own.
    #[inline]
    pub(crate) fn read(code: u8, packet: PacketType, sender: Sender) -> Parse<Self> {
        match Self::from_code(code) {
            Some(reason) if reason.allowed_in(packet, sender) => Ok(reason),
            _ => Err(match packet {
                PacketType::ConnAck => violation!(ProtocolError, "reason code not of CONNACK", "MQTT-3.2.2-8"),
                PacketType::PubAck => violation!(ProtocolError, "reason code not of PUBACK", "MQTT-3.4.2-1"),
                PacketType::PubRec => violation!(ProtocolError, "reason code not of PUBREC", "MQTT-3.5.2-1"),
                PacketType::PubRel => violation!(ProtocolError, "reason code not of PUBREL", "MQTT-3.6.2-1"),
                PacketType::PubComp => violation!(ProtocolError, "reason code not of PUBCOMP", "MQTT-3.7.2-1"),
                PacketType::SubAck => violation!(ProtocolError, "reason code not of SUBACK", "MQTT-3.9.3-2"),
                PacketType::UnsubAck => violation!(ProtocolError, "reason code not of UNSUBACK", "MQTT-3.11.3-2"),
                PacketType::Disconnect => {
                    violation!(ProtocolError, "reason code not of this DISCONNECT", "MQTT-3.14.2-1")
                }
                _ => violation!(ProtocolError, "reason code not of this AUTH", "MQTT-3.15.2-1"),
            }),
        }
    }

    /// The return code that says this in a CONNACK of 3.1 and 3.1.1 (3.1.1, table 3.1).
    ///
    /// What those versions have no word for becomes 3, "server unavailable": the one refusal that invites to try again.
    pub const fn connack_return_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::UnsupportedProtocolVersion => 1,
            Self::ClientIdentifierNotValid => 2,
            Self::BadUserNameOrPassword => 4,
            Self::NotAuthorized | Self::Banned | Self::BadAuthenticationMethod => 5,
            _ => 3,
        }
    }

    /// The reason code that a return code of 3.1 and 3.1.1 stands for.
    pub const fn from_connack_return_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Success),
            1 => Some(Self::UnsupportedProtocolVersion),
            2 => Some(Self::ClientIdentifierNotValid),
            3 => Some(Self::ServerUnavailable),
            4 => Some(Self::BadUserNameOrPassword),
            5 => Some(Self::NotAuthorized),
            _ => None,
        }
    }
}

const fn places_of(packet: PacketType, sender: Sender) -> u16 {
    match (packet, sender) {
        (PacketType::ConnAck, _) => CONNACK,
        (PacketType::PubAck, _) => PUBACK,
        (PacketType::PubRec, _) => PUBREC,
        (PacketType::PubRel, _) => PUBREL,
        (PacketType::PubComp, _) => PUBCOMP,
        (PacketType::SubAck, _) => SUBACK,
        (PacketType::UnsubAck, _) => UNSUBACK,
        (PacketType::Disconnect, Sender::Client) => FROM_CLIENT,
        (PacketType::Disconnect, Sender::Server) => FROM_SERVER,
        (PacketType::Disconnect, Sender::Either) => DISCONNECT,
        (PacketType::Auth, Sender::Client) => AUTH_CLIENT,
        (PacketType::Auth, Sender::Server) => AUTH_SERVER,
        (PacketType::Auth, Sender::Either) => AUTH_CLIENT | AUTH_SERVER,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for &reason in ReasonCode::ALL {
            assert_eq!(ReasonCode::from_code(reason.code()), Some(reason));
        }
        assert_eq!(ReasonCode::ALL.len(), 43);
        assert_eq!(ReasonCode::from_code(0x03), None);
        assert_eq!(ReasonCode::from_code(0xa3), None);
    }

    #[test]
    fn counts_per_packet_match_the_tables_of_chapter_3() {
        let count = |packet, sender| ReasonCode::ALL.iter().filter(|reason| reason.allowed_in(packet, sender)).count();
        assert_eq!(count(PacketType::ConnAck, Sender::Server), 22); // 3.2.2.2
        assert_eq!(count(PacketType::PubAck, Sender::Either), 9); // 3.4.2.1
        assert_eq!(count(PacketType::PubRec, Sender::Either), 9); // 3.5.2.1
        assert_eq!(count(PacketType::PubRel, Sender::Either), 2); // 3.6.2.1
        assert_eq!(count(PacketType::PubComp, Sender::Either), 2); // 3.7.2.1
        assert_eq!(count(PacketType::SubAck, Sender::Server), 12); // 3.9.3
        assert_eq!(count(PacketType::UnsubAck, Sender::Server), 7); // 3.11.3
        assert_eq!(count(PacketType::Auth, Sender::Either), 3); // 3.15.2.1
        assert_eq!(count(PacketType::Disconnect, Sender::Client), 14); // 3.14.2.1
        // 3.14.2.1 and, from table 2.4, Bad authentication method.
        assert_eq!(count(PacketType::Disconnect, Sender::Either), 29 + 1);
        assert_eq!(count(PacketType::Publish, Sender::Either), 0);
    }

    #[test]
    fn return_codes_translate_both_ways() {
        for code in 0..=5 {
            assert_eq!(ReasonCode::from_connack_return_code(code).unwrap().connack_return_code(), code);
        }
        assert_eq!(ReasonCode::from_connack_return_code(6), None);
        assert_eq!(ReasonCode::QuotaExceeded.connack_return_code(), 3);
    }
}
