//! From files to a plan of DTLS: the certificate and the authority of TLS, and the keys of clients.
//!
//! The file of keys is as mosquitto's `psk_file`: a name and a key in hexadecimal on each line, with a colon between them. Every
//! error names the file and the line, and never the key.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use rustls::server::danger::ClientCertVerifier;
use tidegate_dtls::{CertificateJudge, DtlsPlan, DtlsSettings, OwnCertificate};
use tracing::warn;

use crate::config::{DtlsRules, TlsFiles};
use crate::tls;

/// Reads the files.
pub(crate) fn load(files: Option<&TlsFiles>, rules: &DtlsRules) -> io::Result<Arc<DtlsPlan>> {
    let keys = rules.psk_file.as_ref().map(|path| keys(path, &tls::read(path)?)).transpose()?.unwrap_or_default();
    let handshake_timeout = rules.handshake_timeout;
    let by_key = |keys| DtlsSettings { keys, handshake_timeout, ..DtlsSettings::default() };
    let Some(files) = files else {
        return DtlsPlan::new(by_key(keys))
            .map(Arc::new)
            .map_err(|fault| io::Error::new(io::ErrorKind::InvalidInput, fault));
    };
    // All that TLS would find wrong with them is wrong here, too.
    tls::load(files)?;
    let verifier = files.client_ca.as_ref().map(|path| tls::client_verifier(path, files)).transpose()?;
    let judge = verifier.map(|verifier| Arc::new(Authority(verifier)) as _);
    let settings = DtlsSettings { certificate: Some(certificate(files)?), judge, ..by_key(keys.clone()) };
    let plan = match DtlsPlan::new(settings) {
        // A certificate that is good for TLS alone is no reason to turn those with keys away.
        Err(fault) if !keys.is_empty() => {
            warn!(event = "dtls_by_key_only", %fault, "CoAP over DTLS is spoken with keys only");
            DtlsPlan::new(by_key(keys))
        }
        made => made,
    };
    plan.map(Arc::new).map_err(|fault| tls::wrong(&files.key, &fault.to_string()))
}

fn certificate(files: &TlsFiles) -> io::Result<OwnCertificate> {
    let chain = tls::certificates(&files.cert)?;
    let certificate = chain.first().map(|first| first.to_vec()).unwrap_or_default();
    let key = PrivateKeyDer::from_pem_slice(&tls::read(&files.key)?);
    let key = key.map_err(|error| tls::wrong(&files.key, &format!("no private key: {error}")))?;
    Ok(OwnCertificate { certificate, private_key: key.secret_der().to_vec() })
}

/// Whom TLS trusts, DTLS trusts.
#[derive(Debug)]
struct Authority(Arc<dyn ClientCertVerifier>);

impl CertificateJudge for Authority {
    fn name(&self, certificate: &[u8]) -> Option<String> {
        // Those in between are not handed on by dimpl: a client's certificate is signed by the authority itself.
        self.0.verify_client_cert(&CertificateDer::from(certificate), &[], UnixTime::now()).ok()?;
        tls::certificate_name(certificate)
    }
}

fn keys(path: &Path, bytes: &[u8]) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let text = std::str::from_utf8(bytes).map_err(|_| tls::wrong(path, "no text"))?;
    let mut keys = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: &str| tls::wrong(path, &format!("line {number}: {what}"));
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, key) = line.split_once(':').ok_or_else(|| wrong("a name, a colon and a key are expected"))?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(wrong("a name has 1 to 128 bytes, and no control characters"));
        }
        let key = hexadecimal(key).ok_or_else(|| wrong("a key is hexadecimal, two digits for each byte"))?;
        if !KEY_BYTES.contains(&key.len()) {
            return Err(wrong("a key has 16 to 64 bytes: what is shorter can be guessed from one handshake"));
        }
        if keys.insert(name.to_owned(), key).is_some() {
            return Err(wrong("this name has a key already"));
        }
    }
    if keys.is_empty() {
        return Err(tls::wrong(path, "no key in it"));
    }
    Ok(keys)
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// As long as DTLS takes one (RFC 4279, section 5.3).
const NAME_BYTES_MAX: usize = 128;
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_mosquitto_writes_them_and_errors_name_the_line_and_no_key() {
        let read = |text: &str| keys(Path::new("/etc/keys"), text.as_bytes()).map_err(|error| error.to_string());
        let key = "00112233445566778899aAbBcCdDeEfF";
        let found = read(&format!("# pumps\n\npump-7:{key}\npump-8:{key}00\n")).unwrap();
        assert_eq!((found["pump-7"].len(), found["pump-8"].len(), found["pump-7"][10]), (16, 17, 0xaa));
        for (text, expected) in [
            (format!("pump-7 {key}"), "/etc/keys: line 1: a name, a colon and a key"),
            (format!("\n:{key}"), "line 2: a name has"),
            (format!("pump-7:{key}x"), "hexadecimal"),
            ("pump-7:zz".to_owned(), "hexadecimal"),
            ("pump-7:0011".to_owned(), "16 to 64 bytes"),
            (format!("a:{key}\na:{key}"), "line 2: this name has a key already"),
            ("# none".to_owned(), "no key in it"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected) && !error.contains("0011"), "{error}");
        }
    }
}
