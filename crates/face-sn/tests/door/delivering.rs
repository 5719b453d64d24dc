//! Messages with a number to a client: sent again until they are answered, one at a time.

use std::time::Duration;

use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::QoS;

use crate::world::{Said, World, here, number, packets, publish};

const SHORT: TopicRef = TopicRef::Short(*b"tt");
const KEEP: Packet<'static> = Packet::PingReq { client_id: "" };

fn world(qos: QoS) -> World {
    let mut world = World::new();
    for (port, client_id) in [(1, "publisher"), (2, "subscriber")] {
        let connect = Packet::Connect { will: false, clean: true, protocol: 1, seconds: 6000, client_id };
        world.receive(here(port), connect);
    }
    world.subscribe(here(2), FilterRef::Short(*b"tt"), qos);
    world
}

fn send(world: &mut World, qos: QoS, message: u16, payload: &[u8]) -> Said {
    world.receive(here(1), Packet::Publish(publish(SHORT, qos, message, payload)))
}

/// The one message that a subscriber got.
fn got(said: &Said) -> Publish<'_> {
    match packets(said, here(2))[..] {
        [Packet::Publish(publish)] => publish,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_is_sent_again_until_it_is_acknowledged() {
    let mut world = world(QoS::AtLeastOnce);
    let said = send(&mut world, QoS::AtLeastOnce, 1, b"x");
    let first = got(&said);
    assert!(!first.dup && first.message != 0 && first.quality == Quality::Connected(QoS::AtLeastOnce));
    for _ in 0..2 {
        let said = world.wait(Duration::from_secs(11));
        assert_eq!(got(&said), Publish { dup: true, ..first }, "the same, marked as such");
    }
    let ack = Packet::PubAck { topic: first.topic.word(), message: first.message, code: ReturnCode::Accepted };
    assert!(world.receive(here(2), ack).is_empty());
    assert!(world.wait(Duration::from_secs(60)).is_empty());
    assert_eq!(world.endpoint.stats().retransmitted, 2);
    // Again, it is nothing that was waited for.
    world.receive(here(2), ack);
    assert_eq!(world.endpoint.stats().stray, 1);
    world.shard.audit().unwrap();
}

#[test]
fn who_does_not_answer_any_more_is_lost() {
    let mut world = world(QoS::AtLeastOnce);
    send(&mut world, QoS::AtLeastOnce, 1, b"x");
    let mut repeated = 0;
    for _ in 0..10 {
        let said = world.wait(Duration::from_secs(10));
        repeated += packets(&said, here(2)).iter().filter(|packet| matches!(packet, Packet::Publish(_))).count();
    }
    let stats = world.endpoint.stats();
    assert_eq!((repeated, stats.given_up, stats.peers), (4, 1, 1));
    assert!(world.shard.client("subscriber", world.now).is_none());
    world.shard.audit().unwrap();
}

#[test]
fn one_message_at_a_time_and_in_order() {
    let mut world = world(QoS::AtLeastOnce);
    let first = send(&mut world, QoS::AtLeastOnce, 1, b"1");
    for (message, payload) in [(2, b"2"), (3, b"3"), (4, b"4")] {
        assert!(packets(&send(&mut world, QoS::AtLeastOnce, message, payload), here(2)).is_empty());
    }
    let mut said = first;
    for expected in 1..=4 {
        let publish = got(&said);
        assert_eq!(publish.payload, expected.to_string().as_bytes());
        let code = ReturnCode::Accepted;
        let ack = Packet::PubAck { topic: publish.topic.word(), message: publish.message, code };
        said = world.receive(here(2), ack);
    }
    assert!(said.is_empty());
    world.shard.audit().unwrap();
}

#[test]
fn what_is_to_come_exactly_once_has_four_steps_and_each_may_be_lost() {
    let mut world = world(QoS::ExactlyOnce);
    let said = send(&mut world, QoS::ExactlyOnce, 1, b"x");
    let id = number(got(&said).message);
    let said = world.wait(Duration::from_secs(11));
    assert!(got(&said).dup);
    // An answer that does not fit says nothing.
    world.receive(here(2), Packet::PubComp(id));
    assert_eq!(packets(&world.receive(here(2), Packet::PubRec(id)), here(2)), [Packet::PubRel(id)]);
    assert_eq!(packets(&world.wait(Duration::from_secs(11)), here(2)), [Packet::PubRel(id)], "again");
    assert_eq!(packets(&world.receive(here(2), Packet::PubRec(id)), here(2)), [Packet::PubRel(id)], "PUBREL was lost");
    assert!(world.receive(here(2), Packet::PubComp(id)).is_empty());
    assert!(world.wait(Duration::from_secs(60)).is_empty());
    // A number of long ago may be forgotten.
    assert_eq!(packets(&world.receive(here(2), Packet::PubRec(number(999))), here(2)), [Packet::PubRel(number(999))]);
    assert!(world.wait(Duration::from_secs(60)).is_empty(), "and is not asked for again");
    world.shard.audit().unwrap();
}

#[test]
fn a_client_that_does_not_know_an_identifier_any_more_is_told_again() {
    let mut world = world(QoS::AtLeastOnce);
    let topic_id = world.subscribe(here(2), FilterRef::Name("room/t"), QoS::AtLeastOnce);
    let message = publish(TopicRef::Predefined(1), QoS::AtLeastOnce, 1, b"x");
    let said = world.receive(here(1), Packet::Publish(message));
    let id = got(&said).message;
    let code = ReturnCode::InvalidTopicId;
    let said = world.receive(here(2), Packet::PubAck { topic: topic_id, message: id, code });
    let [Packet::Register { topic_id: again, message, name: "room/t" }] = packets(&said, here(2))[..] else {
        panic!("{said:?}")
    };
    assert_eq!(again, topic_id);
    let code = ReturnCode::Accepted;
    let mut said = world.receive(here(2), Packet::RegAck { topic_id, message, code });
    said.extend(world.turn());
    assert_eq!((got(&said).message, got(&said).topic), (id, TopicRef::Id(topic_id)));
    world.receive(here(2), Packet::PubAck { topic: topic_id, message: id, code });
    assert!(world.wait(Duration::from_secs(30)).is_empty());
    world.shard.audit().unwrap();
}

#[test]
fn a_client_that_says_congestion_is_left_alone_for_a_while() {
    let mut world = world(QoS::AtLeastOnce);
    let said = send(&mut world, QoS::AtLeastOnce, 1, b"x");
    let first = got(&said);
    let code = ReturnCode::Congestion;
    world.receive(here(2), Packet::PubAck { topic: first.topic.word(), message: first.message, code });
    world.receive(here(1), KEEP);
    assert!(world.wait(Duration::from_secs(290)).is_empty());
    let said = world.wait(Duration::from_secs(20));
    assert_eq!(got(&said).message, first.message);
    // One that it will never have is done with.
    let code = ReturnCode::NotSupported;
    world.receive(here(2), Packet::PubAck { topic: first.topic.word(), message: first.message, code });
    assert!(world.wait(Duration::from_secs(600)).is_empty());
    world.shard.audit().unwrap();
}

#[test]
fn a_message_that_is_too_large_for_a_datagram_is_not_sent_and_counted() {
    let mut world = world(QoS::AtMostOnce);
    let large = vec![7; 1500];
    assert!(packets(&send(&mut world, QoS::AtLeastOnce, 1, &large), here(2)).is_empty());
    let ledger = world.shard.client("subscriber", world.now).unwrap().client.ledger;
    assert_eq!(ledger.lost(tidegate_core::ledger::Loss::TooLarge), 1);
    let fits = vec![7; 1200];
    let said = send(&mut world, QoS::AtLeastOnce, 2, &fits);
    assert_eq!(got(&said).payload, fits);
    world.shard.audit().unwrap();
}
