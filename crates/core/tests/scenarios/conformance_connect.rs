//! Statements of chapter 3.1, 3.2 and 3.14 that no other scenario proves; see `specs/`.

use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Disconnect, Packet, Property, QoS, ReasonCode, Version};

use crate::net::{Got, Net, Options, lasting, lasting_v311};

#[test]
fn every_plain_client_id_of_1_to_23_bytes_is_allowed() {
    let mut net = Net::new(1);
    let all = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for version in [Version::V31, Version::V311, Version::V5] {
        for length in 1..=23 {
            for start in (0..all.len() - length).step_by(13) {
                net.connect(&all[start..start + length], &Options { version, ..Options::default() });
            }
        }
    }
}

#[test]
fn the_first_packet_is_one_connack_whatever_waits() {
    for options in [lasting(), lasting_v311()] {
        let mut net = Net::new(1);
        let sender = net.v5("sender");
        let receiver = net.dial("c", &options);
        assert!(matches!(
            net.receive(receiver)[..],
            [Got::ConnAck { present: false, reason: ReasonCode::Success, .. }]
        ));
        net.subscribe(receiver, "t", 1);
        net.cut(receiver);
        net.publish(sender, "t", "x", 1, false, 1);
        let receiver = net.dial("c", &options);
        let got = net.receive(receiver);
        let success = ReasonCode::Success;
        assert!(
            matches!(&got[..], [Got::ConnAck { present: true, reason, .. }, Got::Message { .. }] if *reason == success)
        );
    }
}

#[test]
fn a_connack_says_nothing_that_was_not_asked_for() {
    let mut net = Net::new(1);
    let wire = net.dial("c", &Options::default());
    // Receive Maximum, Maximum Packet Size, Topic Alias Maximum: no Response Information (0x1a), no Authentication
    // Method (0x15), no Assigned Client Identifier (0x12).
    assert_eq!(net.raw(wire), b"\x20\x0e\x00\x00\x0b\x21\x04\x00\x27\x00\x10\x00\x00\x22\x00\x40");
    let old = net.dial("old", &Options { version: Version::V311, ..Options::default() });
    assert_eq!(net.raw(old), b"\x20\x02\x00\x00");
}

#[test]
fn a_lower_maximum_qos_is_announced_granted_and_enforced() {
    let settings = Settings { qos_max: QoS::AtLeastOnce, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let client = net.dial("c", &Options::default());
    assert!(net.raw(client).windows(2).any(|bytes| bytes == [0x24, 1]), "Maximum QoS 1");
    assert_eq!(net.subscribe(client, "t", 2), ReasonCode::GrantedQos1);
    net.publish(client, "t", "x", 2, false, 1);
    assert_eq!(net.receive(client), [Got::Disconnect(ReasonCode::QosNotSupported)]);
    let will = Options { will: Some(("t", "x", QoS::ExactlyOnce, false)), ..Options::default() };
    let refused = net.dial("d", &will);
    assert!(matches!(net.receive(refused)[..], [Got::ConnAck { reason: ReasonCode::QosNotSupported, .. }]));
    assert!(net.is_closed(refused));
}

#[test]
fn without_retained_messages_a_retained_one_is_refused() {
    let settings = Settings { retain_available: false, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let client = net.dial("c", &Options::default());
    assert!(net.raw(client).windows(2).any(|bytes| bytes == [0x25, 0]), "Retain Available 0");
    net.publish(client, "t", "x", 0, true, 0);
    assert_eq!(net.receive(client), [Got::Disconnect(ReasonCode::RetainNotSupported)]);
}

#[test]
fn a_will_keeps_its_properties_its_qos_and_its_retain_flag() {
    let mut net = Net::new(1);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will", 2);
    let options = Options {
        will: Some(("will", "dead", QoS::ExactlyOnce, false)),
        will_properties: vec![
            Property::ContentType("text"),
            Property::UserProperty("b", "1"),
            Property::UserProperty("a", "2"),
            Property::UserProperty("b", "3"),
        ],
        ..Options::default()
    };
    let wire = net.connect("c", &options);
    net.cut(wire);
    net.look_at_message(watcher, |will| {
        assert_eq!((will.delivery.qos(), will.retain), (QoS::ExactlyOnce, false));
        assert_eq!(will.properties.content_type(), Some("text"));
        let pairs: Vec<_> = will.properties.user_properties().collect();
        assert_eq!(pairs, [("b", "1"), ("a", "2"), ("b", "3")]);
    });
    let late = net.v5("late");
    net.subscribe(late, "will", 0);
    assert_eq!(net.receive(late), [], "it was not retained");
}

#[test]
fn a_connection_without_a_will_ends_without_one() {
    let mut net = Net::new(1);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "#", 0);
    // A will belongs to the connection: the next one of the same session has none.
    let will = Options { will: Some(("will", "dead", QoS::AtMostOnce, false)), ..lasting_v311() };
    let wire = net.connect("c", &will);
    net.send(wire, &Disconnect::because(ReasonCode::Success));
    let wire = net.connect("c", &lasting_v311());
    net.cut(wire);
    assert_eq!(net.receive(watcher), []);
}

#[test]
fn after_disconnect_nothing_more_is_sent_or_handled() {
    let mut net = Net::new(1);
    let (sender, witness) = (net.v5("sender"), net.v5("witness"));
    net.subscribe(witness, "#", 0);
    let first = net.connect("c", &lasting());
    net.subscribe(first, "t", 0);
    let second = net.connect("c", &lasting());
    net.publish(sender, "t", "x", 0, false, 0);
    assert_eq!(net.receive(first), [Got::Disconnect(ReasonCode::SessionTakenOver)]);
    assert_eq!(net.payloads(second), ["x"]);
    assert_eq!(net.payloads(witness), ["x"]);
    // Whatever a client sends behind its DISCONNECT does not count.
    net.send_bytes(second, b"\xe0\x00\x30\x05\x00\x01tno");
    assert!(net.is_closed(second));
    assert_eq!(net.receive(witness), []);
    assert_eq!(net.receive(second), []);
}

#[test]
fn a_ping_is_answered_in_every_version() {
    let mut net = Net::new(1);
    for version in [Version::V31, Version::V311, Version::V5] {
        let client = net.connect("c", &Options { version, ..Options::default() });
        net.send(client, &Packet::PingReq);
        assert_eq!(net.receive(client), [Got::Pong]);
    }
}

#[test]
fn retained_messages_outlive_the_session_that_sent_them() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.publish(sender, "t", "x", 1, true, 1);
    net.cut(sender);
    assert_eq!(net.stats().sessions, 0);
    let reader = net.v5("reader");
    net.subscribe(reader, "t", 1);
    assert!(matches!(&net.receive(reader)[..], [Got::Message { qos: 1, retain: true, .. }]));
}

#[test]
fn a_clean_session_of_3_1_1_is_never_used_again() {
    let mut net = Net::new(1);
    let clean = Options { version: Version::V311, ..Options::default() };
    let wire = net.connect("c", &clean);
    net.subscribe(wire, "t", 1);
    net.cut(wire);
    let wire = net.dial("c", &lasting_v311());
    assert!(matches!(net.receive(wire)[..], [Got::ConnAck { present: false, .. }]));
    assert_eq!(net.stats().subscriptions, 0);
}
