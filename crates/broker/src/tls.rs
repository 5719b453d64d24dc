//! From certificate files to a TLS configuration, and from a client's certificate to its name.
//!
//! Files are read at start and at a reload; every error names the file and what is wrong with it. Sessions that exist
//! keep the configuration that they began with. TLS 1.2 and 1.3, no early data (a replayed publish would be one), no
//! renegotiation (rustls has none).

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};

use crate::config::TlsFiles;
use crate::limits::PEM_FILE_BYTES_MAX;
use crate::pinned::PinnedVerifier;

/// Reads the files.
pub fn load(files: &TlsFiles) -> io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| wrong(&files.key, &format!("no private key: {error}")))?;
    let verifier = match &files.client_ca {
        Some(path) => Some(client_verifier(path, files)?),
        None if files.client_cert_required => {
            return Err(wrong(&files.cert, "client certificates are required, but no CA for them is given"));
        }
        None => None,
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(io::Error::other)?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        wrong(&files.cert, &format!("certificate and key {} cannot be used: {error}", files.key.display()))
    })?;
    Ok(Arc::new(config))
}

pub(crate) fn client_verifier(path: &Path, files: &TlsFiles) -> io::Result<Arc<dyn ClientCertVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, &format!("not a CA certificate: {error}")))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if files.client_cert_required { builder } else { builder.allow_unauthenticated() };
    let builder = match &files.crl {
        // Those of clients: an authority that was taken back is taken out of the file of authorities.
        Some(list) => builder.with_crls(revoked(list)?).only_check_end_entity_revocation(),
        None => builder,
    };
    let authority = builder.build().map_err(|error| wrong(path, &error.to_string()))?;
    let pins = files.client_pins.clone();
    Ok(if pins.is_empty() { authority } else { Arc::new(PinnedVerifier { authority, pins }) })
}

fn revoked(path: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let list: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&read(path)?).collect();
    let list = list.map_err(|error| wrong(path, &error.to_string()))?;
    if list.is_empty() {
        return Err(wrong(path, "no list of revoked certificates in it (PEM is expected)"));
    }
    Ok(list)
}

pub(crate) fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let list = list.map_err(|error| wrong(path, &error.to_string()))?;
    if list.is_empty() {
        return Err(wrong(path, "no certificate in it (PEM is expected)"));
    }
    Ok(list)
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let name_it = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = fs::File::open(path).map_err(name_it)?;
    if !file.metadata().map_err(name_it)?.is_file() {
        return Err(wrong(path, "not a file"));
    }
    let mut bytes = Vec::new();
    file.take(PEM_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(name_it)?;
    if bytes.len() as u64 > PEM_FILE_BYTES_MAX {
        return Err(wrong(path, "larger than any certificate file"));
    }
    Ok(bytes)
}

pub(crate) fn wrong(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

/// The name in a client certificate that was verified: its common name, or its first alternative name.
///
/// `None` if there is no name that can be a user: bad UTF-8, or a control character (a NUL once cut names short).
pub fn certificate_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let common_name = certificate.subject().iter_common_name().next().map(AttributeTypeAndValue::as_str);
    let name = match common_name {
        Some(name) => name.ok()?,
        None => first_alternative(&certificate)?,
    };
    let usable = !name.is_empty() && !name.chars().any(char::is_control);
    usable.then(|| name.to_owned())
}

fn first_alternative<'a>(certificate: &X509Certificate<'a>) -> Option<&'a str> {
    certificate.subject_alternative_name().ok()??.value.general_names.iter().find_map(|name| match *name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => Some(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};
    use std::path::PathBuf;

    fn name_of(common_name: Option<&str>, alternatives: &[&str]) -> Option<String> {
        let alternatives: Vec<String> = alternatives.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate_name(certificate.der())
    }

    #[test]
    fn f078_the_name_of_a_certificate() {
        assert_eq!(name_of(Some("pump-7"), &["other.example"]).as_deref(), Some("pump-7"));
        assert_eq!(name_of(None, &["pump-8.example", "x.example"]).as_deref(), Some("pump-8.example"));
        assert_eq!(name_of(Some("admin\0.evil"), &[]), None);
        assert_eq!(name_of(Some("a\nb"), &["x.example"]), None);
        assert_eq!(name_of(Some(""), &[]), None);
        assert_eq!(name_of(None, &[]), None);
        assert_eq!(certificate_name(b"\x30\x03junk"), None);
    }

    #[test]
    fn f072_errors_name_the_file_and_what_is_wrong() {
        let dir = std::env::temp_dir().join(format!("tidegate-tls-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (good, good_key) = (put("good.pem", &certificate.pem()), put("good.key", &key.serialize_pem()));
        let other_key = put("other.key", &KeyPair::generate().unwrap().serialize_pem());
        let (empty, junk) = (put("empty.pem", ""), put("junk.pem", "-----BEGIN CERTIFICATE-----\n!!\n"));
        let files = |cert: &PathBuf, key: &PathBuf, client_ca: Option<&PathBuf>, client_cert_required| TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: client_ca.cloned(),
            client_cert_required,
            ..TlsFiles::default()
        };
        assert!(load(&files(&good, &good_key, None, false)).is_ok());
        assert!(load(&files(&good, &good_key, Some(&good), true)).is_ok());
        let cases = [
            (files(&dir.join("none.pem"), &good_key, None, false), "none.pem"),
            (files(&dir, &good_key, None, false), "not a file"),
            (files(&empty, &good_key, None, false), "empty.pem"),
            (files(&junk, &good_key, None, false), "junk.pem"),
            (files(&good, &good, None, false), "good.pem"),
            (files(&good, &other_key, None, false), "other.key"),
            (files(&good, &good_key, Some(&empty), false), "empty.pem"),
            (files(&good, &good_key, None, true), "no CA"),
        ];
        for (files, expected) in cases {
            let error = load(&files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
