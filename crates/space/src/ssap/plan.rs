//! From a message to what is to be done about it, without doing it.

use tidegate_control::hints::Asks;
use tidegate_graph::{GraphError, Mask, Query, QueryLimits, Update};
use tidegate_wire_ssap::{Graph, SEQUENCE_MAX, SsapFault, SsapHeader, SsapMessage, SsapQuery, SsapRequest, Status};

use super::terms::{Wrong, masks, masks_of, quads, rdf_xml};
use crate::limits::{INLINE_BYTES, LARGE_QUADS};
use crate::machine::request::{Form, ResumePoint, Watched};
use crate::notifications::SpaceRequest;

/// A message, understood.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) header: SsapHeader,
    /// What the sender says about pace; only those who do are told about it.
    pub(crate) asks: Box<Asks>,
    pub(crate) step: PlanStep,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum PlanStep {
    /// Answer with this status, and nothing else.
    Reply(Status, String),
    /// The same, and then close: what follows on the connection is not to be trusted.
    Close(Status, String),
    /// A change, a question or a rule.
    Ask(SpaceRequest, ReplyForm),
    /// A new subscription.
    Subscribe(Watched, Rows, Option<ResumePoint>),
    /// The end of one.
    Unsubscribe(String),
    /// These bytes are for [`plan`], elsewhere: they are many, or have a text in them that is not for this thread.
    Read(Vec<u8>),
}

/// How a change or question is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    /// With the names of blank nodes, if at all.
    Blanks { names: Vec<(String, String)>, confirm: bool },
    /// With a status only, if at all.
    Status { confirm: bool },
    /// With results.
    Results,
    /// With a truth value: it was an update in the guise of a query.
    Truth,
    /// With the name of a rule, if at all.
    Rule { confirm: bool },
}

/// How the rows of a subscription are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    Triples,
    Sparql,
}

impl Plan {
    /// Whether it may be under way together with changes before and behind it. One that brings or names much may not, nor one
    /// whose effect is not known from its text: it would occupy room that is meant for small ones. Nor may one that shows a
    /// ticket: it comes before others, and what was sent before it does not. (What of the others turns out to be large, or
    /// long, is not overtaken either: the order of service knows their connection.)
    pub(crate) fn is_small_change(&self) -> bool {
        let PlanStep::Ask(SpaceRequest::Edit { remove, insert }, _) = &self.step else { return false };
        if self.asks.ticket.is_some() {
            return false;
        }
        let is_narrow = |mask: &Mask| mask.subject.is_some() && mask.predicate.is_some();
        insert.len() < LARGE_QUADS && remove.len() < LARGE_QUADS && remove.iter().all(is_narrow)
    }
}

/// Reads the bytes of one message where they arrive, as far as that is quick and safe: triples and patterns are read by a
/// loop. SPARQL and RDF have parsers that recurse, so such messages are read elsewhere, and so are long ones.
pub(crate) fn look(bytes: &[u8], name: impl FnMut() -> String) -> Plan {
    if bytes.len() > INLINE_BYTES {
        return Plan { header: header_of(bytes), asks: Box::default(), step: PlanStep::Read(bytes.to_vec()) };
    }
    of_message(bytes, |request| {
        if has_text(&request) {
            return Ok(PlanStep::Read(bytes.to_vec()));
        }
        step(request, &QueryLimits::default(), name)
    })
}

/// Reads the bytes of one message, whatever is in it. `name` makes names for blank nodes.
pub(crate) fn plan(bytes: &[u8], limits: &QueryLimits, name: impl FnMut() -> String) -> Plan {
    of_message(bytes, |request| step(request, limits, name))
}

/// What is known of the sender of a message that is too long to be read.
pub(crate) fn header_of(bytes: &[u8]) -> SsapHeader {
    let mut end = bytes.len().min(HEAD_BYTES);
    // Not in the middle of a character.
    while end > 0 && bytes.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    match SsapMessage::parse(bytes.get(..end).unwrap_or_default()) {
        Ok(message) => message.header,
        Err(fault) => *fault.header,
    }
}

/// Clients write who they are first.
const HEAD_BYTES: usize = 4 << 10;

/// Whether there is SPARQL or RDF/XML in it.
fn has_text(request: &SsapRequest<'_>) -> bool {
    let of_graph = |graph: &Graph<'_>| !matches!(graph, Graph::Triples(_));
    match request {
        SsapRequest::Insert { graph, .. } | SsapRequest::Remove { graph, .. } => of_graph(graph),
        SsapRequest::Update { insert, remove, .. } => of_graph(insert) || remove.as_ref().is_some_and(of_graph),
        SsapRequest::Query(question) | SsapRequest::Subscribe(question) => matches!(question, SsapQuery::Sparql(_)),
        SsapRequest::PersistentUpdate { .. } => true,
        SsapRequest::Join { .. }
        | SsapRequest::Leave
        | SsapRequest::Unsubscribe { .. }
        | SsapRequest::CancelPersistentUpdate { .. } => false,
    }
}

fn of_message(bytes: &[u8], step: impl FnOnce(SsapRequest<'_>) -> Result<PlanStep, Wrong>) -> Plan {
    let message = match SsapMessage::parse(bytes) {
        Ok(message) => message,
        Err(fault) => return of_fault(fault),
    };
    let mut asks = Asks::default();
    for known in Asks::NAMES {
        if let Ok(Some(text)) = message.text(known) {
            asks.read(known, text.trim());
        }
    }
    match SsapRequest::read(&message) {
        Ok(request) => {
            let mut step = step(request).unwrap_or_else(|(status, words)| PlanStep::Reply(status, words));
            if let PlanStep::Subscribe(_, _, seen) = &mut step {
                *seen = seen_of(&message);
            }
            Plan { header: message.header, asks: Box::new(asks), step }
        }
        Err(fault) => of_fault(fault),
    }
}

/// The protocol knows no coming back: a SUBSCRIBE with the parameters of an indication is ours.
fn seen_of(message: &SsapMessage<'_>) -> Option<ResumePoint> {
    let name = message.text("subscription_id").ok()??.into_owned();
    let sequence = message.text("ind_sequence").ok()??.trim().parse().ok()?;
    Some(ResumePoint { name, sequence, round: Some(SEQUENCE_MAX.into()) })
}

fn of_fault(fault: SsapFault) -> Plan {
    let SsapFault { status, detail, header, is_broken } = fault;
    let step = if is_broken { PlanStep::Close(status, detail) } else { PlanStep::Reply(status, detail) };
    Plan { header: *header, asks: Box::default(), step }
}

fn step(request: SsapRequest<'_>, limits: &QueryLimits, mut name: impl FnMut() -> String) -> Result<PlanStep, Wrong> {
    Ok(match request {
        SsapRequest::Join { .. } | SsapRequest::Leave => PlanStep::Reply(Status::Success, String::new()),
        SsapRequest::Insert { graph, confirm } => change((Some(graph), None), (confirm, true), limits, name)?,
        SsapRequest::Remove { graph, confirm } => change((None, Some(graph)), (confirm, false), limits, name)?,
        SsapRequest::Update { insert, remove, confirm } => {
            change((Some(insert), remove), (confirm, true), limits, name)?
        }
        SsapRequest::Query(SsapQuery::Patterns(patterns)) => {
            PlanStep::Ask(SpaceRequest::Match { masks: masks(&patterns)?, form: Form::Ssap }, ReplyForm::Results)
        }
        SsapRequest::Query(SsapQuery::Sparql(text)) => sparql(&text, limits)?,
        SsapRequest::Subscribe(SsapQuery::Patterns(patterns)) => {
            PlanStep::Subscribe(Watched::Masks(masks(&patterns)?), Rows::Triples, None)
        }
        SsapRequest::Subscribe(SsapQuery::Sparql(text)) => {
            let query = Query::parse(&text, limits).map_err(|error| refused(&error))?;
            PlanStep::Subscribe(Watched::Query(Box::new(query)), Rows::Sparql, None)
        }
        SsapRequest::Unsubscribe { subscription_id } => PlanStep::Unsubscribe(subscription_id.into_owned()),
        SsapRequest::PersistentUpdate { update, confirm } => {
            // Judged here, so that what is wrong with it is said at once.
            Update::parse(&update, limits).map_err(|error| refused(&error))?;
            PlanStep::Ask(
                SpaceRequest::AddRule { name: name(), text: update.into_owned() },
                ReplyForm::Rule { confirm },
            )
        }
        SsapRequest::CancelPersistentUpdate { update_id } => {
            PlanStep::Ask(SpaceRequest::RemoveRule(update_id.into_owned()), ReplyForm::Status { confirm: true })
        }
    })
}

fn change(
    (insert, remove): (Option<Graph<'_>>, Option<Graph<'_>>),
    (confirm, with_names): (bool, bool),
    limits: &QueryLimits,
    name: impl FnMut() -> String,
) -> Result<PlanStep, Wrong> {
    if let Some(Graph::Sparql(text)) = insert.as_ref().or(remove.as_ref()) {
        let update = Update::parse(text, limits).map_err(|error| refused(&error))?;
        return Ok(PlanStep::Ask(
            SpaceRequest::Update(Box::new(update)),
            ReplyForm::Blanks { names: Vec::new(), confirm },
        ));
    }
    let remove = match remove {
        Some(Graph::Triples(patterns)) => masks(&patterns)?,
        Some(Graph::RdfXml(text)) => masks_of(rdf_xml(&text, limits)?),
        Some(Graph::Sparql(_)) => return Err((Status::NotImplemented, "SPARQL as a graph to remove".to_owned())),
        None => Vec::new(),
    };
    let (insert, names) = match insert {
        Some(Graph::Triples(triples)) => quads(&triples, name)?,
        Some(Graph::RdfXml(text)) => (rdf_xml(&text, limits)?, Vec::new()),
        Some(Graph::Sparql(_)) | None => (Vec::new(), Vec::new()),
    };
    let reply = if with_names { ReplyForm::Blanks { names, confirm } } else { ReplyForm::Status { confirm } };
    Ok(PlanStep::Ask(SpaceRequest::Edit { remove, insert }, reply))
}

/// A query, or an update: old clients send both in the same message.
fn sparql(text: &str, limits: &QueryLimits) -> Result<PlanStep, Wrong> {
    let error = match Query::parse(text, limits) {
        Ok(query) => {
            return Ok(PlanStep::Ask(
                SpaceRequest::Query { query: Box::new(query), form: Form::Ssap },
                ReplyForm::Results,
            ));
        }
        Err(error) => error,
    };
    match (Update::parse(text, limits), error) {
        (Ok(update), _) => Ok(PlanStep::Ask(SpaceRequest::Update(Box::new(update)), ReplyForm::Truth)),
        // It is an update, and something else is the matter with it.
        (
            Err(other @ (GraphError::Refused(_) | GraphError::Limit(_) | GraphError::LimitAt(..))),
            GraphError::Syntax(_),
        ) => Err(refused(&other)),
        (Err(_), error) => Err(refused(&error)),
    }
}

fn refused(error: &GraphError) -> Wrong {
    (status_of(error), error.to_string())
}

/// The status that says best what happened.
pub(crate) fn status_of(error: &GraphError) -> Status {
    match error {
        GraphError::Syntax(_)
        | GraphError::NotRdf(_)
        | GraphError::Refused(_)
        | GraphError::Forbidden(_)
        | GraphError::Unknown => Status::KpRequest,
        GraphError::Limit(_) | GraphError::LimitAt(..) | GraphError::Cancelled => Status::OutOfResources,
        GraphError::Evaluation(_) | GraphError::OutOfStep => Status::SibError,
    }
}
