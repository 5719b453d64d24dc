//! REGISTER and PUBLISH from a client: topics by identifier, predefined and short; guarantees; repetition; rules and gates.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Whom;
use tidegate_core::access::{Action, Identity, Policy};
use tidegate_core::settings::{Rate, Settings};
use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef, WillTopic};
use tidegate_wire_mqtt::QoS;

use crate::world::{Said, World, far, here, number, packets, publish};

const SHORT: TopicRef = TopicRef::Short(*b"tt");

/// Payloads that an address got.
fn payloads(said: &Said, port: u16) -> Vec<Vec<u8>> {
    let found = packets(said, here(port)).into_iter().filter_map(|packet| match packet {
        Packet::Publish(publish) => Some(publish.payload.to_vec()),
        _ => None,
    });
    found.collect()
}

fn ack(topic: TopicRef, message: u16, code: ReturnCode) -> Packet<'static> {
    Packet::PubAck { topic: topic.word(), message, code }
}

/// A world with a publisher at 1 and a subscriber to everything at 2.
fn world() -> World {
    let mut world = World::new();
    world.connect(here(1), "publisher");
    world.connect(here(2), "subscriber");
    for topic in ["room/t", "alarm", "named/topic"] {
        world.subscribe(here(2), FilterRef::Name(topic), QoS::AtMostOnce);
    }
    world.subscribe(here(2), FilterRef::Short(*b"tt"), QoS::AtMostOnce);
    world
}

#[test]
fn a_topic_is_named_once_and_then_known_by_two_bytes() {
    let mut world = world();
    let topic = world.register(here(1), "named/topic");
    assert_eq!(world.register(here(1), "named/topic"), topic);
    let said = world.receive(here(1), Packet::Publish(publish(TopicRef::Id(topic), QoS::AtMostOnce, 0, b"a")));
    assert_eq!(payloads(&said, 2), [b"a"]);
    assert!(packets(&said, here(1)).is_empty(), "nobody waits for an answer");
    for name in ["a/#", "+", ""] {
        let said = world.receive(here(1), Packet::Register { topic_id: 0, message: 6, name });
        let refused = Packet::RegAck { topic_id: 0, message: 6, code: ReturnCode::NotSupported };
        assert_eq!(packets(&said, here(1)), [refused], "{name}");
    }
    world.shard.audit().unwrap();
}

#[test]
fn predefined_and_short_topics_need_no_word_before() {
    let mut world = world();
    for topic in [TopicRef::Predefined(1), TopicRef::Predefined(2), SHORT] {
        let said = world.receive(here(1), Packet::Publish(publish(topic, QoS::AtLeastOnce, 3, b"x")));
        assert_eq!(payloads(&said, 2).len(), 1, "{topic:?}");
        assert_eq!(packets(&said, here(1)), [ack(topic, 3, ReturnCode::Accepted)]);
    }
}

#[test]
fn an_unknown_topic_is_refused_at_every_quality() {
    let mut world = world();
    for topic in [TopicRef::Id(1), TopicRef::Predefined(3), TopicRef::Short([0xff, 1])] {
        for (qos, message) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 4), (QoS::ExactlyOnce, 5)] {
            let said = world.receive(here(1), Packet::Publish(publish(topic, qos, message, b"x")));
            assert_eq!(packets(&said, here(1)), [ack(topic, message, ReturnCode::InvalidTopicId)], "{topic:?}");
        }
    }
    assert_eq!(world.shard.stats().publish_received, 9);
    world.shard.audit().unwrap();
}

#[test]
fn each_guarantee_has_its_words() {
    let mut world = world();
    assert!(
        packets(&world.receive(here(1), Packet::Publish(publish(SHORT, QoS::AtMostOnce, 0, b"0"))), here(1)).is_empty()
    );
    let said = world.receive(here(1), Packet::Publish(publish(SHORT, QoS::AtLeastOnce, 1, b"1")));
    assert_eq!(packets(&said, here(1)), [ack(SHORT, 1, ReturnCode::Accepted)]);
    let exactly = Publish { dup: true, ..publish(SHORT, QoS::ExactlyOnce, 2, b"2") };
    let said = world.receive(here(1), Packet::Publish(Publish { dup: false, ..exactly }));
    assert_eq!(packets(&said, here(1)), [Packet::PubRec(number(2))]);
    assert_eq!(payloads(&said, 2), [b"2"]);
    // Our answer was lost, and so was the next one.
    let said = world.receive(here(1), Packet::Publish(exactly));
    assert_eq!(packets(&said, here(1)), [Packet::PubRec(number(2))]);
    assert!(payloads(&said, 2).is_empty());
    for _ in 0..2 {
        let said = world.receive(here(1), Packet::PubRel(number(2)));
        assert_eq!(packets(&said, here(1)), [Packet::PubComp(number(2))]);
    }
    world.shard.audit().unwrap();
}

#[test]
fn a_message_that_comes_again_is_answered_again_and_published_once() {
    let mut world = world();
    let first = publish(SHORT, QoS::AtLeastOnce, 1, b"once");
    assert_eq!(payloads(&world.receive(here(1), Packet::Publish(first)), 2).len(), 1);
    world.now = world.now + Duration::from_secs(30);
    let again = Publish { dup: true, ..first };
    let said = world.receive(here(1), Packet::Publish(again));
    assert_eq!(packets(&said, here(1)), [ack(SHORT, 1, ReturnCode::Accepted)]);
    assert!(payloads(&said, 2).is_empty());
    assert_eq!(world.endpoint.stats().repeated, 1);
    // The number alone says nothing: a client that was switched off and on begins again.
    let said = world.receive(here(1), Packet::Publish(Publish { dup: false, ..first }));
    assert_eq!(payloads(&said, 2).len(), 1);
    world.shard.audit().unwrap();
}

#[test]
fn who_has_no_connection_publishes_by_what_everybody_knows() {
    let mut world = world();
    let message = Publish { quality: Quality::Unconnected, ..publish(SHORT, QoS::AtMostOnce, 0, b"blind") };
    for (from, topic) in [(here(5), SHORT), (here(6), TopicRef::Predefined(1)), (far(1), TopicRef::Predefined(2))] {
        let said = world.receive(from, Packet::Publish(Publish { topic, ..message }));
        assert_eq!(payloads(&said, 2), [b"blind"], "{topic:?}");
        assert!(packets(&said, from).is_empty(), "nobody listens there");
    }
    let unknown = Publish { topic: TopicRef::Predefined(9), ..message };
    assert!(world.receive(far(1), Packet::Publish(unknown)).is_empty());
    // Two addresses, whatever their ports, beside the two clients.
    assert_eq!(world.endpoint.stats().peers, 4);
    assert!(world.shard.client("$sn/127.0.0.1", world.now).is_some());
    // A client that is connected may, too, and is itself.
    assert_eq!(payloads(&world.receive(here(1), Packet::Publish(message)), 2), [b"blind"]);
    assert_eq!(world.endpoint.stats().peers, 4);
    world.receive(here(1), Packet::PingReq { client_id: "" });
    world.receive(here(2), Packet::PingReq { client_id: "" });
    world.wait(Duration::from_secs(61));
    assert_eq!(world.endpoint.stats().peers, 2, "and is forgotten soon");
    world.shard.audit().unwrap();
}

#[test]
fn what_is_retained_is_there_for_who_comes_later() {
    let mut world = world();
    let kept = Publish { retain: true, ..publish(SHORT, QoS::AtLeastOnce, 1, b"state") };
    world.receive(here(1), Packet::Publish(kept));
    world.connect(here(3), "late");
    let subscribe =
        Packet::Subscribe { dup: false, qos: QoS::AtMostOnce, message: number(1), topic: FilterRef::Short(*b"tt") };
    let mut said = world.receive(here(3), subscribe);
    said.extend(world.turn());
    let heard = packets(&said, here(3));
    assert!(matches!(heard[1], Packet::Publish(Publish { retain: true, payload: b"state", .. })), "{heard:?}");
}

#[derive(Debug)]
struct Strict;

impl Policy for Strict {
    fn allows(&self, _: &Identity, _: &str, action: Action, topic: &str) -> bool {
        match action {
            Action::Publish => topic == "alarm",
            Action::Subscribe | Action::Receive => topic != "secret",
            Action::Prioritize => false,
        }
    }
}

#[test]
fn rules_of_access_hold_here_as_everywhere() {
    let mut world = World::with(Settings::default(), Arc::new(Strict));
    world.connect(here(1), "a");
    for (qos, message) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 1), (QoS::ExactlyOnce, 2)] {
        let said = world.receive(here(1), Packet::Publish(publish(TopicRef::Predefined(1), qos, message, b"x")));
        let refused = ack(TopicRef::Predefined(1), message, ReturnCode::NotSupported);
        assert_eq!(packets(&said, here(1)), [refused], "{qos:?}");
    }
    let allowed = publish(TopicRef::Predefined(2), QoS::AtLeastOnce, 3, b"x");
    let said = world.receive(here(1), Packet::Publish(allowed));
    assert_eq!(packets(&said, here(1)), [ack(allowed.topic, 3, ReturnCode::Accepted)]);
    let secret = FilterRef::Name("secret");
    let said = world
        .receive(here(1), Packet::Subscribe { dup: false, qos: QoS::AtMostOnce, message: number(4), topic: secret });
    assert!(matches!(packets(&said, here(1))[..], [Packet::SubAck { code: ReturnCode::NotSupported, .. }]));
    world.shard.audit().unwrap();
}

#[test]
fn a_flooder_hears_congestion_and_nobody_else_notices() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut world = world();
        let flooder = Whom::Client("publisher".into());
        world.shard.set_limit(&flooder, Some(Rate::new(1, Duration::from_secs(10), 1)), world.now).unwrap();
        world.connect(here(3), "other");
        let mut congested = 0;
        for message in 1..=60 {
            let number = if qos == QoS::AtMostOnce { 0 } else { message };
            let said = world.receive(here(1), Packet::Publish(publish(SHORT, qos, number, b"x")));
            let refused = ack(SHORT, number, ReturnCode::Congestion);
            congested += packets(&said, here(1)).iter().filter(|packet| **packet == refused).count();
            let other = publish(TopicRef::Predefined(2), QoS::AtLeastOnce, message, b"y");
            let said = world.receive(here(3), Packet::Publish(other));
            assert_eq!(packets(&said, here(3)), [ack(other.topic, message, ReturnCode::Accepted)]);
            assert_eq!(payloads(&said, 2), [b"y"]);
        }
        assert!(congested > 10, "{qos:?}: {congested}");
        world.shard.audit().unwrap();
    }
}

#[test]
fn who_is_not_read_while_the_disk_is_slow_is_counted_and_its_answers_are_heard() {
    for is_leaving in [false, true] {
        let mut world = World::new();
        world.shard.keep_journal(0);
        world.connect(here(2), "other");
        let connect = Packet::Connect { will: true, clean: true, protocol: 1, seconds: 60, client_id: "publisher" };
        world.receive(here(1), connect);
        world.receive(here(1), Packet::WillTopic(Some(WillTopic { name: "ww", qos: QoS::AtMostOnce, retain: false })));
        world.receive(here(1), Packet::WillMsg(b"lost"));
        world.subscribe(here(2), FilterRef::Short(*b"ww"), QoS::AtMostOnce);
        world.subscribe(here(1), FilterRef::Short(*b"aa"), QoS::AtLeastOnce);
        let answered = TopicRef::Short(*b"aa");
        let mut to_answer = Vec::new();
        for message in 1..=2 {
            let said =
                world.receive(here(2), Packet::Publish(publish(answered, QoS::AtLeastOnce, message, b"to answer")));
            to_answer.extend(packets(&said, here(1)).into_iter().filter_map(|packet| match packet {
                Packet::Publish(publish) => Some(publish.message),
                _ => None,
            }));
        }
        assert_eq!(to_answer.len(), 1, "one at a time");
        world.shard.handle_store_lag(Duration::from_secs(30));
        let before = world.shard.stats().publish_received;
        let large = vec![7; 20_000];
        let mut sent = 0;
        for port in [3, 4, 5, 1] {
            if port != 1 {
                world.connect(here(port), &format!("filler{port}"));
            }
            for message in 1..=14 {
                let kept = Publish { retain: true, ..publish(SHORT, QoS::AtLeastOnce, message, &large) };
                world.receive(here(port), Packet::Publish(kept));
                world.shard.poll_journal();
                sent += 1;
            }
        }
        let stats = world.shard.stats();
        assert_eq!(stats.publish_received - before, sent, "each of them came");
        assert!(stats.publish_refused >= 14, "{}", stats.publish_refused);
        world.shard.audit().unwrap();
        if is_leaving {
            let bye = Packet::Disconnect { seconds: None };
            let said = world.receive(here(1), bye);
            assert_eq!(packets(&said, here(1)), [bye]);
            assert!(payloads(&said, 2).is_empty(), "it has said goodbye");
            assert!(world.shard.client("publisher", world.now).is_none());
        } else {
            let said = world.receive(here(1), ack(answered, to_answer[0], ReturnCode::Accepted));
            assert_eq!(payloads(&said, 1), [b"to answer"], "the next one");
        }
        world.shard.audit().unwrap();
    }
}
