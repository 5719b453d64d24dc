//! Clients that flood at each door, and hear what the door says to that.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use tidegate_broker::config::ListenerKind;
use tidegate_face_sn::packet::{Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::QoS;

use super::amqp::{Amqp, Frame, counts_of, uint};
use super::sn::SnClient;
use super::{PATIENCE, tcp};

/// What became of messages of a flooder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) taken: u32,
    /// The door has said: slower.
    pub(crate) slowed: u32,
}

impl Fate {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { taken: self.taken + other.taken, slowed: self.slowed + other.slowed }
    }
}

/// Requests of CoAP without an answer.
const AT_ONCE: u32 = 4;

/// A client of CoAP with one topic.
pub(crate) struct Coap {
    pub(crate) socket: UdpSocket,
    pub(crate) path: Vec<u8>,
    next: u16,
}

impl Coap {
    pub(crate) fn open(to: SocketAddr, levels: [&str; 2]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(to).unwrap();
        let level = |name: &str| [&[name.len() as u8][..], name.as_bytes()].concat();
        Self { socket, path: [b"\xb2ps".to_vec(), level(levels[0]), level(levels[1])].concat(), next: 1 }
    }

    /// A confirmable request; its number.
    pub(crate) fn ask(&mut self, method: u8, payload: &[u8]) -> u16 {
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
    pub(crate) fn answer(&self) -> (u8, u16, bool) {
        let mut bytes = [0; 128];
        let length = self.socket.recv(&mut bytes).unwrap();
        if bytes[0] & 0x30 == 0 {
            self.socket.send(&[0x60, 0, bytes[2], bytes[3]]).unwrap();
        }
        // The first option, if nothing is before it.
        let has_age = length > 4 && bytes[4] >> 4 == 13 && bytes[5] == 1 || length > 4 && bytes[4] >> 4 == 14;
        (bytes[1], u16::from_be_bytes([bytes[2], bytes[3]]), has_age)
    }

    pub(crate) fn put(&mut self) -> u8 {
        self.ask(3, b"\xffon");
        self.answer().0
    }

    /// A few at a time: who has many requests open at once is told to wait for its answers, whatever its pace.
    pub(crate) fn flood(&mut self, count: u32) -> Fate {
        (0..count / AT_ONCE).map(|_| self.burst()).fold(Fate::default(), Fate::plus)
    }

    pub(crate) fn burst(&mut self) -> Fate {
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
pub(crate) struct Poster {
    pub(crate) stream: BufReader<TcpStream>,
    path: &'static str,
}

impl Poster {
    pub(crate) fn open(to: SocketAddr, path: &'static str) -> Self {
        Self { stream: BufReader::new(tcp(to)), path }
    }

    /// The status of an answer, and whether it says when to come back.
    pub(crate) fn post(&mut self) -> (u16, bool) {
        let path = self.path;
        let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\non");
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

    pub(crate) fn flood(&mut self, count: u32) -> Fate {
        let mut fate = Fate::default();
        for _ in 0..count {
            match self.post() {
                (202 | 204, _) => fate.taken += 1,
                (429, true) => fate.slowed += 1,
                other => panic!("{other:?}"),
            }
        }
        fate
    }
}

/// At QoS 0, where a refusal is the only answer.
pub(crate) fn flood_sn(client: &SnClient, topic: u16, count: u32) -> Fate {
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
pub(crate) struct Sender {
    pub(crate) container: Amqp,
    sent: u32,
    sent_max: u32,
}

impl Sender {
    pub(crate) fn open(to: SocketAddr, name: &str, topic: &str) -> Self {
        let mut container = Amqp::open(to, name);
        let sent_max = container.attach_sender(0, topic);
        Self { container, sent: 0, sent_max }
    }

    /// How many messages it has sent.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// How many more it may send, as far as it has heard.
    pub(crate) fn credit(&self) -> u32 {
        self.sent_max.saturating_sub(self.sent)
    }

    /// What has no credit is not sent: the word of AMQP for slower.
    pub(crate) fn flood(&mut self, count: u32) -> Fate {
        let (mut left, mut taken) = (count, 0);
        loop {
            let now = left.min(self.sent_max.saturating_sub(self.sent));
            for _ in 0..now {
                self.container.transfer(0, false, b"flood");
            }
            (self.sent, left) = (self.sent + now, left - now);
            let null = || vec![0x40];
            let window = [0, 2048, 0, 2048].map(uint);
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
pub(crate) fn accepted_of(frame: &Frame) -> u32 {
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
pub(crate) enum Flooder {
    Coap(Coap),
    Http(Poster),
    Sn(SnClient, u16),
    Amqp(Sender),
}

impl Flooder {
    pub(crate) fn open(door: ListenerKind, at: SocketAddr) -> Self {
        match door {
            ListenerKind::Coap => Self::Coap(Coap::open(at, ["flood", "coap"])),
            ListenerKind::HttpTopics => Self::Http(Poster::open(at, "/topics/flood/http?qos=0")),
            ListenerKind::Sn => {
                let client = SnClient::connect(at, "flooder");
                let topic = client.register("flood/sn");
                Self::Sn(client, topic)
            }
            _ => Self::Amqp(Sender::open(at, "flooder", "flood/amqp")),
        }
    }

    pub(crate) fn flood(&mut self, count: u32) -> Fate {
        match self {
            Self::Coap(client) => client.flood(count),
            Self::Http(client) => client.flood(count),
            Self::Sn(client, topic) => flood_sn(client, *topic, count),
            Self::Amqp(client) => client.flood(count),
        }
    }
}
