//! Bytes on their way, with TLS or without.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::address::{BrokerUrl, within};
use crate::error::Error;
use crate::limits::CONNECT_TIMEOUT;

pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}
pub(crate) type Stream = Box<dyn ByteStream>;

/// How a broker is reached: where it is, and whom to trust.
#[derive(Clone)]
pub(crate) struct BrokerRoute {
    pub(crate) address: BrokerUrl,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for BrokerRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Road").field("address", &self.address).field("is_secure", &self.tls.is_some()).finish()
    }
}

impl BrokerRoute {
    /// The scheme says whether there is TLS; `ca` are certificates to trust, as PEM, instead of those of this machine.
    pub(crate) fn new(address: BrokerUrl, ca: Option<&[u8]>) -> Result<Self, Error> {
        let is_secure = matches!(address.scheme.as_str(), "mqtts" | "wss" | "https" | "ssaps");
        let tls = if is_secure { Some(connector(ca)?) } else { None };
        Ok(Self { address, tls })
    }

    /// The same broker and the same trust, another path.
    pub(crate) fn to(&self, scheme: &str, path: String) -> Self {
        Self { address: BrokerUrl { scheme: scheme.into(), path, ..self.address.clone() }, tls: self.tls.clone() }
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) async fn open(&self) -> Result<Stream, Error> {
        let tcp = self.address.open().await?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let unreachable = |error| Error::Unreachable { address: self.address.authority(), error };
        let name =
            ServerName::try_from(self.address.host.clone()).map_err(|error| unreachable(io::Error::other(error)))?;
        let stream = within(CONNECT_TIMEOUT, tls.connect(name, tcp)).await?.map_err(unreachable)?;
        Ok(Box::new(stream))
    }
}

fn connector(ca: Option<&[u8]>) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    let (added, _) = match ca {
        Some(pem) => roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten()),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    if added == 0 {
        let whose = if ca.is_some() { "in what was given" } else { "on this machine" };
        return Err(Error::Trust(format!("no certificate to trust {whose}")));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Trust(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_anybody_to_trust_there_is_an_error_before_any_connection() {
        let read = |text| BrokerUrl::read(text, &[("https", 443), ("http", 80)]).unwrap();
        assert!(matches!(BrokerRoute::new(read("https://localhost"), Some(b"nothing")), Err(Error::Trust(_))));
        assert!(!BrokerRoute::new(read("http://localhost"), Some(b"nothing")).unwrap().is_secure());
    }
}
