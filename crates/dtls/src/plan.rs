//! What is shown to clients, and asked of them. Made once from settings, and anew at a reload; sessions that exist keep what they
//! began with, but whoever came with a key that is there no more has to go.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::crypto::Dtls12CipherSuite;
use dimpl::{Config, ConfigBuilder, Dtls, DtlsCertificate, PskResolver};

use crate::beside;
use crate::limits::{DATAGRAM_BYTES, EARLY_MAX, IDENTITY_BYTES_MAX, RETRIES_MAX};

/// What a plan is made of.
#[derive(Debug, Default)]
pub struct DtlsSettings {
    /// Ours; none: nobody comes in with a certificate.
    pub certificate: Option<OwnCertificate>,
    /// Who knows whom to trust; none: clients are asked for no certificate.
    pub judge: Option<Arc<dyn CertificateJudge>>,
    /// Keys by the names of those who have them.
    pub keys: BTreeMap<String, Vec<u8>>,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
}

/// A certificate and its private key, DER both.
#[derive(Clone)]
pub struct OwnCertificate {
    /// The certificate alone: who needs one in between to believe it has that already.
    pub certificate: Vec<u8>,
    /// PKCS #8 or SEC 1.
    pub private_key: Vec<u8>,
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificate")
    }
}

/// Knows which certificates of clients are to be trusted.
pub trait CertificateJudge: fmt::Debug + Send + Sync {
    /// The name in a certificate, DER, if it is trusted.
    fn name(&self, certificate: &[u8]) -> Option<String>;
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsFault {
    /// Neither a certificate nor a key: nobody could come in.
    NothingToShow,
    /// A key that DTLS cannot sign with here.
    PrivateKey,
    /// A time that makes no sense.
    Settings,
}

impl fmt::Display for DtlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingToShow => "there is neither a certificate nor a key of a client",
            Self::PrivateKey => "DTLS needs a certificate with an ECDSA key (P-256 or P-384), and this is none",
            Self::Settings => "the time for a handshake does not fit",
        })
    }
}

impl std::error::Error for DtlsFault {}

/// How a client shows who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Certificate,
    Key,
}

/// What is shown and asked.
pub struct DtlsPlan {
    by_certificate: Option<(Arc<Config>, DtlsCertificate)>,
    by_key: Option<Arc<Config>>,
    judge: Option<Arc<dyn CertificateJudge>>,
    keys: Keys,
    /// How long a handshake may take.
    pub(crate) handshake_timeout: Duration,
}

impl fmt::Debug for DtlsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (has_certificate, keys) = (self.by_certificate.is_some(), self.keys.0.len());
        f.debug_struct("DtlsPlan")
            .field("has_certificate", &has_certificate)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Keys(Arc<BTreeMap<String, Vec<u8>>>);

impl PskResolver for Keys {
    fn resolve(&self, identity: &[u8]) -> Option<Vec<u8>> {
        let name = std::str::from_utf8(identity).ok().filter(|name| name.len() <= IDENTITY_BYTES_MAX)?;
        let key = self.0.get(name)?.clone();
        beside::put_identity(name);
        Some(key)
    }
}

impl DtlsPlan {
    /// Or why not.
    pub fn new(settings: DtlsSettings) -> Result<Self, DtlsFault> {
        let DtlsSettings { certificate, judge, keys, handshake_timeout } = settings;
        if certificate.is_none() && keys.is_empty() {
            return Err(DtlsFault::NothingToShow);
        }
        let builder = || {
            Config::builder()
                .with_crypto_provider(beside::provider())
                .dtls13_cipher_suites(&[])
                .mtu(DATAGRAM_BYTES)
                .max_queue_rx(EARLY_MAX)
                .flight_retries(RETRIES_MAX)
                .handshake_timeout(handshake_timeout)
        };
        let build = |builder: ConfigBuilder| builder.build().map(Arc::new).map_err(|_| DtlsFault::Settings);
        let keys = Keys(Arc::new(keys));
        let by_certificate = match certificate {
            Some(OwnCertificate { certificate, private_key }) => {
                let provider = beside::provider();
                provider.key_provider.load_private_key(&private_key).map_err(|_| DtlsFault::PrivateKey)?;
                let asks = builder().dtls12_cipher_suites(&CERTIFICATE_SUITES);
                let config = build(asks.require_client_certificate(judge.is_some()))?;
                Some((config, DtlsCertificate { certificate, private_key }))
            }
            None => None,
        };
        let by_key = if keys.0.is_empty() {
            None
        } else {
            let asks = builder().dtls12_cipher_suites(&[KEY_SUITE]);
            Some(build(asks.with_psk_server(None, Arc::new(keys.clone())))?)
        };
        Ok(Self { by_certificate, by_key, judge, keys, handshake_timeout })
    }

    /// How somebody who offers these suites shows who it is: by the first that there is here, too.
    pub(crate) fn way(&self, suites: &[u8]) -> Option<Way> {
        let is_ours = |suite: &[u8; 2]| {
            let suite = Dtls12CipherSuite::from_u16(u16::from_be_bytes(*suite));
            match () {
                () if suite == KEY_SUITE && self.by_key.is_some() => Some(Way::Key),
                () if CERTIFICATE_SUITES.contains(&suite) && self.by_certificate.is_some() => Some(Way::Certificate),
                () => None,
            }
        };
        suites.as_chunks().0.iter().find_map(is_ours)
    }

    /// A session that waits for its hello.
    pub(crate) fn begin(&self, way: Way, now: Instant) -> Option<Dtls> {
        Some(match way {
            Way::Key => Dtls::new_12_psk(Arc::clone(self.by_key.as_ref()?), now),
            Way::Certificate => {
                let (config, certificate) = self.by_certificate.as_ref()?;
                Dtls::new_12(Arc::clone(config), certificate.clone(), now)
            }
        })
    }

    /// The name in a certificate, if it is trusted.
    pub(crate) fn name(&self, certificate: &[u8]) -> Option<String> {
        self.judge.as_ref()?.name(certificate)
    }

    /// Whether somebody who came with the key of this name under another plan would still.
    pub(crate) fn has_same_key(&self, name: &str, before: &Self) -> bool {
        let key = self.keys.0.get(name);
        key.is_some() && key == before.keys.0.get(name)
    }
}

const KEY_SUITE: Dtls12CipherSuite = Dtls12CipherSuite::PSK_AES128_CCM_8;
const CERTIFICATE_SUITES: [Dtls12CipherSuite; 3] = [
    Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256,
    Dtls12CipherSuite::ECDHE_ECDSA_AES256_GCM_SHA384,
    Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_suite_that_there_is_says_how_somebody_comes_in() {
        let keys = BTreeMap::from([("pump".to_owned(), vec![1; 16])]);
        let timeout = Duration::from_secs(10);
        let plan = DtlsPlan::new(DtlsSettings { keys, handshake_timeout: timeout, ..DtlsSettings::default() }).unwrap();
        assert_eq!(plan.way(&[0xc0, 0x2b, 0x13, 0x01, 0xc0, 0xa8]), Some(Way::Key), "there is no certificate");
        assert_eq!(plan.way(&[0xc0, 0x2b]), None);
        assert_eq!(plan.way(&[]), None);
        assert_eq!(plan.way(&[0xc0]), None, "half a suite");
        assert_eq!(DtlsPlan::new(DtlsSettings::default()).unwrap_err(), DtlsFault::NothingToShow);
        let certificate = Some(OwnCertificate { certificate: vec![1], private_key: b"no key".to_vec() });
        let settings = DtlsSettings { certificate, handshake_timeout: timeout, ..DtlsSettings::default() };
        assert_eq!(DtlsPlan::new(settings).unwrap_err(), DtlsFault::PrivateKey);
    }
}
