//! Certificates of clients at the smart space's doors with TLS: whose name one has is who comes, and nobody comes without.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate_test_support::{Broker, Launch};

type Authority = CertifiedIssuer<'static, KeyPair>;
type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A client with this common name.
fn identity(authority: &Authority, name: &str) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.signed_by(&key, authority).unwrap().der().clone();
    (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// Ann and everybody have a graph of their own; a certificate is required.
const RULES: &str = "[[security.rule]]\nallow = \"readwrite\"\ngraph = \"urn:home/%u\"\n";

fn start(authority: &Authority) -> Broker {
    let launch = Launch::new().door("https").door("ssaps").door("admin");
    let folder = launch.folder().display().to_string();
    let config = format!(
        "[tls]\ncert = \"{folder}/cert.pem\"\nkey = \"{folder}/key.pem\"\nclient_ca = \"{folder}/ca.pem\"\n\
         [listeners]\nmqtts = \"off\"\nwss = \"off\"\n{RULES}"
    );
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    let launch = launch.file("cert.pem", &certificate.pem()).file("key.pem", &key.serialize_pem());
    launch.file("ca.pem", &authority.pem()).config(&config).start()
}

/// What a door of the broker says to this, until it closes; none if it does not let us in.
fn talk(broker: &Broker, door: &str, authority: &Authority, who: Option<Identity>, text: &str) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match who {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", broker.port(door))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(session, stream);
    stream.write_all(text.as_bytes()).ok()?;
    let mut answer = Vec::new();
    // With TLS 1.3 whoever is not let in hears of it with the first byte.
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(_) if answer.is_empty() => return None,
            Err(_) => break,
        }
        if String::from_utf8_lossy(&answer).contains("</SSAP_message>") {
            break;
        }
    }
    Some(String::from_utf8_lossy(&answer).into_owned())
}

fn http(path: &str, kind: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/{kind}\r\n\
         Content-Length: {}\r\nAccept: text/csv\r\n\r\n{body}",
        body.len()
    )
}

fn ssap(kind: &str, parameters: &str) -> String {
    format!(
        "<SSAP_message><node_id>kp1</node_id><space_id>X</space_id><transaction_type>{kind}</transaction_type>\
         <message_type>REQUEST</message_type><transaction_id>1</transaction_id>{parameters}</SSAP_message>"
    )
}

#[test]
fn a_certificate_says_who_comes_at_https_and_ssaps_and_nobody_comes_without_one() {
    let (ours, others) = (authority("ours"), authority("others"));
    let broker = start(&ours);
    let ask = |door: &str, who: Option<Identity>, text: &str| talk(&broker, door, &ours, who, text);
    let insert = |graph: &str| {
        let text = format!("INSERT DATA {{ GRAPH <urn:home/{graph}> {{ <urn:x> <urn:p> \"{graph}\" }} }}");
        http("/update", "sparql-update", &text)
    };
    let own = ask("https", Some(identity(&ours, "ann")), &insert("ann")).unwrap();
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let foreign = ask("https", Some(identity(&ours, "ann")), &insert("bob")).unwrap();
    assert!(foreign.starts_with("HTTP/1.1 403") && foreign.contains("graph-forbidden"), "{foreign}");
    let question = http("/query", "sparql-query", "SELECT ?o { GRAPH ?g { ?s ?p ?o } }");
    let seen = ask("https", Some(identity(&ours, "ann")), &question).unwrap();
    assert!(seen.ends_with("o\r\nann\r\n"), "{seen}");
    let seen = ask("https", Some(identity(&ours, "bob")), &question).unwrap();
    assert!(seen.starts_with("HTTP/1.1 200") && !seen.contains("ann"), "{seen}");
    // The same at the door of SSAP.
    let text = "SELECT ?o { GRAPH ?g { ?s ?p ?o } }";
    let query = ssap(
        "QUERY",
        &format!("<parameter name=\"type\">sparql</parameter><parameter name=\"query\">{text}</parameter>"),
    );
    let seen = ask("ssaps", Some(identity(&ours, "ann")), &query).unwrap();
    assert!(seen.contains("m3:Success") && seen.contains(">ann<"), "{seen}");
    let seen = ask("ssaps", Some(identity(&ours, "bob")), &query).unwrap();
    assert!(seen.contains("m3:Success") && !seen.contains(">ann<"), "{seen}");
    for door in ["https", "ssaps"] {
        let text = if door == "https" { &question } else { &query };
        assert_eq!(ask(door, None, text), None, "{door}: without a certificate");
        assert_eq!(ask(door, Some(identity(&others, "ann")), text), None, "{door}: of another authority");
    }
    // Who it was is known to whoever asks.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let listed = command.args(["kps", "--json", "--admin", &broker.admin()]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("\"ann\"") && listed.contains("\"bob\"") && listed.contains("ssap"), "{listed}");
}
