//! A broker on a free port, and a client made of nothing but a socket and the codec.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "shared by several tests; a test may fail")]

pub(crate) mod amqp;
pub(crate) mod floods;
pub(crate) mod sn;
pub(crate) mod tls;
pub(crate) mod ws;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tidegate_broker::Broker;
use tidegate_broker::ask::{Answer, Question};
use tidegate_broker::authenticate::{Anonymous, Authenticator};
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_core::access::Open;
use tidegate_core::ledger::Ledger;
use tidegate_core::report::ClientReport;
use tidegate_core::shard_of;
use tidegate_wire_mqtt::{
    Connect, Decoded, Delivery, Encode, Encoded, Limits, Packet, PacketId, Peer, Properties, Publish, QoS, ReasonCode,
    Sender, Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version, decode,
};

/// Nothing in these tests takes that long, unless it never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One plain listener, two shards, no `$SYS`.
pub(crate) fn config() -> Config {
    Config {
        listeners: vec![listener(ListenerKind::Mqtt)],
        shards: 2,
        sys_interval: Duration::ZERO,
        drain_timeout: Duration::from_secs(5),
        ..Config::default()
    }
}

pub(crate) fn listener(kind: ListenerKind) -> Listener {
    Listener::new(kind, "127.0.0.1:0".parse().unwrap())
}

pub(crate) fn start(config: Config) -> Broker {
    start_with(config, Arc::new(Anonymous))
}

pub(crate) fn start_with(config: Config, authenticator: Arc<dyn Authenticator>) -> Broker {
    Broker::start(config, authenticator, Arc::new(Open)).unwrap()
}

/// All about a client that is connected.
pub(crate) fn report(broker: &Broker, client_id: &str) -> ClientReport {
    let handle = broker.handle();
    let (reply, answer) = sync_channel(1);
    let question = Question::Client { client_id: client_id.into() };
    handle.ask(handle.shard_of(client_id), question, move |answer| drop(reply.try_send(answer))).unwrap();
    match answer.recv_timeout(PATIENCE).unwrap() {
        Answer::Client(Some(detail)) => detail.client,
        other => panic!("{client_id}: {other:?}"),
    }
}

/// What became of its messages.
pub(crate) fn ledger(broker: &Broker, client_id: &str) -> Ledger {
    report(broker, client_id).ledger
}

/// Where the broker listens for this.
pub(crate) fn address(broker: &Broker, kind: ListenerKind) -> SocketAddr {
    broker.addresses().into_iter().find(|(listener, _)| *listener == kind).unwrap().1
}

/// A client identifier that belongs to this shard.
pub(crate) fn id_on_shard(shard: usize, shards: usize) -> String {
    (0..1000).map(|number| format!("client{number}")).find(|id| shard_of(id, shards) == shard).unwrap()
}

pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A client.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    version: Version,
}

/// A message as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A CONNECT with a clean start.
pub(crate) fn connect_packet(version: Version, client_id: &str) -> Connect<'_> {
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive: 60,
        properties: Properties::EMPTY,
        client_id,
        will: None,
        user_name: None,
        password: None,
    }
}

pub(crate) fn encode(packet: &impl Encode, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(matches!(packet.encode(Peer::new(version), &mut out), Encoded::Written { .. }));
    out
}

impl Client {
    pub(crate) fn new(stream: impl Stream + 'static, version: Version) -> Self {
        Self { stream: Box::new(stream), buffer: Vec::new(), version }
    }

    /// Connected over TCP.
    pub(crate) fn tcp(address: SocketAddr, version: Version, client_id: &str) -> Self {
        Self::new(tcp(address), version).connected(client_id)
    }

    /// Says hello, and is welcome.
    pub(crate) fn connected(mut self, client_id: &str) -> Self {
        self.send(&connect_packet(self.version, client_id));
        assert_eq!(self.connack(), ReasonCode::Success);
        self
    }

    pub(crate) fn send(&mut self, packet: &impl Encode) {
        let bytes = encode(packet, self.version);
        self.send_bytes(&bytes);
    }

    /// The same to a broker that may have closed already; whether it was sent.
    pub(crate) fn try_send(&mut self, packet: &impl Encode) -> bool {
        let bytes = encode(packet, self.version);
        self.stream.write_all(&bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// The next packet.
    pub(crate) fn next<T>(&mut self, look: impl FnOnce(&Packet<'_>) -> T) -> T {
        let limits = Limits { packet_bytes_max: 1 << 24, ..Limits::default().with_sender(Sender::Server) };
        loop {
            if let Decoded::Packet { packet, consumed } = decode(&self.buffer, self.version, &limits).unwrap() {
                let seen = look(&packet);
                self.buffer.drain(..consumed);
                return seen;
            }
            assert!(self.read().unwrap() > 0, "closed while a packet was expected; {} bytes left", self.buffer.len());
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes)?;
        self.buffer.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    pub(crate) fn connack(&mut self) -> ReasonCode {
        self.next(|packet| match packet {
            Packet::ConnAck(connack) => connack.reason,
            other => panic!("CONNACK expected: {other:?}"),
        })
    }

    pub(crate) fn ping(&mut self) {
        self.send_bytes(b"\xc0\x00");
        self.next(|packet| assert_eq!(*packet, Packet::PingResp));
    }

    pub(crate) fn subscribe(&mut self, filter: &str, qos: QoS) {
        let filter = TopicFilter::parse(filter, &Limits::default()).unwrap();
        let list = [Subscription { filter, options: SubscriptionOptions::with_qos(qos) }];
        self.send(&Subscribe {
            packet_id: PacketId::new(7).unwrap(),
            properties: Properties::EMPTY,
            subscriptions: SubscriptionList::new(&list),
        });
        self.next(|packet| assert!(matches!(packet, Packet::SubAck(_)), "{packet:?}"));
    }

    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.send(&publish(topic, payload));
    }

    pub(crate) fn message(&mut self) -> Message {
        self.next(|packet| match packet {
            Packet::Publish(publish) => Message { topic: publish.topic.to_owned(), payload: publish.payload.to_vec() },
            other => panic!("PUBLISH expected: {other:?}"),
        })
    }

    pub(crate) fn disconnect_reason(&mut self) -> ReasonCode {
        self.next(|packet| match packet {
            Packet::Disconnect(disconnect) => disconnect.reason,
            other => panic!("DISCONNECT expected: {other:?}"),
        })
    }

    /// What comes first; empty if the broker closes instead.
    pub(crate) fn rest_or_first_byte(&mut self) -> Vec<u8> {
        if !matches!(self.read(), Ok(1..)) {
            return Vec::new();
        }
        std::mem::take(&mut self.buffer)
    }

    /// What comes until the broker closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.read() {
                Ok(0) => return std::mem::take(&mut self.buffer),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("not closed"),
                // A peer that is gone without close_notify or with a reset is gone, too.
                Err(_) => return std::mem::take(&mut self.buffer),
            }
        }
    }
}

pub(crate) fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish { delivery: Delivery::AtMostOnce, retain: false, topic, properties: Properties::EMPTY, payload }
}
