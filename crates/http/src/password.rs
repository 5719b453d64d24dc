//! HTTP Basic, and passwords that were right a moment ago: they are kept as hashes with a key that only this process has, so
//! that a page that asks every second does not cost a password's hash each time. Whether they still hold is for whoever
//! kept them to say; time is an argument.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};

use crate::problem::Problem;

/// A user name and a password, as nobody else can compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialHash([u8; 32]);

/// User name and password of a request, by HTTP Basic; or the problem that asks for them.
pub fn basic(headers: &HeaderMap) -> Result<(String, Vec<u8>), Problem> {
    let shown = headers.get(header::AUTHORIZATION);
    let shown = shown.ok_or_else(|| who_are_you("a user name and a password are needed"))?;
    read_basic(shown.as_bytes()).ok_or_else(|| who_are_you("only HTTP Basic is understood"))
}

/// The token of a request, by `Authorization: Bearer`; none if it shows something else, or nothing.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// User name and password of `Basic …`.
fn read_basic(shown: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, rest) = shown.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    // No name would be nobody, who may be let in elsewhere.
    (!name.is_empty()).then(|| (name, decoded[colon + 1..].to_vec()))
}

/// Asks for a user name and a password.
pub fn who_are_you(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "who-are-you", detail)
}

/// Passwords that were right a moment ago, each with what `T` says about it.
#[derive(Debug)]
pub struct PasswordCache<T> {
    key: [u8; 32],
    entries: Mutex<Vec<CacheEntry<T>>>,
    entries_max: usize,
    kept_for: Duration,
}

#[derive(Debug)]
struct CacheEntry<T> {
    print: CredentialHash,
    until: Instant,
    about: T,
}

impl<T: Clone> PasswordCache<T> {
    /// Keeps so many, each for this long.
    pub fn new(entries_max: usize, kept_for: Duration) -> Self {
        let mut key = [0; 32];
        // Without randomness the hash is still one that cannot be turned round.
        let _ = SystemRandom::new().fill(&mut key);
        Self { key, entries: Mutex::default(), entries_max, kept_for }
    }

    /// A name and a password, as nobody else can compute it.
    pub fn print(&self, name: &str, password: &[u8]) -> CredentialHash {
        let mut context = Context::new(&SHA256);
        context.update(&self.key);
        // The length first: where the name ends must not be a matter of opinion.
        context.update(&(name.len() as u64).to_le_bytes());
        context.update(name.as_bytes());
        context.update(password);
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        CredentialHash(hash)
    }

    /// What is known about one; whatever does not hold any more is forgotten.
    pub fn find(&self, print: CredentialHash, now: Instant, holds: impl Fn(&T) -> bool) -> Option<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.until > now && holds(&entry.about));
        entries.iter().find(|entry| entry.print == print).map(|entry| entry.about.clone())
    }

    /// One was right.
    pub fn keep(&self, print: CredentialHash, now: Instant, about: T) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Two requests may have been judged at once.
        entries.retain(|entry| entry.print != print);
        if entries.len() >= self.entries_max {
            entries.remove(0);
        }
        entries.push(CacheEntry { print, until: now + self.kept_for, about });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_basic_header_is_read_or_refused() {
        let shown = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text)).into_bytes();
        assert_eq!(read_basic(&shown("ann:a:b")), Some(("ann".to_owned(), b"a:b".to_vec())));
        for bad in [shown(":x"), shown("ann"), b"Basic".to_vec(), b"Bearer abc".to_vec(), b"Basic ***".to_vec()] {
            assert_eq!(read_basic(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_right_password_is_known_for_a_while_and_as_long_as_it_holds() {
        let (minute, now) = (Duration::from_secs(60), Instant::now());
        let cache = PasswordCache::new(2, minute);
        let ann = cache.print("ann", b"right");
        assert_eq!(cache.find(ann, now, |_| true), None);
        cache.keep(ann, now, 1);
        assert_eq!(cache.find(ann, now, |about| *about == 1), Some(1));
        assert_eq!(cache.find(cache.print("ann", b"wrong"), now, |_| true), None);
        assert_eq!(cache.find(cache.print("annr", b"ight"), now, |_| true), None, "the name ends where it ends");
        assert_eq!(cache.find(ann, now + minute, |_| true), None, "over");
        cache.keep(ann, now, 1);
        assert_eq!(cache.find(ann, now, |about| *about == 2), None, "other rules");
        assert_eq!(cache.find(ann, now, |_| true), None, "and that is forgotten");
        assert_ne!(PasswordCache::<u8>::new(2, minute).print("ann", b"right"), ann, "a key of its own");
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_the_newest() {
        let now = Instant::now();
        let cache = PasswordCache::new(2, Duration::from_secs(60));
        let prints = ["a", "b", "c"].map(|name| cache.print(name, b"x"));
        for print in prints {
            cache.keep(print, now, ());
            cache.keep(print, now, ());
        }
        let known = prints.map(|print| cache.find(print, now, |()| true).is_some());
        assert_eq!(known, [false, true, true]);
    }
}
