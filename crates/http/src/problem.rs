//! What goes wrong, as problem JSON (RFC 9457): a stable type, a title for people, what to do next, and when.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

/// An answer that is none.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The code of the answer.
    pub status: StatusCode,
    /// The last part of the type, which does not change.
    pub name: &'static str,
    /// For people.
    pub detail: String,
    retry_after: Option<Duration>,
    more: Option<Box<ProblemExtras>>,
}

/// What only some problems have.
#[derive(Clone, Debug, Default)]
struct ProblemExtras {
    headers: HeaderMap,
    members: Map<String, Value>,
}

impl Problem {
    /// A problem with its stable name and words for people.
    pub fn new(status: StatusCode, name: &'static str, detail: impl Into<String>) -> Self {
        Self { status, name, detail: detail.into(), retry_after: None, more: None }
    }

    /// The request makes no sense.
    pub fn usage(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// Too much at once: worth another try in a second, unless somebody knows better ([`Problem::after`]).
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).after(Duration::from_secs(1))
    }

    /// The same, and after how long it is worth another try.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self { retry_after: Some(time), ..self }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.more.get_or_insert_default().headers.insert(name, value);
        self
    }

    /// The same with one more member of the JSON.
    #[must_use]
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.get_or_insert_default().members.insert(name.to_owned(), value.into());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ProblemExtras { headers, mut members } = self.more.map(|more| *more).unwrap_or_default();
        let title = self.status.canonical_reason().unwrap_or("Problem");
        members.insert("type".to_owned(), format!("urn:tidegate:problem:{}", self.name).into());
        members.insert("title".to_owned(), title.into());
        members.insert("status".to_owned(), self.status.as_u16().into());
        members.insert("detail".to_owned(), self.detail.into());
        let mut response = text(self.status, "application/problem+json", Value::Object(members).to_string());
        let words = response.headers_mut();
        words.extend(headers);
        if let Some(after) = self.retry_after {
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
            // Whole seconds is all that the standard has; the exact time is beside it.
            words.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            words.insert("pace-retry-after-ms", HeaderValue::from(millis));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let ask = HeaderValue::from_static("Basic realm=\"tidegate\", charset=\"UTF-8\"");
            words.insert(header::WWW_AUTHENTICATE, ask);
        }
        response
    }
}

/// Any text.
pub fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_when_to_come_back_in_whole_seconds_and_exactly() {
        let problem = Problem::busy("too much to do").after(Duration::from_millis(1200));
        let response = problem.header(HeaderName::from_static("pace-stretch"), HeaderValue::from_static("2"));
        let response = response.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()["pace-retry-after-ms"], "1200");
        assert_eq!(response.headers()["pace-stretch"], "2");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert!(!response.headers().contains_key(header::WWW_AUTHENTICATE));
    }

    #[test]
    fn who_is_not_known_is_asked_for_a_password() {
        let response = Problem::new(StatusCode::UNAUTHORIZED, "who-are-you", "a password is needed").into_response();
        assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
    }
}
