//! What a class may have waiting: bytes and time, and who is told.

use std::time::Duration;

use tidegate_control::pressure::Level;
use tidegate_core::access::Open;
use tidegate_core::classes::{Class, ClassBy, OnFull};
use tidegate_core::settings::{BackOff, Rate, Settings};
use tidegate_wire_mqtt::{AckKind, ReasonCode};

use crate::backoff::{SECOND, v311};
use crate::net::{Got, Net, lasting};
use crate::priority_policies::{away, back, on, settings};

/// Telemetry may have about four messages waiting; everything else is free.
fn capped(on_full: OnFull) -> Settings {
    let telemetry = Class { max_bytes: Some(4096), ..on("telemetry", 1, "t/#", on_full) };
    Settings { queue_messages_max: 1000, ..settings(vec![telemetry], ClassBy::Both) }
}

fn payload(n: u16) -> String {
    format!("{n:800}")
}

fn numbers(payloads: &[String]) -> Vec<u16> {
    payloads.iter().map(|payload| payload.trim().parse().unwrap()).collect()
}

#[test]
fn a_class_has_so_many_bytes_waiting_and_its_own_messages_pay() {
    for (on_full, expected) in [
        (OnFull::DropOldest, [16, 17, 18, 19]),
        (OnFull::DropLongest, [16, 17, 18, 19]),
        (OnFull::DropNewest, [0, 1, 2, 3]),
    ] {
        let mut net = Net::with(1, capped(on_full), Open);
        let (sender, other) = (net.v5("sender"), net.v5("other"));
        away(&mut net);
        for n in 0..20 {
            net.publish(other, "x", &payload(100 + n), 1, false, n + 1);
            net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
        }
        let stats = net.stats();
        assert_eq!((stats.dropped_class_bytes, stats.dropped_queue_full, stats.queued_messages), (16, 0, 24));
        let mut got = numbers(&back(&mut net));
        got.retain(|n| *n < 100);
        assert_eq!(got, expected, "{on_full:?}");
    }
}

#[test]
fn a_message_beyond_the_whole_share_of_its_class_is_not_kept() {
    let mut net = Net::with(1, capped(OnFull::DropOldest), Open);
    let sender = net.v5("sender");
    away(&mut net);
    net.publish(sender, "t/1", &payload(1), 1, false, 1);
    net.publish(sender, "t/1", &"x".repeat(5000), 1, false, 2);
    assert_eq!((net.stats().dropped_class_bytes, net.stats().queued_messages), (1, 1));
}

#[test]
fn who_wants_to_be_refused_is_told_before_anything_is_taken() {
    let mut net = Net::with(1, capped(OnFull::Refuse), Open);
    let (sender, other) = (net.v5("sender"), net.v5("other"));
    away(&mut net);
    for n in 0..10 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
        net.publish(other, "x", "x", 1, false, n + 1);
    }
    let refused = |got: &Got| matches!(got, Got::Ack { reason: ReasonCode::QuotaExceeded, .. });
    assert_eq!(net.receive(sender).iter().filter(|got| refused(got)).count(), 6);
    assert!(!net.receive(other).iter().any(refused), "another class has room");
    let stats = net.stats();
    assert_eq!((stats.publish_class_full, stats.dropped_class_bytes, stats.queued_messages), (6, 0, 14));
    // At QoS 0 there is nobody to tell: whoever reads in time has it.
    let prompt = net.v5("prompt");
    net.subscribe(prompt, "t/#", 0);
    net.publish(sender, "t/1", "now", 0, false, 0);
    assert_eq!(net.payloads(prompt), ["now"]);
    // The reader comes and takes what waits: there is room again.
    let reader = net.dial("reader", &lasting());
    net.receive(reader);
    (1..15).for_each(|id| net.ack(reader, AckKind::PubAck, id));
    net.publish(sender, "t/1", "again", 1, false, 11);
    assert_eq!(net.payloads(reader), ["again"]);
}

#[test]
fn before_mqtt_5_a_refused_message_stays_on_the_wire_until_there_is_room() {
    let mut net = Net::with(1, capped(OnFull::Refuse), Open);
    let sender = net.connect("old", &v311());
    away(&mut net);
    for n in 0..5 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
    }
    assert!(!net.may_read(sender) && !net.is_closed(sender));
    assert_eq!((net.stats().publish_received, net.stats().publish_class_full), (4, 0));
    let reader = net.dial("reader", &lasting());
    net.receive(reader);
    net.pass(2 * SECOND);
    net.settle();
    assert_eq!(net.stats().publish_received, 5, "nothing is lost");
    assert_eq!(numbers(&net.payloads(reader)), [4]);
}

#[test]
fn what_waits_longer_than_its_class_may_is_gone() {
    let telemetry = Class { max_delay: Some(5 * SECOND), ..on("telemetry", 1, "t/#", OnFull::DropOldest) };
    let mut net = Net::with(1, Settings { queue_messages_max: 1000, ..settings(vec![telemetry], ClassBy::Both) }, Open);
    let (sender, other) = (net.v5("sender"), net.v5("other"));
    away(&mut net);
    for n in 0..10 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
        net.publish(other, "x", &payload(100 + n), 1, false, n + 1);
        net.live(SECOND);
    }
    // Nobody had to come for it: the timer did it.
    let stats = net.stats();
    assert!((5..=6).contains(&stats.dropped_class_delay), "{}", stats.dropped_class_delay);
    assert_eq!(stats.queued_messages, 20 - stats.dropped_class_delay);
    let got = numbers(&back(&mut net));
    let telemetry: Vec<u16> = got.iter().copied().filter(|n| *n < 100).collect();
    assert_eq!(telemetry, [6, 7, 8, 9], "those that are younger than five seconds, in order");
    assert_eq!(got.len() - telemetry.len(), 10, "another class waits as long as it takes");
    net.live(120 * SECOND);
    assert_eq!(net.shards[0].timers(), 0, "no timer stays behind");
}

#[test]
fn a_slow_reader_gets_nothing_that_is_too_old() {
    let telemetry = Class { max_delay: Some(SECOND), ..on("telemetry", 1, "t/#", OnFull::DropOldest) };
    let mut net = Net::with(1, Settings { inflight_max: 1, ..settings(vec![telemetry], ClassBy::Both) }, Open);
    let (sender, reader) = (net.v5("sender"), net.v5("reader"));
    net.subscribe(reader, "t/#", 1);
    for n in 0..5 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
    }
    assert_eq!(numbers(&net.payloads(reader)), [0], "a window of one");
    net.pass(Duration::from_millis(1100));
    net.ack(reader, AckKind::PubAck, 1);
    assert_eq!(net.payloads(reader), [""; 0]);
    assert_eq!((net.stats().dropped_class_delay, net.stats().queued_messages), (4, 0));
}

#[test]
fn a_class_has_no_more_bytes_in_the_hold_than_in_a_queue() {
    let telemetry = Class { max_bytes: Some(4096), ..on("telemetry", 1, "t/#", OnFull::DropOldest) };
    let back_off = BackOff { rate: Some(Rate::new(1, SECOND, 1)), ..BackOff::default() };
    let mut net = Net::with(1, Settings { back_off, ..settings(vec![telemetry], ClassBy::Both) }, Open);
    net.shards[0].set_level(Level::Busy);
    let sender = net.v5("sender");
    for n in 0..8 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
    }
    let stats = net.stats();
    assert_eq!((stats.publish_passed, stats.held_messages, stats.publish_refused), (1, 4, 3));
    assert_eq!(net.stats().dropped_class_bytes, 0, "the publisher was told, and has them still");
}

#[test]
fn f152_messages_of_a_class_that_was_deleted_arrive_and_later_ones_have_another() {
    let mut net = Net::with(1, capped(OnFull::DropOldest), Open);
    let sender = net.v5("sender");
    away(&mut net);
    for n in 0..4 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
    }
    let without = Settings { queue_messages_max: 1000, ..settings(Vec::new(), ClassBy::Both) };
    net.shards[0].set_settings(std::sync::Arc::new(without));
    // Beyond what the class was allowed: its limits have gone with it.
    for n in 4..12 {
        net.publish(sender, "t/1", &payload(n), 1, false, n + 1);
    }
    assert_eq!(net.stats().dropped_class_bytes, 0);
    let mut got = numbers(&back(&mut net));
    got.sort_unstable();
    assert_eq!(got, (0..12).collect::<Vec<_>>());
}
