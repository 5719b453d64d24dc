//! One flooder at a door, and somebody at each door who does what it always does: the flooder is slowed in the words of its door,
//! and nobody else notices. With control off nobody is slowed, and nobody else notices either: what is compared is the same traffic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use support::amqp::{Amqp, counts_of};
use support::sn::SnClient;
use support::{Client, PATIENCE, address, config, listener, start, tcp};
use tidegate_broker::Broker;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::settings::{BackOff, Rate, Settings};
use tidegate_face_sn::packet::{Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::{QoS, Version};

const DOORS: [ListenerKind; 4] = [ListenerKind::Coap, ListenerKind::HttpTopics, ListenerKind::Sn, ListenerKind::Amqp];
const ROUNDS: usize = 5;
/// Messages of a flooder in each round.
const FLOOD: u32 = 24;
/// Requests of CoAP without an answer.
const AT_ONCE: u32 = 4;

/// What became of messages of a flooder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    taken: u32,
    /// The door has said: slower.
    slowed: u32,
}

impl Fate {
    fn plus(self, other: Self) -> Self {
        Self { taken: self.taken + other.taken, slowed: self.slowed + other.slowed }
    }
}

/// Every publisher may send eight messages at once, and one each ten seconds; or whatever it likes.
fn broker(is_on: bool) -> Broker {
    let listeners = [ListenerKind::Mqtt].into_iter().chain(DOORS).map(listener).collect();
    let back_off = if is_on {
        BackOff { rate: Some(Rate::new(1, Duration::from_secs(10), 8)), ..BackOff::default() }
    } else {
        BackOff { rhythm: None, rate: None, ..BackOff::default() }
    };
    start(Config { listeners, settings: Settings { back_off, ..Settings::default() }, ..config() })
}

/// A client of CoAP with one topic.
struct Coap {
    socket: UdpSocket,
    path: Vec<u8>,
    next: u16,
}

impl Coap {
    fn open(to: SocketAddr, levels: [&str; 2]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(to).unwrap();
        let level = |name: &str| [&[name.len() as u8][..], name.as_bytes()].concat();
        Self { socket, path: [b"\xb2ps".to_vec(), level(levels[0]), level(levels[1])].concat(), next: 1 }
    }

    /// A confirmable request; its number.
    fn ask(&mut self, method: u8, payload: &[u8]) -> u16 {
        let number = self.next;
        self.next += 1;
        let mut bytes = vec![0x40, method];
        bytes.extend(number.to_be_bytes());
        bytes.extend(&self.path);
        bytes.extend(payload);
        self.socket.send(&bytes).unwrap();
        number
    }

    /// The code of the next answer, the number that it answers, and whether it says when to come back (Max-Age, option 14).
    fn answer(&self) -> (u8, u16, bool) {
        let mut bytes = [0; 128];
        let length = self.socket.recv(&mut bytes).unwrap();
        if bytes[0] & 0x30 == 0 {
            self.socket.send(&[0x60, 0, bytes[2], bytes[3]]).unwrap();
        }
        // The first option, if nothing is before it.
        let has_age = length > 4 && bytes[4] >> 4 == 13 && bytes[5] == 1 || length > 4 && bytes[4] >> 4 == 14;
        (bytes[1], u16::from_be_bytes([bytes[2], bytes[3]]), has_age)
    }

    fn put(&mut self) -> u8 {
        self.ask(3, b"\xffon");
        self.answer().0
    }

    /// A few at a time: who has many requests open at once is told to wait for its answers, whatever its pace.
    fn flood(&mut self, count: u32) -> Fate {
        (0..count / AT_ONCE).map(|_| self.burst()).fold(Fate::default(), Fate::plus)
    }

    fn burst(&mut self) -> Fate {
        let mut fate = Fate::default();
        for _ in 0..AT_ONCE {
            self.ask(3, b"\xffflood");
        }
        // What is said after all of them is answered after all of them that are answered now.
        let last = self.ask(1, b"");
        loop {
            let (code, number, has_age) = self.answer();
            match code {
                _ if number == last => return fate,
                0x41 | 0x44 => fate.taken += 1,
                0x9d => {
                    assert!(has_age, "4.29 says when to come back");
                    fate.slowed += 1;
                }
                other => panic!("{}.{:02}", other >> 5, other & 31),
            }
        }
    }
}

/// A client of HTTP on one connection.
struct Poster {
    stream: BufReader<TcpStream>,
    path: &'static str,
}

impl Poster {
    fn open(to: SocketAddr, path: &'static str) -> Self {
        Self { stream: BufReader::new(tcp(to)), path }
    }

    /// The status of an answer, and whether it says when to come back.
    fn post(&mut self) -> (u16, bool) {
        let path = self.path;
        let request = format!("POST {path}?qos=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\non");
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length, mut has_time) = (0, 0, false);
        loop {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).unwrap() > 0, "the connection ended");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().unwrap();
            }
            has_time |= line.starts_with("retry-after: ");
            if line.is_empty() {
                self.stream.read_exact(&mut vec![0; length]).unwrap();
                return (status, has_time);
            }
        }
    }

    fn flood(&mut self, count: u32) -> Fate {
        let mut fate = Fate::default();
        for _ in 0..count {
            match self.post() {
                (202, _) => fate.taken += 1,
                (429, true) => fate.slowed += 1,
                other => panic!("{other:?}"),
            }
        }
        fate
    }
}

/// At QoS 0, where a refusal is the only answer.
fn flood_sn(client: &SnClient, topic: u16, count: u32) -> Fate {
    let (quality, topic) = (Quality::Connected(QoS::AtMostOnce), TopicRef::Id(topic));
    for _ in 0..count {
        let publish = Publish { dup: false, quality, retain: false, topic, message: 0, payload: b"flood" };
        client.say(Packet::Publish(publish));
    }
    client.say(Packet::PingReq { client_id: "" });
    let mut slowed = 0;
    loop {
        let is_over = client.hear(|packet| match packet {
            Packet::PubAck { code: ReturnCode::Congestion, .. } => {
                slowed += 1;
                false
            }
            Packet::PingResp => true,
            other => panic!("{other:?}"),
        });
        if is_over {
            // Also of messages that were held in a round before.
            return Fate { taken: count.saturating_sub(slowed), slowed };
        }
    }
}

/// A container that sends as many messages as it has credit for.
struct Sender {
    container: Amqp,
    sent: u32,
    sent_max: u32,
}

impl Sender {
    fn open(to: SocketAddr, name: &str, topic: &str) -> Self {
        let mut container = Amqp::open(to, name);
        let sent_max = container.attach_sender(0, topic);
        Self { container, sent: 0, sent_max }
    }

    /// What has no credit is not sent: the word of AMQP for slower.
    fn flood(&mut self, count: u32) -> Fate {
        let (mut left, mut taken) = (count, 0);
        loop {
            let now = left.min(self.sent_max.saturating_sub(self.sent));
            for _ in 0..now {
                self.container.transfer(0, false, b"flood");
            }
            (self.sent, left) = (self.sent + now, left - now);
            let null = || vec![0x40];
            let window = [0, 2048, 0, 2048].map(support::amqp::uint);
            let echo = [null(), null(), null(), null(), vec![0x42], vec![0x41]];
            self.container.send(0, 0x13, &[&window[..], &echo].concat());
            loop {
                let frame = self.container.frame();
                match (frame.code, counts_of(&frame)) {
                    (0x13, Some((seen, credit))) => self.sent_max = seen + credit,
                    (0x13, None) => break,
                    (0x15, _) => taken += accepted_of(&frame),
                    (other, _) => panic!("{other:#x}: {frame:?}"),
                }
            }
            if left == 0 || self.sent >= self.sent_max {
                return Fate { taken, slowed: count - taken };
            }
        }
    }
}

/// How many messages a disposition accepts.
fn accepted_of(frame: &support::amqp::Frame) -> u32 {
    if !frame.has(&[0, 0x53, 0x24]) {
        return 0;
    }
    let mut numbers = Vec::new();
    // Behind the descriptor and the head of the list: the role, the first, and the last if it is another.
    let at = if frame.body[3] == 0xc0 { 6 } else { 12 };
    let mut rest = &frame.body[at + 1..];
    for _ in 0..2 {
        let (number, length) = match rest[0] {
            0x43 => (Some(0), 1),
            0x52 => (Some(u32::from(rest[1])), 2),
            0x70 => (Some(u32::from_be_bytes(rest[1..5].try_into().unwrap())), 5),
            _ => (None, 1),
        };
        numbers.extend(number);
        rest = &rest[length..];
    }
    numbers.get(1).map_or(1, |last| last - numbers[0] + 1)
}

/// Who floods, at one of the doors.
enum Flooder {
    Coap(Coap),
    Http(Poster),
    Sn(SnClient, u16),
    Amqp(Sender),
}

impl Flooder {
    fn open(door: ListenerKind, at: SocketAddr) -> Self {
        match door {
            ListenerKind::Coap => Self::Coap(Coap::open(at, ["flood", "coap"])),
            ListenerKind::HttpTopics => Self::Http(Poster::open(at, "/topics/flood/http")),
            ListenerKind::Sn => {
                let client = SnClient::connect(at, "flooder");
                let topic = client.register("flood/sn");
                Self::Sn(client, topic)
            }
            _ => Self::Amqp(Sender::open(at, "flooder", "flood/amqp")),
        }
    }

    fn flood(&mut self) -> Fate {
        match self {
            Self::Coap(client) => client.flood(FLOOD),
            Self::Http(client) => client.flood(FLOOD),
            Self::Sn(client, topic) => flood_sn(client, *topic, FLOOD),
            Self::Amqp(client) => client.flood(FLOOD),
        }
    }
}

/// Somebody at each door, and who hears them all.
struct Innocents {
    mqtt: Client,
    coap: Coap,
    http: Poster,
    sn: (SnClient, u16),
    amqp: Amqp,
    hearer: Client,
}

impl Innocents {
    fn open(broker: &Broker) -> Self {
        let at = |kind| address(broker, kind);
        let mut hearer = Client::tcp(at(ListenerKind::Mqtt), Version::V5, "hearer");
        hearer.subscribe("calm/#", QoS::AtMostOnce);
        let node = SnClient::connect(at(ListenerKind::Sn), "calm");
        let topic = node.register("calm/sn");
        let mut amqp = Amqp::open(at(ListenerKind::Amqp), "calm-amqp");
        amqp.attach_sender(0, "calm/amqp");
        Self {
            mqtt: Client::tcp(at(ListenerKind::Mqtt), Version::V311, "calm-mqtt"),
            coap: Coap::open(at(ListenerKind::Coap), ["calm", "coap"]),
            http: Poster::open(at(ListenerKind::HttpTopics), "/topics/calm/http"),
            sn: (node, topic),
            amqp,
            hearer,
        }
    }

    /// Each publishes once, is answered as ever, and is heard.
    fn go_on(&mut self, round: u16) {
        self.mqtt.publish("calm/mqtt", b"on");
        let code = self.coap.put();
        assert!(matches!(code, 0x41 | 0x44), "CoAP: {}.{:02}", code >> 5, code & 31);
        assert_eq!(self.http.post().0, 202, "HTTP");
        let (node, topic) = &self.sn;
        assert_eq!(node.publish(TopicRef::Id(*topic), round + 1, "on"), ReturnCode::Accepted, "MQTT-SN");
        self.amqp.publish(0, b"on");
        let mut heard: Vec<String> = (0..5).map(|_| self.hearer.message().topic).collect();
        heard.sort_unstable();
        assert_eq!(heard, ["calm/amqp", "calm/coap", "calm/http", "calm/mqtt", "calm/sn"], "round {round}");
    }
}

fn flood_at(door: ListenerKind, is_on: bool) -> Fate {
    let broker = broker(is_on);
    let mut innocents = Innocents::open(&broker);
    let mut flooder = Flooder::open(door, address(&broker, door));
    let mut all = Fate::default();
    for round in 0..ROUNDS {
        all = all.plus(flooder.flood());
        innocents.go_on(round as u16);
    }
    broker.shutdown();
    all
}

#[test]
fn a_flooder_at_each_door_is_slowed_in_its_words_and_nobody_else_notices() {
    // Who floods over AMQP is in amqp.rs: its word is credit.
    for door in [ListenerKind::Coap, ListenerKind::HttpTopics, ListenerKind::Sn] {
        let fate = flood_at(door, true);
        assert!(fate.taken >= 1 && fate.slowed > 10, "{door:?}: {fate:?}");
    }
}

#[test]
fn with_control_off_the_same_flood_is_taken_and_nobody_else_notices() {
    for door in DOORS {
        let fate = flood_at(door, false);
        assert_eq!(fate, Fate { taken: FLOOD * ROUNDS as u32, slowed: 0 }, "{door:?}");
    }
}
