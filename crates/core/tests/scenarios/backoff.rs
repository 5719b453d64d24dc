//! Publishers that break their rhythm: held in order, refused honestly, and nobody else notices.

use std::time::Duration;

use tidegate_control::pressure::Level;
use tidegate_control::rhythm::{Enforcement, RhythmConfig, RhythmRule};
use tidegate_core::access::Open;
use tidegate_core::event::Event;
use tidegate_core::settings::{BackOff, Settings};
use tidegate_wire_mqtt::{
    AckKind, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Property, Publish, ReasonCode,
    Sender, Version, decode,
};

use crate::net::{Got, Net, Options, Wire, message};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// One shard that enforces rhythms always.
pub(crate) fn strict() -> Net {
    with_rhythm(RhythmConfig { enforcement: Enforcement::Always, ..RhythmConfig::default() })
}

fn with_rhythm(config: RhythmConfig) -> Net {
    let back_off = BackOff { rhythm: Some(config), ..BackOff::default() };
    Net::with(1, Settings { back_off, ..Settings::default() }, Open)
}

/// Publishes once a second until the rhythm is known.
pub(crate) fn learn(net: &mut Net, wire: Wire) {
    for _ in 0..40 {
        net.publish(wire, "t", "learning", 0, false, 0);
        net.live(SECOND);
    }
}

/// Publishes so many at once, with payloads and identifiers from 1.
pub(crate) fn flood(net: &mut Net, wire: Wire, count: u16, qos: u8) {
    (1..=count).for_each(|n| net.publish(wire, "t", &n.to_string(), qos, false, n));
}

pub(crate) fn v311() -> Options<'static> {
    Options { version: Version::V311, ..Options::default() }
}

/// Acknowledgements and goodbyes with their words of pace.
pub(crate) fn refusals(net: &mut Net, wire: Wire) -> Vec<(ReasonCode, Vec<(String, String)>)> {
    let (bytes, mut at, mut refusals) = (net.raw(wire), 0, Vec::new());
    while let Ok(Decoded::Packet { packet, consumed }) =
        decode(&bytes[at..], Version::V5, &Limits::default().with_sender(Sender::Server))
    {
        at += consumed;
        let (reason, properties) = match packet {
            Packet::Ack(ack) => (ack.reason, ack.properties),
            Packet::Disconnect(goodbye) => (goodbye.reason, goodbye.properties),
            _ => continue,
        };
        if reason.is_failure() {
            assert!(properties.iter().any(|property| matches!(property, Property::ReasonString(_))));
            let words = properties.user_properties().map(|(name, text)| (name.to_owned(), text.to_owned()));
            refusals.push((reason, words.collect()));
        }
    }
    refusals
}

#[test]
fn a_healthy_publisher_is_never_touched() {
    let mut net = strict();
    let (sensor, reader) = (net.v5("sensor"), net.v5("reader"));
    net.subscribe(reader, "t", 0);
    for n in 0_u64..500 {
        net.publish(sensor, "t", "x", 0, false, 0);
        assert_eq!(net.payloads(reader), ["x"], "at once");
        // 30 % of jitter, by a small congruential generator.
        net.live(Duration::from_millis(700 + n.wrapping_mul(7_919) % 600));
    }
    let stats = net.stats();
    assert_eq!(stats.publish_passed, 500);
    assert_eq!(stats.held_messages + stats.publish_refused + stats.dropped_rhythm + stats.dropped_held_full, 0);
    let report = net.shards[0].publisher("sensor", net.now).unwrap();
    let learned = report.learned_interval.unwrap().as_secs_f64();
    assert!((0.7..1.3).contains(&learned) && (0.7..1.5).contains(&report.current_rate), "{report:?}");
    assert_eq!((report.held, report.refused, report.dropped, report.slowed_until), (0, 0, 0, None));
}

#[test]
fn a_flood_is_held_in_order_and_others_do_not_notice() {
    let mut net = strict();
    let (flooder, sensor, reader) = (net.v5("flooder"), net.v5("sensor"), net.v5("reader"));
    learn(&mut net, flooder);
    net.subscribe(reader, "#", 0);
    flood(&mut net, flooder, 30, 0);
    let at_once = net.payloads(reader).len();
    assert!((8..15).contains(&at_once), "a burst passes: {at_once}");
    net.publish(sensor, "other", "unharmed", 0, false, 0);
    assert_eq!(net.payloads(reader), ["unharmed"]);
    assert_eq!(net.stats().held_messages as usize, 30 - at_once);

    let mut later = Vec::new();
    for _ in 0..40 {
        net.live(SECOND);
        later.extend(net.payloads(reader));
    }
    let expected: Vec<String> = (at_once + 1..=30).map(|n| n.to_string()).collect();
    assert_eq!(later, expected);
    assert_eq!(net.stats().held_messages, 0);

    // One event when it began, one when it was over.
    learn(&mut net, flooder);
    let told = |event: &&Event| matches!(event, Event::Slowed { .. } | Event::Recovered { .. });
    let events: Vec<_> = net.events.iter().filter(told).collect();
    assert!(
        matches!(events[..], [Event::Slowed { rate, interval: Some(_), .. }, Event::Recovered { .. }] if *rate > 2.0),
        "{events:?}"
    );
}

#[test]
fn by_default_nobody_is_held_or_refused_for_its_rhythm() {
    let mut net = Net::new(1);
    let flooder = net.v5("flooder");
    learn(&mut net, flooder);
    flood(&mut net, flooder, 200, 0);
    assert_eq!(net.stats().publish_passed, 240);
    net.shards[0].set_level(Level::Busy);
    flood(&mut net, flooder, 20, 0);
    let other = net.v5("other");
    net.publish(other, "t", "me too", 0, false, 0);
    net.live(SECOND);
    flood(&mut net, flooder, 20, 0);
    let stats = net.stats();
    assert_eq!((stats.publish_passed, stats.held_messages), (281, 0), "nor does a busy one");
    assert!(!net.shards[0].publisher("flooder", net.now).unwrap().is_entitled, "it comes after the others");
}

/// A busy machine delivers messages in heaps: then all are out of rhythm, and none is to blame.
#[test]
fn nobody_is_slowed_where_all_take_the_same() {
    let mut net = Net::new(1);
    let wires: Vec<Wire> = (0..20).map(|n| net.v5(&format!("p{n}"))).collect();
    for wire in &wires {
        learn(&mut net, *wire);
    }
    net.shards[0].set_level(Level::Overloaded);
    for _ in 0..10 {
        for wire in &wires {
            flood(&mut net, *wire, 50, 0);
        }
        net.live(SECOND / 10);
    }
    let stats = net.stats();
    assert_eq!((stats.held_messages, stats.publish_passed), (0, stats.publish_received));
}

#[test]
fn acknowledgements_wait_with_their_messages_and_control_packets_do_not() {
    for (qos, kind) in [(1, AckKind::PubAck), (2, AckKind::PubRec)] {
        let mut net = strict();
        let (flooder, reader) = (net.v5("flooder"), net.v5("reader"));
        learn(&mut net, flooder);
        net.subscribe(reader, "#", 0);
        flood(&mut net, flooder, 12, qos);
        let passed = net.payloads(reader).len();
        let acknowledged = net.receive(flooder).len();
        assert_eq!(passed, acknowledged, "one each");
        assert!(net.stats().held_messages > 0);

        net.send(flooder, &Packet::PingReq);
        assert_eq!(net.receive(flooder), [Got::Pong]);
        assert_eq!(net.subscribe(flooder, "mine", 0), ReasonCode::Success);
        net.publish(reader, "mine", "x", 0, false, 0);
        assert_eq!(net.receive(flooder), [message("mine", "x", 0, None)]);
        assert_eq!(net.payloads(reader), ["x"]);

        net.live(Duration::from_millis(7500));
        let (released, answered) = (net.payloads(reader).len(), net.receive(flooder));
        assert!(released > 0 && net.stats().held_messages == 0);
        let ids: Vec<u16> = (passed + 1..=passed + released).map(|n| n as u16).collect();
        let expected: Vec<Got> = ids.iter().map(|&id| Got::Ack { kind, id, reason: ReasonCode::Success }).collect();
        assert_eq!(answered, expected, "each when its message was taken");
    }
}

#[test]
fn what_cannot_wait_is_refused_with_the_pace_that_would_do() {
    let mut net = strict();
    let flooder = net.v5("flooder");
    learn(&mut net, flooder);
    flood(&mut net, flooder, 60, 1);
    let refusals = refusals(&mut net, flooder);
    assert!(refusals.len() > 20, "{}", refusals.len());
    for (reason, words) in &refusals {
        assert_eq!(*reason, ReasonCode::QuotaExceeded);
        let names: Vec<&str> = words.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["pace-interval-ms", "pace-retry-after-ms"]);
        assert!(words.iter().all(|(_, text)| (1..=60_000).contains(&text.parse::<u64>().unwrap())), "{words:?}");
    }
    assert_eq!(net.stats().publish_refused, refusals.len() as u64);
    assert_eq!(net.shards[0].publisher("flooder", net.now).unwrap().refused, refusals.len() as u64);
    // Never longer than three quarters of a client's patience.
    net.live(Duration::from_millis(7500));
    assert_eq!(net.stats().held_messages, 0);
    // Who does as it was told is welcome.
    let wait = refusals.last().unwrap().1[1].1.parse::<u64>().unwrap();
    net.live(Duration::from_millis(wait));
    net.publish(flooder, "t", "as told", 1, false, 99);
    let id = 99;
    assert!(net.receive(flooder).contains(&Got::Ack {
        kind: AckKind::PubAck,
        id,
        reason: ReasonCode::NoMatchingSubscribers
    }));
}

#[test]
fn table_1_of_the_paper_through_the_shard() {
    for (millis, delay) in [(3000, 1340), (1500, 1820), (1000, 2710), (750, 3660), (600, 4950), (500, 7380)] {
        for qos in [0, 1, 2] {
            let mut net = with_rhythm(RhythmConfig { rule: RhythmRule::PaperTable, ..RhythmConfig::default() });
            let (sender, reader) = (net.v5("sender"), net.v5("reader"));
            for _ in 0..3 {
                net.publish(sender, "t", "learning", 0, false, 0);
                net.live(6 * SECOND);
            }
            net.publish(sender, "t", "learning", 0, false, 0);
            net.live(Duration::from_millis(millis));
            net.subscribe(reader, "t", 0);
            net.publish(sender, "t", "early", qos, false, 1);
            net.live(Duration::from_millis(delay - 1));
            assert!(net.receive(reader).is_empty() && net.receive(sender).is_empty(), "{millis} ms, QoS {qos}");
            net.live(Duration::from_millis(1));
            assert_eq!(net.payloads(reader), ["early"], "{millis} ms, QoS {qos}");
            assert_eq!(net.receive(sender).len(), usize::from(qos > 0));
        }
    }
}

/// e^2.5 s and e^3.33 s are longer than any client of MQTT 5 is left without an answer otherwise.
#[test]
fn by_the_papers_rule_a_message_waits_for_as_long_as_it_says_or_for_the_maximum() {
    for (millis, bounded, delay) in [(400, false, 12_182), (300, false, 28_031), (300, true, 20_000)] {
        for qos in [0, 1, 2] {
            let rhythm = RhythmConfig {
                rule: RhythmRule::Paper,
                paper_bounded: bounded,
                delay_max: 20 * SECOND,
                ..RhythmConfig::default()
            };
            let mut net = with_rhythm(rhythm);
            let (sender, reader) = (net.v5("sender"), net.v5("reader"));
            for _ in 0..3 {
                net.publish(sender, "t", "learning", 0, false, 0);
                net.live(6 * SECOND);
            }
            net.publish(sender, "t", "learning", 0, false, 0);
            net.live(Duration::from_millis(millis));
            net.subscribe(reader, "t", 0);
            net.publish(sender, "t", "early", qos, false, 1);
            net.live(Duration::from_millis(delay - 1));
            assert!(net.receive(reader).is_empty() && net.receive(sender).is_empty(), "{millis} ms, QoS {qos}");
            net.live(Duration::from_millis(2));
            assert_eq!(net.payloads(reader), ["early"], "{millis} ms, QoS {qos}");
            assert_eq!(net.receive(sender).len(), usize::from(qos > 0));
            assert_eq!(net.stats().publish_refused, 0);
        }
    }
}

#[test]
fn held_messages_outlive_the_connection_and_are_taken_once() {
    let lasting = Options { clean: false, properties: vec![Property::SessionExpiry(3600)], ..Options::default() };
    let mut net = strict();
    let (flooder, reader) = (net.connect("flooder", &lasting), net.v5("reader"));
    learn(&mut net, flooder);
    net.subscribe(reader, "#", 0);
    flood(&mut net, flooder, 12, 2);
    let passed = net.payloads(reader).len() as u16;
    net.cut(flooder);
    net.live(8 * SECOND);
    let released = net.payloads(reader).len() as u16;
    assert!(released > 0, "released in time, connected or not");
    let flooder = net.connect("flooder", &lasting);
    net.receive(flooder);
    let packet_id = PacketId::new(passed + 1).unwrap();
    let delivery = Delivery::ExactlyOnce { packet_id, dup: true };
    let again = Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload: b"again" };
    net.send(flooder, &again);
    assert_eq!(net.payloads(reader), [""; 0], "QoS 2 is routed once");
    let ack = Got::Ack { kind: AckKind::PubRec, id: passed + 1, reason: ReasonCode::Success };
    assert_eq!(net.receive(flooder), [ack]);
}

#[test]
fn who_publishes_and_leaves_is_slowed_and_its_qos_0_messages_are_not_lost() {
    let mut net = strict();
    let (first, reader) = (net.v5("flooder"), net.v5("reader"));
    learn(&mut net, first);
    net.subscribe(reader, "#", 0);
    flood(&mut net, first, 20, 0);
    (21..=23).for_each(|n| net.publish(first, "t", "never acknowledged", 1, false, n));
    let mut got = net.payloads(reader);
    let held = net.stats().held_messages;
    net.cut(first);
    let ended = net.stats().dropped_held_ended;
    assert_eq!(net.stats().held_messages, held - ended, "QoS 0 stays");
    assert_eq!(net.stats().sessions, 1, "the session does not");
    let second = net.v5("flooder");
    net.publish(second, "t", "21", 0, false, 0);
    assert_eq!(net.payloads(reader), [""; 0], "behind the others, on whatever connection");
    net.cut(second);
    net.live(60 * SECOND);
    got.extend(net.payloads(reader));
    assert_eq!(got, (1..=21).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!((net.stats().held_messages, net.stats().sessions), (0, 1));
}

/// A broker that does not look for a second finds a second's worth of messages at once (B8).
#[test]
fn nobody_is_slowed_for_a_stall_of_ours() {
    let (delivery, retain, properties) = (Delivery::AtMostOnce, false, Properties::EMPTY);
    let publish = Publish { delivery, retain, topic: "t", properties, payload: b"x" };
    for (per_second, is_slowed) in [(100, false), (190, false), (5000, true)] {
        let mut net = strict();
        let (sensor, reader) = (net.v5("sensor"), net.v5("reader"));
        net.subscribe(reader, "t", 0);
        for _ in 0..500 {
            net.send(sensor, &publish);
            net.live(Duration::from_millis(10));
        }
        let mut one = Vec::new();
        let _ = publish.encode(Peer::new(Version::V5), &mut one);
        for stall in [1, 2, 7] {
            let since = net.now;
            net.live(stall * SECOND);
            let bytes = one.repeat(per_second * stall as usize);
            let progress = net.offer_since(sensor, &bytes, since);
            let stats = net.stats();
            assert_eq!(stats.held_messages > 0, is_slowed, "{per_second} a second, for {stall} s: {stats:?}");
            if is_slowed {
                break;
            }
            assert_eq!(progress.consumed, bytes.len());
        }
        let rate = net.shards[0].publisher("sensor", net.now).unwrap().current_rate;
        assert_eq!(rate > 250.0, is_slowed, "{rate}: nor does it look like a flooder to its class");
    }
}

/// Enforced always: whoever keeps a rhythm of heaps is left alone from its first message on.
#[test]
fn regular_batches_pass_however_strict_the_gate_is() {
    for (size, every) in [(1, 1), (10, 2), (200, 5)] {
        let mut net = strict();
        let gateway = net.v5("gateway");
        for _ in 0..40 {
            (0..size).for_each(|_| net.publish(gateway, "t", "x", 0, false, 0));
            net.live(every * SECOND);
        }
        let stats = net.stats();
        assert_eq!(stats.publish_passed, 40 * size, "{size} every {every} s: {stats:?}");
        let report = net.shards[0].publisher("gateway", net.now).unwrap();
        let usual = size as f64 / f64::from(every);
        assert!((0.5..2.0).contains(&(report.rate / usual)), "{size} every {every} s: {report:?}");
        // A hundred times as much, for two seconds: no more than a batch and what time brings passes at once.
        let per_milli = (100.0 * usual / 1000.0).ceil() as u64;
        for _ in 0..2000 {
            (0..per_milli).for_each(|_| net.publish(gateway, "t", "x", 0, false, 0));
            net.live(Duration::from_millis(1));
        }
        let passed = net.stats().publish_passed - 40 * size;
        assert!(passed <= size + 8 + 12 * usual.ceil() as u64, "{size} every {every} s: {passed} passed");
    }
}
