//! Who may ask: the checks before every request.
//!
//! - *Host.* Without a password only `localhost` and addresses are taken: a name that anybody can point at this machine
//!   must not make a browser talk to us.
//! - *Site.* Nothing is taken from pages of other sites, unless they are listed: `site`.
//! - *User.* With users: HTTP Basic. Right passwords are remembered for a minute, as hashes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use tokio::sync::oneshot;

use super::HttpState;
use super::problem::Problem;
use super::site::Site;
use crate::access_policy::{AccessMode, Checked};
use crate::limits::{REMEMBERED_FOR, REMEMBERED_MAX};
use crate::machine::request::Refused;
use crate::panics::{Panicked, Part};
use crate::service::random;
use crate::shared_state::lock;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Where a request comes from, as whoever accepted its connection has noted.
pub(super) fn peer(head: &Parts) -> IpAddr {
    head.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(ip)| *ip)
}

/// A request whose user name and password are right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known;

pub(super) async fn guard(State(door): State<Arc<HttpState>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let shared = &door.handle.shared;
    let serve = async {
        shared.probe(Part::Http);
        let site = Site::of(&head.headers, host(&head), &*door.policy);
        let mut response = match site.preflight(&head.method, &head.headers) {
            Some(response) => response,
            None => match admit(&door, &head, &site).await {
                Ok(known) => {
                    known.map(|known| head.extensions.insert(known));
                    next.run(Request::from_parts(head, body)).await
                }
                Err(problem) => problem.into_response(),
            },
        };
        site.announce(&mut response);
        response
    };
    let served = shared.panics.catch_async(Part::Http, serve).await;
    served.unwrap_or_else(|Panicked| Problem::from(Refused::Panicked).into_response())
}

async fn admit(door: &HttpState, head: &Parts, site: &Site) -> Result<Option<Known>, Problem> {
    let forbidden = |name, detail: &str| Err(Problem::new(StatusCode::FORBIDDEN, name, detail));
    let host = host(head);
    let rule = door.policy.rule();
    if rule == AccessMode::Open && !host.is_some_and(is_here) {
        let detail = "this door answers to addresses and to localhost only, because there are no users";
        return forbidden("host-not-allowed", detail);
    }
    let writes = writes(&head.method, head.uri.path());
    if *site == Site::Foreign && !is_harmless(head) {
        let detail = "requests from pages of other sites are not taken; space.origins lists those that are welcome";
        return forbidden("origin-not-allowed", detail);
    }
    let is_free = match rule {
        AccessMode::Open => true,
        // By a name that anybody can point at this machine a page could read what its visitor's machine may.
        AccessMode::ReadersOpen => !writes && host.is_some_and(is_here),
        AccessMode::Users => false,
    };
    if is_free { Ok(None) } else { identify(door, &head.headers, peer(head)).await.map(|()| Some(Known)) }
}

fn host(head: &Parts) -> Option<&str> {
    head.headers.get(header::HOST).and_then(|host| host.to_str().ok())
}

/// Somebody follows a link to the list of what there is.
fn is_harmless(head: &Parts) -> bool {
    let is_navigation = head.headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    is_navigation && head.method == Method::GET && head.uri.path() == "/" && !head.headers.contains_key(header::UPGRADE)
}

/// A query that is posted to `/query` or `/check` changes nothing; at `/sparql` it might.
fn writes(method: &Method, path: &str) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    !is_read && !matches!(path, "/query" | "/check")
}

/// Whether a `Host` names this machine in a way that nobody else can arrange.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

async fn identify(door: &HttpState, headers: &HeaderMap, from: IpAddr) -> Result<(), Problem> {
    let unknown = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "who-are-you", detail);
    let shown = headers.get(header::AUTHORIZATION).ok_or_else(|| unknown("a user name and a password are needed"))?;
    let (name, password) = basic(shown.as_bytes()).ok_or_else(|| unknown("only HTTP Basic is understood"))?;
    let generation = door.policy.generation();
    if door.remembered.knows(generation, shown.as_bytes()) {
        return Ok(());
    }
    let (reply, verdict) = oneshot::channel();
    let told = Box::new(move |is_right| {
        let _ = reply.send(is_right);
    });
    let too_many = || Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "too many passwords are being checked");
    match door.policy.check(name, password, from, told) {
        Checked::Asked => {}
        Checked::Busy => return Err(too_many()),
        Checked::Wait(pause) => return Err(Problem::wrong_passwords(pause)),
    }
    if !verdict.await.map_err(|_| too_many())? {
        return Err(unknown("wrong user name or password"));
    }
    door.remembered.keep(generation, shown.as_bytes());
    Ok(())
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
    (!name.is_empty()).then(|| (name, decoded[colon + 1..].to_vec()))
}

/// Passwords that were right a moment ago, as hashes with a key that only this process has.
#[derive(Debug)]
pub(crate) struct Remembered {
    key: [u8; 32],
    hashes: Mutex<Vec<([u8; 32], Instant)>>,
}

impl Remembered {
    pub(crate) fn new() -> Self {
        Self { key: random(), hashes: Mutex::default() }
    }

    fn hash(&self, generation: u64, shown: &[u8]) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &[&self.key, &generation.to_le_bytes()[..], shown].concat()).as_ref());
        hash
    }

    fn knows(&self, generation: u64, shown: &[u8]) -> bool {
        let (hash, now) = (self.hash(generation, shown), Instant::now());
        let mut hashes = lock(&self.hashes);
        hashes.retain(|(_, until)| *until > now);
        hashes.iter().any(|(known, _)| *known == hash)
    }

    fn keep(&self, generation: u64, shown: &[u8]) {
        let hash = self.hash(generation, shown);
        let mut hashes = lock(&self.hashes);
        if hashes.len() >= REMEMBERED_MAX {
            hashes.remove(0);
        }
        hashes.push((hash, Instant::now() + REMEMBERED_FOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_arrange_are_this_machine() {
        for here in ["localhost", "LOCALHOST:7878", "127.0.0.1:7878", "[::1]:7878", "10.0.0.7"] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[x]"] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn what_may_change_something_is_a_write() {
        for (method, path, expected) in [
            (Method::GET, "/query", false),
            (Method::POST, "/query", false),
            (Method::POST, "/check", false),
            (Method::POST, "/update", true),
            (Method::POST, "/sparql", true),
            (Method::PUT, "/store", true),
            (Method::HEAD, "/store", false),
            (Method::DELETE, "/store", true),
        ] {
            assert_eq!(writes(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_basic_header_is_read_or_refused() {
        let shown = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text)).into_bytes();
        assert_eq!(basic(&shown("ann:a:b")), Some(("ann".to_owned(), b"a:b".to_vec())));
        for bad in [shown(":x"), shown("ann"), b"Basic".to_vec(), b"Bearer abc".to_vec()] {
            assert_eq!(basic(&bad), None, "{bad:?}");
        }
    }
}
