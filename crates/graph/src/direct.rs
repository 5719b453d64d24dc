//! Queries of one triple pattern, answered from the index. They are what most point queries and most `WHERE`s of updates
//! are, and to plan and prepare them costs more than to read the few quads they match.

use std::rc::Rc;

use oxrdf::{TermRef, Variable};
use spargebra::Query as Algebra;
use spargebra::algebra::GraphPattern;
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::dataset::Snapshot;
use crate::error::GraphError;
use crate::index::{IdPattern, InGraph, IndexScan, Quad};
use crate::limits::EvaluationMeter;
use crate::query::Row;

/// A query that can be answered so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Direct {
    pattern: TriplePattern,
    /// The columns, and where each is in a quad; nowhere if the pattern does not have it.
    variables: Vec<Variable>,
    places: Vec<Option<TriplePosition>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TriplePosition {
    Subject,
    Predicate,
    Object,
}

impl Direct {
    /// If it is a `SELECT` of one pattern of the default graph, in which no variable comes twice.
    pub(crate) fn of(algebra: &Algebra) -> Option<Self> {
        let Algebra::Select { dataset: None, pattern, .. } = algebra else { return None };
        let (inner, chosen) = match pattern {
            GraphPattern::Project { inner, variables } => (&**inner, Some(variables.clone())),
            other => (other, None),
        };
        let GraphPattern::Bgp { patterns } = inner else { return None };
        let [pattern] = &patterns[..] else { return None };
        let named = [
            (TriplePosition::Subject, variable(&pattern.subject)),
            (
                TriplePosition::Predicate,
                if let NamedNodePattern::Variable(name) = &pattern.predicate { Some(name) } else { None },
            ),
            (TriplePosition::Object, variable(&pattern.object)),
        ];
        let open: Vec<(TriplePosition, &Variable)> =
            named.into_iter().filter_map(|(place, name)| Some((place, name?))).collect();
        let labels = [&pattern.subject, &pattern.object].map(|term| matches!(term, TermPattern::BlankNode(_)));
        let is_twice = open.iter().enumerate().any(|(at, (_, name))| open[..at].iter().any(|(_, other)| other == name));
        if is_twice || labels == [true, true] {
            return None;
        }
        let variables = chosen.unwrap_or_else(|| open.iter().map(|(_, name)| (*name).clone()).collect());
        let place = |name: &Variable| open.iter().find(|(_, other)| *other == name).map(|(place, _)| *place);
        let places = variables.iter().map(place).collect();
        Some(Self { pattern: pattern.clone(), variables, places })
    }

    pub(crate) fn run<'a>(&self, snapshot: &'a Snapshot, meter: &Rc<EvaluationMeter>) -> DirectRows<'a> {
        let scan = self.bound(snapshot).map(|pattern| snapshot.scan(pattern));
        let (variables, places) = (self.variables.clone(), self.places.clone());
        DirectRows { scan, snapshot, variables, places, meter: Rc::clone(meter) }
    }

    /// The pattern in the numbers of a snapshot. None if it has a term that the snapshot has not.
    fn bound(&self, snapshot: &Snapshot) -> Option<IdPattern> {
        let find = |term: TermRef<'_>| snapshot.terms.find(term).map(Some);
        let term = |pattern: &TermPattern| match pattern {
            TermPattern::NamedNode(node) => find(node.as_ref().into()),
            TermPattern::Literal(literal) => find(literal.as_ref().into()),
            // A blank node in a pattern is a variable without a name.
            TermPattern::BlankNode(_) | TermPattern::Variable(_) => Some(None),
        };
        let predicate = match &self.pattern.predicate {
            NamedNodePattern::NamedNode(node) => find(node.as_ref().into())?,
            NamedNodePattern::Variable(_) => None,
        };
        let (subject, object) = (term(&self.pattern.subject)?, term(&self.pattern.object)?);
        Some(IdPattern { graph: InGraph::One(0), subject, predicate, object })
    }
}

fn variable(term: &TermPattern) -> Option<&Variable> {
    if let TermPattern::Variable(name) = term { Some(name) } else { None }
}

/// The rows of one.
pub(crate) struct DirectRows<'a> {
    scan: Option<IndexScan<'a>>,
    snapshot: &'a Snapshot,
    pub(crate) variables: Vec<Variable>,
    places: Vec<Option<TriplePosition>>,
    meter: Rc<EvaluationMeter>,
}

impl DirectRows<'_> {
    fn row(&self, quad: Quad) -> Row {
        let term = |place: &Option<TriplePosition>| {
            let id = match (*place)? {
                TriplePosition::Subject => quad.subject,
                TriplePosition::Predicate => quad.predicate,
                TriplePosition::Object => quad.object,
            };
            self.snapshot.terms.term(id)
        };
        self.places.iter().map(term).collect()
    }
}

impl Iterator for DirectRows<'_> {
    type Item = Result<Row, GraphError>;

    fn next(&mut self) -> Option<Self::Item> {
        let quad = self.scan.as_mut()?.next()?;
        Some(self.meter.step().map(|()| self.row(quad)))
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::QueryLimits;
    use crate::query::{Query, QueryAnswer};
    use crate::space::{GraphSpace, SpaceLimits};
    use crate::update::Update;

    /// Whether it is answered directly, and the answer as sorted text.
    fn answer(space: &GraphSpace, text: &str) -> (bool, Vec<String>) {
        let limits = QueryLimits::default();
        let query = Query::parse(text, &limits).unwrap();
        let snapshot = space.snapshot();
        let QueryAnswer::Rows(rows) = query.run(&snapshot, &limits).unwrap() else { panic!("no rows") };
        let mut rows: Vec<String> = rows.map(|row| format!("{:?}", row.unwrap())).collect();
        rows.sort();
        (query.is_direct(), rows)
    }

    #[test]
    fn what_is_answered_directly_is_what_the_evaluator_answers() {
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        let data = "INSERT DATA { <urn:a> <urn:p> 1, 2, <urn:a> . <urn:b> <urn:p> 'x'@en . _:n <urn:q> 01 . \
                    GRAPH <urn:g> { <urn:a> <urn:p> 9 } }";
        space.update(&Update::parse(data, &QueryLimits::default()).unwrap(), &QueryLimits::default()).unwrap();
        for pattern in [
            "<urn:a> <urn:p> ?o",
            "?s <urn:p> 2",
            "?s ?p ?o",
            "[] ?p ?o",
            "<urn:a> ?p <urn:a>",
            "?s <urn:q> 1",
            "<urn:none> ?p ?o",
            "<urn:a> <urn:p> 1",
        ] {
            for head in ["*", "?o ?s", "?missing ?o"] {
                let (is_direct, direct) = answer(&space, &format!("SELECT {head} {{ {pattern} }}"));
                assert!(is_direct, "{head} {pattern}");
                // A filter that is always true sends it the other way.
                let (is_direct, other) = answer(&space, &format!("SELECT {head} {{ {pattern} FILTER(1 = 1) }}"));
                assert!(!is_direct);
                assert_eq!(direct, other, "{head} {pattern}");
            }
        }
    }

    #[test]
    fn everything_else_goes_to_the_evaluator() {
        let space = GraphSpace::new(1, SpaceLimits::default());
        for text in [
            "SELECT * { ?s ?p ?s }",
            "SELECT * { ?s ?p ?o . ?o ?q ?r }",
            "SELECT * { GRAPH <urn:g> { ?s ?p ?o } }",
            "SELECT * FROM <urn:g> { ?s ?p ?o }",
            "SELECT DISTINCT ?s { ?s ?p ?o }",
            "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
            "SELECT * { ?s ?p ?o } LIMIT 1",
            "SELECT ?p { _:b ?p _:b }",
        ] {
            assert!(!answer(&space, text).0, "{text}");
        }
    }
}
