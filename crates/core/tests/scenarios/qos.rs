//! Quality of service in both directions, windows, and resumption.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::access::Action;
use tidegate_core::classes::Priority;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, ReasonCode, Version};

use crate::net::{Forbid, Got, Net, Options, lasting, message};

#[test]
fn each_quality_of_service_is_answered_in_its_way() {
    for version in [Version::V311, Version::V5] {
        let mut net = Net::new(1);
        let options = Options { version, ..Options::default() };
        let (sender, receiver) = (net.connect("sender", &options), net.connect("receiver", &options));
        net.subscribe(receiver, "a/b", 2);
        net.publish(sender, "a/b", "zero", 0, false, 0);
        net.publish(sender, "a/b", "one", 1, false, 11);
        net.publish(sender, "a/b", "two", 2, false, 12);
        let success = ReasonCode::Success;
        assert_eq!(
            net.receive(sender),
            [
                Got::Ack { kind: AckKind::PubAck, id: 11, reason: success },
                Got::Ack { kind: AckKind::PubRec, id: 12, reason: success }
            ]
        );
        net.ack(sender, AckKind::PubRel, 12);
        assert_eq!(net.receive(sender), [Got::Ack { kind: AckKind::PubComp, id: 12, reason: success }]);
        assert_eq!(
            net.receive(receiver),
            [message("a/b", "zero", 0, None), message("a/b", "one", 1, Some(1)), message("a/b", "two", 2, Some(2))]
        );
        net.ack(receiver, AckKind::PubAck, 1);
        net.ack(receiver, AckKind::PubRec, 2);
        assert_eq!(net.receive(receiver), [Got::Ack { kind: AckKind::PubRel, id: 2, reason: success }]);
        net.ack(receiver, AckKind::PubComp, 2);
        assert_eq!(net.receive(receiver), []);
    }
}

#[test]
fn a_qos_2_message_that_is_sent_again_is_delivered_once() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "t", 0);
    net.publish(sender, "t", "x", 2, false, 5);
    net.publish(sender, "t", "x", 2, false, 5);
    assert_eq!(net.payloads(receiver), ["x"]);
    net.ack(sender, AckKind::PubRel, 5);
    net.publish(sender, "t", "y", 2, false, 5);
    assert_eq!(net.payloads(receiver), ["y"], "after PUBREL the identifier is free");
}

#[test]
fn unknown_identifiers_are_answered_and_hurt_nobody() {
    let mut net = Net::new(1);
    let client = net.v5("client");
    net.ack(client, AckKind::PubAck, 9);
    net.ack(client, AckKind::PubComp, 9);
    assert_eq!(net.receive(client), []);
    net.ack(client, AckKind::PubRel, 9);
    let not_found = ReasonCode::PacketIdentifierNotFound;
    assert_eq!(net.receive(client), [Got::Ack { kind: AckKind::PubComp, id: 9, reason: not_found }]);
    net.ack(client, AckKind::PubRec, 9);
    assert_eq!(net.receive(client), [Got::Ack { kind: AckKind::PubRel, id: 9, reason: not_found }]);
}

#[test]
fn the_clients_receive_maximum_is_obeyed() {
    let mut net = Net::new(1);
    let properties = vec![Property::ReceiveMaximum(NonZeroU16::new(2).unwrap())];
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &Options { properties, ..Options::default() });
    net.subscribe(receiver, "t", 1);
    for n in 1..=5 {
        net.publish(sender, "t", &n.to_string(), 1, false, n);
    }
    assert_eq!(net.payloads(receiver), ["1", "2"]);
    net.ack(receiver, AckKind::PubAck, 1);
    assert_eq!(net.payloads(receiver), ["3"]);
    net.ack(receiver, AckKind::PubAck, 2);
    net.ack(receiver, AckKind::PubAck, 3);
    assert_eq!(net.payloads(receiver), ["4", "5"]);
}

#[test]
fn a_release_that_is_repeated_after_the_return_is_no_mistake() {
    let mut net = Net::new(1);
    let wire = net.connect("c", &lasting());
    net.publish(wire, "a", "x", 2, false, 1);
    net.ack(wire, AckKind::PubRel, 1);
    // The PUBCOMP is lost with the connection.
    net.cut(wire);
    let wire = net.connect("c", &lasting());
    net.ack(wire, AckKind::PubRel, 1);
    assert_eq!(net.receive(wire), [Got::Ack { kind: AckKind::PubComp, id: 1, reason: ReasonCode::Success }]);
}

#[test]
fn a_refused_message_is_refused_again_when_it_is_sent_again() {
    let mut net = Net::with(1, Settings::default(), Forbid(Action::Publish, "secret"));
    for _ in 0..2 {
        // MQTT 3.1.1 has no word for a refusal but the end of the connection.
        let wire = net.connect("c", &Options { version: Version::V311, clean: false, ..Options::default() });
        net.publish(wire, "secret", "x", 2, false, 1);
        assert_eq!(net.receive(wire), []);
        assert!(net.is_closed(wire));
    }
}

#[test]
fn a_burst_of_a_thousand_is_taken_from_a_client_that_does_not_count() {
    let mut net = Net::new(1);
    let wire = net.v5("c");
    for id in 1..=1000 {
        net.publish(wire, "a", "x", 2, false, id);
    }
    assert_eq!(net.receive(wire).len(), 1000);
    assert!(!net.is_closed(wire));
}

#[test]
fn a_client_that_exceeds_our_receive_maximum_is_told_so() {
    let mut net = Net::with(1, Settings { receive_max: 2, ..Settings::default() }, tidegate_core::access::Open);
    let sender = net.v5("sender");
    for id in 1..=3 {
        net.publish(sender, "t", "x", 2, false, id);
    }
    let got = net.receive(sender);
    assert_eq!(got.last(), Some(&Got::Disconnect(ReasonCode::ReceiveMaximumExceeded)));
    assert!(net.is_closed(sender));
}

#[test]
fn what_was_under_way_is_sent_again_in_order_and_then_what_waited() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 2);
    net.publish(sender, "t", "one", 1, false, 1);
    net.publish(sender, "t", "two", 2, false, 2);
    net.publish(sender, "t", "three", 2, false, 3);
    net.receive(receiver);
    net.ack(receiver, AckKind::PubRec, 2);
    net.receive(receiver);
    net.cut(receiver);
    net.publish(sender, "t", "four", 1, false, 4);
    net.publish(sender, "t", "zero", 0, false, 0);
    let receiver = net.dial("receiver", &lasting());
    let got = net.receive(receiver);
    assert!(matches!(got[0], Got::ConnAck { present: true, .. }));
    assert!(matches!(&got[1], Got::Message { payload, dup: true, id: Some(1), .. } if payload == "one"));
    assert_eq!(got[2], Got::Ack { kind: AckKind::PubRel, id: 2, reason: ReasonCode::Success });
    assert!(matches!(&got[3], Got::Message { payload, dup: true, id: Some(3), .. } if payload == "three"));
    assert!(matches!(&got[4], Got::Message { payload, dup: false, id: Some(4), .. } if payload == "four"));
    assert_eq!(got.len(), 5, "QoS 0 is not kept for clients that are away");
}

#[test]
fn a_message_dies_when_its_lifetime_is_over_and_carries_what_is_left() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 1);
    net.cut(receiver);
    net.publish_with(sender, "t", "short", 1, false, 1, &[Property::MessageExpiry(10)]);
    net.publish_with(sender, "t", "long", 1, false, 2, &[Property::MessageExpiry(60)]);
    net.pass(Duration::from_secs(20));
    let receiver = net.connect("receiver", &lasting());
    let _ = receiver;
    assert_eq!(net.stats().dropped_expired, 1);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let settings = Settings { queue_messages_max: 3, priority: Priority::off(), ..Settings::default() };
    let mut net = Net::with(1, settings, tidegate_core::access::Open);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 1);
    net.cut(receiver);
    for n in 1..=5 {
        net.publish(sender, "t", &n.to_string(), 1, false, n);
    }
    assert_eq!((net.stats().queued_messages, net.stats().dropped_queue_full), (3, 2));
    let receiver = net.dial("receiver", &lasting());
    assert_eq!(net.payloads(receiver), ["1", "2", "3"]);
}

#[test]
fn f026_a_client_gets_nothing_larger_than_it_accepts() {
    let mut net = Net::new(1);
    let properties = vec![Property::MaximumPacketSize(std::num::NonZeroU32::new(20).unwrap())];
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &Options { properties, ..Options::default() });
    net.subscribe(receiver, "t", 1);
    net.publish(sender, "t", "a message of more than twenty bytes", 1, false, 1);
    net.publish(sender, "t", "short", 1, false, 2);
    assert_eq!(net.payloads(receiver), ["short"]);
    assert_eq!(net.stats().dropped_too_large, 1);
}

#[test]
fn nobody_listening_is_said_in_version_5() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.publish(sender, "nobody", "x", 1, false, 1);
    let reason = ReasonCode::NoMatchingSubscribers;
    assert_eq!(net.receive(sender), [Got::Ack { kind: AckKind::PubAck, id: 1, reason }]);
}

#[test]
fn mqtt_4_13_1_1_an_answer_of_the_other_quality_of_service_ends_the_connection() {
    for version in [Version::V5, Version::V311] {
        for (qos, answer) in [(2, AckKind::PubAck), (2, AckKind::PubComp), (1, AckKind::PubRec), (1, AckKind::PubComp)]
        {
            let mut net = Net::new(1);
            let options = match version {
                Version::V5 => {
                    Options { clean: false, properties: vec![Property::SessionExpiry(60)], ..Options::default() }
                }
                _ => Options { version, clean: false, ..Options::default() },
            };
            let (sender, receiver) = (net.v5("sender"), net.connect("receiver", &options));
            net.subscribe(receiver, "t", qos);
            net.publish(sender, "t", "x", qos, false, 1);
            let got = net.receive(receiver);
            let [Got::Message { id: Some(id), .. }] = got[..] else { panic!("{got:?}") };
            net.ack(receiver, answer, id);
            assert!(net.is_closed(receiver), "{version:?} {answer:?}");
            let told = net.receive(receiver);
            let expected: &[Got] =
                if version == Version::V5 { &[Got::Disconnect(ReasonCode::ProtocolError)] } else { &[] };
            assert_eq!(told, expected);
            // The message was not acknowledged: it comes again.
            assert_eq!((net.stats().delivered, net.stats().inflight_messages), (0, 1));
            let receiver = net.connect_quietly("receiver", &options);
            let again = net.receive(receiver);
            assert!(matches!(&again[..], [Got::Message { dup: true, .. }]), "{again:?}");
            // An identifier that nobody knows is nothing to quarrel about.
            net.ack(receiver, AckKind::PubAck, id + 7);
            assert!(!net.is_closed(receiver));
        }
    }
}
