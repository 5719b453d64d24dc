//! How a standing query is made ready: its plan if it can be followed, the query to evaluate otherwise, and the patterns
//! under which it is found, their terms held in the dictionary.

use oxrdf::{NamedOrBlankNode, Term};
use spargebra::Query as Algebra;
use spargebra::algebra::GraphPattern;

use crate::beside::EvaluatedResult;
use crate::dataset::Snapshot;
use crate::dictionary::{Dictionary, Holding, Id};
use crate::error::{GraphError, Limit, QueryRefusal};
use crate::follow::Follower;
use crate::form::{Peeled, ResultForm, truth};
use crate::index::{IdPattern, InGraph};
use crate::limits::{EvaluationMeter, QueryLimits};
use crate::masks::{Mask, MaskGraph};
use crate::plan::{PatternSlot, branches, interests};
use crate::query::{Query, QueryAnswer, pattern_mut};
use crate::rows::Bag;
use crate::standing::{StandingContext, bounded};

/// The followers of a query and the query for its solutions, if it can be followed.
pub(crate) fn followed(
    query: &Query,
    peeled: &Peeled,
    dictionary: &mut Dictionary,
    limits: &StandingContext<'_>,
) -> Result<Option<(Vec<Follower>, Query)>, GraphError> {
    if !peeled.whole || !query.is_of_all_graphs() {
        return Ok(None);
    }
    let Some(branches) = branches(&peeled.pattern, limits.query.value_bytes_max) else { return Ok(None) };
    let solutions = projection(query, peeled, limits.query)?;
    let mut holding = Holding::new(dictionary);
    let followers = branches.iter().map(|branch| Follower::new(branch, &peeled.columns, &mut holding));
    let followers = followers.collect::<Result<_, _>>()?;
    holding.keep();
    Ok(Some((followers, solutions)))
}

/// All solutions of a pattern, with the columns that the form needs.
fn projection(query: &Query, peeled: &Peeled, limits: &QueryLimits) -> Result<Query, GraphError> {
    let inner = Box::new(peeled.pattern.clone());
    let pattern = GraphPattern::Project { inner, variables: peeled.columns.clone() };
    let (dataset, base_iri) = (query.dataset().cloned(), query.algebra.base_iri().cloned());
    Ok(Query::new(Algebra::Select { dataset, pattern, base_iri }, limits)?.reading_as(query))
}

/// The query to evaluate again: a `CONSTRUCT` as the select of its template's variables.
pub(crate) fn again(query: &Query, peeled: &Peeled, limits: &QueryLimits) -> Result<Query, GraphError> {
    match peeled.form {
        ResultForm::Construct { .. } => projection(query, peeled, limits),
        _ => Ok(query.clone()),
    }
}

pub(crate) fn solution_bag(
    query: &Query,
    form: &ResultForm,
    snapshot: &Snapshot,
    limits: &StandingContext<'_>,
) -> Result<Bag, GraphError> {
    let mut bag = Bag::default();
    let QueryAnswer::Rows(rows) = query.run(snapshot, limits.query)? else { return Ok(bag) };
    for row in rows {
        for row in form.triples(&row?) {
            bag.add(row, 1);
        }
        bounded(&bag, limits.rows_max)?;
    }
    Ok(bag)
}

/// The result of a query that is evaluated again.
pub(crate) fn result_bag(
    query: &Query,
    form: &ResultForm,
    snapshot: &Snapshot,
    limits: &QueryLimits,
    rows_max: usize,
) -> Result<EvaluatedResult, GraphError> {
    let (mut bag, mut columns, meter) = (Bag::default(), Vec::new(), EvaluationMeter::new(limits));
    match query.run_metered(snapshot, limits, &meter)? {
        QueryAnswer::Boolean(holds) => bag.add(truth(holds), 1),
        QueryAnswer::Triples(_) => return Err(GraphError::Refused(QueryRefusal::StandingDescribe)),
        QueryAnswer::Rows(rows) => {
            columns = rows.variables().to_vec();
            for row in rows {
                for row in form.triples(&row?) {
                    bag.add(row, 1);
                }
                bounded(&bag, rows_max)?;
            }
            if !matches!(form, ResultForm::Bag) {
                bag.flatten();
            }
        }
    }
    Ok(EvaluatedResult { bag, columns, steps: meter.steps() })
}

/// The patterns that may change a query's answer, their terms held.
pub(crate) fn held_interests(query: &Query, dictionary: &mut Dictionary) -> Result<Vec<IdPattern>, GraphError> {
    let mut algebra = query.algebra.clone();
    let everything = IdPattern { graph: InGraph::Any, subject: None, predicate: None, object: None };
    let Some((leaves, with_graphs)) = interests(pattern_mut(&mut algebra)) else {
        return Ok(vec![everything]);
    };
    let graph = if with_graphs || query.dataset().is_some() { InGraph::Any } else { InGraph::One(0) };
    let (mut patterns, mut holding) = (Vec::with_capacity(leaves.len()), Holding::new(dictionary));
    for leaf in &leaves {
        let mut id = |slot: &PatternSlot<Term>| match slot {
            PatternSlot::Known(term) => held(Some(term), &mut holding),
            PatternSlot::Variable(_) => Ok(None),
        };
        let (subject, predicate, object) = (id(&leaf.subject)?, id(&leaf.predicate)?, id(&leaf.object)?);
        patterns.push(IdPattern { graph, subject, predicate, object });
    }
    holding.keep();
    Ok(patterns)
}

fn held(term: Option<&Term>, holding: &mut Holding<'_>) -> Result<Option<Id>, Limit> {
    term.map(|term| holding.hold(term)).transpose()
}

/// The patterns of masks, their terms held.
pub(crate) fn held_masks(masks: &[Mask], dictionary: &mut Dictionary) -> Result<Vec<IdPattern>, GraphError> {
    let mut holding = Holding::new(dictionary);
    let patterns = masks.iter().map(|mask| held_mask(mask, &mut holding)).collect::<Result<_, _>>()?;
    holding.keep();
    Ok(patterns)
}

fn held_mask(mask: &Mask, holding: &mut Holding<'_>) -> Result<IdPattern, Limit> {
    let node = |node: &NamedOrBlankNode| Term::from(node.clone());
    let subject = held(mask.subject.as_ref().map(node).as_ref(), holding)?;
    let predicate = held(mask.predicate.clone().map(Term::from).as_ref(), holding)?;
    let object = held(mask.object.as_ref(), holding)?;
    let graph = match &mask.graph {
        MaskGraph::Default => InGraph::One(0),
        MaskGraph::Named(name) => InGraph::One(held(Some(&node(name)), holding)?.unwrap_or(0)),
        MaskGraph::AnyNamed => InGraph::AnyNamed,
        MaskGraph::Any | MaskGraph::Readable(_) => InGraph::Any,
    };
    Ok(IdPattern { graph, subject, predicate, object })
}

pub(crate) fn pattern_ids(pattern: &IdPattern) -> impl Iterator<Item = Id> + use<> {
    let graph = match pattern.graph {
        InGraph::One(graph) if graph != 0 => Some(graph),
        _ => None,
    };
    [pattern.subject, pattern.predicate, pattern.object, graph].into_iter().flatten()
}
