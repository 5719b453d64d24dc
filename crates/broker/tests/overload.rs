//! Overload through real sockets: the paper's table by a clock that is set by hand, bans, limits, passwords, memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{Client, address, config, connect_packet, publish, start, start_with, tcp};
use tidegate_broker::authenticate::{Anonymous, Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_broker::{Banned, Broker, NotAsked};
use tidegate_control::rhythm::{RhythmConfig, RhythmRule};
use tidegate_core::Whom;
use tidegate_core::access::Open;
use tidegate_core::classes::{ClassBy, Priority, PriorityMode};
use tidegate_core::settings::{BackOff, Rate, Settings};
use tidegate_wire_mqtt::{
    Connect, Delivery, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode, Version,
};

const SECOND: Duration = Duration::from_secs(1);

fn by_hand(config: Config) -> Broker {
    Broker::start_by_hand(config, Arc::new(Anonymous), Arc::new(Open)).unwrap()
}

#[test]
fn table_1_of_the_paper_through_a_socket() {
    for (millis, delay) in [(3000, 1340), (1500, 1820), (1000, 2710), (750, 3660), (600, 4950), (500, 7380)] {
        let rhythm = Some(RhythmConfig { rule: RhythmRule::PaperTable, ..RhythmConfig::default() });
        let settings = Settings { back_off: BackOff { rhythm, ..BackOff::default() }, ..Settings::default() };
        let broker = by_hand(Config { shards: 1, settings, ..config() });
        let address = address(&broker, ListenerKind::Mqtt);
        let (mut sender, mut reader) =
            (Client::tcp(address, Version::V311, "sender"), Client::tcp(address, Version::V311, "reader"));
        // Four messages, six seconds apart; a ping comes back when what was sent before it is dealt with.
        for message in 0..4 {
            if message > 0 {
                broker.advance(6 * SECOND);
            }
            sender.publish("t", b"learning");
            sender.ping();
        }
        reader.subscribe("t", QoS::AtMostOnce);
        broker.advance(Duration::from_millis(millis));
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        sender.send(&Publish { delivery, ..publish("t", b"early") });
        sender.ping();
        broker.advance(Duration::from_millis(delay - 1));
        // The second ping would come after the message, if that had been released with the first.
        reader.ping();
        reader.ping();
        sender.ping();
        broker.advance(Duration::from_millis(1));
        assert_eq!(reader.message().payload, b"early", "{millis} ms");
        sender.next(|packet| assert!(matches!(packet, Packet::Ack(_)), "{packet:?}"));
        // Whoever stays is waited for, and this clock does not move.
        drop((sender, reader));
        broker.shutdown();
    }
}

/// Whoever published least is served first, from its first message on (Algorithm 2).
#[test]
fn algorithm_2_of_the_paper_through_a_socket() {
    let rhythm = Some(RhythmConfig { rule: RhythmRule::Paper, ..RhythmConfig::default() });
    let priority = Priority { mode: PriorityMode::Paper, by: ClassBy::Rank, ..Priority::default() };
    let settings = Settings { back_off: BackOff { rhythm, ..BackOff::default() }, priority, ..Settings::default() };
    let broker = by_hand(Config { shards: 1, settings, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let properties = [Property::SessionExpiry(3600)];
    let keep = Connect { properties: Properties::new(&properties), ..connect_packet(Version::V5, "reader") };
    let mut reader = Client::new(tcp(address), Version::V5);
    reader.send(&keep);
    assert_eq!(reader.connack(), ReasonCode::Success);
    reader.subscribe("t", QoS::AtLeastOnce);
    drop(reader);
    let mut senders =
        ["learner", "every second", "every 2 s", "every 4 s"].map(|id| (id, Client::tcp(address, Version::V5, id)));
    let mut say = |sender: usize, payload: &[u8]| {
        let (id, client) = &mut senders[sender];
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        client.send(&Publish { delivery, ..publish(if payload.is_empty() { id } else { "t" }, payload) });
        client.next(|packet| assert!(matches!(packet, Packet::Ack(_)), "{packet:?}"));
    };
    // Four messages each at their own pace, to topics that nobody wants; the learner has sent none.
    for second in 0..=12 {
        (1..4).filter(|sender| second % (1 << (sender - 1)) == 0).for_each(|sender| say(sender, b""));
        broker.advance(SECOND);
    }
    broker.advance(4 * SECOND);
    for (sender, payload) in [b"learner", b"1 s    ", b"2 s    ", b"4 s    "].into_iter().enumerate() {
        say(sender, payload);
    }
    let mut reader = Client::new(tcp(address), Version::V5);
    reader.send(&Connect { clean_start: false, ..keep });
    assert_eq!(reader.connack(), ReasonCode::Success);
    let order: Vec<String> = (0..4).map(|_| String::from_utf8(reader.message().payload).unwrap()).collect();
    assert_eq!(order, ["learner", "4 s    ", "2 s    ", "1 s    "]);
    drop((senders, reader));
    broker.shutdown();
}

/// Says hello and tells what came back: the reason and the time to stay away.
fn knock(address: std::net::SocketAddr, packet: &Connect<'_>) -> (ReasonCode, Option<u64>) {
    let mut client = Client::new(tcp(address), Version::V5);
    client.send(packet);
    client.next(|packet| match packet {
        Packet::ConnAck(connack) => {
            let mut words = connack.properties.user_properties();
            let retry = words.find(|(name, _)| *name == "pace-retry-after-ms");
            (connack.reason, retry.and_then(|(_, text)| text.parse().ok()))
        }
        other => panic!("{other:?} instead of a CONNACK"),
    })
}

#[test]
fn f136_a_ban_ends_connections_is_told_and_expires() {
    let broker = by_hand(config());
    let address = address(&broker, ListenerKind::Mqtt);
    for (whom, is_local) in [
        (Banned::Client("client1".into()), false),
        (Banned::Network("127.0.0.0".parse().unwrap(), 8), true),
        (Banned::Network("::ffff:127.0.0.1".parse().unwrap(), 32), true),
    ] {
        let (mut client, mut other) =
            (Client::tcp(address, Version::V5, "client1"), Client::tcp(address, Version::V5, "client2"));
        assert!(broker.ban(&whom, 60 * SECOND, "a test"));
        assert_eq!(client.disconnect_reason(), ReasonCode::AdministrativeAction);
        assert_eq!(broker.bans().len(), 1);
        assert_eq!(broker.bans()[0].left, 60 * SECOND);
        let (reason, retry_after) = knock(address, &connect_packet(Version::V5, "client1"));
        assert_eq!((reason, retry_after), (ReasonCode::Banned, Some(60_000)));
        if is_local {
            assert_eq!(other.disconnect_reason(), ReasonCode::AdministrativeAction);
        } else {
            other.ping();
        }
        broker.advance(60 * SECOND);
        assert!(broker.bans().is_empty());
        assert_eq!(knock(address, &connect_packet(Version::V5, "client1")).0, ReasonCode::Success);
    }
    assert!(broker.ban(&Banned::Client("x".into()), 60 * SECOND, "a test"));
    assert!(broker.unban(&Banned::Client("x".into())) && !broker.unban(&Banned::Client("x".into())));
    assert_eq!(knock(address, &connect_packet(Version::V5, "x")).0, ReasonCode::Success);
    broker.shutdown();
}

#[test]
fn a_limit_is_kept_on_the_shard_of_its_client() {
    let broker = by_hand(config());
    let address = address(&broker, ListenerKind::Mqtt);
    for id in ["client1", "client2", "client3"] {
        let whom = Whom::Client(id.into());
        assert!(broker.set_limit(&whom, Some(Rate::new(3, SECOND, 3))));
        assert_eq!(broker.limits().len(), 1);
        let mut client = Client::tcp(address, Version::V5, id);
        client.subscribe(id, QoS::AtMostOnce);
        (0..4).for_each(|_| client.publish(id, b"x"));
        (0..3).for_each(|_| assert_eq!(client.message().payload, b"x"));
        // The fourth waits a third of a second.
        client.ping();
        broker.advance(Duration::from_millis(334));
        assert_eq!(client.message().payload, b"x");
        assert!(broker.set_limit(&whom, None) && broker.limits().is_empty());
    }
    broker.shutdown();
}

/// Knows one password, and counts how often it was asked.
#[derive(Debug, Default)]
struct Slow(AtomicUsize);

impl Authenticator for Slow {
    fn is_slow(&self, _: &Credentials) -> bool {
        true
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.0.fetch_add(1, Ordering::SeqCst);
        match &credentials.password {
            Some(password) if password == b"right" => Ok(credentials.user_name.as_deref().map(Arc::from)),
            _ => Err(LoginRefusal::BadUserNameOrPassword),
        }
    }
}

#[test]
fn f065_wrong_passwords_are_not_looked_at_after_a_few_and_others_get_in() {
    let slow = Arc::new(Slow::default());
    let broker = start_with(config(), Arc::clone(&slow) as Arc<dyn Authenticator>);
    let address = address(&broker, ListenerKind::Mqtt);
    let hello = |user, password| Connect {
        user_name: Some(user),
        password: Some(password),
        ..connect_packet(Version::V5, "client1")
    };
    let mut waits = 0;
    for _ in 0..100 {
        let (reason, retry_after) = knock(address, &hello("ann", b"wrong"));
        match reason {
            ReasonCode::BadUserNameOrPassword => {}
            ReasonCode::ConnectionRateExceeded => waits += u64::from(retry_after.is_some()),
            other => panic!("{other:?}"),
        }
    }
    let asked = slow.0.load(Ordering::SeqCst);
    // A slow machine may take some seconds for this, and each second may cost another look.
    assert!((5..40).contains(&asked) && waits > 60, "{asked} {waits}");
    assert_eq!(knock(address, &hello("bob", b"right")).0, ReasonCode::Success);
    broker.shutdown();
}

#[test]
fn f132_a_password_that_was_right_is_let_in_again_whatever_wrong_ones_came_and_without_a_hash() {
    let slow = Arc::new(Slow::default());
    let broker = start_with(config(), Arc::clone(&slow) as Arc<dyn Authenticator>);
    let address = address(&broker, ListenerKind::Mqtt);
    let hello = |user, password| Connect {
        user_name: Some(user),
        password: Some(password),
        ..connect_packet(Version::V5, "client1")
    };
    assert_eq!(knock(address, &hello("fleet", b"right")).0, ReasonCode::Success);
    let is_paused = || knock(address, &hello("fleet", b"wrong")).0 == ReasonCode::ConnectionRateExceeded;
    assert!((0..100).any(|_| is_paused()));
    let asked = slow.0.load(Ordering::SeqCst);
    for _ in 0..10 {
        assert_eq!(knock(address, &hello("fleet", b"right")).0, ReasonCode::Success);
    }
    assert_eq!(slow.0.load(Ordering::SeqCst), asked);
    broker.shutdown();
}

#[test]
fn f065_an_operators_wrong_passwords_have_the_same_pauses() {
    let slow: Arc<dyn Authenticator> = Arc::new(Slow::default());
    let broker = start_with(config(), Arc::clone(&slow));
    let handle = broker.handle();
    let ask = |user: &str, from: [u8; 4]| {
        let credentials = Credentials {
            client_id: String::new(),
            user_name: Some(user.into()),
            password: Some(b"wrong".to_vec()),
            ..Credentials::default()
        };
        let (reply, answer) = std::sync::mpsc::channel();
        handle
            .authenticate(Arc::clone(&slow), credentials, from.into(), move |verdict| reply.send(verdict).unwrap())?;
        assert!(answer.recv().unwrap().is_err());
        Ok(())
    };
    assert!((0..100).any(|_| matches!(ask("ann", [10, 0, 0, 1]), Err(NotAsked::Wait(_)))));
    assert_eq!(ask("bob", [10, 0, 0, 1]), Ok(()));
    assert_eq!(ask("ann", [10, 0, 0, 2]), Ok(()));
    broker.shutdown();
}

/// Answers when it is told to.
#[derive(Debug, Default)]
struct Gate(std::sync::Mutex<()>);

impl Authenticator for Gate {
    fn is_slow(&self, _: &Credentials) -> bool {
        true
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        drop(self.0.lock().unwrap());
        Ok(credentials.user_name.as_deref().map(Arc::from))
    }
}

#[test]
fn f065_three_hundred_right_passwords_at_once_are_all_let_in() {
    let gate = Arc::new(Gate::default());
    let broker = start_with(config(), Arc::clone(&gate) as Arc<dyn Authenticator>);
    let address = address(&broker, ListenerKind::Mqtt);
    let closed = gate.0.lock().unwrap();
    let names: Vec<String> = (0..300).map(|n| format!("client{n}")).collect();
    let mut clients: Vec<Client> = Vec::new();
    for name in &names {
        let mut client = Client::new(tcp(address), Version::V5);
        let hello = Connect { user_name: Some(name), password: Some(b"right"), ..connect_packet(Version::V5, name) };
        client.send(&hello);
        clients.push(client);
    }
    drop(closed);
    for client in &mut clients {
        client.next(|packet| match packet {
            Packet::ConnAck(connack) => assert_eq!(connack.reason, ReasonCode::Success),
            other => panic!("{other:?} instead of a CONNACK"),
        });
    }
    drop(clients);
    broker.shutdown();
}

#[test]
fn f062_silent_sockets_fill_the_handshakes_and_hold_up_nobody_inside() {
    let broker = start(Config { handshakes_max: 16, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut client = Client::tcp(address, Version::V311, "inside");
    let silent: Vec<_> = (0..300).map(|_| tcp(address)).collect();
    (0..50).for_each(|_| client.ping());
    assert!(broker.sockets() <= 17, "{}", broker.sockets());
    drop(silent);
    Client::tcp(address, Version::V311, "outside").ping();
    broker.shutdown();
}

const ROLE: &str = "TIDEGATE_TEST_ROLE";

/// Runs `many_descriptors` in a process of its own, which may have enough of them.
#[test]
fn f064_descriptors_beyond_1024_are_like_others() {
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 4000 && exec \"$0\" --exact many_descriptors --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, "many descriptors")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn many_descriptors() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut clients: Vec<Client> =
        (0..1100).map(|n| Client::tcp(address, Version::V311, &format!("client{n}"))).collect();
    clients.iter_mut().for_each(Client::ping);
    broker.shutdown();
}

/// What the kernel says is there, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn f066_ten_times_the_budget_is_lost_by_name_and_newcomers_find_room() {
    const BUDGET: u64 = 16 << 20;
    let settings = Settings { queue_bytes_max: usize::MAX, queue_messages_max: usize::MAX, ..Settings::default() };
    let broker = start(Config { memory_max: Some(BUDGET), settings, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let properties = [Property::SessionExpiry(3600)];
    let keep = Connect { properties: Properties::new(&properties), ..connect_packet(Version::V5, "away") };
    let mut away = Client::new(tcp(address), Version::V5);
    away.send(&keep);
    assert_eq!(away.connack(), ReasonCode::Success);
    away.subscribe("t", QoS::AtLeastOnce);
    drop(away);
    let before = resident();
    let mut sender = Client::tcp(address, Version::V5, "sender");
    let payload = vec![b'x'; 64 * 1024];
    let (mut taken, mut refused) = (0_u64, 0_u64);
    for n in 0..2560_u16 {
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::new(n + 1).unwrap(), dup: false };
        sender.send(&Publish { delivery, ..publish("t", &payload) });
        sender.next(|packet| match packet {
            Packet::Ack(ack) if ack.reason == ReasonCode::QuotaExceeded => refused += 1,
            Packet::Ack(ack) => taken += u64::from(!ack.reason.is_failure()),
            other => panic!("{other:?}"),
        });
        let report = broker.pressure();
        assert!(report.memory_used <= report.memory_max && report.memory_max == BUDGET, "{report:?}");
    }
    assert_eq!((taken, refused), (2560, 0), "whoever is away costs nobody else anything");
    // Half of the budget is theirs, as the queue of each has its bound: 128 messages at most.
    let begun = std::time::Instant::now();
    while broker.stats().dropped_absent_budget < 2560 - 128 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", broker.stats());
        std::thread::yield_now();
    }
    assert_eq!(broker.stats().dropped_memory_budget, 0);
    Client::tcp(address, Version::V5, "newcomer").ping();
    let grown = resident().saturating_sub(before);
    assert!(grown < 4 * BUDGET, "{grown}");
    broker.shutdown();
}
