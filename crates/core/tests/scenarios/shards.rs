//! Several shards behave like one.

use std::collections::BTreeMap;

use tidegate_core::shard_of;
use tidegate_wire_mqtt::{AckKind, Property, ReasonCode};

use crate::net::{Got, Net, Options, Wire};

/// Client identifiers that live on the given shard of two.
fn on_shard(shard: usize, number: usize) -> String {
    (0..).map(|n| format!("client-{n}")).filter(|id| shard_of(id, 2) == shard).nth(number).unwrap()
}

#[test]
fn messages_cross_once_per_shard_and_in_order() {
    let mut net = Net::new(2);
    let sender = net.v5(&on_shard(0, 0));
    let receivers: Vec<Wire> = (0..3).map(|n| net.v5(&on_shard(1, n))).collect();
    for receiver in &receivers {
        net.subscribe(*receiver, "t/+", 1);
    }
    net.crossed = 0;
    for n in 1..=3 {
        net.publish(sender, "t/x", &n.to_string().repeat(1000), 1, false, n);
    }
    for receiver in &receivers {
        assert_eq!(net.payloads(*receiver), ["1", "2", "3"].map(|n| n.repeat(1000)));
    }
    assert!((3000..4000).contains(&net.crossed), "each once for its three receivers there: {} bytes", net.crossed);
    let success = ReasonCode::Success;
    let acks: Vec<_> = (1..=3).map(|id| Got::Ack { kind: AckKind::PubAck, id, reason: success }).collect();
    assert_eq!(net.receive(sender), acks);
}

#[test]
fn interest_ends_with_the_last_subscriber() {
    let mut net = Net::new(2);
    let sender = net.v5(&on_shard(0, 0));
    let (one, two) = (net.v5(&on_shard(1, 0)), net.v5(&on_shard(1, 1)));
    net.subscribe(one, "t", 0);
    net.subscribe(two, "t", 0);
    net.unsubscribe(one, "t");
    net.publish(sender, "t", "x", 1, false, 1);
    assert_eq!(net.payloads(two), ["x"]);
    net.cut(two);
    net.publish(sender, "t", "y", 1, false, 2);
    let got = net.receive(sender);
    let reason = ReasonCode::NoMatchingSubscribers;
    assert_eq!(got.last(), Some(&Got::Ack { kind: AckKind::PubAck, id: 2, reason }));
}

#[test]
fn retained_messages_are_known_everywhere() {
    let mut net = Net::new(2);
    let sender = net.v5(&on_shard(0, 0));
    net.publish(sender, "t", "x", 0, true, 0);
    for shard in 0..2 {
        let reader = net.v5(&on_shard(shard, 5));
        net.subscribe(reader, "t", 0);
        assert_eq!(net.payloads(reader), ["x"]);
    }
    assert_eq!(net.stats().retained_messages, 1);
    net.publish(sender, "t", "", 0, true, 0);
    let reader = net.v5(&on_shard(1, 6));
    net.subscribe(reader, "t", 0);
    assert_eq!(net.receive(reader), []);
}

/// What a new subscriber on this shard gets.
fn retained_on(net: &mut Net, shard: usize) -> Vec<String> {
    let reader = net.v5(&on_shard(shard, 9));
    net.subscribe(reader, "t", 0);
    let got = net.payloads(reader);
    net.cut(reader);
    got
}

#[test]
fn f044_retained_messages_that_cross_on_their_way_leave_the_same_everywhere() {
    // What is published on one shard and on the other; an empty one deletes.
    let cases = [("a", "b"), ("a", "-"), ("-", "b"), ("a-", "b"), ("a", "b-"), ("-a", "-")];
    let packet = |payload| match payload {
        '-' => b"\x31\x04\x00\x01t\x00".to_vec(),
        letter => [&b"\x31\x05\x00\x01t\x00"[..], &[letter as u8]].concat(),
    };
    for (left, right) in cases {
        for before in [false, true] {
            let mut net = Net::new(2);
            let (one, two) = (net.v5(&on_shard(0, 0)), net.v5(&on_shard(1, 0)));
            if before {
                net.publish(one, "t", "before", 0, true, 0);
            }
            // Both publish before either shard has heard of the other.
            for (wire, payload) in left.chars().map(|c| (one, c)).chain(right.chars().map(|c| (two, c))) {
                net.slip(wire, &packet(payload));
            }
            net.settle();
            let here = retained_on(&mut net, 0);
            assert_eq!(here, retained_on(&mut net, 1), "{left} {right}");
            // Whoever comes later has the last word.
            net.publish(one, "t", "last", 0, true, 0);
            assert_eq!(
                (retained_on(&mut net, 0), retained_on(&mut net, 1)),
                (vec!["last".into()], vec!["last".into()])
            );
            net.publish(two, "t", "", 0, true, 0);
            assert_eq!((retained_on(&mut net, 0), retained_on(&mut net, 1)), (vec![], vec![]));
        }
    }
}

fn shares(net: &mut Net, members: &[Wire]) -> Vec<usize> {
    members.iter().map(|member| net.payloads(*member).len()).collect()
}

#[test]
fn a_shared_subscription_is_balanced_over_shards_and_skips_who_is_away() {
    let mut net = Net::new(2);
    let sender = net.v5("sender");
    let lasting = Options { clean: false, properties: vec![Property::SessionExpiry(3600)], ..Options::default() };
    let names = [on_shard(0, 0), on_shard(0, 1), on_shard(1, 0), on_shard(1, 1)];
    let members: Vec<Wire> = names.iter().map(|name| net.connect(name, &lasting)).collect();
    for member in &members {
        net.subscribe(*member, "$share/g/t", 1);
    }
    for n in 1..=40 {
        net.publish(sender, "t", &n.to_string(), 1, false, n);
    }
    // The first one to each of those who are idle where the sender is.
    assert_eq!(shares(&mut net, &members), [11, 10, 9, 10]);
    net.cut(members[0]);
    net.cut(members[2]);
    for n in 1..=40 {
        net.publish(sender, "t", &n.to_string(), 0, false, n);
    }
    assert_eq!(shares(&mut net, &members), [0, 20, 0, 20]);
    net.cut(members[1]);
    net.cut(members[3]);
    for n in 1..=8 {
        net.publish(sender, "t", &n.to_string(), 1, false, n);
    }
    // 20 were under way to the two that left last... all of this waits for somebody to come back.
    assert_eq!(net.stats().queued_messages, 8);
}

#[test]
fn a_shared_and_an_ordinary_subscription_both_get_their_copy() {
    let mut net = Net::new(2);
    let (sender, receiver) = (net.v5(&on_shard(0, 0)), net.v5(&on_shard(1, 0)));
    net.subscribe(receiver, "$share/g/t/#", 0);
    net.subscribe(receiver, "t/x", 0);
    net.publish(sender, "t/x", "m", 0, false, 0);
    assert_eq!(net.payloads(receiver), ["m", "m"]);
}

#[test]
fn one_shard_and_three_shards_deliver_the_same() {
    let run = |shards: usize| {
        let mut net = Net::new(shards);
        let clients: Vec<Wire> = (0..9).map(|n| net.v5(&format!("c{n}"))).collect();
        let filters = ["a/#", "a/+/c", "+/b/c", "a/b/c", "#", "b", "a/b/#", "+", "a/+"];
        for (client, filter) in clients.iter().zip(filters) {
            net.subscribe(*client, filter, 1);
        }
        let mut got = BTreeMap::new();
        for (n, topic) in ["a/b/c", "a", "a/b", "b", "x/b/c", "a/x/c"].into_iter().enumerate() {
            net.publish(clients[n], topic, topic, 1, false, n as u16 + 1);
        }
        for (client, filter) in clients.iter().zip(filters) {
            got.insert(filter, net.payloads(*client));
        }
        got
    };
    let one = run(1);
    assert_eq!(one["#"], ["a/b/c", "a", "a/b", "b", "x/b/c", "a/x/c"]);
    assert_eq!(one, run(3));
}

#[test]
fn a_shared_message_whose_receiver_left_on_its_way_finds_another() {
    let mut net = Net::new(2);
    let sender = net.v5(&on_shard(0, 0));
    let (here, there) = (net.v5(&on_shard(0, 1)), net.v5(&on_shard(1, 0)));
    net.subscribe(here, "$share/g/t", 1);
    net.subscribe(there, "$share/g/t", 1);
    // The messages leave for the other shard before it is known that its only member has gone.
    net.hold_batches();
    for n in 1..=4 {
        net.publish(sender, "t", &n.to_string(), 1, false, n);
    }
    net.cut(there);
    net.release_batches();
    assert_eq!(net.payloads(here).len(), 4);
    assert_eq!(net.stats().dropped_no_member, 0);
}

/// A client identifier that lives on the given shard of a hundred.
fn of_hundred(shard: usize) -> String {
    (0..100_000).map(|n| format!("client-{n}")).find(|id| shard_of(id, 100) == shard).unwrap()
}

#[test]
fn beyond_sixty_four_shards_messages_interest_groups_and_receipts_go_on() {
    for mut net in [Net::new(100), Net::durable(100)] {
        let sender = net.v5(&of_hundred(3));
        let lasting = Options { clean: false, properties: vec![Property::SessionExpiry(3600)], ..Options::default() };
        let far: Vec<Wire> = [63, 64, 99].iter().map(|shard| net.connect(&of_hundred(*shard), &lasting)).collect();
        for receiver in &far {
            net.subscribe(*receiver, "t/#", 2);
        }
        for (qos, id) in [(0, 0), (1, 1), (2, 2)] {
            net.publish(sender, "t/x", &format!("{qos}"), qos, false, id);
        }
        for receiver in &far {
            assert_eq!(net.payloads(*receiver), ["0", "1", "2"]);
        }
        // With a store the answers wait for what shards 63, 64 and 99 have kept, and come.
        let kinds = [(AckKind::PubAck, 1), (AckKind::PubRec, 2)];
        let acks = kinds.map(|(kind, id)| Got::Ack { kind, id, reason: ReasonCode::Success });
        assert_eq!(net.receive(sender), acks);
        net.publish(sender, "kept", "r", 0, true, 0);
        let reader = net.v5(&of_hundred(80));
        net.subscribe(reader, "kept", 0);
        assert_eq!(net.payloads(reader), ["r"]);
        // A member leaves while messages are on their way to it: they are passed on, from one far shard to another.
        let (leaving, staying) = (net.v5(&of_hundred(70)), net.v5(&of_hundred(98)));
        net.subscribe(leaving, "$share/g/s", 1);
        net.subscribe(staying, "$share/g/s", 1);
        net.hold_batches();
        for n in 10..=12 {
            net.publish(sender, "s", "m", 1, false, n);
        }
        net.cut(leaving);
        net.release_batches();
        assert_eq!((net.payloads(staying).len(), net.stats().dropped_no_member), (3, 0));
        for receiver in far {
            net.unsubscribe(receiver, "t/#");
        }
        net.publish(sender, "t/x", "nobody", 1, false, 20);
        let reason = ReasonCode::NoMatchingSubscribers;
        assert_eq!(net.receive(sender).last(), Some(&Got::Ack { kind: AckKind::PubAck, id: 20, reason }));
    }
}
