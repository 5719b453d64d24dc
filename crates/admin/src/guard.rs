//! Who may ask: the checks before every request, and the words that go with every answer.
//!
//! - *Host.* A name that anybody can point at this machine must not make a browser talk to us (DNS rebinding). While
//!   there are no users, only `localhost` and addresses are taken. With users everything needs a password, which a
//!   browser gives to the site that it was typed in for and to no other.
//! - *Origin.* What changes something, and what listens, is not taken from pages of other sites.
//! - *User.* With users: a session (`session`) or HTTP Basic (`password`), and a role.
//! - *Token.* What changes something and comes from a browser carries a token that only a page of ours can have read.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tidegate_http::{PAGE_POLICY, bearer, host, is_page_of, is_this_machine, peer};
use tokio::time::timeout;

use crate::audit::{AuditSubject, AuditedChange};
use crate::connection_table::Phase;
use crate::entrance::EntrancePlace;
use crate::limits::REQUEST_TIMEOUT;
use crate::problem::Problem;
use crate::process_control::Role;
use crate::state::AdminState;
use crate::{page, password, session};

/// Whose request it is.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// None where there are no users.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) role: Role,
}

/// Carries the token of a page.
pub(crate) const TOKEN: &str = "x-csrf-token";

/// Everything that is asked of a request before it is looked at, and a limit to the time it takes.
pub(crate) async fn guard(
    axum::extract::State(state): axum::extract::State<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let is_page = parts.headers.get("sec-fetch-mode").is_some_and(|mode| mode != "navigate");
    let (mut who, from) = (None, peer(&parts));
    let place = parts.extensions.get::<EntrancePlace>().cloned();
    let turn = |phase| place.as_ref().is_none_or(|place| place.turn(phase));
    turn(Phase::Asking);
    let answer = async {
        who = admit(&state, &parts).await?;
        if who.as_ref().is_some_and(|who| who.user.is_some()) && !turn(Phase::Known) {
            return Err(Problem::busy("too many requests of users are being answered"));
        }
        if let Some(who) = &who {
            parts.extensions.insert(who.clone());
        }
        Ok::<_, Problem>(next.run(Request::from_parts(parts, body)).await)
    };
    let mut response = match timeout(REQUEST_TIMEOUT, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => Problem::busy("this took too long").into_response(),
    };
    if let Some(who) = who.filter(|_| changes(&method) && !is_read_only(&path)) {
        let (at, user, status) = (SystemTime::now(), who.user, response.status().as_u16());
        let whom = response.extensions_mut().remove::<AuditSubject>().map(|AuditSubject(whom)| whom);
        state.audit.note(AuditedChange { at, user, method, path: path.clone(), whom, from, status });
    }
    turn(Phase::Silent);
    dress(response.headers_mut(), &path);
    if is_page {
        // A browser would ask for a password in a window of its own; our page has a better one.
        response.headers_mut().remove(header::WWW_AUTHENTICATE);
    }
    response
}

/// What every answer says about itself.
fn dress(headers: &mut HeaderMap, path: &str) {
    let words = [
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in words {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !page::is_file(path) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// A POST that changes nothing.
fn is_read_only(path: &str) -> bool {
    path == "/api/v1/queries"
}

/// Whose request it is; none at places where nobody is asked.
async fn admit(state: &AdminState, request: &Parts) -> Result<Option<Principal>, Problem> {
    let (method, path, headers) = (&request.method, request.uri.path(), &request.headers);
    let directory = state.process.directory();
    let host = host(headers);
    if directory.is_none() && !host.is_some_and(is_this_machine) {
        let detail = "this port answers to addresses and to localhost only, because there are no users";
        return Err(Problem::new(StatusCode::FORBIDDEN, "host-not-allowed", detail));
    }
    let is_change = changes(method);
    if (is_change || matches!(path, "/api/v1/events" | "/api/v1/mqtt")) && !is_own_page(headers, host) {
        let detail = "changes are not taken from pages of other sites, and they may not listen";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin-not-allowed", detail));
    }
    // What supervisors and load balancers ask, and the page before the login, tell nothing that is worth a password.
    if matches!(path, "/healthz" | "/readyz" | "/version" | "/api/v1/login") || (!is_change && page::is_file(path)) {
        return Ok(None);
    }
    let Some(directory) = directory else {
        if is_change && is_browser(headers) {
            check_token(headers, state.sessions.local_token())?;
        }
        return Ok(Some(Principal { user: None, role: Role::Admin }));
    };
    let session = session::cookie(headers).and_then(|cookie| state.sessions.find(&directory, cookie));
    let (user, role) = if let Some(session) = session {
        if is_change {
            check_token(headers, &session.token)?;
        }
        (session.user, None)
    } else if let Some(token) = bearer(headers) {
        let (user, role) = password::by_token(state, &directory, token, peer(request)).await?;
        (user, Some(role))
    } else {
        (password::by_header(state, &directory, headers, peer(request)).await?, None)
    };
    let role = role.or_else(|| directory.roles.role(&user)).ok_or_else(no_role)?;
    let needed = needed(method, path);
    if role < needed {
        let detail = format!("this needs the role {}, and you are {}", needed.name(), role.name());
        return Err(Problem::new(StatusCode::FORBIDDEN, "role-too-low", detail));
    }
    Ok(Some(Principal { user: Some(user), role }))
}

pub(crate) fn no_role() -> Problem {
    let detail = "this user has none of the roles viewer, operator and admin";
    Problem::new(StatusCode::FORBIDDEN, "no-role", detail)
}

/// Browsers say where a request comes from, one way or another; command lines do not.
fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        || headers.contains_key("sec-fetch-site")
        || headers.contains_key(header::COOKIE)
}

fn check_token(headers: &HeaderMap, token: &str) -> Result<(), Problem> {
    let shown = headers.get(TOKEN).map(HeaderValue::as_bytes).unwrap_or_default();
    if session::is_same(shown, token.as_bytes()) {
        return Ok(());
    }
    let detail = format!("the header {TOKEN} is missing or wrong; GET /api/v1/login has it");
    Err(Problem::new(StatusCode::FORBIDDEN, "token-missing", detail))
}

/// The least role for a request.
pub(crate) fn needed(method: &Method, path: &str) -> Role {
    match *method {
        _ if matches!(path, "/api/v1/users" | "/api/v1/rules" | "/api/v1/tokens") => Role::Admin,
        Method::GET | Method::HEAD if !matches!(path, "/api/v1/trace" | "/api/v1/log" | "/api/v1/mqtt") => Role::Viewer,
        _ if is_read_only(path) => Role::Viewer,
        // An update asks nobody for rights on graphs.
        _ if matches!(path, "/api/v1/reload" | "/api/v1/backup" | "/api/v1/drain" | "/api/v1/updates") => Role::Admin,
        _ => Role::Operator,
    }
}

/// No browser, or a page of ours.
fn is_own_page(headers: &HeaderMap, host: Option<&str>) -> bool {
    headers.get(header::ORIGIN).is_none_or(|origin| is_page_of(origin.to_str().unwrap_or_default(), host))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
