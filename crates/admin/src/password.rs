//! Passwords of operators: HTTP Basic, judged by the broker's own threads and with the same pauses after wrong ones.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tidegate_broker::NotAsked;
use tidegate_broker::authenticate::{Authenticator, Credentials};
use tokio::sync::oneshot;

use crate::limits::{REMEMBERED_FOR, REMEMBERED_MAX};
use crate::problem::Problem;
use crate::process_control::UserDirectory;
use crate::state::{AdminState, lock};

/// The user of a request with HTTP Basic.
pub(crate) async fn by_header(
    state: &AdminState,
    keeper: &UserDirectory,
    headers: &HeaderMap,
    from: IpAddr,
) -> Result<Arc<str>, Problem> {
    let unknown = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "who-are-you", detail);
    let shown = headers.get(header::AUTHORIZATION).ok_or_else(|| unknown("a user name and a password are needed"))?;
    let (name, password) = basic(shown.as_bytes()).ok_or_else(|| unknown("only HTTP Basic is understood"))?;
    let user = check(state, keeper, name, password, from).await?;
    user.ok_or_else(|| unknown("wrong user name or password"))
}

/// Judges a password, on the broker's threads for that; none if it is wrong. One that is remembered waits for nothing:
/// neither for a thread nor because of those who guess.
pub(crate) async fn check(
    state: &AdminState,
    keeper: &UserDirectory,
    name: String,
    password: Vec<u8>,
    from: IpAddr,
) -> Result<Option<Arc<str>>, Problem> {
    let print = state.remembered.print(&name, &password);
    if let Some(user) = state.remembered.find(keeper, print) {
        return Ok(Some(user));
    }
    let busy = || Problem::busy("too many passwords are being checked");
    let _place = state.checks.try_acquire().map_err(|_| busy())?;
    let credentials = Credentials {
        client_id: String::new(),
        user_name: Some(name),
        password: Some(password),
        certificate_name: None,
    };
    let (reply, verdict) = oneshot::channel();
    let asked = state.handle.authenticate(Arc::clone(&keeper.authenticator), credentials, from, move |verdict| {
        let _ = reply.send(verdict);
    });
    asked.map_err(|why| match why {
        NotAsked::Busy => busy(),
        NotAsked::Wait(wait) => {
            let seconds = wait.as_secs() + 1;
            let detail = format!("too many wrong passwords: try again in {seconds} s");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-wrong-passwords", detail).after(seconds)
        }
    })?;
    let user = verdict.await.map_err(|_| busy())?.ok().flatten();
    if let Some(user) = &user {
        state.remembered.keep(keeper, print, Arc::clone(user));
    }
    Ok(user)
}

/// User name and password of `Basic …`.
fn basic(shown: &[u8]) -> Option<(String, Vec<u8>)> {
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

/// Passwords that were right a moment ago, as hashes with a key that only this process has.
pub(crate) struct Remembered {
    key: [u8; 32],
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    print: [u8; 32],
    user: Arc<str>,
    until: Instant,
    /// Forgotten with the users that it was right for. Held, so that its place in memory is nobody else's.
    authenticator: Arc<dyn Authenticator>,
}

impl Remembered {
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        // Without randomness the hash is still one that cannot be turned round.
        let _ = SystemRandom::new().fill(&mut key);
        Self { key, entries: Mutex::default() }
    }

    /// A name and a password, as nobody else can compute it.
    fn print(&self, name: &str, password: &[u8]) -> [u8; 32] {
        // The length first: where the name ends must not be a matter of opinion.
        let length = (name.len() as u64).to_le_bytes();
        let text = [&self.key[..], &length, name.as_bytes(), password].concat();
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &text).as_ref());
        hash
    }

    fn find(&self, keeper: &UserDirectory, print: [u8; 32]) -> Option<Arc<str>> {
        let now = Instant::now();
        let mut entries = lock(&self.entries);
        entries.retain(|entry| entry.until > now && Arc::ptr_eq(&entry.authenticator, &keeper.authenticator));
        entries.iter().find(|entry| entry.print == print).map(|entry| Arc::clone(&entry.user))
    }

    fn keep(&self, keeper: &UserDirectory, print: [u8; 32], user: Arc<str>) {
        let until = Instant::now() + REMEMBERED_FOR;
        let entry = Entry { print, user, until, authenticator: Arc::clone(&keeper.authenticator) };
        let mut entries = lock(&self.entries);
        // Two requests may have been judged at once.
        entries.retain(|entry| entry.print != print);
        if entries.len() >= REMEMBERED_MAX {
            entries.remove(0);
        }
        entries.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_basic_header_is_read_or_refused() {
        let shown = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text)).into_bytes();
        assert_eq!(basic(&shown("ann:a:b")), Some(("ann".to_owned(), b"a:b".to_vec())));
        for bad in [shown(":x"), shown("ann"), b"Basic".to_vec(), b"Bearer abc".to_vec(), b"Basic ***".to_vec()] {
            assert_eq!(basic(&bad), None, "{bad:?}");
        }
    }
}
