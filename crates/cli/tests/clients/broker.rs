//! A broker on free ports with its doors open, ended with the test.

use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidegate_test_support::Launch;

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
    pub(crate) coap: u16,
    pub(crate) sn: u16,
    pub(crate) amqp: u16,
    pub(crate) amqps: u16,
    /// Where clients of SEPA look for queries and updates, and for subscriptions.
    pub(crate) sepa_http: u16,
    pub(crate) sepa_ws: u16,
}

/// A running broker.
pub(crate) struct Broker {
    process: tidegate_test_support::Broker,
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
        let mut launch = Launch::new().config(config);
        for (name, text) in files {
            launch = launch.file(name, text);
        }
        let (ca, cert, key) = certificates();
        launch = launch.file("ca.pem", &ca).file("cert.pem", &cert).file("key.pem", &key);
        for door in ["mqtts", "ws", "wss", "http", "sepa-http", "sepa-ws", "coap", "sn", "amqp", "amqps"] {
            launch = launch.door(door);
        }
        let (cert, key) = (launch.folder().join("cert.pem"), launch.folder().join("key.pem"));
        let process = launch
            .arguments(["--shards", "2", "--cert"])
            .arguments([cert])
            .arguments(["--key"])
            .arguments([key])
            .start();
        let port = |door| process.port(door);
        let (mqtt, mqtts, ws, wss) = (port("mqtt"), port("mqtts"), port("ws"), port("wss"));
        let (sepa_http, sepa_ws) = (port("sepa-http"), port("sepa-ws"));
        let (http, coap, sn) = (port("sparql"), port("coap"), port("sn"));
        let (amqp, amqps) = (port("amqp"), port("amqps"));
        let ports = Ports { mqtt, mqtts, ws, wss, http, coap, sn, amqp, amqps, sepa_http, sepa_ws };
        Self { process, ports }
    }

    /// The certificate to trust.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.process.folder().join("ca.pem")
    }

    /// Tells a program that is not ours where to find the broker.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        let Ports { mqtt, mqtts, ws, wss, http, coap, sn, amqp, amqps, sepa_http, sepa_ws } = self.ports;
        let mqtt = [("MQTT", mqtt), ("MQTTS", mqtts), ("WS", ws), ("WSS", wss), ("COAP", coap), ("SN", sn)];
        let amqp = [("AMQP", amqp), ("AMQPS", amqps)];
        let space = [("HTTP", http), ("SEPA_HTTP", sepa_http), ("SEPA_WS", sepa_ws)];
        for (name, port) in mqtt.into_iter().chain(amqp).chain(space) {
            command.env(format!("BROKER_{name}"), port.to_string());
        }
        command.env("BROKER_HOST", HOST).env("BROKER_CA", self.ca_file());
    }
}

/// An authority, a certificate that it signed, and that one's key: OpenSSL, rustls and Node.js all accept these.
fn certificates() -> (String, String, String) {
    let (ca, [(cert, key)]) = signed([HOST]);
    (ca, cert, key)
}

/// An authority, and a certificate with its key for each of these names.
pub(crate) fn signed<const N: usize>(names: [&str; N]) -> (String, [(String, String); N]) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    let authority_key = KeyPair::generate().expect("a key");
    let ca = authority.self_signed(&authority_key).expect("signed").pem();
    let issuer = Issuer::new(authority, authority_key);
    let leaves = names.map(|name| {
        let mut leaf = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        leaf.distinguished_name.push(rcgen::DnType::CommonName, name);
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        (leaf.signed_by(&key, &issuer).expect("signed").pem(), key.serialize_pem())
    });
    (ca, leaves)
}
