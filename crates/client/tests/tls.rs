//! The secure ways in, with a certificate made for the test: MQTT over TLS and over secure WebSocket against the broker,
//! and a space behind whatever does TLS before its plain door.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Broker as Door, soon, triple};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind, TlsFiles};
use tidegate_client::{Error, EventKind, Level, Mqtt, MqttConfig, QoS, Space, SpaceConfig};
use tidegate_core::access::Open;
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
        TlsFiles { cert, key, client_ca: None, client_cert_required: false }
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
    let listeners = vec![Listener { kind, bind, tls: Some(papers.files()) }];
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

/// TLS before a plain door.
async fn before(door: &str, papers: &Papers) -> u16 {
    let certificates = CertificateDer::pem_slice_iter(papers.cert.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
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
