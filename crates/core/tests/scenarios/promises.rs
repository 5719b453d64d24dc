//! What queues promise beside order by class: nobody overtakes itself, and what was acknowledged goes last.

use std::sync::Arc;

use tidegate_core::access::{Action, Open};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, QoS};

use crate::backoff::SECOND;
use crate::net::{Forbid, Got, Net, Options, lasting};
use crate::priority::SlowReader;

#[test]
fn a_client_does_not_overtake_itself_by_a_reconnect() {
    let mut net = Net::new(1);
    let mut reader = SlowReader::new(&mut net, "state", 0);
    let fill = "x".repeat(900);
    for (round, count) in [("a", 400), ("b", 50)] {
        let sensor = net.v5("sensor");
        (0..count).for_each(|n| net.publish(sensor, "state", &format!("{round}{n:04} {fill}"), 0, false, 0));
        net.cut(sensor);
    }
    let all: Vec<String> = reader.all(&mut net).into_iter().map(|(_, payload)| payload[..5].to_owned()).collect();
    assert_eq!(all.len(), 450);
    assert!(all.is_sorted(), "the last one is {:?}", all.last());
}

#[test]
fn what_was_acknowledged_does_not_go_for_what_was_not() {
    let settings = Settings { queue_messages_max: 100, inflight_max: 1, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let reader = net.v5("reader");
    net.subscribe(reader, "#", 1);
    let (alarm, chatty) = (net.v5("alarm"), net.v5("chatty"));
    (1..=10).for_each(|n| net.publish(alarm, "alarm", &format!("alarm {n}"), 1, false, n));
    (0..500).for_each(|_| net.publish(chatty, "noise", "noise", 0, false, 0));
    (11..=20).for_each(|n| net.publish(alarm, "alarm", &format!("alarm {n}"), 1, false, n));
    let mut alarms = 0;
    for _ in 0..200 {
        for got in net.receive(reader) {
            if let Got::Message { payload, id, .. } = got {
                alarms += usize::from(payload.starts_with("alarm"));
                if let Some(id) = id {
                    net.ack(reader, AckKind::PubAck, id);
                }
            }
        }
    }
    assert_eq!(alarms, 20);
    assert!(net.stats().dropped_queue_full > 300);
}

#[test]
fn qos_0_does_not_wait_for_who_has_left() {
    let mut net = Net::new(1);
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "t", 1);
    net.stall(reader, true);
    let sender = net.v5("sender");
    (1..=200).for_each(|n| net.publish(sender, "t", &"y".repeat(1000), u8::from(n % 10 == 0), false, n));
    assert!(net.stats().queued_messages > 100);
    net.cut(reader);
    let stats = net.stats();
    assert!(stats.queued_messages <= 20 && stats.dropped_away > 100, "{stats:?}");
    let reader = net.connect_quietly("reader", &lasting());
    assert_eq!(net.payloads(reader).len(), 20, "what was promised is there");
}

#[test]
fn a_right_that_is_gone_is_gone_for_what_is_sent_again() {
    let mut net = Net::new(1);
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "secret/t", 1);
    let sender = net.v5("sender");
    net.publish(sender, "secret/t", "x", 1, false, 1);
    net.cut(reader);
    net.shards[0].set_policy(Arc::new(Forbid(Action::Receive, "secret")));
    let reader = net.connect_quietly("reader", &lasting());
    assert_eq!(net.payloads(reader), [""; 0]);
    assert_eq!(net.stats().dropped_denied, 1);
}

/// A thousand wills to a hundred receivers each do not come in one turn.
#[test]
fn wills_that_are_due_together_come_turn_by_turn() {
    let mut net = Net::new(1);
    for n in 0..100 {
        let reader = net.v5(&format!("reader-{n}"));
        net.subscribe(reader, "w/#", 0);
    }
    let options = Options {
        clean: false,
        properties: vec![Property::SessionExpiry(3600)],
        will: Some(("w/x", "gone", QoS::AtMostOnce, false)),
        will_properties: vec![Property::WillDelay(10)],
        ..Options::default()
    };
    for n in 0..1000 {
        let wire = net.connect(&format!("client-{n}"), &options);
        net.cut(wire);
    }
    let before = net.stats().deliveries;
    let later = net.now + 11 * SECOND;
    net.shards[0].turn(later);
    let in_one_turn = net.stats().deliveries - before;
    assert!(in_one_turn < 10_000, "{in_one_turn}");
}
