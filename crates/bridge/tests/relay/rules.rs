//! Single rules of the machine, each by a short conversation.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_bridge::limits::{BRIM_MAX, RECEIVE_MAX, UNWRITTEN_BYTES_MAX};
use tidegate_bridge::{BridgeAction, BridgeConfig, BridgeMachine, BridgeSide};
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, Encode, Packet, PacketId, Peer, Properties, Publish, QoS, Version};

use crate::model::{World, config};

#[test]
fn numbers_that_the_sink_kept_from_a_lost_session_do_not_swallow_new_messages() {
    for version in [Version::V5, Version::V311] {
        let mut world = World::new(version, 20);
        // Numbers 1 to 5 are stored there and never released: the session here is gone before it can say so.
        for number in 1..=5 {
            world.here.publish(number, QoS::ExactlyOnce);
        }
        for _ in 0..200 {
            world.exchange(usize::MAX);
            if world.there.received.len() == 5 {
                break;
            }
        }
        assert_eq!(world.there.received, [1, 2, 3, 4, 5]);
        world.cut(BridgeSide::Local);
        world.here.forget_queue();
        for number in 101..=105 {
            world.here.publish(number, QoS::ExactlyOnce);
        }
        world.calm_down();
        assert_eq!(world.there.received[5..], [101, 102, 103, 104, 105], "{version:?}");
    }
}

#[test]
fn nor_do_they_when_the_bridge_is_killed_and_new_messages_come_as_repeated_ones() {
    for version in [Version::V5, Version::V311] {
        let mut world = World::new(version, 20);
        for number in 1..=5 {
            world.here.publish(number, QoS::ExactlyOnce);
        }
        while world.there.received.len() < 5 {
            world.exchange(usize::MAX);
        }
        // A new machine, and a broker without its log: what comes while the bridge registers comes again, with DUP.
        world.step(18, 0);
        world.here.forget_queue();
        for number in 101..=105 {
            world.here.publish(number, QoS::ExactlyOnce);
        }
        world.calm_down();
        assert_eq!(world.there.received[5..], [101, 102, 103, 104, 105], "{version:?}");
    }
}

#[test]
fn what_is_refused_for_now_is_sent_again_in_its_order() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut world = World::new(Version::V5, 20);
        world.there.refusals = 3;
        for number in 1..=10 {
            world.here.publish(number, qos);
        }
        // Refused are those that were under way first; the calm would end the refusals.
        while world.there.refusals > 0 {
            world.exchange(usize::MAX);
        }
        world.calm_down();
        let first: Vec<u32> = world.there.received.iter().copied().filter(|number| *number <= 3).collect();
        assert_eq!(first, [1, 2, 3], "{qos:?}: {:?}", world.there.received);
    }
}

#[test]
fn before_mqtt_5_a_session_that_lasts_is_subscribed_once() {
    let mut world = World::new(Version::V311, 20);
    for _ in 0..3 {
        while !world.bridge.is_up() {
            world.exchange(usize::MAX);
            world.now = world.now + Duration::from_millis(20);
        }
        world.cut(BridgeSide::Remote);
    }
    assert_eq!(world.there.subscribed, 1, "each subscription brings all retained messages");
}

#[test]
fn a_subscription_that_was_cut_off_is_made_again() {
    for at in 0..12 {
        let mut world = World::new(Version::V311, 20);
        for _ in 0..at {
            world.exchange(usize::MAX);
        }
        world.cut(BridgeSide::Remote);
        while !world.bridge.is_up() {
            world.exchange(usize::MAX);
            world.now = world.now + Duration::from_millis(20);
        }
        assert!(world.there.subscribed > 0, "cut after {at} steps");
    }
}

#[test]
fn addresses_are_tried_in_turn_and_a_pause_comes_when_all_have_failed() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut world = World::new(Version::V5, 20);
    world.bridge = BridgeMachine::new(BridgeConfig { addresses: 3, ..config(Version::V5) }, Timestamp::ZERO);
    // The session here comes first; then nobody is at any address.
    while world.there_is_nobody() {
        world.exchange(usize::MAX);
    }
    let mut machine = world.bridge;
    let (mut tried, mut now) = (vec![0], world.now);
    machine.handle_lost(BridgeSide::Remote, "refused", now, &mut rng);
    for _ in 0..40 {
        machine.turn(now, &mut rng);
        while let Some(action) = machine.poll_action() {
            if let BridgeAction::Open { address } = action {
                tried.push(address);
                machine.handle_lost(BridgeSide::Remote, "refused", now, &mut rng);
            }
        }
        if let Some(at) = machine.poll_timeout() {
            now = now.max(at);
        }
    }
    assert!(tried.len() >= 6, "{tried:?}");
    assert!(tried.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 3), "{tried:?}");
    assert!(now > Timestamp::ZERO + Duration::from_millis(50), "it waits between two rounds: {now:?}");
    assert_eq!(machine.status(now).trouble.as_deref(), Some("refused"));
}

#[test]
fn what_is_published_before_the_other_broker_was_ever_there_waits() {
    let mut world = World::new(Version::V5, 20);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut opened = 0;
    for _ in 0..10 {
        world.bridge.turn(world.now, &mut rng);
        match world.bridge.poll_action() {
            Some(BridgeAction::Attach) => break,
            Some(BridgeAction::Open { .. }) => opened += 1,
            _ => {}
        }
    }
    assert_eq!(opened, 0, "the session here has its subscriptions before the other broker is tried");
}

/// Both ways: the sink does nothing while `load` comes, and then everything; every message of QoS 2 arrives, and is answered for.
fn stall(side: BridgeSide, payload_bytes: usize, load: &[QoS]) {
    // Two at once, so that the third waits for a release. Before MQTT 5 the other broker has no way to say so.
    let versions = [Version::V5, Version::V311].into_iter();
    for version in versions.filter(|version| version.is_v5() || side == BridgeSide::Remote) {
        let mut world = World::new(version, 2);
        world.here.receive_max = 2;
        while !world.bridge.is_up() {
            world.exchange(usize::MAX);
        }
        let ends = |world: &mut World, is_stalled| {
            let (source, sink) = match side {
                BridgeSide::Local => (&mut world.here, &mut world.there),
                BridgeSide::Remote => (&mut world.there, &mut world.here),
            };
            (source.payload_bytes, sink.is_stalled) = (payload_bytes, is_stalled);
            if is_stalled {
                for (number, qos) in load.iter().enumerate() {
                    source.publish(u32::try_from(number).unwrap(), *qos);
                }
            }
        };
        ends(&mut world, true);
        for _ in 0..load.len() + 10 {
            world.exchange(usize::MAX);
        }
        ends(&mut world, false);
        world.calm_down();
        let (source, sink) = match side {
            BridgeSide::Local => (&world.here, &world.there),
            BridgeSide::Remote => (&world.there, &world.here),
        };
        assert!(source.waiting.is_empty() && source.flights.is_empty(), "{version:?} {side:?}: {:?}", source.flights);
        let wanted = load.iter().filter(|qos| **qos == QoS::ExactlyOnce).count();
        assert_eq!(sink.received.len(), wanted, "{version:?} {side:?}");
        assert_eq!(world.bridge.status(world.now).counts.failures, 0, "{version:?} {side:?}");
    }
}

#[test]
fn a_release_is_read_though_messages_of_qos_0_have_filled_the_lane() {
    let mut load = vec![QoS::ExactlyOnce; 10];
    load.extend([QoS::AtMostOnce; 5_000]);
    for side in [BridgeSide::Local, BridgeSide::Remote] {
        stall(side, 0, &load);
    }
}

#[test]
fn a_release_is_read_though_large_messages_have_filled_the_lane() {
    for side in [BridgeSide::Local, BridgeSide::Remote] {
        stall(side, 2_500_000, &[QoS::ExactlyOnce; 20]);
    }
}

#[test]
fn who_sends_more_than_receive_maximum_is_named_and_nothing_of_it_is_lost() {
    for (is_greedy, version, is_named) in
        [(true, Version::V5, true), (false, Version::V5, false), (true, Version::V311, false)]
    {
        let mut world = World::new(version, 20);
        while !world.bridge.is_up() {
            world.exchange(usize::MAX);
        }
        world.here.is_stalled = true;
        (world.there.is_greedy, world.there.window_max) = (is_greedy, RECEIVE_MAX + 1);
        if !is_greedy {
            world.there.window_max = RECEIVE_MAX;
        }
        for number in 0..300 {
            world.there.publish(number, QoS::AtLeastOnce);
        }
        for _ in 0..290 {
            world.exchange(usize::MAX);
        }
        let status = world.bridge.status(world.now);
        assert_eq!(status.counts.failures, 0, "{version:?}: {:?}", status.trouble);
        let says_so = status.trouble.is_some_and(|words| words.contains("more than 256 messages at once"));
        assert_eq!(says_so, is_named, "{version:?}");
        world.here.is_stalled = false;
        world.calm_down();
        assert_eq!(world.bridge.status(world.now).counts.received, 300, "{version:?}");
    }
}

/// mosquitto sends all that waits in a session before it answers a subscription, however much the bridge takes at once.
#[test]
fn a_session_with_more_than_can_be_held_goes_on_though_the_answer_to_a_subscription_comes_behind_it() {
    const WAITING: u16 = 10_000;
    for version in [Version::V5, Version::V311] {
        let mut world = World::new(version, 20);
        while !world.bridge.is_up() {
            world.exchange(usize::MAX);
        }
        world.here.is_stalled = true;
        (world.there.is_greedy, world.there.window_max) = (true, WAITING);
        for number in 0..WAITING {
            world.there.publish(number.into(), QoS::AtLeastOnce);
        }
        for _ in 0..WAITING {
            world.exchange(usize::MAX);
        }
        assert_eq!(world.there.flights.len(), usize::from(WAITING), "{version:?}: all of them are under way");
        // The process of the bridge is killed.
        world.step(18, 0);
        world.here.is_stalled = false;
        world.calm_down();
        let status = world.bridge.status(world.now);
        assert_eq!(
            (status.counts.failures, status.counts.received),
            (0, WAITING.into()),
            "{version:?}: {:?}",
            status.trouble
        );
        assert_eq!(world.there.subscribed, 2, "{version:?}");
    }
}

/// More than can ever be held at once, and behind it what the bridge waits for.
#[test]
fn what_finds_no_room_comes_again_on_a_connection_that_the_bridge_makes_for_it() {
    let mut world = World::new(Version::V5, 20);
    while !world.bridge.is_up() {
        world.exchange(usize::MAX);
    }
    let (mut rng, mut bytes) = (Xoshiro256PlusPlus::seed_from_u64(7), Vec::new());
    // Every number there is, and some of them once more for other messages.
    for number in (1..=u16::MAX).chain(1..=100) {
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::new(number).unwrap(), dup: false };
        let payload = format!("{}", bytes.len());
        let (retain, properties) = (false, Properties::EMPTY);
        let publish = Publish { delivery, retain, topic: "r/in/x", properties, payload: payload.as_bytes() };
        let _ = Packet::Publish(publish).encode(Peer::new(Version::V5), &mut bytes);
    }
    world.bridge.handle_bytes(BridgeSide::Remote, &bytes, world.now, &mut rng);
    assert_eq!(world.bridge.status(world.now).counts.connects, 1);
    for _ in 0..2 * BRIM_MAX {
        world.exchange(usize::MAX);
        if world.bridge.status(world.now).counts.overrun > 0 {
            break;
        }
    }
    let status = world.bridge.status(world.now);
    assert_eq!((status.counts.overrun, status.counts.received), (99, BRIM_MAX as u64), "{:?}", status.trouble);
    assert!(status.trouble.is_some_and(|words| words.contains("99 messages come again")));
    world.calm_down();
    assert_eq!(world.bridge.status(world.now).counts.connects, 2);
}

#[test]
fn a_connection_that_brought_messages_was_a_good_one_whichever_way_they_went() {
    for from in [BridgeSide::Local, BridgeSide::Remote] {
        let (mut world, mut longest) = (World::new(Version::V5, 20), Duration::ZERO);
        for round in 0..12 {
            while !world.bridge.is_up() {
                world.exchange(usize::MAX);
                world.now = world.now + Duration::from_millis(20);
            }
            let source = if from == BridgeSide::Local { &mut world.here } else { &mut world.there };
            for number in 0..20 {
                source.publish(round * 20 + number, QoS::AtLeastOnce);
            }
            world.calm_down();
            world.cut(BridgeSide::Remote);
            longest = longest.max(world.bridge.status(world.now).next_try.expect("it comes back"));
        }
        assert!(longest <= Duration::from_millis(200), "a pause after a first failure, each time: {longest:?}");
    }
}

#[test]
fn the_memory_that_somebody_takes_who_does_not_read_is_bounded() {
    let mut world = World::new(Version::V5, 20);
    while !world.bridge.is_up() {
        world.exchange(usize::MAX);
    }
    // Each message is answered at once, because nothing wants its topic; and no answer is ever read.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    let publish = Publish { delivery, retain: false, topic: "other", properties: Properties::EMPTY, payload: b"" };
    let mut bytes = Vec::new();
    for _ in 0..100_000 {
        let _ = Packet::Publish(publish).encode(Peer::new(Version::V5), &mut bytes);
    }
    let mut rounds = 0;
    while world.bridge.wants_read(BridgeSide::Remote) {
        world.bridge.handle_bytes(BridgeSide::Remote, &bytes, world.now, &mut rng);
        rounds += 1;
        assert!(rounds < 1_000, "{} bytes wait", world.bridge.outputs().1.len());
    }
    assert!(world.bridge.outputs().1.len() < 2 * UNWRITTEN_BYTES_MAX);
}
