//! Bytes to messages. Strict: a message is as long as it says, has every field, and nothing behind them; what is reserved is
//! refused. Nothing is allocated.

use core::num::NonZeroU16;

use tidegate_wire_mqtt::QoS;

use crate::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef, WillTopic, flag, kind};

impl<'a> Packet<'a> {
    /// The message that a datagram is; none if it is none.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (length, header) = length(bytes)?;
        if length != bytes.len() {
            return None;
        }
        let (kind, body) = bytes.get(header..)?.split_first()?;
        let mut fields = Fields(body);
        let packet = fields.packet(*kind)?;
        fields.0.is_empty().then_some(packet)
    }
}

/// How long the message is that begins these bytes, and where its type is.
pub(crate) fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [1, high, low, ..] => Some((usize::from(u16::from_be_bytes([high, low])), 3)),
        [0 | 1, ..] | [] => None,
        [length, ..] => Some((usize::from(length), 1)),
    }
}

/// What should be the topic of a will, and is none.
struct NoTopic;

/// What is left of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn packet(&mut self, kind: u8) -> Option<Packet<'a>> {
        Some(match kind {
            kind::ADVERTISE => Packet::Advertise { gateway: self.byte()?, seconds: self.word()? },
            kind::SEARCHGW => Packet::SearchGw { radius: self.byte()? },
            kind::GWINFO => Packet::GwInfo { gateway: self.byte()?, address: self.rest() },
            kind::CONNECT => {
                let flags = self.byte()?;
                let (will, clean) = (flags & flag::WILL != 0, flags & flag::CLEAN != 0);
                Packet::Connect { will, clean, protocol: self.byte()?, seconds: self.word()?, client_id: self.text()? }
            }
            kind::CONNACK => Packet::ConnAck(self.code()?),
            kind::WILLTOPICREQ => Packet::WillTopicReq,
            kind::WILLTOPIC => Packet::WillTopic(self.will_topic().ok()?),
            kind::WILLMSGREQ => Packet::WillMsgReq,
            kind::WILLMSG => Packet::WillMsg(self.rest()),
            kind::REGISTER => Packet::Register { topic_id: self.word()?, message: self.word()?, name: self.text()? },
            kind::REGACK => Packet::RegAck { topic_id: self.word()?, message: self.word()?, code: self.code()? },
            kind::PUBLISH => Packet::Publish(self.publish()?),
            kind::PUBACK => Packet::PubAck { topic: self.word()?, message: self.word()?, code: self.code()? },
            kind::PUBREC => Packet::PubRec(self.number()?),
            kind::PUBREL => Packet::PubRel(self.number()?),
            kind::PUBCOMP => Packet::PubComp(self.number()?),
            kind::SUBSCRIBE => {
                let flags = self.byte()?;
                let (dup, qos) = (flags & flag::DUP != 0, qos(flags)?);
                Packet::Subscribe { dup, qos, message: self.number()?, topic: self.filter(flags)? }
            }
            kind::SUBACK => {
                let qos = qos(self.byte()?)?;
                Packet::SubAck { qos, topic_id: self.word()?, message: self.word()?, code: self.code()? }
            }
            kind::UNSUBSCRIBE => {
                let flags = self.byte()?;
                Packet::Unsubscribe { message: self.number()?, topic: self.filter(flags)? }
            }
            kind::UNSUBACK => Packet::UnsubAck(self.word()?),
            kind::PINGREQ => Packet::PingReq { client_id: self.text()? },
            kind::PINGRESP => Packet::PingResp,
            kind::DISCONNECT if self.0.is_empty() => Packet::Disconnect { seconds: None },
            kind::DISCONNECT => Packet::Disconnect { seconds: Some(self.word()?) },
            kind::WILLTOPICUPD => Packet::WillTopicUpd(self.will_topic().ok()?),
            kind::WILLTOPICRESP => Packet::WillTopicResp(self.code()?),
            kind::WILLMSGUPD => Packet::WillMsgUpd(self.rest()),
            kind::WILLMSGRESP => Packet::WillMsgResp(self.code()?),
            _ => return None,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn pair(&mut self) -> Option<[u8; 2]> {
        let (pair, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some(*pair)
    }

    fn word(&mut self) -> Option<u16> {
        self.pair().map(u16::from_be_bytes)
    }

    /// The number of a message that has an answer.
    fn number(&mut self) -> Option<NonZeroU16> {
        self.word().and_then(NonZeroU16::new)
    }

    fn code(&mut self) -> Option<ReturnCode> {
        self.byte().map(ReturnCode::of)
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.rest()).ok()
    }

    /// Without anything in it, the will is to be none (sections 5.4.7 and 5.4.22).
    fn will_topic(&mut self) -> Result<Option<WillTopic<'a>>, NoTopic> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let flags = self.byte().ok_or(NoTopic)?;
        let (qos, retain) = (qos(flags).ok_or(NoTopic)?, flags & flag::RETAIN != 0);
        let name = self.text().filter(|name| !name.is_empty()).ok_or(NoTopic)?;
        Ok(Some(WillTopic { name, qos, retain }))
    }

    fn publish(&mut self) -> Option<Publish<'a>> {
        let flags = self.byte()?;
        let topic = match flags & 3 {
            0 => TopicRef::Id(self.word()?),
            1 => TopicRef::Predefined(self.word()?),
            2 => TopicRef::Short(self.pair()?),
            _ => return None,
        };
        let quality = qos(flags).map_or(Quality::Unconnected, Quality::Connected);
        // Without a connection there are no identifiers that were registered (section 6.8).
        if quality == Quality::Unconnected && matches!(topic, TopicRef::Id(_)) {
            return None;
        }
        let message = self.word()?;
        // Who wants an answer needs a number for it.
        if message == 0 && matches!(quality, Quality::Connected(QoS::AtLeastOnce | QoS::ExactlyOnce)) {
            return None;
        }
        let (dup, retain) = (flags & flag::DUP != 0, flags & flag::RETAIN != 0);
        Some(Publish { dup, quality, retain, topic, message, payload: self.rest() })
    }

    fn filter(&mut self, flags: u8) -> Option<FilterRef<'a>> {
        match flags & 3 {
            0 => self.text().filter(|name| !name.is_empty()).map(FilterRef::Name),
            1 => self.word().map(FilterRef::Predefined),
            2 => self.pair().map(FilterRef::Short),
            _ => None,
        }
    }
}

fn qos(flags: u8) -> Option<QoS> {
    match flags >> flag::QOS_SHIFT & 3 {
        0 => Some(QoS::AtMostOnce),
        1 => Some(QoS::AtLeastOnce),
        2 => Some(QoS::ExactlyOnce),
        _ => None,
    }
}
