//! `kill -9` of either broker of a bridge, at random moments under load: what the one has acknowledged arrives at the other, and
//! exactly once is once.
//!
//! `TIDEGATE_ROUNDS=200` kills more often. The clients are those of the simulation, on sockets.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, reason = "of what the clients and the way can do, this needs a part")]

#[path = "../../broker/tests/simulation/client.rs"]
mod client;
#[path = "bridge/proxy.rs"]
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) use tidegate_test_support::Dice;
use tidegate_test_support::{Broker, Launch, Mosquitto, PATIENCE};
use tidegate_wire_mqtt::{Connect, Encode, Peer, Properties, Property, QoS, Version};

use client::Client;
use proxy::Proxy;

/// Each about half a second: two brokers find each other again.
const ROUNDS: u64 = 12;

/// What each of two publishers sends to mosquitto in a round at most, and in all rounds: what is left at the end is to arrive in time.
const ROUND_MESSAGES: u32 = 1000;
const ALL_MESSAGES: u32 = 25_000;

pub(crate) fn trace(_: impl FnOnce() -> String) {}

/// Which way messages go, seen from the broker that has the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Out,
    In,
}

impl Course {
    /// Where publishers and where listeners are.
    fn ports(self, site: u16, hub: u16) -> [u16; 2] {
        match self {
            Self::Out => [site, hub],
            Self::In => [hub, site],
        }
    }
}

/// What gathers behind a narrow way comes at once when it is wide again: more than may wait for a client by default.
const ROOM: &str = "[limits]\nqueue_messages_max = 1000000\n";

fn here(folder: &Path, to: u16, course: Course) -> Broker {
    let direction = if course == Course::Out { "out" } else { "in" };
    let config = format!(
        "{ROOM}[[bridge]]\nname = \"hub\"\naddress = \"127.0.0.1:{to}\"\nclient_id = \"site\"\n\
         [[bridge.topic]]\nfilter = \"t/#\"\ndirection = \"{direction}\"\nqos = 2\n"
    );
    Launch::at(folder).config(&config).arguments(["--log-level", "warn"]).start()
}

fn there(folder: &Path) -> Broker {
    Launch::at(folder).config(ROOM).arguments(["--log-level", "warn"]).start()
}

/// A client on a socket, until its broker is gone or somebody has seen enough.
fn drive(client: &mut Client, port: u16, dice: &mut Dice, stop: &AtomicBool, news: &AtomicUsize) {
    let _ = talk(client, port, dice, stop, news);
    client.lose();
}

fn talk(client: &mut Client, port: u16, dice: &mut Dice, stop: &AtomicBool, news: &AtomicUsize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(2)))?;
    let expiry = [Property::SessionExpiry(86_400)];
    let connect = Connect {
        version: client.version,
        is_bridge: false,
        clean_start: false,
        keep_alive: 0,
        properties: if client.version == Version::V5 { Properties::new(&expiry) } else { Properties::EMPTY },
        client_id: &client.id,
        will: None,
        user_name: None,
        password: None,
    };
    let mut hello = Vec::new();
    let _ = connect.encode(Peer::new(client.version), &mut hello);
    stream.write_all(&hello)?;
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => client.incoming.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        let before = client.got.len();
        while client.read() {}
        if client.is_ready() {
            client.publish(dice);
        }
        let out = std::mem::take(&mut client.out);
        stream.write_all(&out)?;
        news.fetch_add(client.got.len() - before, Ordering::Relaxed);
    }
    Ok(())
}

/// Whoever talks is told to stop, also if what was waited for never came: else the test would hang instead of failing.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Everybody talks to its broker until `until` returns; it is told how many messages have arrived.
fn live(clients: &mut [Client], ports: [u16; 2], seed: u64, until: impl FnOnce(&AtomicUsize)) {
    let (stop, news) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for (index, client) in clients.iter_mut().enumerate() {
            let port = ports[usize::from(client.filter.is_some())];
            let (stop, news, mut dice) = (&stop, &news, Dice::new(seed * 31 + index as u64));
            scope.spawn(move || drive(client, port, &mut dice, stop, news));
        }
        let _end = StopAtEnd(&stop);
        until(&news);
    });
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn rounds() -> u64 {
    std::env::var("TIDEGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// Two that publish here, two that listen there.
fn clients() -> Vec<Client> {
    vec![
        Client::new("alice", Version::V5, Some("t/alice"), None),
        Client::new("bob", Version::V311, Some("t/bob"), None),
        Client::new("once", Version::V5, None, Some(("t/#", QoS::ExactlyOnce))),
        Client::new("more", Version::V311, None, Some(("t/+", QoS::AtLeastOnce))),
    ]
}

/// Nobody publishes before everybody listens, and before the session of the bridge is there.
fn begin(clients: &mut [Client], site: &Broker, ports: [u16; 2]) {
    for client in &mut *clients {
        client.messages_max = 0;
    }
    let mut state = site.subscriber(&["-t", "$SYS/broker/connection/hub/state"]);
    await_that("the bridge stands", || state.line() == "1");
    drop(state);
    let begun = Instant::now();
    while !clients.iter().all(|client| client.has_subscribed() && client.is_known) {
        assert!(begun.elapsed() < PATIENCE, "somebody never listens");
        live(clients, ports, 0, |_| std::thread::sleep(Duration::from_millis(300)));
    }
    for client in clients {
        client.messages_max = u32::MAX;
    }
}

/// Either of two of ours is killed.
fn between_two_of_ours(course: Course) {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (mut clients, proxy, rounds) = (clients(), Proxy::new(), rounds());
    let mut brokers = [here(folders[0].path(), proxy.port, course), there(folders[1].path())];
    let ports = |brokers: &[Broker; 2]| course.ports(brokers[0].port("mqtt"), brokers[1].port("mqtt"));
    proxy.lead_to(brokers[1].port("mqtt"), Duration::ZERO);
    begin(&mut clients, &brokers[0], ports(&brokers));
    let mut dice = Dice::new(7);
    for round in 0..rounds {
        let (victim, wanted) = (usize::from(dice.below(2) == 1), 1 + dice.below(60) as usize);
        live(&mut clients, ports(&brokers), round, |news| {
            await_that("messages arrive", || news.load(Ordering::Relaxed) >= wanted);
            brokers[victim].child.kill().unwrap();
            brokers[victim].child.wait().unwrap();
        });
        if victim == 1 {
            proxy.cut();
        }
        brokers[victim] =
            if victim == 0 { here(folders[0].path(), proxy.port, course) } else { there(folders[1].path()) };
        worsen(&proxy, &mut dice, brokers[1].port("mqtt"));
    }
    clear(&proxy, brokers[1].port("mqtt"));
    finish(&mut clients, ports(&brokers));
    check(&clients, rounds, true);
}

#[test]
fn what_was_acknowledged_here_arrives_there_whichever_broker_is_killed() {
    between_two_of_ours(Course::Out);
}

#[test]
fn what_was_acknowledged_there_arrives_here_whichever_broker_is_killed() {
    between_two_of_ours(Course::In);
}

/// The way is another one each time: plain, slow to answer, or narrow.
fn worsen(proxy: &Proxy, dice: &mut Dice, port: u16) {
    proxy.throttle((dice.below(3) == 0).then_some(50_000));
    proxy.lead_to(port, Duration::from_millis(if dice.below(3) == 0 { 1 + dice.below(5) } else { 0 }));
}

/// The way is plain again: what has gathered is to arrive in time.
fn clear(proxy: &Proxy, port: u16) {
    proxy.cut();
    proxy.throttle(None);
    proxy.lead_to(port, Duration::ZERO);
}

/// This broker is killed, the way is cut, or mosquitto ends as it is told. mosquitto writes its sessions when it ends, and not
/// before it acknowledges: with a `kill -9` it forgets what it has promised, to everybody, so it is not killed.
fn with_mosquitto(course: Course) {
    let kept = tempfile::tempdir().unwrap();
    // Started by root, it writes as somebody else.
    std::fs::set_permissions(kept.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let lasting = format!("persistence true\npersistence_location {}/\n", kept.path().display());
    let Some(mut hub) = Mosquitto::start(&format!("max_queued_messages 0\n{lasting}")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut clients, proxy) = (clients(), Proxy::new());
    proxy.lead_to(hub.port, Duration::ZERO);
    let mut site = here(folder.path(), proxy.port, course);
    let ports = |site: &Broker, hub: &Mosquitto| course.ports(site.port("mqtt"), hub.port);
    begin(&mut clients, &site, ports(&site, &hub));
    let mut dice = Dice::new(11);
    for round in 0..rounds() {
        let (fate, wanted) = (dice.below(3), 1 + dice.below(60) as usize);
        if course == Course::In {
            // mosquitto takes messages far faster than a narrow way passes them on: what is left at the end has to arrive in time.
            for client in &mut clients {
                let share = ALL_MESSAGES / u32::try_from(rounds()).unwrap().max(1);
                client.messages_max = client.next + share.min(ROUND_MESSAGES);
            }
        }
        live(&mut clients, ports(&site, &hub), round, |news| {
            await_that("messages arrive", || news.load(Ordering::Relaxed) >= wanted);
            match fate {
                0 => {
                    site.child.kill().unwrap();
                    site.child.wait().unwrap();
                }
                1 => proxy.cut(),
                _ => hub.terminate(),
            }
        });
        match fate {
            0 => site = here(folder.path(), proxy.port, course),
            1 => {}
            _ => {
                proxy.cut();
                hub.start_again();
            }
        }
        worsen(&proxy, &mut dice, hub.port);
    }
    clear(&proxy, hub.port);
    finish(&mut clients, ports(&site, &hub));
    check(&clients, rounds(), course == Course::Out);
}

#[test]
fn what_was_acknowledged_here_arrives_at_mosquitto() {
    with_mosquitto(Course::Out);
}

#[test]
fn what_mosquitto_acknowledged_arrives_here() {
    with_mosquitto(Course::In);
}

/// Whatever is left arrives, with brokers that nobody kills.
fn finish(clients: &mut [Client], ports: [u16; 2]) {
    for client in &mut *clients {
        client.messages_max = client.next - 1;
    }
    let begun = Instant::now();
    while !is_complete(clients) {
        assert!(begun.elapsed() < PATIENCE, "it does not come to rest: {}", missing(clients));
        live(clients, ports, 99, |_| std::thread::sleep(Duration::from_millis(300)));
    }
}

/// How many of each sender's acknowledged messages each receiver lacks.
fn missing(clients: &[Client]) -> String {
    let mut words = Vec::new();
    for receiver in clients.iter().filter(|client| client.filter.is_some()) {
        for sender in clients.iter().filter(|client| client.publishes.is_some()) {
            let got: BTreeSet<u32> =
                receiver.got.iter().filter(|(from, _)| *from == sender.id).map(|(_, number)| *number).collect();
            let lacks = sender.acknowledged.difference(&got).count();
            words.push(format!("{} lacks {lacks} of {} ({} done)", receiver.id, sender.id, sender.is_done()));
        }
    }
    words.join(", ")
}

fn is_complete(clients: &[Client]) -> bool {
    let has = |receiver: &Client, sender: &Client| {
        let got: BTreeSet<u32> =
            receiver.got.iter().filter(|(from, _)| *from == sender.id).map(|(_, number)| *number).collect();
        sender.acknowledged.is_subset(&got)
    };
    let receivers = || clients.iter().filter(|client| client.filter.is_some());
    let mut senders = clients.iter().filter(|client| client.publishes.is_some());
    senders.all(|sender| sender.is_done() && receivers().all(|receiver| has(receiver, sender)))
}

/// mosquitto 2.0.11 forgets that a message of QoS 2 was received when a connection ends between CONNECT and CONNACK: on the next one it sends PUBLISH
/// instead of PUBREL (`db__message_reconnect_reset_outgoing` knows one state of two). What it sends twice by that is counted, and nobody's fault here.
fn check(clients: &[Client], rounds: u64, is_exact: bool) {
    let (mut all, mut repeated, mut twice) = (0, 0, 0);
    for receiver in clients.iter().filter(|client| client.filter.is_some()) {
        for sender in clients.iter().filter(|client| client.publishes.is_some()) {
            let mut times = BTreeMap::new();
            for (_, number) in receiver.got.iter().filter(|(from, _)| *from == sender.id) {
                *times.entry(*number).or_insert(0) += 1;
            }
            let wanted = receiver.filter.clone().unwrap().1;
            for (number, times) in times {
                let published = sender.sent.get(&number).unwrap_or_else(|| panic!("{number} was never sent"));
                let is_once = (*published).min(wanted) == QoS::ExactlyOnce;
                assert!(
                    !(is_once && is_exact) || times == 1,
                    "{} to {}: {number} came {times} times",
                    sender.id,
                    receiver.id
                );
                all += times;
                *(if is_once { &mut twice } else { &mut repeated }) += times - 1;
            }
        }
    }
    let acknowledged: usize = clients.iter().map(|client| client.acknowledged.len()).sum();
    println!(
        "{rounds} rounds: {acknowledged} acknowledged, 0 lost; {all} arrived, {repeated} repeated at QoS 1, {twice} at QoS 2"
    );
    assert!(acknowledged > 0);
}
