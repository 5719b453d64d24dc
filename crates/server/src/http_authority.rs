//! An authority that is asked over HTTP: who may come in. The memory and the breaker are `tidegate_auth`'s; here are the request, the
//! clock, and what an answer says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use tidegate_auth::limits::ROLES_MAX;
use tidegate_auth::{
    Authority, AuthorityGrant, AuthorityMemory, AuthorityStep, AuthorityTimes, AuthorityVerdict, CredentialPrint,
};
use tidegate_broker::ExtraMetric;
use tidegate_broker::authenticate::{Credentials, LoginRefusal};
use tracing::warn;

use crate::config::keys::HttpAuthSection;
use crate::config::setting::Span;
use crate::config::{ConfigProblem, Loaded};
use crate::fetch::{WebAddress, WebAnswer, WebClient};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What was asked, and what came of it.
const OUTCOMES: [&str; 4] = ["allowed", "denied", "failed", "remembered"];

/// See the module.
#[derive(Debug)]
pub struct HttpAuthority {
    at: WebAddress,
    client: WebClient,
    times: AuthorityTimes,
    /// That of the one before a reload, if it asked at the same place.
    state: Mutex<Arc<AuthorityState>>,
}

#[derive(Debug)]
struct AuthorityState {
    /// What is remembered is of no use to whoever finds it.
    key: hmac::Key,
    began: Instant,
    memory: Mutex<AuthorityMemory>,
    counts: [AtomicU64; OUTCOMES.len()],
}

impl HttpAuthority {
    /// As the configuration has it; none if it has none.
    pub fn load(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Option<Arc<Self>> {
        let HttpAuthSection { url, ca, timeout: Span(timeout), cache: Span(cache), hold: Span(hold) } =
            &loaded.options.http_auth;
        let at = url.clone().value()?.0;
        let times = AuthorityTimes { cache: *cache, hold: *hold, timeout: *timeout };
        let client = match WebClient::new(ca.as_deref(), *timeout, ANSWER_BYTES_MAX) {
            Ok(client) => client,
            Err(error) => {
                let (key, message) = ("http_auth.ca", format!("cannot be used: {error}"));
                problems.push(ConfigProblem::of_key(loaded.origin(key), key, message));
                return None;
            }
        };
        let Ok(key) = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()) else {
            problems.push(ConfigProblem::general("there are no random numbers".to_owned()));
            return None;
        };
        let memory = Mutex::new(AuthorityMemory::new(times));
        let state = AuthorityState { key, began: Instant::now(), memory, counts: Default::default() };
        Some(Arc::new(Self { at, client, times, state: Mutex::new(Arc::new(state)) }))
    }

    /// Goes on from what was before a reload, if the same is asked.
    pub fn inherit(&self, before: &Self) {
        if self.at == before.at {
            let state = before.state();
            lock(&state.memory).set_times(self.times);
            *lock(&self.state) = state;
        }
    }

    fn state(&self) -> Arc<AuthorityState> {
        Arc::clone(&lock(&self.state))
    }

    /// What became of questions, for `/metrics`.
    pub fn metrics(&self) -> Vec<ExtraMetric> {
        let state = self.state();
        let asked = OUTCOMES.iter().zip(&state.counts).map(|(outcome, count)| ExtraMetric {
            family: "http_auth_logins",
            help: "Logins that the HTTP authority was asked about, or whose answer was remembered, by outcome.",
            is_counter: true,
            labels: vec![("outcome", *outcome)],
            value: count.load(Ordering::Relaxed),
        });
        let is_open = lock(&state.memory).is_open();
        let help = "1 while the HTTP authority is left alone because it failed: only who is remembered comes in.";
        let (labels, value) = (Vec::new(), u64::from(is_open));
        asked.chain([ExtraMetric { family: "http_auth_away", help, is_counter: false, labels, value }]).collect()
    }
}

impl AuthorityState {
    fn print(&self, credentials: &Credentials) -> CredentialPrint {
        let Credentials { client_id, user_name, password, listener, .. } = credentials;
        let mut context = hmac::Context::with_key(&self.key);
        let name = user_name.as_deref().unwrap_or_default();
        for part in
            [client_id.as_bytes(), name.as_bytes(), password.as_deref().unwrap_or_default(), listener.as_bytes()]
        {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut print = CredentialPrint::default();
        for (to, from) in print.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        print
    }

    fn count(&self, outcome: usize) {
        self.counts[outcome].fetch_add(1, Ordering::Relaxed);
    }
}

impl Authority for HttpAuthority {
    fn recall(&self, credentials: &Credentials) -> Option<AuthorityVerdict> {
        let state = self.state();
        let print = state.print(credentials);
        let verdict = lock(&state.memory).recall(&print, state.began.elapsed());
        if verdict.is_some() {
            state.count(3);
        }
        verdict
    }

    fn judge(&self, credentials: &Credentials) -> AuthorityVerdict {
        let state = self.state();
        let print = state.print(credentials);
        let step = lock(&state.memory).consult(&print, state.began.elapsed());
        if let AuthorityStep::Known(verdict) = step {
            state.count(3);
            return verdict;
        }
        let asked =
            self.client.post(&self.at, &question(credentials)).map_err(|error| NoAnswer::Failed(error.to_string()));
        let answer =
            asked.and_then(|answer| read_answer(&answer, credentials.user_name.as_deref().unwrap_or_default()));
        let now = state.began.elapsed();
        match answer {
            Ok(verdict) => {
                state.count(usize::from(verdict.is_err()));
                lock(&state.memory).on_answer(print, verdict.clone(), now);
                verdict
            }
            Err(NoAnswer::Unclear(why)) => {
                state.count(2);
                warn!(
                    event = "http_auth_unclear",
                    at = self.at.origin(),
                    why,
                    "it does not say whether a client may come in"
                );
                lock(&state.memory).on_unclear(&print, now)
            }
            Err(NoAnswer::Failed(why)) => {
                state.count(2);
                warn!(event = "http_auth_failed", at = self.at.origin(), why, "nobody can say who may come in");
                lock(&state.memory).on_failure(&print, now)
            }
        }
    }
}

/// Why it is not known whether a client may come in.
#[derive(Debug, PartialEq, Eq)]
enum NoAnswer {
    /// It is there, and says something else. That may be the client's doing.
    Unclear(String),
    /// It is not there, or out of order.
    Failed(String),
}

impl From<&str> for NoAnswer {
    fn from(why: &str) -> Self {
        Self::Unclear(why.to_owned())
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is asked, as JSON.
fn question(credentials: &Credentials) -> Vec<u8> {
    use base64::Engine;
    let Credentials { client_id, user_name, password, listener, .. } = credentials;
    let mut question = json!({ "client_id": client_id, "user": user_name, "listener": listener });
    let password = password.as_deref().unwrap_or_default();
    match std::str::from_utf8(password) {
        Ok(text) => question["password"] = text.into(),
        Err(_) => question["password_base64"] = base64::engine::general_purpose::STANDARD.encode(password).into(),
    }
    question.to_string().into_bytes()
}

/// What an answer says; or why it says nothing. Only a plain yes is one.
fn read_answer(answer: &WebAnswer, user_name: &str) -> Result<AuthorityVerdict, NoAnswer> {
    let grant = |user: &str, roles: Vec<Arc<str>>, valid_for| AuthorityGrant {
        user: user.into(),
        roles: roles.into(),
        valid_for,
    };
    match answer.status {
        204 => return Ok(Ok(grant(user_name, Vec::new(), None))),
        401 => return Ok(Err(LoginRefusal::BadUserNameOrPassword)),
        403 => return Ok(Err(LoginRefusal::NotAuthorized)),
        200 => {}
        status @ (408 | 429) => return Err(NoAnswer::Unclear(format!("it answered {status}"))),
        // A server that does not want the question, about this client: a name that it finds impossible, for example.
        status @ 400..=499 => {
            warn!(
                event = "http_auth_refused",
                status, "a client is refused; if all of them are, is http_auth.url right?"
            );
            return Ok(Err(LoginRefusal::NotAuthorized));
        }
        status => {
            let why = format!("it answered {status}; 200, 204 and 400 to 499 are answers");
            return Err(if status >= 500 { NoAnswer::Failed(why) } else { NoAnswer::Unclear(why) });
        }
    }
    let body: Value = serde_json::from_slice(&answer.body).map_err(|_| "its answer is no JSON")?;
    match body["result"].as_str() {
        Some("allow") => {}
        Some("deny") => return Ok(Err(LoginRefusal::NotAuthorized)),
        _ => return Err("its answer has no \"result\" that is \"allow\" or \"deny\"".into()),
    }
    let user = match &body["user"] {
        Value::Null => user_name,
        Value::String(user) => user,
        _ => return Err("its \"user\" is no text".into()),
    };
    let roles = match &body["roles"] {
        Value::Null => Vec::new(),
        Value::Array(list) if list.len() <= ROLES_MAX => {
            let texts: Option<Vec<Arc<str>>> = list.iter().map(|role| role.as_str().map(Arc::from)).collect();
            texts.ok_or("its \"roles\" are no list of texts")?
        }
        _ => return Err(NoAnswer::Unclear(format!("its \"roles\" are no list of {ROLES_MAX} texts at most"))),
    };
    let valid_for = match &body["valid_for_s"] {
        Value::Null => None,
        seconds => {
            let seconds = seconds.as_u64().filter(|seconds| *seconds > 0);
            Some(Duration::from_secs(seconds.ok_or("its \"valid_for_s\" is no number of seconds")?))
        }
    };
    Ok(Ok(grant(user, roles, valid_for)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::config::{ConfigEntry, Sources, load};

    fn authority(url: &str) -> Arc<HttpAuthority> {
        let flags = [("http_auth.url", url), ("http_auth.timeout", "20s")];
        let flags = flags.map(|(key, value)| ConfigEntry::flag("--set", key, value)).to_vec();
        let loaded = load(&Sources { file: Some("/dev/null".into()), flags, ..Sources::default() }).unwrap();
        HttpAuthority::load(&loaded, &mut Vec::new()).unwrap()
    }

    fn shown(user: &str) -> Credentials {
        let (user_name, password) = (Some(user.into()), Some(b"secret".to_vec()));
        Credentials { client_id: "c".into(), user_name, password, listener: "mqtt", ..Credentials::default() }
    }

    #[test]
    fn only_a_plain_yes_is_one() {
        let read = |status, body: &str| read_answer(&WebAnswer { status, body: body.into() }, "bob");
        let grant = read(200, r#"{"result":"allow","roles":["a"],"valid_for_s":60}"#).unwrap().unwrap();
        assert_eq!((&*grant.user, grant.roles.len(), grant.valid_for), ("bob", 1, Some(Duration::from_secs(60))));
        assert_eq!(&*read(200, r#"{"result":"allow","user":"x"}"#).unwrap().unwrap().user, "x");
        assert!(read(204, "").unwrap().is_ok());
        for status in [400, 401, 403, 404, 422, 499] {
            assert!(read(status, r#"{"result":"allow"}"#).unwrap().is_err(), "{status}");
        }
        assert!(read(200, r#"{"result":"deny"}"#).unwrap().is_err());
        for status in [500, 503, 599] {
            assert!(matches!(read(status, r#"{"result":"allow"}"#), Err(NoAnswer::Failed(_))), "{status}");
        }
        for (status, body) in [
            (200, ""),
            (200, "true"),
            (200, "{}"),
            (200, r#"{"result":"ignore"}"#),
            (200, r#"{"result":true}"#),
            (200, r#"{"result":"allow","user":7}"#),
            (200, r#"{"result":"allow","roles":"admin"}"#),
            (200, r#"{"result":"allow","roles":[1]}"#),
            (200, r#"{"result":"allow","valid_for_s":-1}"#),
            (301, r#"{"result":"allow"}"#),
            (408, ""),
            (429, r#"{"result":"allow"}"#),
        ] {
            assert!(matches!(read(status, body), Err(NoAnswer::Unclear(_))), "{status} {body}");
        }
    }

    #[test]
    fn an_answer_is_remembered_and_an_authority_that_is_away_lets_in_who_was_let_in() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/auth", listener.local_addr().unwrap());
        let authority = authority(&url);
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let mut count = 0;
            while !request[..count].ends_with(b"}") {
                count += stream.read(&mut request[count..]).unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"result\":\"allow\"}").unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        assert!(authority.judge(&shown("bob")).is_ok());
        let request = served.join().unwrap();
        let question: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(question, json!({ "client_id": "c", "user": "bob", "password": "secret", "listener": "mqtt" }));
        // The listener is gone.
        assert!(authority.judge(&shown("bob")).is_ok(), "remembered");
        for _ in 0..5 {
            assert_eq!(authority.judge(&shown("eve")), Err(LoginRefusal::Unavailable));
        }
        let counted = |family: &str, place: usize| {
            authority.metrics().iter().filter(|it| it.family == family).nth(place).map(|it| it.value)
        };
        assert_eq!(
            (counted("http_auth_logins", 0), counted("http_auth_logins", 2)),
            (Some(1), Some(3)),
            "then left alone"
        );
        assert_eq!(counted("http_auth_away", 0), Some(1));
    }

    #[test]
    fn a_reload_forgets_nobody_unless_another_is_asked() {
        let first = authority("http://127.0.0.1:9/auth");
        let state = first.state();
        let bob = AuthorityGrant { user: "bob".into(), roles: Arc::default(), valid_for: None };
        lock(&state.memory).on_answer(state.print(&shown("bob")), Ok(bob), state.began.elapsed());
        let same = authority("http://127.0.0.1:9/auth");
        same.inherit(&first);
        assert!(same.judge(&shown("bob")).is_ok());
        let other = authority("http://127.0.0.1:9/other");
        other.inherit(&first);
        assert_eq!(other.judge(&shown("bob")), Err(LoginRefusal::Unavailable));
    }
}
