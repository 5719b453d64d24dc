//! Queues that are longer than the memory that they may have.

use std::time::Duration;

use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Disconnect, Properties, Property, QoS, ReasonCode};

use crate::net::{Got, Net, Options, Wire, lasting, lasting_v311, options};

const WINDOW: usize = 4096;

fn net(shards: usize) -> Net {
    let settings = Settings { queue_memory_max: WINDOW, inflight_max: 8, ..Settings::default() };
    Net::durable_with(shards, settings)
}

/// Publishes so many messages of 100 bytes, `first` and following, at QoS 1 and 2 by turns.
fn publish(net: &mut Net, sender: Wire, first: u32, count: u32) {
    for number in first..first + count {
        let (qos, id) = (1 + (number % 2) as u8, (number % 60_000) as u16 + 1);
        net.publish(sender, "t", &text(number), qos, false, id);
        if qos == 2 {
            net.ack(sender, AckKind::PubRel, id);
        }
    }
    net.receive(sender);
}

fn text(number: u32) -> String {
    format!("{number:<100}")
}

/// Reads and acknowledges until nothing comes any more; the numbers.
fn read(net: &mut Net, reader: Wire) -> Vec<u32> {
    let mut numbers = Vec::new();
    loop {
        let got = net.receive(reader);
        if got.is_empty() {
            return numbers;
        }
        numbers.extend(got.into_iter().filter_map(|got| take(net, reader, got)));
    }
}

fn take(net: &mut Net, reader: Wire, got: Got) -> Option<u32> {
    match got {
        Got::Message { payload, qos, id: Some(id), .. } => {
            net.ack(reader, if qos == 1 { AckKind::PubAck } else { AckKind::PubRec }, id);
            payload.trim().parse().ok()
        }
        Got::Ack { kind: AckKind::PubRel, id, .. } => {
            net.ack(reader, AckKind::PubComp, id);
            None
        }
        _ => None,
    }
}

/// A reader that has subscribed and gone.
fn leave_reader(net: &mut Net, options: &Options<'_>) -> Wire {
    let reader = net.connect("reader", options);
    net.subscribe(reader, "t", 2);
    net.cut(reader);
    reader
}

#[test]
fn a_long_queue_is_on_disk_and_comes_back_in_order() {
    for shards in [1, 3] {
        for options in [lasting(), lasting_v311()] {
            let mut net = net(shards);
            let sender = net.v5("sender");
            leave_reader(&mut net, &options);
            publish(&mut net, sender, 0, 2000);
            let stats = net.stats();
            assert_eq!(stats.queued_messages, 2000);
            assert!(stats.queued_on_disk > 1950, "{} on disk", stats.queued_on_disk);
            let used: usize = net.shards.iter().map(tidegate_core::Shard::memory_used).sum();
            assert!(used < 2000 * 100, "{used} bytes in memory");

            let reader = net.connect_quietly("reader", &options);
            let numbers = read(&mut net, reader);
            assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
            let stats = net.stats();
            assert_eq!((stats.queued_messages, stats.queued_bytes, stats.queued_on_disk), (0, 0, 0));
            assert!(net.shelf.pages > 50 && net.shelf.pages < 300, "{} pages", net.shelf.pages);
        }
    }
}

#[test]
fn a_reader_may_go_and_come_back_between_pages_and_within_one() {
    let mut net = net(1);
    let sender = net.v5("sender");
    leave_reader(&mut net, &lasting());
    publish(&mut net, sender, 0, 500);
    let mut numbers = Vec::new();
    for round in 0.. {
        let reader = net.connect_quietly("reader", &lasting());
        net.shelf.is_slow = round % 3 == 1;
        for _ in 0..10 {
            let Some(got) = net.receive_one(reader) else { break };
            numbers.extend(take(&mut net, reader, got));
        }
        // Once by a second connection of the same client, and more comes meanwhile.
        if round % 2 == 0 {
            net.cut(reader);
        }
        net.shelf.is_slow = false;
        if round < 20 {
            publish(&mut net, sender, 500 + round * 10, 10);
        } else if net.stats().queued_messages == 0 {
            numbers.extend(read(&mut net, reader));
            break;
        }
    }
    // What was under way when a connection broke comes a second time at QoS 1.
    let mut seen = std::collections::BTreeSet::new();
    numbers.retain(|number| seen.insert(*number));
    assert_eq!(numbers, (0..700).collect::<Vec<_>>());
}

#[test]
fn a_message_that_cannot_be_read_back_is_lost_by_name_and_the_session_goes_on() {
    let mut net = net(1);
    let sender = net.v5("sender");
    leave_reader(&mut net, &lasting());
    publish(&mut net, sender, 0, 300);
    let lost = [100, 101, 250];
    for number in lost {
        net.shelf.damage(&text(number));
    }
    let reader = net.connect_quietly("reader", &lasting());
    let numbers = read(&mut net, reader);
    assert_eq!(numbers, (0..300).filter(|number| !lost.contains(number)).collect::<Vec<_>>());
    assert_eq!(net.stats().dropped_unreadable, 3);
}

#[test]
fn what_expires_on_disk_is_counted_when_its_turn_comes() {
    let mut net = net(1);
    let sender = net.v5("sender");
    leave_reader(&mut net, &lasting());
    for number in 0..200_u16 {
        let short = [Property::MessageExpiry(10)];
        let properties = if number % 2 == 0 { &short[..] } else { &[] };
        net.publish_with(sender, "t", &text(number.into()), 1, false, number + 1, properties);
    }
    net.pass(Duration::from_secs(60));
    let reader = net.connect_quietly("reader", &lasting());
    let numbers = read(&mut net, reader);
    assert_eq!(numbers, (0..200).filter(|number| number % 2 == 1).collect::<Vec<_>>());
    assert_eq!((net.stats().dropped_expired, net.stats().queued_messages), (100, 0));
}

#[test]
fn a_full_queue_drops_the_oldest_wherever_it_is() {
    let settings = Settings { queue_memory_max: WINDOW, queue_messages_max: 300, ..Settings::default() };
    let mut net = Net::durable_with(1, settings);
    let sender = net.v5("sender");
    leave_reader(&mut net, &lasting());
    publish(&mut net, sender, 0, 1000);
    assert_eq!((net.stats().queued_messages, net.stats().dropped_queue_full), (300, 700));
    let reader = net.connect_quietly("reader", &lasting());
    assert_eq!(read(&mut net, reader), (700..1000).collect::<Vec<_>>());
}

#[test]
fn a_session_that_ends_takes_with_it_what_is_on_disk() {
    let mut net = net(1);
    let sender = net.v5("sender");
    leave_reader(&mut net, &lasting());
    publish(&mut net, sender, 0, 300);
    net.shelf.is_slow = true;
    let reader = net.connect_quietly("reader", &lasting());
    let goodbye = [Property::SessionExpiry(0)];
    net.send(reader, &Disconnect { reason: ReasonCode::Success, properties: Properties::new(&goodbye) });
    net.shelf.is_slow = false;
    net.settle();
    let stats = net.stats();
    assert_eq!((stats.queued_messages, stats.queued_on_disk, stats.queued_bytes), (0, 0, 0));
    assert!(stats.dropped_session_ended >= 292, "{stats:?}");
}

#[test]
fn what_belongs_to_a_message_comes_back_with_it() {
    let mut net = net(1);
    let sender = net.v5("sender");
    let reader = net.connect("reader", &lasting());
    for (filter, id) in [("t/#", 7), ("t/x", 8)] {
        let id = [Property::SubscriptionId(std::num::NonZeroU32::new(id).unwrap())];
        net.subscribe_with(reader, filter, options(QoS::AtLeastOnce), &id);
    }
    net.cut(reader);
    let properties = [Property::ContentType("text"), Property::UserProperty("a", "b")];
    for id in 1..100 {
        net.publish_with(sender, "t/x", &text(id.into()), 1, false, id, &properties);
    }
    assert!(net.stats().queued_on_disk > 50);
    let reader = net.connect_quietly("reader", &lasting());
    for _ in 1..100 {
        let (id, ids, words) = net.look_at_message(reader, |publish| {
            let ids: Vec<u32> = publish.properties.subscription_ids().map(std::num::NonZeroU32::get).collect();
            let words = publish.properties.iter().filter(|it| matches!(it, Property::UserProperty("a", "b"))).count();
            (publish.delivery.packet_id().unwrap().get(), ids, words)
        });
        assert_eq!((ids.len(), words), (2, 1), "{ids:?}");
        net.ack(reader, AckKind::PubAck, id);
    }
}
