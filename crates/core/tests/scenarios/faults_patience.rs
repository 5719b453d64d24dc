//! FAULTS.md, section B: clients that take their time, or more than their share.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::event::{Event, Why};
use tidegate_core::settings::Settings;
use tidegate_core::{Progress, Then, shard_of};
use tidegate_wire_mqtt::{AckKind, Packet, Property, ReasonCode, Version};

use crate::net::{Got, Net, Options, Wire, lasting};

const SECOND: Duration = Duration::from_secs(1);

fn ended_with(net: &mut Net, wire: Wire) -> Option<ReasonCode> {
    net.receive(wire).into_iter().find_map(|got| if let Got::Disconnect(reason) = got { Some(reason) } else { None })
}

#[test]
fn f004_half_a_packet_and_then_nothing_ends_the_connection() {
    let mut net = Net::new(1);
    // 100 bytes are announced, three come. This client may be silent for ever, but not in the middle of a word.
    let (stuck, silent) = (net.v5("stuck"), net.v5("silent"));
    assert_eq!(net.offer(stuck, b"\x30\x64\x00").at_least, 102);
    net.pass(29 * SECOND);
    assert!(!net.is_closed(stuck));
    net.pass(2 * SECOND);
    assert_eq!(ended_with(&mut net, stuck), Some(ReasonCode::KeepAliveTimeout));
    assert!(net.is_closed(stuck) && !net.is_closed(silent));
    // The time is for one packet: the next begins its own.
    let client = net.v5("c");
    for _ in 0..10 {
        assert_eq!(net.offer(client, b"\xc0").consumed, 0);
        net.pass(20 * SECOND);
        net.send_bytes(client, b"\xc0\x00");
    }
    assert!(!net.is_closed(client));
    net.pass(3600 * SECOND);
    assert!(!net.is_closed(client));
    // A large one gets more, by its size.
    assert_eq!(net.offer(client, b"\x30\xfc\xff\x3f").at_least, 1024 * 1024);
    net.pass(500 * SECOND);
    assert!(!net.is_closed(client));
    net.pass(45 * SECOND);
    assert!(net.is_closed(client));
}

#[test]
fn f004_a_large_packet_that_comes_slowly_is_a_sign_of_life_and_one_that_trickles_is_not() {
    let mut net = Net::new(1);
    let keep_alive = |net: &mut Net, id: &str| net.connect(id, &Options { keep_alive: 10, ..Options::default() });
    let (steady, trickling, silent) =
        (keep_alive(&mut net, "steady"), keep_alive(&mut net, "trickling"), keep_alive(&mut net, "silent"));
    for wire in [steady, trickling, silent] {
        // A mebibyte is announced.
        assert_eq!(net.offer(wire, b"\x30\xfc\xff\x3f").at_least, 1024 * 1024);
    }
    for second in 1..=100 {
        net.pass(SECOND);
        net.arrive(steady, second * 4096);
        net.arrive(trickling, second);
        assert_eq!(net.is_closed(silent), second >= 15, "{second}");
        // Its first half minute counts, and the keep-alive after it.
        assert_eq!(net.is_closed(trickling), second >= 45, "{second}");
    }
    assert!(!net.is_closed(steady));
}

#[test]
fn f045_all_retained_messages_reach_a_slow_client_and_others_do_not_wait() {
    let settings = Settings { queue_messages_max: 1000, outbox_bytes_max: 4096, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (sender, slow) = (net.v5("sender"), net.v5("slow"));
    for number in 0..5000 {
        net.publish(sender, &format!("t/{number}"), "x", 0, true, 0);
    }
    net.stall(slow, true);
    net.offer(slow, b"\x82\x07\x00\x01\x00\x00\x01#\x00");
    assert!(net.waiting(slow) < 8192);
    // Asking again and again makes no heap: what is not sent yet stays where it is.
    for _ in 0..100 {
        net.offer(slow, b"\x82\x07\x00\x01\x00\x00\x01#\x00");
    }
    assert_eq!((net.stats().queued_messages, net.stats().dropped_queue_full), (0, 0));
    let sent_before = net.stats().deliveries;
    let quick = net.v5("quick");
    net.subscribe(quick, "t/17", 0);
    assert_eq!(net.payloads(quick), ["x"]);
    net.stall(slow, false);
    let stats = net.stats();
    assert_eq!(stats.deliveries - sent_before, 5001, "from the start, once");
    assert_eq!(stats.delivered, stats.deliveries, "each of them");
    assert_eq!(net.payloads(slow).len() as u64, stats.delivered - 1);
}

#[test]
fn f048_silence_is_limited_where_the_operator_says_so() {
    let settings = Settings { keep_alive_max: Some(60), ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    for keep_alive in [0, 61, u16::MAX] {
        let wire = net.dial("c", &Options { keep_alive, ..Options::default() });
        // Server Keep Alive (property 0x13): 60.
        assert!(net.raw(wire).windows(3).any(|bytes| bytes == [0x13, 0, 60]), "{keep_alive}");
        net.pass(89 * SECOND);
        assert!(!net.is_closed(wire));
        net.pass(2 * SECOND);
        assert!(net.is_closed(wire), "{keep_alive}");
    }
    let wire = net.dial("c", &Options { keep_alive: 30, ..Options::default() });
    assert!(!net.raw(wire).windows(3).any(|bytes| bytes == [0x13, 0, 60]));
    // 3.1.1 cannot be told: what it asked for holds.
    let old = net.connect("old", &Options { version: Version::V311, ..Options::default() });
    net.pass(3600 * SECOND);
    assert!(!net.is_closed(old) && net.is_closed(wire));
}

#[test]
fn f048_whoever_is_not_read_is_not_silent() {
    let mut net = Net::new(2);
    let id_on = |shard| (0..1000).map(|n| format!("c{n}")).find(|id| shard_of(id, 2) == shard).unwrap();
    let sender = net.connect(&id_on(0), &Options { keep_alive: 10, ..Options::default() });
    let receiver = net.v5(&id_on(1));
    net.subscribe(receiver, "t", 0);
    // More than a shard may have waiting for another: the sender is not read until that is taken.
    let large = [&b"\x30\x80\x80\x28\x00\x01t\x00"[..], &vec![7; 10 * 65_536 - 4]].concat();
    net.slip(sender, &large);
    net.slip(sender, &large);
    assert!(!net.may_read(sender));
    net.now = net.now + 100 * SECOND;
    net.settle();
    assert!(!net.is_closed(sender) && net.may_read(sender));
    net.pass(16 * SECOND);
    assert!(net.is_closed(sender), "from then on its silence counts");
}

#[test]
fn f049_a_byte_now_and_then_buys_no_time() {
    let mut net = Net::new(1);
    let slow = net.connect("slow", &Options { keep_alive: u16::MAX, ..Options::default() });
    let packet = b"\x30\x81\x80\x02\x00\x01t";
    let mut sent = 0;
    while !net.is_closed(slow) {
        sent += 1;
        assert!(sent <= packet.len(), "as long as it likes");
        net.offer(slow, &packet[..sent]);
        net.pass(29 * SECOND);
    }
    assert!(sent <= 3, "{sent}");
    assert_eq!(ended_with(&mut net, slow), Some(ReasonCode::KeepAliveTimeout));
}

#[test]
fn f050_a_client_that_never_reads_is_not_read_and_then_given_up() {
    let settings = Settings { outbox_bytes_max: 10_000, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (mute, other) = (net.v5("mute"), net.v5("other"));
    net.stall(mute, true);
    let pings = b"\xc0\x00".repeat(1000);
    let mut told = 0;
    while net.offer(mute, &pings).then == Then::Continue {
        told += 1;
        assert!(told < 100, "{} bytes wait", net.waiting(mute));
    }
    assert!(net.waiting(mute) <= 12_000 && !net.may_read(mute));
    net.send(other, &Packet::PingReq);
    assert_eq!(net.receive(other), [Got::Pong]);
    net.pass(59 * SECOND);
    assert!(!net.is_closed(mute));
    net.pass(2 * SECOND);
    assert!(net.is_closed(mute) && !net.is_closed(other));
    let named = net.events.iter().any(|event| {
        matches!(event, Event::Disconnected { client_id, why: Why::NotReading { bytes: 10_001.., .. }, .. }
            if &**client_id == "mute")
    });
    assert!(named, "{:?}", net.events);
}

#[test]
fn f050_whoever_reads_again_is_read_again() {
    let settings = Settings { outbox_bytes_max: 1000, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let client = net.v5("c");
    net.stall(client, true);
    let Progress { consumed, then, .. } = net.offer(client, &b"\xc0\x00".repeat(1000));
    assert_eq!((consumed, then), (2000, Then::Pause));
    net.pass(50 * SECOND);
    net.stall(client, false);
    assert!(net.may_read(client));
    assert_eq!(net.receive(client), vec![Got::Pong; 1000]);
    net.pass(3600 * SECOND);
    assert!(!net.is_closed(client));
}

#[test]
fn f051_a_slow_reader_loses_its_own_messages_only() {
    let settings = Settings { outbox_bytes_max: 10_000, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (sender, slow, quick) = (net.v5("sender"), net.v5("slow"), net.v5("quick"));
    net.subscribe(slow, "t", 0);
    net.subscribe(quick, "t", 0);
    net.stall(slow, true);
    for _ in 0..1000 {
        net.publish(sender, "t", &"x".repeat(100), 0, false, 0);
    }
    assert_eq!(net.payloads(quick).len(), 1000);
    assert!(net.waiting(slow) < 11_000);
    assert!(net.may_read(slow), "its own packets are still wanted");
    let dropped = net.stats().dropped_outbox_full;
    net.stall(slow, false);
    assert_eq!(net.payloads(slow).len() as u64 + dropped, 1000);
    assert!(!net.is_closed(slow));
}

#[test]
fn f052_a_subscriber_that_never_acknowledges_holds_up_nobody() {
    let settings = Settings { queue_messages_max: 100, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let sender = net.v5("sender");
    let receive_maximum = Property::ReceiveMaximum(NonZeroU16::new(10).unwrap());
    let silent = net.connect("silent", &Options { properties: vec![receive_maximum], ..Options::default() });
    let good = net.connect("good", &lasting());
    net.subscribe(silent, "t", 1);
    net.subscribe(good, "t", 1);
    let mut good_count = 0;
    for id in 1..=1000 {
        net.publish(sender, "t", "x", 1, false, id);
        for got in net.receive(good) {
            let Got::Message { id: Some(id), .. } = got else { panic!("{got:?}") };
            good_count += 1;
            net.ack(good, AckKind::PubAck, id);
        }
    }
    assert_eq!(good_count, 1000);
    assert_eq!(net.payloads(silent).len(), 10);
    let stats = net.stats();
    assert_eq!((stats.queued_messages, stats.dropped_queue_full), (100, 890));
    assert_eq!(net.receive(sender).len(), 1000, "the publisher is answered all the same");
}

#[test]
fn who_waits_in_the_order_of_reading_is_not_silent() {
    let mut net = Net::new(1);
    let client = net.connect("c", &Options { keep_alive: 10, ..Options::default() });
    net.set_unread(client, true);
    net.live(60 * SECOND);
    assert!(!net.is_closed(client));
    net.set_unread(client, false);
    net.live(16 * SECOND);
    assert!(net.is_closed(client));
}
