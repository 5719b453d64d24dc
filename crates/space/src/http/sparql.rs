//! `/query`, `/update` and `/sparql`: the SPARQL 1.1 Protocol.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use oxrdf::NamedNode;
use tidegate_control::admission::Class;
use tidegate_graph::{FederatedQuery, GraphError, Query, QueryLimits, QueryRefusal, Update};
use tokio::time::Instant;

use super::body::{Parameters, content_type};
use super::guard::AskerRights;
use super::problem::{SpaceProblem, announce};
use super::{HttpState, Whole, ask_text, asker, asks, federation, method_not_allowed, negotiate, read_body, value};
use crate::answer_stream::AnswerStream;
use crate::handle::SpaceHandle;
use crate::machine::request::{AnswerSource, DeclinedBy, Form, Refused, RequestOrigin, ResponseBody, SpaceResponse};
use crate::notifications::SpaceRequest;

/// The operations that a path takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathOperations {
    Queries,
    Updates,
    Both,
}

/// The operation that a request asks for.
enum SparqlOperation {
    Query(String),
    Update(String),
}

pub(super) async fn query(
    State(door): State<Arc<HttpState>>,
    request: Request<Body>,
) -> Result<Response, SpaceProblem> {
    serve(&door, request, PathOperations::Queries).await
}

pub(super) async fn update(
    State(door): State<Arc<HttpState>>,
    request: Request<Body>,
) -> Result<Response, SpaceProblem> {
    serve(&door, request, PathOperations::Updates).await
}

pub(super) async fn either(
    State(door): State<Arc<HttpState>>,
    request: Request<Body>,
) -> Result<Response, SpaceProblem> {
    serve(&door, request, PathOperations::Both).await
}

async fn serve(door: &HttpState, request: Request<Body>, takes: PathOperations) -> Result<Response, SpaceProblem> {
    let (head, body) = request.into_parts();
    let mut parameters = Parameters::read(head.uri.query().unwrap_or_default().as_bytes());
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let came = match head.method {
        Method::GET | Method::HEAD if takes == PathOperations::Updates => return Ok(method_not_allowed("POST")),
        Method::GET | Method::HEAD => {
            if parameters.has("update") {
                return Err(SpaceProblem::usage("an update is sent with POST"));
            }
            let text = parameters.take("query")?;
            SparqlOperation::Query(text.ok_or_else(|| SpaceProblem::usage("the parameter query is missing"))?)
        }
        Method::POST => posted(door, (&head, body), &mut parameters, takes).await?,
        _ => return Ok(method_not_allowed("GET, HEAD, POST")),
    };
    match came {
        SparqlOperation::Query(text) => ask(door, text, &parameters, head, is_read).await,
        SparqlOperation::Update(text) => change(door, text, &parameters, &head).await,
    }
}

async fn posted(
    door: &HttpState,
    (head, body): (&Parts, Body),
    parameters: &mut Parameters,
    takes: PathOperations,
) -> Result<SparqlOperation, SpaceProblem> {
    let kind = content_type(&head.headers);
    let Whole { bytes, .. } = read_body(door, body).await?;
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| SpaceProblem::usage("the body is not UTF-8"))?;
        Ok::<_, SpaceProblem>(text.to_owned())
    };
    match kind.as_str() {
        "application/sparql-query" if takes != PathOperations::Updates => Ok(SparqlOperation::Query(text(&bytes)?)),
        "application/sparql-update" if takes != PathOperations::Queries => Ok(SparqlOperation::Update(text(&bytes)?)),
        "application/x-www-form-urlencoded" => {
            *parameters = Parameters::read(&bytes);
            let query = if takes == PathOperations::Updates { None } else { parameters.take("query")? };
            let update = if takes == PathOperations::Queries { None } else { parameters.take("update")? };
            match (query, update) {
                (Some(query), None) => Ok(SparqlOperation::Query(query)),
                (None, Some(update)) => Ok(SparqlOperation::Update(update)),
                (Some(_), Some(_)) => Err(SpaceProblem::usage("a query and an update at once")),
                (None, None) => Err(SpaceProblem::usage("the form has no query or update for this place")),
            }
        }
        kind => {
            let detail = format!(
                "Content-Type {kind:?}: send application/sparql-query, application/sparql-update or \
                 application/x-www-form-urlencoded, as this place takes it"
            );
            Err(SpaceProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail))
        }
    }
}

/// What is to be known when a query is answered, or why it was not asked.
enum QueryNote {
    Asked(Form, bool),
    Unchanged(u64, Form),
    /// Other endpoints have to be asked before, and then these graphs.
    Federated(Box<FederatedNote>),
    Wrong(SpaceProblem),
}

struct FederatedNote {
    query: FederatedQuery,
    terms: QueryTerms,
}

/// What goes with the text of a query.
struct QueryTerms {
    default: Vec<NamedNode>,
    named: Vec<NamedNode>,
    headers: HeaderMap,
}

impl QueryTerms {
    /// The query on its graphs, and how its answer is written.
    fn apply(&mut self, query: Query) -> Result<(Query, Form), SpaceProblem> {
        let (default, named) = (std::mem::take(&mut self.default), std::mem::take(&mut self.named));
        let is_plain = default.is_empty() && named.is_empty();
        let query = if is_plain { query } else { query.on_graphs(default, named) };
        let headers = &self.headers;
        let form = if query.is_graph() { negotiate::graph(headers, false) } else { negotiate::results(headers) };
        Ok((query, form?))
    }
}

async fn ask(
    door: &HttpState,
    text: String,
    parameters: &Parameters,
    head: Parts,
    is_read: bool,
) -> Result<Response, SpaceProblem> {
    let (default, named) = (parameters.graphs("default-graph-uri")?, parameters.graphs("named-graph-uri")?);
    let asker = RequestOrigin { accepts_partial: accepts_partial(parameters)?, ..asker(door, parameters, &head)? };
    let asked = AskerRights::handle(door, &head);
    let (bytes, handle, began) = (text.len(), asked.clone(), Instant::now());
    let mut terms = QueryTerms { default, named, headers: head.headers };
    let work = move |limits: &QueryLimits| {
        let wrong = |problem| (QueryNote::Wrong(problem), Err(Refused::Declined(DeclinedBy::Mistake)));
        let query = match Query::parse(&text, limits) {
            Ok(query) => query,
            Err(GraphError::Cancelled) => return (QueryNote::Wrong(Refused::Late.into()), Err(Refused::Late)),
            Err(GraphError::Refused(QueryRefusal::Service)) if handle.has_services() => {
                return match FederatedQuery::parse(&text, limits) {
                    Ok(query) => {
                        let note = Box::new(FederatedNote { query, terms });
                        (QueryNote::Federated(note), Err(Refused::Declined(DeclinedBy::Others)))
                    }
                    Err(error) => wrong(error.into()),
                };
            }
            Err(GraphError::Syntax(_)) if Update::parse(&text, limits).is_ok() => {
                let detail = "this is an update: send it to /update";
                return wrong(SpaceProblem::new(StatusCode::BAD_REQUEST, "not-sparql", detail));
            }
            Err(error) => return wrong(error.into()),
        };
        let (query, form) = match terms.apply(query) {
            Ok(applied) => applied,
            Err(problem) => return wrong(problem),
        };
        let is_repeatable = query.is_repeatable();
        let ask = SpaceRequest::Query { query: Box::new(query), form };
        let unchanged = |seen: &u64| handle.unchanged_at(&ask, Some(*seen));
        if let Some(version) = seen(&handle, &terms.headers, form, is_read).iter().find_map(unchanged) {
            return (QueryNote::Unchanged(version, form), Err(Refused::Declined(DeclinedBy::NoNeed)));
        }
        (QueryNote::Asked(form, is_repeatable), Ok(ask))
    };
    match asked.read(bytes, Class::Query, asker, work).answer().await {
        (_, Some(QueryNote::Wrong(problem))) => Err(problem),
        (_, Some(QueryNote::Unchanged(version, form))) => Ok(not_modified(&asked, version, Some(form))),
        (_, Some(QueryNote::Federated(note))) => ask_others(&asked, *note, asker, began).await,
        (Ok(answered), Some(QueryNote::Asked(form, is_repeatable))) => {
            Ok(respond(&asked, answered, form, is_repeatable))
        }
        (Ok(_), None) => Err(Refused::Closing.into()),
        (Err(refused), _) => Err(refused.into()),
    }
}

/// A query with `SERVICE`: other endpoints are asked first. All of it within the time of the request.
async fn ask_others(
    asked: &SpaceHandle,
    note: FederatedNote,
    asker: RequestOrigin,
    began: Instant,
) -> Result<Response, SpaceProblem> {
    let FederatedNote { query, mut terms } = note;
    let until = began + asker.patience;
    let answered = federation::call(asked, query, until).await?;
    let asker = RequestOrigin { patience: until.saturating_duration_since(Instant::now()), ..asker };
    let bytes = answered.bytes();
    let work = move |limits: &QueryLimits| {
        let (query, form) = terms.apply(answered.query(limits)?)?;
        Ok((SpaceRequest::Query { query: Box::new(query), form }, form))
    };
    let (answered, form) = ask_text(asked, (bytes, Class::Query, asker), work).await?;
    // What others say may be another thing the next time.
    Ok(respond(asked, answered, form, false))
}

/// Whether a part of the answer is taken for it: only whoever says so gets one.
fn accepts_partial(parameters: &Parameters) -> Result<bool, SpaceProblem> {
    match parameters.one("partial")? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(SpaceProblem::usage(format!("partial={other:?}: true or false"))),
    }
}

/// The versions that its client says it has seen, by name only those in this form. The same data give the same answer: whoever
/// has it already is told so without any work.
fn seen(handle: &SpaceHandle, headers: &HeaderMap, form: Form, is_read: bool) -> Vec<u64> {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter().filter(|_| is_read);
    let names = lists.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).take(SEEN_MAX);
    let form = negotiate::form_name(form);
    // A number does not say with which rights it was seen.
    let number = asks(headers).version.filter(|_| !handle.is_restricted());
    names.filter_map(|name| handle.version_of_name(name.trim(), form)).chain(number).collect()
}

/// Versions that a client may say it has seen, in one request.
const SEEN_MAX: usize = 16;

/// Whoever asks has the answer already; what has no form has no tag.
pub(super) fn not_modified(handle: &SpaceHandle, version: u64, form: Option<Form>) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    if let Some(form) = form {
        let tag = handle.version_name(version, negotiate::form_name(form));
        response.headers_mut().insert(header::ETAG, value(&tag));
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    }
    response.headers_mut().insert("pace-version", HeaderValue::from(version));
    response
}

/// An answer with what is known about it.
pub(super) fn respond(handle: &SpaceHandle, answered: SpaceResponse, form: Form, is_repeatable: bool) -> Response {
    let mut response = match answered.answer {
        ResponseBody::Bytes(bytes) => bytes.into_response(),
        ResponseBody::Stream(stream) => streamed(stream),
        _ => return StatusCode::NO_CONTENT.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(negotiate::media_type(form)));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if answered.source == AnswerSource::Partial {
        headers.insert("pace-partial", HeaderValue::from_static("true"));
    } else if is_repeatable {
        let tag = handle.version_name(answered.version, negotiate::form_name(form));
        headers.insert(header::ETAG, value(&tag));
        if !handle.is_restricted() {
            headers.insert("pace-version", HeaderValue::from(answered.version));
        }
    }
    announce(&answered.hints, headers);
    let queued = answered.hints.queued.unwrap_or_default().as_secs_f64() * 1000.0;
    let how = match answered.source {
        AnswerSource::Fresh => "",
        AnswerSource::Shared => ", coalesced",
        AnswerSource::Remembered => ", cached",
        AnswerSource::Partial => ", partial",
        AnswerSource::Streamed => ", streamed",
    };
    headers.insert("server-timing", value(&format!("queue;dur={queued:.3}{how}")));
    response
}

/// A body that is sent while it is made. If that fails in the middle it is broken off, without the end that a body in chunks has.
fn streamed(stream: AnswerStream) -> Response {
    let pieces = futures_util::stream::unfold(stream, |stream| async move {
        let piece = stream.next().await?;
        Some((piece, stream))
    });
    Body::from_stream(pieces).into_response()
}

async fn change(
    door: &HttpState,
    text: String,
    parameters: &Parameters,
    head: &Parts,
) -> Result<Response, SpaceProblem> {
    let bytes = text.len();
    let (default, named) = (parameters.graphs("using-graph-uri")?, parameters.graphs("using-named-graph-uri")?);
    let asker = asker(door, parameters, head)?;
    let work = move |limits: &QueryLimits| {
        let update = Update::parse(&text, limits)?;
        let is_plain = default.is_empty() && named.is_empty();
        let update = if is_plain { update } else { update.using_graphs(&default, &named)? };
        Ok((SpaceRequest::Update(Box::new(update)), ()))
    };
    let (answered, ()) = ask_text(&AskerRights::handle(door, head), (bytes, Class::Update, asker), work).await?;
    let is_change = matches!(answered.answer, ResponseBody::Changed { is_change: true, .. });
    // 200 and not 204: clients of SEPA take nothing else for success.
    let body = serde_json::json!({"changed": is_change, "version": answered.version});
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (kind, body.to_string()).into_response();
    announce(&answered.hints, response.headers_mut());
    Ok(response)
}
