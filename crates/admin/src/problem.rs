//! Problems that only the admin API has, and what its handlers answer.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
pub(crate) use tidegate_http::{Problem, text};

pub(crate) fn no_client(client_id: &str) -> Problem {
    let detail = format!("no client {client_id:?} is connected, and no session of it is kept");
    Problem::new(StatusCode::NOT_FOUND, "no-such-client", detail)
}

/// What a handler answers.
pub(crate) type Answered = Result<Response, Problem>;

/// JSON.
pub(crate) fn json_of(value: &Value) -> Response {
    text(StatusCode::OK, "application/json", value.to_string())
}
