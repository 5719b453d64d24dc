//! What goes wrong, as problem JSON (RFC 9457): a stable type, a title for people, and what to do next.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An answer that is none.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// The last part of the type, which does not change.
    name: &'static str,
    detail: String,
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, name: &'static str, detail: impl Into<String>) -> Self {
        Self { status, name, detail: detail.into(), retry_after: None }
    }

    /// The same, and after how many seconds it is worth another try.
    pub(crate) fn after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The request makes no sense.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    pub(crate) fn no_client(client_id: &str) -> Self {
        let detail = format!("no client {client_id:?} is connected, and no session of it is kept");
        Self::new(StatusCode::NOT_FOUND, "no-such-client", detail)
    }

    /// Too much at once.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let body = json!({
            "type": format!("urn:tidegate:problem:{}", self.name),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = text(self.status, "application/problem+json", body.to_string());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let ask = HeaderValue::from_static("Basic realm=\"tidegate\", charset=\"UTF-8\"");
            headers.insert(header::WWW_AUTHENTICATE, ask);
        }
        response
    }
}

/// What a handler answers.
pub(crate) type Answered = Result<Response, Problem>;

/// JSON.
pub(crate) fn json_of(value: &Value) -> Response {
    text(StatusCode::OK, "application/json", value.to_string())
}

/// Any text.
pub(crate) fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
}
