//! Retained messages that answer a subscription, when there are more of them than fit anywhere.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, ReasonCode};

use crate::net::{Got, Net, Options, Wire};

fn filled(count: usize, settings: Settings) -> (Net, Wire) {
    let mut net = Net::with(1, settings, Open);
    let sender = net.v5("sender");
    for n in 0..count {
        net.publish(sender, &format!("t/{n}"), "old", 1, true, 1);
    }
    net.receive(sender);
    (net, sender)
}

/// A session that lasts, with room for two messages under way.
fn narrow() -> Options<'static> {
    let properties = vec![Property::SessionExpiry(3600), Property::ReceiveMaximum(NonZeroU16::new(2).unwrap())];
    Options { clean: false, properties, ..Options::default() }
}

/// Takes messages and acknowledges them, until none comes or there are enough of them; topics and payloads.
fn take(net: &mut Net, wire: Wire, most: usize) -> Vec<(String, String)> {
    let mut taken = Vec::new();
    while taken.len() < most {
        let got = net.receive(wire);
        if got.is_empty() {
            break;
        }
        for got in got {
            let Got::Message { topic, payload, retain, id, .. } = got else { panic!("{got:?}") };
            assert!(retain || payload == "live", "{topic} {payload}");
            taken.push((topic, payload));
            if let Some(id) = id {
                net.ack(wire, AckKind::PubAck, id);
            }
        }
    }
    taken
}

#[test]
fn f045_a_burst_goes_on_as_the_client_acknowledges_and_nothing_is_lost() {
    let settings = Settings { queue_messages_max: 5, ..Settings::default() };
    let (mut net, _) = filled(1000, settings);
    let reader = net.connect("reader", &narrow());
    net.subscribe(reader, "t/+", 1);
    assert_eq!((net.stats().inflight_messages, net.stats().queued_messages), (2, 0), "what has no room is nowhere");
    let mut topics: Vec<_> = take(&mut net, reader, 2000).into_iter().map(|(topic, _)| topic).collect();
    assert_eq!(topics.len(), 1000);
    topics.sort();
    topics.dedup();
    assert_eq!(topics.len(), 1000);
    let stats = net.stats();
    assert_eq!((stats.deliveries, stats.delivered, stats.dropped_queue_full), (1000, 1000, 0));
}

#[test]
fn f045_a_burst_outlives_the_connection_with_its_session_and_ends_with_the_subscription() {
    let (mut net, _) = filled(100, Settings::default());
    let reader = net.connect("reader", &narrow());
    net.subscribe(reader, "t/#", 1);
    let mut taken = take(&mut net, reader, 30);
    net.cut(reader);
    net.pass(Duration::from_secs(60));
    let reader = net.connect_quietly("reader", &narrow());
    taken.extend(take(&mut net, reader, 30));
    let distinct: BTreeMap<_, _> = taken.iter().cloned().collect();
    assert!(distinct.len() >= 60, "{}", distinct.len());
    net.unsubscribe_quietly(reader, "t/#");
    let rest = net.receive(reader);
    let late = rest.iter().filter(|got| matches!(got, Got::Message { .. })).count();
    assert!(late <= 2, "only what was under way: {rest:?}");
    for got in rest {
        if let Got::Message { id: Some(id), .. } = got {
            net.ack(reader, AckKind::PubAck, id);
        }
    }
    assert_eq!(net.receive(reader), []);
}

#[test]
fn a_burst_sends_what_is_retained_when_its_turn_comes() {
    let (mut net, sender) = filled(10, Settings::default());
    let reader = net.connect("reader", &narrow());
    net.subscribe(reader, "t/+", 1);
    // t/0 and t/1 are under way.
    net.publish(sender, "t/5", "", 1, true, 1);
    net.publish(sender, "t/7", "new", 1, true, 2);
    net.publish(sender, "t/95", "added", 1, true, 3);
    let mut burst = Vec::new();
    while let Some(got) = net.receive_one(reader) {
        let Got::Message { topic, payload, retain, id: Some(id), .. } = got else { panic!("{got:?}") };
        if retain {
            burst.push((topic, payload));
        }
        net.ack(reader, AckKind::PubAck, id);
    }
    let texts: Vec<_> = burst.iter().map(|(topic, payload)| (&**topic, &**payload)).collect();
    let old = |topic| (topic, "old");
    let expected = [
        old("t/0"),
        old("t/1"),
        old("t/2"),
        old("t/3"),
        old("t/4"),
        old("t/6"),
        ("t/7", "new"),
        old("t/8"),
        old("t/9"),
        ("t/95", "added"),
    ];
    assert_eq!(texts, expected);
}

#[test]
fn what_is_published_meanwhile_does_not_wait_for_the_burst() {
    let (mut net, sender) = filled(1000, Settings::default());
    let reader = net.connect("reader", &narrow());
    net.subscribe(reader, "#", 1);
    for _ in 0..10 {
        net.publish(sender, "live", "live", 1, false, 1);
    }
    let taken = take(&mut net, reader, 100);
    let live = taken.iter().filter(|(topic, _)| topic == "live").count();
    assert!(live == 10 && taken.len() < 150, "{live} of {}", taken.len());
    assert_eq!(taken.len() + take(&mut net, reader, 2000).len(), 1010, "and neither does the burst for them");
}

#[test]
fn f045_a_walk_that_finds_little_takes_turns_with_others() {
    let (mut net, _) = filled(5000, Settings::default());
    let sender = net.v5("writer");
    for n in 0..5000 {
        net.publish(sender, &format!("{n}/x"), "old", 0, true, 0);
    }
    net.publish(sender, "9999/y", "old", 0, true, 0);
    let reader = net.v5("reader");
    // SUBSCRIBE +/y at QoS 0, before anything else moves: not all is looked at in one go.
    net.slip(reader, b"\x82\x09\x00\x01\x00\x00\x03+/y\x00");
    assert_eq!(net.shards[0].poll_timeout(), Some(tidegate_control::Timestamp::ZERO), "there is more to do");
    assert_eq!(net.stats().deliveries, 0);
    for _ in 0..10 {
        net.settle_slowly();
    }
    net.settle();
    let got = net.receive(reader);
    assert_eq!(got[0], Got::SubAck(vec![ReasonCode::Success]));
    assert!(matches!(&got[1..], [Got::Message { topic, .. }] if topic == "9999/y"), "{got:?}");
}

#[derive(Clone, Debug)]
enum Operation {
    Subscribe(usize),
    Unsubscribe(usize),
    Retain(usize, bool),
    Acknowledge(usize),
    Reconnect,
}

const FILTERS: [&str; 5] = ["#", "a/+", "a/b", "+/b", "$x/#"];
const TOPICS: [&str; 8] = ["a", "a/a", "a/b", "b", "b/b", "b/b/b", "$x/a", "$x/b"];

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..FILTERS.len()).prop_map(Operation::Subscribe),
        1 => (0..FILTERS.len()).prop_map(Operation::Unsubscribe),
        4 => (0..TOPICS.len(), any::<bool>()).prop_map(|(topic, keep)| Operation::Retain(topic, keep)),
        4 => (1..4_usize).prop_map(Operation::Acknowledge),
        1 => Just(Operation::Reconnect),
    ]
}

proptest! {
    /// Whatever happens meanwhile: who has taken everything knows the newest state of every topic that it subscribed to,
    /// and nobody ever goes back from a newer state to an older one.
    #[test]
    fn f045_in_the_end_a_subscriber_knows_what_is_retained(operations in prop::collection::vec(operation(), 1..60)) {
        let mut net = Net::new(1);
        let sender = net.v5("sender");
        let mut reader = net.connect("reader", &narrow());
        let (mut number, mut kept, mut known) = (0_u64, BTreeMap::<usize, u64>::new(), BTreeMap::<String, u64>::new());
        let mut subscribed = [false; FILTERS.len()];
        let mut waiting: Vec<u16> = Vec::new();
        let collect = |net: &mut Net, reader: Wire, waiting: &mut Vec<u16>, known: &mut BTreeMap<String, u64>| {
            for got in net.receive(reader) {
                if let Got::Message { topic, payload, id: Some(id), dup, .. } = got {
                    waiting.push(id);
                    let Ok(number) = payload.parse::<u64>() else { continue };
                    let last = known.entry(topic).or_default();
                    assert!(dup || number >= *last, "{number} after {last}");
                    *last = number.max(*last);
                }
            }
        };
        for operation in operations {
            match operation {
                Operation::Subscribe(filter) => {
                    net.subscribe_quietly(reader, FILTERS[filter]);
                    subscribed[filter] = true;
                }
                Operation::Unsubscribe(filter) => {
                    net.unsubscribe_quietly(reader, FILTERS[filter]);
                    subscribed[filter] = false;
                }
                Operation::Retain(topic, true) => {
                    number += 1;
                    kept.insert(topic, number);
                    net.publish(sender, TOPICS[topic], &number.to_string(), 1, true, 1);
                }
                Operation::Retain(topic, false) => {
                    kept.remove(&topic);
                    net.publish(sender, TOPICS[topic], "", 1, true, 1);
                }
                Operation::Acknowledge(count) => {
                    for id in waiting.drain(..count.min(waiting.len())).collect::<Vec<_>>() {
                        net.ack(reader, AckKind::PubAck, id);
                    }
                }
                Operation::Reconnect => {
                    net.cut(reader);
                    reader = net.connect_quietly("reader", &narrow());
                    waiting.clear();
                }
            }
            collect(&mut net, reader, &mut waiting, &mut known);
        }
        while !waiting.is_empty() {
            for id in std::mem::take(&mut waiting) {
                net.ack(reader, AckKind::PubAck, id);
            }
            collect(&mut net, reader, &mut waiting, &mut known);
        }
        for (topic, number) in &kept {
            let fits = |filter: &str| {
                tidegate_wire_mqtt::TopicFilter::parse(filter, &tidegate_wire_mqtt::Limits::default()).unwrap().matches(TOPICS[*topic])
            };
            if FILTERS.iter().zip(subscribed).any(|(filter, subscribed)| subscribed && fits(filter)) {
                prop_assert_eq!(known.get(TOPICS[*topic]), Some(number), "{}", TOPICS[*topic]);
            }
        }
        let stats = net.stats();
        prop_assert_eq!((stats.queued_messages, stats.inflight_messages, stats.dropped_queue_full), (0, 0, 0));
        prop_assert_eq!(stats.deliveries, stats.delivered);
    }
}
