//! Statements of MQTT 3.1.1 that read differently there: without reason codes, closing is the only word.

use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::AckKind::{PubAck, PubComp, PubRec, PubRel};
use tidegate_wire_mqtt::{Disconnect, Property, QoS, ReasonCode, Version};

use crate::net::{Got, Net, Options, ack, lasting, lasting_v311};

fn v311() -> Options<'static> {
    Options { version: Version::V311, ..Options::default() }
}

/// Closed, and nothing was said.
fn ended_silently(net: &mut Net, wire: crate::net::Wire) -> bool {
    net.is_closed(wire) && net.receive(wire).is_empty()
}

#[test]
fn a_second_connect_of_3_1_1_ends_the_connection() {
    let mut net = Net::new(1);
    let client = net.connect("c", &v311());
    net.send_bytes(client, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c");
    assert!(ended_silently(&mut net, client));
    assert_eq!(net.stats().sessions, 0);
}

#[test]
fn a_publish_of_3_1_1_with_qos_3_ends_the_connection_and_reaches_nobody() {
    let mut net = Net::new(1);
    let reader = net.v5("reader");
    net.subscribe(reader, "a", 0);
    let client = net.connect("c", &v311());
    net.send_bytes(client, b"\x36\x05\x00\x01a\x00\x01");
    assert!(ended_silently(&mut net, client));
    assert!(net.payloads(reader).is_empty());
}

#[test]
fn a_packet_of_3_1_1_without_filters_ends_the_connection() {
    let mut net = Net::new(1);
    for bytes in [b"\x82\x02\x00\x01", b"\xa2\x02\x00\x01"] {
        let client = net.connect("c", &v311());
        net.send_bytes(client, bytes);
        assert!(ended_silently(&mut net, client), "{bytes:x?}");
    }
}

#[test]
fn a_will_of_3_1_1_follows_its_connection() {
    let mut net = Net::new(1);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will", 0);
    let with_will = Options { will: Some(("will", "dead", QoS::AtLeastOnce, false)), ..lasting_v311() };
    // The session lasts, the will does not wait for its end; nor is it published twice.
    let wire = net.connect("c", &with_will);
    net.cut(wire);
    assert_eq!(net.payloads(watcher), ["dead"]);
    net.pass(Duration::from_secs(8 * 86_400));
    assert_eq!(net.payloads(watcher), [""; 0]);
    // A goodbye discards it.
    let wire = net.connect("c", &with_will);
    net.send(wire, &Disconnect::because(ReasonCode::Success));
    assert!(net.is_closed(wire));
    assert_eq!(net.payloads(watcher), [""; 0]);
    // Broken rules, silence and a second connection do not.
    let wire = net.connect("c", &with_will);
    net.send_bytes(wire, b"\x00\x00");
    assert_eq!(net.payloads(watcher), ["dead"]);
    net.connect("c", &Options { keep_alive: 10, ..with_will.clone() });
    net.pass(Duration::from_secs(16));
    assert_eq!(net.payloads(watcher), ["dead"]);
    net.connect("c", &with_will);
    net.connect("c", &v311());
    assert_eq!(net.payloads(watcher), ["dead"]);
    let late = net.v5("late");
    net.subscribe(late, "will", 0);
    assert_eq!(net.receive(late), [], "none of them was retained");
}

#[test]
fn silence_ends_a_connection_of_3_1_1_without_a_word() {
    let mut net = Net::new(1);
    let client = net.connect("c", &Options { keep_alive: 10, ..v311() });
    net.pass(Duration::from_millis(14_900));
    assert!(!net.is_closed(client));
    net.pass(Duration::from_millis(200));
    assert!(ended_silently(&mut net, client));
}

#[test]
fn a_refused_client_id_of_3_1_1_is_told_so() {
    let mut net = Net::new(1);
    let client = net.dial(&"x".repeat(300), &v311());
    assert_eq!(net.raw(client), b"\x20\x02\x00\x02");
    assert!(net.is_closed(client));
}

#[test]
fn a_connection_of_3_1_1_is_taken_over_without_a_word() {
    let mut net = Net::new(1);
    let first = net.connect("c", &lasting_v311());
    net.subscribe(first, "t", 1);
    let second = net.dial("c", &lasting_v311());
    assert!(ended_silently(&mut net, first));
    assert!(matches!(net.receive(second)[..], [Got::ConnAck { present: true, .. }]));
}

#[test]
fn beyond_the_quota_a_message_of_3_1_1_is_delivered_and_not_retained() {
    let settings = Settings { retained_messages_max: 0, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let reader = net.v5("reader");
    net.subscribe(reader, "t", 0);
    for qos in [1, 2] {
        let client = net.connect("c", &v311());
        net.publish(client, "t", "x", qos, true, 1);
        // Closed, it would come back with the same message for ever. What the acknowledgement promises is kept.
        assert!(!net.is_closed(client));
        assert!(matches!(net.receive(client)[..], [Got::Ack { reason: ReasonCode::Success, .. }]));
        assert_eq!(net.payloads(reader), ["x"]);
    }
    assert_eq!((net.stats().retained_messages, net.stats().retained_memory_budget), (0, 2));
}

#[test]
fn a_session_lasts_while_connected_whatever_its_expiry() {
    let mut net = Net::new(1);
    let short = Options { properties: vec![Property::SessionExpiry(1)], ..Options::default() };
    let (new, old) = (net.connect("new", &short), net.connect("old", &lasting_v311()));
    for wire in [new, old] {
        net.subscribe(wire, "t", 0);
    }
    net.pass(Duration::from_secs(30 * 86_400));
    net.publish(new, "t", "x", 0, false, 0);
    assert_eq!((net.payloads(new), net.payloads(old)), (vec!["x".to_owned()], vec!["x".to_owned()]));
}

#[test]
fn a_message_that_expired_is_released_all_the_same() {
    let mut net = Net::new(1);
    let sender = net.connect("sender", &lasting());
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 2);
    net.cut(receiver);
    net.publish_with(sender, "t", "x", 2, false, 1, &[Property::MessageExpiry(1)]);
    net.pass(Duration::from_secs(60));
    net.ack(sender, PubRel, 1);
    let success = ReasonCode::Success;
    assert_eq!(net.receive(sender), [ack(PubRec, 1, success), ack(PubComp, 1, success)]);
    let receiver = net.dial("receiver", &lasting());
    assert_eq!(net.receive(receiver).len(), 1, "nobody got it");
    net.ack(receiver, PubAck, 1);
    assert_eq!(net.stats().dropped_expired, 1);
}
