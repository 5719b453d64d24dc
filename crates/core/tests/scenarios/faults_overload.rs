//! Section C of the fault catalogue: floods of messages, names, topics, subscriptions and bytes.

use std::time::Duration;

use tidegate_control::pressure::Level;
use tidegate_core::access::{Identity, Open};
use tidegate_core::settings::{ArrivalRules, Rate, Settings};
use tidegate_wire_mqtt::AckKind::PubRel;
use tidegate_wire_mqtt::{Decoded, Limits, Packet, Property, ReasonCode, Sender, Version, decode};

use crate::backoff::{SECOND, learn, v311};
use crate::net::{Got, Net, Options, Wire, lasting};

fn busy() -> Net {
    let mut net = Net::new(1);
    net.shards[0].set_level(Level::Busy);
    net
}

#[test]
fn f055_a_flooder_comes_last_within_two_seconds_and_nobody_else_notices() {
    for qos in [0, 1, 2] {
        let mut net = busy();
        let (flooder, sensor, reader) = (net.v5("flooder"), net.v5("sensor"), net.v5("reader"));
        for _ in 0..70 {
            net.publish(sensor, "s", "learning", 0, false, 0);
            net.publish(flooder, "t", "learning", 0, false, 0);
            net.live(SECOND);
        }
        net.subscribe(reader, "s", 0);
        let mut last_after = None;
        for n in 0..6000_u32 {
            // A hundred times its rate, for a minute.
            let id = (n % 60_000) as u16 + 1;
            net.publish(flooder, "t", "x", qos, false, id);
            if qos == 2 {
                // Both halves of it, or its window would hold it back and not the gate.
                net.ack(flooder, PubRel, id);
            }
            if n % 100 == 50 {
                net.publish(sensor, "s", "on time", 0, false, 0);
                assert_eq!(net.payloads(reader), ["on time"], "at once, whatever the other one does");
            }
            let is_entitled = |name| net.shards[0].publisher(name, net.now).unwrap().is_entitled;
            if last_after.is_none() && !is_entitled("flooder") {
                last_after = Some(n / 100);
            }
            assert!(is_entitled("sensor"));
            net.live(Duration::from_millis(10));
        }
        assert!(last_after.is_some_and(|seconds| seconds < 2), "{last_after:?}");
        let stats = net.stats();
        assert_eq!(stats.publish_passed, stats.publish_received, "there is room: it is served all the same");
        // It stops, and a minute later it is as if nothing had been.
        net.live(60 * SECOND);
        net.publish(flooder, "t", "x", 1, false, 60_001);
        assert!(net.shards[0].publisher("flooder", net.now).unwrap().is_entitled);
        assert!(!net.is_closed(flooder));
    }
}

#[test]
fn f056_nobody_is_slowed_where_nobody_is_the_offender() {
    let mut net = busy();
    let wires: Vec<Wire> = (0..100).map(|n| net.v5(&format!("sensor-{n}"))).collect();
    for millis in [1000, 500] {
        for _ in 0..60 {
            for wire in &wires {
                net.publish(*wire, "t", "x", 0, false, 0);
            }
            net.live(Duration::from_millis(millis));
        }
    }
    assert_eq!(net.stats().publish_passed, 12_000, "twice the usual rate is within the headroom");
}

/// Reason, words of pace and reason string of the CONNACK.
fn connack(net: &mut Net, wire: Wire, version: Version) -> (ReasonCode, Vec<(String, String)>, bool) {
    let bytes = net.raw(wire);
    match decode(&bytes, version, &Limits::default().with_sender(Sender::Server)) {
        Ok(Decoded::Packet { packet: Packet::ConnAck(packet), .. }) => {
            let words = packet.properties.user_properties().map(|(name, text)| (name.to_owned(), text.to_owned()));
            let is_told = packet.properties.iter().any(|property| matches!(property, Property::ReasonString(_)));
            (packet.reason, words.collect(), is_told)
        }
        other => panic!("{other:?} instead of a CONNACK"),
    }
}

#[test]
fn f057_ever_new_names_are_counted_by_where_they_come_from() {
    let new_clients = Rate::new(1, SECOND, 100);
    let arrivals = ArrivalRules { new_clients, ..ArrivalRules::default() };
    let mut net = Net::with(1, Settings { arrivals, ..Settings::default() }, Open);
    let known = net.connect("known", &lasting());
    net.cut(known);
    // While the broker is calm they harm nobody.
    net.shards[0].set_level(Level::Strained);
    let mut refused = 0;
    for n in 0..1000 {
        // Another name and another port each time.
        let peer = format!("10.0.0.{}:{}", n % 250, 1000 + n);
        let wire = net.dial(&format!("name-{n}"), &Options { peer: &peer, ..Options::default() });
        let (reason, words, is_told) = connack(&mut net, wire, Version::V5);
        if reason != ReasonCode::Success {
            assert_eq!((reason, is_told), (ReasonCode::ConnectionRateExceeded, true));
            assert_eq!(words[0].0, "pace-retry-after-ms");
            refused += 1;
        }
        net.cut(wire);
    }
    assert_eq!(refused, 1000 - 99, "the known one was the first of a hundred");
    assert_eq!(net.stats().connects_refused_rate, refused);
    net.connect("known", &lasting());
    net.connect("elsewhere", &Options { peer: "10.9.9.9:1", ..Options::default() });
    net.connect("user", &Options { user: Some("ann"), ..Options::default() });
    net.live(10 * SECOND);
    net.connect("later", &Options::default());
}

#[test]
fn f057_who_only_claims_to_be_a_user_spends_nothing_of_hers_and_pays_by_its_network() {
    let arrivals =
        ArrivalRules { new_clients: Rate::new(1, SECOND, 100), paced: Rate::new(1_000_000, SECOND, 1_000_000) };
    let mut net = Net::with(1, Settings { arrivals, ..Settings::default() }, Open);
    net.shards[0].set_level(Level::Strained);
    let ann = |peer: &str| Identity { user: Some("ann".into()), peer: peer.into(), ..Identity::default() };
    let (there, home, now) = (ann("10.0.0.1:5000"), ann("10.9.9.9:5000"), net.now);
    // Somebody guesses her password, with a new name for each; the broker behind says no.
    let mut asked = 0;
    for n in 0..1000 {
        if net.shards[0].judge_arrival(&format!("guess-{n}"), &there, now).is_ok() {
            net.shards[0].handle_declined(&format!("guess-{n}"), &there, now);
            asked += 1;
        }
    }
    assert_eq!(asked, 100, "its network may bring so many");
    // She herself has all of hers, elsewhere, and pays for those that are let in.
    for n in 0..100 {
        assert!(net.shards[0].judge_arrival(&format!("lamp-{n}"), &home, now).is_ok(), "{n}");
        net.connect(&format!("lamp-{n}"), &Options { user: Some("ann"), peer: "10.9.9.9:5000", ..Options::default() });
    }
    let (reason, later) = net.shards[0].judge_arrival("lamp-100", &home, now).unwrap_err();
    assert_eq!((reason, later.is_some()), (ReasonCode::ConnectionRateExceeded, true));
}

#[test]
fn f058_retained_messages_have_a_budget_and_what_is_there_is_served() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.shards[0].set_memory(20 << 20, 0);
    let large = "x".repeat(1_000_000);
    let mut kept = 0;
    for n in 0..100_u16 {
        net.publish(sender, &format!("t/{n}"), &large, 1, true, n + 1);
        let Some(Got::Ack { reason, .. }) = net.receive_one(sender) else { panic!("an answer") };
        kept += u64::from(reason != ReasonCode::QuotaExceeded);
        assert!(net.shards[0].memory_used() <= 20 << 20);
    }
    assert!((10..20).contains(&kept), "{kept}");
    assert_eq!(net.stats().dropped_retained_full, 100 - kept);
    assert_eq!(net.stats().retained_messages, kept);
    // One that replaces another is taken.
    net.publish(sender, "t/0", &large.replace('x', "y"), 1, true, 200);
    assert!(!matches!(net.receive_one(sender), Some(Got::Ack { reason: ReasonCode::QuotaExceeded, .. })));
    let reader = net.v5("reader");
    net.subscribe(reader, "t/3", 0);
    assert_eq!(net.payloads(reader), [large]);
}

#[test]
fn f060_topics_that_were_used_once_leave_nothing() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    net.publish(sender, "t", "x", 0, false, 0);
    let budget = 64 << 20;
    net.shards[0].set_memory(budget, 0);
    let before = net.shards[0].memory_used();
    for n in 0..20_000 {
        net.publish(sender, &format!("once/{n}/a/b"), "x", 0, n % 2 == 0, 0);
    }
    assert_eq!(net.stats().retained_messages, 10_000);
    (0..20_000).step_by(2).for_each(|n| net.publish(sender, &format!("once/{n}/a/b"), "", 0, true, 0));
    assert_eq!(net.stats().retained_messages, 0);
    let left = net.shards[0].memory_used() - before;
    assert!(left <= budget / 16, "{left} bytes: nothing but a bounded part for matches that are remembered");
}

#[test]
fn f061_subscriptions_of_one_client_are_capped() {
    let mut net = Net::with(1, Settings { subscriptions_max: 100, ..Settings::default() }, Open);
    let client = net.v5("client");
    let granted = (0..1000).filter(|n| net.subscribe(client, &format!("t/{n}"), 0) == ReasonCode::Success).count();
    assert_eq!(granted, 100);
    assert_eq!(net.subscribe(client, "t/1001", 0), ReasonCode::QuotaExceeded);
    let other = net.v5("other");
    assert_eq!(net.subscribe(other, "t/1001", 0), ReasonCode::Success);
}

#[test]
fn f062_under_pressure_known_clients_come_in_and_others_get_an_appointment_each() {
    let paced = Rate::new(200, SECOND, 50);
    let arrivals = ArrivalRules { paced, ..ArrivalRules::default() };
    let mut net = Net::with(1, Settings { arrivals, ..Settings::default() }, Open);
    let (sensor, away) = (net.v5("sensor"), net.connect("away", &lasting()));
    // Known after a minute.
    learn(&mut net, sensor);
    learn(&mut net, sensor);
    net.cut(sensor);
    net.cut(away);
    net.shards[0].set_level(Level::Overloaded);
    net.connect("sensor", &Options::default());
    net.connect("away", &lasting());
    let mut appointments = Vec::new();
    for n in 0..200 {
        let wire = net.dial(&format!("new-{n}"), &Options::default());
        let (reason, words, is_told) = connack(&mut net, wire, Version::V5);
        assert_eq!((reason, is_told), (ReasonCode::ServerBusy, true));
        appointments.push(words[0].1.parse::<u64>().unwrap());
    }
    appointments.dedup();
    assert_eq!(appointments.len(), 200, "no two at the same time");
    let wire = net.dial("old", &v311());
    assert_eq!(net.raw(wire), [0x20, 2, 0, 3], "before MQTT 5: unavailable");
    assert!(net.is_closed(wire));
    let known = net.connect("sensor", &Options::default());
    assert_eq!(net.subscribe(known, "t", 0), ReasonCode::Success, "who was let in is not made deaf");

    // Strained: some a second. Calm: everybody.
    net.shards[0].set_level(Level::Strained);
    let let_in = (0..500)
        .filter(|n| {
            let wire = net.dial(&format!("strained-{n}"), &Options::default());
            connack(&mut net, wire, Version::V5).0 == ReasonCode::Success
        })
        .count();
    assert_eq!(let_in as u32, paced.burst());
    net.shards[0].set_level(Level::Calm);
    net.connect("calm", &Options::default());
}

const BUDGET: usize = 4 << 20;

/// Ten times the budget, by every way there is.
#[test]
fn f066_the_budget_holds_refusals_are_counted_and_the_ledger_balances() {
    let settings = Settings {
        queue_messages_max: usize::MAX,
        queue_bytes_max: usize::MAX,
        queue_memory_max: usize::MAX,
        outbox_bytes_max: 16 << 20,
        ..Settings::default()
    };
    let mut net = Net::with(1, settings, Open);
    net.shards[0].set_memory(BUDGET, 0);
    let (sender, old) = (net.v5("sender"), net.connect("old", &v311()));
    let (away, slow) = (net.connect("away", &lasting()), net.connect("slow", &lasting()));
    for wire in [away, slow] {
        net.subscribe(wire, "#", 1);
    }
    net.cut(away);
    net.stall(slow, true);
    let payload = "x".repeat(40_000);
    let (mut acknowledged, mut most) = (0_u64, 0);
    for n in 0..1000_u16 {
        net.publish(sender, &format!("t/{n}"), &payload, (n % 3) as u8, n % 5 == 0, n + 1);
        if n < 200 {
            net.publish(old, "t", &payload, 1, false, n + 1);
        }
        if n % 50 == 0 {
            net.dial(&format!("new-{n}"), &Options::default());
        }
        let is_taken = |got: &&Got| matches!(got, Got::Ack { reason: ReasonCode::Success, .. });
        acknowledged += net.receive(sender).iter().filter(is_taken).count() as u64;
        most = most.max(net.shards[0].memory_used());
        assert!(most <= BUDGET, "{most} after {n}");
    }
    let stats = net.stats();
    assert!(most > BUDGET * 8 / 10, "and is used: {most}");
    assert!(stats.publish_memory_budget > 300, "{stats:?}");
    assert!(stats.dropped_memory_budget > 50, "{stats:?}");
    assert!(acknowledged < 400 && acknowledged > 10, "{acknowledged}");
    assert!(!net.may_read(old), "who cannot be told has to wait");
    // Everything that was acknowledged to QoS 1 publishers is there for who was away.
    let before = stats.dropped_memory_budget;
    net.stall(slow, false);
    net.shards[0].set_memory(usize::MAX, 0);
    let away = net.connect_quietly("away", &lasting());
    assert!(!net.payloads(away).is_empty());
    assert_eq!(net.stats().dropped_memory_budget, before);
}

#[test]
fn f066_in_an_emergency_the_connection_with_the_largest_backlog_goes() {
    let mut net = Net::with(1, Settings { outbox_bytes_max: 16 << 20, ..Settings::default() }, Open);
    let (sender, slow, other) = (net.v5("sender"), net.v5("slow"), net.v5("other"));
    net.subscribe(slow, "t", 0);
    net.subscribe(other, "t", 0);
    net.stall(slow, true);
    (0..10).for_each(|_| net.publish(sender, "t", &"x".repeat(100_000), 0, false, 0));
    let before = net.shards[0].memory_used();
    net.shards[0].set_level(Level::Emergency);
    net.live(SECOND);
    assert!(net.is_closed(slow) && !net.is_closed(other) && !net.is_closed(sender));
    assert!(net.shards[0].memory_used() + 900_000 < before);
    net.live(5 * SECOND);
    assert!(!net.is_closed(other), "nobody else has a backlog worth it");
}
