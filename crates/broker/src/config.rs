//! What the process is to do. Plain values; the command line and the configuration file are read elsewhere.

use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::classes::AddressRange;
use tidegate_core::settings::Settings;
pub use tidegate_face_sn::PredefinedTopics;
use tidegate_store::disk::Mirror;

use crate::guard::GuardConfig;
use crate::pinned::Fingerprint;
use crate::store_link::StoreConfig;

/// Configuration of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listeners: Vec<Listener>,
    /// Shard threads; 0 is one for every two cores.
    pub shards: usize,
    /// Settings of sessions and routing.
    pub settings: Settings,
    /// Connections at the same time, over all listeners.
    pub connections_max: usize,
    /// Time for a client to send its CONNECT (and to finish TLS and WebSocket handshakes).
    pub handshake_timeout: Duration,
    /// Handshakes (TLS, WebSocket, CONNECT, password check) under way at the same time.
    pub handshakes_max: usize,
    /// Password checks running at the same time; more wait in a bounded queue.
    pub password_threads: usize,
    /// Bytes that may be kept for clients and messages, all together; none is half of what the machine or the control
    /// group has. At least 16 MiB.
    pub memory_max: Option<u64>,
    /// How often `$SYS` is published; zero is never.
    pub sys_interval: Duration,
    /// How long a drain may take.
    pub drain_timeout: Duration,
    /// Pages (`https://app.example`) that may use the WebSocket listeners and those for topics over HTTP; `*` is every page. `None`: to a browser on
    /// this machine, pages from elsewhere are refused, and nobody else is. Clients that are no browsers send no origin
    /// and are not concerned.
    pub origins: Option<Arc<[String]>>,
    /// Where sessions, their messages and retained messages are kept. `None`: only in memory.
    pub store: Option<StoreConfig>,
    /// Where the store's files are kept, too, before anything counts as kept. `None`: nowhere.
    pub mirror: Option<Arc<dyn Mirror>>,
    /// The broker behind, for whom this one is only a gate. `None`: there is none, and sessions are here.
    pub guard: Option<GuardConfig>,
    /// The gateway of MQTT-SN.
    pub sn: SnConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            shards: 0,
            settings: Settings::default(),
            connections_max: 100_000,
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 4096,
            password_threads: 1,
            memory_max: None,
            sys_interval: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(20),
            origins: None,
            store: None,
            mirror: None,
            guard: None,
            sn: SnConfig::default(),
        }
    }
}

/// What the gateway of MQTT-SN is told.
#[derive(Clone, Debug)]
pub struct SnConfig {
    /// Topics whose identifiers everybody knows.
    pub topics: Arc<PredefinedTopics>,
    /// The number by which it answers who looks for a gateway.
    pub gateway: u8,
    /// Where everybody is told that it is there. `None`: nobody is, and only who knows its address finds it.
    pub advertising: Option<SnAdvertising>,
}

/// How a gateway of MQTT-SN lets itself be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnAdvertising {
    /// A broadcast address or a group, and the port where nodes listen and ask.
    pub address: SocketAddrV4,
    /// How often; whole seconds.
    pub interval: Duration,
}

impl Default for SnConfig {
    fn default() -> Self {
        Self { topics: Arc::default(), gateway: 1, advertising: None }
    }
}

/// One listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// What it is called, in logs and for rules of access: as its kind, unless there are several of that. See
    /// [`listener_name`](crate::listener_name).
    pub name: &'static str,
    /// What is spoken there.
    pub kind: ListenerKind,
    /// Address and port; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Certificate files, for the kinds that need them.
    pub tls: Option<TlsFiles>,
    /// Connections at the same time here, beside the limit of all listeners together.
    pub connections_max: Option<usize>,
    /// Proxies, which say by the PROXY protocol where a connection comes from. Without any, nobody is asked; with some,
    /// nobody else may connect here.
    pub proxies: Arc<[AddressRange]>,
    /// What DTLS needs beside those, for the kind that speaks it.
    pub dtls: DtlsRules,
    /// Nobody asked for it: that it cannot be opened is no reason not to serve.
    pub is_optional: bool,
}

impl Listener {
    /// A listener of this kind, named as it, without TLS and without rules of its own.
    pub fn new(kind: ListenerKind, bind: SocketAddr) -> Self {
        Self {
            name: kind.name(),
            kind,
            bind,
            tls: None,
            dtls: DtlsRules::default(),
            connections_max: None,
            proxies: Arc::default(),
            is_optional: false,
        }
    }
}

/// What is spoken at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// MQTT over TCP.
    Mqtt,
    /// MQTT over TLS.
    Mqtts,
    /// MQTT over WebSocket at `/mqtt`.
    Ws,
    /// MQTT over secure WebSocket at `/mqtt`.
    Wss,
    /// CoAP over UDP; one at most.
    Coap,
    /// CoAP over DTLS; one at most.
    Coaps,
    /// MQTT-SN over UDP; one at most.
    Sn,
    /// Topics over HTTP, with server-sent events.
    HttpTopics,
    /// The same over TLS.
    HttpsTopics,
    /// AMQP 1.0.
    Amqp,
    /// AMQP 1.0 over TLS.
    Amqps,
}

impl ListenerKind {
    /// As the configuration has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Mqtts => "mqtts",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Coap => "coap",
            Self::Coaps => "coaps",
            Self::Sn => "sn",
            Self::HttpTopics => "http_topics",
            Self::HttpsTopics => "https_topics",
            Self::Amqp => "amqp",
            Self::Amqps => "amqps",
        }
    }

    /// TLS comes before everything else.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Self::Mqtts | Self::Wss | Self::Coaps | Self::HttpsTopics | Self::Amqps)
    }

    /// It has a socket for datagrams, and no connections.
    pub fn is_datagrams(self) -> bool {
        matches!(self, Self::Coap | Self::Coaps | Self::Sn)
    }
}

/// What DTLS needs beside the files of TLS, which it can do without.
#[derive(Clone, Debug)]
pub struct DtlsRules {
    /// Keys of clients, by name; read again at a reload.
    pub psk_file: Option<PathBuf>,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
}

impl Default for DtlsRules {
    fn default() -> Self {
        Self { psk_file: None, handshake_timeout: Duration::from_secs(10) }
    }
}

/// Files of a TLS listener; read again at a reload.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// CA that signs client certificates, PEM.
    pub client_ca: Option<PathBuf>,
    /// Whether a client must show a certificate; its CN (or first SAN) is then its user.
    pub client_cert_required: bool,
    /// Certificates of clients that were taken back, PEM; with a CA.
    pub crl: Option<PathBuf>,
    /// The only certificates of clients that are let in, beside being signed by the CA; all if there are none.
    pub client_pins: Vec<Fingerprint>,
}
