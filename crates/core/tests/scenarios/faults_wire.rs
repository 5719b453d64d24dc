//! FAULTS.md, section A: what packets that the codec lets through must not do to a session.

use std::num::NonZeroU16;

use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Property, QoS, ReasonCode};

use crate::net::{Got, Net, Options, options};

fn alias(number: u16) -> [Property<'static>; 1] {
    [Property::TopicAlias(NonZeroU16::new(number).unwrap())]
}

#[test]
fn f002_f003_a_bad_length_is_told_to_a_connected_client() {
    for bytes in [&b"\x30\xff\xff\xff\xff\x7f"[..], b"\xc0\x80\x00", b"\x30\x05\x00\x01a\x80\x00"] {
        let mut net = Net::new(1);
        let (client, other) = (net.v5("c"), net.v5("other"));
        net.send_bytes(client, bytes);
        assert_eq!(net.receive(client), [Got::Disconnect(ReasonCode::MalformedPacket)], "{bytes:x?}");
        assert!(net.is_closed(client) && !net.is_closed(other));
    }
}

#[test]
fn f010_a_second_connect_ends_the_connection_and_its_session() {
    let mut net = Net::new(1);
    let client = net.v5("c");
    net.subscribe(client, "t", 0);
    net.send_bytes(client, b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c");
    assert_eq!(net.receive(client), [Got::Disconnect(ReasonCode::ProtocolError)]);
    assert!(net.is_closed(client));
    let stats = net.stats();
    assert_eq!((stats.connections, stats.sessions, stats.subscriptions), (0, 0, 0));
}

#[test]
fn f011_odd_client_ids_are_names_and_nothing_else() {
    let mut net = Net::new(2);
    let odd = ["#", "+", "/", "../../etc/passwd", "a\nb", "\u{feff}", "\u{1}", "%u", "$SYS", "a b", "ü", "'; --"];
    let wires: Vec<_> = odd.iter().map(|id| net.v5(id)).collect();
    assert_eq!(net.stats().sessions, odd.len() as u64);
    assert!(wires.iter().all(|wire| !net.is_closed(*wire)), "none is taken for another");
    for length in [257, 65_535] {
        let wire = net.dial(&"x".repeat(length), &Options::default());
        let reason = ReasonCode::ClientIdentifierNotValid;
        assert!(matches!(net.receive(wire)[..], [Got::ConnAck { reason: told, .. }] if told == reason));
        assert!(net.is_closed(wire));
    }
    net.v5(&"x".repeat(256));
}

#[test]
fn f017_more_filters_than_a_packet_may_have_are_refused_as_a_whole() {
    let mut net = Net::new(1);
    let client = net.v5("c");
    let mut body = vec![0, 1, 0];
    for number in 0..2000_u16 {
        body.extend_from_slice(b"\x00\x04");
        body.extend_from_slice(format!("{number:04}").as_bytes());
        body.push(0);
    }
    let mut packet = vec![0x82, (body.len() % 128) as u8 | 0x80, (body.len() / 128) as u8];
    packet.extend_from_slice(&body);
    net.send_bytes(client, &packet);
    assert_eq!(net.receive(client), [Got::Disconnect(ReasonCode::QuotaExceeded)]);
    assert_eq!(net.stats().subscriptions, 0);
}

#[test]
fn f018_the_deepest_topics_match_and_deeper_ones_are_refused() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    let (deep, filter) = ("a/".repeat(63) + "a", "+/".repeat(63) + "#");
    net.subscribe(receiver, &filter, 0);
    net.publish(sender, &deep, "x", 0, true, 0);
    assert_eq!(net.payloads(receiver), ["x"]);
    net.subscribe(receiver, "#", 0);
    assert_eq!(net.payloads(receiver), ["x"], "and from the tree of retained messages");
    net.publish(sender, &(deep + "/a"), "x", 0, false, 0);
    assert_eq!(net.receive(sender), [Got::Disconnect(ReasonCode::TopicNameInvalid)]);
}

#[test]
fn f019_ten_thousand_wildcard_filters_give_one_copy_and_no_more_filters() {
    let settings = Settings { subscriptions_max: 4096, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (sender, bomber) = (net.v5("sender"), net.v5("bomber"));
    // Every choice of `a` and `+` on twelve levels: all of them match one topic.
    for number in 0..4096 {
        let levels: Vec<&str> = (0..12).map(|bit| if number >> bit & 1 == 0 { "a" } else { "+" }).collect();
        assert_eq!(net.subscribe(bomber, &levels.join("/"), 0), ReasonCode::Success);
    }
    assert_eq!(net.subscribe(bomber, "one/more", 0), ReasonCode::QuotaExceeded);
    net.publish(sender, &["a"; 12].join("/"), "x", 0, false, 0);
    assert_eq!(net.payloads(bomber), ["x"]);
    net.cut(bomber);
    assert_eq!(net.stats().subscriptions, 0);
}

#[test]
fn f019_deep_filters_are_counted_by_their_levels() {
    let mut net = Net::new(1);
    let client = net.v5("c");
    let filter = |number: usize| format!("{number}/{}", ["+"; 63].join("/"));
    for number in 0..1024 {
        assert_eq!(net.subscribe(client, &filter(number), 0), ReasonCode::Success);
    }
    assert_eq!(net.subscribe(client, "one/more", 0), ReasonCode::QuotaExceeded);
    assert_eq!(net.subscribe(client, &filter(7), 1), ReasonCode::GrantedQos1, "an old one may be changed");
    assert_eq!(net.unsubscribe(client, &filter(7)), [ReasonCode::Success]);
    assert_eq!(net.subscribe(client, "one/more", 0), ReasonCode::Success);
}

#[test]
fn f020_a_share_is_left_by_its_whole_name() {
    let mut net = Net::new(1);
    let (sender, member) = (net.v5("sender"), net.v5("member"));
    net.subscribe(member, "$share/g/+", 0);
    assert_eq!(net.unsubscribe(member, "+"), [ReasonCode::NoSubscriptionExisted]);
    assert_eq!(net.unsubscribe(member, "$share/h/+"), [ReasonCode::NoSubscriptionExisted]);
    net.publish(sender, "t", "1", 0, false, 0);
    assert_eq!(net.payloads(member), ["1"]);
    assert_eq!(net.unsubscribe(member, "$share/g/+"), [ReasonCode::Success]);
    net.publish(sender, "t", "2", 0, false, 0);
    assert_eq!(net.payloads(member), [""; 0]);
}

#[test]
fn f024_aliases_belong_to_their_connection() {
    let mut net = Net::new(1);
    let receiver = net.v5("receiver");
    net.subscribe(receiver, "#", 0);
    let ends_with = |net: &mut Net, topic: &str, number: u16| {
        let client = net.v5("c");
        net.publish_with(client, topic, "x", 0, false, 0, &alias(number));
        match net.receive(client)[..] {
            [] => None,
            [Got::Disconnect(reason)] => Some(reason),
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(ends_with(&mut net, "t", 64), None);
    // The connection is another one: what was said on the last does not count. 0x82 is what section 3.3.4 asks for.
    assert_eq!(ends_with(&mut net, "", 64), Some(ReasonCode::ProtocolError));
    assert_eq!(ends_with(&mut net, "t", 65), Some(ReasonCode::TopicAliasInvalid));
    assert_eq!(ends_with(&mut net, "t", u16::MAX), Some(ReasonCode::TopicAliasInvalid));
    net.receive(receiver);

    let client = net.v5("c");
    for number in 0..10_000 {
        net.publish_with(client, &format!("t/{number}"), "x", 0, false, 0, &alias(1));
    }
    net.receive(receiver);
    net.publish_with(client, "", "last", 0, false, 0, &alias(1));
    assert_eq!(net.receive(receiver), [crate::net::message("t/9999", "last", 0, None)]);
}

/// 64 topics of 60 KB a connection are megabytes that a budget of 4 MiB does not have for everybody.
#[test]
fn f024_aliases_are_charged_and_one_without_room_ends_its_connection() {
    /// Matches of topics have a sixteenth of the budget; beside them, what is known of publishers.
    const REMEMBERED: usize = 300 << 10;
    let mut net = Net::new(1);
    net.shards[0].set_memory(4 << 20, 0);
    let idle = net.shards[0].memory_used();
    let topic = |number: u16| format!("{number:05}/{}", "x".repeat(60_000));
    let (first, second) = (net.v5("first"), net.v5("second"));
    let define = |net: &mut Net, client| {
        (1..=64).find_map(|number| {
            net.publish_with(client, &topic(number), "x", 1, false, number, &alias(number));
            assert!(net.shards[0].memory_used() <= 4 << 20);
            net.receive(client).into_iter().find_map(|got| match got {
                Got::Disconnect(reason) => Some((number, reason)),
                _ => None,
            })
        })
    };
    let before = net.shards[0].memory_used();
    let (last, reason) = define(&mut net, first).expect("there is no room for all of them");
    assert_eq!(reason, ReasonCode::QuotaExceeded);
    assert!(last > 40, "{last} of 60 aliases that there is room for");
    assert!(net.is_closed(first) && net.stats().publish_memory_budget == 1);
    assert!(net.shards[0].memory_used() < before + REMEMBERED, "given back with the connection");
    let third = net.v5("third");
    assert!(define(&mut net, third).is_some());
    net.publish_with(second, "t", "x", 1, false, 1, &alias(1));
    net.publish_with(second, "", "x", 1, false, 2, &alias(1));
    assert!(!net.is_closed(second), "others go on");
    for client in [second, third] {
        net.cut(client);
    }
    let left = net.shards[0].memory_used().saturating_sub(idle);
    assert!(left < REMEMBERED, "{left}");
}

#[test]
fn f025_at_qos_0_a_lie_about_the_format_ends_the_connection() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe_with(receiver, "t", options(QoS::AtMostOnce), &[]);
    net.send_bytes(sender, b"\x30\x07\x00\x01t\x02\x01\x01\xff");
    assert_eq!(net.receive(sender), [Got::Disconnect(ReasonCode::PayloadFormatInvalid)]);
    assert_eq!(net.payloads(receiver), [""; 0]);
}

#[test]
fn f026_a_client_that_accepts_no_connack_is_refused_with_one() {
    let mut net = Net::new(1);
    let size = |bytes| vec![Property::MaximumPacketSize(std::num::NonZeroU32::new(bytes).unwrap())];
    let wire = net.dial("c", &Options { properties: size(10), ..Options::default() });
    assert_eq!(net.raw(wire), b"\x20\x03\x00\x95\x00");
    assert!(net.is_closed(wire));
    assert_eq!(net.stats().sessions, 0);
    net.connect("c", &Options { properties: size(40), ..Options::default() });
}
