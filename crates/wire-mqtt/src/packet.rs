//! The fifteen packets as one type.

use crate::ack::Ack;
use crate::auth::Auth;
use crate::connack::ConnAck;
use crate::connect::Connect;
use crate::disconnect::Disconnect;
use crate::encode::Body;
use crate::kind::PacketType;
use crate::property::KeptProperties;
use crate::publish::Publish;
use crate::sink::Sink;
use crate::suback::{SubAck, UnsubAck};
use crate::subscribe::Subscribe;
use crate::unsubscribe::Unsubscribe;
use crate::version::Version;

/// A control packet, borrowed from the buffer it was read from or from what the caller wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// CONNECT
    Connect(Connect<'a>),
    /// CONNACK
    ConnAck(ConnAck<'a>),
    /// PUBLISH
    Publish(Publish<'a>),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP
    Ack(Ack<'a>),
    /// SUBSCRIBE
    Subscribe(Subscribe<'a>),
    /// SUBACK
    SubAck(SubAck<'a>),
    /// UNSUBSCRIBE
    Unsubscribe(Unsubscribe<'a>),
    /// UNSUBACK
    UnsubAck(UnsubAck<'a>),
    /// PINGREQ
    PingReq,
    /// PINGRESP
    PingResp,
    /// DISCONNECT
    Disconnect(Disconnect<'a>),
    /// AUTH
    Auth(Auth<'a>),
}

impl Packet<'_> {
    /// The type of the packet.
    pub fn kind(&self) -> PacketType {
        match self {
            Self::Connect(packet) => packet.kind(),
            Self::ConnAck(packet) => packet.kind(),
            Self::Publish(packet) => packet.kind(),
            Self::Ack(packet) => packet.kind(),
            Self::Subscribe(packet) => packet.kind(),
            Self::SubAck(packet) => packet.kind(),
            Self::Unsubscribe(packet) => packet.kind(),
            Self::UnsubAck(packet) => packet.kind(),
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(packet) => packet.kind(),
            Self::Auth(packet) => packet.kind(),
        }
    }
}

impl Body for Packet<'_> {
    fn kind(&self) -> PacketType {
        Packet::kind(self)
    }

    #[inline]
    fn first_byte(&self) -> u8 {
        match self {
            Self::Publish(packet) => packet.first_byte(),
            _ => self.kind().first_byte(),
        }
    }

    #[inline]
    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        match self {
            Self::Publish(packet) => packet.write_body(version, keep, out),
            Self::Connect(packet) => packet.write_body(version, keep, out),
            Self::ConnAck(packet) => packet.write_body(version, keep, out),
            Self::Ack(packet) => packet.write_body(version, keep, out),
            Self::Subscribe(packet) => packet.write_body(version, keep, out),
            Self::SubAck(packet) => packet.write_body(version, keep, out),
            Self::Unsubscribe(packet) => packet.write_body(version, keep, out),
            Self::UnsubAck(packet) => packet.write_body(version, keep, out),
            Self::PingReq | Self::PingResp => {}
            Self::Disconnect(packet) => packet.write_body(version, keep, out),
            Self::Auth(packet) => packet.write_body(version, keep, out),
        }
    }
}
