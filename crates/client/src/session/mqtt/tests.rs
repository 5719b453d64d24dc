//! One session, packet by packet; the broker is what the test writes.

use std::num::NonZeroU32;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_wire_mqtt::{Ack, AckKind, ConnAck, Decoded, Encode, Peer, Sender, decode};

use super::*;

struct Bed {
    session: MqttSession,
    now: Timestamp,
}

fn message(text: &str, qos: QoS) -> MqttMessage {
    MqttMessage { topic: "a/b".into(), payload: text.as_bytes().to_vec(), qos, retain: false }
}

impl Bed {
    fn new(config: MqttConfig) -> Self {
        Self { session: MqttSession::new(config), now: Timestamp::ZERO }
    }

    fn up(config: MqttConfig, receive_maximum: u16) -> Self {
        let mut bed = Self::new(config);
        bed.open(receive_maximum, false);
        bed
    }

    fn open(&mut self, receive_maximum: u16, session_present: bool) {
        self.session.handle_opened(self.now);
        assert!(self.sent().starts_with(&["Connect".to_owned()]));
        self.welcome(&[Property::ReceiveMaximum(NonZeroU16::new(receive_maximum).unwrap())], session_present);
    }

    fn welcome(&mut self, list: &[Property<'_>], session_present: bool) {
        let properties = Properties::new(list);
        self.hear(&Packet::ConnAck(ConnAck { session_present, reason: ReasonCode::Success, properties }));
        assert_eq!(self.session.poll_event(), Some(MqttEvent::Connected { session_present }));
    }

    fn hear(&mut self, packet: &Packet<'_>) -> bool {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(Version::V5), &mut bytes);
        // In pieces: any split gives the same.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.session.handle_bytes(first, self.now) && self.session.handle_bytes(second, self.now)
    }

    fn ack(&mut self, kind: AckKind, id: u16, reason: ReasonCode, pairs: &[(&str, &str)]) {
        let list: Vec<_> = pairs.iter().map(|(name, text)| Property::UserProperty(name, text)).collect();
        let properties = Properties::new(&list);
        assert!(self.hear(&Packet::Ack(Ack { kind, packet_id: PacketId::new(id).unwrap(), reason, properties })));
    }

    /// What was sent: kinds, and payloads of messages.
    fn sent(&mut self) -> Vec<String> {
        let bytes = self.session.take_output();
        let limits = Limits::default().with_sender(Sender::Client);
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Ok(Decoded::Packet { packet, consumed }) = decode(rest, Version::V5, &limits) {
            all.push(match packet {
                Packet::Publish(publish) => {
                    let dup = if publish.delivery.dup() { " dup" } else { "" };
                    format!("{}{dup}", String::from_utf8_lossy(publish.payload))
                }
                Packet::Ack(ack) => format!("{:?}", ack.kind),
                other => format!("{:?}", other.kind()),
            });
            rest = &rest[consumed..];
        }
        all
    }

    fn publish(&mut self, token: u64, qos: QoS) -> Result<(), BacklogFull> {
        self.session.publish(Token(token), message(&token.to_string(), qos))
    }

    fn turn(&mut self) -> Vec<String> {
        assert!(self.session.turn(self.now));
        self.sent()
    }
}

#[test]
fn receive_maximum_is_obeyed_and_an_answer_makes_room() {
    let mut bed = Bed::up(MqttConfig::default(), 2);
    for token in 1..=4 {
        bed.publish(token, QoS::AtLeastOnce).unwrap();
    }
    assert_eq!(bed.turn(), ["1", "2"]);
    assert_eq!(bed.turn(), Vec::<String>::new());
    bed.ack(AckKind::PubAck, 1, ReasonCode::Success, &[]);
    assert_eq!(bed.session.poll_event(), Some(MqttEvent::Published { token: Token(1), after: Duration::ZERO }));
    assert_eq!(bed.turn(), ["3"]);
    assert_eq!(bed.session.load().2, 2);
}

#[test]
fn a_refusal_is_told_with_its_time_and_holds_the_rest_back() {
    let mut bed = Bed::up(MqttConfig::default(), 1);
    bed.publish(1, QoS::AtLeastOnce).unwrap();
    bed.publish(2, QoS::AtLeastOnce).unwrap();
    bed.turn();
    bed.ack(AckKind::PubAck, 1, ReasonCode::QuotaExceeded, &[("pace-retry-after-ms", "800")]);
    let Some(MqttEvent::Rejected { token, reason, hints, .. }) = bed.session.poll_event() else { panic!() };
    assert_eq!(
        (token, reason, hints.retry_after),
        (Token(1), ReasonCode::QuotaExceeded, Some(Duration::from_millis(800)))
    );
    assert_eq!(bed.turn(), Vec::<String>::new());
    bed.now = bed.session.poll_timeout().unwrap();
    assert_eq!((bed.now, bed.turn()), (Timestamp::from_secs_f64(0.8), vec!["2".to_owned()]));
    // An absurd time is clamped.
    bed.ack(AckKind::PubAck, 2, ReasonCode::QuotaExceeded, &[("pace-retry-after-ms", "18446744073709551615")]);
    bed.publish(3, QoS::AtLeastOnce).unwrap();
    bed.now = bed.now + Duration::from_secs(60);
    assert!(bed.session.turn(bed.now));
    assert!(bed.sent().contains(&"3".to_owned()));
}

#[test]
fn what_was_under_way_is_sent_again_in_order_and_the_backlog_at_a_pace() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut bed = Bed::up(MqttConfig { client_id: "me".into(), ..MqttConfig::default() }, 10);
    bed.publish(1, QoS::AtLeastOnce).unwrap();
    bed.publish(2, QoS::ExactlyOnce).unwrap();
    bed.publish(3, QoS::ExactlyOnce).unwrap();
    assert_eq!(bed.turn(), ["1", "2", "3"]);
    bed.ack(AckKind::PubRec, 2, ReasonCode::Success, &[]);
    bed.sent();
    bed.session.handle_lost(bed.now, None, &mut rng);
    for token in 4..=6 {
        bed.publish(token, QoS::AtLeastOnce).unwrap();
    }
    assert_eq!(bed.turn(), Vec::<String>::new(), "nothing without a connection");
    bed.open(10, true);
    assert_eq!(bed.sent(), ["1 dup", "PubRel", "3 dup"]);
    assert_eq!(bed.turn(), ["4"]);
    assert_eq!(bed.turn(), Vec::<String>::new());
    bed.now = bed.session.poll_timeout().unwrap();
    assert_eq!(bed.turn(), ["5"]);
    // Without its session the broker gets them as new ones, and what it had released is done.
    bed.session.handle_lost(bed.now, None, &mut rng);
    bed.open(10, false);
    assert_eq!(
        bed.session.poll_event().map(|event| matches!(event, MqttEvent::Published { token: Token(2), .. })),
        Some(true)
    );
    assert_eq!(bed.sent(), ["1", "3", "4", "5"]);
}

#[test]
fn what_was_under_way_goes_again_within_the_new_window_before_what_waits() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut bed = Bed::up(MqttConfig { client_id: "me".into(), ..MqttConfig::default() }, 10);
    for token in 1..=4 {
        bed.publish(token, QoS::AtLeastOnce).unwrap();
    }
    assert_eq!(bed.turn(), ["1", "2", "3", "4"]);
    bed.session.handle_lost(bed.now, None, &mut rng);
    bed.publish(5, QoS::AtLeastOnce).unwrap();
    bed.open(2, true);
    assert_eq!(bed.sent(), ["1 dup", "2 dup"]);
    assert_eq!(bed.turn(), Vec::<String>::new());
    bed.ack(AckKind::PubAck, 2, ReasonCode::Success, &[]);
    assert_eq!(bed.turn(), ["3 dup"]);
    // Cut once more before all of it went: the rest is not forgotten, nor is anything told twice.
    bed.session.handle_lost(bed.now, None, &mut rng);
    assert!(matches!(bed.session.poll_event(), Some(MqttEvent::Published { token: Token(2), .. })));
    bed.open(1, true);
    let mut sent = bed.sent();
    for id in [1, 3, 4] {
        bed.ack(AckKind::PubAck, id, ReasonCode::Success, &[]);
        sent.extend(bed.turn());
    }
    assert_eq!(sent, ["1 dup", "3 dup", "4 dup", "5"]);
    assert_eq!((bed.session.load().2, bed.session.in_air()), (1, 1));
}

#[test]
fn what_was_under_way_and_is_too_large_now_is_said_to_be() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut bed = Bed::up(MqttConfig { client_id: "me".into(), ..MqttConfig::default() }, 10);
    bed.session.publish(Token(1), message(&"x".repeat(100), QoS::AtLeastOnce)).unwrap();
    bed.publish(2, QoS::AtLeastOnce).unwrap();
    bed.turn();
    bed.session.handle_lost(bed.now, None, &mut rng);
    bed.session.handle_opened(bed.now);
    bed.sent();
    bed.welcome(&[Property::MaximumPacketSize(NonZeroU32::new(50).unwrap())], true);
    assert_eq!(bed.session.poll_event(), Some(MqttEvent::TooLarge { token: Token(1) }));
    assert_eq!((bed.sent(), bed.session.load().2), (vec!["2 dup".to_owned()], 1));
    // The next connection has its own maximum.
    bed.session.handle_lost(bed.now, None, &mut rng);
    bed.open(10, true);
    bed.session.publish(Token(3), message(&"x".repeat(100), QoS::AtMostOnce)).unwrap();
    bed.turn();
    assert_eq!(bed.session.poll_event(), Some(MqttEvent::Published { token: Token(3), after: Duration::ZERO }));
}

#[test]
fn a_full_backlog_does_what_was_chosen() {
    let small = |on_full| MqttConfig { backlog_messages: 2, on_full, ..MqttConfig::default() };
    for on_full in [BacklogPolicy::Wait, BacklogPolicy::Reject] {
        let mut bed = Bed::new(small(on_full));
        assert_eq!([1, 2, 3].map(|token| bed.publish(token, QoS::AtMostOnce)), [Ok(()), Ok(()), Err(BacklogFull)]);
    }
    let mut bed = Bed::new(small(BacklogPolicy::DropOldest));
    assert!([1, 2, 3].into_iter().all(|token| bed.publish(token, QoS::AtMostOnce).is_ok()));
    assert_eq!(bed.session.poll_event(), Some(MqttEvent::Dropped { token: Token(1) }));
    let mut bed = Bed::new(small(BacklogPolicy::Latest));
    bed.session.publish(Token(1), MqttMessage { topic: "other".into(), ..MqttMessage::default() }).unwrap();
    assert!([2, 3].into_iter().all(|token| bed.publish(token, QoS::AtMostOnce).is_ok()));
    assert_eq!(bed.session.poll_event(), Some(MqttEvent::Dropped { token: Token(2) }));
    let one = MqttMessage { topic: "third".into(), ..MqttMessage::default() };
    assert_eq!(bed.session.publish(Token(4), one), Err(BacklogFull));
}

#[test]
fn a_silent_broker_is_given_up_and_nonsense_ends_the_connection() {
    let mut bed = Bed::up(MqttConfig::default(), 10);
    bed.now = bed.session.poll_timeout().unwrap();
    assert_eq!(bed.turn(), ["PingReq"]);
    bed.now = bed.session.poll_timeout().unwrap();
    assert!(!bed.session.turn(bed.now));
    let mut bed = Bed::new(MqttConfig::default());
    bed.session.handle_opened(bed.now);
    bed.now = bed.session.poll_timeout().unwrap();
    assert!(!bed.session.turn(bed.now), "no answer to the greeting");
    for bytes in [&b"HTTP/1.1 400"[..], b"\x40\x02\x00\x01", b"\xd0\x00"] {
        let mut bed = Bed::new(MqttConfig::default());
        bed.session.handle_opened(bed.now);
        assert!(!bed.session.handle_bytes(bytes, bed.now));
        assert!(matches!(bed.session.poll_event(), Some(MqttEvent::Nonsense(_))));
    }
}

#[test]
fn a_message_is_acknowledged_when_it_was_taken_and_told_once() {
    let mut bed = Bed::up(MqttConfig::default(), 10);
    let packet_id = PacketId::new(7).unwrap();
    let publish = |dup| {
        let delivery = Delivery::ExactlyOnce { packet_id, dup };
        Packet::Publish(Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload: b"x" })
    };
    assert!(bed.hear(&publish(false)));
    let Some(MqttEvent::Message(got, id)) = bed.session.poll_event() else { panic!() };
    assert!(bed.sent().is_empty(), "nobody has it yet");
    bed.session.hand_over(got.qos, id);
    assert_eq!(bed.sent(), ["PubRec"]);
    assert!(bed.hear(&publish(true)));
    assert_eq!((bed.session.poll_event(), bed.sent()), (None, vec!["PubRec".to_owned()]));
    assert!(bed.hear(&Packet::Ack(Ack::success(AckKind::PubRel, packet_id))));
    assert_eq!(bed.sent(), ["PubComp"]);
}
