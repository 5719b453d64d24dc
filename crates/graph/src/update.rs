//! SPARQL updates on the open transaction of a dataset. An operation sees what the ones before it did; whoever opened
//! the transaction takes all of it back when one fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxrdf::{BlankNode, GraphName, GraphNameRef, NamedNode, NamedOrBlankNode, Quad, Term, Variable};
use spargebra::algebra::GraphTarget;
use spargebra::term::{
    GraphNamePattern, GroundQuad, GroundQuadPattern, GroundTerm, GroundTermPattern, NamedNodePattern, QuadPattern,
    TermPattern,
};
use spargebra::{GraphUpdateOperation, Query as Algebra, Update as Operations};

use crate::dataset::{Dataset, graph_name};
use crate::delta::quad_of;
use crate::dictionary::Dictionary;
use crate::error::{GraphError, Limit, QueryRefusal};
use crate::index::{IdPattern, InGraph};
use crate::limits::QueryLimits;
use crate::masks::{Mask, MaskGraph};
use crate::prepare::{held_interests, held_masks, pattern_ids};
use crate::query::{Query, QueryAnswer, Row, parser};
use crate::rights::{ForbiddenGraph, GraphRights};
use crate::staging::ChangeStep;
use crate::syntax::words;
use crate::text;

/// An update that was parsed and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    steps: Vec<UpdateStep>,
    /// What whoever asked may write, if that is not everything. Graphs that the text names were judged already.
    writable: Option<Arc<GraphRights>>,
}

/// An operation, ready to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UpdateStep {
    Insert(Vec<Quad>),
    Delete(Vec<GroundQuad>),
    Modify { delete: Vec<GroundQuadPattern>, insert: Vec<QuadPattern>, query: Box<Query> },
    Clear(GraphTarget),
    Create { silent: bool, graph: NamedNode },
}

impl Update {
    /// Whether it can only take something away.
    pub fn only_removes(&self) -> bool {
        self.steps.iter().all(|step| match step {
            UpdateStep::Delete(_) | UpdateStep::Clear(_) => true,
            UpdateStep::Modify { insert, .. } => insert.is_empty(),
            UpdateStep::Insert(_) | UpdateStep::Create { .. } => false,
        })
    }

    /// Reads an update. Its cost is bounded by the limits, whatever the text.
    pub fn parse(text: &str, limits: &QueryLimits) -> Result<Self, GraphError> {
        Self::parse_at(text, None, limits)
    }

    /// The same, with a base for relative IRIs.
    pub fn parse_at(text: &str, base: Option<&str>, limits: &QueryLimits) -> Result<Self, GraphError> {
        text::check(text, base, limits)?;
        let parsed = parser(base)?.parse_update(text);
        Self::new(parsed.map_err(|error| GraphError::Syntax(words(&error.to_string(), text)))?, limits)
    }

    fn new(parsed: Operations, limits: &QueryLimits) -> Result<Self, GraphError> {
        let mut steps = Vec::with_capacity(parsed.operations.len());
        for operation in parsed.operations {
            steps.push(match operation {
                GraphUpdateOperation::InsertData { data } => {
                    UpdateStep::Insert(data.into_iter().map(inserted).collect())
                }
                GraphUpdateOperation::DeleteData { data } => UpdateStep::Delete(data),
                GraphUpdateOperation::DeleteInsert { delete, insert, using, pattern } => {
                    let base_iri = parsed.base_iri.clone();
                    let select = Algebra::Select { dataset: using, pattern: *pattern, base_iri };
                    UpdateStep::Modify { delete, insert, query: Box::new(Query::new(select, limits)?) }
                }
                GraphUpdateOperation::Clear { graph, .. } | GraphUpdateOperation::Drop { graph, .. } => {
                    UpdateStep::Clear(graph)
                }
                GraphUpdateOperation::Create { silent, graph } => UpdateStep::Create { silent, graph },
                // Nothing is fetched. SILENT asks that a failure be no failure.
                GraphUpdateOperation::Load { silent: true, .. } => continue,
                GraphUpdateOperation::Load { silent: false, .. } => {
                    return Err(GraphError::Refused(QueryRefusal::Load));
                }
            });
        }
        Ok(Self { steps, writable: None })
    }

    /// The same update with its `WHERE`s on these graphs, as the protocol's `using-graph-uri` says. Refused if it says its
    /// graphs itself, by `USING`, `USING NAMED` or `WITH`.
    pub fn using_graphs(mut self, default: &[NamedNode], named: &[NamedNode]) -> Result<Self, GraphError> {
        for step in &mut self.steps {
            if let UpdateStep::Modify { query, .. } = step {
                if query.dataset().is_some() {
                    return Err(GraphError::Refused(QueryRefusal::GraphsTwice));
                }
                let on_graphs = query.as_ref().clone().on_graphs(default.to_vec(), named.to_vec());
                **query = on_graphs;
            }
        }
        Ok(self)
    }

    /// Whether it has to look at the data to know what it does.
    pub fn reads(&self) -> bool {
        self.steps.iter().any(|step| !matches!(step, UpdateStep::Insert(_) | UpdateStep::Delete(_)))
    }

    /// The quads that it names, if it need not look at the data.
    pub(crate) fn into_named(self) -> impl Iterator<Item = ChangeStep> + Send {
        self.steps.into_iter().flat_map(|step| {
            let (inserted, deleted) = match step {
                UpdateStep::Insert(quads) => (quads, Vec::new()),
                UpdateStep::Delete(quads) => (Vec::new(), quads),
                UpdateStep::Modify { .. } | UpdateStep::Clear(_) | UpdateStep::Create { .. } => {
                    (Vec::new(), Vec::new())
                }
            };
            let inserted = inserted.into_iter().map(ChangeStep::Insert);
            let deleted = deleted.into_iter().map(|quad| ChangeStep::Remove(ground(&quad)));
            inserted.chain(deleted)
        })
    }

    /// The patterns of all that it reads, their terms held. What an earlier operation has changed is read by a later one,
    /// too; but that is the same whenever the patterns are.
    pub(crate) fn held_interests(&self, dictionary: &mut Dictionary) -> Result<Vec<IdPattern>, GraphError> {
        let mut patterns = Vec::new();
        for step in &self.steps {
            let held = match step {
                UpdateStep::Insert(_) | UpdateStep::Delete(_) => Ok(Vec::new()),
                UpdateStep::Modify { query, .. } => held_interests(query, dictionary),
                UpdateStep::Clear(target) => {
                    let graph = match target {
                        GraphTarget::NamedNode(node) => MaskGraph::Named(node.clone().into()),
                        GraphTarget::DefaultGraph => MaskGraph::Default,
                        GraphTarget::NamedGraphs => MaskGraph::AnyNamed,
                        GraphTarget::AllGraphs => MaskGraph::Any,
                    };
                    held_masks(&[Mask { graph, ..Mask::default() }], dictionary)
                }
                UpdateStep::Create { graph, .. } => {
                    let graph = MaskGraph::Named(graph.clone().into());
                    held_masks(&[Mask { graph, ..Mask::default() }], dictionary)
                }
            };
            match held {
                Ok(held) => patterns.extend(held),
                Err(error) => {
                    for id in patterns.iter().flat_map(pattern_ids) {
                        dictionary.release(id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(patterns)
    }

    /// The same update by somebody with these rights. Refused whole if it names a graph that may not be written or read;
    /// what else it reads are the graphs that may be. Graphs that only its solutions name are judged when it is done.
    pub fn restricted(mut self, rights: &Arc<GraphRights>, limits: &QueryLimits) -> Result<Self, GraphError> {
        for step in &mut self.steps {
            step.check_writes(rights)?;
            if let UpdateStep::Modify { query, .. } = step {
                **query = query.as_ref().clone().restricted_or_refused(rights, limits)?;
            }
        }
        self.writable = (!rights.write.has_all()).then(|| Arc::clone(rights));
        Ok(self)
    }

    /// Quads that it names one by one.
    pub fn size(&self) -> usize {
        let named = |step: &UpdateStep| match step {
            UpdateStep::Insert(quads) => quads.len(),
            UpdateStep::Delete(quads) => quads.len(),
            UpdateStep::Modify { .. } | UpdateStep::Clear(_) | UpdateStep::Create { .. } => 0,
        };
        self.steps.iter().map(named).sum()
    }

    /// One text for its `WHERE`s; empty if it has none.
    pub fn conditions(&self) -> String {
        self.wheres().map(Query::canonical).collect::<Vec<_>>().join(" ; ")
    }

    /// The queries of its `WHERE`s.
    pub(crate) fn wheres(&self) -> impl Iterator<Item = &Query> {
        self.steps.iter().filter_map(|step| match step {
            UpdateStep::Modify { query, .. } => Some(query.as_ref()),
            _ => None,
        })
    }

    pub(crate) fn apply(&self, dataset: &mut Dataset, limits: &QueryLimits) -> Result<(), GraphError> {
        for step in &self.steps {
            match step {
                UpdateStep::Insert(quads) => insert_data(quads, dataset)?,
                UpdateStep::Delete(quads) => {
                    for quad in quads {
                        dataset.remove(ground(quad).as_ref())?;
                    }
                }
                UpdateStep::Modify { delete, insert, query } => {
                    modify((delete, insert, query), self.writable.as_deref(), dataset, limits)?;
                }
                UpdateStep::Clear(target) => clear(target, dataset, limits)?,
                UpdateStep::Create { silent, graph } => create(*silent, graph, dataset)?,
            }
            if limits.cancel.is_cancelled() {
                return Err(GraphError::Cancelled);
            }
        }
        Ok(())
    }
}

impl UpdateStep {
    /// Judges the graphs that it names.
    fn check_writes(&self, rights: &GraphRights) -> Result<(), ForbiddenGraph> {
        let check = |graph: GraphNameRef<'_>| check_writable(graph, Some(rights));
        let of_pattern = |graph: &GraphNamePattern| match graph {
            GraphNamePattern::NamedNode(name) => check(name.as_ref().into()),
            GraphNamePattern::DefaultGraph => check(GraphNameRef::DefaultGraph),
            GraphNamePattern::Variable(_) => Ok(()),
        };
        match self {
            Self::Insert(quads) => quads.iter().try_for_each(|quad| check(quad.graph_name.as_ref())),
            Self::Delete(quads) => quads.iter().try_for_each(|quad| check(named(&quad.graph_name).as_ref())),
            Self::Modify { delete, insert, .. } => {
                delete.iter().try_for_each(|pattern| of_pattern(&pattern.graph_name))?;
                insert.iter().try_for_each(|pattern| of_pattern(&pattern.graph_name))
            }
            Self::Clear(GraphTarget::NamedNode(name)) | Self::Create { graph: name, .. } => check(name.as_ref().into()),
            Self::Clear(GraphTarget::DefaultGraph) => check(GraphNameRef::DefaultGraph),
            // By the rules alone: whether there are graphs that may not be written is not for everybody to know.
            Self::Clear(GraphTarget::NamedGraphs | GraphTarget::AllGraphs) => {
                if rights.write.has_all() {
                    Ok(())
                } else {
                    Err(ForbiddenGraph::writing_all())
                }
            }
        }
    }
}

fn check_writable(graph: GraphNameRef<'_>, rights: Option<&GraphRights>) -> Result<(), ForbiddenGraph> {
    match rights {
        Some(rights) if !rights.write.has(graph) => Err(ForbiddenGraph::writing(graph)),
        _ => Ok(()),
    }
}

/// Blank nodes of data are new ones, the same within one operation.
fn insert_data(quads: &[Quad], dataset: &mut Dataset) -> Result<(), GraphError> {
    let mut blanks = BTreeMap::new();
    for quad in quads {
        let mut quad = quad.clone();
        if let NamedOrBlankNode::BlankNode(node) = &mut quad.subject {
            *node = fresh(node, &mut blanks, dataset);
        }
        if let Term::BlankNode(node) = &mut quad.object {
            *node = fresh(node, &mut blanks, dataset);
        }
        dataset.insert(quad.as_ref())?;
    }
    Ok(())
}

fn fresh(node: &BlankNode, blanks: &mut BTreeMap<String, BlankNode>, dataset: &mut Dataset) -> BlankNode {
    blanks.entry(node.as_str().to_owned()).or_insert_with(|| dataset.fresh_blank()).clone()
}

fn named(graph: &spargebra::term::GraphName) -> GraphName {
    match graph {
        spargebra::term::GraphName::NamedNode(node) => node.clone().into(),
        spargebra::term::GraphName::DefaultGraph => GraphName::DefaultGraph,
    }
}

fn inserted(quad: spargebra::term::Quad) -> Quad {
    Quad { graph_name: named(&quad.graph_name), subject: quad.subject, predicate: quad.predicate, object: quad.object }
}

fn ground(quad: &GroundQuad) -> Quad {
    let object = match &quad.object {
        GroundTerm::NamedNode(node) => node.clone().into(),
        GroundTerm::Literal(literal) => Term::from(literal.clone()),
    };
    let graph_name = named(&quad.graph_name);
    Quad { subject: quad.subject.clone().into(), predicate: quad.predicate.clone(), object, graph_name }
}

fn create(silent: bool, graph: &NamedNode, dataset: &Dataset) -> Result<(), GraphError> {
    // A graph exists while it has a quad; an empty one is not recorded, so creating it changes nothing.
    let snapshot = dataset.snapshot();
    let exists = snapshot.terms.find(graph.as_ref().into()).is_some_and(|graph| {
        let all = IdPattern { graph: InGraph::One(graph), subject: None, predicate: None, object: None };
        snapshot.scan(all).next().is_some()
    });
    if exists && !silent { Err(GraphError::Evaluation(format!("the graph {graph} exists"))) } else { Ok(()) }
}

fn clear(target: &GraphTarget, dataset: &mut Dataset, limits: &QueryLimits) -> Result<(), GraphError> {
    let snapshot = dataset.snapshot();
    let graph = match target {
        GraphTarget::NamedNode(node) => match snapshot.terms.find(node.as_ref().into()) {
            Some(graph) => InGraph::One(graph),
            None => return Ok(()),
        },
        GraphTarget::DefaultGraph => InGraph::One(0),
        GraphTarget::NamedGraphs => InGraph::AnyNamed,
        GraphTarget::AllGraphs => InGraph::Any,
    };
    for (steps, quad) in (1..).zip(snapshot.scan(IdPattern { graph, subject: None, predicate: None, object: None })) {
        dataset.remove_ids(quad)?;
        if steps > limits.steps_max {
            return Err(Limit::Steps.into());
        }
        if limits.cancel.is_cancelled() {
            return Err(GraphError::Cancelled);
        }
    }
    Ok(())
}

/// All solutions are found before anything is changed; then deletions come before insertions.
fn modify(
    (delete, insert, query): (&[GroundQuadPattern], &[QuadPattern], &Query),
    writable: Option<&GraphRights>,
    dataset: &mut Dataset,
    limits: &QueryLimits,
) -> Result<(), GraphError> {
    let snapshot = dataset.snapshot();
    let QueryAnswer::Rows(rows) = query.run(&snapshot, limits)? else { return Ok(()) };
    let variables = rows.variables().to_vec();
    let rows: Vec<Row> = rows.collect::<Result<_, _>>()?;
    // While a snapshot exists, every change copies a path of each index.
    drop(snapshot);
    for row in &rows {
        let solution = Solution { variables: &variables, row };
        for quad in delete.iter().filter_map(|pattern| solution.deleted(pattern)) {
            check_writable(quad.graph_name.as_ref(), writable)?;
            dataset.remove(quad.as_ref())?;
        }
    }
    for row in &rows {
        let solution = Solution { variables: &variables, row };
        let mut blanks = BTreeMap::new();
        for pattern in insert {
            if let Some(quad) = solution.inserted(pattern, &mut |node| fresh(node, &mut blanks, dataset)) {
                check_writable(quad.graph_name.as_ref(), writable)?;
                dataset.insert(quad.as_ref())?;
            }
        }
    }
    Ok(())
}

/// A row by the names of its variables; fills templates. A quad with an unbound or misplaced term is left out.
pub(crate) struct Solution<'a> {
    pub(crate) variables: &'a [Variable],
    pub(crate) row: &'a [Option<Term>],
}

impl Solution<'_> {
    fn value(&self, variable: &Variable) -> Option<Term> {
        let place = self.variables.iter().position(|known| known == variable)?;
        self.row.get(place)?.clone()
    }

    pub(crate) fn named(&self, pattern: &NamedNodePattern) -> Option<Term> {
        match pattern {
            NamedNodePattern::NamedNode(node) => Some(node.clone().into()),
            NamedNodePattern::Variable(variable) => self.value(variable),
        }
    }

    pub(crate) fn term(&self, pattern: &TermPattern, blank: &mut dyn FnMut(&BlankNode) -> BlankNode) -> Option<Term> {
        match pattern {
            TermPattern::NamedNode(node) => Some(node.clone().into()),
            TermPattern::Literal(literal) => Some(literal.clone().into()),
            TermPattern::BlankNode(node) => Some(blank(node).into()),
            TermPattern::Variable(variable) => self.value(variable),
        }
    }

    fn ground(&self, pattern: &GroundTermPattern) -> Option<Term> {
        match pattern {
            GroundTermPattern::NamedNode(node) => Some(node.clone().into()),
            GroundTermPattern::Literal(literal) => Some(literal.clone().into()),
            GroundTermPattern::Variable(variable) => self.value(variable),
        }
    }

    /// `None` if there is no such graph; the default graph is `Some(None)`.
    #[expect(clippy::option_option, reason = "no graph and the default graph differ")]
    fn graph(&self, pattern: &GraphNamePattern) -> Option<Option<Term>> {
        match pattern {
            GraphNamePattern::NamedNode(node) => Some(Some(node.clone().into())),
            GraphNamePattern::DefaultGraph => Some(None),
            GraphNamePattern::Variable(variable) => {
                let term = self.value(variable)?;
                graph_name(term.clone()).map(|_| Some(term))
            }
        }
    }

    fn deleted(&self, pattern: &GroundQuadPattern) -> Option<Quad> {
        let (subject, object) = (self.ground(&pattern.subject)?, self.ground(&pattern.object)?);
        quad_of(subject, self.named(&pattern.predicate)?, object, self.graph(&pattern.graph_name)?)
    }

    fn inserted(&self, pattern: &QuadPattern, blank: &mut dyn FnMut(&BlankNode) -> BlankNode) -> Option<Quad> {
        let (subject, object) = (self.term(&pattern.subject, blank)?, self.term(&pattern.object, blank)?);
        quad_of(subject, self.named(&pattern.predicate)?, object, self.graph(&pattern.graph_name)?)
    }
}
