//! What goes wrong, as problem JSON (RFC 9457), with the members that SEPA's clients look for beside it.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tidegate_control::hints::Hints;
use tidegate_graph::{GraphError, Limit};

use crate::access_policy::banned;
use crate::limits::DISK_RETRY;
use crate::machine::request::Refused;

/// An answer that is none.
#[derive(Clone, Debug)]
pub(crate) struct SpaceProblem {
    pub(crate) answer: tidegate_http::Problem,
    hints: Option<Box<Hints>>,
}

impl SpaceProblem {
    pub(crate) fn new(status: StatusCode, name: &'static str, detail: impl Into<String>) -> Self {
        tidegate_http::Problem::new(status, name, detail).into()
    }

    /// Nobody is served for this reason at the moment.
    fn unavailable(name: &'static str, detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, name, detail)
    }

    /// The request makes no sense.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        tidegate_http::Problem::usage(detail).into()
    }

    /// Too many wrong ones: the next one is looked at after this time.
    pub(crate) fn wrong_passwords(pause: Duration) -> Self {
        let detail = "too many wrong passwords of this user from this address";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "wrong-passwords", detail).after(pause)
    }

    /// Whoever asks has to stay away.
    pub(crate) fn banned(left: Duration) -> Self {
        Self::new(StatusCode::FORBIDDEN, "banned", banned(left)).after(left)
    }

    /// Its time was over, or nobody waited any more.
    pub(crate) fn is_late(&self) -> bool {
        self.answer.name == "late"
    }

    pub(crate) fn busy(retry_after: Duration) -> Self {
        Self::unavailable("busy", "too much to do at the moment").after(retry_after)
    }

    fn after(self, time: Duration) -> Self {
        Self { answer: self.answer.after(time), ..self }
    }
}

impl From<tidegate_http::Problem> for SpaceProblem {
    fn from(answer: tidegate_http::Problem) -> Self {
        Self { answer, hints: None }
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

impl From<Refused> for SpaceProblem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy(hints) => {
                let after = hints.retry_after.unwrap_or(Duration::from_secs(1));
                Self { hints: Some(hints), ..Self::busy(after) }
            }
            Refused::Limited(after) => Self::new(StatusCode::TOO_MANY_REQUESTS, "limited", LIMITED).after(after),
            Refused::Late => {
                Self::unavailable("late", "not done in time, nothing was changed").after(Duration::from_secs(1))
            }
            Refused::Dropped => Self::unavailable("dropped", "there is too much to do; nothing was changed"),
            Refused::Outdated => Self::new(StatusCode::CONFLICT, "outdated", OUTDATED),
            Refused::Unwritable => {
                Self::unavailable("unwritable", "the disk fails; nothing was changed").after(DISK_RETRY)
            }
            Refused::Unconfirmed => {
                let detail = "the disk fails or hangs; whether the change is stored is not known, it may appear later";
                Self::unavailable("unconfirmed", detail)
            }
            Refused::TooLong => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "answer-too-long", "the answer is too long; use LIMIT")
            }
            Refused::Closing => Self::unavailable("closing", "the broker ends").after(Duration::from_secs(5)),
            Refused::Panicked => {
                let detail = "an internal error, which is logged; nothing was changed";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
            }
            Refused::Unavailable(condition) => {
                Self::unavailable("unavailable", condition.words()).after(condition.retry_after())
            }
            // Its door knows better; this is for those that forgot.
            Refused::Declined(_) => Self::usage("declined"),
            Refused::Failed(error) => error.into(),
        }
    }
}

/// What a KP is told that asks more than an operator allows.
pub(crate) const LIMITED: &str = "more requests than an operator's limit allows; nothing was changed";

/// Why a check is not answered whose asker has asked again.
pub(crate) const OUTDATED: &str = "the same was asked again since, by the same client, which has a newer version";

impl From<GraphError> for SpaceProblem {
    fn from(error: GraphError) -> Self {
        let (status, name) = match &error {
            GraphError::Cancelled => return Refused::Late.into(),
            GraphError::Syntax(_) => (StatusCode::BAD_REQUEST, "not-sparql"),
            GraphError::Forbidden(_) => (StatusCode::FORBIDDEN, "graph-forbidden"),
            GraphError::Refused(_) => (StatusCode::BAD_REQUEST, "not-done-here"),
            GraphError::NotRdf(_) => (StatusCode::BAD_REQUEST, "not-rdf"),
            GraphError::Limit(Limit::DataBytes) => (StatusCode::INSUFFICIENT_STORAGE, "memory-full"),
            GraphError::Limit(_) | GraphError::LimitAt(..) => (StatusCode::PAYLOAD_TOO_LARGE, "limit"),
            GraphError::Unknown => (StatusCode::NOT_FOUND, "unknown"),
            GraphError::Evaluation(_) | GraphError::OutOfStep => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        Self::new(status, name, error.to_string())
    }
}

impl IntoResponse for SpaceProblem {
    fn into_response(self) -> Response {
        let Self { answer, hints } = self;
        let (name, status, detail) = (answer.name, answer.status.as_u16(), answer.detail.clone());
        let answer = answer.member("error", name).member("status_code", status).member("error_description", detail);
        let mut response = answer.into_response();
        if let Some(hints) = hints {
            // What is said in whole milliseconds already stays.
            let mut words = HeaderMap::new();
            announce(&hints, &mut words);
            let said = response.headers_mut();
            words.into_iter().filter_map(|(name, value)| name.zip(Some(value))).for_each(|(name, value)| {
                said.entry(name).or_insert(value);
            });
        }
        response
    }
}
