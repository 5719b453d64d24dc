//! Who may ask: the checks before every request.
//!
//! - *Host.* A name that anybody can point at this machine must not make a browser talk to us (DNS rebinding). While
//!   there are no users, only `localhost` and addresses are taken. With users everything needs a password, which a
//!   browser gives to the site that it was typed in for and to no other.
//! - *Origin.* What changes something is not taken from pages of other sites.
//! - *User.* With users: HTTP Basic, judged by the broker's own threads for passwords and with the same pauses
//!   after wrong ones, and a role.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tidegate_broker::NotAsked;
use tidegate_broker::authenticate::{Authenticator, Credentials};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::{REMEMBERED_FOR, REMEMBERED_MAX, REQUEST_TIMEOUT};
use crate::problem::Problem;
use crate::state::{State, lock};
use crate::steward::{Keeper, Role};

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Everything that is asked of a request before it is looked at, and a limit to the time it takes.
pub(crate) async fn guard(
    axum::extract::State(state): axum::extract::State<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    // A body cannot be shared between threads, and need not be: nobody looks at it here.
    let (parts, body) = request.into_parts();
    let answer = async {
        admit(&state, &parts).await?;
        Ok::<_, Problem>(next.run(Request::from_parts(parts, body)).await)
    };
    match timeout(REQUEST_TIMEOUT, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => Problem::busy("this took too long").into_response(),
    }
}

async fn admit(state: &State, request: &Parts) -> Result<(), Problem> {
    let (method, path, headers) = (&request.method, request.uri.path(), &request.headers);
    let keeper = state.steward.keeper();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if keeper.is_none() && !host.is_some_and(is_here) {
        let detail = "this door answers to addresses and to localhost only, because there are no users";
        return Err(Problem::new(StatusCode::FORBIDDEN, "host-not-allowed", detail));
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    if changes && !is_own_page(headers, host) {
        let detail = "changes are not taken from pages of other sites";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin-not-allowed", detail));
    }
    // What supervisors and load balancers ask tells nothing that is worth a password.
    if matches!(path, "/healthz" | "/readyz" | "/version") {
        return Ok(());
    }
    let Some(keeper) = keeper else { return Ok(()) };
    // Set by whoever accepted the connection.
    let from = request.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(ip)| *ip);
    let role = identify(state, &keeper, headers, from).await?;
    let needed = needed(method, path);
    if role < needed {
        let detail = format!("this needs the role {}, and you are {}", needed.name(), role.name());
        return Err(Problem::new(StatusCode::FORBIDDEN, "role-too-low", detail));
    }
    Ok(())
}

/// The least role for a request.
fn needed(method: &Method, path: &str) -> Role {
    match *method {
        Method::GET | Method::HEAD => Role::Viewer,
        _ if matches!(path, "/api/v1/reload" | "/api/v1/backup" | "/api/v1/drain") => Role::Admin,
        _ => Role::Operator,
    }
}

/// Whether a `Host` names this machine in a way that nobody else can arrange.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// No browser, or a page of ours.
fn is_own_page(headers: &HeaderMap, host: Option<&str>) -> bool {
    match headers.get(header::ORIGIN) {
        None => true,
        Some(origin) => {
            let origin = origin.to_str().unwrap_or_default();
            let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            from.is_some() && from == host
        }
    }
}

async fn identify(state: &State, keeper: &Keeper, headers: &HeaderMap, from: IpAddr) -> Result<Role, Problem> {
    let unknown = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "who-are-you", detail);
    let shown = headers.get(header::AUTHORIZATION).ok_or_else(|| unknown("a user name and a password are needed"))?;
    let (name, password) = basic(shown.as_bytes()).ok_or_else(|| unknown("only HTTP Basic is understood"))?;
    let user: Arc<str> = if let Some(user) = state.remembered.find(keeper, shown.as_bytes()) {
        user
    } else {
        let user = check(state, keeper, name, password, from).await?;
        let user = user.ok_or_else(|| unknown("wrong user name or password"))?;
        state.remembered.keep(keeper, shown.as_bytes(), Arc::clone(&user));
        user
    };
    keeper.roles.role(&user).ok_or_else(|| {
        let detail = "this user has none of the roles viewer, operator and admin";
        Problem::new(StatusCode::FORBIDDEN, "no-role", detail)
    })
}

async fn check(
    state: &State,
    keeper: &Keeper,
    name: String,
    password: Vec<u8>,
    from: IpAddr,
) -> Result<Option<Arc<str>>, Problem> {
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
    Ok(verdict.await.map_err(|_| busy())?.ok().flatten())
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
    hash: [u8; 32],
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

    fn hash(&self, shown: &[u8]) -> [u8; 32] {
        let text = [&self.key, shown].concat();
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &text).as_ref());
        hash
    }

    fn find(&self, keeper: &Keeper, shown: &[u8]) -> Option<Arc<str>> {
        let (hash, now) = (self.hash(shown), Instant::now());
        let mut entries = lock(&self.entries);
        entries.retain(|entry| entry.until > now && Arc::ptr_eq(&entry.authenticator, &keeper.authenticator));
        entries.iter().find(|entry| entry.hash == hash).map(|entry| Arc::clone(&entry.user))
    }

    fn keep(&self, keeper: &Keeper, shown: &[u8], user: Arc<str>) {
        let (hash, until) = (self.hash(shown), Instant::now() + REMEMBERED_FOR);
        let entry = Entry { hash, user, until, authenticator: Arc::clone(&keeper.authenticator) };
        let mut entries = lock(&self.entries);
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
    fn f086_only_names_that_nobody_else_can_arrange_are_this_machine() {
        for here in ["localhost", "LOCALHOST:18830", "127.0.0.1:18830", "[::1]:18830", "[::1]", "10.0.0.7:80"] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["evil.example", "evil.example:18830", "localhost.evil.example", "127.0.0.1.nip.io", "", "[x]"]
        {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn f086_changes_come_from_no_page_or_from_ours() {
        let origin = |origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            is_own_page(&headers, Some("127.0.0.1:18830"))
        };
        assert!(origin(None) && origin(Some("http://127.0.0.1:18830")));
        for other in ["http://127.0.0.1:8080", "https://evil.example", "null", "127.0.0.1:18830"] {
            assert!(!origin(Some(other)), "{other}");
        }
    }

    #[test]
    fn a_basic_header_is_read_or_refused() {
        let shown = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text)).into_bytes();
        assert_eq!(basic(&shown("ann:a:b")), Some(("ann".to_owned(), b"a:b".to_vec())));
        for bad in [shown(":x"), shown("ann"), b"Basic".to_vec(), b"Bearer abc".to_vec(), b"Basic ***".to_vec()] {
            assert_eq!(basic(&bad), None, "{bad:?}");
        }
    }
}
