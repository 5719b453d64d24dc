//! Section H of the fault catalogue: abuse of the overload controller itself, as far as publishers can.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::rhythm::{Enforcement, RhythmConfig, RhythmRule};
use tidegate_core::access::Open;
use tidegate_core::event::{Event, Why};
use tidegate_core::settings::{BackOff, Settings};
use tidegate_wire_mqtt::{AckKind, Delivery, Packet, PacketId, Properties, Publish, ReasonCode};

use crate::backoff::{SECOND, flood, learn, refusals, strict, v311};
use crate::net::{Got, Net, Options, Wire};

fn learned(net: &Net, client_id: &str) -> f64 {
    net.shards[0].publisher(client_id, net.now).unwrap().learned_interval.unwrap().as_secs_f64()
}

fn send_again(net: &mut Net, wire: Wire, id: u16) {
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::new(id).unwrap(), dup: true };
    net.send(wire, &Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload: b"again" });
}

#[test]
fn f129_a_baseline_cannot_be_trained_fast() {
    let mut net = strict();
    let mut trainer = net.v5("trainer");
    learn(&mut net, trainer);
    let before = learned(&net, "trainer");
    // Ten times the rate for ten minutes, on as many connections as it takes.
    for _ in 0..6000 {
        net.publish(trainer, "t", "x", 0, false, 0);
        net.live(Duration::from_millis(100));
        if net.is_closed(trainer) {
            trainer = net.v5("trainer");
        }
    }
    let slowest = before * 0.5_f64.powf(10.0 / 60.0);
    assert!(learned(&net, "trainer") >= slowest * 0.99, "{} of {before}", learned(&net, "trainer"));
}

#[test]
fn f131_a_change_of_rhythm_costs_a_bounded_delay_and_nothing_on_an_idle_broker() {
    let mut net = Net::new(1);
    let sensor = net.v5("sensor");
    for interval in [60.0, 1.0, 3600.0, 0.1] {
        for _ in 0..60 {
            net.publish(sensor, "t", "x", 1, false, 1);
            net.live(Duration::from_secs_f64(interval));
        }
    }
    assert_eq!(net.stats().publish_passed, 240, "idle: nothing was held");

    // Under pressure: three times the rate. Nothing is held for longer than the client's patience, most gets through.
    let mut net = strict();
    let sensor = net.v5("sensor");
    learn(&mut net, sensor);
    let before = net.stats();
    for n in 0..600 {
        net.publish(sensor, "t", "x", 1, false, n % 60 + 1);
        net.live(Duration::from_millis(333));
    }
    net.live(Duration::from_millis(7500));
    let after = net.stats();
    assert_eq!((after.held_messages, net.is_closed(sensor)), (0, false));
    let passed = after.publish_passed - before.publish_passed;
    assert!(passed > 500, "{passed} of 600: the headroom of 2 is kept, whatever else is refused");
}

#[test]
fn f132_nobody_else_spoils_a_publishers_rhythm() {
    let mut net = strict();
    let lasting = Options { clean: false, ..v311() };
    let victim = net.connect("sensor", &lasting);
    learn(&mut net, victim);
    let before = net.shards[0].publisher("sensor", net.now);
    // The same identifier from another network, and another identifier from behind the same NAT.
    let attacker = net.connect("sensor", &Options { peer: "203.0.113.9:4711", ..lasting.clone() });
    assert!(net.is_closed(victim), "taken over: only a user's name protects from that");
    flood(&mut net, attacker, 300, 0);
    let neighbour = net.connect("neighbour", &Options { peer: "10.0.0.1:9", ..v311() });
    flood(&mut net, neighbour, 300, 0);
    net.cut(attacker);
    let victim = net.connect("sensor", &Options { peer: "10.0.0.1:50313", ..lasting.clone() });
    assert_eq!(
        net.shards[0].publisher("sensor", net.now).map(|report| report.learned_interval),
        before.map(|b| b.learned_interval)
    );
    net.publish(victim, "t", "x", 1, false, 1);

    // The devices of one user are told apart, from wherever they come; one of them has one rhythm everywhere.
    let user = |peer| Options { user: Some("ann"), peer, ..Options::default() };
    let first = net.connect("ann-1", &user("10.0.0.7:1"));
    learn(&mut net, first);
    let before = net.shards[0].publisher("ann-1", net.now).unwrap().learned_interval;
    let second = net.connect("ann-2", &user("198.51.100.1:1"));
    flood(&mut net, second, 300, 0);
    let first = net.shards[0].publisher("ann-1", net.now).unwrap();
    let second = net.shards[0].publisher("ann-2", net.now).unwrap();
    assert_eq!((first.learned_interval, first.held), (before, 0), "its sister's flood is not its own");
    assert_eq!(first.parent, second.parent);
    let again = net.connect("ann-1", &user("198.51.100.9:1"));
    flood(&mut net, again, 30, 0);
    assert!(net.shards[0].publisher("ann-1", net.now).unwrap().held > 0, "no new learning phase");
}

#[test]
fn f136_delay_then_refusal_then_the_door_and_a_ban_that_expires() {
    let mut net = strict();
    let mut flooder = net.v5("flooder");
    learn(&mut net, flooder);
    let started = net.now;
    let mut id = 0;
    let mut hammer = |net: &mut Net, wire: Wire| {
        id = id % 60_000 + 1;
        net.publish(wire, "t", "x", 1, false, id);
        net.live(Duration::from_millis(50));
    };
    while !net.is_closed(flooder) {
        hammer(&mut net, flooder);
        assert!(net.now.since(started) < 200 * SECOND, "patience ends");
    }
    assert!(net.now.since(started) > 150 * SECOND, "and not early");
    let goodbye = refusals(&mut net, flooder).pop().unwrap();
    assert_eq!(goodbye.0, ReasonCode::MessageRateTooHigh);
    assert!(goodbye.1.iter().any(|(name, _)| name == "pace-retry-after-ms"), "{goodbye:?}");
    assert!(net.events.iter().any(|event| matches!(event, Event::Disconnected { why: Why::TooFast { .. }, .. })));

    // To come back at once and go on is of no use.
    flooder = net.v5("flooder");
    let interval = learned(&net, "flooder");
    let before = net.stats().publish_passed;
    for _ in 0..20 {
        if !net.is_closed(flooder) {
            hammer(&mut net, flooder);
        }
    }
    assert!(net.is_closed(flooder) && net.stats().publish_passed - before <= 3);

    // To be quiet for a while is.
    net.live(60 * SECOND);
    flooder = net.v5("flooder");
    assert!((learned(&net, "flooder") / interval - 1.0).abs() < 0.01, "nothing was learned anew");
    for n in 0..60 {
        net.publish(flooder, "t", "x", 1, false, n + 1);
        net.live(SECOND);
    }
    let success = |got: &Got| matches!(got, Got::Ack { reason: ReasonCode::NoMatchingSubscribers, .. });
    assert!(net.receive(flooder).iter().all(success));
}

#[test]
fn f138_before_mqtt_5_nothing_is_acknowledged_that_is_not_taken() {
    for qos in [1, 2] {
        let mut net = strict();
        let flooder = net.connect("flooder", &Options { keep_alive: 2, ..v311() });
        let reader = net.v5("reader");
        learn(&mut net, flooder);
        net.subscribe(reader, "#", 0);
        flood(&mut net, flooder, 100, qos);
        assert!(!net.may_read(flooder), "TCP carries the word");
        let (mut passed, mut acknowledged, mut paused) = (Vec::new(), 0, 0);
        for _ in 0..240 {
            passed.extend(net.payloads(reader));
            acknowledged += net.receive(flooder).iter().filter(|got| matches!(got, Got::Ack { .. })).count();
            assert_eq!(acknowledged, passed.len(), "each with its message");
            // The client pings all the same, and nobody listens while it is paused.
            net.send(flooder, &Packet::PingReq);
            paused += usize::from(!net.may_read(flooder));
            net.live(SECOND);
            assert!(!net.is_closed(flooder), "its keep-alive stands still");
        }
        assert!(paused > 3, "{paused}");
        assert_eq!(passed, (1..=100).map(|n: u8| n.to_string()).collect::<Vec<_>>(), "all, in order");
        assert_eq!(net.stats().publish_refused, 0);
    }
}

#[test]
fn f138_a_client_that_is_silent_after_a_pause_is_still_noticed() {
    let mut net = strict();
    let flooder = net.connect("flooder", &Options { keep_alive: 60, ..v311() });
    learn(&mut net, flooder);
    flood(&mut net, flooder, 100, 1);
    assert!(!net.may_read(flooder));
    net.live(600 * SECOND);
    assert!(net.is_closed(flooder), "paused for some of the time, then silent for more than a minute and a half");
}

#[test]
fn a_packet_that_came_in_pieces_and_then_had_to_wait_for_us_is_not_late() {
    let mut net = strict();
    let flooder = net.connect("flooder", &v311());
    learn(&mut net, flooder);
    let packet = |n: u8| [0x32, 6, 0, 1, b't', 0, n, b'x'];
    let paused = (1..=200).find(|n| {
        net.offer(flooder, &packet(*n)[..3]);
        net.offer(flooder, &packet(*n)).consumed == 0
    });
    assert!(!net.may_read(flooder));
    net.send_bytes(flooder, &packet(paused.unwrap()));
    // The pause ends, and the time for a packet is over, in one turn.
    net.pass(300 * SECOND);
    assert!(!net.is_closed(flooder) && net.may_read(flooder));
}

#[test]
fn f139_a_held_message_that_is_sent_again_is_not_charged_twice() {
    let mut net = strict();
    let (flooder, reader) = (net.v5("flooder"), net.v5("reader"));
    learn(&mut net, flooder);
    net.subscribe(reader, "#", 0);
    flood(&mut net, flooder, 12, 1);
    let passed = net.payloads(reader).len() as u16;
    let (held, repeated) = (net.stats().held_messages, 40);
    assert!(held > 0);
    net.receive(flooder);
    (0..repeated).for_each(|_| send_again(&mut net, flooder, passed + 1));
    assert_eq!((net.stats().held_messages, net.stats().publish_repeated), (held, repeated));
    net.live(Duration::from_millis(7500));
    assert!(!net.payloads(reader).contains(&"again".to_owned()));
    let acks = net.receive(flooder);
    let mine = Got::Ack { kind: AckKind::PubAck, id: passed + 1, reason: ReasonCode::Success };
    assert_eq!(acks.iter().filter(|got| **got == mine).count(), 1, "one answer");
}

#[test]
fn f143_limits_at_their_ends() {
    for (messages, bytes) in [(0, usize::MAX), (usize::MAX, 0), (1, usize::MAX), (usize::MAX, usize::MAX)] {
        let rhythm = Some(RhythmConfig { enforcement: Enforcement::Always, ..RhythmConfig::default() });
        let back_off = BackOff { rhythm, hold_messages_max: messages, hold_bytes_max: bytes, ..BackOff::default() };
        let mut net = Net::with(1, Settings { back_off, ..Settings::default() }, Open);
        let flooder = net.v5("flooder");
        learn(&mut net, flooder);
        flood(&mut net, flooder, 50, 0);
        let most = if bytes == 0 { 0 } else { messages.min(50) as u64 };
        assert!(net.stats().held_messages <= most, "{messages} {bytes}: {}", net.stats().held_messages);
        assert_eq!(net.stats().held_messages == 0, most == 0);
    }
    // Numbers that make no sense are the default ones, not "no limit".
    let rhythm = Some(RhythmConfig { headroom: f64::NAN, enforcement: Enforcement::Always, ..RhythmConfig::default() });
    let back_off = BackOff { rhythm, ..BackOff::default() };
    assert!(back_off.check().is_err() && BackOff::default().check().is_ok());
    let mut net = Net::with(1, Settings { back_off, ..Settings::default() }, Open);
    let client = net.v5("client");
    learn(&mut net, client);
    assert!(net.shards[0].publisher("client", net.now).is_some());
}

#[test]
fn f142_new_settings_hold_for_new_messages_and_lose_nothing() {
    let mut net = strict();
    let (flooder, reader) = (net.v5("flooder"), net.v5("reader"));
    learn(&mut net, flooder);
    net.subscribe(reader, "#", 0);
    flood(&mut net, flooder, 20, 0);
    let back_off = BackOff { rhythm: None, hold_messages_max: 1, ..BackOff::default() };
    net.shards[0].set_settings(Arc::new(Settings { back_off, ..Settings::default() }));
    net.live(31 * SECOND);
    assert_eq!(net.payloads(reader).len(), 20, "what was held is kept");
    flood(&mut net, flooder, 200, 0);
    assert_eq!(net.payloads(reader).len(), 200, "off");
    let rhythm = Some(RhythmConfig { rule: RhythmRule::Paper, ..RhythmConfig::default() });
    let back_off = BackOff { rhythm, ..BackOff::default() };
    net.shards[0].set_settings(Arc::new(Settings { back_off, ..Settings::default() }));
    net.publish(flooder, "t", "x", 0, false, 0);
    assert_eq!(net.shards[0].publisher("flooder", net.now).unwrap().learned_interval, None, "another rule learns anew");
}

#[test]
fn f145_what_is_held_has_a_bound_in_messages_and_in_bytes() {
    let mut net = strict();
    let flooder = net.connect("flooder", &Options { keep_alive: 20, ..Options::default() });
    learn(&mut net, flooder);
    flood(&mut net, flooder, 1000, 0);
    let stats = net.stats();
    assert_eq!(stats.held_messages, 32);
    assert_eq!(net.shards[0].publisher("flooder", net.now).unwrap().held, 32);
    assert!(!net.may_read(flooder) && stats.publish_received < 100, "what has no room is left on the wire: {stats:?}");
    // Half a keep-alive later, what is behind it matters more.
    net.send(flooder, &Packet::PingReq);
    assert!(net.receive(flooder).is_empty());
    net.live(9 * SECOND);
    assert_eq!(net.stats().dropped_held_full + net.stats().dropped_rhythm, 0);
    net.live(SECOND);
    assert_eq!(net.receive(flooder), [Got::Pong]);
    let stats = net.stats();
    assert!(stats.dropped_held_full > 0 && stats.dropped_held_full + stats.dropped_rhythm > 850, "{stats:?}");
    assert_eq!(
        net.shards[0].publisher("flooder", net.now).unwrap().dropped,
        stats.dropped_held_full + stats.dropped_rhythm
    );
    flood(&mut net, flooder, 1000, 0);
    assert!(!net.may_read(flooder), "a ping was seen: back to the wire");

    let mut net = strict();
    let flooder = net.v5("flooder");
    learn(&mut net, flooder);
    let large = "x".repeat(20_000);
    (0..100).for_each(|_| net.publish(flooder, "t", &large, 0, false, 0));
    let stats = net.stats();
    assert!(stats.held_messages == 3 && stats.held_bytes <= 65_536, "{stats:?}");
}
