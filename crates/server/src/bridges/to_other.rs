//! The way to the other broker: its addresses, and TLS if that is wanted.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::bridge::{BridgeSettings, BridgeTls};

/// Bytes both ways.
pub(super) trait BridgeStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> BridgeStream for T {}

/// Where the other broker is, and whom to trust.
pub(super) struct OtherBroker {
    addresses: Vec<(String, u16)>,
    tls: Option<TlsConnector>,
}

impl OtherBroker {
    pub(super) fn new(settings: &BridgeSettings) -> Result<Self> {
        let tls = settings.tls.as_ref().map(client_config).transpose()?;
        let usual = if tls.is_some() { 8883 } else { 1883 };
        let addresses = settings.addresses.iter().map(|(host, port)| (host.clone(), port.unwrap_or(usual))).collect();
        Ok(Self { addresses, tls: tls.map(|config| TlsConnector::from(Arc::new(config))) })
    }

    /// As people write them.
    pub(super) fn addresses(&self) -> Vec<String> {
        let shown = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        self.addresses.iter().map(shown).collect()
    }

    /// Connects to one of them. The machine of the bridge says when that takes too long.
    pub(super) async fn open(self: Arc<Self>, address: usize) -> io::Result<Box<dyn BridgeStream>> {
        let nowhere = || io::Error::new(io::ErrorKind::NotFound, "no such address");
        let (host, port) = self.addresses.get(address).ok_or_else(nowhere)?;
        let tcp = TcpStream::connect((host.as_str(), *port)).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, tcp).await?))
    }
}

/// Whether the files are what they should be.
pub fn check_tls(tls: &BridgeTls) -> Result<()> {
    client_config(tls).map(drop)
}

pub(crate) fn client_config(tls: &BridgeTls) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let found = match &tls.ca {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (added, _) = roots.add_parsable_certificates(found);
    if added == 0 {
        bail!("there is no certificate to trust; name a file of them with \"ca\"");
    }
    // Named, not looked up: another crate of this program may have chosen another provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("{} cannot be read as a PEM key", key.display()))?;
            builder
                .with_client_auth_cert(certificates(cert)?, private)
                .with_context(|| format!("{} and {} do not belong together", cert.display(), key.display()))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
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
