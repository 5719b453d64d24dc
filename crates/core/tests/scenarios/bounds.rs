//! What one client can ask for is bounded, and so is what it can make the broker do for it.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_core::shard_of;
use tidegate_wire_mqtt::{Property, QoS, ReasonCode, Version};

use crate::net::{Got, Net, Options, options};

fn id_on(shard: usize) -> String {
    (0..100).map(|n| format!("client-{n}")).find(|id| shard_of(id, 2) == shard).unwrap()
}

#[test]
fn no_message_has_more_subscription_identifiers_than_are_allowed() {
    let mut net = Net::new(1);
    let client = net.v5("c");
    let mut last = ReasonCode::Success;
    for n in 0..2000_u32 {
        let levels: Vec<String> =
            (0..11).map(|bit| if n >> bit & 1 == 1 { "+".into() } else { "a".into() }).take(8).collect();
        let filter = format!("{}/{n}/#", levels.join("/"));
        let id = [Property::SubscriptionId(NonZeroU32::new(n + 1).unwrap())];
        last = net.subscribe_with(client, &filter, options(QoS::AtMostOnce), &id);
        assert_eq!(last == ReasonCode::QuotaExceeded, n >= 1024, "{n}");
    }
    assert_eq!(last, ReasonCode::QuotaExceeded);
    // Without an identifier, or without a wildcard, there is no such limit; and places become free again.
    assert_eq!(net.subscribe(client, "x/#", 0), ReasonCode::Success);
    let id = [Property::SubscriptionId(NonZeroU32::new(7).unwrap())];
    assert_eq!(net.subscribe_with(client, "x/y", options(QoS::AtMostOnce), &id), ReasonCode::Success);
    assert_eq!(net.subscribe_with(client, "x/#", options(QoS::AtMostOnce), &id), ReasonCode::QuotaExceeded);
    net.unsubscribe(client, "a/a/a/a/a/a/a/a/0/#");
    assert_eq!(net.subscribe_with(client, "x/#", options(QoS::AtMostOnce), &id), ReasonCode::Success);
}

#[test]
fn the_hundred_and_first_shared_subscription_is_over_the_quota() {
    let mut net = Net::new(1);
    let (client, old) = (net.v5("c"), net.connect("old", &Options { version: Version::V311, ..Options::default() }));
    for n in 0..=100 {
        let filter = format!("$share/g/{n}");
        let (expected, told) = match n {
            100 => (ReasonCode::QuotaExceeded, ReasonCode::UnspecifiedError),
            _ => (ReasonCode::Success, ReasonCode::Success),
        };
        assert_eq!(net.subscribe(client, &filter, 0), expected);
        assert_eq!(net.subscribe(old, &filter, 0), told, "3.1.1 has one word for all failures");
    }
    assert_eq!(net.subscribe(client, "$share/g/50", 1), ReasonCode::GrantedQos1, "an old one may change");
    net.unsubscribe(client, "$share/g/50");
    assert_eq!(net.subscribe(client, "$share/h/50", 0), ReasonCode::Success);
}

#[test]
fn f019_what_a_match_visits_is_bounded_and_ordinary_filters_are_not_refused_for_it() {
    let mut net = Net::new(1);
    // Every way to write thirteen levels with or without `+`, behind one, two or more that are the same.
    let mut refused = 0;
    for bomber in 0..10 {
        let wire = net.v5(&format!("bomber-{bomber}"));
        for bits in 0..8192 / 2 {
            let bits = bits * 2 + bomber % 2;
            let levels: Vec<&str> = (0..13).map(|level| if bits >> level & 1 == 1 { "+" } else { "a" }).collect();
            let filter = format!("{}{}", "a/".repeat(1 + bomber as usize / 2), levels.join("/"));
            refused += u32::from(net.subscribe(wire, &filter, 0) == ReasonCode::QuotaExceeded);
        }
    }
    assert!(refused > 0);
    let client = net.v5("client");
    for filter in ["+/x/+/x/+/x", "x/+/#", "#", "a/very/long/filter/without/any/wildcard/in/it/x/x/x/x/x/x/x/x/x/x/x"] {
        assert_eq!(net.subscribe(client, filter, 0), ReasonCode::Success, "{filter}");
    }
    assert_eq!(net.subscribe(client, "+/a/a/a/a/a/a/a/a/a/a/a/+/+/+", 0), ReasonCode::QuotaExceeded);
    // The room comes back when they are gone.
    for bomber in 0..10 {
        net.v5(&format!("bomber-{bomber}"));
    }
    assert_eq!(net.subscribe(client, "+/a/a/a/a/a/a/a/a/a/a/a/+/+/+", 0), ReasonCode::Success);
}

#[test]
fn no_answer_is_seen_before_every_shard_knows_what_it_promises() {
    let mut net = Net::new(2);
    let (sender, receiver) = (net.v5(&id_on(0)), net.v5(&id_on(1)));
    net.refuse_batches();
    net.subscribe_quietly(receiver, "t");
    assert_eq!(net.receive(receiver), []);
    net.release_batches();
    assert_eq!(net.receive(receiver), [Got::SubAck(vec![ReasonCode::GrantedQos1])]);
    net.publish(sender, "t", "x", 0, false, 0);
    assert_eq!(net.payloads(receiver), ["x"]);
}

#[test]
fn who_subscribes_faster_than_other_shards_take_it_is_not_read() {
    let mut net = Net::new(2);
    let client = net.v5(&id_on(1));
    net.refuse_batches();
    let mut subscribed = 0;
    while net.may_read(client) {
        subscribed += 1;
        assert!(subscribed < 10_000, "no end");
        net.subscribe_quietly(client, &format!("{subscribed}/{}", "x".repeat(400)));
    }
    assert!(subscribed > 2000, "{subscribed}");
    net.release_batches();
    assert!(net.may_read(client));
    assert_eq!(net.receive(client).len(), subscribed);
}

#[test]
fn f044_a_retained_message_is_not_dropped_on_its_way_to_another_shard() {
    let mut net = Net::new(2);
    let (sender, reader) = (net.v5(&id_on(0)), net.v5(&id_on(1)));
    net.subscribe(reader, "flood", 0);
    net.receive(reader);
    net.hold_batches();
    // PUBLISH at QoS 0 of 960 KiB, again and again, although the shard asks for a pause.
    let large = [&b"\x30\x87\x80\x3c\x00\x05flood\x00"[..], &vec![7; 960 * 1024 - 1]].concat();
    for _ in 0..20 {
        net.slip(sender, &large);
    }
    let dropped = net.stats().dropped_shard_full;
    assert!(dropped > 0);
    net.slip(sender, b"\x31\x05\x00\x01t\x00x");
    assert_eq!(net.stats().dropped_shard_full, dropped);
    net.release_batches();
    net.subscribe_quietly(reader, "t");
    assert!(net.payloads(reader).contains(&"x".to_owned()), "both shards keep the same");
}

#[test]
fn sessions_that_expire_together_with_all_they_have_end_in_more_than_one_turn() {
    let mut net = Net::new(1);
    let lasting = Options { clean: false, properties: vec![Property::SessionExpiry(10)], ..Options::default() };
    for client in 0..20 {
        let wire = net.connect(&format!("c{client}"), &lasting);
        for n in 0..1000 {
            net.subscribe(wire, &format!("{client}/{n}"), 0);
        }
        net.cut(wire);
    }
    let later = net.now + Duration::from_secs(11);
    let mut turns = 0;
    while net.stats().sessions > 0 {
        let before = net.stats().sessions;
        net.shards[0].turn(later);
        assert!(before - net.stats().sessions <= 5, "five thousand subscriptions in one turn are enough");
        turns += 1;
        assert!(turns < 20 && (net.stats().sessions == 0 || net.shards[0].poll_timeout() <= Some(later)));
    }
    assert_eq!(net.stats().subscriptions, 0);
}
