//! `/check`: what has changed since? For clients that ask now and then, instead of keeping a socket open.
//!
//! Without a query the answer is the version, from memory. With one it is its result, under a name; whoever comes back with
//! that name and the number of what it has is told exactly what entered and left since, while that is known, and else the
//! whole result again, and which of the two it is.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidegate_control::admission::Class;
use tidegate_graph::{Query, QueryLimits};

use super::body::Parameters;
use super::guard::AskerRights;
use super::problem::{SpaceProblem, announce};
use super::sparql::not_modified;
use super::subscribe::spuid;
use super::{HttpState, ask_text, asker, asks, method_not_allowed, read_body};
use crate::machine::condition::Condition;
use crate::machine::request::{Refused, ResponseBody, ResumePoint, Watched};
use crate::notifications::SpaceRequest;
use crate::sepa::SepaSubscription;

pub(super) async fn serve(
    State(door): State<Arc<HttpState>>,
    request: Request<Body>,
) -> Result<Response, SpaceProblem> {
    let (head, body) = request.into_parts();
    let mut parameters = match head.method {
        Method::GET | Method::HEAD => Parameters::read(head.uri.query().unwrap_or_default().as_bytes()),
        Method::POST => Parameters::read(&read_body(&door, body).await?.bytes),
        _ => return Ok(method_not_allowed("GET, HEAD, POST")),
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| SpaceProblem::usage(format!("{text:?} is no number")));
    let Some(text) = parameters.take("query")? else {
        let seen = parameters.one("version")?.map(number).transpose()?.or(asks(&head.headers).version);
        return version(&door, seen);
    };
    let sequence = parameters.one("sequence")?.map(number).transpose()?;
    let name = parameters.one("spuid")?.map(str::to_owned);
    let seen = name.zip(sequence).map(|(name, sequence)| ResumePoint { name, sequence, round: None });
    let (default, named) = (parameters.graphs("default-graph-uri")?, parameters.graphs("named-graph-uri")?);
    let asker = asker(&door, &parameters, &head)?;
    let (bytes, is_return) = (text.len(), seen.is_some());
    let work = move |limits: &QueryLimits| {
        let query = Query::parse(&text, limits)?;
        let query = if default.is_empty() && named.is_empty() { query } else { query.on_graphs(default, named) };
        Ok((SpaceRequest::Subscribe { what: Watched::Query(Box::new(query)), name: spuid(), seen, outlet: None }, ()))
    };
    let (answered, ()) = ask_text(&AskerRights::handle(&door, &head), (bytes, Class::Check, asker), work).await?;
    let ResponseBody::Subscribed(subscribed) = &answered.answer else { return Err(Refused::Closing.into()) };
    let alias = parameters.one("alias")?.map(str::to_owned);
    let text = SepaSubscription::new(subscribed, alias).begin(&subscribed.begun, is_return, &answered.hints);
    let mut response = json_of(text);
    response.headers_mut().insert("pace-version", HeaderValue::from(answered.version));
    announce(&answered.hints, response.headers_mut());
    Ok(response)
}

fn version(door: &HttpState, seen: Option<u64>) -> Result<Response, SpaceProblem> {
    if door.handle.condition() == Condition::Unsure {
        return Err(Refused::Unavailable(Condition::Unsure).into());
    }
    let version = door.handle.version();
    if seen == Some(version) {
        return Ok(not_modified(&door.handle, version, None));
    }
    let mut response = json_of(json!({ "version": version }).to_string());
    response.headers_mut().insert("pace-version", HeaderValue::from(version));
    Ok(response)
}

fn json_of(text: String) -> Response {
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
