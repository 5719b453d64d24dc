//! TLS: with and without client certificates, and new certificates without a restart.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::tls::Authority;
use support::ws::Ws;
use support::{Client, address, config, start, start_with, tcp};
use tidegate_broker::Fingerprint;
use tidegate_broker::authenticate::{Anonymous, Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, Listener, ListenerKind, TlsFiles};
use tidegate_core::access::Open;
use tidegate_wire_mqtt::{QoS, Version};

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

#[test]
fn mqtt_over_tls_of_both_versions() {
    let authority = Authority::new();
    let broker = start(Config { listeners: vec![authority.listener(ListenerKind::Mqtts, false)], ..config() });
    let address = address(&broker, ListenerKind::Mqtts);
    for versions in [&BOTH[..1], &BOTH[1..]] {
        let mut client = Client::new(authority.connect(address, None, versions), Version::V5).connected("secure");
        client.subscribe("big", QoS::AtMostOnce);
        for size in [1, 20_000, 300_000] {
            let payload: Vec<u8> = (0..size).map(|n: u32| (n % 251) as u8).collect();
            client.publish("big", &payload);
            assert_eq!(client.message().payload, payload, "{size}");
        }
        client.ping();
    }
    broker.shutdown();
}

#[test]
fn mqtt_over_secure_websocket() {
    let authority = Authority::new();
    let broker = start(Config { listeners: vec![authority.listener(ListenerKind::Wss, false)], ..config() });
    let stream = authority.connect(address(&broker, ListenerKind::Wss), None, BOTH);
    let mut client = Client::new(Ws::open(stream, 1000), Version::V5).connected("browser");
    client.subscribe("big", QoS::AtMostOnce);
    for size in [1, 200, 20_000, 300_000] {
        let payload: Vec<u8> = (0..size).map(|n: u32| (n % 251) as u8).collect();
        client.publish("big", &payload);
        assert_eq!(client.message().payload, payload, "{size}");
    }
    broker.shutdown();
}

/// Remembers who came.
#[derive(Debug, Default)]
struct Witness(Mutex<Vec<Option<String>>>);

impl Authenticator for Witness {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.0.lock().unwrap().push(credentials.certificate_name.clone());
        Ok(credentials.certificate_name.as_deref().map(Arc::from))
    }
}

#[test]
fn the_name_in_a_client_certificate_is_shown_to_the_authenticator() {
    let authority = Authority::new();
    let witness = Arc::new(Witness::default());
    let listeners = vec![authority.listener(ListenerKind::Mqtts, true)];
    let broker = start_with(Config { listeners, ..config() }, Arc::clone(&witness) as Arc<dyn Authenticator>);
    let address = address(&broker, ListenerKind::Mqtts);
    let stream = authority.connect(address, Some(authority.identity("pump-7")), BOTH);
    Client::new(stream, Version::V311).connected("c").ping();
    assert_eq!(*witness.0.lock().unwrap(), [Some("pump-7".to_owned())]);

    // Without a certificate, or with somebody else's, nobody gets that far.
    let others = Authority::new();
    for identity in [None, Some(others.identity("pump-7"))] {
        let mut stream = authority.connect(address, identity, BOTH);
        let refused = stream.write_all(b"\xc0\x00").and_then(|()| stream.read(&mut [0; 1]));
        assert!(refused.is_err(), "{refused:?}");
    }
    assert_eq!(witness.0.lock().unwrap().len(), 1);
    broker.shutdown();
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    let authority = Authority::new();
    let mut config = Config { listeners: vec![authority.listener(ListenerKind::Mqtts, false)], ..config() };
    let broker = start(config.clone());
    let address = address(&broker, ListenerKind::Mqtts);
    let certificate_now = || {
        let mut stream = authority.connect(address, None, BOTH);
        stream.flush().unwrap();
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.conn.peer_certificates().unwrap()[0].clone()
    };
    let mut old = Client::new(authority.connect(address, None, BOTH), Version::V5).connected("old");
    let before = certificate_now();
    assert_eq!(before, certificate_now());

    config.listeners[0].tls = Some(authority.write_server_files(false));
    broker.reload(&config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    let after = certificate_now();
    assert_ne!(before, after);
    old.ping();

    // F072: a file that cannot be used changes nothing.
    std::fs::write(authority.folder().join("server.key"), "nonsense").unwrap();
    let error = broker.reload(&config, Arc::new(Anonymous), Arc::new(Open)).unwrap_err().to_string();
    assert!(error.contains("server.key"), "{error}");
    assert_eq!(after, certificate_now());
    old.ping();
    broker.shutdown();
}

#[test]
fn f083_a_stalled_handshake_is_closed() {
    let authority = Authority::new();
    let listeners = vec![authority.listener(ListenerKind::Mqtts, false)];
    let broker = start(Config { listeners, handshake_timeout: Duration::from_millis(200), ..config() });
    let mut stream = tcp(address(&broker, ListenerKind::Mqtts));
    stream.write_all(b"\x16\x03\x01\x01\x00").unwrap();
    assert_eq!(stream.read(&mut [0; 100]).unwrap(), 0);
    broker.shutdown();
}

#[test]
fn plain_mqtt_on_the_tls_port_is_closed() {
    let authority = Authority::new();
    let broker = start(Config { listeners: vec![authority.listener(ListenerKind::Mqtts, false)], ..config() });
    let mut client = Client::new(tcp(address(&broker, ListenerKind::Mqtts)), Version::V311);
    client.send_bytes(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00");
    // A TLS alert at most; no CONNACK.
    assert_ne!(client.rest().first(), Some(&0x20));
    broker.shutdown();
}

/// Whether a client with this certificate is let in.
fn is_let_in(authority: &Authority, broker: &tidegate_broker::Broker, identity: support::tls::Identity) -> bool {
    let stream = authority.connect(address(broker, ListenerKind::Mqtts), Some(identity), BOTH);
    let mut client = Client::new(stream, Version::V5);
    // One that is refused may be so before it has said hello.
    client.try_send(&support::connect_packet(Version::V5, "c")) && !client.rest_or_first_byte().is_empty()
}

fn refused_by_tls(broker: &tidegate_broker::Broker) -> u64 {
    broker.handle().listeners()[0].refused.iter().find(|(reason, _)| *reason == "tls").unwrap().1
}

#[test]
fn a_certificate_that_was_taken_back_is_refused_from_the_next_reload_on() {
    let authority = Authority::new();
    let listener = authority.listener(ListenerKind::Mqtts, true);
    let files = |crl| {
        let tls = listener.tls.clone().map(|files| TlsFiles { crl: Some(crl), ..files });
        Config { listeners: vec![Listener { tls, ..listener.clone() }], ..config() }
    };
    let broker = start(files(authority.write_crl(&[99])));
    assert!(is_let_in(&authority, &broker, authority.identity_numbered("press", 7)));
    broker.reload(&files(authority.write_crl(&[99, 7])), Arc::new(Anonymous), Arc::new(Open)).unwrap();
    assert!(!is_let_in(&authority, &broker, authority.identity_numbered("press", 7)));
    assert!(is_let_in(&authority, &broker, authority.identity_numbered("lathe", 8)));
    assert_eq!(refused_by_tls(&broker), 1);
    let empty = authority.folder().join("empty");
    std::fs::write(&empty, "").unwrap();
    let error = broker.reload(&files(empty), Arc::new(Anonymous), Arc::new(Open)).unwrap_err().to_string();
    assert!(error.contains("no list of revoked certificates"), "{error}");
    assert!(!is_let_in(&authority, &broker, authority.identity_numbered("press", 7)), "the list from before holds");
    broker.shutdown();
}

#[test]
fn only_certificates_on_the_list_are_let_in_and_only_if_the_authority_signed_them() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (ours, stranger, theirs) = (authority.identity("press"), authority.identity("lathe"), other.identity("press"));
    let pin = |identity: &support::tls::Identity| {
        let print = ring_digest(&identity.certificate);
        print.parse::<Fingerprint>().unwrap()
    };
    let mut listener = authority.listener(ListenerKind::Mqtts, true);
    let client_pins = vec![pin(&ours), pin(&theirs)];
    listener.tls = listener.tls.map(|files| TlsFiles { client_pins, ..files });
    let broker = start(Config { listeners: vec![listener], ..config() });
    assert!(is_let_in(&authority, &broker, ours));
    assert!(!is_let_in(&authority, &broker, stranger), "signed, and not on the list");
    assert!(!is_let_in(&authority, &broker, theirs), "on the list, and not signed by our authority");
    broker.shutdown();
}

/// As openssl prints it.
fn ring_digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}
