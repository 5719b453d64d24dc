//! A guard in virtual time: bytes in pieces of any size, a receiver that is slower than what comes, and limits.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::time::Duration;

use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::{Rate, Settings};
use tidegate_core::{ConnId, Portion, Shard, Then, Whom};
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Delivery, Encode, Packet, PacketId, Peer, Properties, Property, Publish, Version,
};

use crate::{GuardHello, GuardShard, NextDown, Origins, PINGREQ};

const ALIAS: NonZeroU16 = NonZeroU16::MIN;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos((1_000_000 + millis) * 1_000_000)
}

struct World {
    shard: Shard,
    origins: Origins,
    now: Timestamp,
}

impl World {
    fn new(settings: Settings) -> Self {
        Self { shard: Shard::new(0, 1, Arc::new(settings), Arc::new(Open), 7), origins: Origins::new(7), now: at(0) }
    }

    fn client(&mut self, id: &str, version: Version, properties: &[Property<'_>]) -> ConnId {
        let connect = Connect {
            version,
            is_bridge: false,
            clean_start: true,
            keep_alive: 60,
            properties: Properties::new(properties),
            client_id: id,
            will: None,
            user_name: None,
            password: None,
        };
        let hello = GuardHello { connect: &connect, bytes: 20, client_id: id, identity: Identity::default() };
        let conn = self.shard.handle_admitted(&hello, self.now).unwrap();
        assert_eq!(self.written(conn, usize::MAX), [], "a guard says nothing of its own");
        conn
    }

    /// What goes on of these bytes to the broker behind, and what became of the connection.
    fn up(&mut self, conn: ConnId, bytes: &[u8]) -> (usize, Then) {
        let portion = Portion { since: self.now, dry_at: self.now, units: u32::MAX };
        let (progress, passed) = self.shard.pass_portion(conn, bytes, &portion, &self.origins, self.now);
        assert!(progress.then == Then::Close || passed == progress.consumed);
        (passed, progress.then)
    }

    fn down(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.shard.pass_down(conn, bytes, &self.origins, self.now).consumed
    }

    /// The client takes so many bytes.
    fn written(&mut self, conn: ConnId, most: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        loop {
            let slices = self.shard.outbox(conn);
            let shown = slices.concat();
            let now = shown.len().min(most - taken.len());
            taken.extend_from_slice(&shown[..now]);
            if shown.is_empty() || now < shown.len() {
                self.shard.handle_written(conn, now, self.now);
                break;
            }
            self.shard.handle_written(conn, now, self.now);
        }
        while self.shard.poll_write().is_some() {}
        taken
    }
}

fn publish(version: Version, topic: &str, delivery: Delivery, properties: &[Property<'_>], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let properties = Properties::new(properties);
    let _ = Publish { delivery, retain: false, topic, properties, payload }.encode(Peer::new(version), &mut out);
    out
}

fn numbered(number: u16) -> Delivery {
    Delivery::AtLeastOnce { packet_id: PacketId::new(number).unwrap(), dup: false }
}

/// The topics and payloads of the messages in these bytes.
fn messages(mut bytes: &[u8]) -> Vec<(String, String)> {
    use crate::frame::{Front, Seen, front};
    let mut found = Vec::new();
    while let Front::Packet(head) = front(bytes)
        && head.total <= bytes.len()
    {
        if let (3, Seen::Known(publish)) = (head.kind, head.publish(bytes, Version::V311)) {
            let topic = core::str::from_utf8(publish.topic).unwrap().to_string();
            let payload = &bytes[head.body_at + 2 + topic.len()..head.total];
            // With a number before it, if it has one.
            found.push((topic, String::from_utf8_lossy(payload).into_owned()));
        }
        bytes = &bytes[head.total..];
    }
    found
}

fn a_stream(version: Version) -> Vec<u8> {
    let mut stream = publish(version, "a/b", Delivery::AtMostOnce, &[], b"one");
    stream.extend(publish(version, "a/c", numbered(1), &[], &[b'x'; 3000]));
    stream.extend_from_slice(&PINGREQ);
    let _ = Packet::Ack(Ack::success(AckKind::PubAck, PacketId::MIN)).encode(Peer::new(version), &mut stream);
    if version == Version::V5 {
        stream.extend(publish(version, "long/topic", Delivery::AtMostOnce, &[Property::TopicAlias(ALIAS)], b"two"));
        stream.extend(publish(version, "", Delivery::AtMostOnce, &[Property::TopicAlias(ALIAS)], b"three"));
    }
    stream.extend_from_slice(b"\xe0\x00");
    stream
}

proptest! {
    /// Whatever pieces they come in, the bytes that go on are the bytes that came, and messages are counted once.
    #[test]
    fn bytes_of_clients_pass_untouched(cuts in prop::collection::vec(1_usize..500, 0..40), is_v5: bool) {
        let version = if is_v5 { Version::V5 } else { Version::V311 };
        let mut world = World::new(Settings::default());
        let conn = world.client("c", version, &[]);
        let (stream, mut kept, mut passed, mut from) = (a_stream(version), Vec::new(), Vec::new(), 0_usize);
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let to = from.saturating_add(cut).min(stream.len()).max(from);
            kept.extend_from_slice(&stream[from..to]);
            from = to;
            let (used, then) = world.up(conn, &kept);
            prop_assert_eq!(then, Then::Continue);
            passed.extend(kept.drain(..used));
        }
        prop_assert_eq!(passed, stream);
        prop_assert_eq!(world.shard.stats().publish_passed, if is_v5 { 4 } else { 2 });
        prop_assert!(world.shard.audit().is_ok());
    }

    /// The same the other way, for a client that takes what it is given.
    #[test]
    fn bytes_for_clients_pass_untouched_and_in_order(cuts in prop::collection::vec(1_usize..500, 0..40), is_v5: bool) {
        let version = if is_v5 { Version::V5 } else { Version::V311 };
        let mut world = World::new(Settings::default());
        let conn = world.client("c", version, &[Property::TopicAliasMaximum(10)]);
        let (stream, mut kept, mut taken, mut from) = (a_stream(version), Vec::new(), Vec::new(), 0_usize);
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let to = from.saturating_add(cut).min(stream.len()).max(from);
            kept.extend_from_slice(&stream[from..to]);
            from = to;
            let used = world.down(conn, &kept);
            kept.drain(..used);
            taken.extend(world.written(conn, usize::MAX));
        }
        prop_assert_eq!(taken, stream);
        prop_assert!(world.shard.audit().is_ok());
    }

    /// A slow receiver, a flooder, and others: what arrives of each topic arrives in order, once; the queue is bounded;
    /// nothing of QoS 1 is lost, and it balances.
    #[test]
    fn a_slow_receiver_gets_topics_in_order_and_loses_none_that_was_promised(
        steps in prop::collection::vec((0_u8..12, 0_usize..400), 50..300),
    ) {
        let settings = Settings { queue_messages_max: 30, outbox_bytes_max: 2048, ..Settings::default() };
        let mut world = World::new(settings);
        let receiver = world.client("slow", Version::V311, &[]);
        let flooder = world.client("flood", Version::V311, &[]);
        let others: Vec<ConnId> = (0..4).map(|n| world.client(&format!("o{n}"), Version::V311, &[])).collect();
        let (mut sent, mut taken, mut promised, mut kept) = (0_u32, Vec::new(), 0, Vec::new());
        for (who, takes) in steps {
            world.now = world.now + Duration::from_millis(5);
            let (conn, topic) = match who {
                0..4 => (others[who as usize], format!("t/o{who}")),
                4 => (others[0], "t/shared".to_string()),
                _ => (flooder, if who % 2 == 0 { "t/shared".to_string() } else { "t/flood".to_string() }),
            };
            sent += 1;
            let payload = format!("{sent:06}");
            let delivery = if who == 3 { numbered(sent as u16) } else { Delivery::AtMostOnce };
            promised += u32::from(who == 3);
            let packet = publish(Version::V311, &topic, delivery, &[], payload.as_bytes());
            prop_assert_eq!(world.up(conn, &packet).0, packet.len());
            // The broker behind has one subscriber, and sends everything on.
            kept.extend_from_slice(&packet);
            let used = world.down(receiver, &kept);
            kept.drain(..used);
            taken.extend(world.written(receiver, takes));
            prop_assert!(world.shard.audit().is_ok());
        }
        for _ in 0..200 {
            world.now = world.now + Duration::from_millis(5);
            let used = world.down(receiver, &kept);
            kept.drain(..used);
            taken.extend(world.written(receiver, 4096));
        }
        prop_assert_eq!(kept, Vec::<u8>::new());
        let arrived = messages(&taken);
        let mut last = std::collections::BTreeMap::new();
        for (topic, payload) in &arrived {
            // QoS 1 has a number before its payload, and a topic of its own.
            let number = payload.get(payload.len() - 6..).unwrap().to_string();
            if let Some(before) = last.insert(topic.clone(), number.clone()) {
                prop_assert!(before < number, "{} after {}", number, before);
            }
        }
        let kept_promises = arrived.iter().filter(|(topic, _)| topic == "t/o3").count();
        prop_assert_eq!(kept_promises as u32, promised);
    }
}

#[test]
fn a_flooder_into_a_slow_receiver_loses_its_own_messages_and_not_those_of_others() {
    let mut world = World::new(Settings::default());
    let receiver = world.client("slow", Version::V311, &[]);
    let flooder = world.client("flood", Version::V311, &[]);
    let others: Vec<ConnId> = (0..20).map(|n| world.client(&format!("other-{n}"), Version::V311, &[])).collect();
    let (mut taken, mut sent) = (Vec::new(), 0);
    let payload = [b'.'; 64];
    // 90 s: a minute to be learned, each other once a second, then the flood.
    for step in 0..9000_u64 {
        world.now = at(step * 10);
        let mut wave = Vec::new();
        for (n, &other) in others.iter().enumerate() {
            if step as usize % 100 == n {
                let packet = publish(Version::V311, &format!("t/other/{n}"), Delivery::AtMostOnce, &[], &payload);
                assert_eq!(world.up(other, &packet).0, packet.len());
                wave.extend(packet);
                sent += 1;
            }
        }
        if step >= 6500 {
            for _ in 0..200 {
                let packet = publish(Version::V311, "t/flood", Delivery::AtMostOnce, &[], &payload);
                let _ = world.up(flooder, &packet);
                wave.extend(packet);
            }
        }
        assert_eq!(world.down(receiver, &wave), wave.len(), "what comes from behind is always taken");
        // 500 of these messages a second.
        taken.extend(world.written(receiver, 5 * 75));
        world.shard.turn(world.now);
    }
    let arrived = messages(&taken);
    let of_others = arrived.iter().filter(|(topic, _)| topic.starts_with("t/other")).count() as u32;
    // Those of the last moment are still on their way.
    assert!(of_others + 2 >= sent, "{of_others} of {sent} arrived");
    assert!(arrived.len() as u32 > of_others, "the flooder has what is left");
    assert!(world.shard.audit().is_ok());
}

/// How many of many messages pass in this time at this limit; looked at as often as a driver does.
fn passed_at(limit: Rate, seconds: u64) -> usize {
    let mut world = World::new(Settings::default());
    let whom = Whom::Client("meter".into());
    world.shard.set_limit(&whom, Some(limit), world.now).unwrap();
    let conn = world.client("meter", Version::V5, &[]);
    let packet = publish(Version::V5, "m", numbered(1), &[], b"x");
    let (mut waiting, mut passed) = (packet.repeat(1000), 0);
    for step in 0..seconds * 100 {
        world.now = at(step * 10);
        world.shard.turn(world.now);
        if world.shard.may_read(conn) {
            let (used, then) = world.up(conn, &waiting);
            assert!(then != Then::Close);
            assert_eq!(used % packet.len(), 0);
            passed += used / packet.len();
            waiting.drain(..used);
        }
    }
    assert!(world.shard.audit().is_ok());
    passed
}

#[test]
fn a_limit_makes_a_client_wait_and_nothing_of_it_is_lost() {
    let passed = passed_at(Rate::new(10, Duration::from_secs(1), 1), 30);
    assert!((250..=330).contains(&passed), "{passed} in 30 s at 10 a second");
    // Waiting for long is no reason to be let through, nor to be ended: nobody has told the client anything.
    let passed = passed_at(Rate::new(1, Duration::from_secs(60), 1), 1800);
    assert!((29..=31).contains(&passed), "{passed} in 30 minutes at one a minute");
}

#[test]
fn signs_of_life_that_the_client_did_not_ask_for_are_not_for_it() {
    let mut world = World::new(Settings::default());
    let conn = world.client("c", Version::V311, &[]);
    assert!(world.shard.may_ping(conn));
    assert_eq!(world.down(conn, b"\xd0\x00\xd0\x00"), 4);
    assert_eq!(world.written(conn, usize::MAX), b"\xd0\x00");
}

#[test]
fn garbage_from_behind_is_named_and_a_large_packet_is_waited_for() {
    let mut world = World::new(Settings::default());
    let conn = world.client("c", Version::V311, &[]);
    let handed = world.shard.pass_down(conn, b"\x30\xff\xff\xff\xff\xff", &world.origins, world.now);
    assert_eq!(handed.next, NextDown::Garbage);
    let handed = world.shard.pass_down(conn, b"\x30\xff\xff\x03rest", &world.origins, world.now);
    assert_eq!((handed.consumed, handed.at_least, handed.next), (0, 4 + 0xffff, NextDown::More));
}

#[test]
fn nothing_is_said_after_the_last_word_of_the_broker_behind() {
    let mut world = World::new(Settings::default());
    let conn = world.client("c", Version::V5, &[]);
    assert_eq!(world.down(conn, b"\xe0\x01\x8e"), 3);
    // Somebody of the same name comes in before the end of the connection is seen.
    world.client("c", Version::V5, &[]);
    assert_eq!(world.written(conn, usize::MAX), b"\xe0\x01\x8e");
}

#[test]
fn the_end_of_the_broker_behind_is_told_where_there_is_a_word_for_it() {
    let mut world = World::new(Settings::default());
    let (old, new) = (world.client("old", Version::V311, &[]), world.client("new", Version::V5, &[]));
    for conn in [old, new] {
        world.shard.handle_upstream_end(conn, Why::UpstreamLost, world.now);
    }
    assert_eq!(world.written(old, usize::MAX), []);
    assert_eq!(world.written(new, usize::MAX)[..3].to_vec()[0], 0xe0);
    let other = world.client("other", Version::V5, &[]);
    world.shard.handle_upstream_end(other, Why::UpstreamClosed, world.now);
    assert_eq!(world.written(other, usize::MAX), [], "its own last word, or none");
    let mut closed = Vec::new();
    while let Some(conn) = world.shard.poll_close() {
        closed.push(conn);
    }
    assert_eq!(closed.len(), 3);
}
