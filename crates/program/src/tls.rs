//! TLS of the client: whom to trust, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// A file with certificates to trust.
    pub ca: Option<PathBuf>,
    /// A folder of such files. Without either: those of the operating system.
    pub ca_folder: Option<PathBuf>,
    /// Nothing older than TLS 1.3.
    pub newest_only: bool,
    /// Protocol to ask for (ALPN).
    pub alpn: Option<String>,
    /// Trust everybody.
    pub everybody: bool,
    /// Our own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A new TLS session with this host.
pub fn session(host: &str, trust: &Trust) -> Result<ClientConnection> {
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host:?} is no name of a host"))?;
    // Named, not looked up: another crate of this program may have chosen another provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: &[&rustls::SupportedProtocolVersion] =
        if trust.newest_only { &[&rustls::version::TLS13] } else { rustls::ALL_VERSIONS };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions)?;
    let builder = if trust.everybody {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        builder.with_root_certificates(roots(trust)?)
    };
    let mut config = match &trust.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .with_context(|| format!("{} and {} do not belong together", cert.display(), key.display()))?,
    };
    config.alpn_protocols = trust.alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect();
    Ok(ClientConnection::new(Arc::new(config), name)?)
}

fn roots(trust: &Trust) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let mut found = match (&trust.ca, &trust.ca_folder) {
        (Some(path), _) => certificates(path)?,
        (None, Some(_)) => Vec::new(),
        (None, None) => rustls_native_certs::load_native_certs().certs,
    };
    if let Some(folder) = &trust.ca_folder {
        found.extend(certificates_in(folder)?);
    }
    // The operating system's list may contain oddities; our own file should not, and is counted below.
    let (added, _) = roots.add_parsable_certificates(found);
    if added == 0 {
        bail!("no certificate to trust; name one with --cafile or --capath");
    }
    Ok(roots)
}

/// Of all files of a folder; those that hold none are left out, as OpenSSL does.
/// What to do about a certificate, by the words of the TLS library; without them there is only less advice.
pub fn certificate_hint(words: &str) -> Option<&'static str> {
    words.contains("CaUsedAsEndEntity").then_some(
        "its certificate is that of an authority, as `openssl req -x509` makes it, and cannot be a server's: make one with \
         -addext basicConstraints=critical,CA:FALSE, or with `tidegate init --tls`",
    )
}

fn certificates_in(folder: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("--capath {}", folder.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file());
    Ok(files.filter_map(|path| certificates(&path).ok()).flatten().collect())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let unreadable = || format!("{} cannot be read as PEM certificates", path.display());
    let list: Vec<_> = CertificateDer::pem_file_iter(path)
        .with_context(unreadable)?
        .collect::<Result<_, _>>()
        .with_context(unreadable)?;
    if list.is_empty() {
        bail!("{} contains no certificate", path.display());
    }
    Ok(list)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).with_context(|| format!("{} cannot be read as a PEM key", path.display()))
}

/// Believes every certificate, as asked for by `--insecure`. Signatures are checked all the same: the other side must
/// at least own what it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
