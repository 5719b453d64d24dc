//! One property: its value, and how it is read and written.
//!
//! Values that the specification forbids (a Receive Maximum of zero, a flag of 2) cannot be represented.

use core::num::{NonZeroU16, NonZeroU32};

use super::id::PropertyId;
use crate::error::{Parse, Violation, violation};
use crate::qos::QoS;
use crate::reader::PacketReader;
use crate::sink::Sink;
use crate::varint;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PayloadFormat {
    /// Unspecified bytes.
    Bytes = 0,
    /// UTF-8 text.
    Utf8 = 1,
}

impl PayloadFormat {
    /// Check a payload against its indicator (section 3.3.2.3.2). Whether to look is the receiver's choice; the codec
    /// does not.
    pub fn check(self, payload: &[u8]) -> Result<(), &'static Violation> {
        if self == Self::Utf8 && core::str::from_utf8(payload).is_err() {
            return Err(violation!(PayloadFormatInvalid, "payload is not the UTF-8 it claims to be", "3.3.2.3.2"));
        }
        Ok(())
    }
}

/// A property. Names and order as in table 2-4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is named and documented in `PropertyId`")]
pub enum Property<'a> {
    PayloadFormat(PayloadFormat),
    MessageExpiry(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    /// At most 268 435 455; the encoder clamps it there.
    SubscriptionId(NonZeroU32),
    SessionExpiry(u32),
    AssignedClientId(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(bool),
    WillDelay(u32),
    RequestResponseInformation(bool),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(NonZeroU16),
    TopicAliasMaximum(u16),
    TopicAlias(NonZeroU16),
    /// At most QoS 1: a server that supports QoS 2 does not send the property.
    MaximumQos(QoS),
    RetainAvailable(bool),
    UserProperty(&'a str, &'a str),
    MaximumPacketSize(NonZeroU32),
    WildcardAvailable(bool),
    SubscriptionIdsAvailable(bool),
    SharedAvailable(bool),
}

const NO_WINDOW: &Violation = violation!(ProtocolError, "receive maximum is zero", "3.1.2.11.3");
const NO_SIZE: &Violation = violation!(ProtocolError, "maximum packet size is zero", "3.1.2.11.4");
const NO_FLAG: &Violation = violation!(ProtocolError, "property is neither 0 nor 1", "3.1.2.11, 3.2.2.3, 3.3.2.3");

impl<'a> Property<'a> {
    /// Which property this is.
    pub const fn id(&self) -> PropertyId {
        use PropertyId as Id;
        match self {
            Self::PayloadFormat(_) => Id::PayloadFormat,
            Self::MessageExpiry(_) => Id::MessageExpiry,
            Self::ContentType(_) => Id::ContentType,
            Self::ResponseTopic(_) => Id::ResponseTopic,
            Self::CorrelationData(_) => Id::CorrelationData,
            Self::SubscriptionId(_) => Id::SubscriptionId,
            Self::SessionExpiry(_) => Id::SessionExpiry,
            Self::AssignedClientId(_) => Id::AssignedClientId,
            Self::ServerKeepAlive(_) => Id::ServerKeepAlive,
            Self::AuthenticationMethod(_) => Id::AuthenticationMethod,
            Self::AuthenticationData(_) => Id::AuthenticationData,
            Self::RequestProblemInformation(_) => Id::RequestProblemInformation,
            Self::WillDelay(_) => Id::WillDelay,
            Self::RequestResponseInformation(_) => Id::RequestResponseInformation,
            Self::ResponseInformation(_) => Id::ResponseInformation,
            Self::ServerReference(_) => Id::ServerReference,
            Self::ReasonString(_) => Id::ReasonString,
            Self::ReceiveMaximum(_) => Id::ReceiveMaximum,
            Self::TopicAliasMaximum(_) => Id::TopicAliasMaximum,
            Self::TopicAlias(_) => Id::TopicAlias,
            Self::MaximumQos(_) => Id::MaximumQos,
            Self::RetainAvailable(_) => Id::RetainAvailable,
            Self::UserProperty(..) => Id::UserProperty,
            Self::MaximumPacketSize(_) => Id::MaximumPacketSize,
            Self::WildcardAvailable(_) => Id::WildcardAvailable,
            Self::SubscriptionIdsAvailable(_) => Id::SubscriptionIdsAvailable,
            Self::SharedAvailable(_) => Id::SharedAvailable,
        }
    }

    /// Read one property, with the rules that hold for its value wherever it stands.
    pub(super) fn read(reader: &mut PacketReader<'a>) -> Parse<Self> {
        use PropertyId as Id;
        let id = reader.u8()?;
        let id = Id::from_byte(id).ok_or(violation!(MalformedPacket, "unknown property", "2.2.2.2"))?;
        Ok(match id {
            Id::PayloadFormat => Self::PayloadFormat(payload_format(reader)?),
            Id::MessageExpiry => Self::MessageExpiry(reader.u32()?),
            Id::ContentType => Self::ContentType(reader.text()?),
            Id::ResponseTopic => Self::ResponseTopic(response_topic(reader)?),
            Id::CorrelationData => Self::CorrelationData(reader.field()?),
            Id::SubscriptionId => Self::SubscriptionId(subscription_id(reader)?),
            Id::SessionExpiry => Self::SessionExpiry(reader.u32()?),
            Id::AssignedClientId => Self::AssignedClientId(reader.text()?),
            Id::ServerKeepAlive => Self::ServerKeepAlive(reader.u16()?),
            Id::AuthenticationMethod => Self::AuthenticationMethod(reader.text()?),
            Id::AuthenticationData => Self::AuthenticationData(reader.field()?),
            Id::RequestProblemInformation => Self::RequestProblemInformation(flag(reader)?),
            Id::WillDelay => Self::WillDelay(reader.u32()?),
            Id::RequestResponseInformation => Self::RequestResponseInformation(flag(reader)?),
            Id::ResponseInformation => Self::ResponseInformation(reader.text()?),
            Id::ServerReference => Self::ServerReference(reader.text()?),
            Id::ReasonString => Self::ReasonString(reader.text()?),
            Id::ReceiveMaximum => Self::ReceiveMaximum(NonZeroU16::new(reader.u16()?).ok_or(NO_WINDOW)?),
            Id::TopicAliasMaximum => Self::TopicAliasMaximum(reader.u16()?),
            Id::TopicAlias => Self::TopicAlias(topic_alias(reader)?),
            Id::MaximumQos => Self::MaximumQos(maximum_qos(reader)?),
            Id::RetainAvailable => Self::RetainAvailable(flag(reader)?),
            Id::UserProperty => Self::UserProperty(reader.text()?, reader.text()?),
            Id::MaximumPacketSize => Self::MaximumPacketSize(NonZeroU32::new(reader.u32()?).ok_or(NO_SIZE)?),
            Id::WildcardAvailable => Self::WildcardAvailable(flag(reader)?),
            Id::SubscriptionIdsAvailable => Self::SubscriptionIdsAvailable(flag(reader)?),
            Id::SharedAvailable => Self::SharedAvailable(flag(reader)?),
        })
    }

    /// Write identifier and value.
    pub(crate) fn write(&self, out: &mut impl Sink) {
        out.put_u8(self.id() as u8);
        match *self {
            Self::PayloadFormat(format) => out.put_u8(format as u8),
            Self::MaximumQos(qos) => out.put_u8(qos.bits()),
            Self::RequestProblemInformation(flag)
            | Self::RequestResponseInformation(flag)
            | Self::RetainAvailable(flag)
            | Self::WildcardAvailable(flag)
            | Self::SubscriptionIdsAvailable(flag)
            | Self::SharedAvailable(flag) => out.put_u8(u8::from(flag)),
            Self::ServerKeepAlive(value) | Self::TopicAliasMaximum(value) => out.put_u16(value),
            Self::ReceiveMaximum(value) | Self::TopicAlias(value) => out.put_u16(value.get()),
            Self::MessageExpiry(value) | Self::SessionExpiry(value) | Self::WillDelay(value) => out.put_u32(value),
            Self::MaximumPacketSize(value) => out.put_u32(value.get()),
            Self::SubscriptionId(id) => varint::write((id.get() as usize).min(varint::MAX), out),
            Self::CorrelationData(data) | Self::AuthenticationData(data) => out.put_field(data),
            Self::ContentType(text)
            | Self::ResponseTopic(text)
            | Self::AssignedClientId(text)
            | Self::AuthenticationMethod(text)
            | Self::ResponseInformation(text)
            | Self::ServerReference(text)
            | Self::ReasonString(text) => out.put_field(text.as_bytes()),
            Self::UserProperty(name, value) => {
                out.put_field(name.as_bytes());
                out.put_field(value.as_bytes());
            }
        }
    }
}

fn flag(reader: &mut PacketReader<'_>) -> Parse<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(NO_FLAG),
    }
}

fn payload_format(reader: &mut PacketReader<'_>) -> Parse<PayloadFormat> {
    Ok(if flag(reader)? { PayloadFormat::Utf8 } else { PayloadFormat::Bytes })
}

fn maximum_qos(reader: &mut PacketReader<'_>) -> Parse<QoS> {
    Ok(if flag(reader)? { QoS::AtLeastOnce } else { QoS::AtMostOnce })
}

fn subscription_id(reader: &mut PacketReader<'_>) -> Parse<NonZeroU32> {
    let id = reader.varint()?;
    NonZeroU32::new(id).ok_or(violation!(ProtocolError, "subscription identifier is zero", "3.8.2.1.2"))
}

fn topic_alias(reader: &mut PacketReader<'_>) -> Parse<NonZeroU16> {
    let alias = reader.u16()?;
    NonZeroU16::new(alias).ok_or(violation!(TopicAliasInvalid, "topic alias is zero", "MQTT-3.3.2-8"))
}

fn response_topic<'a>(reader: &mut PacketReader<'a>) -> Parse<&'a str> {
    let topic = reader.text()?;
    if topic.is_empty() {
        return Err(violation!(ProtocolError, "response topic is empty", "MQTT-4.7.3-1"));
    }
    if topic.bytes().any(|byte| matches!(byte, b'+' | b'#')) {
        return Err(violation!(ProtocolError, "wildcard in a response topic", "MQTT-3.3.2-14"));
    }
    Ok(topic)
}
