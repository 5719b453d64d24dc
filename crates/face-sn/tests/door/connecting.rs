//! CONNECT, DISCONNECT, keep-alive, names, and who is not let in.

use std::time::Duration;

use tidegate_core::datagrams::{DatagramEndpoint, DatagramOwner, NotAdmitted};
use tidegate_face_sn::packet::{FilterRef, Packet, ReturnCode, TopicRef};
use tidegate_wire_mqtt::{QoS, ReasonCode};

use crate::world::{GATEWAY, World, connect, far, here, packets, publish};

const BYE: Packet<'static> = Packet::Disconnect { seconds: None };

#[test]
fn who_looks_for_a_gateway_finds_it_and_leaves_nothing() {
    let mut world = World::new();
    let said = world.receive(far(1), Packet::SearchGw { radius: 1 });
    assert_eq!(packets(&said, far(1)), [Packet::GwInfo { gateway: GATEWAY, address: &[] }]);
    assert_eq!(world.endpoint.stats().peers, 0);
}

#[test]
fn a_client_comes_pings_and_goes() {
    let mut world = World::new();
    world.connect(here(1), "sensor");
    assert_eq!((world.endpoint.stats().peers, world.shard.stats().connects), (1, 1));
    let said = world.receive(here(1), Packet::PingReq { client_id: "" });
    assert_eq!(packets(&said, here(1)), [Packet::PingResp]);
    assert_eq!(packets(&world.receive(here(1), BYE), here(1)), [BYE]);
    assert_eq!(world.endpoint.stats().peers, 0);
    // Nobody is there any more, and is told so.
    let said = world.receive(here(1), Packet::PingReq { client_id: "" });
    assert_eq!(packets(&said, here(1)), [BYE]);
    assert_eq!(world.endpoint.stats().unknown, 1);
    world.shard.audit().unwrap();
}

#[test]
fn whoever_has_not_connected_is_told_to() {
    let mut world = World::new();
    let strangers = [
        Packet::Register { topic_id: 0, message: 1, name: "a" },
        Packet::Publish(publish(TopicRef::Short(*b"tt"), QoS::AtMostOnce, 0, b"x")),
        Packet::Subscribe {
            dup: false,
            qos: QoS::AtMostOnce,
            message: std::num::NonZeroU16::MIN,
            topic: FilterRef::Name("a"),
        },
        Packet::WillMsgUpd(b"x"),
        BYE,
    ];
    for packet in strangers {
        assert_eq!(packets(&world.receive(far(2), packet), far(2)), [BYE], "{packet:?}");
    }
    let strays = [
        Packet::PubAck { topic: 1, message: 1, code: ReturnCode::Accepted },
        Packet::RegAck { topic_id: 1, message: 1, code: ReturnCode::Accepted },
        Packet::PingResp,
        Packet::ConnAck(ReturnCode::Accepted),
        Packet::WillTopic(None),
        Packet::WillMsg(b"x"),
        Packet::Advertise { gateway: 1, seconds: 1 },
    ];
    for packet in strays {
        assert!(world.receive(far(2), packet).is_empty(), "{packet:?}");
    }
    let stats = world.endpoint.stats();
    assert_eq!((stats.unknown, stats.stray, stats.peers), (5, 7, 0));
}

#[test]
fn whoever_is_not_let_in_hears_why() {
    let mut world = World::new();
    let cases = [
        (NotAdmitted::Unknown, ReturnCode::NotSupported),
        (NotAdmitted::Banned, ReturnCode::NotSupported),
        (NotAdmitted::Full, ReturnCode::Congestion),
    ];
    for (why, code) in cases {
        world.verdict = Err(why);
        let said = world.receive(here(1), connect("a"));
        assert_eq!(packets(&said, here(1)), [Packet::ConnAck(code)]);
    }
    world.verdict = Ok(());
    for packet in [
        Packet::Connect { will: false, clean: true, protocol: 2, seconds: 1, client_id: "a" },
        Packet::Connect { will: false, clean: true, protocol: 1, seconds: 1, client_id: "" },
        connect("$coap/127.0.0.1:1"),
        connect("$sn/127.0.0.1"),
        connect("$bridge/x"),
    ] {
        let said = world.receive(here(1), packet);
        assert_eq!(packets(&said, here(1)), [Packet::ConnAck(ReturnCode::NotSupported)], "{packet:?}");
    }
    assert_eq!(world.endpoint.stats().peers, 0);
}

#[test]
fn a_lost_connack_costs_nothing_and_a_second_client_of_the_name_takes_over() {
    let mut world = World::new();
    world.connect(here(1), "one");
    world.connect(here(1), "one");
    assert_eq!(world.shard.stats().connects, 1, "the same CONNECT again");
    let said = world.receive(here(2), connect("one"));
    assert_eq!(packets(&said, here(1)), [BYE]);
    assert_eq!(packets(&said, here(2)), [Packet::ConnAck(ReturnCode::Accepted)]);
    assert_eq!(world.endpoint.stats().peers, 1);
    // Another client at the same address ends the one before.
    let said = world.receive(here(2), connect("two"));
    assert_eq!(packets(&said, here(2)), [Packet::ConnAck(ReturnCode::Accepted)]);
    assert_eq!((world.endpoint.stats().peers, world.shard.stats().connects), (1, 3));
    assert!(world.shard.client("one", world.now).is_none());
    world.shard.audit().unwrap();
}

#[test]
fn a_session_that_is_to_last_goes_on_and_a_clean_one_does_not() {
    let mut world = World::new();
    let lasting = |client_id| Packet::Connect { will: false, clean: false, protocol: 1, seconds: 60, client_id };
    world.connect(here(2), "publisher");
    let topic = world.register(here(2), "state");
    for clean in [false, true] {
        let again = Packet::Connect { will: false, clean, protocol: 1, seconds: 60, client_id: "a" };
        world.receive(here(1), lasting("a"));
        world.subscribe(here(1), FilterRef::Name("state"), QoS::AtLeastOnce);
        world.receive(here(1), BYE);
        world.receive(here(2), Packet::Publish(publish(TopicRef::Id(topic), QoS::AtLeastOnce, 1, b"missed")));
        let said = world.receive(here(3), again);
        let heard = packets(&said, here(3));
        assert_eq!(heard[0], Packet::ConnAck(ReturnCode::Accepted));
        // On a new connection the topic has to be named again.
        assert_eq!(heard.len(), if clean { 1 } else { 2 }, "{heard:?}");
        if !clean {
            assert!(matches!(heard[1], Packet::Register { name: "state", .. }), "{heard:?}");
        }
        world.receive(here(3), BYE);
    }
    world.shard.audit().unwrap();
}

#[test]
fn a_silent_client_is_lost_after_one_and_a_half_keep_alives() {
    let mut world = World::new();
    world.connect(here(1), "a");
    let said = world.wait(Duration::from_secs(89));
    assert!(said.is_empty(), "{said:?}");
    world.receive(here(1), Packet::PingReq { client_id: "" });
    let said = world.wait(Duration::from_secs(89));
    assert!(said.is_empty(), "{said:?}");
    let said = world.wait(Duration::from_secs(2));
    assert_eq!(packets(&said, here(1)), [BYE]);
    assert_eq!(world.endpoint.stats().peers, 0);
    // Without a keep-alive, after an hour: a datagram's sender does not hang up.
    world.receive(here(2), Packet::Connect { will: false, clean: true, protocol: 1, seconds: 0, client_id: "b" });
    assert!(world.wait(Duration::from_secs(3599)).is_empty());
    assert_eq!(world.endpoint.stats().peers, 1);
    world.wait(Duration::from_secs(2));
    assert_eq!(world.endpoint.stats().peers, 0);
    world.shard.audit().unwrap();
}

#[test]
fn when_the_broker_ends_or_somebody_is_expelled_clients_hear_it() {
    let mut world = World::new();
    world.connect(here(1), "a");
    world.connect(here(2), "b");
    world.shard.handle_kick("a", ReasonCode::AdministrativeAction, world.now);
    assert_eq!(packets(&world.turn(), here(1)), [BYE]);
    world.shard.handle_shutdown(ReasonCode::ServerShuttingDown, world.now);
    assert_eq!(packets(&world.turn(), here(2)), [BYE]);
    assert_eq!(world.endpoint.stats().peers, 0);
}

#[test]
fn a_datagram_is_for_the_shard_of_its_client() {
    let mut world = World::new();
    let owner = |world: &World, packet: Packet<'_>| world.endpoint.owner(far(1), &packet.bytes());
    assert_eq!(owner(&world, connect("a")), DatagramOwner::Client("a".into()));
    let address = DatagramOwner::Address("$sn/192.0.2.7".into());
    assert_eq!(owner(&world, Packet::PingReq { client_id: "a" }), address);
    assert_eq!(world.endpoint.owner(far(1), b"rubbish"), address);
    // Another shard has the client of this address now.
    world.connect(far(1), "a");
    assert!(world.endpoint.knows(far(1)));
    let now = world.now;
    world.endpoint.handle_moved(&mut world.shard, far(1), now);
    assert!(!world.endpoint.knows(far(1)) && world.turn().is_empty());
    world.shard.audit().unwrap();
}
