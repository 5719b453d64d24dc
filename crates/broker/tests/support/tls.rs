//! Certificates made on the spot, and a TLS client that trusts them.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate_broker::config::{Listener, ListenerKind, TlsFiles};

/// An authority, and a folder for the files that are signed by it. The folder is removed at the end.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate with its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tidegate-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// Files for a server at `localhost`; another certificate each time.
    pub(crate) fn write_server_files(&self, client_cert_required: bool) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = (self.folder.join("server.pem"), self.folder.join("server.key"));
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let client_ca = client_cert_required.then(|| self.folder.join("ca.pem"));
        TlsFiles { cert: cert_file, key: key_file, client_ca, client_cert_required, ..TlsFiles::default() }
    }

    pub(crate) fn listener(&self, kind: ListenerKind, client_cert_required: bool) -> Listener {
        Listener { tls: Some(self.write_server_files(client_cert_required)), ..super::listener(kind) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A client with this common name.
    pub(crate) fn identity(&self, name: &str) -> Identity {
        self.identity_in(name, 1975, 4096)
    }

    /// A client whose certificate has this number.
    pub(crate) fn identity_numbered(&self, name: &str, number: u64) -> Identity {
        let mut params = Self::params(name, 1975, 4096);
        params.serial_number = Some(number.into());
        self.signed(&params)
    }

    /// Writes a list that takes back the certificates with these numbers.
    pub(crate) fn write_crl(&self, numbers: &[u64]) -> PathBuf {
        let revoked_certs = numbers.iter().map(|number| rcgen::RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: rcgen::date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2001, 1, 1),
            next_update: rcgen::date_time_ymd(4000, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let path = self.folder.join("crl.pem");
        std::fs::write(&path, params.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }

    /// A client whose certificate holds between the beginnings of these years.
    pub(crate) fn identity_in(&self, name: &str, from: i32, until: i32) -> Identity {
        self.signed(&Self::params(name, from, until))
    }

    fn params(name: &str, from: i32, until: i32) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn signed(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Identity { certificate, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    /// A TLS connection, its handshake still to be done.
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        identity: Option<Identity>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> StreamOwned<ClientConnection, TcpStream> {
        connect_with(address, self.client_config(identity, versions, |_| {}))
    }

    pub(crate) fn client_config(
        &self,
        identity: Option<Identity>,
        versions: &[&'static rustls::SupportedProtocolVersion],
        change: impl FnOnce(&mut ClientConfig),
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(vec![identity.certificate], identity.key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        change(&mut config);
        Arc::new(config)
    }
}

/// A TLS connection with this configuration, its handshake still to be done.
pub(crate) fn connect_with(address: SocketAddr, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let session = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    StreamOwned::new(session, super::tcp(address))
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
