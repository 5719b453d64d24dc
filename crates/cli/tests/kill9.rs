//! `kill -9` at random moments under load, again and again: what was acknowledged is there, and exactly once is once.
//!
//! `TIDEGATE_ROUNDS=1000` kills more often. The clients are those of the simulation, on sockets.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(dead_code, reason = "of what the clients can do, this needs a part")]

#[path = "../../broker/tests/simulation/client.rs"]
mod client;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

pub(crate) use tidegate_test_support::Dice;
use tidegate_test_support::{Broker, Launch};
use tidegate_wire_mqtt::{Connect, Encode, Peer, Properties, Property, QoS, Version};

use client::Client;

/// Each about a tenth of a second.
const ROUNDS: u64 = 100;
/// Nothing takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn trace(_: impl FnOnce() -> String) {}

fn start(folder: &Path, shards: u64) -> Broker {
    Launch::at(folder).arguments(["--shards", &shards.to_string(), "--log-level", "warn"]).start()
}

/// A client on a socket, until the broker is gone or somebody has seen enough.
fn drive(client: &mut Client, port: u16, dice: &mut Dice, stop: &AtomicBool, news: &SyncSender<usize>) {
    let _ = talk(client, port, dice, stop, news);
    client.lose();
}

fn talk(
    client: &mut Client,
    port: u16,
    dice: &mut Dice,
    stop: &AtomicBool,
    news: &SyncSender<usize>,
) -> std::io::Result<()> {
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
        let before = client.acknowledged.len() + client.got.len();
        while client.read() {}
        if client.is_ready() {
            client.publish(dice);
        }
        let out = std::mem::take(&mut client.out);
        stream.write_all(&out)?;
        let done = client.acknowledged.len() + client.got.len() - before;
        if done > 0 || client.is_ready() {
            // Full means that somebody has enough news to read.
            let _ = news.try_send(done);
        }
    }
    Ok(())
}

/// One life of the broker.
fn live(clients: &mut [Client], port: u16, seed: u64, until: impl FnOnce(&Receiver<usize>), end: impl FnOnce()) {
    let (news, heard) = sync_channel(10_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, client) in clients.iter_mut().enumerate() {
            let (news, stop, mut dice) = (news.clone(), &stop, Dice::new(seed * 31 + index as u64));
            scope.spawn(move || drive(client, port, &mut dice, stop, &news));
        }
        drop(news);
        until(&heard);
        end();
        stop.store(true, Ordering::Relaxed);
    });
}

fn wait_for(events: u64, heard: &Receiver<usize>) {
    let mut seen = 0;
    while seen < events {
        seen += heard.recv_timeout(PATIENCE).unwrap() as u64;
    }
}

/// So many signs of life: each client gives one whenever it has looked at its socket, once it is ready.
fn listen_to(heard: &Receiver<usize>, signs: usize) {
    for _ in 0..signs {
        heard.recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn f109_what_was_acknowledged_survives_kill_9_and_exactly_once_is_once() {
    let folder = tempfile::tempdir().unwrap();
    let rounds = std::env::var("TIDEGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut clients = vec![
        Client::new("alice", Version::V5, Some("t/alice"), None),
        Client::new("bob", Version::V311, Some("t/bob"), None),
        Client::new("once", Version::V5, None, Some(("t/#", QoS::ExactlyOnce))),
        Client::new("more", Version::V311, None, Some(("t/+", QoS::AtLeastOnce))),
    ];
    // Nobody publishes before everybody listens.
    for client in &mut clients {
        client.messages_max = 0;
    }
    let broker = start(folder.path(), 2);
    let listen = Instant::now();
    live(&mut clients, broker.port("mqtt"), 0, |heard| listen_to(heard, 100), || ());
    assert!(listen.elapsed() < PATIENCE);
    assert!(clients.iter().all(|client| client.has_subscribed() && client.is_known));
    broker.kill();

    for client in &mut clients {
        client.messages_max = u32::MAX;
    }
    let mut dice = Dice::new(7);
    for round in 0..rounds {
        let broker = start(folder.path(), 1 + dice.below(3));
        let (port, events) = (broker.port("mqtt"), 1 + dice.below(100));
        live(&mut clients, port, round, |heard| wait_for(events, heard), || broker.kill());
    }
    finish(&mut clients, folder.path());
    check(&clients, rounds);
}

/// Whatever is left is delivered, by a broker that nobody kills.
fn finish(clients: &mut [Client], folder: &Path) {
    for client in &mut *clients {
        client.messages_max = client.next - 1;
    }
    let broker = start(folder, 2);
    let begun = Instant::now();
    while !is_complete(clients) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", std::fs::read_to_string(folder.join("log")));
        live(clients, broker.port("mqtt"), 99, |heard| listen_to(heard, 200), || ());
    }
}

fn is_complete(clients: &[Client]) -> bool {
    let has = |receiver: &Client, sender: &Client| {
        let got: std::collections::BTreeSet<u32> =
            receiver.got.iter().filter(|(from, _)| *from == sender.id).map(|(_, number)| *number).collect();
        sender.acknowledged.is_subset(&got)
    };
    let receivers = || clients.iter().filter(|client| client.filter.is_some());
    let mut senders = clients.iter().filter(|client| client.publishes.is_some());
    senders.all(|sender| sender.is_done() && receivers().all(|receiver| has(receiver, sender)))
}

fn check(clients: &[Client], rounds: u64) {
    let (mut all, mut repeated) = (0, 0);
    for receiver in clients.iter().filter(|client| client.filter.is_some()) {
        for sender in clients.iter().filter(|client| client.publishes.is_some()) {
            let mut times = std::collections::BTreeMap::new();
            for (_, number) in receiver.got.iter().filter(|(from, _)| *from == sender.id) {
                *times.entry(*number).or_insert(0) += 1;
            }
            let wanted = receiver.filter.clone().unwrap().1;
            for (number, times) in times {
                let published = sender.sent.get(&number).unwrap_or_else(|| panic!("{number} was never sent"));
                let is_once = (*published).min(wanted) == QoS::ExactlyOnce;
                assert!(!is_once || times == 1, "{} to {}: {number} came {times} times", sender.id, receiver.id);
                all += times;
                repeated += times - 1;
            }
        }
    }
    let acknowledged: usize = clients.iter().map(|client| client.acknowledged.len()).sum();
    println!("{rounds} rounds: {acknowledged} acknowledged, 0 lost; {all} delivered, {repeated} repeated at QoS 1");
    assert!(acknowledged > 0);
}
