//! An endpoint and its clients, without sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::{Config, Dtls, DtlsCertificate, Output, PskResolver};
use rcgen::{CertificateParams, DnType, KeyPair};
use tidegate_control::Timestamp;
use tidegate_dtls::{CertificateJudge, DtlsEndpoint, DtlsEvent, DtlsPlan, DtlsSettings, OwnCertificate};

pub(crate) const KEY: &[u8] = b"a key of 16 bytes";

pub(crate) fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], 10_000 + port).into()
}

/// Trusts whoever says that it is a pump.
#[derive(Debug)]
struct Pumps;

impl CertificateJudge for Pumps {
    fn name(&self, certificate: &[u8]) -> Option<String> {
        let at = certificate.windows(5).position(|bytes| bytes == b"pump-")?;
        String::from_utf8(certificate[at..at + 6].to_vec()).ok()
    }
}

fn certificate(name: &str) -> (Vec<u8>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.self_signed(&key).unwrap().der().to_vec(), key.serialize_der())
}

fn settings(names: &[&str]) -> DtlsSettings {
    let (certificate, private_key) = certificate("broker");
    DtlsSettings {
        certificate: Some(OwnCertificate { certificate, private_key }),
        judge: Some(Arc::new(Pumps)),
        keys: names.iter().map(|name| ((*name).to_owned(), KEY.to_vec())).collect::<BTreeMap<_, _>>(),
        handshake_timeout: Duration::from_secs(10),
    }
}

pub(crate) fn plan(names: &[&str]) -> Arc<DtlsPlan> {
    Arc::new(DtlsPlan::new(settings(names)).unwrap())
}

pub(crate) fn plan_without_certificate() -> Arc<DtlsPlan> {
    Arc::new(DtlsPlan::new(DtlsSettings { certificate: None, ..settings(&["pump-7"]) }).unwrap())
}

/// An endpoint, and what it had to say.
pub(crate) struct TestWorld {
    pub(crate) endpoint: DtlsEndpoint,
    pub(crate) now: Timestamp,
    pub(crate) heard: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) refused: Vec<SocketAddr>,
    pub(crate) ended: Vec<SocketAddr>,
    /// The datagram that does not arrive, of all in both directions.
    pub(crate) lose: Option<u32>,
    seen: u32,
    /// Sent while time passed.
    under_way: Vec<(SocketAddr, Vec<u8>)>,
}

impl TestWorld {
    pub(crate) fn new() -> Self {
        Self::of(plan(&["pump-7", "pump-8"]))
    }

    pub(crate) fn of(plan: Arc<DtlsPlan>) -> Self {
        let endpoint = DtlsEndpoint::new(plan, &[5; 32], 1, origin());
        let now = Timestamp::ZERO + Duration::from_secs(10);
        Self {
            endpoint,
            now,
            heard: Vec::new(),
            refused: Vec::new(),
            ended: Vec::new(),
            lose: None,
            seen: 0,
            under_way: Vec::new(),
        }
    }

    /// A handshake, without any loss.
    pub(crate) fn meet(&mut self, client: &mut TestClient) {
        self.run(client);
        assert!(client.is_connected && self.endpoint.peer(client.at).is_some(), "{:?}", self.endpoint.stats());
    }

    /// Until neither has anything to say.
    pub(crate) fn run(&mut self, client: &mut TestClient) {
        self.take(client);
        while let Some(datagram) = client.next() {
            if !self.is_lost() {
                self.endpoint.handle_datagram(client.at, &datagram, self.now);
            }
            self.take(client);
        }
    }

    /// What the endpoint has to say, some of it to this client.
    pub(crate) fn take(&mut self, client: &mut TestClient) {
        // As a driver does: each turn has time for a few parts of handshakes, and the next one is at once if there are more.
        self.endpoint.turn(self.now);
        while self.endpoint.poll_timeout() == Some(Timestamp::ZERO) {
            self.endpoint.turn(self.now);
        }
        for (to, datagram) in std::mem::take(&mut self.under_way) {
            if !self.is_lost() && to == client.at {
                client.hear(&datagram);
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                DtlsEvent::Send(to, datagram) => {
                    if !self.is_lost() && to == client.at {
                        client.hear(&datagram);
                    }
                }
                DtlsEvent::Data(from, data) => self.heard.push((from, data)),
                DtlsEvent::Refused(whom) => self.refused.push(whom),
                DtlsEvent::Ended(whom) => self.ended.push(whom),
            }
        }
    }

    /// Time passes here.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.endpoint.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.endpoint.turn(self.now);
        }
        self.now = until;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                DtlsEvent::Refused(whom) => self.refused.push(whom),
                DtlsEvent::Ended(whom) => self.ended.push(whom),
                DtlsEvent::Send(to, datagram) => self.under_way.push((to, datagram)),
                DtlsEvent::Data(from, data) => self.heard.push((from, data)),
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        self.seen += 1;
        self.lose == Some(self.seen - 1)
    }
}

/// Whom a datagram is for, and the datagram.
pub(crate) fn sent(event: DtlsEvent) -> (SocketAddr, Vec<u8>) {
    match event {
        DtlsEvent::Send(to, datagram) => (to, datagram),
        other => panic!("{other:?}"),
    }
}

/// A client.
pub(crate) struct TestClient {
    pub(crate) at: SocketAddr,
    pub(crate) heard: Vec<Vec<u8>>,
    pub(crate) is_connected: bool,
    pub(crate) is_closed: bool,
    dtls: Dtls,
    now: Instant,
    is_over: bool,
}

struct OneKey(Vec<u8>);

impl PskResolver for OneKey {
    fn resolve(&self, _: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

impl TestClient {
    pub(crate) fn with_key(name: &str, key: &[u8]) -> Self {
        let config = Config::builder().with_psk_client(name.as_bytes().to_vec(), Arc::new(OneKey(key.to_vec())));
        Self::new(Dtls::new_12_psk(Arc::new(config.build().unwrap()), origin()))
    }

    pub(crate) fn with_certificate(name: &str) -> Self {
        let (certificate, private_key) = certificate(name);
        let config = Arc::new(Config::builder().build().unwrap());
        Self::new(Dtls::new_12(config, DtlsCertificate { certificate, private_key }, origin()))
    }

    fn new(mut dtls: Dtls) -> Self {
        dtls.set_active(true);
        let now = origin();
        dtls.handle_timeout(now).unwrap();
        Self { at: address(1), heard: Vec::new(), is_connected: false, is_closed: false, dtls, now, is_over: false }
    }

    pub(crate) fn say(&mut self, data: &[u8]) {
        let _ = self.dtls.send_application_data(data);
    }

    pub(crate) fn close(&mut self) {
        self.dtls.close().unwrap();
    }

    pub(crate) fn hear(&mut self, datagram: &[u8]) {
        self.is_over |= self.dtls.handle_packet(datagram).is_err();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.is_over |= self.dtls.handle_timeout(self.now).is_err();
    }

    /// The next datagram that it sends.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 2048];
        while !self.is_over {
            match self.dtls.poll_output(&mut buffer) {
                Output::Packet(datagram) => return Some(datagram.to_vec()),
                Output::Timeout(_) => return None,
                Output::Connected => self.is_connected = true,
                Output::ApplicationData(data) => self.heard.push(data.to_vec()),
                Output::CloseNotify => self.is_closed = true,
                _ => {}
            }
        }
        None
    }
}

/// When everything begins; any time will do.
fn origin() -> Instant {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "there is no other way to have an instant at all")]
    *ORIGIN.get_or_init(Instant::now)
}
