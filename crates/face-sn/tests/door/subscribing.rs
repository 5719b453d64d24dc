//! SUBSCRIBE and UNSUBSCRIBE, by name, by wildcard, predefined and short; and how messages are called that come of it.

use tidegate_face_sn::packet::{FilterRef, Packet, Publish, ReturnCode, TopicRef};
use tidegate_wire_mqtt::QoS;

use crate::world::{World, here, number, packets, publish};

/// What a subscriber at 2 gets when this is said at 1.
fn sent(world: &mut World, topic: TopicRef) -> Vec<(TopicRef, Vec<u8>)> {
    let said = world.receive(here(1), Packet::Publish(publish(topic, QoS::AtMostOnce, 0, b"x")));
    let found = packets(&said, here(2)).into_iter().map(|packet| match packet {
        Packet::Publish(Publish { topic, payload, .. }) => (topic, payload.to_vec()),
        other => panic!("{other:?}"),
    });
    found.collect()
}

fn world() -> World {
    let mut world = World::new();
    world.connect(here(1), "publisher");
    world.connect(here(2), "subscriber");
    world
}

#[test]
fn a_message_comes_by_the_identifier_that_the_subscriber_was_told() {
    let mut world = world();
    let here_called = world.subscribe(here(2), FilterRef::Name("room/t"), QoS::AtMostOnce);
    assert_ne!(here_called, 0);
    assert_eq!(sent(&mut world, TopicRef::Predefined(1)), [(TopicRef::Id(here_called), b"x".to_vec())]);
    // It may publish by it, too.
    world.connect(here(3), "third");
    world.subscribe(here(3), FilterRef::Predefined(1), QoS::AtMostOnce);
    let said = world.receive(here(2), Packet::Publish(publish(TopicRef::Id(here_called), QoS::AtMostOnce, 0, b"y")));
    let expected = publish(TopicRef::Predefined(1), QoS::AtMostOnce, 0, b"y");
    assert_eq!(packets(&said, here(3)), [Packet::Publish(expected)], "by the identifier that it knows");
}

#[test]
fn predefined_and_short_topics_come_as_they_were_asked_for() {
    let mut world = world();
    assert_eq!(world.subscribe(here(2), FilterRef::Predefined(2), QoS::AtMostOnce), 2);
    world.subscribe(here(2), FilterRef::Short(*b"tt"), QoS::AtMostOnce);
    assert_eq!(sent(&mut world, TopicRef::Predefined(2)), [(TopicRef::Predefined(2), b"x".to_vec())]);
    let short = TopicRef::Short(*b"tt");
    assert_eq!(sent(&mut world, short), [(short, b"x".to_vec())]);
}

#[test]
fn a_topic_that_a_wildcard_found_is_registered_first() {
    let mut world = world();
    assert_eq!(world.subscribe(here(2), FilterRef::Name("room/+"), QoS::AtMostOnce), 0);
    let said = world.receive(here(1), Packet::Publish(publish(TopicRef::Predefined(1), QoS::AtMostOnce, 0, b"first")));
    let [Packet::Register { topic_id, message, name: "room/t" }] = packets(&said, here(2))[..] else {
        panic!("{said:?}")
    };
    // What comes meanwhile waits behind it, in order; a wrong answer changes nothing.
    assert!(sent(&mut world, TopicRef::Predefined(1)).is_empty());
    let code = ReturnCode::Accepted;
    assert!(world.receive(here(2), Packet::RegAck { topic_id, message: message ^ 1, code }).is_empty());
    assert_eq!(world.endpoint.stats().stray, 1);
    let said = world.receive(here(2), Packet::RegAck { topic_id, message, code });
    let expected = [b"first".as_slice(), b"x"]
        .map(|payload| Packet::Publish(publish(TopicRef::Id(topic_id), QoS::AtMostOnce, 0, payload)));
    assert_eq!(packets(&said, here(2)), expected);
    assert_eq!(sent(&mut world, TopicRef::Predefined(1)), [(TopicRef::Id(topic_id), b"x".to_vec())]);
    world.shard.audit().unwrap();
}

#[test]
fn a_topic_that_the_client_does_not_want_to_know_is_dropped_and_counted() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut world = world();
        world.subscribe(here(2), FilterRef::Name("#"), qos);
        let message = publish(TopicRef::Predefined(1), qos, if qos == QoS::AtMostOnce { 0 } else { 9 }, b"x");
        let said = world.receive(here(1), Packet::Publish(message));
        let [Packet::Register { topic_id, message: number, .. }] = packets(&said, here(2))[..] else {
            panic!("{said:?}")
        };
        world.receive(here(2), Packet::RegAck { topic_id, message: number, code: ReturnCode::Congestion });
        assert_eq!(world.endpoint.stats().dropped, 1);
        // Not asked again for a while, and others come.
        let said = world.receive(here(1), Packet::Publish(Publish { message: 10, ..message }));
        assert!(packets(&said, here(2)).is_empty());
        let short = publish(TopicRef::Short(*b"tt"), qos, 11, b"y");
        let said = world.receive(here(1), Packet::Publish(short));
        assert!(matches!(packets(&said, here(2))[..], [Packet::Publish(_)]), "{qos:?}: {said:?}");
        world.shard.audit().unwrap();
    }
}

#[test]
fn what_cannot_be_subscribed_to_is_refused() {
    let mut world = world();
    let cases = [
        (FilterRef::Name("a/#/b"), ReturnCode::NotSupported),
        (FilterRef::Short(*b"a+"), ReturnCode::NotSupported),
        (FilterRef::Predefined(77), ReturnCode::InvalidTopicId),
    ];
    for (topic, code) in cases {
        let packet = Packet::Subscribe { dup: false, qos: QoS::AtMostOnce, message: number(3), topic };
        let said = world.receive(here(2), packet);
        let refused = Packet::SubAck { qos: QoS::AtMostOnce, topic_id: 0, message: 3, code };
        assert_eq!(packets(&said, here(2)), [refused], "{topic:?}");
    }
}

#[test]
fn after_unsubscribe_nothing_comes() {
    let mut world = world();
    for topic in [FilterRef::Name("room/t"), FilterRef::Predefined(1), FilterRef::Short(*b"tt"), FilterRef::Name("#")] {
        world.subscribe(here(2), topic, QoS::AtMostOnce);
        let said = world.receive(here(2), Packet::Unsubscribe { message: number(8), topic });
        assert_eq!(packets(&said, here(2)), [Packet::UnsubAck(8)], "{topic:?}");
    }
    let said = world.receive(here(2), Packet::Unsubscribe { message: number(9), topic: FilterRef::Predefined(99) });
    assert_eq!(packets(&said, here(2)), [Packet::UnsubAck(9)], "there is no other word");
    assert!(sent(&mut world, TopicRef::Predefined(1)).is_empty());
    assert!(sent(&mut world, TopicRef::Short(*b"tt")).is_empty());
}
