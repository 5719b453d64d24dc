//! What goes wrong, as problem JSON (RFC 9457), with the members that SEPA's clients look for beside it.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidegate_control::hints::Hints;
use tidegate_graph::GraphError;

use crate::limits::DISK_RETRY;
use crate::machine::request::Refused;

/// What a client is told while nobody is served.
pub(crate) const UNAVAILABLE: &str = "the smart space has failed; it begins anew from what is kept, or was given up";

/// An answer that is none.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The last part of the type, which does not change.
    pub(crate) name: &'static str,
    pub(crate) detail: String,
    retry_after: Option<Duration>,
    hints: Option<Box<Hints>>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, name: &'static str, detail: impl Into<String>) -> Self {
        Self { status, name, detail: detail.into(), retry_after: None, hints: None }
    }

    /// The request makes no sense.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// Too many wrong ones: the next one is looked at after this time.
    pub(crate) fn wrong_passwords(pause: Duration) -> Self {
        let detail = "too many wrong passwords of this user from this address";
        Self { retry_after: Some(pause), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "wrong-passwords", detail) }
    }

    /// Its time was over, or nobody waited any more.
    pub(crate) fn is_late(&self) -> bool {
        self.name == "late"
    }

    pub(crate) fn busy(retry_after: Duration) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too much to do at the moment");
        Self { retry_after: Some(retry_after), ..problem }
    }
}

/// Writes what a client is told about pace.
pub(crate) fn announce(hints: &Hints, headers: &mut HeaderMap) {
    hints.write(|name, text| {
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.insert(name, text);
        }
    });
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy(hints) => {
                let after = hints.retry_after.unwrap_or(Duration::from_secs(1));
                Self { hints: Some(hints), ..Self::busy(after) }
            }
            Refused::Late => {
                let detail = "not done in time, nothing was changed";
                Self {
                    retry_after: Some(Duration::from_secs(1)),
                    ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "late", detail)
                }
            }
            Refused::Unwritable => Self {
                retry_after: Some(DISK_RETRY),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unwritable", "the disk fails; nothing was changed")
            },
            Refused::Unconfirmed => {
                let detail = "the disk fails or hangs; whether the change is stored is not known, it may appear later";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unconfirmed", detail)
            }
            Refused::TooLong => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "answer-too-long", "the answer is too long; use LIMIT")
            }
            Refused::Closing => Self {
                retry_after: Some(Duration::from_secs(5)),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "closing", "the broker ends")
            },
            Refused::Panicked => {
                let detail = "an internal error, which is logged; nothing was changed";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
            }
            Refused::Unavailable(condition) => Self {
                retry_after: Some(condition.retry_after()),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", UNAVAILABLE)
            },
            // Its door knows better; this is for those that forgot.
            Refused::Declined => Self::usage("declined"),
            Refused::Failed(error) => error.into(),
        }
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Self {
        let (status, name) = match &error {
            GraphError::Cancelled => return Refused::Late.into(),
            GraphError::Syntax(_) => (StatusCode::BAD_REQUEST, "not-sparql"),
            GraphError::Refused(_) => (StatusCode::BAD_REQUEST, "not-done-here"),
            GraphError::NotRdf(_) => (StatusCode::BAD_REQUEST, "not-rdf"),
            GraphError::Limit(_) | GraphError::LimitAt(..) => (StatusCode::PAYLOAD_TOO_LARGE, "limit"),
            GraphError::Unknown => (StatusCode::NOT_FOUND, "unknown"),
            GraphError::Evaluation(_) | GraphError::OutOfStep => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        Self::new(status, name, error.to_string())
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
            "error": self.name,
            "status_code": self.status.as_u16(),
            "error_description": self.detail,
        });
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
        let mut response = (self.status, kind, body.to_string()).into_response();
        let headers = response.headers_mut();
        if let Some(hints) = self.hints {
            announce(&hints, headers);
        }
        if let Some(after) = self.retry_after {
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
            // Whole seconds is all that the standard has; the exact time is beside it.
            headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            headers.insert("pace-retry-after-ms", HeaderValue::from(millis));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let ask = HeaderValue::from_static("Basic realm=\"tidegate\", charset=\"UTF-8\"");
            headers.insert(header::WWW_AUTHENTICATE, ask);
        }
        response
    }
}
