//! Who is entitled to what, what the driver is told of it, and what a client hears that is read more slowly than it sends.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_core::Whom;
use tidegate_core::report::ClientState;
use tidegate_core::settings::Rate;
use tidegate_wire_mqtt::{
    AckKind, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Publish, Sender, Version, decode,
};

use crate::backoff::{SECOND, flood, learn, strict, v311};
use crate::net::{Got, Net, Options, Wire};

/// So many messages as bytes, with identifiers from `from` on at QoS 1.
pub(crate) fn messages(version: Version, count: u16, qos: u8, from: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..count {
        let delivery = match (qos, PacketId::new(from + n)) {
            (1, Some(packet_id)) => Delivery::AtLeastOnce { packet_id, dup: false },
            _ => Delivery::AtMostOnce,
        };
        let publish = Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload };
        let _ = publish.encode(Peer::new(version), &mut bytes);
    }
    bytes
}

/// The intervals that came with acknowledgements, all of them successful.
fn paces(net: &mut Net, wire: Wire) -> Vec<u64> {
    let (bytes, mut at, mut paces) = (net.raw(wire), 0, Vec::new());
    while let Ok(Decoded::Packet { packet: Packet::Ack(ack), consumed }) =
        decode(&bytes[at..], Version::V5, &Limits::default().with_sender(Sender::Server))
    {
        at += consumed;
        assert!(!ack.reason.is_failure());
        let mut words = ack.properties.user_properties().filter(|(name, _)| *name == "pace-interval-ms");
        paces.extend(words.next().map(|(_, text)| text.parse::<u64>().unwrap()));
    }
    paces
}

/// Ten seconds in which a client that has not been read dry for longer is served so many messages in each.
fn run_unread(net: &mut Net, wire: Wire, version: Version, per_second: u16, qos: u8) {
    for second in 0..10 {
        let bytes = messages(version, per_second, qos, 1, b"x");
        net.offer_portion(wire, &bytes, Duration::from_secs(2 + second), u32::MAX);
        net.live(SECOND);
    }
}

#[test]
fn who_is_not_read_dry_for_a_second_hears_a_pace_a_quarter_above_what_it_is_served() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let bytes = messages(Version::V5, 100, 1, 1, b"x");
    for _ in 0..10 {
        net.offer_portion(sender, &bytes, Duration::from_millis(900), u32::MAX);
        net.live(SECOND);
    }
    assert_eq!(paces(&mut net, sender), [0; 0], "read dry within a second");
    run_unread(&mut net, sender, Version::V5, 100, 1);
    let paces = paces(&mut net, sender);
    assert!(paces.len() == 10 && paces.iter().all(|pace| *pace == 8), "once a second: {paces:?}");
    assert_eq!(net.shards[0].client("sender", net.now).unwrap().client.state, ClientState::Slowed);
    let report = net.shards[0].publisher("sender", net.now).unwrap();
    assert_eq!((report.served.round(), report.unread_since.is_some()), (100.0, true));
    net.live(Duration::from_secs(11));
    assert_eq!(net.shards[0].client("sender", net.now).unwrap().client.state, ClientState::Ok);
}

#[test]
fn a_pace_below_a_millisecond_is_not_said_because_who_obeys_would_get_less() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    run_unread(&mut net, sender, Version::V5, 1000, 1);
    assert_eq!(paces(&mut net, sender), [0; 0]);
    run_unread(&mut net, sender, Version::V5, 500, 1);
    let paces = paces(&mut net, sender);
    assert!(paces.len() >= 9 && paces.iter().all(|pace| *pace == 1), "1.6 ms, rounded down: {paces:?}");
}

#[test]
fn who_has_no_answer_to_carry_a_pace_hears_it_on_its_own_topic() {
    for (version, qos) in [(Version::V5, 0), (Version::V311, 0), (Version::V311, 1)] {
        let options = if version == Version::V5 { Options::default() } else { v311() };
        let mut net = Net::new(1);
        let (sender, spy) = (net.connect("sender", &options), net.v5("spy"));
        net.subscribe(sender, "$SYS/broker/pace/sender", 0);
        net.subscribe(spy, "$SYS/broker/pace/+", 0);
        run_unread(&mut net, sender, version, 50, qos);
        let got = net.receive(sender);
        let told: Vec<&str> = got
            .iter()
            .filter_map(|got| match got {
                Got::Message { payload, .. } => Some(payload.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(told.len(), 9, "not in the first second: {version:?}, QoS {qos}: {told:?}");
        let expected = "{\"reason\":\"read more slowly than it sends\",\"pace-interval-ms\":16}";
        assert!(told.iter().all(|text| *text == expected), "{told:?}");
        assert!(net.receive(spy).is_empty(), "and nobody else does");
    }
}

#[test]
fn a_portion_ends_after_its_units_and_nothing_is_lost_or_out_of_order() {
    let mut net = Net::new(1);
    let (sender, reader) = (net.v5("sender"), net.v5("reader"));
    let (mut bytes, small) = (messages(Version::V5, 100, 0, 1, b"x"), messages(Version::V5, 1, 0, 1, b"x").len());
    let progress = net.offer_portion(sender, &bytes, Duration::ZERO, 7);
    assert_eq!((progress.consumed, progress.units), (7 * small, 7));
    bytes.drain(..progress.consumed);
    // Copies count, and so do bytes: one of 4 KiB is five.
    net.subscribe(reader, "#", 0);
    let progress = net.offer_portion(sender, &bytes, Duration::ZERO, 9);
    assert_eq!((progress.consumed, progress.units), (8 * small, 9), "a copy is an eighth");
    let large = messages(Version::V5, 3, 0, 1, &[7; 4096]);
    let progress = net.offer_portion(sender, &large, Duration::ZERO, 1);
    assert_eq!((progress.consumed, progress.units), (large.len() / 3, 6), "one packet at least");
}

/// A packet that took long to come and was the whole of a portion: what waits behind it is no part of it.
#[test]
fn who_waits_for_its_next_portion_is_not_taken_for_one_that_does_not_finish_a_packet() {
    let mut net = Net::new(1);
    let sender = net.connect("sender", &Options { keep_alive: 600, ..Options::default() });
    let bytes = messages(Version::V5, 2, 0, 1, b"x");
    net.offer(sender, &bytes[..3]);
    net.live(Duration::from_secs(20));
    net.offer_portion(sender, &bytes, Duration::from_secs(20), 1);
    net.live(Duration::from_secs(60));
    assert!(!net.is_closed(sender));
}

#[test]
fn the_devices_of_one_user_are_told_apart_and_share_a_parent() {
    let mut net = Net::new(1);
    let user = Options { user: Some("fleet"), ..Options::default() };
    let wires: Vec<Wire> = (0..3).map(|n| net.connect(&format!("device-{n}"), &user)).collect();
    for _ in 0..70 {
        for wire in &wires {
            net.publish(*wire, "t", "x", 0, false, 0);
        }
        net.live(SECOND);
    }
    flood(&mut net, wires[0], 2000, 0);
    let report = |net: &Net, n| net.shards[0].publisher(&format!("device-{n}"), net.now).unwrap();
    assert!(!report(&net, 0).is_entitled && report(&net, 1).is_entitled && report(&net, 2).is_entitled);
    assert_eq!(report(&net, 0).parent, report(&net, 1).parent);
    let [flooder, other] = [net.reading(wires[0]), net.reading(wires[1])];
    assert_eq!(flooder.parent, other.parent);
    assert!(flooder.standing.entitled_at > net.now && other.standing.entitled_at <= net.now, "{flooder:?} {other:?}");
    assert!(flooder.standing.entitled_at < net.now + SECOND, "it gets two a second, like everybody");
}

#[test]
fn a_stranger_is_in_excess_who_never_published_is_not_and_without_a_gate_everybody_is_alone() {
    let mut net = Net::new(1);
    let (stranger, reader) = (net.v5("stranger"), net.v5("reader"));
    net.publish(stranger, "t", "x", 0, false, 0);
    assert_eq!(net.reading(stranger).standing.entitled_at, Timestamp::MAX);
    assert_eq!(net.reading(reader).standing.entitled_at, Timestamp::ZERO);
    assert_eq!(net.reading(stranger).parent, net.reading(reader).parent, "the same network");
    let back_off = tidegate_core::settings::BackOff { rhythm: None, ..Default::default() };
    let settings = tidegate_core::settings::Settings { back_off, ..Default::default() };
    let mut net = Net::with(1, settings, tidegate_core::access::Open);
    let [one, other] = ["one", "other"].map(|name| net.v5(name));
    assert_ne!(net.reading(one).parent, net.reading(other).parent);
}

/// Off is no blindfold: an operator sees what is sent, and a flood that begins then is no habit when the gate is switched on.
#[test]
fn with_the_gate_off_rates_are_measured_and_what_is_usual_is_known_when_it_is_switched_on() {
    let off = || {
        let back_off = tidegate_core::settings::BackOff { rhythm: None, ..Default::default() };
        tidegate_core::settings::Settings { back_off, ..Default::default() }
    };
    for begins_off in [true, false] {
        let settings = if begins_off { off() } else { tidegate_core::settings::Settings::default() };
        let mut net = Net::with(1, settings, tidegate_core::access::Open);
        let pump = net.v5("pump");
        let talk = |net: &mut Net, secs: u32, qos: u8, count: u16| {
            for _ in 0..secs {
                for n in 0..count {
                    net.publish(pump, "t", "x", qos, false, if qos == 0 { 0 } else { n + 1 });
                }
                net.live(SECOND);
            }
        };
        talk(&mut net, 80, 1, 5);
        net.shards[0].set_settings(std::sync::Arc::new(off()));
        talk(&mut net, 5, 0, 5);
        let report = |net: &Net| net.shards[0].client("pump", net.now).unwrap().client;
        let quiet = report(&net);
        assert!((3.0..8.0).contains(&quiet.rate.unwrap()), "{begins_off}: {quiet:?}");
        talk(&mut net, 30, 0, 400);
        let flood = report(&net);
        assert!(flood.rate.unwrap() > 300.0, "{begins_off}: {flood:?}");
        assert!(flood.publisher.unwrap().usual.unwrap() < 10.0, "{begins_off}: {flood:?}");
        assert_eq!(flood.state, tidegate_core::report::ClientState::Ok, "nobody is slowed");
        assert_eq!(net.reading(pump).standing.entitled_at, Timestamp::MAX, "nor ordered");
        net.shards[0].set_settings(std::sync::Arc::new(tidegate_core::settings::Settings::default()));
        talk(&mut net, 5, 0, 400);
        let after = report(&net).publisher.unwrap();
        assert!(after.usual.unwrap() < 10.0 && after.rate > 300.0 && !after.is_entitled, "{begins_off}: {after:?}");
    }
}

#[test]
fn who_never_published_is_entitled_to_a_bucket_of_packets_whatever_they_are() {
    let mut net = Net::new(1);
    let reader = net.v5("reader");
    for _ in 0..112 {
        net.send(reader, &Packet::PingReq);
    }
    net.receive(reader);
    assert_eq!((net.entitled(reader), net.reading(reader).standing.entitled_at), (16, Timestamp::ZERO));
    for n in 0..1000 {
        net.subscribe(reader, &format!("t/{n}"), 1);
    }
    let standing = net.reading(reader).standing;
    assert!(net.entitled(reader) == 0 && standing.entitled_at > net.now, "128 of 1112: {standing:?}");
    assert!(standing.entitled_at <= net.now + SECOND / 32);
    net.live(SECOND / 4);
    assert_eq!(net.entitled(reader), 8, "32 a second");
}

#[test]
fn what_answers_a_delivery_is_entitled_however_much_it_is() {
    let mut net = Net::new(1);
    let (reader, sender) = (net.v5("reader"), net.v5("sender"));
    net.subscribe(reader, "t", 2);
    for n in 0..500_u16 {
        net.publish(sender, "t", "x", 1, false, n + 1);
        for got in net.receive(reader) {
            let Got::Message { id: Some(id), .. } = got else { continue };
            net.ack(reader, AckKind::PubAck, id);
        }
    }
    assert_eq!(net.entitled(reader), 16);
    for _ in 0..500 {
        net.ack(reader, AckKind::PubAck, 9);
    }
    assert_eq!(net.entitled(reader), 0, "an answer to nothing is none");
}

#[test]
fn a_sleeper_that_wakes_as_a_flooder_has_had_one_visit() {
    let mut net = Net::new(1);
    let sleeper = net.v5("sleeper");
    net.live(100_000 * SECOND);
    assert_eq!(net.entitled(sleeper), 16);
    let bytes = messages(Version::V5, 1000, 0, 1, b"x");
    net.offer_portion(sleeper, &bytes, Duration::ZERO, net.entitled(sleeper));
    let report = net.shards[0].publisher("sleeper", net.now).unwrap();
    assert!(!report.is_entitled, "as a message none of them was");
    assert_eq!((net.entitled(sleeper), net.reading(sleeper).standing.entitled_at), (0, Timestamp::MAX));
}

#[test]
fn a_grant_needs_no_learning_comes_first_and_can_be_taken_back() {
    let mut net = Net::new(1);
    let (gateway, whom) = (net.v5("gateway"), Whom::Client("gateway".into()));
    let rate = Rate::new(500, SECOND, 500);
    net.publish(gateway, "t", "x", 0, false, 0);
    assert_eq!(net.reading(gateway).standing.grant, 0);
    net.shards[0].set_grant(&whom, Some(rate), net.now).unwrap();
    let standing = net.reading(gateway).standing;
    assert_eq!((standing.grant, standing.entitled_at), (500, Timestamp::ZERO));
    for _ in 0..100 {
        flood(&mut net, gateway, 50, 0);
        assert!(net.shards[0].publisher("gateway", net.now).unwrap().is_entitled);
        net.live(SECOND / 10);
    }
    assert_eq!(net.shards[0].publisher("gateway", net.now).unwrap().granted, Some(500.0));
    assert_eq!(net.shards[0].grants(), [(whom.clone(), rate)]);
    net.cut(gateway);
    let gateway = net.v5("gateway");
    net.publish(gateway, "t", "x", 0, false, 0);
    assert_eq!(net.reading(gateway).standing.grant, 500, "on its next connection, too");
    net.shards[0].set_grant(&whom, None, net.now).unwrap();
    let standing = net.reading(gateway).standing;
    assert_eq!((standing.grant, standing.entitled_at), (0, Timestamp::MAX), "a stranger, as it was");
    assert_eq!(net.shards[0].publisher("gateway", net.now).unwrap().granted, None);
}

#[test]
fn who_was_known_before_a_grant_is_as_well_known_after_it_and_the_grant_is_not_kept_as_learned() {
    let mut net = Net::durable(1);
    let (gateway, whom) = (net.v5("gateway"), Whom::Client("gateway".into()));
    for _ in 0..70 {
        flood(&mut net, gateway, 5, 0);
        net.live(SECOND);
    }
    let usual = |net: &Net| net.shards[0].publisher("gateway", net.now).unwrap().learned_interval.unwrap();
    let before = usual(&net);
    net.shards[0].set_grant(&whom, Some(Rate::new(12_345, SECOND, 12_345)), net.now).unwrap();
    let granted = net.shards[0].publisher("gateway", net.now).unwrap().granted.unwrap();
    assert!((granted - 12_345.0).abs() < 0.5, "as it was said: {granted}");
    let kept = net.shards[0].rhythms(0, 10, Timestamp::ZERO, net.now).0;
    assert_eq!((kept.len(), kept[0].interval), (1, before));
    net.shards[0].set_grant(&whom, None, net.now).unwrap();
    assert_eq!(usual(&net), before);
    flood(&mut net, gateway, 2000, 0);
    assert!(!net.shards[0].publisher("gateway", net.now).unwrap().is_entitled);
}

#[test]
fn the_limit_of_a_user_is_for_all_its_clients_together_and_allows_what_it_says() {
    let mut net = Net::new(1);
    let user = Options { user: Some("fleet"), ..Options::default() };
    let wires: Vec<Wire> = (0..2).map(|n| net.connect(&format!("device-{n}"), &user)).collect();
    let whom = Whom::User("fleet".into());
    net.shards[0].set_limit(&whom, Some(Rate::new(10, SECOND, 10)), net.now).unwrap();
    let run = |net: &mut Net, per_second: u32| {
        let before = net.stats().publish_passed;
        for _ in 0..per_second * 20 {
            for wire in &wires {
                net.publish(*wire, "t", "x", 0, false, 0);
            }
            net.live(SECOND / per_second);
        }
        net.stats().publish_passed - before
    };
    assert_eq!(run(&mut net, 5), 200, "five a second of each");
    let passed = run(&mut net, 50);
    assert!((200..=260).contains(&passed), "{passed} of 2000 in twenty seconds");
    net.live(60 * SECOND);
    net.shards[0].set_limit(&whom, None, net.now).unwrap();
    assert_eq!(run(&mut net, 50), 2000);
}

#[test]
fn who_is_freed_of_a_limit_is_free_at_once_and_who_has_a_higher_one_goes_by_that() {
    for qos in [0, 1] {
        for (limit, passed_min) in [(None, 60), (Some(Rate::new(20, SECOND, 20)), 40)] {
            let mut net = Net::new(1);
            let sensor = net.v5("sensor");
            let whom = Whom::Client("sensor".into());
            net.publish(sensor, "t", "x", qos, false, 60_000);
            net.shards[0].set_limit(&whom, Some(Rate::new(1, SECOND, 1)), net.now).unwrap();
            let run = |net: &mut Net, seconds: u16| {
                let before = net.stats().publish_passed;
                for id in 1..=seconds * 20 {
                    net.publish(sensor, "t", "x", qos, false, id);
                    net.live(SECOND / 20);
                    net.receive(sensor);
                }
                net.stats().publish_passed - before
            };
            let slowed = run(&mut net, 10);
            assert!((5..=20).contains(&slowed), "one a second at QoS {qos}: {slowed}");
            let state = |net: &Net| net.shards[0].client("sensor", net.now).unwrap().client.state;
            assert_ne!(state(&net), ClientState::Ok, "QoS {qos}");
            net.shards[0].set_limit(&whom, limit, net.now).unwrap();
            if limit.is_none() {
                assert_eq!(state(&net), ClientState::Ok, "QoS {qos}: and is said to be");
            }
            let passed = run(&mut net, 3);
            assert!(passed >= passed_min, "QoS {qos}, {limit:?}: {passed} of 60 and what waited, in three seconds");
        }
    }
}

/// What `why` proposes for somebody who is slowed: twice its rate.
#[test]
fn who_is_slowed_and_then_allowed_what_it_sends_recovers() {
    let mut net = strict();
    let sender = net.v5("sender");
    learn(&mut net, sender);
    let run = |net: &mut Net, seconds: u32| {
        for n in 0..seconds * 20 {
            net.publish(sender, "t", "x", 1, false, (n % 1000) as u16 + 1);
            net.live(SECOND / 20);
        }
    };
    run(&mut net, 20);
    let report = net.shards[0].client("sender", net.now).unwrap().client;
    assert_ne!(report.state, ClientState::Ok);
    let allowed = (2.0 * report.rate.unwrap()).ceil() as u32;
    assert!((35..=45).contains(&allowed), "what it sends is known, whatever was refused: {allowed}");
    net.shards[0]
        .set_limit(&Whom::Client("sender".into()), Some(Rate::new(allowed, SECOND, allowed)), net.now)
        .unwrap();
    // It was told to come back in up to 30 s, and counts as slowed for ten more.
    run(&mut net, 45);
    let before = net.stats();
    run(&mut net, 15);
    let after = net.stats();
    assert_eq!(after.publish_passed - before.publish_passed, 300);
    assert_eq!(net.shards[0].client("sender", net.now).unwrap().client.state, ClientState::Ok);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What is asked once of messages that came in a row is what would be found for each of them.
    #[test]
    fn messages_in_a_row_count_as_if_they_came_one_by_one(
        portions in prop::collection::vec((1_u16..60, 0_u8..6, 0_u64..1500, 0_u64..2500), 1..60),
    ) {
        let mut nets = [Net::new(1), Net::new(1)];
        let wires = nets.each_mut().map(|net| {
            let (sender, reader) = (net.v5("sender"), net.v5("reader"));
            net.subscribe(reader, "#", 0);
            for _ in 0..70 {
                net.offer_portion(sender, &messages(Version::V5, 5, 0, 1, b"x"), Duration::ZERO, u32::MAX);
                net.live(SECOND);
            }
            sender
        });
        for (count, qos, unread, pass) in portions {
            // One portion in six is of QoS 1.
            let bytes = messages(Version::V5, count, u8::from(qos == 0), 1, b"x");
            let unread = Duration::from_millis(unread);
            nets[0].offer_portion(wires[0], &bytes, unread, u32::MAX);
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let consumed = nets[1].offer_portion(wires[1], rest, unread, 1).consumed;
                prop_assert!(consumed > 0);
                rest = &rest[consumed..];
            }
            let seen = [0, 1].map(|n| {
                let net = &nets[n];
                (net.shards[0].publisher("sender", net.now), net.entitled(wires[n]), net.stats().publish_passed)
            });
            prop_assert_eq!(seen[0], seen[1]);
            for net in &mut nets {
                net.live(Duration::from_millis(pass));
            }
        }
    }
}
