//! `/api/v1/login`: a session for a browser, in a cookie that no script can read and no other site can use.
//!
//! `GET` says who one is and hands out the token for changes; `POST` logs in; `DELETE` logs out. Where there are no users
//! there is nothing to log in to, and the token is the same for all pages of this process.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use tidegate_broker::authenticate::Authenticator;

use crate::body::{self, text};
use crate::guard::no_role;
use crate::limits::{SESSION_IDLE, SESSION_LIFE, SESSIONS_MAX};
use crate::password;
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::UserDirectory;
use crate::server::OverTls;
use crate::state::{AdminState, lock};

const COOKIE: &str = "tidegate-session";

/// Who is logged in.
pub(crate) struct Sessions {
    entries: Mutex<Vec<SessionEntry>>,
    local_token: String,
}

struct SessionEntry {
    /// Of the cookie: what is looked for in a table is not the secret itself.
    hash: [u8; 32],
    session: LoginSession,
    began: Instant,
    used: Instant,
    /// Ends with the users that it was opened for.
    authenticator: Arc<dyn Authenticator>,
}

/// Somebody who is logged in.
#[derive(Clone, Debug)]
pub(crate) struct LoginSession {
    pub(crate) user: Arc<str>,
    /// What a page has to show for a change.
    pub(crate) token: String,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        // Without randomness there is no token that could be shown: no page changes anything.
        Self { entries: Mutex::default(), local_token: secret().unwrap_or_default() }
    }

    pub(crate) fn local_token(&self) -> &str {
        &self.local_token
    }

    pub(crate) fn find(&self, directory: &UserDirectory, cookie: &str) -> Option<LoginSession> {
        let (hash, now) = (hash(cookie), Instant::now());
        let mut entries = lock(&self.entries);
        entries.retain(|entry| {
            let is_over = now.duration_since(entry.began) > SESSION_LIFE
                || now.duration_since(entry.used) > SESSION_IDLE
                || !Arc::ptr_eq(&entry.authenticator, &directory.authenticator);
            !is_over
        });
        let entry = entries.iter_mut().find(|entry| entry.hash == hash)?;
        entry.used = now;
        Some(entry.session.clone())
    }

    /// A new session and its cookie; none without randomness.
    fn open(&self, directory: &UserDirectory, user: Arc<str>) -> Option<(String, LoginSession)> {
        let (cookie, session, now) = (secret()?, LoginSession { user, token: secret()? }, Instant::now());
        let authenticator = Arc::clone(&directory.authenticator);
        let entry =
            SessionEntry { hash: hash(&cookie), session: session.clone(), began: now, used: now, authenticator };
        let mut entries = lock(&self.entries);
        if entries.len() >= SESSIONS_MAX {
            let idlest = entries.iter().enumerate().min_by_key(|(_, entry)| entry.used).map(|(place, _)| place);
            idlest.map(|place| entries.swap_remove(place));
        }
        entries.push(entry);
        Some((cookie, session))
    }

    fn close(&self, cookie: &str) {
        let hash = hash(cookie);
        lock(&self.entries).retain(|entry| entry.hash != hash);
    }
}

fn secret() -> Option<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

/// Whether two secrets are the same, in a time that does not tell how much of them is. An empty one is nobody's.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other));
    !other.is_empty() && one.len() == other.len() && differs == 0
}

/// Our cookie, if there is exactly one.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = all
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value);
    ours.next().filter(|_| ours.next().is_none())
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>, headers: HeaderMap) -> Answered {
    let Some(directory) = state.process.directory() else {
        let token = state.sessions.local_token();
        return Ok(json_of(&json!({ "login": "not needed", "user": null, "role": "admin", "token": token })));
    };
    let session = cookie(&headers).and_then(|cookie| state.sessions.find(&directory, cookie));
    let Some(session) = session else {
        return Ok(json_of(&json!({ "login": "needed", "user": null, "role": null, "token": null })));
    };
    let role = directory.roles.role(&session.user).map(crate::process_control::Role::name);
    Ok(json_of(&json!({ "login": "done", "user": &*session.user, "role": role, "token": session.token })))
}

pub(crate) async fn log_in(State(state): State<Arc<AdminState>>, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let words = body::words(&parts.headers, body).await?;
    let directory =
        state.process.directory().ok_or_else(|| Problem::usage("there are no users here: no login is needed"))?;
    let (user, password) = (text(&words, "user").unwrap_or_default(), text(&words, "password").unwrap_or_default());
    let wrong = || Problem::new(StatusCode::UNAUTHORIZED, "who-are-you", "wrong user name or password");
    if user.is_empty() {
        return Err(wrong());
    }
    let user = password::check(&state, &directory, user, password.into_bytes(), tidegate_http::peer(&parts)).await?;
    let user = user.ok_or_else(wrong)?;
    let role = directory.roles.role(&user).ok_or_else(no_role)?;
    let opened = state.sessions.open(&directory, Arc::clone(&user));
    let (cookie, session) = opened.ok_or_else(|| Problem::busy("the system gives no random numbers"))?;
    let mut response =
        json_of(&json!({ "login": "done", "user": &*user, "role": role.name(), "token": session.token }));
    let is_secure = parts.extensions.get::<OverTls>().is_some();
    set_cookie(response.headers_mut(), &cookie, SESSION_LIFE.as_secs(), is_secure);
    Ok(response)
}

/// Whoever has the cookie may end its session; a page of another site neither has it nor gets here.
pub(crate) async fn log_out(
    State(state): State<Arc<AdminState>>,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
) -> Answered {
    if let Some(cookie) = cookie(&headers) {
        state.sessions.close(cookie);
    }
    let mut response = json_of(&json!({ "login": "needed" }));
    set_cookie(response.headers_mut(), "", 0, over_tls.is_some());
    Ok(response)
}

/// What was given over TLS is not shown without.
fn set_cookie(headers: &mut HeaderMap, cookie: &str, seconds: u64, is_secure: bool) {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={cookie}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
    // Hexadecimal digits and known words.
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f086_one_cookie_of_ours_is_read_and_two_are_none() {
        let shown = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, text.parse().unwrap());
            cookie(&headers).map(str::to_owned)
        };
        assert_eq!(shown("a=1; tidegate-session=abc; b=2"), Some("abc".to_owned()));
        for none in ["a=1", "tidegate-session=a; tidegate-session=b", "tidegate-sessions=x", ""] {
            assert_eq!(shown(none), None, "{none}");
        }
    }

    #[test]
    fn f086_secrets_are_compared_as_a_whole_and_an_empty_one_is_nobodys() {
        assert!(is_same(b"abc", b"abc"));
        for (one, other) in [(&b"abc"[..], &b"abd"[..]), (b"ab", b"abc"), (b"abc", b"ab"), (b"", b"")] {
            assert!(!is_same(one, other));
        }
        assert_ne!(secret(), secret());
        assert_eq!(secret().unwrap().len(), 64);
    }
}
