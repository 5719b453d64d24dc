//! Responses: a status with its words, headers, and a body that says why as problem JSON (RFC 9457), as the other doors over
//! HTTP do.

use core::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::ReasonCode;

use crate::head::{Fault, Head, Method};
use crate::json::put_text;
use crate::limits::RETRY;

/// How the asker wants its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Only the head of it.
    pub(crate) is_head: bool,
    pub(crate) is_keep_alive: bool,
    /// The page that may read it.
    pub(crate) origin: Option<Box<str>>,
}

impl Manner {
    pub(crate) fn of(head: &Head) -> Self {
        let origin = head.origin.as_deref().map(Box::from);
        Self { is_head: head.method == Method::Head, is_keep_alive: head.is_keep_alive, origin }
    }

    /// The last answer of its connection, to who knows whom.
    pub(crate) fn last() -> Self {
        Self::default()
    }
}

/// What is answered.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), content_type: "", body: &[] }
    }
}

/// Appends a response.
pub(crate) fn put(answer: &Answer<'_>, manner: &Manner, out: &mut Vec<u8>) {
    let mut text = format!("HTTP/1.1 {} {}\r\n", answer.status, phrase(answer.status));
    let mut field = |name: &str, value: &str| {
        text.push_str(name);
        text.push_str(": ");
        text.push_str(value);
        text.push_str("\r\n");
    };
    if !answer.content_type.is_empty() {
        field("content-type", answer.content_type);
    }
    // RFC 9110, section 8.6: 204 and 304 have no body, and no length of one.
    if !matches!(answer.status, 204 | 304) {
        field("content-length", &answer.body.len().to_string());
    }
    for (name, value) in &answer.headers {
        field(name, value);
    }
    field("cache-control", "no-cache");
    put_page(manner, &mut field);
    if !manner.is_keep_alive {
        field("connection", "close");
    }
    text.push_str("\r\n");
    out.extend_from_slice(text.as_bytes());
    if !manner.is_head && !matches!(answer.status, 204 | 304) {
        out.extend_from_slice(answer.body);
    }
}

/// Appends what comes before the events of a stream.
pub(crate) fn put_stream(manner: &Manner, out: &mut Vec<u8>) {
    let mut text = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n".to_owned();
    // Its end is the end of the connection. A proxy is not to collect it.
    text.push_str("connection: close\r\nx-accel-buffering: no\r\n");
    let mut field = |name: &str, value: &str| text.extend([name, ": ", value, "\r\n"]);
    put_page(manner, &mut field);
    text.extend(["\r\nretry: ", &RETRY.as_millis().to_string(), "\n"]);
    out.extend_from_slice(text.as_bytes());
}

/// The page that asked may read it, and what it says about pace.
fn put_page(manner: &Manner, field: &mut impl FnMut(&str, &str)) {
    if let Some(origin) = &manner.origin {
        field("access-control-allow-origin", origin);
        field("access-control-expose-headers", "etag, retry-after, pace-retry-after-ms, pace-interval-ms");
        field("vary", "origin");
    }
}

/// A page asks what it may ask: no user, no cookie, what this door understands.
pub(crate) fn preflight(manner: &Manner, out: &mut Vec<u8>) {
    let headers = vec![
        ("access-control-allow-methods", "GET, HEAD, POST, PUT, DELETE".to_owned()),
        ("access-control-allow-headers", "authorization, content-type, if-none-match, last-event-id".to_owned()),
        ("access-control-max-age", "600".to_owned()),
        ("allow", ALLOW.to_owned()),
    ];
    put(&Answer { headers, ..Answer::empty(204) }, manner, out);
}

/// What can be done with a topic.
pub(crate) const ALLOW: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// When something may be tried again, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) interval: Option<Duration>,
}

/// Appends an answer that is none.
pub(crate) fn put_problem(status: u16, detail: &str, pace: Pace, manner: &Manner, out: &mut Vec<u8>) {
    let mut body = format!(
        "{{\"type\":\"urn:tidegate:problem:{}\",\"title\":\"{}\",\"status\":{status},\"detail\":",
        name(status),
        phrase(status)
    )
    .into_bytes();
    put_text(detail, &mut body);
    body.extend_from_slice(b"}\n");
    let mut headers = Vec::new();
    if let Some(time) = pace.retry_after {
        // Whole seconds, rounded up, is all that the standard has; the exact time is beside it.
        let millis = time.as_millis().max(1);
        headers.push(("retry-after", millis.div_ceil(1000).to_string()));
    }
    let hints = Hints { retry_after: pace.retry_after, interval: pace.interval, ..Hints::default() };
    hints.write(|name, text| headers.push((name, text)));
    match status {
        401 => headers.push(("www-authenticate", "Basic realm=\"tidegate\", charset=\"UTF-8\", Bearer".to_owned())),
        405 => headers.push(("allow", ALLOW.to_owned())),
        _ => {}
    }
    let answer = Answer { status, headers, content_type: "application/problem+json", body: &body };
    put(&answer, manner, out);
}

pub(crate) fn put_fault(fault: Fault, manner: &Manner, out: &mut Vec<u8>) {
    put_problem(fault.status, fault.why, Pace::default(), manner, out);
}

/// The last words to somebody who is not let in, for this reason; `origin` is the page that may read them.
pub fn refusal(reason: ReasonCode, words: &str, retry_after: Option<Duration>, origin: Option<&str>) -> Vec<u8> {
    let status = match reason {
        ReasonCode::BadUserNameOrPassword | ReasonCode::BadAuthenticationMethod => 401,
        ReasonCode::NotAuthorized | ReasonCode::Banned | ReasonCode::ClientIdentifierNotValid => 403,
        ReasonCode::ConnectionRateExceeded => 429,
        _ => 503,
    };
    let retry_after = retry_after.or((status == 503).then_some(crate::limits::BUSY));
    let (mut out, manner) = (Vec::new(), Manner { origin: origin.map(Box::from), ..Manner::last() });
    put_problem(status, words, Pace { retry_after, interval: None }, &manner, &mut out);
    out
}

/// Why something is not done, as a status.
pub(crate) fn status_of(reason: ReasonCode) -> u16 {
    match reason {
        ReasonCode::NotAuthorized => 403,
        ReasonCode::PacketTooLarge => 413,
        ReasonCode::QuotaExceeded => 507,
        ReasonCode::ServerBusy | ReasonCode::ServerUnavailable => 503,
        _ => 400,
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Answer",
    }
}

/// What does not change of a problem's type.
fn name(status: u16) -> &'static str {
    match status {
        401 => "who-are-you",
        403 => "not-allowed",
        404 => "no-such-place",
        405 => "no-such-method",
        408 => "too-slow",
        413 | 431 => "too-large",
        429 => "too-fast",
        503 => "busy",
        507 => "retained-full",
        _ => "bad-request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_back_in_whole_seconds_and_exactly() {
        let pace = Pace { retry_after: Some(Duration::from_millis(1200)), interval: Some(Duration::from_secs(10)) };
        let mut out = Vec::new();
        put_problem(
            429,
            "publishing \"too\" fast",
            pace,
            &Manner { is_keep_alive: true, ..Manner::default() },
            &mut out,
        );
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{text}");
        for part in
            ["retry-after: 2\r\n", "pace-retry-after-ms: 1200\r\n", "pace-interval-ms: 10000\r\n", "\\\"too\\\""]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("connection: close"), "{text}");
    }

    #[test]
    fn no_content_has_no_length_and_a_head_no_body() {
        let mut out = Vec::new();
        put(&Answer::empty(204), &Manner::last(), &mut out);
        assert!(!String::from_utf8(out.clone()).unwrap().contains("content-length"));
        out.clear();
        let manner = Manner { is_head: true, ..Manner::last() };
        put(&Answer { content_type: "text/plain", body: b"21", ..Answer::empty(200) }, &manner, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("content-length: 2\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }

    #[test]
    fn who_is_not_known_is_asked_for_a_password_and_the_page_may_read_it() {
        let text = |reason| String::from_utf8(refusal(reason, "no", None, Some("http://page"))).unwrap();
        let unknown = text(ReasonCode::BadUserNameOrPassword);
        assert!(
            unknown.contains("www-authenticate: Basic") && unknown.contains("access-control-allow-origin: http://page")
        );
        assert!(text(ReasonCode::Banned).starts_with("HTTP/1.1 403 "));
        assert!(text(ReasonCode::ServerBusy).contains("retry-after: 1\r\n"));
    }
}
