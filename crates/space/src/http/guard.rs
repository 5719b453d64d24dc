//! Who may ask: the checks before every request.
//!
//! - *Host.* Without a password only `localhost` and addresses are taken: a name that anybody can point at this machine
//!   must not make a browser talk to us.
//! - *Site.* Nothing is taken from pages of other sites, unless they are listed: `site`.
//! - *User.* With users: HTTP Basic, a token (Bearer), or over TLS the name in a certificate. Right passwords are remembered for a minute, as
//!   hashes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tidegate_graph::GraphRights;
use tidegate_http::{basic, bearer, host, is_this_machine, peer, who_are_you};
use tokio::sync::oneshot;

use super::HttpState;
use super::problem::SpaceProblem;
use super::site::Site;
use crate::access_policy::{AccessMode, Checked, KpIdentity, TokenHolder};
use crate::handle::SpaceHandle;
use crate::machine::request::Refused;
use crate::panics::{Panicked, Part};

/// A request whose user is who it says.
#[derive(Clone, Debug)]
pub(super) struct Authenticated {
    pub(super) user: Arc<str>,
    /// When what was shown is over, if it has an end: a socket that was opened with it ends then.
    pub(super) ends: Option<Instant>,
    /// When a token was shown, in seconds since 1970: it may be taken back.
    pub(super) shown_s: Option<u64>,
}

/// What whoever asks may do. None: everything.
#[derive(Clone, Debug)]
pub(super) struct AskerRights(Option<Arc<GraphRights>>);

impl AskerRights {
    /// The space as whoever sent this request may see it.
    pub(super) fn handle(door: &HttpState, head: &Parts) -> SpaceHandle {
        match head.extensions.get::<Self>() {
            Some(Self(rights)) => door.handle.restricted(rights.as_ref()),
            // Nobody comes past the guard; whoever did may do nothing.
            None => door.handle.restricted(Some(&Arc::default())),
        }
    }
}

/// The user whom the certificate of a connection names.
#[derive(Clone, Debug)]
pub(super) struct CertificateUser(pub(super) Option<Arc<str>>);

pub(super) async fn guard(State(door): State<Arc<HttpState>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let shared = &door.handle.shared;
    let serve = async {
        shared.probe(Part::Http);
        let site = Site::of(&head.headers, host(&head.headers), &*door.policy);
        let mut response = match site.preflight(&head.method, &head.headers) {
            Some(response) => response,
            None => match admit(&door, &head, &site).await.and_then(|known| not_banned(&door, &head, known)) {
                Ok(known) => {
                    let user = known.as_ref().map(|known| &*known.user);
                    head.extensions.insert(AskerRights(door.policy.rights(user)));
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
    served.unwrap_or_else(|Panicked| SpaceProblem::from(Refused::Panicked).into_response())
}

/// Whom a ban is for is not let in, whoever it is.
fn not_banned(
    door: &HttpState,
    head: &Parts,
    known: Option<Authenticated>,
) -> Result<Option<Authenticated>, SpaceProblem> {
    let name = super::asks(&head.headers).client;
    let kp = KpIdentity { user: known.as_ref().map(|it| &*it.user), address: peer(head), name: name.as_deref() };
    match door.policy.banned_for(&kp) {
        Some(left) => Err(SpaceProblem::banned(left)),
        None => Ok(known),
    }
}

async fn admit(door: &HttpState, head: &Parts, site: &Site) -> Result<Option<Authenticated>, SpaceProblem> {
    let forbidden = |name, detail: &str| Err(SpaceProblem::new(StatusCode::FORBIDDEN, name, detail));
    let host = host(&head.headers);
    let rule = door.policy.rule();
    if rule == AccessMode::Open && !host.is_some_and(is_this_machine) {
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
        // Whoever shows a password is known by it, although it need not be.
        AccessMode::ReadersOpen => {
            !writes && host.is_some_and(is_this_machine) && !head.headers.contains_key(header::AUTHORIZATION)
        }
        AccessMode::Users => false,
    };
    let certificate = head.extensions.get::<CertificateUser>().and_then(|CertificateUser(user)| user.clone());
    match certificate {
        // Who shows a password means that user.
        Some(user) if !head.headers.contains_key(header::AUTHORIZATION) => {
            let asked = |told| door.policy.check_certificate(user.to_string(), peer(head), told);
            judge(asked, "the certificate names no user").await?;
            Ok(Some(Authenticated { user, ends: None, shown_s: None }))
        }
        _ if is_free => Ok(None),
        _ => identify(door, &head.headers, peer(head)).await.map(Some),
    }
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

async fn identify(door: &HttpState, headers: &HeaderMap, from: IpAddr) -> Result<Authenticated, SpaceProblem> {
    if let Some(token) = bearer(headers) {
        // Before it is judged: what is taken back meanwhile was shown before.
        let shown_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // Never remembered: a token has an end.
        let (reply, verdict) = oneshot::channel();
        let told = Box::new(move |holder| drop(reply.send(holder)));
        let asked = |told| door.policy.check_token(token.to_vec(), from, told);
        let holder: Option<TokenHolder> = wait(asked(told), verdict).await?;
        let TokenHolder { user, valid_for } = holder.ok_or_else(|| who_are_you("the token is not valid here"))?;
        // One that ends after the clock does has no end.
        let ends = valid_for.and_then(|time| Instant::now().checked_add(time));
        return Ok(Authenticated { user, ends, shown_s: Some(shown_s) });
    }
    let (name, password) = basic(headers)?;
    let (print, user) = (door.remembered.print(&name, &password), Arc::from(name.as_str()));
    let known = Authenticated { user, ends: None, shown_s: None };
    let generation = door.policy.generation();
    if door.remembered.find(print, Instant::now(), |known| *known == generation).is_some() {
        return Ok(known);
    }
    judge(|told| door.policy.check(name, password, from, told), "wrong user name or password").await?;
    door.remembered.keep(print, Instant::now(), generation);
    Ok(known)
}

/// Waits for what is found out elsewhere.
async fn judge(
    ask: impl FnOnce(Box<dyn FnOnce(bool) + Send>) -> Checked,
    otherwise: &'static str,
) -> Result<(), SpaceProblem> {
    let (reply, verdict) = oneshot::channel();
    let told = Box::new(move |is_right| {
        let _ = reply.send(is_right);
    });
    if wait(ask(told), verdict).await? { Ok(()) } else { Err(who_are_you(otherwise).into()) }
}

async fn wait<T>(asked: Checked, verdict: oneshot::Receiver<T>) -> Result<T, SpaceProblem> {
    let too_many = || SpaceProblem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "too many passwords are being checked");
    match asked {
        Checked::Asked => verdict.await.map_err(|_| too_many()),
        Checked::Busy => Err(too_many()),
        Checked::Wait(pause) => Err(SpaceProblem::wrong_passwords(pause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
