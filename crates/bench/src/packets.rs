//! The packets of a load generator, made with the broker's own codec. A PUBLISH is encoded once; afterwards only its
//! packet identifier and the head of its payload change.

use std::num::NonZeroU16;

use anyhow::{Result, anyhow, ensure};
use tidegate_wire_mqtt::{
    Connect, Delivery, Disconnect, Encode, Encoded, Limits, PacketId, Peer, Properties, Property, Publish, QoS, Sender,
    Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version,
};

/// Messages are those of the version that most devices speak.
pub(super) const PEER: Peer = Peer::new(Version::V311);
/// Subscribers that say how many messages they take at a time need the word for it.
pub(super) const PEER_V5: Peer = Peer::new(Version::V5);

/// The user that brokers with users know, and the password.
pub(super) const USER: (&str, &str) = ("bench", "bench");

/// Longer than any case: an idle client then costs no pings.
pub(super) const KEEP_ALIVE: u16 = 1200;

/// The head of each payload: time (8), sequence (8), stream (4), mark (4).
pub(super) const HEAD_BYTES: usize = 24;

/// Tells our messages from what else a broker that already runs may carry.
const MARK: u32 = 0x71de_9a7e;

/// What a payload begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PayloadHead {
    /// When it was sent, or should have been, by the generator's clock.
    pub(super) time_ns: u64,
    /// Its number within the stream.
    pub(super) sequence: u64,
    /// The number of the publisher.
    pub(super) stream: u32,
}

impl PayloadHead {
    /// Reads the head of a payload; `None` if it is not one of ours.
    #[inline]
    pub(super) fn of(payload: &[u8]) -> Option<Self> {
        let (time, rest) = payload.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (stream, rest) = rest.split_first_chunk()?;
        let mark = rest.first_chunk()?;
        (u32::from_le_bytes(*mark) == MARK).then(|| Self {
            time_ns: u64::from_le_bytes(*time),
            sequence: u64::from_le_bytes(*sequence),
            stream: u32::from_le_bytes(*stream),
        })
    }
}

/// What a broker may send us.
pub(super) fn limits() -> Limits {
    Limits::default().with_sender(Sender::Server)
}

/// A PUBLISH in which only packet identifier, time and sequence change.
#[derive(Clone, Debug)]
pub(super) struct PublishTemplate {
    bytes: Vec<u8>,
    payload_at: usize,
    has_id: bool,
}

impl PublishTemplate {
    /// The messages of one stream.
    pub(super) fn new(topic: &str, qos: QoS, payload_bytes: usize, stream: u32) -> Result<Self> {
        let mut payload = vec![0; HEAD_BYTES - 8];
        payload.extend_from_slice(&stream.to_le_bytes());
        payload.extend_from_slice(&MARK.to_le_bytes());
        payload.resize(payload_bytes.max(HEAD_BYTES), b'x');
        let packet_id = PacketId::MIN;
        let delivery = match qos {
            QoS::AtMostOnce => Delivery::AtMostOnce,
            QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
            QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        let publish = Publish { delivery, retain: false, topic, properties: Properties::EMPTY, payload: &payload };
        let mut bytes = Vec::new();
        written(publish.encode(PEER, &mut bytes))?;
        Ok(Self { payload_at: bytes.len() - payload.len(), bytes, has_id: qos != QoS::AtMostOnce })
    }

    /// Bytes of one message on the wire.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a message.
    #[inline]
    pub(super) fn emit(&self, out: &mut Vec<u8>, packet_id: NonZeroU16, time_ns: u64, sequence: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let payload = start + self.payload_at;
        if self.has_id {
            // Before MQTT 5 nothing stands between the identifier and the payload.
            out[payload - 2..payload].copy_from_slice(&packet_id.get().to_be_bytes());
        }
        out[payload..payload + 8].copy_from_slice(&time_ns.to_le_bytes());
        out[payload + 8..payload + 16].copy_from_slice(&sequence.to_le_bytes());
    }
}

/// What a client leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionLifetime {
    /// Nothing.
    Clean,
    /// A session that outlives the connection.
    Lasting,
}

/// Appends a CONNECT, perhaps of a user, or of one that takes so many messages at a time.
pub(super) fn connect_as(
    client_id: &str,
    user: Option<(&str, &str)>,
    receive_max: Option<NonZeroU16>,
    stay: SessionLifetime,
    out: &mut Vec<u8>,
) -> Result<()> {
    let peer = if receive_max.is_some() { PEER_V5 } else { PEER };
    let properties: Vec<Property<'_>> = receive_max.map(Property::ReceiveMaximum).into_iter().collect();
    let packet = Connect {
        version: peer.version,
        is_bridge: false,
        clean_start: stay == SessionLifetime::Clean,
        keep_alive: KEEP_ALIVE,
        properties: Properties::new(&properties),
        client_id,
        will: None,
        user_name: user.map(|(name, _)| name),
        password: user.map(|(_, password)| password.as_bytes()),
    };
    written(packet.encode(peer, out))
}

/// Appends a SUBSCRIBE.
pub(super) fn subscribe(peer: Peer, filter: &str, qos: QoS, out: &mut Vec<u8>) -> Result<()> {
    let options = SubscriptionOptions::with_qos(qos);
    let filter = TopicFilter::parse(filter, &limits()).map_err(|rule| anyhow!("{filter:?}: {}", rule.detail))?;
    let wanted = [Subscription { filter, options }];
    let subscriptions = SubscriptionList::new(&wanted);
    written(Subscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, subscriptions }.encode(peer, out))
}

/// Appends a DISCONNECT.
pub(super) fn disconnect(out: &mut Vec<u8>) {
    let reason = tidegate_wire_mqtt::ReasonCode::Success;
    // It has a fixed form that always fits.
    let _ = Disconnect { reason, properties: Properties::EMPTY }.encode(PEER, out);
}

fn written(outcome: Encoded) -> Result<()> {
    ensure!(matches!(outcome, Encoded::Written { .. }), "a packet could not be encoded: {outcome:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire_mqtt::{Decoded, Packet, decode};

    #[test]
    fn a_template_carries_what_changes() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            for size in [0, 64, 1024, 20_000] {
                let template = PublishTemplate::new("bench/1", qos, size, 7).unwrap();
                let (mut out, id) = (Vec::new(), NonZeroU16::new(300).unwrap());
                template.emit(&mut out, id, 123_456, 42);
                assert_eq!(out.len(), template.len());
                let decoded = decode(&out, PEER.version, &limits().with_sender(Sender::Client)).unwrap();
                let Decoded::Packet { packet: Packet::Publish(publish), consumed } = decoded else { panic!() };
                assert_eq!((consumed, publish.topic), (out.len(), "bench/1"));
                assert_eq!(publish.payload.len(), size.max(HEAD_BYTES));
                assert_eq!(publish.delivery.packet_id(), (qos != QoS::AtMostOnce).then_some(id));
                assert_eq!(
                    PayloadHead::of(publish.payload),
                    Some(PayloadHead { time_ns: 123_456, sequence: 42, stream: 7 })
                );
            }
        }
    }

    #[test]
    fn messages_of_others_have_no_head() {
        assert_eq!(PayloadHead::of(b"21.5"), None);
        assert_eq!(PayloadHead::of(&[b'x'; 64]), None);
    }
}
