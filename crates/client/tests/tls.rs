//! The secure ways in, with a certificate made for the test: MQTT over TLS and over secure WebSocket against the broker, the
//! smart space's own doors with TLS, and a space behind whatever does TLS before its plain door.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::{Broker as Door, soon, triple};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind, TlsFiles};
use tidegate_client::{Error, EventKind, Level, Mqtt, MqttConfig, QoS, Space, SpaceConfig};
use tidegate_core::access::Open;
use tidegate_graph::SpaceLimits;
use tidegate_space::{BoundSockets, Everybody, Service, SpaceListeners, TlsSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate for localhost and its key, in a folder that is removed at the end.
struct Papers {
    folder: PathBuf,
    cert: String,
    key: String,
}

impl Papers {
    fn make() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tidegate-client-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(folder.join("cert.pem"), &cert).unwrap();
        std::fs::write(folder.join("key.pem"), &key).unwrap();
        Self { folder, cert, key }
    }

    fn files(&self) -> TlsFiles {
        let (cert, key) = (self.folder.join("cert.pem"), self.folder.join("key.pem"));
        TlsFiles { cert, key, ..TlsFiles::default() }
    }

    fn ca(&self) -> Vec<u8> {
        self.cert.clone().into_bytes()
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn start(kind: ListenerKind, papers: &Papers) -> (Broker, SocketAddr) {
    let bind = "127.0.0.1:0".parse().unwrap();
    let listeners = vec![Listener { tls: Some(papers.files()), ..Listener::new(kind, bind) }];
    let config = Config { listeners, shards: 1, drain_timeout: std::time::Duration::ZERO, ..Config::default() };
    let broker = Broker::start(config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    let address = broker.addresses()[0].1;
    (broker, address)
}

#[tokio::test]
async fn mqtt_over_tls_and_over_secure_websocket() {
    let (papers, others) = (Papers::make(), Papers::make());
    for (kind, scheme) in [(ListenerKind::Mqtts, "mqtts"), (ListenerKind::Wss, "wss")] {
        let (_broker, at) = start(kind, &papers);
        let url = format!("{scheme}://localhost:{}", at.port());
        let config = MqttConfig { ca: Some(papers.ca()), ..MqttConfig::default() };
        let mqtt = soon(Mqtt::connect_with(&url, config)).await.unwrap();
        soon(mqtt.subscribe("room/#", QoS::AtLeastOnce)).await.unwrap();
        // Longer than a record of TLS.
        let payload: Vec<u8> = (0..100_000_u32).map(|place| (place % 251) as u8).collect();
        soon(mqtt.publish("room/a", payload.clone())).await.unwrap();
        assert!(soon(mqtt.next()).await.unwrap().payload == payload, "{scheme}");
        // Whoever is not trusted is not spoken to.
        let stranger = MqttConfig { ca: Some(others.ca()), ..MqttConfig::default() };
        let error = soon(Mqtt::connect_with(&url, stranger)).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{scheme}: {error}");
        // A certificate that is trusted, for another name.
        let elsewhere = format!("{scheme}://127.0.0.1:{}", at.port());
        let config = MqttConfig { ca: Some(papers.ca()), ..MqttConfig::default() };
        let error = soon(Mqtt::connect_with(&elsewhere, config)).await.unwrap_err();
        assert!(is_of_another_name(&error), "{scheme}: {error}");
        let nobody = MqttConfig { ca: Some(Vec::new()), ..MqttConfig::default() };
        assert!(matches!(soon(Mqtt::connect_with(&url, nobody)).await, Err(Error::Trust(_))));
    }
}

fn is_of_another_name(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. }) && error.to_string().contains("not valid for name")
}

fn server_config(papers: &Papers) -> Arc<ServerConfig> {
    let certificates = CertificateDer::pem_slice_iter(papers.cert.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    Arc::new(config)
}

/// Certificates of a space's doors, which can be changed.
#[derive(Debug)]
struct InForce(Mutex<Arc<ServerConfig>>);

impl TlsSource for InForce {
    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.lock().unwrap())
    }

    fn user_of(&self, _: &[u8]) -> Option<String> {
        None
    }
}

/// A space whose doors have TLS, and where they are.
fn secure_space(papers: &Papers) -> ((Service, SpaceListeners), Arc<InForce>, [String; 2]) {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let bind = || Some(tidegate_space::bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let in_force = Arc::new(InForce(Mutex::new(server_config(papers))));
    let bound = BoundSockets::new(None, None).with_tls(bind(), bind(), Arc::clone(&in_force) as Arc<dyn TlsSource>);
    let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody)).unwrap();
    let at = doors.addresses();
    let url = |scheme: &str, at: Option<SocketAddr>| format!("{scheme}://localhost:{}", at.unwrap().port());
    let urls = [url("https", at.https), url("ssaps", at.ssaps)];
    ((service, doors), in_force, urls)
}

#[tokio::test]
async fn the_doors_of_a_space_speak_tls_and_a_renewed_certificate_holds_for_the_next_connection() {
    let (papers, renewed) = (Papers::make(), Papers::make());
    let (_running, in_force, urls) = secure_space(&papers);
    let trusting = |papers: &Papers| SpaceConfig { ca: Some(papers.ca()), ..SpaceConfig::default() };
    for url in &urls {
        let space = soon(Space::connect_with(url, trusting(&papers))).await.unwrap();
        // Longer than a record of TLS.
        let long = "x".repeat(100_000);
        space.insert(&[triple("urn:lamp", "on"), triple("urn:long", &long)]).await.unwrap();
        let rows = space.query("SELECT ?o { <urn:long> <urn:state> ?o }").await.unwrap();
        assert_eq!(rows[0].text("o").map(str::len), Some(long.len()), "{url}");
        let query = space.persistent_query("SELECT ?o { <urn:lamp> <urn:state> ?o }").control(Level::Active);
        let mut query = soon(query.open()).await.unwrap();
        soon(query.next()).await.unwrap();
        space.edit(&[triple("urn:lamp", "off")], &[triple("urn:lamp", "on")]).await.unwrap();
        assert_eq!(soon(query.next()).await.unwrap().added[0].text("o"), Some("off"), "{url}");
        let stranger = soon(Space::connect_with(url, trusting(&renewed))).await.unwrap_err();
        assert!(matches!(stranger, Error::Unreachable { .. }), "{url}: {stranger}");
        space.remove(&[triple("urn:lamp", "off"), triple("urn:long", &long)]).await.unwrap();
    }
    *in_force.0.lock().unwrap() = server_config(&renewed);
    for url in &urls {
        assert!(soon(Space::connect_with(url, trusting(&renewed))).await.is_ok(), "{url}: it holds at once");
        assert!(soon(Space::connect_with(url, trusting(&papers))).await.is_err(), "{url}: the old one does not");
    }
}

#[tokio::test]
async fn a_client_without_tls_is_told_so_over_http_and_closed_over_ssap() {
    let papers = Papers::make();
    let (_running, _, urls) = secure_space(&papers);
    let ask = async |url: &str, words: &[u8]| {
        let mut plain = TcpStream::connect(url.split_once("//").unwrap().1).await.unwrap();
        plain.write_all(words).await.unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let told = soon(ask(&urls[0], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("this port speaks TLS"), "{told}");
    assert_eq!(soon(ask(&urls[1], b"<SSAP_message>")).await, "");
    // Nonsense that begins as TLS does.
    assert!(!soon(ask(&urls[0], b"\x16\x03\x01nonsense, of some length")).await.contains("HTTP"));
    let space = SpaceConfig { ca: Some(papers.ca()), ..SpaceConfig::default() };
    assert!(soon(Space::connect_with(&urls[0], space)).await.is_ok(), "others are served");
}

/// TLS before a plain door.
async fn before(door: &str, papers: &Papers) -> u16 {
    let config = server_config(papers);
    let (acceptor, listener) = (TlsAcceptor::from(config), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (port, door) = (listener.local_addr().unwrap().port(), door.to_owned());
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (acceptor, door) = (acceptor.clone(), door.clone());
            tokio::spawn(async move {
                let Ok(mut near) = acceptor.accept(near).await else { return };
                let Ok(mut far) = TcpStream::connect(door).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_space_behind_tls_is_asked_and_followed() {
    let (papers, mut broker) = (Papers::make(), Door::start());
    let port = before(broker.urls()[1].strip_prefix("http://").unwrap(), &papers).await;
    let url = format!("https://localhost:{port}");
    let config = SpaceConfig { ca: Some(papers.ca()), ..SpaceConfig::default() };
    let elsewhere = format!("https://127.0.0.1:{port}");
    let error = soon(Space::connect_with(&elsewhere, config.clone())).await.unwrap_err();
    assert!(is_of_another_name(&error), "{error}");
    let space = soon(Space::connect_with(&url, config)).await.unwrap();
    let mut events = space.events();
    let query = space.persistent_query("SELECT ?o { <urn:lamp> <urn:state> ?o }").control(Level::Active);
    let mut query = soon(query.open()).await.unwrap();
    soon(query.next()).await.unwrap();
    space.insert(&[triple("urn:lamp", "on")]).await.unwrap();
    assert_eq!(soon(query.next()).await.unwrap().added[0].text("o"), Some("on"));
    // It survives what any connection survives, and says so.
    broker.stop();
    broker.go_on();
    let change = soon(query.next()).await.unwrap();
    assert_eq!((change.removed.len(), change.added.len()), (1, 0), "the broker came back with nothing");
    let kinds: Vec<EventKind> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::BaselineRenewed { rows: 0 }) && kinds.contains(&EventKind::Cut), "{kinds:?}");
    assert!(kinds.iter().any(|kind| matches!(kind, EventKind::Returning { .. })), "{kinds:?}");
    assert!(matches!(soon(Space::connect(&url)).await, Err(Error::Unreachable { .. } | Error::Trust(_))));
}
