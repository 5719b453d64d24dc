//! Several listeners of a kind, each with what it has of its own: users, places, and proxies before it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use support::tls::Authority;
use support::ws::Ws;
use support::{Client, PATIENCE, address, config, connect_packet, listener, start, start_with, tcp};
use tidegate_broker::authenticate::{Anonymous, Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_broker::{Banned, Broker, ListenerReport, listener_name};
use tidegate_core::access::{Identity, Open};
use tidegate_wire_mqtt::{QoS, ReasonCode, Version};

fn report(broker: &Broker, name: &str) -> ListenerReport {
    broker.handle().listeners().into_iter().find(|listener| listener.name == name).unwrap()
}

fn refused(broker: &Broker, name: &str, reason: &str) -> u64 {
    report(broker, name).refused.iter().find(|(why, _)| *why == reason).unwrap().1
}

fn named(name: &str, kind: ListenerKind) -> Listener {
    Listener { name: listener_name(name), ..listener(kind) }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets everybody in at one listener, and nobody at others.
#[derive(Debug)]
struct OnlyAt(&'static str);

impl Authenticator for OnlyAt {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        if credentials.listener == self.0 { Ok(None) } else { Err(LoginRefusal::NotAuthorized) }
    }

    fn admits_identity(&self, identity: &Identity, _: &str) -> bool {
        identity.listener == self.0
    }
}

#[test]
fn two_listeners_of_a_kind_have_users_of_their_own_and_a_reload_changes_them() {
    let listeners = vec![named("office", ListenerKind::Mqtt), named("factory", ListenerKind::Mqtt)];
    let config = Config { listeners, ..config() };
    let broker = start_with(config.clone(), Arc::new(OnlyAt("factory")));
    let (office, factory) = (report(&broker, "office").address, report(&broker, "factory").address);
    let mut client = Client::tcp(factory, Version::V5, "machine");
    let mut stranger = Client::new(tcp(office), Version::V5);
    stranger.send(&connect_packet(Version::V5, "stranger"));
    assert_eq!(stranger.connack(), ReasonCode::NotAuthorized);
    assert_eq!((refused(&broker, "office", "not_authorized"), refused(&broker, "factory", "not_authorized")), (1, 0));
    broker.reload(&config, Arc::new(OnlyAt("office")), Arc::new(Open)).unwrap();
    assert_eq!(client.disconnect_reason(), ReasonCode::NotAuthorized, "its listener lets in nobody any more");
    Client::tcp(office, Version::V5, "stranger").ping();
    broker.shutdown();
}

#[test]
fn a_full_listener_turns_away_and_the_others_do_not() {
    let small = Listener { connections_max: Some(1), ..named("small", ListenerKind::Mqtt) };
    let config = Config { listeners: vec![small, listener(ListenerKind::Mqtt)], ..config() };
    let broker = start(config);
    let at = report(&broker, "small").address;
    let mut first = Client::tcp(at, Version::V5, "first");
    assert_eq!(Client::new(tcp(at), Version::V5).rest(), b"", "closed without a word");
    assert_eq!((refused(&broker, "small", "full"), report(&broker, "small").connections), (1, 1));
    Client::tcp(report(&broker, "mqtt").address, Version::V5, "other").ping();
    first.ping();
    drop(first);
    wait_until(|| report(&broker, "small").connections == 0);
    Client::tcp(at, Version::V5, "second").ping();
    assert_eq!(report(&broker, "small").accepted, 3);
    broker.shutdown();
}

const CLIENT: [u8; 4] = [203, 0, 113, 9];

/// A header of version 2 that speaks for `CLIENT`.
fn header() -> Vec<u8> {
    let addresses = [CLIENT, [127, 0, 0, 1]].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", &addresses[..], &[0x30, 0x39, 0x07, 0x5b]].concat()
}

fn behind_proxy(kind: ListenerKind) -> Listener {
    Listener { proxies: ["127.0.0.0/8".parse().unwrap()].into(), ..listener(kind) }
}

/// A connection of a proxy that has said its header.
fn proxied(broker: &Broker, kind: ListenerKind) -> TcpStream {
    let mut stream = tcp(address(broker, kind));
    stream.write_all(&header()).unwrap();
    stream
}

#[test]
fn a_ban_of_the_address_behind_a_proxy_holds_and_that_of_the_proxy_does_not() {
    let broker = start(Config { listeners: vec![behind_proxy(ListenerKind::Mqtt)], ..config() });
    Client::new(proxied(&broker, ListenerKind::Mqtt), Version::V5).connected("far").ping();
    assert!(broker.ban(&Banned::Network(IpAddr::from([127, 0, 0, 1]), 32), Duration::from_secs(60), "a test"));
    let mut client = Client::new(proxied(&broker, ListenerKind::Mqtt), Version::V5).connected("far");
    client.ping();
    assert!(broker.ban(&Banned::Network(IpAddr::from(CLIENT), 24), Duration::from_secs(60), "a test"));
    assert_eq!(client.disconnect_reason(), ReasonCode::AdministrativeAction);
    let mut again = Client::new(proxied(&broker, ListenerKind::Mqtt), Version::V5);
    again.send(&connect_packet(Version::V5, "far"));
    assert_eq!(again.connack(), ReasonCode::Banned);
    assert_eq!(refused(&broker, "mqtt", "banned"), 1);
    broker.shutdown();
}

#[test]
fn a_header_comes_before_tls_and_websocket_and_in_pieces() {
    let authority = Authority::new();
    let secure = |kind| Listener { proxies: ["127.0.0.1".parse().unwrap()].into(), ..authority.listener(kind, false) };
    // The files of one are written over by the other's: one each.
    for kind in [ListenerKind::Mqtts, ListenerKind::Wss] {
        let broker = start(Config { listeners: vec![secure(kind)], ..config() });
        let mut stream = tcp(address(&broker, kind));
        for byte in header() {
            stream.write_all(&[byte]).unwrap();
        }
        let client_config = authority.client_config(None, &[&rustls::version::TLS13], |_| {});
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let session = rustls::ClientConnection::new(client_config, name).unwrap();
        let stream = rustls::StreamOwned::new(session, stream);
        let mut client = match kind {
            ListenerKind::Wss => Client::new(Ws::open(stream, 1000), Version::V5).connected("far"),
            _ => Client::new(stream, Version::V5).connected("far"),
        };
        client.subscribe("t", QoS::AtMostOnce);
        client.publish("t", b"through");
        assert_eq!(client.message().payload, b"through");
        broker.shutdown();
    }
}

#[test]
fn header_and_connect_in_one_segment_are_told_apart() {
    let broker = start(Config { listeners: vec![behind_proxy(ListenerKind::Mqtt)], ..config() });
    let mut stream = tcp(address(&broker, ListenerKind::Mqtt));
    let line = b"PROXY TCP4 203.0.113.9 127.0.0.1 12345 1883\r\n".to_vec();
    let hello = support::encode(&connect_packet(Version::V311, "far"), Version::V311);
    stream.write_all(&[line, hello].concat()).unwrap();
    let mut client = Client::new(stream, Version::V311);
    assert_eq!(client.connack(), ReasonCode::Success);
    client.ping();
    broker.shutdown();
}

#[test]
fn who_is_no_proxy_and_what_is_no_header_is_closed_and_counted() {
    let stranger = Listener { proxies: ["192.0.2.0/24".parse().unwrap()].into(), ..named("far", ListenerKind::Mqtt) };
    let broker = start(Config { listeners: vec![behind_proxy(ListenerKind::Mqtt), stranger], ..config() });
    let mut client = Client::new(tcp(address(&broker, ListenerKind::Mqtt)), Version::V5);
    client.send(&connect_packet(Version::V5, "no-header"));
    assert_eq!(client.rest(), b"", "a CONNECT is no header");
    let mut forged = Client::new(tcp(report(&broker, "far").address), Version::V5);
    // It may be closed before it has written.
    assert_eq!(forged.rest(), b"");
    assert_eq!((refused(&broker, "mqtt", "proxy_header"), refused(&broker, "far", "no_proxy")), (1, 1));
    broker.shutdown();
}

#[test]
fn half_a_header_is_waited_for_as_long_as_a_handshake_may_take() {
    let config = Config { listeners: vec![behind_proxy(ListenerKind::Mqtt)], ..config() };
    let broker = Broker::start_by_hand(config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    let mut stream = tcp(address(&broker, ListenerKind::Mqtt));
    stream.write_all(&header()[..20]).unwrap();
    wait_until(|| report(&broker, "mqtt").connections == 1);
    broker.advance(Duration::from_secs(11));
    assert_eq!(Client::new(stream, Version::V5).rest(), b"");
    wait_until(|| refused(&broker, "mqtt", "proxy_header") == 1);
    broker.shutdown();
}

#[test]
fn without_proxies_a_header_is_what_it_always_was_a_mistake() {
    let broker = start(config());
    let mut client = Client::new(proxied(&broker, ListenerKind::Mqtt), Version::V5);
    assert_eq!(client.rest(), b"");
    broker.shutdown();
}
