//! Endpoints that queries with `SERVICE` may ask: those that the operator names, and no other. A call has a time, a size and a
//! place among few; a redirect is no answer, so nobody is led elsewhere.
//!
//! Plain HTTP: TLS and credentials are what a relay on this machine or in this network is for. Knows nothing of queries but
//! their texts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::limits::{SERVICE_BYTES_MAX, SERVICE_CALLS_AT_ONCE, SERVICE_TIME_MAX};

/// An endpoint that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// As queries name it.
    iri: String,
    /// Name and port.
    host: String,
    path: String,
}

impl ServiceEndpoint {
    /// `http://HOST[:PORT]/PATH`; none if it is anything else. Queries name it to the letter.
    pub fn parse(iri: &str) -> Option<Self> {
        let rest = iri.strip_prefix("http://")?;
        let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let is_plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"@#<>\"{}|\\^`".contains(&byte));
        // Behind the brackets of an address of IPv6, if it is one.
        let name_end = host.rfind(']').map_or(0, |at| at + 1);
        let has_port = match host[name_end..].split_once(':') {
            Some((_, port)) => port.parse::<u16>().ok().map(|_| true)?,
            None => false,
        };
        if host.is_empty() || host.starts_with(':') || host.contains('?') || !is_plain(iri) {
            return None;
        }
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        Some(Self { iri: iri.to_owned(), host, path: path.to_owned() })
    }
}

impl fmt::Display for ServiceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iri)
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Answered,
    Failed,
    Busy,
}

const CALL_OUTCOMES: [&str; 3] = ["answered", "failed", "busy"];

/// The endpoints of a space.
#[derive(Debug)]
pub(crate) struct ServiceEndpoints {
    endpoints: Vec<ServiceEndpoint>,
    places: Semaphore,
    calls: [AtomicU64; CALL_OUTCOMES.len()],
}

impl ServiceEndpoints {
    pub(crate) fn new(endpoints: Vec<ServiceEndpoint>) -> Self {
        Self { endpoints, places: Semaphore::new(SERVICE_CALLS_AT_ONCE), calls: Default::default() }
    }

    pub(crate) fn find(&self, iri: &str) -> Option<&ServiceEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.iri == iri)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// What became of calls, and how many.
    pub(crate) fn calls(&self) -> Vec<(&'static str, u64)> {
        CALL_OUTCOMES.iter().zip(&self.calls).map(|(name, number)| (*name, number.load(Ordering::Relaxed))).collect()
    }

    /// Asks an endpoint, in this time at most: the bytes of a result in JSON, or why there is none.
    pub(crate) async fn call(
        &self,
        endpoint: &ServiceEndpoint,
        query: &str,
        patience: Duration,
    ) -> Result<Bytes, String> {
        let count = |outcome: CallOutcome| self.calls[outcome as usize].fetch_add(1, Ordering::Relaxed);
        let Ok(_place) = self.places.try_acquire() else {
            count(CallOutcome::Busy);
            return Err("too many endpoints are being asked".to_owned());
        };
        let answer = timeout(patience.min(SERVICE_TIME_MAX), exchange(endpoint, query)).await;
        let answer = answer.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        count(if answer.is_ok() { CallOutcome::Answered } else { CallOutcome::Failed });
        answer
    }
}

async fn exchange(endpoint: &ServiceEndpoint, query: &str) -> Result<Bytes, String> {
    let stream = TcpStream::connect(&endpoint.host).await.map_err(|error| error.to_string())?;
    let (mut line, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends when the line is dropped.
    tokio::spawn(connection);
    let request = Request::post(&endpoint.path)
        .header(header::HOST, &endpoint.host)
        .header(header::CONTENT_TYPE, "application/sparql-query")
        .header(header::ACCEPT, "application/sparql-results+json")
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::copy_from_slice(query.as_bytes())))
        .map_err(|error| error.to_string())?;
    let response = line.send_request(request).await.map_err(|error| error.to_string())?;
    match response.status() {
        StatusCode::OK => {}
        status if status.is_redirection() => {
            return Err(format!("it answers {status}, and nobody is followed elsewhere"));
        }
        status => return Err(format!("it answers {status}")),
    }
    match Limited::new(response.into_body(), SERVICE_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(format!("its answer has more than {} MiB", SERVICE_BYTES_MAX >> 20))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_address_and_nothing_else() {
        let parsed = ServiceEndpoint::parse("http://lamps.test/sparql").unwrap();
        assert_eq!((parsed.host.as_str(), parsed.path.as_str()), ("lamps.test:80", "/sparql"));
        let parsed = ServiceEndpoint::parse("http://[::1]:7878/sparql?db=a").unwrap();
        assert_eq!((parsed.host.as_str(), parsed.path.as_str()), ("[::1]:7878", "/sparql?db=a"));
        let parsed = ServiceEndpoint::parse("http://127.0.0.1:7878").unwrap();
        assert_eq!((parsed.path.as_str(), parsed.to_string().as_str()), ("/", "http://127.0.0.1:7878"));
        for wrong in [
            "",
            "lamps",
            "https://a/",
            "http://",
            "http://:80/",
            "http://u@a/",
            "http://a:x/",
            "http://a/ b",
            "http://a?x",
            "*",
        ] {
            assert_eq!(ServiceEndpoint::parse(wrong), None, "{wrong}");
        }
    }
}
