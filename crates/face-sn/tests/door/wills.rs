//! Wills: asked for, changed, and published when a client is lost.

use std::time::Duration;

use tidegate_face_sn::packet::{FilterRef, Packet, ReturnCode, WillTopic};
use tidegate_wire_mqtt::QoS;

use crate::world::{World, here, packets};

const WITH_WILL: Packet<'static> =
    Packet::Connect { will: true, clean: true, protocol: 1, seconds: 10, client_id: "dying" };

fn will_topic(name: &str) -> Packet<'_> {
    Packet::WillTopic(Some(WillTopic { name, qos: QoS::AtMostOnce, retain: false }))
}

/// Says it all.
fn connect_with_will(world: &mut World) {
    assert_eq!(packets(&world.receive(here(1), WITH_WILL), here(1)), [Packet::WillTopicReq]);
    assert_eq!(packets(&world.receive(here(1), will_topic("last/words")), here(1)), [Packet::WillMsgReq]);
    let said = world.receive(here(1), Packet::WillMsg(b"gone"));
    assert_eq!(packets(&said, here(1)), [Packet::ConnAck(ReturnCode::Accepted)]);
}

/// Somebody who hears wills; the payload of the one that came, by topic.
fn watch(world: &mut World) -> [u16; 2] {
    world.connect(here(9), "watcher");
    ["last/words", "other/words"].map(|topic| world.subscribe(here(9), FilterRef::Name(topic), QoS::AtMostOnce))
}

fn heard(world: &mut World, time: Duration) -> Vec<(u16, Vec<u8>)> {
    let said = world.wait(time);
    let found = packets(&said, here(9)).into_iter().filter_map(|packet| match packet {
        Packet::Publish(publish) => Some((publish.topic.word(), publish.payload.to_vec())),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_will_is_asked_for_and_published_when_its_client_is_lost() {
    let mut world = World::new();
    let [topic, _] = watch(&mut world);
    connect_with_will(&mut world);
    assert_eq!(heard(&mut world, Duration::from_secs(16)), [(topic, b"gone".to_vec())]);
    // And not when it says goodbye.
    connect_with_will(&mut world);
    let said = world.receive(here(1), Packet::Disconnect { seconds: None });
    assert!(packets(&said, here(9)).is_empty());
    world.shard.audit().unwrap();
}

#[test]
fn a_will_can_be_changed_by_halves_and_taken_back() {
    let mut world = World::new();
    let [_, other] = watch(&mut world);
    connect_with_will(&mut world);
    let there = WillTopic { name: "other/words", qos: QoS::AtMostOnce, retain: false };
    let said = world.receive(here(1), Packet::WillTopicUpd(Some(there)));
    assert_eq!(packets(&said, here(1)), [Packet::WillTopicResp(ReturnCode::Accepted)]);
    let said = world.receive(here(1), Packet::WillMsgUpd(b"changed"));
    assert_eq!(packets(&said, here(1)), [Packet::WillMsgResp(ReturnCode::Accepted)]);
    let said = world.receive(here(1), Packet::WillTopicUpd(Some(WillTopic { name: "a/#", ..there })));
    assert_eq!(packets(&said, here(1)), [Packet::WillTopicResp(ReturnCode::NotSupported)]);
    assert_eq!(heard(&mut world, Duration::from_secs(16)), [(other, b"changed".to_vec())]);
    connect_with_will(&mut world);
    let said = world.receive(here(1), Packet::WillTopicUpd(None));
    assert_eq!(packets(&said, here(1)), [Packet::WillTopicResp(ReturnCode::Accepted)]);
    let said = world.receive(here(1), Packet::WillMsgUpd(b"nowhere"));
    assert_eq!(packets(&said, here(1)), [Packet::WillMsgResp(ReturnCode::NotSupported)]);
    assert!(heard(&mut world, Duration::from_secs(16)).is_empty());
    world.shard.audit().unwrap();
}

#[test]
fn an_empty_topic_is_no_will_and_what_is_missing_is_asked_for_again() {
    let mut world = World::new();
    world.receive(here(1), WITH_WILL);
    // Out of order: the topic first.
    assert_eq!(packets(&world.receive(here(1), Packet::WillMsg(b"x")), here(1)), [Packet::WillTopicReq]);
    let said = world.receive(here(1), Packet::WillTopic(None));
    assert_eq!(packets(&said, here(1)), [Packet::ConnAck(ReturnCode::Accepted)]);
    // Who does not answer is asked twice more, and forgotten.
    world.receive(here(2), WITH_WILL);
    world.receive(here(2), will_topic("a"));
    let mut asked = 0;
    for _ in 0..20 {
        world.receive(here(1), Packet::PingReq { client_id: "" });
        let said = world.wait(Duration::from_secs(5));
        asked += packets(&said, here(2)).iter().filter(|packet| **packet == Packet::WillMsgReq).count();
    }
    assert_eq!((asked, world.endpoint.stats().peers), (2, 1));
    assert!(world.receive(here(2), Packet::WillMsg(b"late")).is_empty());
    let said = world.receive(here(3), WITH_WILL);
    assert_eq!(packets(&said, here(3)), [Packet::WillTopicReq]);
    let said = world.receive(here(3), will_topic("not/#"));
    assert_eq!(packets(&said, here(3)), [Packet::WillMsgReq]);
    let said = world.receive(here(3), Packet::WillMsg(b"x"));
    assert_eq!(packets(&said, here(3)), [Packet::ConnAck(ReturnCode::NotSupported)], "no topic at all");
    world.shard.audit().unwrap();
}
