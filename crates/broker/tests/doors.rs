//! Who is let in: passwords, and how many at a time.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex};

use support::{Client, address, config, connect_packet, encode, publish, start, start_with, tcp};
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_wire_mqtt::{Connect, QoS, ReasonCode, Version};

/// Takes as long as it is told to, and then decides by the password.
#[derive(Debug, Default)]
struct Gatekeeper {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gatekeeper {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Authenticator for Gatekeeper {
    fn is_slow(&self, credentials: &Credentials) -> bool {
        credentials.password.is_some()
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        let Some(password) = &credentials.password else { return Err(LoginRefusal::NotAuthorized) };
        let guard = self.is_open.lock().unwrap();
        drop(self.changed.wait_while(guard, |open| !*open).unwrap());
        if password == b"right" { Ok(Some("user".into())) } else { Err(LoginRefusal::BadUserNameOrPassword) }
    }
}

fn with_password<'a>(version: Version, client_id: &'a str, password: &'a [u8]) -> Connect<'a> {
    Connect { user_name: Some("user"), password: Some(password), ..connect_packet(version, client_id) }
}

#[test]
fn passwords_are_asked_for_in_every_version() {
    let gatekeeper = Arc::new(Gatekeeper::default());
    gatekeeper.open();
    let broker = start_with(config(), gatekeeper);
    for version in [Version::V311, Version::V5] {
        let hello = |connect: &Connect<'_>| {
            let mut client = Client::new(tcp(address(&broker, ListenerKind::Mqtt)), version);
            client.send(connect);
            (client.connack(), client)
        };
        let (reason, mut client) = hello(&with_password(version, "a", b"right"));
        assert_eq!(reason, ReasonCode::Success);
        client.ping();
        let (reason, mut client) = hello(&with_password(version, "b", b"wrong"));
        assert_eq!(reason, ReasonCode::BadUserNameOrPassword);
        assert_eq!(client.rest(), b"");
        let (reason, mut client) = hello(&connect_packet(version, "c"));
        assert_eq!(reason, ReasonCode::NotAuthorized);
        assert_eq!(client.rest(), b"");
    }
    broker.shutdown();
}

#[test]
fn what_follows_a_refused_connect_is_not_processed() {
    let gatekeeper = Arc::new(Gatekeeper::default());
    gatekeeper.open();
    let broker = start_with(config(), gatekeeper);
    let address = address(&broker, ListenerKind::Mqtt);
    let mut witness = Client::new(tcp(address), Version::V5);
    witness.send(&with_password(Version::V5, "witness", b"right"));
    assert_eq!(witness.connack(), ReasonCode::Success);
    witness.subscribe("#", QoS::AtMostOnce);
    for version in [Version::V311, Version::V5] {
        let mut refused = Client::new(tcp(address), version);
        let mut bytes = encode(&with_password(version, "refused", b"wrong"), version);
        bytes.extend(encode(&publish("secret", b"not taken"), version));
        refused.send_bytes(&bytes);
        assert_eq!(refused.connack(), ReasonCode::BadUserNameOrPassword);
        assert_eq!(refused.rest(), b"", "one CONNACK, no DISCONNECT, nothing else");
    }
    // Its own message is the first that the witness sees.
    witness.publish("own", b"first");
    assert_eq!(witness.message().topic, "own");
    broker.shutdown();
}

#[test]
fn a_slow_password_check_keeps_nobody_else_waiting_and_its_queue_is_bounded() {
    let gatekeeper = Arc::new(Gatekeeper::default());
    let broker = start_with(Config { shards: 1, ..config() }, Arc::clone(&gatekeeper) as Arc<dyn Authenticator>);
    let address = address(&broker, ListenerKind::Mqtt);
    // One is being checked, 320 of one network wait; everybody else is told to come back.
    let mut clients: Vec<Client> = (0..350)
        .map(|number| {
            let mut client = Client::new(tcp(address), Version::V5);
            client.send(&with_password(Version::V5, &format!("c{number}"), b"right"));
            client
        })
        .collect();
    // Those are answered while the check still takes its time.
    let mut refused = Client::new(tcp(address), Version::V311);
    refused.send(&connect_packet(Version::V311, "quick"));
    assert_eq!(refused.connack(), ReasonCode::NotAuthorized);
    assert_eq!(clients[349].connack(), ReasonCode::ServerBusy);
    gatekeeper.open();
    let answers: Vec<ReasonCode> = clients[..349].iter_mut().map(Client::connack).collect();
    let let_in = answers.iter().filter(|&&reason| reason == ReasonCode::Success).count();
    let busy = answers.iter().filter(|&&reason| reason == ReasonCode::ServerBusy).count();
    assert_eq!(let_in + busy, 349);
    assert!((320..=321).contains(&let_in), "{let_in}");
    broker.shutdown();
}

#[test]
fn no_more_than_connections_max_get_in_and_a_place_becomes_free() {
    let broker = start(Config { connections_max: 3, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut clients: Vec<Client> =
        (0..3).map(|number| Client::tcp(address, Version::V311, &format!("c{number}"))).collect();
    assert!(matches!(tcp(address).read(&mut [0; 1]), Ok(0) | Err(_)));
    for client in &mut clients {
        client.ping();
    }
    clients.pop().unwrap().send_bytes(b"\xe0\x00");
    let mut stream = loop {
        // The place is free when the broker has seen the end of the socket.
        let stream = tcp(address);
        let mut client = Client::new(stream.try_clone().unwrap(), Version::V311);
        client.send_bytes(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00");
        if !client.rest_or_first_byte().is_empty() {
            break client;
        }
    };
    stream.ping();
    broker.shutdown();
}

#[test]
fn more_handshakes_than_allowed_wait_their_turn() {
    let broker = start(Config { handshakes_max: 2, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    // Two that say nothing have the places; a third is not refused, but waits in the backlog.
    let silent = [tcp(address), tcp(address)];
    let mut third = Client::new(tcp(address), Version::V5);
    third.send(&connect_packet(Version::V5, "third"));
    drop(silent);
    assert_eq!(third.connack(), ReasonCode::Success);
    third.ping();
    broker.shutdown();
}

#[test]
fn a_thousand_clients_come_and_go_and_no_socket_is_left() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    for number in 0..1000 {
        let mut client = Client::tcp(address, Version::V311, &format!("c{number}"));
        if number % 2 == 0 {
            client.send_bytes(b"\xe0\x00");
        }
    }
    let begin = std::time::Instant::now();
    while broker.sockets() > 0 {
        assert!(begin.elapsed() < support::PATIENCE, "{} sockets left", broker.sockets());
        std::thread::yield_now();
    }
    broker.shutdown();
}
