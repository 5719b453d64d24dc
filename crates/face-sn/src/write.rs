//! Messages to bytes.

use alloc::vec::Vec;

use tidegate_wire_mqtt::QoS;

use crate::packet::{FilterRef, Packet, Publish, Quality, WillTopic, flag, kind};

impl Packet<'_> {
    /// Its bytes; none if they would be more than a length can say.
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = self.body(&mut body);
        let short = body.len() + 2;
        let mut out = Vec::with_capacity(short + 2);
        if let Ok(length) = u8::try_from(short) {
            out.push(length);
        } else {
            let Ok(length) = u16::try_from(short + 2) else { return Vec::new() };
            out.push(1);
            out.extend_from_slice(&length.to_be_bytes());
        }
        out.push(kind);
        out.extend_from_slice(&body);
        out
    }

    /// Appends its fields; its type.
    fn body(&self, out: &mut Vec<u8>) -> u8 {
        match *self {
            Packet::Advertise { gateway, seconds } => put(kind::ADVERTISE, out, &[&[gateway], &word(seconds)]),
            Packet::SearchGw { radius } => put(kind::SEARCHGW, out, &[&[radius]]),
            Packet::GwInfo { gateway, address } => put(kind::GWINFO, out, &[&[gateway], address]),
            Packet::Connect { will, clean, protocol, seconds, client_id } => {
                let flags = bit(will, flag::WILL) | bit(clean, flag::CLEAN);
                put(kind::CONNECT, out, &[&[flags, protocol], &word(seconds), client_id.as_bytes()])
            }
            Packet::ConnAck(code) => put(kind::CONNACK, out, &[&[code.code()]]),
            Packet::WillTopicReq => kind::WILLTOPICREQ,
            Packet::WillTopic(topic) => put_will(kind::WILLTOPIC, out, topic),
            Packet::WillMsgReq => kind::WILLMSGREQ,
            Packet::WillMsg(message) => put(kind::WILLMSG, out, &[message]),
            Packet::Register { topic_id, message, name } => {
                put(kind::REGISTER, out, &[&word(topic_id), &word(message), name.as_bytes()])
            }
            Packet::RegAck { topic_id, message, code } => {
                put(kind::REGACK, out, &[&word(topic_id), &word(message), &[code.code()]])
            }
            Packet::Publish(publish) => put_publish(out, &publish),
            Packet::PubAck { topic, message, code } => {
                put(kind::PUBACK, out, &[&word(topic), &word(message), &[code.code()]])
            }
            Packet::PubRec(message) => put(kind::PUBREC, out, &[&word(message.get())]),
            Packet::PubRel(message) => put(kind::PUBREL, out, &[&word(message.get())]),
            Packet::PubComp(message) => put(kind::PUBCOMP, out, &[&word(message.get())]),
            Packet::Subscribe { dup, qos, message, topic } => {
                let flags = bit(dup, flag::DUP) | qos_bits(qos);
                put_filter(kind::SUBSCRIBE, out, flags, message.get(), topic)
            }
            Packet::SubAck { qos, topic_id, message, code } => {
                put(kind::SUBACK, out, &[&[qos_bits(qos)], &word(topic_id), &word(message), &[code.code()]])
            }
            Packet::Unsubscribe { message, topic } => put_filter(kind::UNSUBSCRIBE, out, 0, message.get(), topic),
            Packet::UnsubAck(message) => put(kind::UNSUBACK, out, &[&word(message)]),
            Packet::PingReq { client_id } => put(kind::PINGREQ, out, &[client_id.as_bytes()]),
            Packet::PingResp => kind::PINGRESP,
            Packet::Disconnect { seconds: None } => kind::DISCONNECT,
            Packet::Disconnect { seconds: Some(seconds) } => put(kind::DISCONNECT, out, &[&word(seconds)]),
            Packet::WillTopicUpd(topic) => put_will(kind::WILLTOPICUPD, out, topic),
            Packet::WillTopicResp(code) => put(kind::WILLTOPICRESP, out, &[&[code.code()]]),
            Packet::WillMsgUpd(message) => put(kind::WILLMSGUPD, out, &[message]),
            Packet::WillMsgResp(code) => put(kind::WILLMSGRESP, out, &[&[code.code()]]),
        }
    }
}

fn put(kind: u8, out: &mut Vec<u8>, parts: &[&[u8]]) -> u8 {
    for part in parts {
        out.extend_from_slice(part);
    }
    kind
}

fn put_will(kind: u8, out: &mut Vec<u8>, topic: Option<WillTopic<'_>>) -> u8 {
    let Some(WillTopic { name, qos, retain }) = topic else { return kind };
    put(kind, out, &[&[qos_bits(qos) | bit(retain, flag::RETAIN)], name.as_bytes()])
}

fn put_publish(out: &mut Vec<u8>, publish: &Publish<'_>) -> u8 {
    let quality = match publish.quality {
        Quality::Unconnected => 3 << flag::QOS_SHIFT,
        Quality::Connected(qos) => qos_bits(qos),
    };
    let marks = bit(publish.dup, flag::DUP) | bit(publish.retain, flag::RETAIN);
    let flags = marks | quality | publish.topic.type_bits();
    put(kind::PUBLISH, out, &[&[flags], &word(publish.topic.word()), &word(publish.message), publish.payload])
}

fn put_filter(kind: u8, out: &mut Vec<u8>, flags: u8, message: u16, topic: FilterRef<'_>) -> u8 {
    match topic {
        FilterRef::Name(name) => put(kind, out, &[&[flags], &word(message), name.as_bytes()]),
        FilterRef::Predefined(id) => put(kind, out, &[&[flags | 1], &word(message), &word(id)]),
        FilterRef::Short(name) => put(kind, out, &[&[flags | 2], &word(message), &name]),
    }
}

/// Marks a PUBLISH as one that was sent before; its flags are behind the type.
pub(crate) fn mark_repeated(bytes: &mut [u8]) {
    let Some((_, header)) = crate::read::length(bytes) else { return };
    if bytes.get(header) == Some(&kind::PUBLISH)
        && let Some(flags) = bytes.get_mut(header + 1)
    {
        *flags |= flag::DUP;
    }
}

fn word(number: u16) -> [u8; 2] {
    number.to_be_bytes()
}

fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

fn qos_bits(qos: QoS) -> u8 {
    (qos as u8) << flag::QOS_SHIFT
}
