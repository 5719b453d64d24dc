//! Client certificates by fingerprint: beside what an authority vouches for, only those on a list are let in.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// SHA-256 of a certificate's DER.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// The text is no SHA-256 in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAFingerprint;

impl Fingerprint {
    pub(crate) fn of(certificate: &[u8]) -> Self {
        let mut print = [0; 32];
        print.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(print)
    }
}

/// As `openssl x509 -fingerprint -sha256` prints it, or without the colons.
impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let pairs = digits.as_chunks::<2>();
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        if !is_hex || !pairs.1.is_empty() || pairs.0.len() != 32 {
            return Err(NotAFingerprint);
        }
        let mut print = [0; 32];
        for (byte, pair) in print.iter_mut().zip(pairs.0) {
            let text = std::str::from_utf8(pair).map_err(|_| NotAFingerprint)?;
            *byte = u8::from_str_radix(text, 16).map_err(|_| NotAFingerprint)?;
        }
        Ok(Self(print))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Asks the list, and then the authority.
#[derive(Debug)]
pub(crate) struct PinnedVerifier {
    pub(crate) authority: Arc<dyn ClientCertVerifier>,
    pub(crate) pins: Vec<Fingerprint>,
}

impl ClientCertVerifier for PinnedVerifier {
    fn offer_client_auth(&self) -> bool {
        self.authority.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.authority.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !self.pins.contains(&Fingerprint::of(certificate)) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        self.authority.verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed() {
        let print = Fingerprint::of(b"a certificate");
        assert_eq!(print.to_string().parse(), Ok(print));
        let pairs: Vec<String> =
            print.to_string().as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
        assert_eq!(pairs.join(":").parse(), Ok(print), "as openssl prints it");
        for bad in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &format!("é{}", "0".repeat(62))] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(NotAFingerprint), "{bad}");
        }
    }
}
