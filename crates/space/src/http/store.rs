//! `/store`: graphs as a whole, as the SPARQL 1.1 Graph Store Protocol has them. Without `graph` or `default` it is all
//! of them, as quads.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use oxrdf::GraphName;
use tidegate_control::admission::Class;
use tidegate_graph::{Mask, MaskGraph, QueryLimits};

use super::body::{Parameters, content_type, iri, quads, rdf_format};
use super::guard::AskerRights;
use super::problem::SpaceProblem;
use super::sparql::respond;
use super::{HttpState, ask_text, asker, method_not_allowed, negotiate, read_body};
use crate::machine::request::ResponseBody;
use crate::notifications::SpaceRequest;

/// Quads of one request: as many as one change may have.
const QUADS_MAX: usize = 1_000_000;

/// The graphs that a request is about.
enum StoreTarget {
    One(GraphName),
    All,
}

impl StoreTarget {
    fn read(parameters: &Parameters) -> Result<Self, SpaceProblem> {
        match (parameters.one("graph")?, parameters.has("default")) {
            (Some(_), true) => Err(SpaceProblem::usage("graph and default at once")),
            (Some(graph), false) => Ok(Self::One(iri(graph)?.into())),
            (None, true) => Ok(Self::One(GraphName::DefaultGraph)),
            (None, false) => Ok(Self::All),
        }
    }

    fn mask(&self) -> Mask {
        let graph = match self {
            Self::All => MaskGraph::Any,
            Self::One(GraphName::DefaultGraph) => MaskGraph::Default,
            Self::One(GraphName::NamedNode(node)) => MaskGraph::Named(node.clone().into()),
            Self::One(GraphName::BlankNode(node)) => MaskGraph::Named(node.clone().into()),
        };
        Mask { graph, ..Mask::default() }
    }

    /// The graph that a body goes to; none if it has graphs of its own.
    fn graph(&self) -> Option<&GraphName> {
        match self {
            Self::One(graph) => Some(graph),
            Self::All => None,
        }
    }
}

pub(super) async fn serve(
    State(door): State<Arc<HttpState>>,
    request: Request<Body>,
) -> Result<Response, SpaceProblem> {
    let (head, body) = request.into_parts();
    let parameters = Parameters::read(head.uri.query().unwrap_or_default().as_bytes());
    let place = StoreTarget::read(&parameters)?;
    let asker = asker(&door, &parameters, &head)?;
    let handle = AskerRights::handle(&door, &head);
    let change = |ask| handle.ask(ask, asker);
    match head.method {
        Method::GET | Method::HEAD => {
            let form = negotiate::graph(&head.headers, matches!(place, StoreTarget::All))?;
            let answered = handle.ask(SpaceRequest::Match { masks: vec![place.mask()], form }, asker).await?;
            let is_named = matches!(place, StoreTarget::One(GraphName::NamedNode(_)));
            let is_empty = matches!(&answered.answer, ResponseBody::Bytes(bytes) if bytes.trim_ascii().is_empty());
            if is_named && is_empty {
                return Err(SpaceProblem::new(StatusCode::NOT_FOUND, "no-such-graph", "there is no such graph"));
            }
            Ok(respond(&handle, answered, form, true))
        }
        Method::PUT | Method::POST => {
            let format = rdf_format(&content_type(&head.headers))?;
            let whole = read_body(&door, body).await?;
            let (target, replaces) = (Box::new(place.mask()), head.method == Method::PUT);
            // The default graph is always there.
            let is_named = matches!(place, StoreTarget::One(GraphName::NamedNode(_)));
            let text = (whole.bytes.len(), Class::Update, asker);
            let work = move |limits: &QueryLimits| {
                let insert = quads(&whole.bytes, format, place.graph(), QUADS_MAX, limits)?;
                Ok((SpaceRequest::Put { target, replaces, insert }, ()))
            };
            let (answered, ()) = ask_text(&handle, text, work).await?;
            let is_new = is_named && matches!(answered.answer, ResponseBody::Put { is_new: true });
            Ok(if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT }.into_response())
        }
        Method::DELETE => {
            let answered = change(SpaceRequest::Edit { remove: vec![place.mask()], insert: Vec::new() }).await?;
            let is_named = matches!(place, StoreTarget::One(GraphName::NamedNode(_)));
            if is_named && matches!(answered.answer, ResponseBody::Changed { is_change: false, .. }) {
                return Err(SpaceProblem::new(StatusCode::NOT_FOUND, "no-such-graph", "there is no such graph"));
            }
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Ok(method_not_allowed("GET, HEAD, PUT, POST, DELETE")),
    }
}
