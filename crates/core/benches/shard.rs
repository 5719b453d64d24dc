//! What one publish costs inside the core: `cargo bench -p tidegate-core`. No socket, no kernel: decode, route, encode.

#![allow(clippy::unwrap_used, reason = "a wrong set-up is a bug of the benchmark")]

use std::sync::Arc;
use std::time::Duration;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tidegate_control::Timestamp;
use tidegate_control::rhythm::{Enforcement, RhythmConfig};
use tidegate_core::access::{Identity, Open};
use tidegate_core::classes::PriorityMode;
use tidegate_core::event::Why;
use tidegate_core::settings::{BackOff, Settings};
use tidegate_core::{ConnId, Shard};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Delivery, Encode, Limits, PacketId, Peer, Properties, Publish, QoS, Subscribe, Subscription,
    SubscriptionList, SubscriptionOptions, TopicFilter, TopicFilters, Unsubscribe, Version,
};

fn main() {
    divan::main();
}

/// Messages per sample, handed over in one buffer, as a busy socket does.
const BATCH: usize = 500;

struct Rig {
    shard: Shard,
    now: Timestamp,
}

impl Rig {
    fn new() -> Self {
        Self::with(BackOff::default())
    }

    fn with(back_off: BackOff) -> Self {
        Self::of(Settings { outbox_bytes_max: usize::MAX, inflight_max: u16::MAX, back_off, ..Settings::default() })
    }

    fn of(settings: Settings) -> Self {
        let shard = Shard::new(0, 1, Arc::new(settings), Arc::new(Open), 1);
        Self { shard, now: Timestamp::from_secs_f64(1.0) }
    }

    fn connect(&mut self, client_id: &str) -> ConnId {
        let connect = Connect {
            version: Version::V311,
            is_bridge: false,
            clean_start: true,
            keep_alive: 0,
            properties: Properties::EMPTY,
            client_id,
            will: None,
            user_name: None,
            password: None,
        };
        let identity = Identity { user: None, peer: "bench".into(), listener: "mqtt", roles: None, claims: None };
        let conn = self.shard.handle_connect(&MqttHello { connect: &connect, client_id, identity }, self.now).unwrap();
        self.flush();
        conn
    }

    fn subscribe(&mut self, conn: ConnId, filter: &str, qos: QoS) {
        let filter = TopicFilter::parse(filter, &Limits::default()).unwrap();
        let list = [Subscription { filter, options: SubscriptionOptions::with_qos(qos) }];
        let subscriptions = SubscriptionList::new(&list);
        let packet = Subscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, subscriptions };
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(Version::V311), &mut bytes);
        self.shard.handle_input(conn, &bytes, self.now);
        self.flush();
    }

    fn unsubscribe(&mut self, conn: ConnId, filter: &str) {
        let list = [TopicFilter::parse(filter, &Limits::default()).unwrap()];
        let (packet_id, filters) = (PacketId::MIN, TopicFilters::new(&list));
        let mut bytes = Vec::new();
        let packet = Unsubscribe { packet_id, properties: Properties::EMPTY, filters };
        let _ = packet.encode(Peer::new(Version::V311), &mut bytes);
        self.shard.handle_input(conn, &bytes, self.now);
        self.flush();
    }

    /// Takes what is to be written, as the driver does at the end of a turn.
    fn flush(&mut self) {
        while let Some(conn) = self.shard.poll_write() {
            let written = black_box(self.shard.outbox(conn)).iter().map(|slice| slice.len()).sum();
            self.shard.handle_written(conn, written, self.now);
        }
    }
}

fn messages(topic: &str, payload: usize) -> Vec<u8> {
    one(topic, payload).repeat(BATCH)
}

fn one_message(topic: &str) -> Vec<u8> {
    one(topic, 64)
}

fn one(topic: &str, payload: usize) -> Vec<u8> {
    publish(topic, payload, Delivery::AtMostOnce)
}

fn publish(topic: &str, payload: usize, delivery: Delivery) -> Vec<u8> {
    let payload = vec![b'x'; payload];
    let publish = Publish { delivery, retain: false, topic, properties: Properties::EMPTY, payload: &payload };
    let mut bytes = Vec::new();
    let _ = publish.encode(Peer::new(Version::V311), &mut bytes);
    bytes
}

fn run(bencher: Bencher, rig: &mut Rig, publisher: ConnId, bytes: &[u8], deliveries: usize) {
    bencher.counter(ItemsCount::new(BATCH * deliveries)).bench_local(|| {
        rig.now = rig.now + Duration::from_millis(1);
        rig.shard.handle_input(publisher, black_box(bytes), rig.now);
        rig.flush();
    });
}

/// One publisher, one subscriber, beside so many subscriptions that do not match: the cost must not depend on them.
#[divan::bench(args = [0, 1_000, 100_000])]
fn one_to_one_among_other_subscriptions(bencher: Bencher, others: usize) {
    let mut rig = Rig::new();
    let (publisher, subscriber) = (rig.connect("publisher"), rig.connect("subscriber"));
    rig.subscribe(subscriber, "site/+/sensor/7", QoS::AtMostOnce);
    for client in 0..others.div_ceil(1000) {
        let other = rig.connect(&format!("other-{client}"));
        for filter in 0..1000.min(others) {
            rig.subscribe(other, &format!("other/{client}/{filter}/+"), QoS::AtMostOnce);
        }
    }
    let bytes = messages("site/4/sensor/7", 64);
    run(bencher, &mut rig, publisher, &bytes, 1);
}

/// What the gate adds to a publish without a receiver: without it, with it, and for a flooder who is slowed.
#[divan::bench(args = ["off", "idle", "flood"])]
fn at_the_gate(bencher: Bencher, case: &str) {
    let rhythm = match case {
        "off" => None,
        "idle" => Some(RhythmConfig::default()),
        _ => Some(RhythmConfig { enforcement: Enforcement::Always, ..RhythmConfig::default() }),
    };
    let mut rig = Rig::with(BackOff { rhythm, ..BackOff::default() });
    let publisher = rig.connect("publisher");
    let one = messages("news", 64);
    let one = &one[..one.len() / BATCH];
    for _ in 0..100 {
        rig.now = rig.now + Duration::from_secs(1);
        rig.shard.handle_input(publisher, one, rig.now);
    }
    let bytes = messages("news", 64);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        // Slow enough to be forgiven by the patience of refusals: the connection stays.
        rig.now = rig.now + Duration::from_secs(40);
        rig.shard.turn(rig.now);
        rig.shard.handle_input(publisher, black_box(&bytes), rig.now);
        rig.flush();
    });
}

/// One publisher that keeps its rhythm, one subscriber, a message at a time: what all of the control costs (back-off and
/// classes; the ledger is never off).
#[divan::bench(args = ["off", "on"])]
fn one_to_one_in_rhythm(bencher: Bencher, control: &str) {
    let mut settings = Settings { outbox_bytes_max: usize::MAX, ..Settings::default() };
    if control == "off" {
        settings.back_off.rhythm = None;
        settings.priority.mode = PriorityMode::Off;
    }
    let mut rig = Rig::of(settings);
    let (publisher, subscriber) = (rig.connect("publisher"), rig.connect("subscriber"));
    rig.subscribe(subscriber, "news", QoS::AtMostOnce);
    let bytes = one_message("news");
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            rig.now = rig.now + Duration::from_millis(5);
            rig.shard.handle_input(publisher, black_box(&bytes), rig.now);
        }
        rig.flush();
    });
}

/// Fifty publishers with a portion of small messages each in every turn, all of which one receiver takes: what control costs
/// where nothing is scarce but the loop.
#[divan::bench(args = ["off", "on"])]
fn fan_in(bencher: Bencher, control: &str) {
    let mut settings = Settings::default();
    if control == "off" {
        settings.back_off.rhythm = None;
        settings.priority.mode = PriorityMode::Off;
    }
    let mut rig = Rig::of(settings);
    let subscriber = rig.connect("subscriber");
    rig.subscribe(subscriber, "#", QoS::AtMostOnce);
    let publishers: Vec<_> =
        (0..50).map(|n| (rig.connect(&format!("publisher-{n}")), one(&format!("news/{n}"), 16).repeat(50))).collect();
    let mut turn = || {
        rig.now = rig.now + Duration::from_millis(1);
        rig.shard.turn(rig.now);
        for (publisher, bytes) in &publishers {
            rig.shard.handle_input(*publisher, black_box(bytes), rig.now);
        }
        rig.flush();
    };
    for _ in 0..100 {
        turn();
    }
    bencher.counter(ItemsCount::new(50_usize * 50)).bench_local(turn);
}

/// Five publishers at QoS 1 send eight times what their only receiver acknowledges, whose queue is full: what control costs
/// for messages most of which are thrown away.
#[divan::bench(args = ["off", "on"])]
fn into_a_full_queue(bencher: Bencher, control: &str) {
    let mut settings = Settings::default();
    if control == "off" {
        settings.back_off.rhythm = None;
        settings.priority.mode = PriorityMode::Off;
    }
    let window = settings.inflight_max;
    let mut rig = Rig::of(settings);
    let subscriber = rig.connect("subscriber");
    rig.subscribe(subscriber, "#", QoS::AtLeastOnce);
    let publishers: Vec<_> = (0..5)
        .map(|n| {
            let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
            (rig.connect(&format!("publisher-{n}")), publish(&format!("news/{n}"), 64, delivery).repeat(BATCH / 5))
        })
        .collect();
    let mut acknowledged = 0_u16;
    let mut turn = || {
        rig.now = rig.now + Duration::from_millis(1);
        rig.shard.turn(rig.now);
        for (publisher, bytes) in &publishers {
            rig.shard.handle_input(*publisher, black_box(bytes), rig.now);
        }
        rig.flush();
        let mut acks = Vec::new();
        for _ in 0..window {
            acknowledged = acknowledged.checked_add(1).unwrap_or(1);
            let ack = Ack::success(AckKind::PubAck, PacketId::new(acknowledged).unwrap());
            let _ = ack.encode(Peer::new(Version::V311), &mut acks);
        }
        rig.shard.handle_input(subscriber, &acks, rig.now);
        rig.flush();
    };
    for _ in 0..100 {
        turn();
    }
    bencher.counter(ItemsCount::new(BATCH)).bench_local(turn);
}

#[divan::bench(args = [1, 50, 1000])]
fn fan_out(bencher: Bencher, subscribers: usize) {
    let mut rig = Rig::new();
    let publisher = rig.connect("publisher");
    for n in 0..subscribers {
        let subscriber = rig.connect(&format!("subscriber-{n}"));
        rig.subscribe(subscriber, "news", QoS::AtMostOnce);
    }
    let bytes = messages("news", 64);
    run(bencher, &mut rig, publisher, &bytes, subscribers);
}

/// Every message to a topic of its own: the match cache never helps.
#[divan::bench]
fn topics_that_never_repeat(bencher: Bencher) {
    let mut rig = Rig::new();
    let (publisher, subscriber) = (rig.connect("publisher"), rig.connect("subscriber"));
    rig.subscribe(subscriber, "site/+/sensor/#", QoS::AtMostOnce);
    let mut number = 0_u64;
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let mut bytes = Vec::new();
        for _ in 0..BATCH {
            number += 1;
            let topic = format!("site/{number}/sensor/7");
            let (delivery, retain, payload) = (Delivery::AtMostOnce, false, &[b'x'; 64][..]);
            let publish = Publish { delivery, retain, topic: &topic, properties: Properties::EMPTY, payload };
            let _ = publish.encode(Peer::new(Version::V311), &mut bytes);
        }
        rig.shard.handle_input(publisher, &bytes, rig.now);
        rig.flush();
    });
}

/// One message to each of a thousand topics while somebody else subscribes and unsubscribes between every ten of them.
#[divan::bench]
fn hot_topics_beside_changing_subscriptions(bencher: Bencher) {
    let mut rig = Rig::new();
    let (publisher, subscriber, other) = (rig.connect("publisher"), rig.connect("subscriber"), rig.connect("other"));
    rig.subscribe(subscriber, "site/+/sensor/#", QoS::AtMostOnce);
    let topics: Vec<Vec<u8>> = (0..1000).map(|n| one_message(&format!("site/{n}/sensor/7"))).collect();
    let mut number = 0_u64;
    bencher.counter(ItemsCount::new(topics.len())).bench_local(|| {
        for ten in topics.chunks(10) {
            number += 1;
            let filter = format!("site/other-{number}/commands");
            rig.subscribe(other, &filter, QoS::AtMostOnce);
            rig.unsubscribe(other, &filter);
            for bytes in ten {
                rig.shard.handle_input(publisher, bytes, rig.now);
            }
            rig.flush();
        }
    });
}

/// The most work that the filters of some sessions can make of one publish to a topic that is new every time: every way
/// to write twelve levels with or without `+`, and of the next four one way each.
#[divan::bench(args = [1, 4, 16])]
fn wildcard_bomb(bencher: Bencher, sessions: u64) {
    let mut rig = Rig::new();
    let publisher = rig.connect("publisher");
    for session in 0..sessions {
        let bomber = rig.connect(&format!("bomber-{session}"));
        for bits in 0..4096_u64 {
            let bits = bits | session << 12;
            let levels: Vec<&str> = (0..16).map(|level| if bits >> level & 1 == 1 { "+" } else { "a" }).collect();
            rig.subscribe(bomber, &levels.join("/"), QoS::AtMostOnce);
        }
    }
    let mut number = 0_u64;
    bencher.bench_local(|| {
        number += 1;
        let topic = format!("{}/{number}", ["a"; 16].join("/"));
        rig.shard.handle_input(publisher, &one_message(&topic), rig.now);
        rig.flush();
    });
}

/// Everybody on one filter leaves, one after the other.
#[divan::bench(args = [1_000, 100_000], sample_count = 3, sample_size = 1)]
fn all_leave(bencher: Bencher, subscribers: usize) {
    bencher
        .counter(ItemsCount::new(subscribers))
        .with_inputs(|| {
            let mut rig = Rig::new();
            let wires: Vec<ConnId> = (0..subscribers).map(|n| rig.connect(&format!("subscriber-{n}"))).collect();
            for wire in &wires {
                rig.subscribe(*wire, "news", QoS::AtMostOnce);
            }
            (rig, wires)
        })
        .bench_local_values(|(mut rig, wires)| {
            for wire in wires {
                rig.shard.handle_closed(wire, Why::Lost, rig.now);
            }
        });
}

/// A client subscribes to everything that is retained, and takes it as it comes. Items are messages.
#[divan::bench(args = [1_000, 100_000], sample_count = 10, sample_size = 1)]
fn retained_burst(bencher: Bencher, topics: usize) {
    let mut rig = rig_with_retained(topics);
    bencher.counter(ItemsCount::new(topics)).bench_local(|| {
        let reader = rig.connect("reader");
        rig.subscribe(reader, "#", QoS::AtMostOnce);
        while rig.shard.poll_timeout() == Some(Timestamp::ZERO) {
            rig.shard.turn(rig.now);
            rig.flush();
        }
        rig.shard.handle_closed(reader, Why::Lost, rig.now);
    });
}

/// The longest that such a client keeps the others waiting: one turn of its walk.
#[divan::bench(args = [1_000, 100_000, 1_000_000], sample_count = 100, sample_size = 1)]
fn one_turn_of_a_retained_burst(bencher: Bencher, topics: usize) {
    let mut rig = rig_with_retained(topics);
    let reader = rig.connect("reader");
    bencher.bench_local(|| {
        // From the start if it is at the end.
        if rig.shard.poll_timeout() != Some(Timestamp::ZERO) {
            rig.subscribe(reader, "#", QoS::AtMostOnce);
        }
        rig.shard.turn(rig.now);
        rig.flush();
    });
}

fn rig_with_retained(topics: usize) -> Rig {
    let mut rig = Rig::new();
    let publisher = rig.connect("publisher");
    for number in 0..topics {
        let mut bytes = one_message(&format!("site/{}/sensor/{number}", number % 1000));
        bytes[0] |= 1;
        rig.shard.handle_input(publisher, &bytes, rig.now);
    }
    rig
}
