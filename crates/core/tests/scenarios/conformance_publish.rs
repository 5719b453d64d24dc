//! Statements of chapters 3.3 to 3.7 and 4.3 to 4.9 that no other scenario proves; see `specs/`.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::access::{Action, Open};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::AckKind::{PubAck, PubComp, PubRec, PubRel};
use tidegate_wire_mqtt::property::PayloadFormat;
use tidegate_wire_mqtt::{Ack, Packet, PacketId, Properties, Property, ReasonCode};

use crate::net::{Forbid, Got, Net, Options, Wire, ack, lasting};

fn receive_maximum(count: u16) -> Options<'static> {
    let mut options = lasting();
    options.properties.push(Property::ReceiveMaximum(NonZeroU16::new(count).unwrap()));
    options
}

fn refuse(net: &mut Net, wire: Wire, kind: tidegate_wire_mqtt::AckKind, id: u16) {
    let (packet_id, reason) = (PacketId::new(id).unwrap(), ReasonCode::UnspecifiedError);
    net.send(wire, &Ack { kind, packet_id, reason, properties: Properties::EMPTY });
}

#[test]
fn properties_arrive_unaltered_and_in_order() {
    let mut net = Net::new(2);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "t", 0);
    let list = [
        Property::PayloadFormat(PayloadFormat::Utf8),
        Property::UserProperty("b", "1"),
        Property::ResponseTopic("answer/here"),
        Property::UserProperty("a", "2"),
        Property::CorrelationData(&[0, 255, 7]),
        Property::UserProperty("b", "3"),
        Property::ContentType("text/plain"),
    ];
    net.publish_with(sender, "t", "x", 0, false, 0, &list);
    // At once, kept as a retained message, and kept for a client that is away: the same.
    net.publish_with(sender, "t", "x", 0, true, 0, &list);
    let late = net.v5("late");
    net.subscribe(late, "t", 0);
    for wire in [receiver, receiver, late] {
        net.look_at_message(wire, |message| {
            let properties = &message.properties;
            assert_eq!(properties.payload_format(), Some(PayloadFormat::Utf8));
            assert_eq!(properties.response_topic(), Some("answer/here"));
            assert_eq!(properties.correlation_data(), Some(&[0, 255, 7][..]));
            assert_eq!(properties.content_type(), Some("text/plain"));
            let pairs: Vec<_> = properties.user_properties().collect();
            assert_eq!(pairs, [("b", "1"), ("a", "2"), ("b", "3")]);
        });
    }
}

#[test]
fn a_message_carries_what_is_left_of_its_lifetime() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 1);
    net.publish_with(sender, "t", "now", 1, false, 1, &[Property::MessageExpiry(60)]);
    let expiry = |net: &mut Net, wire| net.look_at_message(wire, |message| message.properties.message_expiry());
    assert_eq!(expiry(&mut net, receiver), Some(60));
    net.ack(receiver, PubAck, 1);
    net.cut(receiver);
    net.publish_with(sender, "t", "later", 1, true, 2, &[Property::MessageExpiry(60)]);
    net.pass(Duration::from_secs(20));
    let receiver = net.dial("receiver", &lasting());
    assert!(matches!(net.receive_one(receiver), Some(Got::ConnAck { .. })));
    assert_eq!(expiry(&mut net, receiver), Some(40));
    let late = net.v5("late");
    net.subscribe(late, "t", 0);
    assert_eq!(expiry(&mut net, late), Some(40), "a retained one, too");
}

#[test]
fn aliases_are_used_where_wanted_and_accepted_as_announced() {
    let mut net = Net::new(1);
    let (sender, plain) = (net.v5("sender"), net.v5("plain"));
    let properties = vec![Property::TopicAliasMaximum(3)];
    let wants = net.connect("wants", &Options { properties, ..Options::default() });
    net.subscribe(plain, "#", 0);
    net.subscribe(wants, "#", 0);
    for number in 1..=64 {
        let alias = [Property::TopicAlias(NonZeroU16::new(number).unwrap())];
        net.publish_with(sender, &format!("some/topic/{number}"), "x", 0, false, 0, &alias);
        net.publish_with(sender, "", "x", 0, false, 0, &alias);
    }
    assert!(!net.is_closed(sender), "every alias from 1 to the maximum");
    for number in 1..=64 {
        for _ in 0..2 {
            let topic = format!("some/topic/{number}");
            net.look_at_message(plain, |message| {
                assert_eq!((message.topic, message.properties.topic_alias()), (&*topic, None));
            });
            net.look_at_message(wants, |message| {
                assert!(message.properties.topic_alias().is_none_or(|alias| alias.get() <= 3));
            });
        }
    }
}

#[test]
fn without_the_retain_flag_nothing_is_kept_or_replaced() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.publish(sender, "t", "kept", 0, true, 0);
    net.publish(sender, "t", "passing", 0, false, 0);
    net.publish(sender, "t", "", 0, false, 0);
    net.publish(sender, "u", "passing", 0, false, 0);
    let reader = net.v5("reader");
    net.subscribe(reader, "#", 0);
    assert_eq!(net.payloads(reader), ["kept"]);
}

#[test]
fn an_empty_retained_message_is_delivered_and_not_kept() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "t", 0);
    net.publish(sender, "t", "x", 0, true, 0);
    net.publish(sender, "t", "", 0, true, 0);
    assert_eq!(net.payloads(receiver), ["x", ""]);
    assert_eq!(net.stats().retained_messages, 0);
}

#[test]
fn identifiers_in_use_are_not_given_again() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.connect("receiver", &receive_maximum(3)));
    net.subscribe(receiver, "t", 2);
    net.publish(sender, "t", "kept open", 1, false, 1);
    assert!(matches!(net.receive(receiver)[..], [Got::Message { id: Some(1), .. }]));
    let mut last = 1;
    for number in 0..u32::from(u16::MAX) + 10 {
        let qos = 1 + (number % 2) as u8;
        net.publish(sender, "t", "x", qos, false, 1);
        net.ack(sender, PubRel, 1);
        let got = net.receive(receiver);
        let [Got::Message { id: Some(id), dup: false, .. }] = got[..] else { panic!("{got:?}") };
        assert!(id > 1, "{id}");
        assert_eq!(id, if last == u16::MAX { 2 } else { last + 1 });
        last = id;
        for kind in if qos == 1 { &[PubAck][..] } else { &[PubRec, PubComp] } {
            net.ack(receiver, *kind, id);
        }
        net.receive(receiver);
        net.receive(sender);
    }
}

#[test]
fn after_its_acknowledgement_an_identifier_names_a_new_message() {
    let mut net = Net::with(1, Settings::default(), Forbid(Action::Publish, "secret"));
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "#", 0);
    // [MQTT-4.3.2-5] QoS 1, whatever DUP says.
    net.publish(sender, "t", "one", 1, false, 5);
    net.publish_again(sender, "t", "one", 1, 5);
    assert_eq!(net.payloads(receiver), ["one", "one"]);
    // [MQTT-4.3.3-9] QoS 2, after a refusal.
    net.publish(sender, "secret", "no", 2, false, 6);
    net.publish_again(sender, "t", "two", 2, 6);
    assert_eq!(net.payloads(receiver), ["two"]);
    let reasons = net.receive(sender);
    assert_eq!(reasons[2..], [ack(PubRec, 6, ReasonCode::NotAuthorized), ack(PubRec, 6, ReasonCode::Success)]);
    // [MQTT-4.3.3-12] QoS 2, after PUBCOMP.
    net.ack(sender, PubRel, 6);
    assert_eq!(net.receive(sender), [ack(PubComp, 6, ReasonCode::Success)]);
    net.publish_again(sender, "t", "three", 2, 6);
    assert_eq!(net.payloads(receiver), ["three"]);
}

#[test]
fn what_the_client_refused_is_not_sent_again() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 2);
    net.publish(sender, "t", "one", 1, false, 1);
    net.publish(sender, "t", "two", 2, false, 2);
    net.receive(receiver);
    refuse(&mut net, receiver, PubAck, 1);
    refuse(&mut net, receiver, PubRec, 2);
    assert_eq!(net.receive(receiver), [], "no PUBREL for a refusal");
    net.cut(receiver);
    let receiver = net.dial("receiver", &lasting());
    assert!(matches!(net.receive(receiver)[..], [Got::ConnAck { present: true, .. }]));
}

#[test]
fn what_was_received_is_not_published_again() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let mut receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 2);
    net.publish(sender, "t", "two", 2, false, 1);
    net.receive(receiver);
    net.ack(receiver, PubRec, 1);
    for _ in 0..3 {
        net.cut(receiver);
        receiver = net.dial("receiver", &lasting());
        assert_eq!(net.receive(receiver)[1..], [ack(PubRel, 1, ReasonCode::Success)], "until PUBCOMP, and no PUBLISH");
    }
    net.ack(receiver, PubComp, 1);
    net.cut(receiver);
    let receiver = net.dial("receiver", &lasting());
    assert_eq!(net.receive(receiver).len(), 1);
}

#[test]
fn nothing_is_sent_again_without_a_new_connection() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.connect("receiver", &lasting()));
    net.subscribe(receiver, "t", 2);
    net.publish(sender, "t", "one", 1, false, 1);
    net.publish(sender, "t", "two", 2, false, 2);
    net.receive(receiver);
    net.pass(Duration::from_secs(3000));
    assert_eq!(net.receive(receiver), []);
}

#[test]
fn a_full_window_holds_up_publish_and_nothing_else() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &receive_maximum(1));
    net.subscribe(receiver, "t", 1);
    for id in 1..=3 {
        net.publish(sender, "t", &id.to_string(), 1, false, id);
    }
    assert_eq!(net.payloads(receiver), ["1"]);
    net.send(receiver, &Packet::PingReq);
    assert_eq!(net.receive(receiver), [Got::Pong]);
    assert_eq!(net.subscribe(receiver, "u", 0), ReasonCode::Success);
    net.publish(receiver, "nobody", "x", 2, false, 9);
    net.ack(receiver, PubRel, 9);
    let answers = [ack(PubRec, 9, ReasonCode::NoMatchingSubscribers), ack(PubComp, 9, ReasonCode::Success)];
    assert_eq!(net.receive(receiver), answers);
    net.ack(receiver, PubAck, 1);
    assert_eq!(net.payloads(receiver), ["2"]);
}

#[test]
fn messages_of_one_client_keep_their_order_through_a_queue() {
    let mut net = Net::new(2);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &receive_maximum(2));
    net.subscribe(receiver, "t", 1);
    for id in 1..=20 {
        net.publish(sender, "t", &id.to_string(), 1, false, id);
    }
    let mut seen = Vec::new();
    while let Some(Got::Message { payload, id: Some(id), .. }) = net.receive_one(receiver) {
        seen.push(payload);
        net.ack(receiver, PubAck, id);
    }
    assert_eq!(seen, (1..=20).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn topics_are_compared_as_they_are() {
    let mut net = Net::with(1, Settings::default(), Open);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    for filter in ["caf\u{e9}", "a/b", "Case", "\u{feff}bom", " space"] {
        net.subscribe(receiver, filter, 0);
    }
    for other in ["cafe\u{301}", "a//b", "/a/b", "a/b/", "case", "bom", "space", "space "] {
        net.publish(sender, other, other, 0, false, 0);
    }
    assert_eq!(net.receive(receiver), []);
    for same in ["caf\u{e9}", "\u{feff}bom", " space"] {
        net.publish(sender, same, same, 0, false, 0);
    }
    assert_eq!(net.payloads(receiver).len(), 3);
}
