//! One flooder at a door, and somebody at each door who does what it always does: the flooder is slowed in the words of its door,
//! and nobody else notices. With control off nobody is slowed, and nobody else notices either: what is compared is the same traffic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::time::Duration;

use support::amqp::Amqp;
use support::floods::{Coap, Fate, Flooder, Poster, Sender};
use support::sn::SnClient;
use support::{Client, address, config, ledger, listener, report, start};
use tidegate_broker::Broker;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::report::ClientState;
use tidegate_core::settings::{BackOff, Rate, Settings};
use tidegate_face_sn::packet::{ReturnCode, TopicRef};
use tidegate_wire_mqtt::{QoS, Version};

const DOORS: [ListenerKind; 4] = [ListenerKind::Coap, ListenerKind::HttpTopics, ListenerKind::Sn, ListenerKind::Amqp];
const ROUNDS: usize = 5;
/// Messages of a flooder in each round.
const FLOOD: u32 = 24;

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
            http: Poster::open(at(ListenerKind::HttpTopics), "/topics/calm/http?qos=0"),
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
        all = all.plus(flooder.flood(FLOOD));
        innocents.go_on(round as u16);
    }
    broker.shutdown();
    all
}

#[test]
fn a_flooder_at_each_door_is_slowed_in_its_words_and_nobody_else_notices() {
    for door in DOORS {
        let fate = flood_at(door, true);
        assert!(fate.taken >= 1 && fate.slowed > 10, "{door:?}: {fate:?}");
    }
}

/// AMQP's word for slower is said before a message, not after it: what its publisher has no credit for it keeps. A message is
/// refused only if it was under way when the credit was taken back.
#[test]
fn a_flooder_over_amqp_keeps_what_it_has_no_credit_for_and_its_neighbours_have_theirs() {
    let broker = broker(true);
    let at = address(&broker, ListenerKind::Amqp);
    let mut innocents = Innocents::open(&broker);
    let mut flooder = Sender::open(at, "flooder", "flood/amqp");
    for round in 0..ROUNDS {
        flooder.flood(FLOOD);
        innocents.go_on(round as u16);
    }
    assert_eq!(flooder.credit(), 0, "it has to wait");
    let ledger = ledger(&broker, "flooder");
    assert_eq!(ledger.received, u64::from(flooder.sent()), "what it had no credit for never came");
    assert!(ledger.received < u64::from(FLOOD) * ROUNDS as u64, "{ledger:?}");
    let state = report(&broker, "flooder").state;
    assert!(state.is_held_back(), "{state:?}");
    assert_eq!(report(&broker, "calm-amqp").state, ClientState::Ok);
    broker.shutdown();
}

#[test]
fn with_control_off_the_same_flood_is_taken_and_nobody_else_notices() {
    for door in DOORS {
        let fate = flood_at(door, false);
        assert_eq!(fate, Fate { taken: FLOOD * ROUNDS as u32, slowed: 0 }, "{door:?}");
    }
}
