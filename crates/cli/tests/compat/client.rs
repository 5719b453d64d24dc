//! A client on a socket that says one packet after the other and hears what comes.

use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_test_support::PATIENCE;
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Decoded, Delivery, Disconnect, Encode, Limits, Packet, PacketId, Peer, Properties, Property,
    Publish, QoS, ReasonCode, Sender, Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter,
    Version, Will, decode,
};

/// A message, as it is said and as it comes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) topic: String,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) payload: Vec<u8>,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, qos, retain, payload } = self;
        write!(f, "{topic} {} {retain} {}", qos.bits(), String::from_utf8_lossy(payload))
    }
}

pub(crate) struct WillWords {
    pub(crate) topic: String,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) payload: Vec<u8>,
}

/// What comes, as far as a dialogue looks at it.
enum Heard {
    Welcome(ReasonCode, bool),
    Message(Said),
    Answer(AckKind, PacketId, ReasonCode),
    Granted(bool),
    Pong,
    Other,
}

pub(crate) struct DialogueClient {
    stream: TcpStream,
    version: Version,
    inbox: Vec<u8>,
    /// Messages that came while something else was awaited.
    messages: VecDeque<Said>,
    next_id: u16,
}

impl DialogueClient {
    pub(crate) fn connect(port: u16, id: &str, version: Version, is_clean: bool, will: Option<&WillWords>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the broker listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self { stream, version, inbox: Vec::new(), messages: VecDeque::new(), next_id: 0 };
        let expiry = [Property::SessionExpiry(if is_clean { 0 } else { 3600 })];
        let will = will.map(|will| Will {
            qos: will.qos,
            retain: will.retain,
            properties: Properties::EMPTY,
            topic: &will.topic,
            payload: &will.payload,
        });
        client.send(&Packet::Connect(Connect {
            version,
            is_bridge: false,
            clean_start: is_clean,
            keep_alive: 60,
            properties: if version.is_v5() { Properties::new(&expiry) } else { Properties::EMPTY },
            client_id: id,
            will,
            user_name: None,
            password: None,
        }));
        client
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(self.version), &mut bytes);
        self.stream.write_all(&bytes).expect("the broker reads");
    }

    fn take_id(&mut self) -> PacketId {
        self.next_id += 1;
        PacketId::new(self.next_id).unwrap()
    }

    /// The next packet, with the answers that MQTT asks for.
    fn hear(&mut self, place: &str) -> Heard {
        let limits = Limits::default().with_sender(Sender::Server);
        loop {
            let (heard, answer, consumed) = match decode(&self.inbox, self.version, &limits) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    let (heard, answer) = look(&packet);
                    (heard, answer, consumed)
                }
                Ok(Decoded::Incomplete { .. }) => {
                    let mut buffer = [0; 4096];
                    let count = self.stream.read(&mut buffer).unwrap_or_else(|error| panic!("{place}: {error}"));
                    assert!(count > 0, "{place}: the broker closed the connection");
                    self.inbox.extend_from_slice(&buffer[..count]);
                    continue;
                }
                Err(error) => panic!("{place}: {}", error.detail),
            };
            self.inbox.drain(..consumed);
            if let Some((kind, id)) = answer {
                self.send(&Packet::Ack(Ack::success(kind, id)));
            }
            if let Heard::Message(said) = heard {
                self.messages.push_back(said);
                return Heard::Other;
            }
            return heard;
        }
    }

    /// Whether the broker has kept the session.
    pub(crate) fn welcome(&mut self, place: &str) -> bool {
        match self.hear(place) {
            Heard::Welcome(ReasonCode::Success, is_kept) => is_kept,
            Heard::Welcome(reason, _) => panic!("{place}: {reason:?}"),
            _ => panic!("{place}: something else came"),
        }
    }

    pub(crate) fn subscribe(&mut self, filter: &str, options: SubscriptionOptions, place: &str) {
        let packet_id = self.take_id();
        let list = [Subscription { filter: TopicFilter::parse(filter, &Limits::default()).unwrap(), options }];
        let subscriptions = SubscriptionList::new(&list);
        self.send(&Packet::Subscribe(Subscribe { packet_id, properties: Properties::EMPTY, subscriptions }));
        loop {
            if let Heard::Granted(is_granted) = self.hear(place) {
                assert!(is_granted, "{place}: not granted");
                return;
            }
        }
    }

    /// Publishes, and waits for every answer that QoS 1 and 2 have.
    pub(crate) fn publish(&mut self, said: &Said, place: &str) {
        let packet_id = self.take_id();
        let delivery = match said.qos {
            QoS::AtMostOnce => Delivery::AtMostOnce,
            QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
            QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        let Said { topic, retain, payload, .. } = said;
        let (retain, properties) = (*retain, Properties::EMPTY);
        self.send(&Packet::Publish(Publish { delivery, retain, topic, properties, payload }));
        let last = match said.qos {
            QoS::AtMostOnce => return,
            QoS::AtLeastOnce => AckKind::PubAck,
            QoS::ExactlyOnce => AckKind::PubComp,
        };
        loop {
            if let Heard::Answer(kind, id, reason) = self.hear(place)
                && id == packet_id
            {
                assert!(!reason.is_failure(), "{place}: {reason:?}");
                if kind == last {
                    return;
                }
            }
        }
    }

    pub(crate) fn message(&mut self, place: &str) -> Said {
        loop {
            if let Some(said) = self.messages.pop_front() {
                return said;
            }
            self.hear(place);
        }
    }

    /// Up to the answer to a sign of life nothing comes.
    pub(crate) fn nothing(&mut self, place: &str) {
        self.send(&Packet::PingReq);
        while !matches!(self.hear(place), Heard::Pong) {}
        assert!(self.messages.is_empty(), "{place}: {:?} came", self.messages);
    }

    pub(crate) fn leave(mut self) {
        let (reason, properties) = (ReasonCode::Success, Properties::EMPTY);
        self.send(&Packet::Disconnect(Disconnect { reason, properties }));
    }
}

/// What a packet is to a dialogue, and what is to be answered.
fn look(packet: &Packet<'_>) -> (Heard, Option<(AckKind, PacketId)>) {
    match packet {
        Packet::ConnAck(answer) => (Heard::Welcome(answer.reason, answer.session_present), None),
        Packet::Publish(publish) => {
            let (topic, payload) = (publish.topic.to_owned(), publish.payload.to_vec());
            let said = Said { topic, qos: publish.delivery.qos(), retain: publish.retain, payload };
            let answer = match publish.delivery {
                Delivery::AtMostOnce => None,
                Delivery::AtLeastOnce { packet_id, .. } => Some((AckKind::PubAck, packet_id)),
                Delivery::ExactlyOnce { packet_id, .. } => Some((AckKind::PubRec, packet_id)),
            };
            (Heard::Message(said), answer)
        }
        Packet::Ack(ack) => {
            let answer = match ack.kind {
                AckKind::PubRec => Some((AckKind::PubRel, ack.packet_id)),
                AckKind::PubRel => Some((AckKind::PubComp, ack.packet_id)),
                AckKind::PubAck | AckKind::PubComp => None,
            };
            (Heard::Answer(ack.kind, ack.packet_id, ack.reason), answer)
        }
        Packet::SubAck(answer) => (Heard::Granted(answer.reasons.iter().all(|reason| !reason.is_failure())), None),
        Packet::PingResp => (Heard::Pong, None),
        _ => (Heard::Other, None),
    }
}
