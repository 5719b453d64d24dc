//! FAULTS.md, rows F049, F078 and F083: TLS under bad clients and bad certificates.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use support::tls::{Authority, Identity, connect_with};
use support::{Client, address, config, start, tcp};
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::access::Open;
use tidegate_wire_mqtt::Version;

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// A ClientHello that offers at most this version (0x0301 is TLS 1.0), with one cipher suite of old.
fn old_hello(version: u16) -> Vec<u8> {
    let [major, minor] = version.to_be_bytes();
    let mut hello = vec![major, minor];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(b"\x00\x00\x02\x00\x2f\x01\x00");
    let mut handshake = vec![1, 0, 0, hello.len() as u8];
    handshake.extend(hello);
    let mut record = vec![0x16, 3, 1, 0, handshake.len() as u8];
    record.extend(handshake);
    record
}

fn answer(stream: &mut impl Read) -> Vec<u8> {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("not closed"),
        _ => received,
    }
}

#[test]
fn f083_old_versions_and_nonsense_get_an_alert_and_nothing_more() {
    let authority = Authority::new();
    let broker = start(Config { listeners: vec![authority.listener(ListenerKind::Mqtts, false)], ..config() });
    let address = address(&broker, ListenerKind::Mqtts);
    // TLS 1.0 and 1.1; a record larger than any; a handshake message of 1 MiB (a certificate chain, say); noise.
    let large = [b"\x16\x03\x03\x40\x00\x0b\x10\x00\x00".to_vec(), vec![0; 0x3ffc]].concat();
    let cases = [old_hello(0x0301), old_hello(0x0302), b"\x16\x03\x01\xff\xff\x01".to_vec(), large, vec![0x80; 100]];
    for bytes in cases {
        let mut stream = tcp(address);
        let _ = stream.write_all(&bytes);
        let answer = answer(&mut stream);
        assert!(answer.is_empty() || answer[0] == 0x15, "an alert or nothing: {answer:x?}");
    }
    Client::new(authority.connect(address, None, BOTH), Version::V5).connected("fine").ping();
    broker.shutdown();
}

#[test]
fn f083_a_session_is_resumed_without_early_data() {
    let authority = Authority::new();
    let broker = start(Config { listeners: vec![authority.listener(ListenerKind::Mqtts, false)], ..config() });
    let address = address(&broker, ListenerKind::Mqtts);
    let client_config = authority.client_config(None, BOTH, |config| config.enable_early_data = true);
    for _ in 0..3 {
        let stream = connect_with(address, Arc::clone(&client_config));
        let mut client = Client::new(stream, Version::V5).connected("again");
        client.ping();
    }
    let mut stream = connect_with(address, client_config);
    assert!(stream.conn.early_data().is_none(), "a publish that could be replayed is not accepted");
    stream.flush().unwrap();
    broker.shutdown();
}

#[test]
fn f049_f083_a_tls_handshake_byte_by_byte_runs_out_of_time() {
    let authority = Authority::new();
    let listeners = vec![authority.listener(ListenerKind::Mqtts, false)];
    let broker = start(Config { listeners, handshake_timeout: Duration::from_millis(300), ..config() });
    let mut stream = tcp(address(&broker, ListenerKind::Mqtts));
    let hello = old_hello(0x0303);
    let sent = hello.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_millis(20)); // the point of it
        stream.write_all(&[**byte]).is_ok()
    });
    assert!(sent.count() < hello.len());
    broker.shutdown();
}

/// Whether a client with this certificate is let in.
fn is_let_in(authority: &Authority, address: std::net::SocketAddr, identity: Identity) -> bool {
    let mut stream = authority.connect(address, Some(identity), BOTH);
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c";
    let mut connack = [0; 4];
    let answered =
        stream.write_all(connect).and_then(|()| stream.flush()).and_then(|()| stream.read_exact(&mut connack));
    answered.is_ok() && connack == *b"\x20\x02\x00\x00"
}

#[test]
fn f078_certificates_out_of_date_or_of_a_former_authority_are_refused() {
    let (authority, others) = (Authority::new(), Authority::new());
    let mut config = Config { listeners: vec![authority.listener(ListenerKind::Mqtts, true)], ..config() };
    let broker = start(config.clone());
    let address = address(&broker, ListenerKind::Mqtts);
    assert!(is_let_in(&authority, address, authority.identity("pump")));
    assert!(!is_let_in(&authority, address, authority.identity_in("pump", 1975, 2020)), "expired");
    assert!(!is_let_in(&authority, address, authority.identity_in("pump", 3000, 4096)), "not valid yet");
    assert!(!is_let_in(&authority, address, authority.identity("pump\0admin")), "no name for a user");
    assert!(!is_let_in(&authority, address, others.identity("pump")), "another authority");

    // The other authority takes over: from now on its certificates count, and the former's do not.
    let files = config.listeners[0].tls.as_mut().unwrap();
    files.client_ca = Some(others.folder().join("ca.pem"));
    broker.reload(&config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    assert!(!is_let_in(&authority, address, authority.identity("pump")));
    assert!(is_let_in(&authority, address, others.identity("pump")));
    broker.shutdown();
}
