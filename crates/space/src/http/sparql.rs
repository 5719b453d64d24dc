//! `/query`, `/update` and `/sparql`: the SPARQL 1.1 Protocol.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_graph::{Query, QueryLimits, Update};

use super::body::{Parameters, content_type};
use super::problem::{Problem, announce};
use super::{Door, asker, asks, method_not_allowed, negotiate, parse, read_body, value};
use crate::ask::{Answer, Answered, Ask, Form, Source};

/// What a place takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Queries,
    Updates,
    Both,
}

/// What came.
enum Came {
    Query(String),
    Update(String),
}

pub(super) async fn query(State(door): State<Arc<Door>>, request: Request<Body>) -> Result<Response, Problem> {
    serve(&door, request, Takes::Queries).await
}

pub(super) async fn update(State(door): State<Arc<Door>>, request: Request<Body>) -> Result<Response, Problem> {
    serve(&door, request, Takes::Updates).await
}

pub(super) async fn either(State(door): State<Arc<Door>>, request: Request<Body>) -> Result<Response, Problem> {
    serve(&door, request, Takes::Both).await
}

async fn serve(door: &Door, request: Request<Body>, takes: Takes) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let mut parameters = Parameters::read(head.uri.query().unwrap_or_default().as_bytes());
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let came = match head.method {
        Method::GET | Method::HEAD if takes == Takes::Updates => return Ok(method_not_allowed("POST")),
        Method::GET | Method::HEAD => {
            if parameters.has("update") {
                return Err(Problem::usage("an update is sent with POST"));
            }
            let text = parameters.take("query")?;
            Came::Query(text.ok_or_else(|| Problem::usage("the parameter query is missing"))?)
        }
        Method::POST => posted(&head, body, &mut parameters, takes).await?,
        _ => return Ok(method_not_allowed("GET, HEAD, POST")),
    };
    match came {
        Came::Query(text) => ask(door, text, &parameters, &head, is_read).await,
        Came::Update(text) => change(door, text, &parameters, &head).await,
    }
}

async fn posted(head: &Parts, body: Body, parameters: &mut Parameters, takes: Takes) -> Result<Came, Problem> {
    let kind = content_type(&head.headers);
    let bytes = read_body(body).await?;
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| Problem::usage("the body is not UTF-8"))?;
        Ok::<_, Problem>(text.to_owned())
    };
    match kind.as_str() {
        "application/sparql-query" if takes != Takes::Updates => Ok(Came::Query(text(&bytes)?)),
        "application/sparql-update" if takes != Takes::Queries => Ok(Came::Update(text(&bytes)?)),
        "application/x-www-form-urlencoded" => {
            *parameters = Parameters::read(&bytes);
            let query = if takes == Takes::Updates { None } else { parameters.take("query")? };
            let update = if takes == Takes::Queries { None } else { parameters.take("update")? };
            match (query, update) {
                (Some(query), None) => Ok(Came::Query(query)),
                (None, Some(update)) => Ok(Came::Update(update)),
                (Some(_), Some(_)) => Err(Problem::usage("a query and an update at once")),
                (None, None) => Err(Problem::usage("the form has no query or update for this place")),
            }
        }
        kind => {
            let detail = format!(
                "Content-Type {kind:?}: send application/sparql-query, application/sparql-update or \
                 application/x-www-form-urlencoded, as this place takes it"
            );
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail))
        }
    }
}

async fn ask(
    door: &Door,
    text: String,
    parameters: &Parameters,
    head: &Parts,
    is_read: bool,
) -> Result<Response, Problem> {
    let (default, named) = (parameters.graphs("default-graph-uri")?, parameters.graphs("named-graph-uri")?);
    let (headers, asker) = (&head.headers, asker(door, parameters, head)?);
    let query = parse(text.len(), move || {
        let query = Query::parse(&text, &QueryLimits::default())?;
        Ok(if default.is_empty() && named.is_empty() { query } else { query.on_graphs(default, named) })
    })
    .await?;
    let form = if query.is_graph() { negotiate::graph(headers, false)? } else { negotiate::results(headers)? };
    let is_repeatable = query.is_repeatable();
    // The same data give the same answer: whoever has it already is told so without any work.
    let seen = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let version = door.handle.version();
    let now = door.handle.version_name(version);
    let is_named = is_read && seen.is_some_and(|seen| seen.split(',').any(|seen| seen.trim() == now));
    if is_repeatable && (is_named || asks(headers).version == Some(version)) {
        return Ok(not_modified(door, version));
    }
    let answered = door.handle.ask(Ask::Query { query: Box::new(query), form }, asker).await?;
    Ok(respond(door, answered, form, is_repeatable))
}

/// Whoever asks has the answer already.
pub(super) fn not_modified(door: &Door, version: u64) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    response.headers_mut().insert(header::ETAG, value(&door.handle.version_name(version)));
    response.headers_mut().insert("pace-version", HeaderValue::from(version));
    response
}

/// An answer with what is known about it.
pub(super) fn respond(door: &Door, answered: Answered, form: Form, is_repeatable: bool) -> Response {
    let Answer::Bytes(bytes) = answered.answer else { return StatusCode::NO_CONTENT.into_response() };
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(negotiate::media_type(form)));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if is_repeatable {
        headers.insert(header::ETAG, value(&door.handle.version_name(answered.version)));
        headers.insert("pace-version", HeaderValue::from(answered.version));
    }
    announce(&answered.hints, headers);
    let queued = answered.hints.queued.unwrap_or_default().as_secs_f64() * 1000.0;
    let how = match answered.source {
        Source::Fresh => "",
        Source::Shared => ", coalesced",
        Source::Remembered => ", cached",
    };
    headers.insert("server-timing", value(&format!("queue;dur={queued:.3}{how}")));
    response
}

async fn change(door: &Door, text: String, parameters: &Parameters, head: &Parts) -> Result<Response, Problem> {
    let (default, named) = (parameters.graphs("using-graph-uri")?, parameters.graphs("using-named-graph-uri")?);
    let asker = asker(door, parameters, head)?;
    let update = parse(text.len(), move || {
        let update = Update::parse(&text, &QueryLimits::default())?;
        let is_plain = default.is_empty() && named.is_empty();
        Ok(if is_plain { update } else { update.using_graphs(&default, &named) })
    })
    .await?;
    let answered = door.handle.ask(Ask::Update(Box::new(update)), asker).await?;
    let is_change = matches!(answered.answer, Answer::Changed { is_change: true, .. });
    // 200 and not 204: clients of SEPA take nothing else for success.
    let body = serde_json::json!({"changed": is_change, "version": answered.version});
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (kind, body.to_string()).into_response();
    announce(&answered.hints, response.headers_mut());
    Ok(response)
}
