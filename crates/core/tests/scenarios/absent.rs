//! Those who are away have half of the memory together, and whoever comes finds room.

use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, QoS, ReasonCode};

use crate::backoff::{SECOND, v311};
use crate::net::{Got, Net, Options, Wire, lasting};

const BUDGET: usize = 4 << 20;

fn away(net: &mut Net, name: &str, filter: &str) {
    let reader = net.connect(name, &lasting());
    net.subscribe(reader, filter, 1);
    net.cut(reader);
}

fn publish(net: &mut Net, sender: Wire, topic: &str, count: u16) {
    let payload = "x".repeat(4000);
    for n in 0..count {
        net.publish(sender, topic, &payload, 1, false, n + 1);
        net.receive(sender);
    }
}

#[test]
fn f059_sessions_that_nobody_comes_for_leave_room_for_newcomers() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.shards[0].set_memory(BUDGET, 0);
    away(&mut net, "small", "s");
    away(&mut net, "large", "l");
    publish(&mut net, sender, "s", 20);
    publish(&mut net, sender, "l", 2000);
    let stats = net.stats();
    assert!(net.shards[0].memory_used() < BUDGET * 6 / 10, "{}", net.shards[0].memory_used());
    assert!(stats.dropped_absent_budget > 1400, "{}", stats.dropped_absent_budget);
    assert_eq!((stats.publish_memory_budget, stats.dropped_memory_budget), (0, 0), "nobody else is refused anything");
    for n in 0..50 {
        let newcomer = net.v5(&format!("newcomer-{n}"));
        assert_eq!(net.subscribe(newcomer, &format!("n/{n}"), 1), ReasonCode::GrantedQos1);
    }
    assert_eq!(net.stats().connects_refused_busy, 0);
    // The longest queue paid, with its oldest; the other one has everything.
    let small = net.dial("small", &lasting());
    assert_eq!(net.payloads(small).len(), 20);
    net.shards[0].set_memory(usize::MAX, 0);
    let large = net.dial("large", &lasting());
    assert_eq!(net.payloads(large).len(), 64, "a window");
}

#[test]
fn a_message_that_many_wait_for_is_there_once_and_costs_nobody_its_place() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.shards[0].set_memory(BUDGET, 0);
    for n in 0..100 {
        away(&mut net, &format!("reader-{n}"), "all");
    }
    // Eight times the budget, if each copy were one.
    publish(&mut net, sender, "all", 80);
    let stats = net.stats();
    assert_eq!((stats.dropped_absent_budget, stats.queued_messages), (0, 8000));
    assert!(net.shards[0].memory_used() < BUDGET / 2);
}

#[test]
fn who_goes_away_with_a_full_queue_counts_from_then_on() {
    let mut net = Net::with(1, Settings { inflight_max: 1, ..Settings::default() }, Open);
    let (sender, reader) = (net.v5("sender"), net.connect("reader", &lasting()));
    net.subscribe(reader, "t", 1);
    net.shards[0].set_memory(BUDGET, 0);
    publish(&mut net, sender, "t", 600);
    assert_eq!(net.stats().dropped_absent_budget, 0, "it is there, and slow");
    net.cut(reader);
    net.pass(SECOND);
    let dropped = net.stats().dropped_absent_budget;
    assert!((50..200).contains(&dropped), "{dropped}");
    let reader = net.dial("reader", &lasting());
    net.receive(reader);
    publish(&mut net, sender, "t", 100);
    assert_eq!(net.stats().dropped_absent_budget, dropped, "it is back");
}

/// A broker whose retained messages are full, and a subscriber.
fn full() -> (Net, Wire) {
    let mut net = Net::with(2, Settings { retained_messages_max: 1, ..Settings::default() }, Open);
    let (first, reader) = (net.v5("first"), net.v5("reader"));
    net.publish(first, "taken", "x", 1, true, 1);
    net.subscribe(reader, "new/#", 1);
    (net, reader)
}

#[test]
fn before_mqtt_5_what_cannot_be_retained_is_delivered_and_the_client_told() {
    for qos in [0, 1, 2] {
        let (mut net, reader) = full();
        let old = net.connect("old", &v311());
        net.subscribe(old, "$SYS/broker/pace/old", 0);
        net.publish(old, "new/a", "1", qos, true, 1);
        net.publish(old, "new/b", "2", qos, true, 2);
        assert!(!net.is_closed(old));
        assert_eq!(net.payloads(reader), ["1", "2"]);
        let stats = net.stats();
        assert_eq!((stats.retained_memory_budget, stats.dropped_retained_full, stats.retained_messages), (2, 0, 1));
        let got = net.receive(old);
        let notices = got.iter().filter(|got| format!("{got:?}").contains("not retained"));
        assert_eq!(notices.count(), 1, "once on a connection: {got:?}");
        let kind = if qos == 1 { AckKind::PubAck } else { AckKind::PubRec };
        let acks = got
            .iter()
            .filter(|got| matches!(got, Got::Ack { kind: own, reason: ReasonCode::Success, .. } if *own == kind));
        assert_eq!(acks.count(), if qos == 0 { 0 } else { 2 });
        let late = net.v5("late");
        net.subscribe(late, "new/#", 0);
        assert_eq!(net.payloads(late), [""; 0], "on no shard");
    }
}

#[test]
fn a_will_that_cannot_be_retained_is_delivered_and_counted() {
    let (mut net, reader) = full();
    let options = Options { will: Some(("new/will", "gone", QoS::AtLeastOnce, true)), ..Options::default() };
    let mortal = net.connect("mortal", &options);
    net.cut(mortal);
    assert_eq!(net.payloads(reader), ["gone"]);
    assert_eq!((net.stats().retained_memory_budget, net.stats().retained_messages), (1, 1));
}
