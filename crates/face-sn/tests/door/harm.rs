//! Bad input: malformed, spoofed, too much of it. Bounded, counted, and nobody else notices.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::QoS;

use crate::world::{World, connect, far, here, packets, publish};

const SHORT: TopicRef = TopicRef::Short(*b"tt");

/// UDP and IPv4.
const HEADERS: usize = 28;

#[test]
fn a_storm_of_registrations_has_an_end_and_others_register_on() {
    let mut world = World::new();
    world.connect(here(1), "storm");
    world.connect(here(2), "other");
    let mut refused = 0;
    for count in 0..2000 {
        let name = format!("storm/{count}");
        let said = world.receive(here(1), Packet::Register { topic_id: 0, message: count, name: &name });
        let code = match packets(&said, here(1))[..] {
            [Packet::RegAck { code, .. }] => code,
            ref other => panic!("{other:?}"),
        };
        refused += usize::from(code == ReturnCode::Congestion);
    }
    assert_eq!(refused, 2000 - 256);
    assert_ne!(world.register(here(2), "mine"), 0);
    // The same by subscriptions.
    for count in 0..300 {
        let name = format!("more/{count}");
        let (message, topic) = (crate::world::number(count + 1), FilterRef::Name(&name));
        let said = world.receive(here(1), Packet::Subscribe { dup: false, qos: QoS::AtMostOnce, message, topic });
        assert!(matches!(packets(&said, here(1))[..], [Packet::SubAck { code: ReturnCode::Congestion, .. }]));
    }
    let before = world.shard.memory_used();
    world.receive(here(1), Packet::Disconnect { seconds: None });
    assert!(world.shard.memory_used() < before);
    world.shard.audit().unwrap();
}

#[test]
fn clients_of_one_address_have_an_end_and_so_have_all() {
    let mut world = World::new();
    let mut congested = 0;
    for port in 1..=1100 {
        let name = format!("crowd{port}");
        let said = world.receive(far(port), connect(&name));
        congested += usize::from(packets(&said, far(port)) == [Packet::ConnAck(ReturnCode::Congestion)]);
    }
    assert_eq!((congested, world.endpoint.stats().peers), (1100 - 1024, 1024));
    world.connect(here(1), "near");
    world.connect(SocketAddr::from(([198, 51, 100, 1], 1)), "elsewhere");
    world.receive(far(1), Packet::Disconnect { seconds: None });
    world.connect(far(2000), "next");
}

#[test]
fn spoofed_senders_have_an_end_and_those_who_were_there_publish_on() {
    let mut world = World::new();
    world.connect(here(1), "subscriber");
    world.subscribe(here(1), FilterRef::Short(*b"tt"), QoS::AtMostOnce);
    let message = Publish { quality: Quality::Unconnected, ..publish(SHORT, QoS::AtMostOnce, 0, b"x") };
    for count in 0..2000_u16 {
        let [high, low] = count.to_be_bytes();
        world.receive(SocketAddr::from(([10, 0, high, low], 1)), Packet::Publish(message));
    }
    let stats = world.endpoint.stats();
    assert_eq!((stats.peers, stats.refused), (1025, 2000 - 1024));
    let said = world.receive(SocketAddr::from(([10, 0, 0, 1], 2)), Packet::Publish(message));
    assert_eq!(packets(&said, here(1)).len(), 1);
    world.wait(Duration::from_secs(59));
    world.receive(here(1), Packet::PingReq { client_id: "" });
    world.wait(Duration::from_secs(10));
    assert!(world.endpoint.stats().peers < 1025 && !world.wait(Duration::from_secs(20)).iter().any(|_| true));
    world.shard.audit().unwrap();
}

#[test]
fn an_address_that_proves_nothing_gets_no_more_than_three_times_what_came_from_there() {
    let mut world = World::new();
    world.connect(here(1), "publisher");
    // What a spoofed address subscribes to goes there, whether anybody is there or not.
    let mut came = 0;
    let mut went = 0;
    let mut count = |packet: Packet<'_>, world: &mut World| {
        came += packet.bytes().len() + HEADERS;
        let said = world.receive(far(1), packet);
        went += said.iter().filter(|(to, _)| *to == far(1)).map(|(_, bytes)| bytes.len() + HEADERS).sum::<usize>();
    };
    count(Packet::Connect { will: false, clean: false, protocol: 1, seconds: 60, client_id: "v" }, &mut world);
    for topic in [FilterRef::Name("#"), FilterRef::Short(*b"tt"), FilterRef::Predefined(1)] {
        let message = crate::world::number(1);
        count(Packet::Subscribe { dup: false, qos: QoS::AtLeastOnce, message, topic }, &mut world);
    }
    let large = [7; 1000];
    for message in 1..200 {
        let topic = if message % 2 == 0 { SHORT } else { TopicRef::Predefined(1) };
        let qos = if message % 3 == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        let said = world.receive(here(1), Packet::Publish(publish(topic, qos, message, &large)));
        went += said.iter().filter(|(to, _)| *to == far(1)).map(|(_, bytes)| bytes.len() + HEADERS).sum::<usize>();
        // It guesses.
        let code = ReturnCode::Accepted;
        let guess = Packet::RegAck { topic_id: message, message, code };
        came += guess.bytes().len() + HEADERS;
        let said = world.receive(far(1), guess);
        went += said.iter().filter(|(to, _)| *to == far(1)).map(|(_, bytes)| bytes.len() + HEADERS).sum::<usize>();
    }
    for _ in 0..20 {
        let said = world.wait(Duration::from_secs(10));
        went += said.iter().filter(|(to, _)| *to == far(1)).map(|(_, bytes)| bytes.len() + HEADERS).sum::<usize>();
    }
    assert!(went <= 3 * came, "{went} for {came}");
    world.shard.audit().unwrap();
}

#[test]
fn an_address_that_answers_is_proved_and_gets_all() {
    let mut world = World::new();
    world.connect(here(1), "publisher");
    let said = world.receive(far(1), connect("subscriber"));
    let [Packet::ConnAck(_), Packet::Register { topic_id, message: number, .. }] = packets(&said, far(1))[..] else {
        panic!("{said:?}")
    };
    world.subscribe(far(1), FilterRef::Short(*b"tt"), QoS::AtMostOnce);
    let large = [7; 1000];
    let message = Packet::Publish(publish(SHORT, QoS::AtMostOnce, 0, &large));
    assert!(packets(&world.receive(here(1), message), far(1)).is_empty(), "not yet");
    // Whatever it says to what it was told: it was there to hear it.
    let code = ReturnCode::NotSupported;
    let said = world.receive(far(1), Packet::RegAck { topic_id, message: number, code });
    assert!(matches!(packets(&said, far(1))[..], [Packet::Publish(Publish { topic: SHORT, .. })]), "{said:?}");
    for _ in 0..50 {
        assert_eq!(packets(&world.receive(here(1), message), far(1)).len(), 1);
    }
    world.shard.audit().unwrap();
}

#[test]
fn a_made_up_address_holds_no_place_and_leaves_no_session() {
    let mut world = World::new();
    let said = world.receive(
        far(1),
        Packet::Connect { will: false, clean: false, protocol: 1, seconds: u16::MAX, client_id: "nobody" },
    );
    assert!(matches!(packets(&said, far(1))[..], [Packet::ConnAck(_), Packet::Register { .. }]), "{said:?}");
    // Neither sleep nor signs of life make it last.
    world.receive(far(1), Packet::Disconnect { seconds: Some(u16::MAX) });
    for _ in 0..5 {
        world.wait(Duration::from_secs(10));
        world.receive(far(1), Packet::Publish(publish(SHORT, QoS::AtMostOnce, 0, b"x")));
    }
    while world.now < tidegate_control::Timestamp::from_secs_f64(1061.0) {
        world.wait(Duration::from_secs(11));
    }
    assert_eq!(world.endpoint.stats().peers, 0);
    assert!(world.shard.client("nobody", world.now).is_none());
    world.receive(far(1), Packet::Connect { will: false, clean: false, protocol: 1, seconds: 60, client_id: "nobody" });
    world.receive(far(1), Packet::Disconnect { seconds: None });
    assert!(world.shard.client("nobody", world.now).is_none(), "nor by a goodbye");
    // Who answers stays, and so does who uses an identifier that it was given.
    let lasting = |client_id| Packet::Connect { will: false, clean: false, protocol: 1, seconds: 600, client_id };
    let said = world.receive(far(2), lasting("answers"));
    let [_, Packet::Register { topic_id, message, .. }] = packets(&said, far(2))[..] else { panic!("{said:?}") };
    world.receive(far(2), Packet::RegAck { topic_id, message, code: ReturnCode::NotSupported });
    world.receive(far(3), lasting("publishes"));
    let id = world.register(far(3), "a/b");
    world.receive(far(3), Packet::Publish(publish(TopicRef::Id(id), QoS::AtMostOnce, 0, b"x")));
    for _ in 0..20 {
        world.wait(Duration::from_secs(10));
    }
    assert_eq!(world.endpoint.stats().peers, 2);
    world.shard.audit().unwrap();
}

#[test]
fn made_up_addresses_make_room_for_the_next() {
    let mut world = World::new();
    for count in 0..3000_u16 {
        let [high, low] = count.to_be_bytes();
        world.receive(SocketAddr::from(([10, 0, high, low], 1)), connect(&format!("nobody{count}")));
    }
    assert_eq!(world.endpoint.stats().peers, 1024);
    world.connect(far(1), "somebody");
    for count in 3000..6000_u16 {
        let [high, low] = count.to_be_bytes();
        world.receive(SocketAddr::from(([10, 0, high, low], 1)), connect(&format!("nobody{count}")));
    }
    let said = world.receive(far(1), Packet::PingReq { client_id: "" });
    assert_eq!(packets(&said, far(1)), [Packet::PingResp], "it is there still");
    world.shard.audit().unwrap();
}

#[test]
fn a_network_of_ipv6_has_the_places_of_one_address() {
    let mut world = World::new();
    let near = |last: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 1));
    let beside = SocketAddr::from(([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1], 1));
    let mut congested = 0;
    for last in 1..=1100 {
        let said = world.receive(near(last), connect(&format!("crowd{last}")));
        congested += usize::from(packets(&said, near(last)) == [Packet::ConnAck(ReturnCode::Congestion)]);
    }
    assert_eq!(congested, 1100 - 1024);
    world.connect(beside, "beside");
    let mut world = World::new();
    let message = Publish { quality: Quality::Unconnected, ..publish(SHORT, QoS::AtMostOnce, 0, b"x") };
    for last in 1..=200 {
        world.receive(near(last), Packet::Publish(message));
    }
    let stats = world.endpoint.stats();
    assert_eq!((stats.peers, stats.refused), (64, 200 - 64));
    world.receive(beside, Packet::Publish(message));
    assert_eq!(world.endpoint.stats().peers, 65);
}

/// A message of a client that means well, or badly.
fn packet(kind: u8, word: u16, data: &[u8]) -> Vec<u8> {
    let text = ["a", "a/b", "#", "room/t", "tt", ""][usize::from(word) % 6];
    let number = std::num::NonZeroU16::new(word % 8 + 1).unwrap();
    let code = ReturnCode::of(word as u8 % 4);
    let topic = match word % 3 {
        0 => TopicRef::Id(word),
        1 => TopicRef::Predefined(word % 4),
        _ => SHORT,
    };
    let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(word / 7) % 3];
    let filter = match word % 3 {
        0 => FilterRef::Name(text),
        1 => FilterRef::Predefined(word % 4),
        _ => FilterRef::Short(*b"tt"),
    };
    let packet = match kind % 16 {
        0 => Packet::Connect {
            will: word.is_multiple_of(2),
            clean: word % 5 > 2,
            protocol: 1,
            seconds: word % 90,
            client_id: text,
        },
        1 => Packet::WillTopic(None),
        2 => Packet::WillMsg(data),
        3 => Packet::Register { topic_id: 0, message: word, name: text },
        4 => Packet::RegAck { topic_id: word, message: word, code },
        5 | 6 => {
            let publish = publish(topic, qos, number.get(), data);
            Packet::Publish(Publish { dup: word.is_multiple_of(4), retain: word.is_multiple_of(9), ..publish })
        }
        7 => Packet::PubAck { topic: word, message: number.get(), code },
        8 => Packet::PubRec(number),
        9 => Packet::PubRel(number),
        10 => Packet::PubComp(number),
        11 => Packet::Subscribe { dup: false, qos, message: number, topic: filter },
        12 => Packet::Unsubscribe { message: number, topic: filter },
        13 => Packet::PingReq { client_id: text },
        14 => Packet::Disconnect { seconds: Some(word % 3) },
        _ => return data.to_vec(),
    };
    packet.bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_datagram_does_harm_and_nobody_who_proves_nothing_gets_much(
        datagrams in proptest::collection::vec(
            (0..4_u16, any::<u8>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 0..80), 0..20_000_u64), 1..60)
    ) {
        let mut world = World::new();
        let (mut came, mut went) = (0, 0);
        for (who, kind, word, data, millis) in datagrams {
            let from = if who == 3 { far(3) } else { here(who + 1) };
            let bytes = packet(kind, word, &data);
            came += if who == 3 { bytes.len() + HEADERS } else { 0 };
            let mut said = world.receive_bytes(from, &bytes);
            said.extend(world.wait(Duration::from_millis(millis)));
            for (to, bytes) in &said {
                prop_assert!(Packet::read(bytes).is_some(), "{bytes:?}");
                went += if *to == far(3) { bytes.len() + HEADERS } else { 0 };
            }
            world.shard.audit().unwrap();
        }
        prop_assert!(went <= 3 * came, "{} for {}", went, came);
    }
}
