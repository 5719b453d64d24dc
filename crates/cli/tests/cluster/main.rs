//! Three nodes with the real engine, and clients that know all their addresses: the node that serves is killed, or stopped and
//! continued. What was acknowledged is delivered, and exactly once is once. `TIDEGATE_ROUNDS=50` kills more often.

#![cfg(all(unix, feature = "cluster"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(dead_code, reason = "of what the clients can do, this needs a part")]

#[path = "../../../broker/tests/simulation/client.rs"]
mod client;
mod nodes;
mod space;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::Client;
use nodes::{Nodes, PATIENCE, status, tidegate, why};
use rustix::process::Signal;
pub(crate) use tidegate_test_support::Dice;
use tidegate_wire_mqtt::{Connect, Encode, Peer, Properties, Property, QoS, Version};

/// Each takes as long as a death takes to be noticed: about ten seconds.
const ROUNDS: u64 = 2;
/// A node that says nothing for so long is left by its clients, as by those that have a keep-alive.
const SILENCE_MAX: Duration = Duration::from_secs(4);

pub(crate) fn trace(_: impl FnOnce() -> String) {}

/// A crowd of clients that go to whoever serves, until they are told to stop.
struct Crowd<'a> {
    ports: Vec<u16>,
    stop: &'a AtomicBool,
    /// Messages acknowledged or received, by all.
    events: &'a AtomicU64,
    /// Nobody publishes before everybody listens.
    is_open: &'a AtomicBool,
}

impl Crowd<'_> {
    fn drive(&self, client: &mut Client, dice: &mut Dice) {
        while !self.stop.load(Ordering::Relaxed) {
            for port in &self.ports {
                let _ = self.talk(client, *port, dice);
                client.lose();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn talk(&self, client: &mut Client, port: u16, dice: &mut Dice) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(2)))?;
        stream.write_all(&hello(&client.id, client.version))?;
        let (mut buffer, mut heard) = ([0; 4096], Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    heard = Instant::now();
                    client.incoming.extend_from_slice(&buffer[..count]);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
            let before = client.acknowledged.len() + client.got.len();
            while client.read() {}
            if client.is_ready() && self.is_open.load(Ordering::Relaxed) {
                client.publish(dice);
            }
            let out = std::mem::take(&mut client.out);
            stream.write_all(&out)?;
            let done = client.acknowledged.len() + client.got.len() - before;
            self.events.fetch_add(done as u64, Ordering::Relaxed);
            if heard.elapsed() > SILENCE_MAX && !client.is_done() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn hello(id: &str, version: Version) -> Vec<u8> {
    let expiry = [Property::SessionExpiry(86_400)];
    let connect = Connect {
        version,
        is_bridge: false,
        clean_start: false,
        keep_alive: 0,
        properties: if version == Version::V5 { Properties::new(&expiry) } else { Properties::EMPTY },
        client_id: id,
        will: None,
        user_name: None,
        password: None,
    };
    let mut bytes = Vec::new();
    let _ = connect.encode(Peer::new(version), &mut bytes);
    bytes
}

fn people() -> Vec<Client> {
    vec![
        Client::new("alice", Version::V5, Some("t/alice"), None),
        Client::new("bob", Version::V311, Some("t/bob"), None),
        Client::new("once", Version::V5, None, Some(("t/#", QoS::ExactlyOnce))),
        Client::new("more", Version::V311, None, Some(("t/+", QoS::AtLeastOnce))),
    ]
}

/// Lets the clients live with the nodes while `script` does what it does to them; it is given a way to wait for so many events.
fn live(clients: &mut [Client], nodes: &mut Nodes, seed: u64, script: impl FnOnce(&mut Nodes, &dyn Fn(u64))) {
    let (stop, events, is_open) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(true));
    let ports = nodes.ports();
    std::thread::scope(|scope| {
        for (index, client) in clients.iter_mut().enumerate() {
            let crowd = Crowd { ports: ports.clone(), stop: &stop, events: &events, is_open: &is_open };
            let mut dice = Dice::new(seed * 31 + index as u64);
            scope.spawn(move || crowd.drive(client, &mut dice));
        }
        // Stops the clients however the script ends.
        let _stopping = OnDrop(&stop);
        script(nodes, &|count| {
            let (goal, begun) = (events.load(Ordering::Relaxed) + count, Instant::now());
            while events.load(Ordering::Relaxed) < goal {
                assert!(begun.elapsed() < PATIENCE, "nothing happens any more");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Everybody has subscribed before the first message.
fn introduce(clients: &mut [Client], nodes: &mut Nodes) {
    for client in &mut *clients {
        client.messages_max = 0;
    }
    let begun = Instant::now();
    while !clients.iter().all(Client::has_subscribed) {
        assert!(begun.elapsed() < PATIENCE, "{}", nodes.logs());
        live(clients, nodes, 0, |nodes, _| {
            nodes.owner_but(None);
            std::thread::sleep(Duration::from_millis(500));
        });
    }
    for client in clients {
        client.messages_max = u32::MAX;
    }
}

/// Whatever is left is delivered, and everything is in order.
fn finish(clients: &mut [Client], nodes: &mut Nodes, what: &str) {
    for client in &mut *clients {
        client.messages_max = client.next - 1;
    }
    let begun = Instant::now();
    while !is_complete(clients) {
        assert!(begun.elapsed() < PATIENCE, "not everything came:\n{}", nodes.logs());
        live(clients, nodes, 99, |_, _| std::thread::sleep(Duration::from_millis(300)));
    }
    check(clients, what);
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

fn check(clients: &[Client], what: &str) {
    let (mut all, mut repeated) = (0, 0);
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
                assert!(!is_once || times == 1, "{} to {}: {number} came {times} times", sender.id, receiver.id);
                all += times;
                repeated += times - 1;
            }
        }
    }
    let acknowledged: usize = clients.iter().map(|client| client.acknowledged.len()).sum();
    println!("{what}: {acknowledged} acknowledged, 0 lost; {all} delivered, {repeated} repeated at QoS 1");
    assert!(acknowledged > 0);
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_node_that_serves() {
    let Some(mut nodes) = Nodes::start() else { return };
    let mut clients = people();
    introduce(&mut clients, &mut nodes);
    let rounds = std::env::var("TIDEGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    live(&mut clients, &mut nodes, 1, |nodes, wait_for| {
        let mut dice = Dice::new(7);
        for round in 1..=rounds {
            wait_for(20 + dice.below(200));
            let owner = nodes.owner_but(None);
            nodes.list[owner].kill();
            let dead = Instant::now();
            let next = nodes.owner_but(Some(owner));
            wait_for(1);
            let (from, to) = (&nodes.list[owner].name, &nodes.list[next].name);
            println!("round {round}: {from} killed, {to} serves after {:.1} s", dead.elapsed().as_secs_f64());
            nodes.list[owner].start();
        }
    });
    finish(&mut clients, &mut nodes, &format!("{rounds} kills"));
    let owner = nodes.owner_but(None);
    let config = nodes.list[owner].config();
    let begun = Instant::now();
    loop {
        let (view, code) = status(&config);
        let roles: Vec<&str> =
            view["nodes"].as_array().into_iter().flatten().filter_map(|node| node["role"].as_str()).collect();
        if code == 0 && roles.iter().filter(|role| **role == "standby").count() == 2 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{view:#}\n{}", nodes.logs());
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_node_that_was_asleep_acknowledges_nothing_and_stands_by_and_a_stop_hands_over() {
    let Some(mut nodes) = Nodes::start() else { return };
    let mut clients = people();
    introduce(&mut clients, &mut nodes);
    live(&mut clients, &mut nodes, 1, |nodes, wait_for| {
        wait_for(100);
        let sleeper = nodes.owner_but(None);
        let mut socket = TcpStream::connect(("127.0.0.1", nodes.list[sleeper].mqtt)).unwrap();
        socket.write_all(&hello("late", Version::V311)).unwrap();
        let mut connack = [0; 4];
        socket.read_exact(&mut connack).unwrap();
        assert_eq!(connack[0] >> 4, 2, "CONNACK");
        nodes.list[sleeper].put_to_sleep();
        // QoS 1, to topic "x", with identifier 1: it is in the kernel when the sleeper wakes.
        socket.write_all(&[0x32, 6, 0, 1, b'x', 0, 1, b'!']).unwrap();
        let next = nodes.owner_but(Some(sleeper));
        wait_for(20);
        nodes.list[sleeper].signal(Signal::CONT);
        let mut heard = Vec::new();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.read_to_end(&mut heard);
        assert!(heard.iter().all(|byte| *byte != 0x40), "a PUBACK of a node that was overtaken: {heard:?}");
        let begun = Instant::now();
        loop {
            let answer = nodes.list[sleeper].ask("/api/v1/cluster").map(|(_, body)| body["cluster"].clone());
            if answer.as_ref().is_some_and(|node| node["role"] == "standby" && node["fenced"] == 1) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{answer:?}\n{}", nodes.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!nodes.list[sleeper].serves());
        let (code, ready) = nodes.list[sleeper].ask("/readyz").unwrap();
        assert_eq!((code, ready["status"].as_str()), (503, Some("standby")), "{ready}");
        assert_eq!(nodes.list[sleeper].ask("/healthz").unwrap().0, 200);
        let (_, metrics) = nodes.list[next].ask("/metrics").unwrap();
        assert!(metrics.as_str().unwrap().contains("\ntidegate_cluster_is_owner 1\n"));
        // A stop in good order: nobody waits for a lease.
        let stopped = Instant::now();
        assert_eq!(nodes.list[next].stop(), Some(0), "{}", nodes.logs());
        nodes.owner_but(Some(next));
        wait_for(1);
        println!("handed over {:.1} s after SIGTERM", stopped.elapsed().as_secs_f64());
        nodes.list[next].start();
    });
    finish(&mut clients, &mut nodes, "asleep");
}

/// Stopped for longer than a lease, overtaken, and continued, with messages that nobody has read in its sockets and more that come while it wakes:
/// of those that need the disk and of those that need none, it acknowledges not one. `TIDEGATE_ROUNDS=30` tries more often.
#[test]
fn an_owner_that_was_overtaken_never_acknowledges() {
    let Some(mut nodes) = Nodes::start() else { return };
    let mut clients = people();
    introduce(&mut clients, &mut nodes);
    let rounds = std::env::var("TIDEGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut dice = Dice::new(23);
    for round in 1..=rounds {
        let sleeper = nodes.owner_but(None);
        let node = &nodes.list[sleeper];
        let fenced = fenced(node);
        let mut sockets: Vec<TcpStream> =
            (0..8).map(|number| connected(node.mqtt, &format!("late-{number}"))).collect();
        node.put_to_sleep();
        // Half before it is overtaken, half behind; "x" is nobody's, "t/x" is for sessions that last.
        let (early, late) = sockets.split_at_mut(4);
        for socket in early {
            publish_some(socket, 1);
        }
        nodes.owner_but(Some(sleeper));
        for socket in late.iter_mut() {
            publish_some(socket, 1);
        }
        std::thread::sleep(Duration::from_millis(dice.below(500)));
        let node = &nodes.list[sleeper];
        node.signal(Signal::CONT);
        let heard: Vec<Vec<u8>> = sockets.iter_mut().map(publish_to_the_end).collect();
        let acknowledged = heard.iter().flatten().filter(|byte| **byte == 0x40).count();
        assert_eq!(acknowledged, 0, "round {round}: {heard:?}\n{}", nodes.logs());
        until(&nodes, "it stands by", || fenced_again(&nodes.list[sleeper], fenced));
    }
    println!("{rounds} times overtaken, nothing acknowledged");
    let owner = nodes.owner_but(None);
    let told = why(&nodes.list[owner].config());
    let last = &told["handovers"][0];
    assert_eq!((&last["reason"], &last["epoch"]), (&"lease".into(), &told["epoch"]), "{told:#}");
    assert!(last["afterwards"].as_str().unwrap().contains("was fenced, and stands by now"), "{told:#}");
}

fn connected(port: u16, id: &str) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(&hello(id, Version::V311)).unwrap();
    let mut connack = [0; 4];
    socket.read_exact(&mut connack).unwrap();
    assert_eq!(connack[0] >> 4, 2, "CONNACK");
    socket
}

/// QoS 1 to "x" and to "t/x"; the identifiers have no byte that is the first of a PUBACK.
fn publish_some(socket: &mut TcpStream, id: u8) {
    let _ = socket.write_all(&[0x32, 6, 0, 1, b'x', 0, id, b'!', 0x32, 8, 0, 3, b't', b'/', b'x', 0, id + 1, b'!']);
}

/// Goes on publishing until the node ends the connection; all that it has said.
fn publish_to_the_end(socket: &mut TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (mut heard, mut buffer, begun) = (Vec::new(), [0; 256], Instant::now());
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return heard,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                publish_some(socket, 3);
            }
            Err(_) => return heard,
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end the connection");
    }
}

/// How often a node was fenced, as it says itself.
fn fenced(node: &nodes::Node) -> Option<u64> {
    node.ask("/api/v1/cluster")?.1["cluster"]["fenced"].as_u64()
}

/// Whether it was fenced once more, and stands by.
fn fenced_again(node: &nodes::Node, before: Option<u64>) -> bool {
    let Some((_, answer)) = node.ask("/api/v1/cluster") else { return false };
    answer["cluster"]["role"] == "standby" && answer["cluster"]["fenced"].as_u64() > before
}

fn until(nodes: &Nodes, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not so: {what}\n{}", nodes.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_owner_that_is_cut_off_from_its_engine_is_not_ready_and_says_why() {
    let Some(nodes) = Nodes::start() else { return };
    let owner = nodes.owner_but(None);
    let node = &nodes.list[owner];
    until(&nodes, "it is ready", || node.ask("/readyz").is_some_and(|(code, _)| code == 200));
    let engine = node.engine_pid().unwrap();
    rustix::process::kill_process(engine, Signal::STOP).unwrap();
    // Nothing comes back from there: neither that it is the owner still, nor that it is not.
    until(&nodes, "it is not ready", || node.ask("/readyz").is_some_and(|(code, _)| code == 503));
    let (_, ready) = node.ask("/readyz").unwrap();
    let (_, report) = node.ask("/api/v1/cluster").unwrap();
    let (_, metrics) = node.ask("/metrics").unwrap();
    rustix::process::kill_process(engine, Signal::CONT).unwrap();
    assert!(ready["reasons"][0].as_str().unwrap().starts_with("the cluster's engine does not confirm"), "{ready}");
    assert_eq!(report["cluster"]["role"], "owner");
    assert_eq!(report["cluster"]["trouble"], ready["reasons"][0]);
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("\ntidegate_cluster_engine_up 0\n"), "{metrics}");
}

#[test]
fn without_an_engine_a_node_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidegate.toml");
    let text = "[cluster]\nname = \"plant\"\nnode = \"a\"\nengine_program = \"tidegate-has-no-such-engine\"\n\
                [listeners]\nmqtt = \"127.0.0.1:0\"\nadmin = \"off\"\nws = \"off\"\n";
    std::fs::write(&config, text).unwrap();
    let output = tidegate(&["serve", "-c"]).arg(&config).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no engine for the cluster") && said.contains("cluster.engine_program"), "{said}");
}
