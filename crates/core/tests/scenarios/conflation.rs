//! Subscriptions that want no more than the newest of each topic while their client is away or slow.

use tidegate_wire_mqtt::{Property, QoS, SubscriptionOptions};

use crate::net::{Net, Wire, lasting};

const LATEST: [Property<'static>; 1] = [Property::UserProperty("pace-conflate", "latest")];

fn subscribe(net: &mut Net, wire: Wire, filter: &str, properties: &[Property<'_>]) {
    net.subscribe_with(wire, filter, SubscriptionOptions::with_qos(QoS::AtLeastOnce), properties);
}

fn publish(net: &mut Net, sender: Wire, count: u16) {
    for n in 0..count {
        net.publish(sender, "state/a", &format!("a{n}"), 1, false, 1);
        net.publish(sender, "state/b", &format!("b{n}"), 1, false, 2);
    }
}

#[test]
fn who_asks_for_the_latest_finds_the_newest_of_each_topic_and_others_everything() {
    let mut net = Net::new(2);
    let (sender, plain, latest) =
        (net.v5("sender"), net.connect("plain", &lasting()), net.connect("latest", &lasting()));
    subscribe(&mut net, plain, "state/#", &[]);
    subscribe(&mut net, latest, "state/#", &LATEST);
    net.cut(plain);
    net.cut(latest);
    publish(&mut net, sender, 100);
    let stats = net.stats();
    assert_eq!((stats.queued_messages, stats.dropped_conflated, stats.dropped_queue_full), (202, 198, 0));
    let latest = net.dial("latest", &lasting());
    assert_eq!(net.payloads(latest), ["a99", "b99"]);
    let plain = net.dial("plain", &lasting());
    assert_eq!(net.payloads(plain).len(), 64, "a window of the first of them");
}

#[test]
fn who_reads_in_time_misses_nothing() {
    let mut net = Net::new(1);
    let (sender, latest) = (net.v5("sender"), net.v5("latest"));
    net.subscribe_with(latest, "state/#", SubscriptionOptions::with_qos(QoS::AtMostOnce), &LATEST);
    publish(&mut net, sender, 10);
    assert_eq!((net.payloads(latest).len(), net.stats().dropped_conflated), (20, 0));
}

#[test]
fn a_subscription_that_wants_all_is_not_made_poorer_by_one_that_does_not() {
    let mut net = Net::new(1);
    let (sender, reader) = (net.v5("sender"), net.connect("reader", &lasting()));
    subscribe(&mut net, reader, "state/#", &LATEST);
    subscribe(&mut net, reader, "state/a", &[]);
    net.cut(reader);
    publish(&mut net, sender, 10);
    assert_eq!((net.stats().queued_messages, net.stats().dropped_conflated), (11, 9), "all of a, the last of b");
}

#[test]
fn of_a_group_each_message_is_kept() {
    let mut net = Net::new(1);
    let (sender, member) = (net.v5("sender"), net.connect("member", &lasting()));
    subscribe(&mut net, member, "$share/g/state/#", &LATEST);
    net.cut(member);
    publish(&mut net, sender, 10);
    assert_eq!((net.stats().queued_messages, net.stats().dropped_conflated), (20, 0));
}
