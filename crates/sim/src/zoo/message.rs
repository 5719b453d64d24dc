//! The messages of the zoo: a PUBLISH is encoded once; afterwards only packet identifier, topic number and the head of
//! its payload change. Tests of whoever drives it may take it for the cheapest client there is.

use tidegate_wire_mqtt::{Delivery, Encode, PacketId, Peer, Properties, Publish, QoS, Version};

use super::model::Speaks;

/// The head of each payload: time (8), sequence (8), stream (4), mark (4).
const HEAD_BYTES: usize = 24;
/// Tells messages of the zoo from others.
const MARK: u32 = 0x200_71de;
/// Digits of a topic's number.
const DIGITS: usize = 4;

/// What a payload begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When it should have been sent.
    pub due_ns: u64,
    /// Its number among those of its publisher.
    pub sequence: u64,
    /// Its publisher.
    pub stream: u32,
}

impl Head {
    /// Reads the head of a payload; none if it is not one of the zoo's.
    #[inline]
    pub fn of(payload: &[u8]) -> Option<Self> {
        let (due, rest) = payload.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (stream, rest) = rest.split_first_chunk()?;
        (u32::from_le_bytes(*rest.first_chunk()?) == MARK).then(|| Self {
            due_ns: u64::from_le_bytes(*due),
            sequence: u64::from_le_bytes(*sequence),
            stream: u32::from_le_bytes(*stream),
        })
    }
}

/// The protocol, for the codec.
pub fn peer(speaks: Speaks) -> Peer {
    Peer::new(if speaks == Speaks::V5 { Version::V5 } else { Version::V311 })
}

/// The codec's name of a quality of service.
pub fn qos(number: u8) -> QoS {
    match number {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}

/// A PUBLISH in which few bytes change.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    topic_at: Option<usize>,
    id_at: Option<usize>,
    payload_at: usize,
}

/// How the messages of a publisher look.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The topic; with several, a number of four digits follows.
    pub topic: &'a str,
    pub topics: u32,
    /// The protocol.
    pub speaks: Speaks,
    pub qos: u8,
    /// Bytes of the payload.
    pub bytes: u32,
    /// Whether they are retained.
    pub retain: bool,
    /// The publisher's number.
    pub stream: u32,
}

impl Template {
    /// The messages of one publisher.
    pub fn new(look: &Look<'_>) -> Self {
        let mut payload = vec![0; HEAD_BYTES - 8];
        payload.extend_from_slice(&look.stream.to_le_bytes());
        payload.extend_from_slice(&MARK.to_le_bytes());
        payload.resize((look.bytes as usize).max(HEAD_BYTES), b'x');
        let packet_id = PacketId::MIN;
        let delivery = match look.qos {
            0 => Delivery::AtMostOnce,
            1 => Delivery::AtLeastOnce { packet_id, dup: false },
            _ => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        let has_many = look.topics > 1;
        let topic = if has_many { format!("{}/0000", look.topic) } else { look.topic.to_owned() };
        let (retain, properties) = (look.retain, Properties::EMPTY);
        let mut bytes = Vec::new();
        // A packet of known and small size always has room in a vector.
        let _ = Publish { delivery, retain, topic: &topic, properties, payload: &payload }
            .encode(peer(look.speaks), &mut bytes);
        let payload_at = bytes.len() - payload.len();
        // Before the payload stand the length of the properties, in MQTT 5, and the identifier; before that the topic.
        let id_end = payload_at - usize::from(look.speaks == Speaks::V5);
        let topic_end = if look.qos > 0 { id_end - 2 } else { id_end };
        Self {
            topic_at: has_many.then(|| topic_end - DIGITS),
            id_at: (look.qos > 0).then_some(topic_end),
            payload_at,
            bytes,
        }
    }

    /// Bytes of one message on the wire.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: there is always a head.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends a message.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>, packet_id: PacketId, topic: u32, due_ns: u64, sequence: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let message = &mut out[start..];
        if let Some(at) = self.topic_at {
            let mut number = topic;
            for digit in message[at..at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        if let Some(at) = self.id_at {
            message[at..at + 2].copy_from_slice(&packet_id.get().to_be_bytes());
        }
        message[self.payload_at..self.payload_at + 8].copy_from_slice(&due_ns.to_le_bytes());
        message[self.payload_at + 8..self.payload_at + 16].copy_from_slice(&sequence.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire_mqtt::{Decoded, Limits, Packet, Sender, decode};

    #[test]
    fn a_template_carries_what_changes_in_both_versions() {
        for speaks in [Speaks::V311, Speaks::V5] {
            for (qos, topics, bytes) in [(0, 1, 0), (1, 1, 64), (2, 1000, 300), (0, 7, 20_000)] {
                let look = Look { topic: "zoo/a/3", topics, speaks, qos, bytes, retain: true, stream: 7 };
                let template = Template::new(&look);
                let (mut out, id) = (Vec::new(), PacketId::new(300).unwrap());
                template.emit(&mut out, id, 42, 123_456, 9);
                assert_eq!(out.len(), template.len());
                let limits = Limits::default().with_sender(Sender::Client);
                let decoded = decode(&out, peer(speaks).version, &limits).unwrap();
                let Decoded::Packet { packet: Packet::Publish(publish), consumed } = decoded else { panic!() };
                let topic = if topics > 1 { "zoo/a/3/0042" } else { "zoo/a/3" };
                assert_eq!((consumed, publish.topic, publish.retain), (out.len(), topic, true));
                assert_eq!(publish.delivery.packet_id(), (qos > 0).then_some(id));
                assert_eq!(Head::of(publish.payload), Some(Head { due_ns: 123_456, sequence: 9, stream: 7 }));
            }
        }
        assert_eq!(Head::of(&[b'x'; 64]), None);
    }
}
