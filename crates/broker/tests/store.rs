//! A broker with a store: what it finds when it starts again, and when it does not start at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::sn::SnClient;
use support::{Client, PATIENCE, address, config, connect_packet, listener, start, tcp};
use tidegate_broker::ask::{Answer, Question};
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_broker::store_link::StoreConfig;
use tidegate_broker::{BanKept, Banned, Broker, OperatorSetting};
use tidegate_control::Timestamp;
use tidegate_core::Whom;
use tidegate_core::access::Open;
use tidegate_core::persist::SavedRhythm;
use tidegate_core::settings::Rate;
use tidegate_face_sn::packet::{Packet as SnPacket, Publish as SnPublish, Quality, TopicRef};
use tidegate_store::Durability;
use tidegate_store::disk::{Mirror, MirrorChange};
use tidegate_wire_mqtt::{
    Connect, Delivery, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode, Version, Will,
};

fn kept(dir: &Path, shards: usize) -> Config {
    let store = StoreConfig { dir: dir.to_owned(), durability: Durability::Always, strict: false, size_max: None };
    Config { store: Some(store), shards, ..config() }
}

/// Connects with a session that lasts; whether there was one.
fn lasting(broker: &Broker, client_id: &str, will: Option<Will<'_>>) -> (Client, bool) {
    let mut client = Client::new(tcp(address(broker, ListenerKind::Mqtt)), Version::V5);
    let properties = [Property::SessionExpiry(3600)];
    let properties = Properties::new(&properties);
    client.send(&Connect { clean_start: false, properties, will, ..connect_packet(Version::V5, client_id) });
    let present = client.next(|packet| match packet {
        Packet::ConnAck(connack) if connack.reason == ReasonCode::Success => connack.session_present,
        other => panic!("{other:?}"),
    });
    (client, present)
}

fn publish_kept(client: &mut Client, topic: &str, payload: &str, retain: bool) {
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    client.send(&Publish { delivery, retain, topic, properties: Properties::EMPTY, payload: payload.as_bytes() });
    client.next(|packet| assert!(matches!(packet, Packet::Ack(ack) if !ack.reason.is_failure()), "{packet:?}"));
}

#[test]
fn a_broker_goes_on_where_it_was_with_another_number_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(kept(folder.path(), 3));
    let names: Vec<String> = (0..6).map(|n| format!("reader{n}")).collect();
    for name in &names {
        let (mut reader, present) = lasting(&broker, name, None);
        assert!(!present);
        reader.subscribe("news/#", QoS::AtLeastOnce);
    }
    let (mut sender, _) = lasting(&broker, "sender", None);
    publish_kept(&mut sender, "news/1", "one", false);
    publish_kept(&mut sender, "news/2", "two", true);
    drop(sender);
    broker.shutdown();
    for shards in [1, 4] {
        let broker = start(kept(folder.path(), shards));
        let opening = broker.opening().unwrap();
        assert!(opening.report.is_sound(), "{}", opening.report);
        assert_eq!((opening.restored.sessions, opening.restored.retained), (7, 1));
        broker.shutdown();
    }
    let broker = start(kept(folder.path(), 2));
    for name in &names {
        let (mut reader, present) = lasting(&broker, name, None);
        assert!(present, "{name}");
        assert_eq!((reader.message().payload, reader.message().payload), (b"one".to_vec(), b"two".to_vec()));
    }
    let (mut curious, _) = lasting(&broker, "curious", None);
    curious.subscribe("news/#", QoS::AtMostOnce);
    assert_eq!(curious.message().payload, b"two", "retained");
    broker.shutdown();
}

/// A mirror that keeps everything at once, and is certain of its owner only as long as it is told to be.
#[derive(Debug)]
struct Certain(AtomicBool);

impl Mirror for Certain {
    fn push(&self, _: MirrorChange<'_>, _: bool) -> std::io::Result<u64> {
        Ok(0)
    }

    fn wait(&self, _: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn who_may_have_been_overtaken_says_nothing_not_even_what_needs_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mirror = Arc::new(Certain(AtomicBool::new(true)));
    let broker = start(Config { mirror: Some(Arc::clone(&mirror) as Arc<dyn Mirror>), ..kept(folder.path(), 1) });
    let stream = tcp(address(&broker, ListenerKind::Mqtt));
    let ear = stream.try_clone().unwrap();
    let mut client = Client::new(stream, Version::V5);
    client.send(&connect_packet(Version::V5, "sender"));
    client.next(|packet| assert!(matches!(packet, Packet::ConnAck(_)), "{packet:?}"));
    mirror.0.store(false, Ordering::Relaxed);
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    let publish = Publish { delivery, retain: false, topic: "to/nobody", properties: Properties::EMPTY, payload: b"!" };
    let before = broker.stats().publish_received;
    client.send(&publish);
    while broker.stats().publish_received == before {
        std::thread::yield_now();
    }
    ear.set_nonblocking(true).unwrap();
    let heard = ear.peek(&mut [0; 1]).map_err(|error| error.kind());
    ear.set_nonblocking(false).unwrap();
    assert_eq!(heard, Err(ErrorKind::WouldBlock));
    mirror.0.store(true, Ordering::Relaxed);
    client.next(|packet| assert!(matches!(packet, Packet::Ack(_)), "{packet:?}"));
    broker.shutdown();
}

/// What a connection of datagrams is to hear goes out when it ends, whatever else is held back; and some answers need no connection.
#[test]
fn nor_does_it_over_datagrams_at_the_end_of_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mirror = Arc::new(Certain(AtomicBool::new(true)));
    let listeners = vec![listener(ListenerKind::Mqtt), listener(ListenerKind::Sn)];
    let mirrored = Some(Arc::clone(&mirror) as Arc<dyn Mirror>);
    let broker = start(Config { mirror: mirrored, listeners, ..kept(folder.path(), 1) });
    let sn = address(&broker, ListenerKind::Sn);
    let (client, stranger) = (SnClient::connect(sn, "sender"), SnClient::open(sn));
    let peers = || {
        let metrics = broker.handle().extra_metrics();
        metrics.iter().find(|metric| metric.family == "sn_peers").map(|metric| metric.value)
    };
    let begun = std::time::Instant::now();
    while peers() != Some(1) {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    mirror.0.store(false, Ordering::Relaxed);
    stranger.say(SnPacket::PingReq { client_id: "" });
    let (topic, quality) = (TopicRef::Short(*b"tt"), Quality::Connected(QoS::AtLeastOnce));
    client.say(SnPacket::Publish(SnPublish { dup: false, quality, retain: false, topic, message: 1, payload: b"!" }));
    client.say(SnPacket::Disconnect { seconds: None });
    while peers() != Some(0) {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    while broker.stats().publish_received == 0 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    for silent in [&client, &stranger] {
        silent.0.set_nonblocking(true).unwrap();
        let heard = silent.0.recv(&mut [0; 100]).map_err(|error| error.kind());
        assert_eq!(heard, Err(ErrorKind::WouldBlock));
    }
    broker.shutdown();
}

#[test]
fn a_will_that_waits_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(kept(folder.path(), 1));
    let (mut reader, _) = lasting(&broker, "reader", None);
    reader.subscribe("gone", QoS::AtLeastOnce);
    let delay = [Property::WillDelay(2)];
    let properties = Properties::new(&delay);
    let will = Will { qos: QoS::AtLeastOnce, retain: false, properties, topic: "gone", payload: b"fragile" };
    let (fragile, _) = lasting(&broker, "fragile", Some(will));
    drop((reader, fragile));
    broker.shutdown();
    let broker = start(kept(folder.path(), 1));
    let (mut reader, present) = lasting(&broker, "reader", None);
    assert!(present);
    assert_eq!(reader.message().payload, b"fragile");
    broker.shutdown();
}

#[test]
fn a_will_that_is_due_at_a_start_reaches_those_who_come_back_after_its_session() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let broker = start(kept(folder.path(), shards));
        let will = Will {
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: Properties::EMPTY,
            topic: "gone",
            payload: b"fragile",
        };
        let (fragile, _) = lasting(&broker, "fragile", Some(will));
        let names: Vec<String> = (0..4).map(|n| format!("reader{n}")).collect();
        for name in &names {
            lasting(&broker, name, None).0.subscribe("gone", QoS::AtLeastOnce);
        }
        // As kill -9 would leave it: the client was connected to the end, and its will is due when the broker is back.
        broker.handle().backup(&folder.path().join("copy")).unwrap();
        drop(fragile);
        broker.shutdown();
        let broker = start(kept(&folder.path().join("copy"), shards));
        for name in &names {
            assert_eq!(lasting(&broker, name, None).0.message().payload, b"fragile", "{name} of {shards} shards");
        }
        broker.shutdown();
    }
}

#[test]
fn bans_outlive_the_process_until_they_end_or_are_lifted() {
    let folder = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let banned = ["a", "b", "c"].map(|name| Banned::Client(name.to_owned()));
    let broker = start(kept(folder.path(), 2));
    for whom in &banned {
        assert_eq!(broker.handle().ban(whom, hour, "a test"), Some(BanKept::Yes));
    }
    assert_eq!(broker.handle().unban(&banned[1]), Some(BanKept::Yes));
    assert!(broker.ban(&banned[2], Duration::from_millis(1), "a shorter one does not count"));
    broker.shutdown();
    for _ in 0..2 {
        let broker = start(kept(folder.path(), 1));
        assert_eq!(broker.opening().unwrap().restored.bans, 2);
        let bans = broker.bans();
        assert_eq!(bans.iter().map(|ban| &ban.whom).collect::<Vec<_>>(), [&banned[0], &banned[2]]);
        assert!(bans.iter().all(|ban| ban.left <= hour && ban.left > hour / 2 && ban.reason == "a test"), "{bans:?}");
        broker.shutdown();
    }
    let broker = start(Config { store: None, ..kept(folder.path(), 1) });
    assert_eq!(broker.handle().ban(&banned[0], hour, "a test"), Some(BanKept::No), "there is nowhere to keep it");
    broker.shutdown();
}

#[test]
fn limits_and_grants_outlive_the_process_until_they_are_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let rate = |count| Rate::new(count, Duration::from_secs(1), count);
    let [client, user] = [Whom::Client("gateway".into()), Whom::User("fleet".into())];
    let broker = start(kept(folder.path(), 2));
    let handle = broker.handle();
    assert_eq!(handle.set_rate(OperatorSetting::Grant, &client, Some(rate(500))), Some(BanKept::Yes));
    assert_eq!(handle.set_rate(OperatorSetting::Limit, &user, Some(rate(20))), Some(BanKept::Yes));
    assert_eq!(handle.set_rate(OperatorSetting::Limit, &client, Some(rate(9))), Some(BanKept::Yes));
    assert_eq!(handle.set_rate(OperatorSetting::Limit, &client, None), Some(BanKept::Yes));
    broker.shutdown();
    for _ in 0..2 {
        let broker = start(kept(folder.path(), 1));
        assert_eq!(broker.handle().rates(OperatorSetting::Grant), [(client.clone(), rate(500))]);
        assert_eq!(broker.handle().rates(OperatorSetting::Limit), [(user.clone(), rate(20))]);
        broker.shutdown();
    }
}

/// A broker whose clock stands still until it is moved, with what is kept here.
fn by_hand(folder: &Path, shards: usize) -> Broker {
    Broker::start_by_hand(kept(folder, shards), std::sync::Arc::new(Anonymous), std::sync::Arc::new(Open)).unwrap()
}

/// Whether the latest message of a client was entitled, and what it is granted.
fn standing(broker: &Broker, client_id: &str) -> (bool, Option<f64>) {
    let (handle, (reply, answer)) = (broker.handle(), std::sync::mpsc::sync_channel(1));
    let question = Question::Client { client_id: client_id.into() };
    handle.ask(handle.shard_of(client_id), question, move |answer| drop(reply.try_send(answer))).unwrap();
    let Answer::Client(Some(detail)) = answer.recv_timeout(support::PATIENCE).unwrap() else { panic!("nobody") };
    let publisher = detail.client.publisher.unwrap();
    (publisher.is_entitled, publisher.granted)
}

#[test]
fn after_a_restart_a_limit_allows_exactly_its_rate_and_a_grant_entitles_to_exactly_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    let rate = |count| Some(Rate::new(count, Duration::from_secs(1), count));
    let broker = start(kept(folder.path(), 2));
    broker.handle().set_rate(OperatorSetting::Limit, &Whom::Client("meter".into()), rate(10));
    broker.handle().set_rate(OperatorSetting::Grant, &Whom::Client("gateway".into()), rate(50));
    broker.shutdown();

    let broker = by_hand(folder.path(), 1);
    let (mut meter, _) = lasting(&broker, "meter", None);
    // A second of it at once, then one every tenth: each is acknowledged while the clock stands still.
    (0..10).for_each(|_| publish_kept(&mut meter, "t", "x", false));
    for _ in 0..20 {
        broker.advance(Duration::from_millis(100));
        publish_kept(&mut meter, "t", "x", false);
    }
    // One more waits: what comes behind it is answered first.
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    let one_more = Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload: b"x" };
    meter.send(&one_more);
    meter.send(&Packet::PingReq);
    meter.next(|packet| assert!(matches!(packet, Packet::PingResp), "{packet:?}"));
    broker.advance(Duration::from_millis(100));
    meter.next(|packet| assert!(matches!(packet, Packet::Ack(ack) if !ack.reason.is_failure()), "{packet:?}"));

    // 8 and a second of the grant are entitled at once, and no more.
    let (mut gateway, _) = lasting(&broker, "gateway", None);
    (0..58).for_each(|_| publish_kept(&mut gateway, "t", "x", false));
    assert_eq!(standing(&broker, "gateway"), (true, Some(50.0)));
    publish_kept(&mut gateway, "t", "x", false);
    assert!(!standing(&broker, "gateway").0);
    // Tokens come at twice the rate, as for what is learned.
    broker.advance(Duration::from_millis(100));
    (0..10).for_each(|_| publish_kept(&mut gateway, "t", "x", false));
    assert!(standing(&broker, "gateway").0);
    publish_kept(&mut gateway, "t", "x", false);
    assert!(!standing(&broker, "gateway").0);
    // By a clock that stands still nobody is waited for in vain.
    drop((meter, gateway));
    broker.shutdown();
}

#[test]
fn a_rhythm_that_was_learned_is_known_after_an_orderly_restart() {
    let folder = tempfile::tempdir().unwrap();
    let broker = by_hand(folder.path(), 2);
    let (mut sender, _) = lasting(&broker, "sender", None);
    for _ in 0..40 {
        publish_kept(&mut sender, "t", "x", false);
        broker.advance(Duration::from_secs(10));
    }
    drop(sender);
    broker.shutdown();
    let broker = by_hand(folder.path(), 1);
    assert_eq!(broker.opening().unwrap().restored.rhythms, 1);
    broker.shutdown();
}

#[test]
fn what_a_tool_writes_as_learned_is_known_to_a_broker_that_starts_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let saved = |number: u32| SavedRhythm {
        key: format!("4[7f, 01, 03] device-{number}"),
        interval: Duration::from_millis(200),
        batch: 2,
        last_at: Timestamp::from_secs_f64(74.9),
    };
    let learned: Vec<SavedRhythm> = (0..2500).map(saved).collect();
    tidegate_broker::store_link::write_learned(folder.path(), &learned, Timestamp::from_secs_f64(75.0)).unwrap();
    let broker = start(kept(folder.path(), 2));
    assert_eq!(broker.opening().unwrap().restored.rhythms, 2500);
    assert!(broker.opening().unwrap().report.is_sound(), "{:?}", broker.opening());
    broker.shutdown();
}

#[test]
fn f117_f119_a_store_that_cannot_be_used_is_named_and_nobody_starts() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let broker = start(kept(&dir, 1));
    let refused = |dir: &Path| {
        let started = Broker::start(kept(dir, 1), std::sync::Arc::new(Anonymous), std::sync::Arc::new(Open));
        started.map(drop).unwrap_err().to_string()
    };
    let second = refused(&dir);
    assert!(second.contains(&dir.display().to_string()), "{second}");
    assert!(second.contains(&format!("in use by process {}", std::process::id())), "{second}");
    broker.shutdown();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let wrong = refused(&file.join("store"));
    assert!(wrong.contains("cannot create the directory") && wrong.contains("file"), "{wrong}");
}

#[test]
fn a_copy_of_a_running_broker_is_a_broker() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let broker = start(kept(&dir, 2));
    let (mut reader, _) = lasting(&broker, "reader", None);
    reader.subscribe("t", QoS::AtLeastOnce);
    let (mut sender, _) = lasting(&broker, "sender", None);
    publish_kept(&mut sender, "t", "kept", true);
    let report = broker.handle().backup(&copy).unwrap();
    assert!(report.is_sound(), "{report}");
    assert!(broker.handle().store().unwrap().metrics.groups > 0);
    let twin = start(kept(&copy, 1));
    assert_eq!(twin.opening().unwrap().restored.sessions, 2);
    twin.shutdown();
    broker.shutdown();
}
