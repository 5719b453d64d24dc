//! Queues that are mostly on disk, in a whole broker: live, after a restart, after compactions, and with a damaged file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::os::unix::fs::FileExt;
use std::path::Path;

use support::{Client, PATIENCE, address, config, connect_packet, start, tcp};
use tidegate_broker::Broker;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_broker::store_link::StoreConfig;
use tidegate_core::event::Stats;
use tidegate_core::settings::Settings;
use tidegate_store::Durability;
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Delivery, Packet, PacketId, Properties, Publish, QoS, ReasonCode, Version,
};

fn kept(dir: &Path, durability: Durability) -> Config {
    let settings = Settings { queue_memory_max: 2000, inflight_max: 8, ..Settings::default() };
    let store = StoreConfig { dir: dir.to_owned(), durability, strict: false, size_max: None };
    Config { store: Some(store), settings, shards: 1, ..config() }
}

fn lasting(broker: &Broker, client_id: &str) -> Client {
    let mut client = Client::new(tcp(address(broker, ListenerKind::Mqtt)), Version::V311);
    client.send(&Connect { clean_start: false, ..connect_packet(Version::V311, client_id) });
    assert_eq!(client.connack(), ReasonCode::Success);
    client
}

fn text(number: u32) -> String {
    format!("<{number:05}>{:100}", "")
}

/// Publishes these, each acknowledged, for a reader that has subscribed and gone.
fn fill(broker: &Broker, numbers: std::ops::Range<u32>) {
    let mut sender = Client::tcp(address(broker, ListenerKind::Mqtt), Version::V311, "sender");
    for number in numbers.clone() {
        let packet_id = PacketId::new((number % 60_000) as u16 + 1).unwrap();
        let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
        let payload = text(number);
        let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
        sender.send(&Publish { delivery, retain: false, topic: "t", properties, payload });
    }
    for _ in numbers {
        sender.next(|packet| assert!(matches!(packet, Packet::Ack(_)), "{packet:?}"));
    }
}

/// Takes and acknowledges so many.
fn take(reader: &mut Client, count: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        let (number, id) = reader.next(|packet| match packet {
            Packet::Publish(publish) => {
                let payload = String::from_utf8_lossy(publish.payload);
                (payload[1..6].parse().unwrap(), publish.delivery.packet_id().unwrap())
            }
            other => panic!("{other:?}"),
        });
        reader.send(&Ack::success(AckKind::PubAck, id));
        numbers.push(number);
    }
    numbers
}

/// Counters are shown a moment later.
fn await_stats(broker: &Broker, is_so: impl Fn(&Stats) -> bool) {
    let begun = std::time::Instant::now();
    while !is_so(&broker.stats()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", broker.stats());
        std::thread::yield_now();
    }
}

fn leave_reader(broker: &Broker) {
    lasting(broker, "reader").subscribe("t", QoS::AtLeastOnce);
}

#[test]
fn f118_a_long_queue_comes_back_in_order_before_and_after_a_restart_whatever_durability_is() {
    for durability in ["always", "interval:5ms", "off"] {
        let folder = tempfile::tempdir().unwrap();
        let broker = start(kept(folder.path(), durability.parse().unwrap()));
        leave_reader(&broker);
        fill(&broker, 0..600);
        await_stats(&broker, |stats| stats.queued_on_disk > 500);
        let mut reader = lasting(&broker, "reader");
        assert_eq!(take(&mut reader, 200), (0..200).collect::<Vec<_>>());
        // Whatever is not acknowledged by then is there again.
        reader.send(&Packet::PingReq);
        loop {
            if reader.next(|packet| matches!(packet, Packet::PingResp)) {
                break;
            }
        }
        drop(reader);
        broker.shutdown();

        let broker = start(kept(folder.path(), durability.parse().unwrap()));
        assert_eq!(broker.opening().unwrap().restored.deliveries, 400);
        fill(&broker, 600..700);
        let mut reader = lasting(&broker, "reader");
        assert_eq!(take(&mut reader, 500), (200..700).collect::<Vec<_>>());
        assert_eq!(broker.stats().dropped_unreadable, 0);
        broker.shutdown();
    }
}

#[test]
fn f112_a_bit_that_flips_under_a_running_broker_costs_one_message_that_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(kept(folder.path(), Durability::Always));
    leave_reader(&broker);
    fill(&broker, 0..300);
    flip(folder.path(), &text(150));
    let mut reader = lasting(&broker, "reader");
    assert_eq!(take(&mut reader, 299), (0..300).filter(|number| *number != 150).collect::<Vec<_>>());
    await_stats(&broker, |stats| stats.dropped_unreadable == 1);
    broker.shutdown();
}

/// Changes the last byte of a payload where the store has it.
fn flip(dir: &Path, payload: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        let found = bytes.windows(payload.len()).position(|window| window == payload.as_bytes());
        if let Some(at) = found {
            bytes[at + payload.len() - 1] ^= 1;
            // In place: the broker has the file open.
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&bytes[at..at + payload.len()], at as u64).unwrap();
            return;
        }
    }
    panic!("not in the store");
}
