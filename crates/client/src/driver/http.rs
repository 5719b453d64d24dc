//! SPARQL over HTTP: queries and updates, on connections that are used again.

use std::io;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_control::hints::{Asks, Hints};
use tokio::sync::Semaphore;

use super::address::{BrokerUrl, within};
use super::idle::Idle;
use super::retry::RequestKind;
use super::tls::BrokerRoute;
use super::{CheckAnswer, SpaceQuery};
use crate::error::Error;
use crate::limits::{ANSWER_BYTES_MAX, LINES_MAX};
use crate::session::BrokerRefusal;
use crate::session::row::Row;
use crate::session::sparql::{query_of, rows_of, truth_row};

type Line = SendRequest<Full<Bytes>>;

/// A broker that speaks SPARQL's protocol.
#[derive(Debug)]
pub(crate) struct HttpEndpoint {
    pub(crate) road: BrokerRoute,
    /// Who asks.
    pub(crate) kp: KpHeaders,
    idle: Idle<Line>,
    places: Semaphore,
}

/// What a KP calls itself, so that it is one of those that come from its address; and the class that it asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct KpHeaders {
    pub(crate) name: String,
    pub(crate) class: Option<String>,
}

impl KpHeaders {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let class = self.class.iter().map(|class| ("pace-class", class.clone()));
        std::iter::once(("pace-client", self.name.clone())).chain(class).collect()
    }
}

/// An answer that has arrived as a whole.
struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// What our broker says of a change that it surely did not make: the last part of the type of its problem.
const NOT_DONE: [&str; 5] = ["busy", "dropped", "late", "unwritable", "closing"];
const PROBLEM: &str = "urn:tidegate:problem:";
/// Queries up to this go into the URL, where an equal version needs no answer.
const GET_BYTES_MAX: usize = 4096;

impl HttpEndpoint {
    pub(crate) fn new(road: BrokerRoute, kp: KpHeaders) -> Self {
        Self { road, kp, idle: Idle::default(), places: Semaphore::new(LINES_MAX) }
    }

    pub(crate) async fn update(&self, text: String, asks: &Asks, patience: Duration) -> Result<(), Error> {
        let request = self.request(Method::POST, "/update", asks);
        let request = request.header(header::CONTENT_TYPE, "application/sparql-update").body(text.into());
        self.send(request, patience).await?.good(RequestKind::Change).map(drop)
    }

    pub(crate) async fn check(
        &self,
        what: &SpaceQuery,
        version: Option<&str>,
        asks: &Asks,
        patience: Duration,
    ) -> Result<CheckAnswer, Error> {
        let text = text_of(what)?;
        let request = if text.len() <= GET_BYTES_MAX {
            let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
            let mut request = self.request(Method::GET, &format!("/query?query={query}"), asks);
            if let Some(version) = version {
                request = request.header(header::IF_NONE_MATCH, version);
            }
            request.body(Full::default())
        } else {
            let request = self.request(Method::POST, "/query", asks);
            request.header(header::CONTENT_TYPE, "application/sparql-query").body(text.into_bytes().into())
        };
        let answer = self.send(request, patience).await?;
        let hints = answer.hints();
        if answer.status == StatusCode::NOT_MODIFIED && version.is_some() {
            return Ok(CheckAnswer::NotModified { hints });
        }
        let version = answer.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(Into::into);
        Ok(CheckAnswer::Whole { rows: answer.rows()?, version, hints })
    }

    /// Whether anybody is there.
    pub(crate) async fn knock(&self) -> Result<(), Error> {
        let line = self.line().await?;
        self.put_back(line);
        Ok(())
    }

    fn request(&self, method: Method, path: &str, asks: &Asks) -> hyper::http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.road.address.path))
            .header(header::HOST, self.road.address.authority())
            .header(header::ACCEPT, "application/sparql-results+json");
        if let Some(credentials) = basic(&self.road.address) {
            request = request.header(header::AUTHORIZATION, credentials);
        }
        let mut pairs = self.kp.pairs();
        asks.write(|name, text| pairs.push((name, text)));
        pairs.into_iter().fold(request, |request, (name, text)| request.header(name, text))
    }

    async fn send(
        &self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
        patience: Duration,
    ) -> Result<HttpResponse, Error> {
        let request = request.map_err(|error| Error::Rejected(error.to_string()))?;
        let exchange = async {
            let _place = self.places.acquire().await.map_err(|_| Error::Closed)?;
            let mut line = self.line().await?;
            let response = line.send_request(request).await.map_err(lost)?;
            let answer = HttpResponse::read(response).await?;
            if line.ready().await.is_ok() {
                self.put_back(line);
            }
            Ok(answer)
        };
        within(patience, exchange).await?
    }

    /// A connection that is not known to be dead.
    async fn line(&self) -> Result<Line, Error> {
        loop {
            let Some(mut line) = self.idle.take() else { break };
            // A close that has arrived is noticed before the next request.
            tokio::task::yield_now().await;
            if !line.is_closed() && line.ready().await.is_ok() {
                return Ok(line);
            }
        }
        let stream = self.road.open().await?;
        let (line, connection) = handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // It ends with the line, or when the other side closes.
        tokio::spawn(connection);
        Ok(line)
    }

    fn put_back(&self, line: Line) {
        self.idle.put(line, self.places.available_permits() == 0);
    }
}

impl HttpResponse {
    async fn read(response: Response<hyper::body::Incoming>) -> Result<Self, Error> {
        let (head, body) = response.into_parts();
        if body.size_hint().lower() > ANSWER_BYTES_MAX as u64 {
            return Err(BrokerRefusal::Nonsense("an answer that is longer than answers may be".to_owned()).into());
        }
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Error::Lost(io::Error::other(error)))?.to_bytes();
        Ok(Self { status: head.status, headers: head.headers, body })
    }

    fn hints(&self) -> Hints {
        hints_of(&self.headers)
    }

    fn good(self, kind: RequestKind) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let told = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        let word = |name: &str| told.get(name).and_then(Value::as_str).map(str::to_owned);
        let words = word("detail").or_else(|| word("error_description")).unwrap_or_else(|| self.status.to_string());
        let problem = word("type").and_then(|name| name.strip_prefix(PROBLEM).map(str::to_owned)).unwrap_or_default();
        let is_unknown = problem == "unconfirmed"
            // Another server, or one in between, may mean anything by it.
            || self.status == StatusCode::SERVICE_UNAVAILABLE && !NOT_DONE.contains(&problem.as_str());
        if kind == RequestKind::Change && is_unknown {
            return Err(BrokerRefusal::Unconfirmed(words).into());
        }
        if matches!(self.status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) {
            // Whoever stands before the broker has lost it.
            return Err(Error::Lost(io::Error::other(words)));
        }
        Err(match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                // The reason of one that is busy is that it is.
                let why = (problem != "busy" && !told.is_null()).then(|| words.into());
                BrokerRefusal::Busy(Box::new(self.hints()), why)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BrokerRefusal::Denied(words),
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => {
                BrokerRefusal::Unsupported(words)
            }
            status if status.is_client_error() => BrokerRefusal::Rejected(words),
            status if status.is_server_error() => BrokerRefusal::Failed(words),
            // Elsewhere, or not modified since nothing: no answer to what was asked.
            _ => BrokerRefusal::Nonsense(words),
        }
        .into())
    }

    fn rows(self) -> Result<Vec<Row>, Error> {
        let answer = self.good(RequestKind::Question)?;
        let results: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| BrokerRefusal::Nonsense(format!("no results in JSON: {error}")))?;
        if let Some(truth) = results.get("boolean").and_then(Value::as_bool) {
            return Ok(vec![truth_row(truth)]);
        }
        // In a notification a side may be left out. An answer without results is none, and not an empty one.
        if results.get("results").is_none() {
            return Err(BrokerRefusal::Nonsense("an answer without results".to_owned()).into());
        }
        Ok(rows_of(&results)?)
    }
}

/// What headers say about pace.
pub(crate) fn hints_of(headers: &HeaderMap) -> Hints {
    let mut hints = Hints::default();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // The standard's words first, ours are exact.
    if let Some(seconds) = header("retry-after").and_then(|text| text.trim().parse().ok()) {
        hints.retry_after = Some(Duration::from_secs(seconds));
    }
    let queued = header("server-timing").and_then(|text| text.split("queue;dur=").nth(1));
    let queued = queued.and_then(|rest| rest.split([',', ';']).next()?.trim().parse::<f64>().ok());
    hints.queued = queued.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
    for (name, value) in headers {
        if let Ok(text) = value.to_str() {
            hints.read(name.as_str(), text);
        }
    }
    hints
}

/// The text of what is asked for.
pub(crate) fn text_of(what: &SpaceQuery) -> Result<String, Error> {
    match what {
        SpaceQuery::Sparql(text) => Ok(text.to_string()),
        SpaceQuery::Patterns(patterns) => Ok(query_of(patterns)?),
    }
}

/// Name and password, as HTTP wants them.
pub(crate) fn basic(address: &BrokerUrl) -> Option<String> {
    let (name, password) = address.user.as_ref()?;
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    Some(format!("Basic {text}"))
}

fn lost(error: hyper::Error) -> Error {
    Error::Lost(io::Error::other(error))
}
