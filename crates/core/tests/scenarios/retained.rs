//! Retained messages.

use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::classes::Priority;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, QoS, ReasonCode, RetainHandling, SubscriptionOptions};

use crate::net::{Got, Net, options};

fn retained_payloads(net: &mut Net, filter: &str) -> Vec<String> {
    let wire = net.v5("reader");
    net.subscribe(wire, filter, 0);
    let mut payloads: Vec<_> = net
        .receive(wire)
        .into_iter()
        .map(|got| match got {
            Got::Message { payload, retain: true, .. } => payload,
            other => panic!("{other:?}"),
        })
        .collect();
    payloads.sort();
    net.cut(wire);
    payloads
}

#[test]
fn the_last_message_of_a_topic_is_kept_until_an_empty_one_comes() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.publish(sender, "a/b", "1", 0, true, 0);
    net.publish(sender, "a/b", "2", 0, true, 0);
    net.publish(sender, "a/c", "3", 0, true, 0);
    net.publish(sender, "a", "4", 0, true, 0);
    net.publish(sender, "$x/y", "5", 0, true, 0);
    assert_eq!(retained_payloads(&mut net, "a/b"), ["2"]);
    assert_eq!(retained_payloads(&mut net, "a/+"), ["2", "3"]);
    assert_eq!(retained_payloads(&mut net, "a/#"), ["2", "3", "4"]);
    assert_eq!(retained_payloads(&mut net, "#"), ["2", "3", "4"]);
    assert_eq!(retained_payloads(&mut net, "+/+"), ["2", "3"]);
    assert_eq!(retained_payloads(&mut net, "$x/+"), ["5"]);
    net.publish(sender, "a/b", "", 0, true, 0);
    assert_eq!(retained_payloads(&mut net, "#"), ["3", "4"]);
    assert_eq!(net.stats().retained_messages, 3);
}

#[test]
fn f044_retain_handling_and_retain_as_published() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.publish(sender, "t", "old", 1, true, 1);
    let with = |retain_handling| SubscriptionOptions { retain_handling, ..options(QoS::AtLeastOnce) };
    net.subscribe_with(receiver, "t", with(RetainHandling::DoNotSend), &[]);
    assert_eq!(net.payloads(receiver), [""; 0]);
    net.subscribe_with(receiver, "t", with(RetainHandling::SendIfNew), &[]);
    assert_eq!(net.payloads(receiver), [""; 0]);
    net.subscribe_with(receiver, "t", with(RetainHandling::Send), &[]);
    assert_eq!(net.payloads(receiver), ["old"]);
    net.publish(sender, "t", "new", 1, true, 2);
    assert!(matches!(net.receive(receiver)[..], [Got::Message { retain: false, .. }]));
    let as_published = SubscriptionOptions { retain_as_published: true, ..with(RetainHandling::DoNotSend) };
    net.subscribe_with(receiver, "t", as_published, &[]);
    net.publish(sender, "t", "newer", 1, true, 3);
    assert!(matches!(net.receive(receiver)[..], [Got::Message { retain: true, .. }]));
}

#[test]
fn a_retained_message_dies_with_its_lifetime() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.publish_with(sender, "t", "x", 0, true, 0, &[Property::MessageExpiry(10)]);
    net.pass(Duration::from_secs(9));
    assert_eq!(retained_payloads(&mut net, "t"), ["x"]);
    net.pass(Duration::from_secs(2));
    assert_eq!(retained_payloads(&mut net, "t"), [""; 0]);
    assert_eq!(net.stats().retained_messages, 0);
}

#[test]
fn beyond_the_quota_nothing_is_retained_and_the_sender_knows() {
    let settings = Settings { retained_messages_max: 1, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let sender = net.v5("sender");
    net.publish(sender, "a", "x", 1, true, 1);
    net.publish(sender, "a", "y", 1, true, 2);
    net.publish(sender, "b", "x", 1, true, 3);
    let reasons: Vec<_> = net
        .receive(sender)
        .into_iter()
        .map(|got| if let Got::Ack { kind: AckKind::PubAck, reason, .. } = got { reason } else { panic!("{got:?}") })
        .collect();
    let nobody = ReasonCode::NoMatchingSubscribers;
    assert_eq!(reasons, [nobody, nobody, ReasonCode::QuotaExceeded]);
    // At QoS 0 nobody can be told; it is counted.
    net.publish(sender, "b", "x", 0, true, 0);
    assert_eq!((net.stats().dropped_retained_full, net.receive(sender)), (2, vec![]));
}

#[test]
fn more_retained_messages_than_an_outbox_holds_all_arrive() {
    let settings = Settings { outbox_bytes_max: 1000, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let sender = net.v5("sender");
    for n in 0..500 {
        net.publish(sender, &format!("t/{n}"), "a payload of some length", 0, true, 0);
    }
    assert_eq!(retained_payloads(&mut net, "t/+").len(), 500);
}

#[test]
fn who_subscribes_again_and_again_without_reading_gets_each_retained_message_once() {
    let settings = Settings { outbox_bytes_max: 100, queue_messages_max: 10, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (sender, deaf) = (net.v5("sender"), net.v5("deaf"));
    for n in 0..20 {
        net.publish(sender, &format!("t/{n}"), "x", 0, true, 0);
    }
    net.stall(deaf, true);
    for _ in 0..100 {
        // SUBSCRIBE t/+ at QoS 0, identifier 1; handed over although the shard asks for a pause.
        net.offer(deaf, b"\x82\x09\x00\x01\x00\x00\x03t/+\x00");
    }
    let stats = net.stats();
    assert_eq!((stats.queued_messages, stats.dropped_queue_full), (0, 0));
    assert!(stats.deliveries < 20, "{}", stats.deliveries);
    net.stall(deaf, false);
    let stats = net.stats();
    assert_eq!((stats.delivered, stats.deliveries), (stats.deliveries, net.payloads(deaf).len() as u64));
    assert!((20..40).contains(&stats.deliveries), "the last time from the start: {}", stats.deliveries);
}

#[test]
fn a_deaf_client_loses_qos_0_beyond_its_outbox_and_keeps_qos_1_in_its_queue() {
    let priority = Priority::off();
    let settings = Settings { outbox_bytes_max: 1000, queue_messages_max: 10, priority, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (sender, deaf) = (net.v5("sender"), net.v5("deaf"));
    net.subscribe(deaf, "t", 1);
    net.stall(deaf, true);
    for _ in 0..200 {
        net.publish(sender, "t", "a payload of thirty-two bytes ...", 0, false, 0);
    }
    let dropped = net.stats().dropped_outbox_full;
    assert!((170..180).contains(&dropped), "{dropped}");
    for id in 1..=100 {
        net.publish(sender, "t", "x", 1, false, id);
    }
    // The outbox is full, window or not: ten wait, the rest is dropped and counted.
    assert_eq!((net.stats().queued_messages, net.stats().dropped_queue_full), (10, 90));
}

#[test]
fn an_expired_message_holds_no_place_whether_somebody_looks_or_not() {
    let settings = Settings { retained_messages_max: 2, ..Settings::default() };
    let mut net = Net::with(2, settings, Open);
    let sender = net.v5("sender");
    for n in 0..2 {
        net.publish_with(sender, &format!("t/{n}"), "x", 1, true, 1, &[Property::MessageExpiry(10)]);
    }
    net.live(Duration::from_secs(11));
    assert_eq!((net.stats().retained_messages, net.stats().retained_bytes), (0, 0));
    net.publish(sender, "u", "x", 1, true, 2);
    net.publish(sender, "v", "x", 1, true, 3);
    assert_eq!((net.stats().retained_messages, net.stats().dropped_retained_full), (2, 0));
}
