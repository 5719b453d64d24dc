//! Are the certificate files what they should be? Asked before the broker starts and before a reload, so that every
//! mistake has its file's name: no certificate, an encrypted key, a key of another certificate, a chain upside down.
//!
//! An expired certificate is no mistake of the configuration: it is a warning, a month before the day and after it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::config::ConfigProblem;

/// Everything that is wrong with these files.
pub fn check(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let chain = chain(cert).map_err(|problem| problems.push(problem)).ok();
    let private = private_key(key).map_err(|problem| problems.push(problem)).ok();
    if let Some(Err(problem)) = client_ca.map(self::chain) {
        problems.push(problem);
    }
    let (Some(chain), Some(private)) = (chain, private) else { return problems };
    let is_upside_down = chain.len() > 1 && is_authority(&chain[0]) && !is_authority(&chain[chain.len() - 1]);
    if let Err(error) = CertifiedKey::from_der(chain, private, &default_provider()) {
        let message = match error {
            rustls::Error::InconsistentKeys(_) if is_upside_down => {
                "begins with the certificate of an authority; the server's own must come first".to_owned()
            }
            rustls::Error::InconsistentKeys(_) => format!("does not belong to the private key {}", key.display()),
            other => format!("cannot be used with {}: {other}", key.display()),
        };
        problems.push(ConfigProblem::of_file(cert, message));
    }
    problems
}

/// Whose the first certificate of a file is, and when it ends; or what is wrong with the file.
pub fn describe(path: &Path) -> (String, Option<SystemTime>) {
    let chain = match chain(path) {
        Ok(chain) => chain,
        Err(problem) => return (problem.to_string(), None),
    };
    let Some((_, certificate)) = chain.first().and_then(|first| X509Certificate::from_der(first).ok()) else {
        return (format!("{}: not a certificate", path.display()), None);
    };
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    (certificate.subject().to_string(), Some(UNIX_EPOCH + Duration::from_secs(seconds)))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigProblem> {
    let list = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match list {
        Ok(list) if list.is_empty() => Err(ConfigProblem::of_file(path, "contains no PEM certificate")),
        Ok(list) => Ok(list),
        Err(error) => Err(ConfigProblem::of_file(path, format_args!("is not PEM: {error}"))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigProblem> {
    let error = match PrivateKeyDer::from_pem_file(path) {
        Ok(key) => return Ok(key),
        Err(error) => error,
    };
    // The word is in the armour of both ways to encrypt a key (PKCS #8, and the old header of OpenSSL).
    let is_encrypted = std::fs::read_to_string(path).is_ok_and(|text| text.contains("ENCRYPTED"));
    Err(if is_encrypted {
        let hint = format!("decrypt it with `openssl pkey -in {} -out plain.key`, chmod 600 plain.key", path.display());
        ConfigProblem::of_file(path, "is an encrypted private key, and nobody is there to ask for the password")
            .with_hint(hint)
    } else if matches!(error, pem::Error::NoItemsFound) {
        ConfigProblem::of_file(path, "contains no PEM private key")
    } else {
        ConfigProblem::of_file(path, format_args!("is not a PEM private key: {error}"))
    })
}

fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, certificate)| certificate.is_ca())
}

const DAY: Duration = Duration::from_secs(86_400);
/// From here on an expiry is worth a line at every start, and one on each of these days while the broker runs.
const SOON_DAYS: u64 = 30;
const REMINDERS: [u64; 3] = [SOON_DAYS, 7, 1];

/// Reminds of certificates that end, a few times each: 30, 7 and 1 days before, and when it has happened.
#[derive(Debug, Default)]
pub struct Reminder {
    /// By file: the end that was spoken of, and how many times.
    said: BTreeMap<PathBuf, (SystemTime, usize)>,
}

impl Reminder {
    /// What is to be said now, if it was not said yet. A renewed certificate begins anew.
    pub fn remind(&mut self, cert: &Path, ends: SystemTime, now: SystemTime) -> Option<String> {
        let left = ends.duration_since(now).ok();
        let due = left.map_or(REMINDERS.len() + 1, |left| {
            REMINDERS.iter().filter(|days| left <= DAY * u32::try_from(**days).unwrap_or(u32::MAX)).count()
        });
        let said = self.said.entry(cert.to_owned()).or_insert((ends, 0));
        if said.0 != ends {
            *said = (ends, 0);
        }
        if due <= said.1 {
            return None;
        }
        said.1 = due;
        let path = cert.display();
        Some(match left {
            None => format!("the certificate {path} has expired"),
            Some(left) => format!("the certificate {path} expires in {} hours", left.as_secs() / 3600),
        })
    }
}

/// A warning if the certificate has expired or soon will.
pub fn expiry_warning(cert: &Path) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let first = chain(cert).ok()?.into_iter().next()?;
    let (_, certificate) = X509Certificate::from_der(&first).ok()?;
    let end = certificate.validity().not_after;
    let left = Duration::from_secs(u64::try_from(end.timestamp()).ok()?).checked_sub(now);
    match left.map(|left| left.as_secs() / DAY.as_secs()) {
        None => Some(format!("the certificate {} expired on {end}", cert.display())),
        Some(days) if days < SOON_DAYS => {
            Some(format!("the certificate {} expires in {days} days, on {end}", cert.display()))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    struct Files {
        folder: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        }

        fn problems(cert: &Path, key: &Path) -> String {
            let problems = check(cert, key, None);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
    }

    fn certificate(year: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn f148_files_that_belong_together_are_sound() {
        let files = Files::new();
        let (cert, key) = certificate(4000);
        let (cert, key) = (files.write("c", &cert), files.write("k", &key));
        assert_eq!(Files::problems(&cert, &key), "");
        assert_eq!(expiry_warning(&cert), None);
    }

    #[test]
    fn f148_a_key_of_another_certificate_is_named() {
        let files = Files::new();
        let (cert, key) = (files.write("c", &certificate(4000).0), files.write("k", &certificate(4000).1));
        let expected = format!("{}: does not belong to the private key {}", cert.display(), key.display());
        assert_eq!(Files::problems(&cert, &key), expected);
    }

    #[test]
    fn f148_encrypted_swapped_and_empty_files_are_named() {
        let files = Files::new();
        let (cert, key) = certificate(4000);
        let (cert, key) = (files.write("c", &cert), files.write("k", &key));
        let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let text = Files::problems(&cert, &files.write("e", locked));
        assert!(text.contains("is an encrypted private key") && text.contains("openssl pkey -in"), "{text}");
        let text = Files::problems(&key, &cert);
        assert!(text.contains("contains no PEM certificate") && text.contains("contains no PEM private key"), "{text}");
    }

    #[test]
    fn f148_a_chain_in_the_wrong_order_is_named() {
        let files = Files::new();
        let (authority, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let above = params.self_signed(&authority).unwrap().pem();
        let issuer = Issuer::new(params, authority);
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap().pem();
        let key = files.write("k", &key.serialize_pem());
        assert_eq!(Files::problems(&files.write("right", &format!("{own}{above}")), &key), "");
        let text = Files::problems(&files.write("wrong", &format!("{above}{own}")), &key);
        assert!(text.contains("wrong: begins with the certificate of an authority"), "{text}");
    }

    #[test]
    fn f148_of_an_end_that_comes_near_is_spoken_four_times_and_of_a_renewed_one_anew() {
        let mut reminder = Reminder::default();
        let (cert, start) = (Path::new("c.pem"), UNIX_EPOCH + DAY * 1000);
        let mut lines = |ends: SystemTime, days: std::ops::Range<u32>| {
            let hours = days.start * 24..days.end * 24;
            let said = hours.filter_map(|hour| reminder.remind(cert, ends, start + Duration::from_secs(3600) * hour));
            said.collect::<Vec<_>>()
        };
        let said = lines(start + DAY * 60, 0..70);
        let left = ["expires in 720 hours", "expires in 168 hours", "expires in 24 hours", "has expired"];
        assert!(said.len() == 4 && said.iter().zip(left).all(|(line, words)| line.ends_with(words)), "{said:?}");
        assert_eq!(lines(start + DAY * 170, 70..130), [""; 0], "renewed");
        assert_eq!(lines(start + DAY * 170, 130..150).len(), 1);
    }

    #[test]
    fn f148_expiry_is_a_warning() {
        let files = Files::new();
        let (cert, key) = certificate(2001);
        let (cert, key) = (files.write("c", &cert), files.write("k", &key));
        assert_eq!(Files::problems(&cert, &key), "");
        let warning = expiry_warning(&cert).unwrap();
        assert!(warning.contains("expired on ") && warning.contains("2001"), "{warning}");
    }
}
