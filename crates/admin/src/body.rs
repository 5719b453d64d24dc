//! The object in a request's body. It has to say that it is JSON: a form of another site cannot (F086).

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value};

use crate::limits::BODY_BYTES_MAX;
use crate::problem::Problem;

pub(crate) type Words = Map<String, Value>;

/// The object in a body that is still to be read.
pub(crate) async fn words(headers: &HeaderMap, body: Body) -> Result<Words, Problem> {
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let detail = format!("the body has more than {BODY_BYTES_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
    })?;
    words_in(headers, &bytes)
}

/// The object in a body.
pub(crate) fn words_in(headers: &HeaderMap, body: &Bytes) -> Result<Words, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let detail = "Content-Type must be application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(words)) => Ok(words),
        _ => Err(Problem::usage("the body must be a JSON object")),
    }
}

pub(crate) fn text(words: &Words, name: &str) -> Option<String> {
    words.get(name).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f086_a_body_says_that_it_is_json() {
        let read = |kind: &'static str, body: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            words_in(&headers, &Bytes::from_static(body.as_bytes())).is_ok()
        };
        assert!(read("application/json", "{}") && read("Application/JSON; charset=utf-8", "{\"a\":1}"));
        for (kind, body) in [
            ("text/plain", "{}"),
            ("application/x-www-form-urlencoded", "{}"),
            ("application/json", "[]"),
            ("application/json", "{"),
        ] {
            assert!(!read(kind, body), "{kind} {body}");
        }
    }
}
