//! CoAP over DTLS at a running broker: users by key and by certificate, rules of access, and what a reload changes.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use dimpl::{Config as ClientConfig, Dtls, DtlsCertificate, Output, PskResolver};
use support::tls::Authority;
use support::{Client, PATIENCE, address, config, listener, start, tcp};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::{Anonymous, Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, DtlsRules, Listener, ListenerKind};
use tidegate_core::access::{Action, Identity, Open, Policy};
use tidegate_wire_mqtt::{QoS, Version};

const KEY: [u8; 16] = *b"0123456789abcdef";

struct OneKey;

impl PskResolver for OneKey {
    fn resolve(&self, _: &[u8]) -> Option<Vec<u8>> {
        Some(KEY.to_vec())
    }
}

/// A client of CoAP over DTLS, as far as these tests need one.
struct Coaps {
    socket: UdpSocket,
    dtls: Dtls,
    heard: Vec<Vec<u8>>,
    is_over: bool,
}

impl Coaps {
    fn with_key(to: SocketAddr, name: &str) -> Self {
        let config = ClientConfig::builder().with_psk_client(name.as_bytes().to_vec(), Arc::new(OneKey));
        Self::open(to, Dtls::new_12_psk(Arc::new(config.build().unwrap()), Instant::now()))
    }

    fn with_certificate(to: SocketAddr, identity: &support::tls::Identity) -> Self {
        let (certificate, private_key) = (identity.certificate.to_vec(), identity.key.secret_der().to_vec());
        let certificate = DtlsCertificate { certificate, private_key };
        let config = Arc::new(ClientConfig::builder().build().unwrap());
        Self::open(to, Dtls::new_12(config, certificate, Instant::now()))
    }

    fn open(to: SocketAddr, mut dtls: Dtls) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(to).unwrap();
        dtls.set_active(true);
        dtls.handle_timeout(Instant::now()).unwrap();
        let mut client = Self { socket, dtls, heard: Vec::new(), is_over: false };
        client.flush();
        client
    }

    /// Sends what there is; whether the session is open from now on.
    fn flush(&mut self) -> bool {
        let (mut buffer, mut is_open) = ([0; 2048], false);
        loop {
            match self.dtls.poll_output(&mut buffer) {
                Output::Packet(datagram) => drop(self.socket.send(datagram)),
                Output::ApplicationData(data) => self.heard.push(data.to_vec()),
                Output::Connected => is_open = true,
                Output::CloseNotify => self.is_over = true,
                Output::Timeout(_) => return is_open,
                _ => {}
            }
        }
    }

    /// The next datagram. False if the session is over.
    fn hear(&mut self) -> bool {
        let mut buffer = [0; 2048];
        let length = self.socket.recv(&mut buffer).unwrap();
        self.is_over |= self.dtls.handle_packet(&buffer[..length]).is_err();
        self.flush();
        !self.is_over
    }

    /// Sends a request, and waits for an answer: its code and payload. None if there is no session to ask in.
    fn ask(&mut self, request: &[u8]) -> Option<(String, Vec<u8>)> {
        self.dtls.send_application_data(request).unwrap();
        self.flush();
        while self.heard.is_empty() {
            if !self.hear() {
                return None;
            }
        }
        let answer = self.heard.remove(0);
        let code = format!("{}.{:02}", answer[1] >> 5, answer[1] & 31);
        let payload = answer.iter().position(|byte| *byte == 0xff).map_or(&[][..], |at| &answer[at + 1..]);
        Some((code, payload.to_vec()))
    }

    /// A confirmable PUT to `/ps/one`.
    fn put(&mut self, number: u8, payload: &str) -> Option<String> {
        let head = [0x41, 3, 0, number, 7, 0xb2, b'p', b's', 3, b'o', b'n', b'e', 0xff];
        Some(self.ask(&[&head, payload.as_bytes()].concat())?.0)
    }
}

fn keys(folder: &Path, names: &[&str]) -> PathBuf {
    let hex = KEY.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let lines = names.iter().map(|name| format!("{name}:{hex}\n")).collect::<Vec<_>>().concat();
    std::fs::write(folder.join("keys"), lines).unwrap();
    folder.join("keys")
}

fn by_key(folder: &Path, names: &[&str]) -> Listener {
    let dtls = DtlsRules { psk_file: Some(keys(folder, names)), ..DtlsRules::default() };
    Listener { dtls, ..listener(ListenerKind::Coaps) }
}

fn with(coaps: Listener) -> Config {
    Config { listeners: vec![listener(ListenerKind::Mqtt), coaps], ..config() }
}

#[test]
fn a_user_with_a_key_publishes_and_observes_what_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(with(by_key(folder.path(), &["pump-7"])));
    let mut subscriber = Client::tcp(address(&broker, ListenerKind::Mqtt), Version::V5, "s");
    subscriber.subscribe("one", QoS::AtMostOnce);
    let mut pump = Coaps::with_key(address(&broker, ListenerKind::Coaps), "pump-7");
    assert_eq!(pump.put(1, "21.5").as_deref(), Some("2.01"));
    assert_eq!(subscriber.message().payload, b"21.5");
    let (code, payload) = pump.ask(b"\x41\x01\x00\x02\x08\x60\x52ps\x03one").unwrap();
    assert_eq!((code.as_str(), payload.as_slice()), ("2.05", &b"21.5"[..]));
    assert_eq!(broker.sockets(), 2, "a session is a connection like any other");
    let metrics = broker.handle().extra_metrics();
    let value = |family: &str, event: Option<&str>| {
        let is_it = |labels: &[(&str, &str)]| event.is_none_or(|event| labels == [("event", event)]);
        let found = metrics.iter().find(|metric| metric.family == family && is_it(&metric.labels));
        found.map(|metric| metric.value)
    };
    assert_eq!((value("dtls_events", Some("challenged")), value("dtls_events", Some("opened"))), (Some(1), Some(1)));
    assert_eq!((value("dtls_sessions", None), value("coap_peers", None)), (Some(1), Some(1)));
}

#[derive(Debug)]
struct OnlyPumps;

impl Authenticator for OnlyPumps {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        let name = credentials.certificate_name.as_deref();
        name.filter(|name| name.starts_with("pump")).map(|name| Some(name.into())).ok_or(LoginRefusal::NotAuthorized)
    }
}

#[derive(Debug)]
struct SevenPublishes;

impl Policy for SevenPublishes {
    fn allows(&self, identity: &Identity, _: &str, action: Action, _: &str) -> bool {
        action != Action::Publish || identity.user.as_deref() == Some("pump-7") && identity.listener == "coaps"
    }
}

#[test]
fn the_name_of_a_key_or_a_certificate_is_the_user_and_rules_hold_for_it() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let files = authority.write_server_files(true);
    let coaps = Listener { tls: Some(files), ..by_key(folder.path(), &["pump-8", "clerk"]) };
    let broker = Broker::start(with(coaps), Arc::new(OnlyPumps), Arc::new(SevenPublishes)).unwrap();
    let to = address(&broker, ListenerKind::Coaps);
    assert_eq!(Coaps::with_certificate(to, &authority.identity("pump-7")).put(1, "x").as_deref(), Some("2.01"));
    assert_eq!(Coaps::with_key(to, "pump-8").put(1, "x").as_deref(), Some("4.03"), "a rule says no");
    assert_eq!(Coaps::with_key(to, "clerk").put(1, "x").as_deref(), Some("4.01"), "no user");
    let stranger = Authority::new();
    assert_eq!(Coaps::with_certificate(to, &stranger.identity("pump-7")).put(1, "x"), None, "not trusted");
    let report = broker.handle().listeners().into_iter().find(|report| report.kind == ListenerKind::Coaps).unwrap();
    let refused = |why: &str| report.refused.iter().find(|(name, _)| *name == why).unwrap().1;
    assert_eq!((refused("tls"), refused("not_authorized")), (1, 1));
}

#[test]
fn a_reload_takes_keys_back_and_gives_others() {
    let folder = tempfile::tempdir().unwrap();
    let before = with(by_key(folder.path(), &["pump-7", "pump-8"]));
    let broker = start(before);
    let to = address(&broker, ListenerKind::Coaps);
    let (mut seven, mut eight) = (Coaps::with_key(to, "pump-7"), Coaps::with_key(to, "pump-8"));
    assert_eq!((seven.put(1, "x").as_deref(), eight.put(1, "y").as_deref()), (Some("2.01"), Some("2.04")));
    let after = with(by_key(folder.path(), &["pump-8", "pump-9"]));
    broker.reload(&after, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    while seven.hear() {}
    assert!(seven.is_over, "it hears that its session is over");
    assert_eq!(eight.put(2, "z").as_deref(), Some("2.04"));
    assert_eq!(Coaps::with_key(to, "pump-9").put(1, "z").as_deref(), Some("2.04"));
    // One that cannot be read changes nothing.
    std::fs::write(folder.path().join("keys"), "pump-8:00\n").unwrap();
    let error = broker.reload(&after, Arc::new(Anonymous), Arc::new(Open)).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("16 to 64 bytes"), "{error}");
    assert_eq!(eight.put(3, "z").as_deref(), Some("2.04"));
}

#[test]
fn coap_that_was_left_out_does_not_keep_a_reload_from_the_others() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let coap = Listener::new(ListenerKind::Coap, taken.local_addr().unwrap());
    let topics = listener(ListenerKind::HttpTopics);
    let before = Config {
        listeners: vec![listener(ListenerKind::Mqtt), Listener { is_optional: true, ..coap.clone() }, topics],
        ..config()
    };
    let broker = start(before.clone());
    let left_out: Vec<_> = broker.left_out().iter().map(|left_out| (left_out.name, left_out.address)).collect();
    assert_eq!(left_out, [("coap", taken.local_addr().unwrap())]);
    assert_eq!(broker.addresses().len(), 2);
    let mut after = before;
    after.listeners[2].connections_max = Some(0);
    // Free by now, and still no part of what runs.
    drop(taken);
    broker.reload(&after, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    // Whoever comes in after the reload meets the new terms: it is turned away.
    let stream = tcp(address(&broker, ListenerKind::HttpTopics));
    assert_eq!(std::io::Read::read(&mut &stream, &mut [0; 16]).unwrap_or(0), 0);
    assert_eq!(broker.addresses().len(), 2);
}
