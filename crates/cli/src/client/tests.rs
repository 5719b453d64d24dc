//! The client against a scripted broker: what it does when the other side has its own ideas.

use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::thread::JoinHandle;

use tidegate_wire_mqtt::{Ack, AckKind, ConnAck, Encode, Peer};

use super::*;

/// The broker's end of a connection.
struct Script {
    stream: TcpStream,
    version: Version,
    inbox: Vec<u8>,
}

impl Script {
    fn say(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(self.version), &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn welcome(&mut self, properties: &[Property<'_>]) {
        self.expect("Connect");
        let properties = Properties::new(properties);
        self.say(&Packet::ConnAck(ConnAck { session_present: false, reason: ReasonCode::Success, properties }));
    }

    /// Reads one packet, which must be of this kind.
    fn expect(&mut self, kind: &str) {
        loop {
            if let Decoded::Packet { packet, consumed } = decode(&self.inbox, self.version, &Limits::default()).unwrap()
            {
                assert_eq!(format!("{:?}", packet.kind()), kind);
                self.inbox.drain(..consumed);
                return;
            }
            let mut buffer = [0; 4096];
            let len = self.stream.read(&mut buffer).unwrap();
            assert!(len > 0, "the client left instead of sending {kind}");
            self.inbox.extend_from_slice(&buffer[..len]);
        }
    }

    fn publish(&mut self, packet_id: u16, dup: bool, payload: &[u8]) {
        let delivery = Delivery::ExactlyOnce { packet_id: PacketId::new(packet_id).unwrap(), dup };
        let properties = Properties::EMPTY;
        self.say(&Packet::Publish(Publish { delivery, retain: false, topic: "t", properties, payload }));
    }
}

fn broker(version: Version, script: impl FnOnce(&mut Script) + Send + 'static) -> (BrokerAddress, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        script(&mut Script { stream, version, inbox: Vec::new() });
    });
    (BrokerAddress { host: "127.0.0.1".into(), port, tls: None, from: None }, thread)
}

fn hello(version: Version) -> ConnectOptions {
    ConnectOptions::new(version, "c")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[test]
fn a_refusal_is_an_exit_code_with_the_brokers_words() {
    let (target, thread) = broker(Version::V5, |script| {
        script.expect("Connect");
        let list = [Property::ReasonString("come back later")];
        let properties = Properties::new(&list);
        script.say(&Packet::ConnAck(ConnAck { session_present: false, reason: ReasonCode::ServerBusy, properties }));
    });
    let error = BlockingClient::connect(&target, hello(Version::V5)).err().unwrap();
    assert_eq!(error.exit_code(), 0x89);
    assert_eq!(error.to_string(), "connection refused: Server busy (0x89) (come back later)");
    thread.join().unwrap();
}

#[test]
fn the_window_of_the_broker_is_kept() {
    let (target, thread) = broker(Version::V5, |script| {
        script.welcome(&[Property::ReceiveMaximum(NonZeroU16::MIN)]);
        script.expect("Publish");
        let refused = Ack { reason: ReasonCode::QuotaExceeded, ..Ack::success(AckKind::PubAck, PacketId::MIN) };
        script.say(&Packet::Ack(refused));
        script.expect("Disconnect");
    });
    let mut client = BlockingClient::connect(&target, hello(Version::V5)).unwrap();
    assert!(client.has_room());
    client.publish("t", b"x", QoS::AtLeastOnce, false).unwrap();
    assert!(!client.has_room());
    let answer = client.next(Some(soon())).unwrap();
    assert!(matches!(answer, Happened::Published(_, ReasonCode::QuotaExceeded, None)), "{answer:?}");
    assert!(client.has_room());
    client.disconnect();
    thread.join().unwrap();
}

#[test]
fn a_packet_that_the_broker_would_refuse_is_not_sent() {
    let (target, thread) = broker(Version::V5, |script| {
        script.welcome(&[Property::MaximumPacketSize(32.try_into().unwrap())]);
        script.expect("Disconnect");
    });
    let mut client = BlockingClient::connect(&target, hello(Version::V5)).unwrap();
    let error = client.publish("t", &[0; 100], QoS::AtMostOnce, false).unwrap_err();
    assert_eq!(error.exit_code(), 25);
    client.disconnect();
    thread.join().unwrap();
}

#[test]
fn exactly_once_is_once_also_when_it_is_sent_twice() {
    let (target, thread) = broker(Version::V311, |script| {
        script.welcome(&[]);
        script.publish(7, false, b"one");
        script.publish(7, true, b"one");
        script.expect("PubRec");
        script.expect("PubRec");
        script.say(&Packet::Ack(Ack::success(AckKind::PubRel, PacketId::new(7).unwrap())));
        script.expect("PubComp");
        // Released: the identifier is free for another message.
        script.publish(7, false, b"two");
        script.expect("PubRec");
    });
    let mut client = BlockingClient::connect(&target, hello(Version::V311)).unwrap();
    let mut payloads = Vec::new();
    while payloads.len() < 2 {
        if let Happened::Message(message) = client.next(Some(soon())).unwrap() {
            payloads.push(message.payload);
        }
    }
    assert_eq!(payloads, [b"one", b"two"]);
    thread.join().unwrap();
}

#[test]
fn packets_in_pieces_are_put_together_and_nonsense_ends_it() {
    let (target, thread) = broker(Version::V311, |script| {
        script.welcome(&[]);
        for byte in b"\x30\x05\x00\x01txy" {
            script.stream.write_all(&[*byte]).unwrap();
        }
        script.stream.write_all(b"\xff\xff").unwrap();
    });
    let mut client = BlockingClient::connect(&target, hello(Version::V311)).unwrap();
    let message = client.next(Some(soon())).unwrap();
    assert!(matches!(&message, Happened::Message(message) if message.payload == b"xy"), "{message:?}");
    let error = client.next(Some(soon())).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    thread.join().unwrap();
}
