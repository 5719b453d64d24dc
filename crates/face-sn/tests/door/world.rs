//! A shard with this door, in virtual time, and clients that say what they want.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::access::{Identity, Open, Policy};
use tidegate_core::datagrams::{Admission, DatagramEndpoint, NotAdmitted};
use tidegate_core::settings::Settings;
use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_face_sn::{PredefinedTopics, SnEndpoint};
use tidegate_wire_mqtt::QoS;

pub(crate) struct World {
    pub shard: Shard,
    pub endpoint: SnEndpoint,
    pub now: Timestamp,
    pub verdict: Result<(), NotAdmitted>,
}

/// What was said, to whom.
pub(crate) type Said = Vec<(SocketAddr, Vec<u8>)>;

struct Verdict(Result<(), NotAdmitted>);

impl Admission for Verdict {
    fn admit(&mut self, from: SocketAddr, _: &str) -> Result<Identity, NotAdmitted> {
        self.0.map(|()| Identity { peer: from.to_string().into(), listener: "sn", ..Identity::default() })
    }
}

/// A client of this machine.
pub(crate) fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// One of another.
pub(crate) fn far(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], port))
}

/// The number of the gateway.
pub(crate) const GATEWAY: u8 = 9;

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), Arc::new(Open))
    }

    pub(crate) fn with(settings: Settings, policy: Arc<dyn Policy>) -> Self {
        let shard = Shard::new(0, 1, Arc::new(settings), policy, 7);
        let now = Timestamp::from_secs_f64(1000.0);
        let topics = PredefinedTopics::parse(["1=room/t", "2=alarm"]).unwrap();
        let endpoint = SnEndpoint::new([1, 2], Arc::new(topics), GATEWAY);
        Self { shard, endpoint, now, verdict: Ok(()) }
    }

    /// What is said to everybody when this comes.
    pub(crate) fn receive(&mut self, from: SocketAddr, packet: Packet<'_>) -> Said {
        self.receive_bytes(from, &packet.bytes())
    }

    pub(crate) fn receive_bytes(&mut self, from: SocketAddr, bytes: &[u8]) -> Said {
        let mut admission = Verdict(self.verdict);
        self.endpoint.handle_datagram(&mut self.shard, (from, bytes), &mut admission, self.now, self.now);
        self.turn()
    }

    /// A turn of a driver.
    pub(crate) fn turn(&mut self) -> Said {
        let mut said = Vec::new();
        self.shard.turn(self.now);
        self.endpoint.turn(&mut self.shard, self.now);
        while let Some(reply) = self.endpoint.poll_reply() {
            said.push(reply);
        }
        for _ in 0..1000 {
            let Some(conn) = self.shard.poll_write() else { break };
            self.endpoint.write(&mut self.shard, conn, self.now, &mut |to, bytes| said.push((to, bytes.to_vec())));
        }
        while let Some(conn) = self.shard.poll_close() {
            self.endpoint.write(&mut self.shard, conn, self.now, &mut |to, bytes| said.push((to, bytes.to_vec())));
            self.endpoint.close(&mut self.shard, conn, self.now);
        }
        while self.endpoint.poll_left().is_some() {}
        while self.shard.poll_event().is_some() {}
        said
    }

    /// Time passes until somebody has something to say, or all of it.
    pub(crate) fn wait(&mut self, most: Duration) -> Said {
        let until = self.now + most;
        for _ in 0..10_000 {
            let due = [self.endpoint.poll_timeout(), self.shard.poll_timeout()].into_iter().flatten().min();
            self.now = due.unwrap_or(until).min(until).max(self.now);
            let said = self.turn();
            if !said.is_empty() || self.now >= until {
                return said;
            }
        }
        panic!("time does not pass");
    }

    /// A client is connected, for as long as it likes.
    pub(crate) fn connect(&mut self, from: SocketAddr, client_id: &str) {
        let said = self.receive(from, connect(client_id));
        let heard = packets(&said, from);
        assert_eq!(heard[0], Packet::ConnAck(ReturnCode::Accepted));
        match heard[1..] {
            [] => assert!(from.ip().is_loopback()),
            // One from elsewhere shows that it is there.
            [Packet::Register { topic_id, message, .. }] => {
                let code = ReturnCode::Accepted;
                assert!(self.receive(from, Packet::RegAck { topic_id, message, code }).is_empty());
            }
            ref other => panic!("{other:?}"),
        }
    }

    /// A client subscribes; the topic identifier.
    pub(crate) fn subscribe(&mut self, from: SocketAddr, topic: FilterRef<'_>, qos: QoS) -> u16 {
        let message = number(77);
        let said = self.receive(from, Packet::Subscribe { dup: false, qos, message, topic });
        match packets(&said, from)[0] {
            Packet::SubAck { qos: granted, topic_id, message: 77, code: ReturnCode::Accepted } => {
                assert_eq!(granted, qos);
                topic_id
            }
            other => panic!("{other:?}"),
        }
    }

    /// A client names a topic; its identifier.
    pub(crate) fn register(&mut self, from: SocketAddr, name: &str) -> u16 {
        let said = self.receive(from, Packet::Register { topic_id: 0, message: 5, name });
        match packets(&said, from)[..] {
            [Packet::RegAck { topic_id, message: 5, code: ReturnCode::Accepted }] => topic_id,
            ref other => panic!("{other:?}"),
        }
    }
}

/// A CONNECT of a client that wants nothing special.
pub(crate) fn connect(client_id: &str) -> Packet<'_> {
    Packet::Connect { will: false, clean: true, protocol: 1, seconds: 60, client_id }
}

pub(crate) fn number(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

/// A message.
pub(crate) fn publish(topic: TopicRef, qos: QoS, message: u16, payload: &[u8]) -> Publish<'_> {
    Publish { dup: false, quality: Quality::Connected(qos), retain: false, topic, message, payload }
}

/// Those that went to an address.
pub(crate) fn packets(said: &Said, address: SocketAddr) -> Vec<Packet<'_>> {
    said.iter().filter(|(to, _)| *to == address).map(|(_, bytes)| Packet::read(bytes).unwrap()).collect()
}
