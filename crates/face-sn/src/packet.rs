//! What a datagram of MQTT-SN 1.2 says. One message is one datagram; texts and payloads borrow from it.

use core::num::NonZeroU16;

use tidegate_wire_mqtt::QoS;

/// The types of messages (section 5.2.2).
pub(crate) mod kind {
    pub(crate) const ADVERTISE: u8 = 0x00;
    pub(crate) const SEARCHGW: u8 = 0x01;
    pub(crate) const GWINFO: u8 = 0x02;
    pub(crate) const CONNECT: u8 = 0x04;
    pub(crate) const CONNACK: u8 = 0x05;
    pub(crate) const WILLTOPICREQ: u8 = 0x06;
    pub(crate) const WILLTOPIC: u8 = 0x07;
    pub(crate) const WILLMSGREQ: u8 = 0x08;
    pub(crate) const WILLMSG: u8 = 0x09;
    pub(crate) const REGISTER: u8 = 0x0a;
    pub(crate) const REGACK: u8 = 0x0b;
    pub(crate) const PUBLISH: u8 = 0x0c;
    pub(crate) const PUBACK: u8 = 0x0d;
    pub(crate) const PUBCOMP: u8 = 0x0e;
    pub(crate) const PUBREC: u8 = 0x0f;
    pub(crate) const PUBREL: u8 = 0x10;
    pub(crate) const SUBSCRIBE: u8 = 0x12;
    pub(crate) const SUBACK: u8 = 0x13;
    pub(crate) const UNSUBSCRIBE: u8 = 0x14;
    pub(crate) const UNSUBACK: u8 = 0x15;
    pub(crate) const PINGREQ: u8 = 0x16;
    pub(crate) const PINGRESP: u8 = 0x17;
    pub(crate) const DISCONNECT: u8 = 0x18;
    pub(crate) const WILLTOPICUPD: u8 = 0x1a;
    pub(crate) const WILLTOPICRESP: u8 = 0x1b;
    pub(crate) const WILLMSGUPD: u8 = 0x1c;
    pub(crate) const WILLMSGRESP: u8 = 0x1d;
}

/// The bits of the flags (section 5.3.4).
pub(crate) mod flag {
    pub(crate) const DUP: u8 = 0x80;
    pub(crate) const QOS_SHIFT: u8 = 5;
    pub(crate) const RETAIN: u8 = 0x10;
    pub(crate) const WILL: u8 = 0x08;
    pub(crate) const CLEAN: u8 = 0x04;
}

/// What became of a request (section 5.3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnCode {
    /// It was done.
    Accepted,
    /// Not now.
    Congestion,
    /// Nobody knows this topic identifier.
    InvalidTopicId,
    /// Not at all.
    NotSupported,
    /// A code that has no meaning yet.
    Reserved(u8),
}

impl ReturnCode {
    /// As it is written.
    pub fn code(self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::Congestion => 1,
            Self::InvalidTopicId => 2,
            Self::NotSupported => 3,
            Self::Reserved(code) => code,
        }
    }

    /// As it is read.
    pub fn of(code: u8) -> Self {
        match code {
            0 => Self::Accepted,
            1 => Self::Congestion,
            2 => Self::InvalidTopicId,
            3 => Self::NotSupported,
            code => Self::Reserved(code),
        }
    }
}

/// The guarantee of a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// QoS −1: without a connection.
    Unconnected,
    /// QoS 0, 1, 2.
    Connected(QoS),
}

/// A topic of a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicRef {
    /// One that was registered.
    Id(u16),
    /// One that both sides know.
    Predefined(u16),
    /// A name of two bytes.
    Short([u8; 2]),
}

/// A topic of a SUBSCRIBE or an UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterRef<'a> {
    /// A name, or a filter with wildcards.
    Name(&'a str),
    /// One that both sides know.
    Predefined(u16),
    /// A name of two bytes.
    Short([u8; 2]),
}

/// A message of MQTT-SN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields have the names of the specification")]
pub enum Packet<'a> {
    Advertise { gateway: u8, seconds: u16 },
    SearchGw { radius: u8 },
    GwInfo { gateway: u8, address: &'a [u8] },
    Connect { will: bool, clean: bool, protocol: u8, seconds: u16, client_id: &'a str },
    ConnAck(ReturnCode),
    WillTopicReq,
    WillTopic(Option<WillTopic<'a>>),
    WillMsgReq,
    WillMsg(&'a [u8]),
    Register { topic_id: u16, message: u16, name: &'a str },
    RegAck { topic_id: u16, message: u16, code: ReturnCode },
    Publish(Publish<'a>),
    PubAck { topic: u16, message: u16, code: ReturnCode },
    PubRec(NonZeroU16),
    PubRel(NonZeroU16),
    PubComp(NonZeroU16),
    Subscribe { dup: bool, qos: QoS, message: NonZeroU16, topic: FilterRef<'a> },
    SubAck { qos: QoS, topic_id: u16, message: u16, code: ReturnCode },
    Unsubscribe { message: NonZeroU16, topic: FilterRef<'a> },
    UnsubAck(u16),
    PingReq { client_id: &'a str },
    PingResp,
    Disconnect { seconds: Option<u16> },
    WillTopicUpd(Option<WillTopic<'a>>),
    WillTopicResp(ReturnCode),
    WillMsgUpd(&'a [u8]),
    WillMsgResp(ReturnCode),
}

/// Where a will is to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WillTopic<'a> {
    /// The topic.
    pub name: &'a str,
    /// With this guarantee.
    pub qos: QoS,
    /// Whether it is to be kept for those who come later.
    pub retain: bool,
}

/// A message to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Sent before.
    pub dup: bool,
    /// The guarantee.
    pub quality: Quality,
    /// Whether it is to be kept for those who come later.
    pub retain: bool,
    /// The topic.
    pub topic: TopicRef,
    /// Its number; 0 where there is no answer.
    pub message: u16,
    /// What it says.
    pub payload: &'a [u8],
}

impl TopicRef {
    /// As it is written in an answer.
    pub fn word(self) -> u16 {
        match self {
            Self::Id(id) | Self::Predefined(id) => id,
            Self::Short(name) => u16::from_be_bytes(name),
        }
    }

    /// The bits of its type.
    pub(crate) fn type_bits(self) -> u8 {
        match self {
            Self::Id(_) => 0,
            Self::Predefined(_) => 1,
            Self::Short(_) => 2,
        }
    }
}
