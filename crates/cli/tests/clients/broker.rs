//! A broker on free ports with its doors open, ended with the test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The name that the certificate is for.
pub(crate) const HOST: &str = "localhost";

/// The ports that a client can come in by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ports {
    pub(crate) mqtt: u16,
    pub(crate) mqtts: u16,
    pub(crate) ws: u16,
    pub(crate) wss: u16,
    pub(crate) http: u16,
    /// Where clients of SEPA look for queries and updates, and for subscriptions.
    pub(crate) sepa_http: u16,
    pub(crate) sepa_ws: u16,
}

/// A running broker.
pub(crate) struct Broker {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) ports: Ports,
}

impl Broker {
    /// A broker with two shards, so that most messages cross from one to the other.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// The same, with this configuration file.
    pub(crate) fn start_with(config: &str) -> Self {
        Self::start_with_files(config, &[])
    }

    /// The same, with these files beside it.
    pub(crate) fn start_with_files(config: &str, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("written");
        write("tidegate.toml", config);
        for (name, text) in files {
            write(name, text);
        }
        let (ca, cert, key) = certificates();
        write("ca.pem", &ca);
        write("cert.pem", &cert);
        write("key.pem", &key);
        let log = std::fs::File::create(path("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "--shards", "2", "--admin", "off", "--ssap", "off"]);
        for door in ["--mqtt", "--mqtts", "--ws", "--wss", "--http", "--sepa-http", "--sepa-ws"] {
            command.args([door, "127.0.0.1:0"]);
        }
        for (flag, name) in [("-c", "tidegate.toml"), ("--data", "data"), ("--cert", "cert.pem"), ("--key", "key.pem")]
        {
            command.arg(flag).arg(path(name));
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("the broker starts");
        let output = child.stdout.take().expect("piped");
        let mut broker = Self { child, folder, ports: Ports::default() };
        let mut banner = String::new();
        BufReader::new(output).read_line(&mut banner).expect("the broker speaks");
        let port = |door| port_of(door, &banner);
        let (mqtt, mqtts, ws, wss) = (port("mqtt"), port("mqtts"), port("ws"), port("wss"));
        let (sepa_http, sepa_ws) = (port("sepa-http"), port("sepa-ws"));
        broker.ports = Ports { mqtt, mqtts, ws, wss, http: port("sparql"), sepa_http, sepa_ws };
        broker
    }

    /// The certificate to trust.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Tells a program that is not ours where to find the broker.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        let Ports { mqtt, mqtts, ws, wss, http, sepa_http, sepa_ws } = self.ports;
        let mqtt = [("MQTT", mqtt), ("MQTTS", mqtts), ("WS", ws), ("WSS", wss)];
        let space = [("HTTP", http), ("SEPA_HTTP", sepa_http), ("SEPA_WS", sepa_ws)];
        for (name, port) in mqtt.into_iter().chain(space) {
            command.env(format!("BROKER_{name}"), port.to_string());
        }
        command.env("BROKER_HOST", HOST).env("BROKER_CA", self.ca_file());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("the broker's log:\n{log}");
        }
    }
}

/// The port of a door, from the line that the broker prints: `mqtt 127.0.0.1:1883  ws://127.0.0.1:8083/mqtt`.
fn port_of(door: &str, banner: &str) -> u16 {
    let address = banner.split("  ").find_map(|part| part.strip_prefix(door)?.strip_prefix([' ', ':']));
    let port = address.and_then(|address| address.rsplit(':').next()).and_then(|port| port.split(['/', ' ']).next());
    port.and_then(|port| port.trim().parse().ok()).unwrap_or_else(|| panic!("no {door} in {banner:?}"))
}

/// An authority, a certificate that it signed, and that one's key: OpenSSL, rustls and Node.js all accept these.
fn certificates() -> (String, String, String) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    let authority_key = KeyPair::generate().expect("a key");
    let ca = authority.self_signed(&authority_key).expect("signed").pem();
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
    leaf.distinguished_name.push(rcgen::DnType::CommonName, HOST);
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().expect("a key");
    let cert = leaf.signed_by(&key, &issuer).expect("signed").pem();
    (ca, cert, key.serialize_pem())
}
