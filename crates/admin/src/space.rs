//! `/api/v1/space` and `/api/v1/queries`: the smart space as an operator sees it.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use oxrdfio::RdfFormat;
use serde_json::{Value, json};
use sparesults::QueryResultsFormat;
use tidegate_graph::{GraphError, Query, QueryLimits, Update};
use tidegate_space::{
    AnswerSource, Class, DeclinedBy, Form, Refused, RequestOrigin, ResponseBody, SpaceHandle, SpaceRequest,
};

use crate::audit::about;
use crate::body::{self, text};
use crate::limits::QUERY_TIME;
use crate::problem::{Answered, Problem, json_of};
use crate::state::AdminState;
use crate::view;

/// Everybody here may see all of it.
const SCOPE: u64 = 0;

fn handle(state: &AdminState) -> Result<SpaceHandle, Problem> {
    let off = || {
        let detail = "the smart space is off; listeners.http and listeners.ssap are its listeners";
        Problem::new(StatusCode::NOT_FOUND, "space-off", detail)
    };
    state.process.space().ok_or_else(off)
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    let Ok(space) = handle(&state) else { return Ok(json_of(&json!({ "is_on": false }))) };
    let counts = space.counts();
    let sum = |wanted: &[&str]| -> u64 {
        let questions = counts.iter().filter(|(class, ..)| *class == "query" || *class == "advanced-query");
        questions.filter(|(_, outcome, _)| wanted.contains(outcome)).map(|(.., number)| number).sum()
    };
    let (answered, evaluated) = (sum(&["fresh", "shared", "remembered", "partial"]), sum(&["fresh", "partial"]));
    let rows: Vec<Value> = counts
        .iter()
        .map(|(class, outcome, number)| json!({ "class": class, "outcome": outcome, "requests": number }))
        .collect();
    let (running, answer_bytes) = space.load();
    let (standing, notifications) = space.watch().standing();
    let delegation = space.watch().delegated();
    Ok(json_of(&json!({
        "is_on": true,
        "condition": space.condition().name(),
        "panics": space.panics().iter().map(|(_, number)| number).sum::<u64>(),
        "restarts": space.restarts().0,
        "version": space.version(),
        "running": running,
        "is_yielding": space.is_yielding(),
        "answer_bytes": answer_bytes,
        "requests": rows,
        "questions_answered": answered,
        "evaluations": evaluated,
        // Answers for each evaluation; 1 is without any sharing.
        "coalescing_ratio": view::rounded(answered as f64 / evaluated.max(1) as f64),
        "standing_queries": standing,
        "notifications": notifications,
        "delegated_subscriptions": delegation.delegated,
        "delegable_subscriptions": delegation.accepting,
        "delegations": delegation.handed_over,
    })))
}

pub(crate) async fn queries(State(state): State<Arc<AdminState>>) -> Answered {
    let space = handle(&state)?;
    let watch = space.watch();
    let millis = |time: std::time::Duration| view::rounded(time.as_secs_f64() * 1000.0);
    let running: Vec<Value> = watch
        .running()
        .into_iter()
        .map(|it| json!({ "number": it.number, "query": &*it.text, "running_ms": millis(it.time), "waiting": it.waiting }))
        .collect();
    let slow: Vec<Value> = watch
        .slow()
        .into_iter()
        .map(|it| json!({ "query": &*it.text, "took_ms": millis(it.time), "at": view::rfc3339(it.at), "is_cancelled": it.is_cancelled }))
        .collect();
    let standing: Vec<Value> = watch
        .standing_list()
        .into_iter()
        .map(|it| json!({ "number": it.number, "query": &*it.text, "notifications": it.notifications, "age_s": it.age.as_secs() }))
        .collect();
    Ok(json_of(&json!({ "running": running, "slow": slow, "standing": standing })))
}

pub(crate) async fn cancel(State(state): State<Arc<AdminState>>, Path(number): Path<u64>) -> Answered {
    if handle(&state)?.cancel(number) {
        return Ok(json_of(&json!({ "cancelled": number })));
    }
    let detail = "no such query runs; it may have ended";
    Err(Problem::new(StatusCode::NOT_FOUND, "no-such-query", detail))
}

/// A question of an operator, with everybody else's chances and limits.
pub(crate) async fn run(State(state): State<Arc<AdminState>>, request: Request) -> Answered {
    let space = handle(&state)?;
    let (parts, body) = request.into_parts();
    let words = body::words(&parts.headers, body).await?;
    let query = text(&words, "query").ok_or_else(|| Problem::usage("\"query\" is missing"))?;
    let asker = RequestOrigin::new(SCOPE, Some(QUERY_TIME));
    // Read where a text that is too deep or too dear harms nobody.
    let reading = space.read(query.len(), Class::Query, asker, move |limits| match read(&query, limits) {
        Ok((ask, kind)) => (Ok(kind), Ok(ask)),
        Err(GraphError::Cancelled) => (Err(GraphError::Cancelled), Err(Refused::Late)),
        Err(error) => (Err(error), Err(Refused::Declined(DeclinedBy::Mistake))),
    });
    let (answered, kind) = match reading.answer().await {
        (_, Some(Err(error))) => return Err(wrong(&error)),
        (Ok(answered), Some(Ok(kind))) => (answered, kind),
        (Ok(_), None) => return Err(refused(Refused::Closing)),
        (Err(why), _) => return Err(refused(why)),
    };
    let ResponseBody::Bytes(bytes) = answered.answer else { return Err(Problem::busy("there was another answer")) };
    let source = match answered.source {
        AnswerSource::Fresh => "fresh",
        AnswerSource::Shared => "shared",
        AnswerSource::Remembered => "remembered",
        AnswerSource::Partial => "partial",
        AnswerSource::Streamed => "streamed",
    };
    let mut response = bytes.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert("tidegate-source", HeaderValue::from_static(source));
    Ok(response)
}

/// A change by an operator: all of the space is in reach.
pub(crate) async fn update(State(state): State<Arc<AdminState>>, request: Request) -> Answered {
    let space = handle(&state)?;
    let (parts, body) = request.into_parts();
    let words = body::words(&parts.headers, body).await?;
    let update = text(&words, "update").ok_or_else(|| Problem::usage("\"update\" is missing"))?;
    let asker = RequestOrigin::new(SCOPE, Some(QUERY_TIME));
    let reading = space.read(update.len(), Class::Update, asker, move |limits| match Update::parse(&update, limits) {
        Ok(update) => (Ok(()), Ok(SpaceRequest::Update(Box::new(update)))),
        Err(GraphError::Cancelled) => (Err(GraphError::Cancelled), Err(Refused::Late)),
        Err(error) => (Err(error), Err(Refused::Declined(DeclinedBy::Mistake))),
    });
    match reading.answer().await {
        (_, Some(Err(error))) => Err(wrong(&error)),
        (Ok(answered), _) => {
            let is_change = matches!(answered.answer, ResponseBody::Changed { is_change: true, .. });
            Ok(about("the smart space", json_of(&json!({ "changed": is_change, "version": answered.version }))))
        }
        (Err(why), _) => Err(refused(why)),
    }
}

/// What is asked, and the media type of its answer.
fn read(text: &str, limits: &QueryLimits) -> Result<(SpaceRequest, &'static str), GraphError> {
    let query = Box::new(Query::parse(text, limits)?);
    let (form, kind) = if query.is_graph() {
        (Form::Graph(RdfFormat::NTriples), "application/n-triples")
    } else {
        (Form::Results(QueryResultsFormat::Json), "application/sparql-results+json")
    };
    Ok((SpaceRequest::Query { query, form }, kind))
}

fn refused(why: Refused) -> Problem {
    match why {
        Refused::Busy(hints) => {
            let after = hints.retry_after.unwrap_or_default();
            Problem::busy("the smart space is busy").after(after)
        }
        Refused::Limited(after) => Problem::busy("more requests than a limit allows").after(after),
        Refused::Unwritable | Refused::Unconfirmed => Problem::busy("nothing can be stored at the moment"),
        Refused::Late => Problem::busy("not done within its time"),
        Refused::Dropped | Refused::Outdated => Problem::busy("the smart space is busy"),
        Refused::TooLong => {
            let detail = "the answer is too long; use LIMIT";
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "answer-too-long", detail)
        }
        Refused::Closing => Problem::busy("the broker ends"),
        Refused::Unavailable(condition) => Problem::busy(format!("the smart space is {}", condition.name())),
        Refused::Panicked | Refused::Declined(_) => {
            let detail = "an internal error, which is logged";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
        }
        Refused::Failed(error) => wrong(&error),
    }
}

fn wrong(error: &GraphError) -> Problem {
    match error {
        GraphError::Cancelled => Problem::busy("cancelled, or not done within its time"),
        GraphError::Limit(_) | GraphError::LimitAt(..) => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "limit", error.to_string())
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "not-sparql", error.to_string()),
    }
}
