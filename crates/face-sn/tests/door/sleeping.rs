//! Clients that sleep: what comes for them waits, and they have it when they wake up.

use std::time::Duration;

use tidegate_face_sn::packet::{FilterRef, Packet, ReturnCode, TopicRef, WillTopic};
use tidegate_wire_mqtt::QoS;

use crate::world::{Said, World, connect, far, here, packets, publish};

const SHORT: TopicRef = TopicRef::Short(*b"tt");
const BYE: Packet<'static> = Packet::Disconnect { seconds: None };
const WAKE: Packet<'static> = Packet::PingReq { client_id: "sleeper" };

/// A sleeper at 2 that subscribes to what is published at 1.
fn world(qos: QoS) -> World {
    let mut world = World::new();
    let client_id = "publisher";
    world.receive(here(1), Packet::Connect { will: false, clean: true, protocol: 1, seconds: 60_000, client_id });
    world.connect(here(2), "sleeper");
    world.subscribe(here(2), FilterRef::Short(*b"tt"), qos);
    let said = world.receive(here(2), Packet::Disconnect { seconds: Some(600) });
    assert_eq!(packets(&said, here(2)), [BYE]);
    world
}

fn send(world: &mut World, qos: QoS, message: u16) -> Said {
    let payload = message.to_string();
    let number = if qos == QoS::AtMostOnce { 0 } else { message };
    world.receive(here(1), Packet::Publish(publish(SHORT, qos, number, payload.as_bytes())))
}

/// What a client at 2 gets until nothing more comes; it acknowledges as it should.
fn take_all(world: &mut World, mut said: Said) -> Vec<String> {
    let mut taken = Vec::new();
    while !said.is_empty() {
        let mut next = Said::new();
        for packet in packets(&said, here(2)) {
            let answer = match packet {
                Packet::Publish(publish) => {
                    taken.push(String::from_utf8(publish.payload.to_vec()).unwrap());
                    let number = std::num::NonZeroU16::new(publish.message);
                    let is_exact = publish.quality == tidegate_face_sn::packet::Quality::Connected(QoS::ExactlyOnce);
                    let (topic, code) = (publish.topic.word(), ReturnCode::Accepted);
                    let confirm = |number: std::num::NonZeroU16| {
                        let received = Packet::PubAck { topic, message: number.get(), code };
                        if is_exact { Packet::PubRec(number) } else { received }
                    };
                    number.map(confirm)
                }
                Packet::PubRel(number) => Some(Packet::PubComp(number)),
                Packet::PingResp => {
                    taken.push("PINGRESP".into());
                    None
                }
                other => panic!("{other:?}"),
            };
            if let Some(answer) = answer {
                next.extend(world.receive(here(2), answer));
            }
        }
        said = next;
    }
    taken
}

#[test]
fn messages_wait_for_who_sleeps_and_come_when_it_wakes() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut world = world(qos);
        assert_eq!(world.endpoint.stats().asleep, 1);
        for message in 1..=20 {
            assert!(packets(&send(&mut world, qos, message), here(2)).is_empty(), "it sleeps");
            if qos == QoS::ExactlyOnce {
                world.receive(here(1), Packet::PubRel(crate::world::number(message)));
            }
        }
        // Nothing is sent again meanwhile, and nobody is blamed for not taking it.
        assert!(packets(&world.wait(Duration::from_secs(300)), here(2)).is_empty());
        let said = world.receive(here(2), WAKE);
        let mut expected: Vec<String> = (1..=20).map(|message: u16| message.to_string()).collect();
        expected.push("PINGRESP".into());
        assert_eq!(take_all(&mut world, said), expected, "{qos:?}");
        assert_eq!(world.endpoint.stats().asleep, 1, "and sleeps on");
        assert!(packets(&send(&mut world, qos, 21), here(2)).is_empty());
        // CONNECT ends its sleep.
        let client_id = "sleeper";
        let back = Packet::Connect { will: false, clean: false, protocol: 1, seconds: 60, client_id };
        let mut said = world.receive(here(2), back);
        assert_eq!(Packet::read(&said.remove(0).1), Some(Packet::ConnAck(ReturnCode::Accepted)));
        assert_eq!(take_all(&mut world, said), ["21"]);
        assert_eq!(world.endpoint.stats().asleep, 0);
        world.shard.audit().unwrap();
    }
}

#[test]
fn a_sleeper_that_wakes_for_nothing_hears_so_at_once() {
    let mut world = world(QoS::AtMostOnce);
    assert_eq!(packets(&world.receive(here(2), WAKE), here(2)), [Packet::PingResp]);
    assert_eq!(packets(&world.receive(here(2), WAKE), here(2)), [Packet::PingResp]);
    let somebody = Packet::PingReq { client_id: "somebody" };
    assert_eq!(packets(&world.receive(here(2), somebody), here(2)), [BYE], "not its name");
    send(&mut world, QoS::AtMostOnce, 1);
    assert_eq!(packets(&world.receive(far(2), WAKE), far(2)), [BYE], "not its address: it has to connect");
    assert_eq!(packets(&world.receive(here(2), WAKE), here(2)).len(), 2);
}

#[test]
fn a_sleeper_that_does_not_wake_is_lost_and_its_will_is_published() {
    let mut world = World::new();
    world.receive(here(1), Packet::Connect { will: false, clean: true, protocol: 1, seconds: 0, client_id: "watcher" });
    world.subscribe(here(1), FilterRef::Short(*b"wi"), QoS::AtMostOnce);
    world.receive(here(2), Packet::Connect { will: true, clean: true, protocol: 1, seconds: 60, client_id: "sleeper" });
    let topic = WillTopic { name: "wi", qos: QoS::AtMostOnce, retain: false };
    world.receive(here(2), Packet::WillTopic(Some(topic)));
    world.receive(here(2), Packet::WillMsg(b"overslept"));
    world.receive(here(2), Packet::Disconnect { seconds: Some(600) });
    assert!(world.wait(Duration::from_secs(890)).is_empty(), "it may be late by half");
    let said = world.wait(Duration::from_secs(20));
    assert!(matches!(packets(&said, here(1))[..], [Packet::Publish(publish)] if publish.payload == b"overslept"));
    assert_eq!((world.endpoint.stats().peers, world.endpoint.stats().asleep), (1, 0));
    world.shard.audit().unwrap();
}

#[test]
fn what_waited_for_a_sleeper_that_does_not_wake_is_counted() {
    let mut world = world(QoS::AtMostOnce);
    for message in 1..=5 {
        send(&mut world, QoS::AtMostOnce, message);
    }
    while world.endpoint.stats().peers > 1 {
        world.wait(Duration::from_secs(100));
    }
    assert_eq!(world.endpoint.stats().dropped, 5);
    world.shard.audit().unwrap();
}

#[test]
fn what_waits_for_a_sleeper_has_the_bounds_of_any_slow_client() {
    let mut world = world(QoS::AtLeastOnce);
    for message in 1..=5000 {
        send(&mut world, QoS::AtLeastOnce, message);
        world.now = world.now + Duration::from_millis(5);
    }
    let before = world.shard.memory_used();
    let said = world.receive(here(2), WAKE);
    let taken = take_all(&mut world, said);
    let queue_max = tidegate_core::settings::Settings::default().queue_messages_max;
    assert!(taken.len() <= queue_max + 20, "{} of {queue_max}", taken.len());
    assert_eq!(taken.last().map(String::as_str), Some("PINGRESP"));
    assert!(before < 16 << 20, "{before}");
    world.shard.audit().unwrap();
}

#[test]
fn a_clean_connect_of_a_sleeper_begins_anew() {
    let mut world = world(QoS::AtLeastOnce);
    send(&mut world, QoS::AtLeastOnce, 1);
    let said = world.receive(here(2), connect("sleeper"));
    assert_eq!(packets(&said, here(2)), [Packet::ConnAck(ReturnCode::Accepted)]);
    assert!(packets(&send(&mut world, QoS::AtLeastOnce, 2), here(2)).is_empty(), "it subscribed to nothing");
    world.shard.audit().unwrap();
}
