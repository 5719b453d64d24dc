//! Whatever a door says to a message, its client's ledger says the same: what came in was taken, is held, or was refused or
//! dropped, one line for each message, and the broker's sums are those of its clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::time::{Duration, Instant};

use support::amqp::Amqp;
use support::floods::{Coap, Fate, Poster};
use support::sn::SnClient;
use support::{Client, PATIENCE, address, config, ledger, listener, publish, start};
use tidegate_broker::Broker;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::event::LedgerSide;
use tidegate_core::ledger::Loss;
use tidegate_core::settings::{BackOff, Rate, Settings};
use tidegate_face_sn::packet::{Packet, Publish as SnPublish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::{AckKind, Delivery, PacketId, Publish, QoS, Version};

/// Messages of each client, more than anybody may send at once.
const FLOOD: u32 = 24;
/// What everybody may send at once.
const AT_ONCE: u32 = 8;

/// What a door has said to all messages of one client, who is still there.
struct Told {
    client_id: String,
    fate: Fate,
    /// Whether it has a word for a message that is not taken; else such a message is dropped.
    has_word: bool,
    _open: Box<dyn std::any::Any>,
}

impl Told {
    fn new(client_id: impl Into<String>, fate: Fate, open: impl std::any::Any) -> Self {
        Self { client_id: client_id.into(), fate, has_word: true, _open: Box::new(open) }
    }
}

/// Nobody waits here: who is too fast is refused at once, or dropped where there is no word.
fn broker() -> Broker {
    let doors =
        [ListenerKind::Mqtt, ListenerKind::HttpTopics, ListenerKind::Coap, ListenerKind::Sn, ListenerKind::Amqp];
    let rate = Some(Rate::new(1, Duration::from_secs(3600), AT_ONCE));
    let back_off = BackOff { rate, hold_messages_max: 0, ..BackOff::default() };
    start(Config {
        listeners: doors.map(listener).into(),
        settings: Settings { back_off, ..Settings::default() },
        ..config()
    })
}

fn mqtt(broker: &Broker, qos: QoS) -> Told {
    let client_id = format!("mqtt-{qos:?}");
    let mut client = Client::tcp(address(broker, ListenerKind::Mqtt), Version::V5, &client_id);
    let mut fate = Fate::default();
    for number in 1..=FLOOD as u16 {
        let packet_id = PacketId::new(number).unwrap();
        let delivery = match qos {
            QoS::AtMostOnce => Delivery::AtMostOnce,
            QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
            QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        client.send(&Publish { delivery, ..publish("a", b"flood") });
        if qos > QoS::AtMostOnce {
            client.next(|packet| match packet {
                tidegate_wire_mqtt::Packet::Ack(ack) if matches!(ack.kind, AckKind::PubAck | AckKind::PubRec) => {
                    if ack.reason.is_failure() { fate.slowed += 1 } else { fate.taken += 1 }
                }
                other => panic!("{other:?}"),
            });
        }
    }
    client.ping();
    if qos > QoS::AtMostOnce {
        return Told::new(client_id, fate, client);
    }
    Told { has_word: false, ..Told::new(client_id, Fate::default(), client) }
}

fn http(broker: &Broker, path: &'static str) -> Told {
    let mut client = Poster::open(address(broker, ListenerKind::HttpTopics), path);
    let client_id = format!("$http/{}", client.stream.get_ref().local_addr().unwrap());
    let fate = client.flood(FLOOD);
    Told::new(client_id, fate, client)
}

fn coap_confirmable(broker: &Broker) -> Told {
    let mut client = Coap::open(address(broker, ListenerKind::Coap), ["a", "coap"]);
    let client_id = format!("$coap/{}", client.socket.local_addr().unwrap());
    let fate = client.flood(FLOOD);
    Told::new(client_id, fate, client)
}

/// Answers are told by their tokens.
fn coap_non_confirmable(broker: &Broker) -> Told {
    let client = Coap::open(address(broker, ListenerKind::Coap), ["a", "coap"]);
    let client_id = format!("$coap/{}", client.socket.local_addr().unwrap());
    let mut fate = Fate::default();
    for number in 0..FLOOD as u8 {
        let request = [&[0x51, 3, 0x40, number, number][..], &client.path, b"\xffflood"].concat();
        client.socket.send(&request).unwrap();
        let mut answer = [0; 128];
        let length = client.socket.recv(&mut answer).unwrap();
        assert_eq!((answer[0], answer[4]), (0x51, number), "{:?}", &answer[..length]);
        match answer[1] {
            0x41 | 0x44 => fate.taken += 1,
            0x9d => fate.slowed += 1,
            other => panic!("{}.{:02}", other >> 5, other & 31),
        }
    }
    Told::new(client_id, fate, client)
}

fn sn(broker: &Broker, qos: QoS) -> Told {
    let client_id = format!("sn-{qos:?}");
    let client = SnClient::connect(address(broker, ListenerKind::Sn), &client_id);
    let topic = client.register("a/sn");
    if qos == QoS::AtMostOnce {
        return sn_unanswered(broker, client_id, client, topic);
    }
    let mut fate = Fate::default();
    for message in 1..=FLOOD as u16 {
        let (quality, topic) = (Quality::Connected(qos), TopicRef::Id(topic));
        let publish = SnPublish { dup: false, quality, retain: false, topic, message, payload: b"flood" };
        client.say(Packet::Publish(publish));
        client.hear(|packet| match packet {
            Packet::PubAck { code: ReturnCode::Accepted, .. } | Packet::PubRec(_) => fate.taken += 1,
            Packet::PubAck { code: ReturnCode::Congestion, .. } => fate.slowed += 1,
            other => panic!("{other:?}"),
        });
    }
    Told::new(client_id, fate, client)
}

/// What is taken has no answer, and a sign of life may overtake those of what is not: as many are heard as the ledger has.
fn sn_unanswered(broker: &Broker, client_id: String, client: SnClient, topic: u16) -> Told {
    for _ in 0..FLOOD {
        let (quality, topic) = (Quality::Connected(QoS::AtMostOnce), TopicRef::Id(topic));
        let publish = SnPublish { dup: false, quality, retain: false, topic, message: 0, payload: b"flood" };
        client.say(Packet::Publish(publish));
    }
    let begun = std::time::Instant::now();
    while ledger(broker, &client_id).received < FLOOD.into() {
        assert!(begun.elapsed() < PATIENCE, "{} of {FLOOD} have come", ledger(broker, &client_id).received);
        std::thread::yield_now();
    }
    let slowed = ledger(broker, &client_id).refused() as u32;
    for _ in 0..slowed {
        client.hear(|packet| assert!(matches!(packet, Packet::PubAck { code: ReturnCode::Congestion, .. })));
    }
    client.say(Packet::PingReq { client_id: "" });
    client.hear(|packet| assert_eq!(packet, Packet::PingResp, "and no more of them"));
    let fate = Fate { taken: FLOOD - slowed, slowed };
    Told::new(client_id, fate, client)
}

/// All of them at once: credit is withdrawn from the first refusal on.
fn amqp(broker: &Broker, is_settled: bool) -> Told {
    let client_id = format!("amqp-{is_settled}");
    let mut client = Amqp::open(address(broker, ListenerKind::Amqp), &client_id);
    assert!(client.attach_sender(0, "a/amqp") >= FLOOD);
    for _ in 0..FLOOD {
        client.transfer(0, is_settled, b"flood");
    }
    if is_settled {
        client.sync();
        return Told { has_word: false, ..Told::new(client_id, Fate::default(), client) };
    }
    let mut fate = Fate::default();
    while fate.taken + fate.slowed < FLOOD {
        let frame = client.frame();
        match frame.code {
            0x15 if frame.has(&[0, 0x53, 0x24]) => fate.taken += support::floods::accepted_of(&frame),
            // Modified: it may come again.
            0x15 if frame.has(&[0, 0x53, 0x27]) => fate.slowed += 1,
            0x13 => {}
            other => panic!("{other:#x}: {frame:?}"),
        }
    }
    Told::new(client_id, fate, client)
}

type Flood = (&'static str, fn(&Broker) -> Told);

const FLOODS: [Flood; 12] = [
    ("MQTT 5, QoS 0", |broker| mqtt(broker, QoS::AtMostOnce)),
    ("MQTT 5, QoS 1", |broker| mqtt(broker, QoS::AtLeastOnce)),
    ("MQTT 5, QoS 2", |broker| mqtt(broker, QoS::ExactlyOnce)),
    ("HTTP, qos=0", |broker| http(broker, "/topics/a/http?qos=0")),
    ("HTTP, qos=1", |broker| http(broker, "/topics/a/http?qos=1")),
    ("CoAP, confirmable", coap_confirmable),
    ("CoAP, non-confirmable", coap_non_confirmable),
    ("MQTT-SN, QoS 0", |broker| sn(broker, QoS::AtMostOnce)),
    ("MQTT-SN, QoS 1", |broker| sn(broker, QoS::AtLeastOnce)),
    ("MQTT-SN, QoS 2", |broker| sn(broker, QoS::ExactlyOnce)),
    ("AMQP, settled", |broker| amqp(broker, true)),
    ("AMQP, unsettled", |broker| amqp(broker, false)),
];

#[test]
fn what_each_door_refuses_is_refused_in_the_ledger_and_what_it_drops_is_dropped() {
    let (broker, mut all) = (broker(), Fate::default());
    for (door, flood) in FLOODS {
        let told = flood(&broker);
        let ledger = ledger(&broker, &told.client_id);
        // Where nobody is told, nobody knows but the ledger.
        let taken = if told.has_word { told.fate.taken } else { ledger.passed as u32 };
        let slowed = FLOOD - taken;
        assert!(!told.has_word || told.fate.slowed == slowed, "{door}: {:?}", told.fate);
        // A state that is said again costs nothing the first time.
        assert!((AT_ONCE - 1..=AT_ONCE + 1).contains(&taken), "{door}: {taken} taken");
        let (refused, dropped) = if told.has_word { (slowed, 0) } else { (0, slowed) };
        let (refused, dropped) = (u64::from(refused), u64::from(dropped));
        assert_eq!((ledger.received, ledger.passed), (FLOOD.into(), taken.into()), "{door}: {ledger:?}");
        let lost = ledger.lost_on(LedgerSide::In) - ledger.refused();
        assert_eq!((ledger.refused(), lost), (refused, dropped), "{door}: refused and lost, {ledger:?}");
        assert_eq!(ledger.lost(Loss::Refused), refused, "{door}: {ledger:?}");
        all = all.plus(Fate { taken, slowed: refused as u32 });
    }
    // The counters of the broker are those of its clients, a moment later.
    let (received, patience) = (u64::from(FLOOD) * FLOODS.len() as u64, Instant::now());
    while broker.stats().publish_received < received {
        assert!(patience.elapsed() < PATIENCE, "{:?}", broker.stats());
        std::thread::yield_now();
    }
    let stats = broker.stats();
    assert_eq!((stats.publish_passed, stats.publish_refused), (all.taken.into(), all.slowed.into()));
    stats.check().unwrap();
    broker.shutdown();
}

/// What is no message for what it says is refused by another name.
#[test]
fn what_each_door_rejects_is_in_the_ledger() {
    let broker = broker();
    let mut poster = Poster::open(address(&broker, ListenerKind::HttpTopics), "/topics/a/%23?qos=0");
    assert_eq!(poster.post().0, 400);
    let http = format!("$http/{}", poster.stream.get_ref().local_addr().unwrap());
    let node = SnClient::connect(address(&broker, ListenerKind::Sn), "sn");
    assert_eq!(node.publish(TopicRef::Id(77), 1, "x"), ReturnCode::InvalidTopicId);
    let mut container = Amqp::open(address(&broker, ListenerKind::Amqp), "amqp");
    container.attach_sender(0, "a");
    container.send_bytes(&support::amqp::frame(
        0,
        0x14,
        &[support::amqp::uint(0), support::amqp::uint(0), vec![0xa0, 1, 1], support::amqp::uint(0), vec![0x42]],
        b"\x00\x53\x99",
    ));
    assert!(container.await_frame(0x15).has(&[0, 0x53, 0x25]), "rejected");
    for client_id in [http.as_str(), "sn", "amqp"] {
        let ledger = ledger(&broker, client_id);
        assert_eq!((ledger.received, ledger.lost(Loss::Rejected)), (1, 1), "{client_id}: {ledger:?}");
    }
    broker.shutdown();
}
