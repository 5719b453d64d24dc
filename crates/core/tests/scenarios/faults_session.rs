//! FAULTS.md, section B: sessions, wills and subscriptions of clients that mean no good.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::access::{Action, Open};
use tidegate_core::event::Event;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, QoS, ReasonCode, Version};

use crate::net::{Forbid, Got, Net, Options, Wire, ack, lasting};

fn with_will(topic: &'static str, delay: u32, expiry: u32) -> Options<'static> {
    Options {
        clean: false,
        properties: vec![Property::SessionExpiry(expiry)],
        will: Some((topic, "dead", QoS::AtLeastOnce, false)),
        will_properties: if delay > 0 { vec![Property::WillDelay(delay)] } else { Vec::new() },
        ..Options::default()
    }
}

fn refusal(net: &mut Net, options: &Options<'_>) -> Option<ReasonCode> {
    let wire = net.dial("c", options);
    match net.receive(wire)[..] {
        [Got::ConnAck { reason: ReasonCode::Success, .. }] => None,
        [Got::ConnAck { reason, .. }] if net.is_closed(wire) => Some(reason),
        ref other => panic!("{other:?}"),
    }
}

/// Takes and acknowledges messages of QoS 1 until none comes, as a client does.
fn take_all(net: &mut Net, wire: Wire) -> usize {
    let mut count = 0;
    while let Some(got) = net.receive_one(wire) {
        if let Got::Message { id: Some(id), .. } = got {
            count += 1;
            net.ack(wire, AckKind::PubAck, id);
        }
    }
    count
}

#[test]
fn f038_a_thousand_takeovers_leave_one_session_and_no_timers() {
    let mut net = Net::new(2);
    let sender = net.v5("sender");
    let mut last = net.connect("c", &lasting());
    for number in 0..1000_u16 {
        net.subscribe(last, "t", 1);
        net.publish(sender, "t", &number.to_string(), 1, false, number + 1);
        if number % 3 == 0 {
            take_all(&mut net, last);
            net.unsubscribe(last, "t");
        }
        let next = net.dial("c", &Options { keep_alive: 60, ..lasting() });
        let told = net.receive(last);
        assert_eq!(told.last(), Some(&Got::Disconnect(ReasonCode::SessionTakenOver)));
        assert!(net.is_closed(last));
        last = next;
        take_all(&mut net, last);
    }
    let stats = net.stats();
    assert_eq!((stats.connections, stats.sessions, stats.subscriptions), (2, 2, 0));
    assert_eq!(stats.queued_messages, 0);
    net.publish(last, "t", "x", 1, false, 1);
    assert_eq!(net.receive(last), [ack(AckKind::PubAck, 1, ReasonCode::NoMatchingSubscribers)]);
}

#[test]
fn f038_a_place_that_is_used_again_brings_nothing_with_it() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let old = net.v5("old");
    net.subscribe(old, "a/b/c/d", 0);
    net.subscribe(old, "$share/g/a/b/c/d", 0);
    // A reload allows fewer levels than that filter has; then its owner leaves and somebody else comes.
    let settings = Settings { topic_levels_max: 2, ..Settings::default() };
    net.shards[0].set_settings(Arc::new(settings));
    net.cut(old);
    assert_eq!(net.stats().subscriptions, 0);
    net.shards[0].set_settings(Arc::new(Settings::default()));
    let new = net.v5("new");
    net.publish(sender, "a/b/c/d", "x", 0, false, 0);
    assert_eq!(net.receive(new), []);
}

#[test]
fn f040_a_clean_start_discards_what_waited() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 1);
    net.cut(receiver);
    for id in 1..=3 {
        net.publish(sender, "t", "x", 1, false, id);
    }
    assert_eq!(net.stats().queued_messages, 3);
    let receiver = net.dial("receiver", &Options { clean: true, ..lasting() });
    assert!(matches!(net.receive(receiver)[..], [Got::ConnAck { present: false, .. }]));
    let stats = net.stats();
    assert_eq!((stats.queued_messages, stats.queued_bytes, stats.dropped_session_ended), (0, 0, 3));
}

#[test]
fn f041_sessions_without_end_are_capped_in_time_and_number() {
    let settings = Settings { sessions_max: 10, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let for_ever = Options { properties: vec![Property::SessionExpiry(u32::MAX)], clean: false, ..Options::default() };
    let wire = net.dial("0", &for_ever);
    // Property 0x11 in the CONNACK: a week, not for ever.
    let week = [&[0x11][..], &(7 * 86_400_u32).to_be_bytes()].concat();
    assert!(net.raw(wire).windows(5).any(|bytes| bytes == week));
    net.cut(wire);
    for number in 1..10 {
        let wire = net.connect(&number.to_string(), &for_ever);
        net.cut(wire);
    }
    assert_eq!(refusal(&mut net, &for_ever), Some(ReasonCode::QuotaExceeded));
    let wire = net.dial("3", &for_ever);
    assert!(matches!(net.receive(wire)[..], [Got::ConnAck { present: true, .. }]), "who has a session keeps it");
    net.cut(wire);
    net.pass(Duration::from_secs(7 * 86_400 + 1));
    assert_eq!(net.stats().sessions, 0);
    assert_eq!(refusal(&mut net, &for_ever), None);
}

#[test]
fn f041_clients_that_come_and_go_leave_no_timers_behind() {
    let mut net = Net::new(1);
    for _ in 0..20_000 {
        let wire = net.connect("c", &Options { keep_alive: u16::MAX, ..lasting() });
        net.cut(wire);
        net.pass(Duration::from_millis(50));
    }
    // What was left in the last minute.
    assert!(net.shards[0].timers() < 5000, "{}", net.shards[0].timers());
    for _ in 0..61 {
        net.pass(Duration::from_secs(60));
    }
    assert_eq!(net.stats().sessions, 0, "the one that counts is still there");
}

#[test]
fn f042_a_will_is_judged_when_it_is_made_and_when_it_fires() {
    let mut net = Net::with(1, Settings::default(), Forbid(Action::Publish, "secret"));
    let denied = Some(ReasonCode::NotAuthorized);
    assert_eq!(refusal(&mut net, &with_will("secret", 0, 0)), denied);
    assert_eq!(refusal(&mut net, &with_will("$SYS/broker/version", 0, 0)), denied);

    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will/#", 0);
    let wire = net.connect("c", &with_will("will/c", 0, 0));
    net.shards[0].set_policy(Arc::new(Forbid(Action::Publish, "will")));
    net.cut(wire);
    assert_eq!(net.payloads(watcher), [""; 0]);
    assert_eq!(net.stats().wills_denied, 1);
    assert!(
        net.events.iter().any(|event| matches!(event, Event::Denied { what: "will", topic, .. } if topic == "will/c"))
    );
}

#[test]
fn f042_a_will_fires_at_the_end_of_its_delay_or_of_its_session() {
    let mut net = Net::new(1);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will", 0);
    for (delay, expiry, first) in [(10, 100, 10), (100, 10, 10), (10, 10, 10), (0, 100, 0), (5, 0, 0)] {
        let wire = net.connect("c", &with_will("will", delay, expiry));
        net.cut(wire);
        if first > 0 {
            net.pass(Duration::from_secs(first - 1));
            assert_eq!(net.payloads(watcher), [""; 0], "{delay} {expiry}");
            net.pass(Duration::from_secs(1));
        }
        assert_eq!(net.payloads(watcher), ["dead"], "{delay} {expiry}");
        net.pass(Duration::from_secs(200));
        assert_eq!(net.payloads(watcher), [""; 0], "{delay} {expiry}: once");
    }
    // Who comes back within the delay has not died; who starts anew has ended the session that would have.
    let wire = net.connect("c", &with_will("will", 10, 100));
    net.cut(wire);
    let wire = net.connect("c", &lasting());
    net.pass(Duration::from_secs(20));
    assert_eq!(net.payloads(watcher), [""; 0]);
    net.cut(wire);
    let wire = net.connect("c", &with_will("will", 10, 100));
    net.cut(wire);
    net.v5("c");
    assert_eq!(net.payloads(watcher), ["dead"]);
}

#[test]
fn f042_a_retained_will_needs_retained_messages() {
    let will = Options { will: Some(("will", "dead", QoS::AtMostOnce, true)), ..Options::default() };
    let settings = Settings { retain_available: false, ..Settings::default() };
    assert_eq!(refusal(&mut Net::with(1, settings, Open), &will), Some(ReasonCode::RetainNotSupported));
    let mut net = Net::new(1);
    let wire = net.connect("c", &will);
    net.cut(wire);
    let reader = net.v5("reader");
    net.subscribe(reader, "will", 0);
    assert!(matches!(&net.receive(reader)[..], [Got::Message { retain: true, payload, .. }] if payload == "dead"));
}

#[test]
fn f043_thousands_of_wills_at_once_all_arrive() {
    let mut net = Net::new(2);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will", 1);
    let wires: Vec<_> =
        (0..3000).map(|number| net.connect(&format!("c{number}"), &with_will("will", 5, 100))).collect();
    for wire in wires {
        net.cut(wire);
    }
    net.pass(Duration::from_secs(5));
    assert_eq!(take_all(&mut net, watcher), 3000);
}

#[test]
fn f046_subscribing_and_unsubscribing_leaves_nothing() {
    let mut net = Net::new(2);
    let client = net.v5("c");
    for number in 0..10_000 {
        let filter = format!("a/{}/+/#", number % 7);
        net.subscribe(client, &filter, 1);
        assert_eq!(net.unsubscribe(client, &filter), [ReasonCode::Success]);
    }
    assert_eq!(net.stats().subscriptions, 0);
    net.publish(client, "a/1/2/3", "x", 1, false, 1);
    assert_eq!(net.receive(client), [ack(AckKind::PubAck, 1, ReasonCode::NoMatchingSubscribers)]);
}

#[test]
fn f053_auth_at_any_time_is_refused() {
    let method = Options { properties: vec![Property::AuthenticationMethod("SCRAM-SHA-1")], ..Options::default() };
    let mut net = Net::new(1);
    assert_eq!(refusal(&mut net, &method), Some(ReasonCode::BadAuthenticationMethod));
    // Once more, a step, another method; and a thousand of them in one piece.
    for step in [&b"\xf0\x06\x19\x04\x15\x00\x01m"[..], b"\xf0\x06\x18\x04\x15\x00\x01n"] {
        let client = net.v5("c");
        net.send_bytes(client, &step.repeat(1000));
        assert_eq!(net.receive(client), [Got::Disconnect(ReasonCode::ProtocolError)]);
        assert!(net.is_closed(client));
    }
    let old = net.connect("old", &Options { version: Version::V311, ..Options::default() });
    net.send_bytes(old, b"\xf0\x06\x19\x04\x15\x00\x01m");
    assert!(net.is_closed(old) && net.receive(old).is_empty());
}
