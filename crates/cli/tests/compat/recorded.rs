//! Recorded dialogues: the bytes that real software said to mosquitto, and what mosquitto answered. They are said again to this
//! broker, and everything that mosquitto sent has to come, and nothing else.
//!
//! ```text
//! # a comment
//! c1 > HEX  what it is      the software says this packet on its connection c1
//! c1 < HEX  what it is      mosquitto sent it: its like has to come
//! c1 ! cut                  the connection ended without a DISCONNECT
//! ```
//! What need not be equal: the properties of CONNACK (each broker has its own limits), packet identifiers of the broker, DUP, whether
//! an acknowledgement that is a success says that nobody listens, and the order of messages of different topics. What the
//! software answered to messages is not said again as it was, because it names mosquitto's identifiers: each message is answered.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_test_support::{Broker, Launch, PATIENCE};
use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Publish, Sender, Version, decode,
};

/// Says it all to a broker, and hears what must come.
pub(crate) fn replay(name: &str, text: &str) {
    let mut stage = ReplayStage { broker: Launch::new().start(), lines: BTreeMap::new(), awaited: Vec::new() };
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let place = format!("{name}.txt:{}", number + 1);
        let mut words = line.split(' ');
        let (who, sign, packet) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        if sign == "<" {
            stage.awaited.push((who.to_owned(), bytes(packet), place));
            continue;
        }
        stage.settle();
        if sign == "!" {
            stage.lines.remove(who);
        } else {
            stage.say(who, &bytes(packet), &place);
        }
    }
    stage.settle();
    for (who, line) in &mut stage.lines {
        line.await_silence(&format!("{name}.txt: {who} at the end"));
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two digits")).collect()
}

struct ReplayStage {
    broker: Broker,
    lines: BTreeMap<String, ReplayLine>,
    /// What has to come before the next word is said.
    awaited: Vec<(String, Vec<u8>, String)>,
}

impl ReplayStage {
    fn say(&mut self, who: &str, packet: &[u8], place: &str) {
        match packet[0] >> 4 {
            1 => {
                let line = ReplayLine::open(self.broker.port("mqtt"), version_of(packet));
                self.lines.insert(who.to_owned(), line);
            }
            // Answers to messages: PUBACK, PUBREC, PUBCOMP.
            4 | 5 | 7 => return,
            _ => {}
        }
        let line = self.lines.get_mut(who).unwrap_or_else(|| panic!("{place}: {who} is not connected"));
        line.stream.write_all(packet).unwrap_or_else(|error| panic!("{place}: {error}"));
        if packet[0] >> 4 == 14 {
            self.lines.remove(who);
        }
    }

    fn settle(&mut self) {
        for (who, packet, place) in std::mem::take(&mut self.awaited) {
            let line = self.lines.get_mut(&who).unwrap_or_else(|| panic!("{place}: {who} is not connected"));
            line.await_like(&packet, &place);
        }
    }
}

/// Level 5 in the variable header of a CONNECT whose length has one or two bytes.
fn version_of(connect: &[u8]) -> Version {
    let name = connect.windows(4).position(|window| window == b"MQTT").expect("MQTT 3.1.1 or 5");
    if connect[name + 4] == 5 { Version::V5 } else { Version::V311 }
}

/// What is compared of a packet: of what kind and topic it is, and everything that has to be equal.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    kind: String,
    text: String,
}

struct ReplayLine {
    stream: TcpStream,
    version: Version,
    inbox: Vec<u8>,
    /// What came and was not awaited yet.
    heard: Vec<Heard>,
}

impl ReplayLine {
    fn open(port: u16, version: Version) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the broker listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, version, inbox: Vec::new(), heard: Vec::new() }
    }

    fn await_like(&mut self, packet: &[u8], place: &str) {
        let limits = limits();
        let Ok(Decoded::Packet { packet, .. }) = decode(packet, self.version, &limits) else {
            panic!("{place}: no packet was recorded")
        };
        let wanted = heard(&packet);
        loop {
            if let Some(found) = self.heard.iter().position(|heard| heard.kind == wanted.kind) {
                assert_eq!(self.heard.remove(found), wanted, "{place}");
                return;
            }
            self.hear(place);
        }
    }

    /// Up to the answer to a sign of life nothing comes.
    fn await_silence(&mut self, place: &str) {
        self.stream.write_all(b"\xc0\x00").expect("the broker reads");
        while !self.heard.iter().any(|heard| heard.kind == "PINGRESP") {
            self.hear(place);
        }
        self.heard.retain(|heard| heard.kind != "PINGRESP");
        assert_eq!(self.heard, [], "{place}: mosquitto did not send this");
    }

    /// Takes what comes, with the answers that MQTT asks for.
    fn hear(&mut self, place: &str) {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer).unwrap_or_else(|error| panic!("{place}: {error}; {:?}", self.heard));
        assert!(count > 0, "{place}: the broker closed the connection; {:?}", self.heard);
        self.inbox.extend_from_slice(&buffer[..count]);
        let limits = limits();
        let mut read = 0;
        loop {
            match decode(&self.inbox[read..], self.version, &limits) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    read += consumed;
                    let mut out = Vec::new();
                    if let Some((kind, id)) = answer(&packet) {
                        let _ = Packet::Ack(Ack::success(kind, id)).encode(Peer::new(self.version), &mut out);
                    }
                    // The second half of QoS 2 is between the broker and this client, with numbers of the broker.
                    if !matches!(packet, Packet::Ack(ack) if ack.kind == AckKind::PubRel) {
                        self.heard.push(heard(&packet));
                    }
                    self.stream.write_all(&out).expect("the broker reads");
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => panic!("{place}: {}", error.detail),
            }
        }
        self.inbox.drain(..read);
    }
}

fn limits() -> Limits {
    Limits::default().with_sender(Sender::Server)
}

fn answer(packet: &Packet<'_>) -> Option<(AckKind, PacketId)> {
    match packet {
        Packet::Publish(Publish { delivery: Delivery::AtLeastOnce { packet_id, .. }, .. }) => {
            Some((AckKind::PubAck, *packet_id))
        }
        Packet::Publish(Publish { delivery: Delivery::ExactlyOnce { packet_id, .. }, .. }) => {
            Some((AckKind::PubRec, *packet_id))
        }
        Packet::Ack(ack) if ack.kind == AckKind::PubRel => Some((AckKind::PubComp, ack.packet_id)),
        _ => None,
    }
}

fn heard(packet: &Packet<'_>) -> Heard {
    let (kind, text) = match packet {
        Packet::ConnAck(answer) => ("CONNACK".to_owned(), format!("{:?} {}", answer.reason, answer.session_present)),
        Packet::Publish(publish) => {
            let Publish { delivery, retain, topic, properties, payload } = publish;
            let properties: Vec<String> = properties.iter().map(|property| format!("{property:?}")).collect();
            let payload = String::from_utf8_lossy(payload);
            (format!("PUBLISH {topic}"), format!("{} {retain} {properties:?} {payload}", delivery.qos().bits()))
        }
        Packet::Ack(ack) => {
            (format!("{:?} {}", ack.kind, ack.packet_id.get()), format!("failure {}", ack.reason.is_failure()))
        }
        Packet::SubAck(answer) => {
            (format!("SUBACK {}", answer.packet_id.get()), format!("{:?}", answer.reasons.iter().collect::<Vec<_>>()))
        }
        Packet::UnsubAck(answer) => {
            (format!("UNSUBACK {}", answer.packet_id.get()), format!("{:?}", answer.reasons.iter().collect::<Vec<_>>()))
        }
        Packet::PingResp => ("PINGRESP".to_owned(), String::new()),
        other => (format!("{:?}", other.kind()), format!("{other:?}")),
    };
    Heard { kind, text }
}
