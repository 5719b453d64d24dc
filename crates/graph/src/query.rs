//! SPARQL queries on a snapshot.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Term, Triple, Variable};
use spareval::{QueryEvaluationError, QueryResults, QuerySolutionIter, QueryTripleIter};
use spargebra::algebra::{GraphPattern, QueryDataset};
use spargebra::{Query as Algebra, SparqlParser};

use crate::dataset::Snapshot;
use crate::depth::is_too_deep;
use crate::direct::{Direct, DirectRows};
use crate::error::{GraphError, Limit};
use crate::guard::PatternGuard;
use crate::limits::{EvaluationMeter, QueryLimits};
use crate::nature::{Nature, own_names, with_numbers};
use crate::rights::GraphList;
use crate::syntax::{star_order, words};
use crate::text;
use crate::view::{MERGED, SnapshotView};

/// One row of a result: a value for each variable, where it has one.
pub type Row = Arc<[Option<Term>]>;

/// A query that was parsed and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// As the parser gave it.
    pub(crate) algebra: Algebra,
    /// As it is evaluated.
    guarded: Algebra,
    guard: PatternGuard,
    /// The short way to its answer, if there is one.
    direct: Option<Direct>,
    /// The client's own names that look like those that the parser makes up, which are others each time. None if any name
    /// may be the client's own.
    pub(crate) own_names: Option<BTreeSet<String>>,
    /// The graphs that it may find where it does not name them; all, if nothing is said.
    readable: Option<Arc<GraphList>>,
    pub(crate) nature: Nature,
}

impl Query {
    /// Reads a query. Its cost is bounded by the limits, whatever the text.
    pub fn parse(text: &str, limits: &QueryLimits) -> Result<Self, GraphError> {
        Self::parse_at(text, None, limits)
    }

    /// The same, with a base for relative IRIs.
    pub fn parse_at(text: &str, base: Option<&str>, limits: &QueryLimits) -> Result<Self, GraphError> {
        let mut query = Self::new(parse_algebra(text, base, limits)?, limits)?;
        query.own_names = own_names(text);
        Ok(query)
    }

    pub(crate) fn new(algebra: Algebra, limits: &QueryLimits) -> Result<Self, GraphError> {
        if is_too_deep(pattern_of(&algebra)) {
            return Err(Limit::AlgebraDepth.into());
        }
        let mut guarded = algebra.clone();
        let guard = PatternGuard::pattern(pattern_mut(&mut guarded), limits.value_bytes_max)?;
        let (direct, nature) = (Direct::of(&algebra), Nature::of(pattern_of(&algebra)));
        Ok(Self { algebra, guarded, guard, direct, own_names: None, readable: None, nature })
    }

    /// The same query on these graphs, as the protocol's `default-graph-uri` and `named-graph-uri` say. They replace
    /// `FROM` and `FROM NAMED`.
    #[must_use]
    pub fn on_graphs(mut self, default: Vec<NamedNode>, named: Vec<NamedNode>) -> Self {
        let graphs = QueryDataset { default, named: Some(named) };
        for algebra in [&mut self.algebra, &mut self.guarded] {
            *dataset_mut(algebra) = Some(graphs.clone());
        }
        self.direct = None;
        self
    }

    /// The same query in other words.
    pub(crate) fn with_algebra(self, algebra: Algebra, limits: &QueryLimits) -> Result<Self, GraphError> {
        Ok(Self { own_names: self.own_names, ..Self::new(algebra, limits)? })
    }

    /// The same query, which finds no other graphs than these where it does not name them.
    pub(crate) fn reading_only(self, readable: Option<Arc<GraphList>>) -> Self {
        Self { readable, ..self }
    }

    /// The same graphs as another query.
    pub(crate) fn reading_as(self, other: &Self) -> Self {
        self.reading_only(other.readable.clone())
    }

    /// Whether it reads the graphs of the dataset as they are.
    pub(crate) fn is_of_all_graphs(&self) -> bool {
        self.dataset().is_none() && self.readable.is_none()
    }

    pub(crate) fn pattern(&self) -> &GraphPattern {
        pattern_of(&self.algebra)
    }

    /// One text for all spellings: equal texts mean equal queries.
    pub fn canonical(&self) -> String {
        let algebra = self.algebra.to_string();
        let mut text = match &self.own_names {
            Some(own) => with_numbers(algebra, own),
            None => algebra,
        };
        if let Some(readable) = &self.readable {
            // As a comment, because it is shown to people.
            let _ = write!(text, " # {readable:?}");
        }
        text
    }

    #[cfg(test)]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    pub(crate) fn dataset(&self) -> Option<&QueryDataset> {
        self.algebra.dataset()
    }

    /// Starts the evaluation; rows come as they are asked for.
    pub fn run<'a>(&self, snapshot: &'a Snapshot, limits: &QueryLimits) -> Result<QueryAnswer<'a>, GraphError> {
        self.run_metered(snapshot, limits, &EvaluationMeter::new(limits))
    }

    pub(crate) fn run_metered<'a>(
        &self,
        snapshot: &'a Snapshot,
        limits: &QueryLimits,
        meter: &Rc<EvaluationMeter>,
    ) -> Result<QueryAnswer<'a>, GraphError> {
        let left = ResultAllowance {
            meter: Rc::clone(meter),
            rows: limits.rows_max,
            bytes: limits.result_bytes_max,
            ended: false,
        };
        if let Some(direct) = &self.direct {
            return Ok(QueryAnswer::Rows(SelectRows {
                rows: RowSource::Direct(Box::new(direct.run(snapshot, meter))),
                left,
            }));
        }
        let evaluator = self.guard.evaluator(meter, limits.value_bytes_max);
        let mut prepared = evaluator.prepare(&self.guarded);
        let mut view = SnapshotView::new(snapshot, Rc::clone(meter), self.readable.as_ref());
        if let Some(graphs) = self.dataset().filter(|graphs| graphs.default.len() > 1) {
            // The evaluator would give a triple once for each graph it is in; a merge gives it once.
            view.merge(&graphs.default);
            prepared.dataset_mut().set_default_graph(vec![GraphName::from(BlankNode::new_unchecked(MERGED))]);
        }
        let outcome = prepared.execute(view);
        meter.verdict()?;
        Ok(match outcome.map_err(translate)? {
            QueryResults::Solutions(rows) => QueryAnswer::Rows(SelectRows { rows: RowSource::Evaluated(rows), left }),
            QueryResults::Boolean(answer) => QueryAnswer::Boolean(answer),
            QueryResults::Graph(triples) => QueryAnswer::Triples(Triples { triples, left }),
        })
    }
}

/// What a text says, before it is judged.
pub(crate) fn parse_algebra(text: &str, base: Option<&str>, limits: &QueryLimits) -> Result<Algebra, GraphError> {
    text::check(text, base, limits)?;
    let parsed = parser(base)?.parse_query(text);
    let mut algebra = parsed.map_err(|error| GraphError::Syntax(words(&error.to_string(), text)))?;
    if let (Algebra::Select { pattern, .. }, Some(places)) = (&mut algebra, star_order(text))
        && let Some(columns) = columns_mut(pattern)
    {
        // The parser gives the columns of a star by the alphabet.
        columns.sort_by_key(|name| places.get(name.as_str()).copied().unwrap_or(usize::MAX));
    }
    Ok(algebra)
}

pub(crate) fn parser(base: Option<&str>) -> Result<SparqlParser, GraphError> {
    let parser = SparqlParser::new();
    match base {
        Some(base) => parser.with_base_iri(base).map_err(|error| GraphError::Syntax(error.to_string())),
        None => Ok(parser),
    }
}

pub(crate) fn pattern_of(algebra: &Algebra) -> &GraphPattern {
    match algebra {
        Algebra::Select { pattern, .. }
        | Algebra::Construct { pattern, .. }
        | Algebra::Describe { pattern, .. }
        | Algebra::Ask { pattern, .. } => pattern,
    }
}

pub(crate) fn pattern_mut(algebra: &mut Algebra) -> &mut GraphPattern {
    match algebra {
        Algebra::Select { pattern, .. }
        | Algebra::Construct { pattern, .. }
        | Algebra::Describe { pattern, .. }
        | Algebra::Ask { pattern, .. } => pattern,
    }
}

pub(crate) fn is_describe(algebra: &Algebra) -> bool {
    matches!(algebra, Algebra::Describe { .. })
}

/// The columns that a `SELECT` names, or its star stands for.
fn columns_mut(pattern: &mut GraphPattern) -> Option<&mut Vec<Variable>> {
    match pattern {
        GraphPattern::Project { variables, .. } => Some(variables),
        GraphPattern::Distinct { inner } | GraphPattern::Reduced { inner } | GraphPattern::Slice { inner, .. } => {
            columns_mut(inner)
        }
        _ => None,
    }
}

pub(crate) fn dataset_mut(algebra: &mut Algebra) -> &mut Option<QueryDataset> {
    match algebra {
        Algebra::Select { dataset, .. }
        | Algebra::Construct { dataset, .. }
        | Algebra::Describe { dataset, .. }
        | Algebra::Ask { dataset, .. } => dataset,
    }
}

pub(crate) fn translate(error: QueryEvaluationError) -> GraphError {
    match error {
        QueryEvaluationError::Dataset(inner) => match inner.downcast::<GraphError>() {
            Ok(error) => *error,
            Err(other) => GraphError::Evaluation(other.to_string()),
        },
        QueryEvaluationError::Cancelled => GraphError::Cancelled,
        other => GraphError::Evaluation(other.to_string()),
    }
}

/// What a query answers.
pub enum QueryAnswer<'a> {
    /// `SELECT`.
    Rows(SelectRows<'a>),
    /// `ASK`.
    Boolean(bool),
    /// `CONSTRUCT` and `DESCRIBE`.
    Triples(Triples<'a>),
}

/// What may still be returned.
struct ResultAllowance {
    meter: Rc<EvaluationMeter>,
    rows: usize,
    bytes: usize,
    ended: bool,
}

impl ResultAllowance {
    /// Passes an item on if the limits allow. After an error there is nothing more, and a result that a limit cut short
    /// ends with that error, never as if it were whole.
    fn pass<T>(
        &mut self,
        item: Option<Result<T, GraphError>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Option<Result<T, GraphError>> {
        if self.ended {
            return None;
        }
        let outcome = match (self.meter.verdict(), item) {
            (Err(error), _) | (Ok(()), Some(Err(error))) => Err(error),
            (Ok(()), None) => {
                self.ended = true;
                return None;
            }
            (Ok(()), Some(Ok(item))) => self.charge(bytes(&item)).map(|()| item),
        };
        self.ended = outcome.is_err();
        Some(outcome)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), GraphError> {
        self.rows = self.rows.checked_sub(1).ok_or(Limit::Rows)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Limit::ResultBytes)?;
        Ok(())
    }
}

/// Rows of a `SELECT`.
pub struct SelectRows<'a> {
    rows: RowSource<'a>,
    left: ResultAllowance,
}

/// Where rows are from.
enum RowSource<'a> {
    Evaluated(QuerySolutionIter<'a>),
    Direct(Box<DirectRows<'a>>),
}

impl Iterator for RowSource<'_> {
    type Item = Result<Row, GraphError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Evaluated(rows) => rows.next().map(|row| row.map(|row| row.values().into()).map_err(translate)),
            Self::Direct(rows) => rows.next(),
        }
    }
}

impl SelectRows<'_> {
    /// The variables, in the order of the values of a row.
    pub fn variables(&self) -> &[Variable] {
        match &self.rows {
            RowSource::Evaluated(rows) => rows.variables(),
            RowSource::Direct(rows) => &rows.variables,
        }
    }
}

impl Iterator for SelectRows<'_> {
    type Item = Result<Row, GraphError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = if self.left.ended { None } else { self.rows.next() };
        self.left.pass(item, |row| row.iter().flatten().map(term_bytes).sum())
    }
}

/// Triples of a `CONSTRUCT` or `DESCRIBE`.
pub struct Triples<'a> {
    triples: QueryTripleIter<'a>,
    left: ResultAllowance,
}

impl Iterator for Triples<'_> {
    type Item = Result<Triple, GraphError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = if self.left.ended { None } else { self.triples.next() };
        let item = item.map(|triple| triple.map_err(translate));
        self.left.pass(item, triple_bytes)
    }
}

/// About the bytes of a triple in memory, whichever of its terms is the long one.
fn triple_bytes(triple: &Triple) -> usize {
    let subject = match &triple.subject {
        NamedOrBlankNode::NamedNode(node) => node.as_str().len(),
        NamedOrBlankNode::BlankNode(node) => node.as_str().len(),
    };
    let kind = match &triple.object {
        Term::Literal(literal) => literal.language().map_or_else(|| literal.datatype().as_str().len(), str::len),
        _ => 0,
    };
    subject + triple.predicate.as_str().len() + kind + term_bytes(&triple.object) + 64
}

/// About the bytes of a term in memory.
pub(crate) fn term_bytes(term: &Term) -> usize {
    let text = match term {
        Term::NamedNode(node) => node.as_str().len(),
        Term::BlankNode(node) => node.as_str().len(),
        Term::Literal(literal) => literal.value().len(),
    };
    text + size_of::<Term>()
}
