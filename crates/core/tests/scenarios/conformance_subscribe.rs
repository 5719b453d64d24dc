//! Statements of chapters 3.8 to 3.11 and 4.8 that no other scenario proves; see `specs/`.

use tidegate_core::access::Action;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::AckKind::{PubAck, PubComp, PubRec};
use tidegate_wire_mqtt::{Ack, PacketId, Properties, Property, QoS, ReasonCode, Version};

use crate::net::{Forbid, Got, Net, Options, ack, lasting, options};

#[test]
fn answers_carry_the_identifier_of_what_they_answer() {
    let mut net = Net::new(1);
    let (new, old) = (net.v5("new"), net.connect("old", &Options { version: Version::V311, ..Options::default() }));
    net.send_bytes(new, b"\x82\x07\x12\x34\x00\x00\x01a\x01");
    assert_eq!(net.raw(new), b"\x90\x04\x12\x34\x00\x01");
    net.send_bytes(new, b"\xa2\x06\x23\x45\x00\x00\x01a");
    assert_eq!(net.raw(new), b"\xb0\x04\x23\x45\x00\x00");
    net.send_bytes(old, b"\x82\x06\x12\x34\x00\x01a\x01");
    assert_eq!(net.raw(old), b"\x90\x03\x12\x34\x01");
    net.send_bytes(old, b"\xa2\x05\x23\x45\x00\x01a");
    assert_eq!(net.raw(old), b"\xb0\x02\x23\x45");
    // Even if nothing was there to be ended.
    net.send_bytes(old, b"\xa2\x05\x34\x56\x00\x01a");
    assert_eq!(net.raw(old), b"\xb0\x02\x34\x56");
}

#[test]
fn several_filters_are_answered_one_by_one_and_in_order() {
    let mut net = Net::with(1, Settings::default(), Forbid(Action::Subscribe, "no"));
    for (version, refused, gap) in [(Version::V5, 0x87, &b"\x00"[..]), (Version::V311, 0x80, b"")] {
        let client = net.connect("c", &Options { version, ..Options::default() });
        let filters = b"\x00\x01a\x02\x00\x02no\x01\x00\x01b\x00\x00\x01c\x01";
        let body = [b"\x00\x07", gap, filters].concat();
        net.send_bytes(client, &[&[0x82, body.len() as u8], &body[..]].concat());
        let answer = [b"\x00\x07", gap, &[2, refused, 0, 1][..]].concat();
        assert_eq!(net.raw(client), [&[0x90, answer.len() as u8], &answer[..]].concat());
        // And taken back: two that are there, and one that is not between them.
        let body = [b"\x00\x08", gap, b"\x00\x01a\x00\x01x\x00\x01b"].concat();
        net.send_bytes(client, &[&[0xa2, body.len() as u8], &body[..]].concat());
        let codes: &[u8] = if version == Version::V5 { &[0, 0, 0x11, 0] } else { &[] };
        let answer = [b"\x00\x08", codes].concat();
        assert_eq!(net.raw(client), [&[0xb0, answer.len() as u8], &answer[..]].concat());
        assert_eq!(net.stats().subscriptions, 1);
        net.cut(client);
    }
}

#[test]
fn a_message_has_the_lower_of_both_qualities() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    for granted in 0..=2 {
        for published in 0..=2 {
            let receiver = net.v5("receiver");
            net.subscribe(receiver, "t", granted);
            net.publish(sender, "t", "x", published, false, 1);
            net.ack(sender, tidegate_wire_mqtt::AckKind::PubRel, 1);
            let expected = granted.min(published);
            assert!(matches!(net.receive(receiver)[..], [Got::Message { qos, .. }] if qos == expected));
            net.cut(receiver);
            // The same for what was retained.
            net.publish(sender, "t", "x", published, true, 1);
            net.ack(sender, tidegate_wire_mqtt::AckKind::PubRel, 1);
            let receiver = net.v5("receiver");
            net.subscribe(receiver, "t", granted);
            assert!(matches!(net.receive(receiver)[..], [Got::Message { qos, retain: true, .. }] if qos == expected));
            net.cut(receiver);
            net.publish(sender, "t", "", 0, true, 0);
            net.receive(sender);
        }
    }
}

#[test]
fn what_was_under_way_is_completed_after_unsubscribing() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 2);
    net.publish(sender, "t", "two", 2, false, 1);
    net.receive(receiver);
    assert_eq!(net.unsubscribe(receiver, "t"), [ReasonCode::Success]);
    net.publish(sender, "t", "new", 2, false, 2);
    net.cut(receiver);
    let receiver = net.dial("receiver", &lasting());
    let got = net.receive(receiver);
    assert!(matches!(&got[1..], [Got::Message { payload, dup: true, .. }] if payload == "two"), "{got:?}");
    net.ack(receiver, PubRec, 1);
    net.ack(receiver, PubComp, 1);
    assert_eq!(net.receive(receiver), [ack(tidegate_wire_mqtt::AckKind::PubRel, 1, ReasonCode::Success)]);
}

#[test]
fn a_subscription_of_3_1_1_made_again_sends_retained_messages_again() {
    let mut net = Net::new(1);
    let client = net.connect("c", &Options { version: Version::V311, ..Options::default() });
    net.publish(client, "t", "x", 0, true, 0);
    for _ in 0..3 {
        net.subscribe(client, "t", 0);
        assert!(matches!(&net.receive(client)[..], [Got::Message { retain: true, .. }]));
    }
    // Live messages say nothing of it, whatever their flag.
    net.publish(client, "t", "y", 0, true, 0);
    assert!(matches!(&net.receive(client)[..], [Got::Message { retain: false, .. }]));
}

#[test]
fn filters_of_a_session_are_compared_byte_by_byte() {
    let mut net = Net::new(1);
    let client = net.v5("c");
    net.subscribe(client, "a/+", 0);
    for other in ["a/b", "a/#", "A/+", "a/+/", "/a/+"] {
        assert_eq!(net.unsubscribe(client, other), [ReasonCode::NoSubscriptionExisted], "{other}");
    }
    net.publish(client, "a/b", "x", 0, false, 0);
    assert_eq!(net.payloads(client), ["x"]);
}

#[test]
fn a_member_gets_its_own_granted_quality() {
    let mut net = Net::new(1);
    let (sender, zero, two) = (net.v5("sender"), net.v5("zero"), net.v5("two"));
    net.subscribe(zero, "$share/g/t", 0);
    net.subscribe(two, "$share/g/t", 2);
    for id in 1..=10 {
        net.publish(sender, "t", "x", 2, false, id);
    }
    for (member, expected) in [(zero, 0), (two, 2)] {
        let got = net.receive(member);
        assert!(!got.is_empty(), "the one that acknowledges nothing has something, too");
        assert!(got.iter().all(|got| matches!(got, Got::Message { qos, .. } if *qos == expected)), "{got:?}");
    }
}

#[test]
fn a_shared_message_under_way_belongs_to_its_member() {
    let mut net = Net::new(1);
    let (sender, other) = (net.v5("sender"), net.v5("other"));
    let member = net.connect("member", &lasting());
    net.subscribe(member, "$share/g/t", 2);
    net.publish(sender, "t", "two", 2, false, 1);
    net.receive(member);
    net.subscribe(other, "$share/g/t", 2);
    net.cut(member);
    assert_eq!(net.receive(other), [], "not to somebody else while its member may come back");
    let member = net.dial("member", &lasting());
    let got = net.receive(member);
    assert!(matches!(&got[1..], [Got::Message { payload, dup: true, .. }] if payload == "two"), "{got:?}");
    // Not even when the session of its member is over.
    net.cut(member);
    net.pass(std::time::Duration::from_secs(3601));
    assert_eq!(net.receive(other), []);
}

#[test]
fn a_shared_message_that_was_refused_goes_to_nobody_else() {
    let mut net = Net::new(1);
    let (sender, one, two) = (net.v5("sender"), net.v5("one"), net.v5("two"));
    net.subscribe(one, "$share/g/t", 2);
    net.subscribe(two, "$share/g/t", 2);
    for (kind, qos) in [(PubAck, 1), (PubRec, 2)] {
        net.publish(sender, "t", "x", qos, false, 1);
        net.ack(sender, tidegate_wire_mqtt::AckKind::PubRel, 1);
        let (chosen, id) = [one, two]
            .into_iter()
            .find_map(|wire| match net.receive_one(wire) {
                Some(Got::Message { id: Some(id), .. }) => Some((wire, id)),
                _ => None,
            })
            .unwrap();
        let (packet_id, reason) = (PacketId::new(id).unwrap(), ReasonCode::UnspecifiedError);
        net.send(chosen, &Ack { kind, packet_id, reason, properties: Properties::EMPTY });
        assert_eq!((net.receive(one), net.receive(two)), (vec![], vec![]));
    }
}

#[test]
fn subscription_identifiers_last_as_long_as_their_subscription() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    let id = |number| [Property::SubscriptionId(std::num::NonZeroU32::new(number).unwrap())];
    let ids = |net: &mut Net, wire| match &net.receive(wire)[..] {
        [.., Got::Message { ids, .. }] => ids.clone(),
        other => panic!("{other:?}"),
    };
    net.subscribe_with(receiver, "t", options(QoS::AtMostOnce), &id(268_435_455));
    net.publish(sender, "t", "x", 0, false, 0);
    assert_eq!(ids(&mut net, receiver), [268_435_455]);
    net.cut(receiver);
    let receiver = net.connect("receiver", &lasting());
    net.publish(sender, "t", "x", 0, false, 0);
    assert_eq!(ids(&mut net, receiver), [268_435_455]);
    net.subscribe(receiver, "t", 0);
    net.publish(sender, "t", "x", 0, false, 0);
    assert_eq!(ids(&mut net, receiver), [0; 0], "replaced by one without");
}
