//! A client of MQTT-SN made of nothing but a socket and the codec.

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU16;

use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::QoS;

use super::PATIENCE;

pub(crate) struct SnClient(pub(crate) UdpSocket);

/// A message as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: TopicRef,
    pub(crate) payload: String,
}

impl SnClient {
    pub(crate) fn open(to: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(to).unwrap();
        Self(socket)
    }

    /// One that is connected.
    pub(crate) fn connect(to: SocketAddr, client_id: &str) -> Self {
        let client = Self::open(to);
        client.say(Packet::Connect { will: false, clean: true, protocol: 1, seconds: 60, client_id });
        client.hear(|packet| assert_eq!(packet, Packet::ConnAck(ReturnCode::Accepted)));
        client
    }

    pub(crate) fn say(&self, packet: Packet<'_>) {
        self.0.send(&packet.bytes()).unwrap();
    }

    /// What comes next.
    pub(crate) fn hear<T>(&self, with: impl FnOnce(Packet<'_>) -> T) -> T {
        let mut bytes = [0; 2048];
        let length = self.0.recv(&mut bytes).unwrap();
        with(Packet::read(&bytes[..length]).unwrap())
    }

    /// Subscribes; the identifier.
    pub(crate) fn subscribe(&self, topic: FilterRef<'_>, qos: QoS) -> u16 {
        self.say(Packet::Subscribe { dup: false, qos, message: NonZeroU16::MIN, topic });
        self.hear(|packet| match packet {
            Packet::SubAck { topic_id, code: ReturnCode::Accepted, .. } => topic_id,
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn register(&self, name: &str) -> u16 {
        self.say(Packet::Register { topic_id: 0, message: 1, name });
        self.hear(|packet| match packet {
            Packet::RegAck { topic_id, message: 1, code: ReturnCode::Accepted } => topic_id,
            other => panic!("{other:?}"),
        })
    }

    /// Publishes at QoS 1; the answer.
    pub(crate) fn publish(&self, topic: TopicRef, message: u16, payload: &str) -> ReturnCode {
        let quality = Quality::Connected(QoS::AtLeastOnce);
        let payload = payload.as_bytes();
        self.say(Packet::Publish(Publish { dup: false, quality, retain: false, topic, message, payload }));
        self.hear(|packet| match packet {
            Packet::PubAck { topic: about, message: number, code } => {
                assert_eq!((about, number), (topic.word(), message));
                code
            }
            other => panic!("{other:?}"),
        })
    }

    /// The next message, which is acknowledged if it has to be, as is the word that names its topic.
    pub(crate) fn message(&self) -> Message {
        loop {
            let found = self.hear(|packet| match packet {
                Packet::Register { topic_id, message, .. } => {
                    self.say(Packet::RegAck { topic_id, message, code: ReturnCode::Accepted });
                    None
                }
                Packet::Publish(publish) => {
                    let (topic, message) = (publish.topic.word(), publish.message);
                    if message != 0 {
                        self.say(Packet::PubAck { topic, message, code: ReturnCode::Accepted });
                    }
                    let payload = String::from_utf8(publish.payload.to_vec()).unwrap();
                    Some(Message { topic: publish.topic, payload })
                }
                other => panic!("{other:?}"),
            });
            if let Some(message) = found {
                return message;
            }
        }
    }
}
