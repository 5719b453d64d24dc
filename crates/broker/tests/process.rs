//! The process as a whole: counters, `$SYS`, reload, and a machine without file descriptors.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Client, PATIENCE, address, config, connect_packet, start, tcp};
use tidegate_broker::authenticate::{Anonymous, Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::access::{Action, Identity, Open, Policy};
use tidegate_wire_mqtt::{Packet, QoS, ReasonCode, Version};

/// Waits for something that will happen without anybody telling.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "still not: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn counters_are_summed_over_shards() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut clients: Vec<Client> =
        (0..8).map(|number| Client::tcp(address, Version::V5, &format!("counted{number}"))).collect();
    for client in &mut clients {
        client.publish("nobody/listens", b"x");
        client.ping();
    }
    await_that("8 publications counted", || broker.stats().publish_received == 8);
    assert_eq!(broker.stats().connections, 8);
    assert_eq!(broker.sockets(), 8);
    drop(clients);
    await_that("nobody connected", || broker.stats().connections == 0 && broker.sockets() == 0);
    broker.shutdown();
}

#[test]
fn sys_topics_are_there_for_whoever_asks() {
    let broker = start(Config { sys_interval: Duration::from_millis(50), ..config() });
    let mut client = Client::tcp(address(&broker, ListenerKind::Mqtt), Version::V5, "monitor");
    client.subscribe("$SYS/broker/clients/connected", QoS::AtMostOnce);
    let begin = Instant::now();
    loop {
        let message = client.message();
        assert_eq!(message.topic, "$SYS/broker/clients/connected");
        if message.payload == b"1" {
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    client.subscribe("$SYS/broker/version", QoS::AtMostOnce);
    let version = loop {
        let message = client.message();
        if message.topic == "$SYS/broker/version" {
            break message.payload;
        }
    };
    assert!(version.starts_with(b"tidegate version "));
    broker.shutdown();
}

/// Nobody may come in.
#[derive(Debug)]
struct Closed;

impl Authenticator for Closed {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, _: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        Err(LoginRefusal::NotAuthorized)
    }
}

/// Nobody may receive anything.
#[derive(Debug)]
struct Deaf;

impl Policy for Deaf {
    fn allows(&self, _: &Identity, _: &str, action: Action, _: &str) -> bool {
        action != Action::Receive
    }
}

#[test]
fn f073_new_rules_hold_at_once_and_drop_nobody() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut client = Client::tcp(address, Version::V5, "stays");
    client.subscribe("a", QoS::AtMostOnce);
    broker.reload(&config(), Arc::new(Closed), Arc::new(Deaf)).unwrap();
    // Rules reach the threads by message; whoever connects after that is judged by them.
    await_that("new clients refused", || {
        let mut other = Client::new(tcp(address), Version::V5);
        other.send(&connect_packet(Version::V5, "other"));
        other.connack() == ReasonCode::NotAuthorized
    });
    await_that("nothing is received", || {
        client.publish("a", b"not for you");
        client.send_bytes(b"\xc0\x00");
        let is_ping = |packet: &Packet<'_>| *packet == Packet::PingResp;
        client.next(is_ping) || !client.next(is_ping)
    });
    broker.reload(&config(), Arc::new(Anonymous), Arc::new(Open)).unwrap();
    await_that("new clients let in", || {
        let mut other = Client::new(tcp(address), Version::V5);
        other.send(&connect_packet(Version::V5, "other"));
        other.connack() == ReasonCode::Success
    });
    broker.shutdown();
}

/// The name of the variable that tells the process below what it is for.
const ROLE: &str = "TIDEGATE_TEST_ROLE";

/// Runs `few_descriptors` in a process of its own, which may have 64 files open.
#[test]
fn f063_f090_accepting_survives_a_machine_without_descriptors() {
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" --exact few_descriptors --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, "few descriptors")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn few_descriptors() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let broker = start(Config { shards: 1, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut client = Client::tcp(address, Version::V311, "first");
    // Clients and broker share the 64: open until there is nothing left, most of them not accepted.
    let mut sockets: Vec<TcpStream> = Vec::new();
    while let Ok(socket) = TcpStream::connect(address) {
        sockets.push(socket);
    }
    assert!(sockets.len() > 10, "{}", sockets.len());
    // Who is connected is served, and not by chance while the broker turns in circles.
    client.ping();
    client.ping();
    // With descriptors at hand again, people get in.
    drop(sockets);
    Client::tcp(address, Version::V311, "second").ping();
    broker.shutdown();
}
