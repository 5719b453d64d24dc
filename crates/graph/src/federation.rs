//! Queries with `SERVICE`: what is to be asked of other endpoints, and the query that is left when they have answered.
//!
//! ```text
//! SELECT * { ?lamp :in ?room SERVICE <http://e.test/sparql> { ?room :floor ?floor } }
//!   clause  <http://e.test/sparql>   SELECT ?room ?floor WHERE { ?room :floor ?floor }
//!   rows    the answer               in the place of the clause, as VALUES
//! ```
//! What a clause gives does not depend on the rest of the query, so that it can be asked before; and what has its rows as values
//! is an ordinary query, with every limit of those. Asking is for whoever has sockets: here nobody is asked. Blank nodes of another
//! endpoint become names that nobody else has, because values have none.

use oxrdf::{NamedNode, Term, Variable};
use spargebra::Query as Algebra;
use spargebra::algebra::GraphPattern;
use spargebra::term::{GroundTerm, NamedNodePattern};

use crate::algebra::{AlgebraVisitor, walk};
use crate::depth::is_too_deep;
use crate::error::{GraphError, Limit, QueryRefusal};
use crate::limits::QueryLimits;
use crate::nature::own_names;
use crate::query::{Query, parse_algebra, pattern_mut, pattern_of};

/// A query that asks other endpoints.
#[derive(Clone, Debug)]
pub struct FederatedQuery {
    text: String,
    algebra: Algebra,
    clauses: Vec<ServiceClause>,
}

/// What is asked of another endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceClause {
    /// The name of the endpoint.
    pub endpoint: NamedNode,
    /// The query for it.
    pub query: String,
    /// If it cannot be asked, that is as if it had said nothing.
    pub is_silent: bool,
}

/// What another endpoint has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRows {
    /// The columns.
    pub variables: Vec<Variable>,
    /// A value for each column, where it has one.
    pub rows: Vec<Vec<Option<Term>>>,
}

impl FederatedQuery {
    /// Reads a query that has `SERVICE` in it. Endpoints have to be named, and none is asked to ask another.
    pub fn parse(text: &str, limits: &QueryLimits) -> Result<Self, GraphError> {
        let mut algebra = parse_algebra(text, None, limits)?;
        if is_too_deep(pattern_of(&algebra)) {
            return Err(Limit::AlgebraDepth.into());
        }
        let mut found = ClauseFinder::default();
        walk(pattern_mut(&mut algebra), &mut found);
        match found.refusal {
            Some(refusal) => Err(GraphError::Refused(refusal)),
            None => Ok(Self { text: text.to_owned(), algebra, clauses: found.clauses }),
        }
    }

    /// What is to be asked, and where.
    pub fn clauses(&self) -> &[ServiceClause] {
        &self.clauses
    }

    /// The query with the rows of its clauses, in their order; none are those of a silent one that was not answered.
    pub fn with_rows(mut self, rows: Vec<Option<ServiceRows>>, limits: &QueryLimits) -> Result<Query, GraphError> {
        let mut fill = ClauseFiller { rows: rows.into_iter(), number: 0 };
        walk(pattern_mut(&mut self.algebra), &mut fill);
        let mut query = Query::new(self.algebra, limits)?;
        query.own_names = own_names(&self.text);
        // Other endpoints change without a word.
        query.nature.is_fickle = true;
        Ok(query)
    }
}

#[derive(Default)]
struct ClauseFinder {
    clauses: Vec<ServiceClause>,
    refusal: Option<QueryRefusal>,
}

impl AlgebraVisitor for ClauseFinder {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        let GraphPattern::Service { name, inner, silent } = pattern else { return };
        let NamedNodePattern::NamedNode(endpoint) = name else {
            self.refusal = Some(QueryRefusal::ServiceVariable);
            return;
        };
        let mut nested = ClauseFinder::default();
        walk(&mut inner.clone(), &mut nested);
        if !nested.clauses.is_empty() || nested.refusal.is_some() {
            self.refusal = Some(QueryRefusal::ServiceNested);
        }
        let mut variables: Vec<Variable> = Vec::new();
        inner.on_in_scope_variable(|name| {
            if !variables.contains(name) {
                variables.push(name.clone());
            }
        });
        let pattern = GraphPattern::Project { inner: inner.clone(), variables };
        let query = Algebra::Select { dataset: None, pattern, base_iri: None }.to_string();
        self.clauses.push(ServiceClause { endpoint: endpoint.clone(), query, is_silent: *silent });
    }
}

struct ClauseFiller<I> {
    rows: I,
    number: usize,
}

impl<I: Iterator<Item = Option<ServiceRows>>> AlgebraVisitor for ClauseFiller<I> {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        if !matches!(pattern, GraphPattern::Service { .. }) {
            return;
        }
        self.number += 1;
        let number = self.number;
        *pattern = match self.rows.next().flatten() {
            None => GraphPattern::Bgp { patterns: Vec::new() },
            Some(ServiceRows { variables, rows }) => {
                let value = |term: Option<Term>| term.map(|term| ground(term, number));
                let bindings = rows.into_iter().map(|row| row.into_iter().map(value).collect()).collect();
                GraphPattern::Values { variables, bindings }
            }
        };
    }
}

/// A blank node is that of its answer, and of no other.
fn ground(term: Term, number: usize) -> GroundTerm {
    match term {
        Term::NamedNode(node) => GroundTerm::NamedNode(node),
        Term::Literal(literal) => GroundTerm::Literal(literal),
        Term::BlankNode(node) => {
            GroundTerm::NamedNode(NamedNode::new_unchecked(format!("{BLANK}{number}:{}", node.as_str())))
        }
    }
}

/// What the name of a blank node of another endpoint begins with.
const BLANK: &str = "urn:tidegate:blank:";

#[cfg(test)]
mod tests {
    use oxrdf::{BlankNode, Literal};

    use super::*;
    use crate::query::QueryAnswer;
    use crate::space::{GraphSpace, SpaceLimits};
    use crate::update::Update;

    fn parse(text: &str) -> Result<FederatedQuery, GraphError> {
        FederatedQuery::parse(text, &QueryLimits::default())
    }

    fn space() -> GraphSpace {
        let (mut space, limits) = (GraphSpace::new(1, SpaceLimits::default()), QueryLimits::default());
        let data = "INSERT DATA { <urn:lamp1> <urn:in> <urn:kitchen> . <urn:lamp2> <urn:in> <urn:hall> }";
        space.update(&Update::parse(data, &limits).unwrap(), &limits).unwrap();
        space
    }

    /// The rows of a query after its clause was answered so.
    fn answered(text: &str, rows: Option<ServiceRows>) -> Vec<String> {
        let limits = QueryLimits::default();
        let query = parse(text).unwrap().with_rows(vec![rows], &limits).unwrap();
        assert!(!query.is_repeatable());
        let snapshot = space().snapshot();
        let Ok(QueryAnswer::Rows(rows)) = query.run(&snapshot, &limits) else { panic!("no rows") };
        let text = |row: crate::Row| {
            let value = |term: &Option<Term>| term.as_ref().map_or("-".to_owned(), ToString::to_string);
            row.iter().map(value).collect::<Vec<_>>().join(" ")
        };
        let mut all: Vec<String> = rows.map(|row| text(row.unwrap())).collect();
        all.sort();
        all
    }

    fn floors() -> ServiceRows {
        let variables = vec![Variable::new_unchecked("room"), Variable::new_unchecked("floor")];
        let row = |room: &str, floor: i64| {
            vec![Some(NamedNode::new_unchecked(room).into()), Some(Literal::from(floor).into())]
        };
        ServiceRows { variables, rows: vec![row("urn:kitchen", 1), row("urn:cellar", -1)] }
    }

    const TEXT: &str =
        "SELECT ?lamp ?floor { ?lamp <urn:in> ?room SERVICE <http://e.test/sparql> { ?room <urn:floor> ?floor } }";

    #[test]
    fn a_clause_is_a_query_of_its_own_and_its_rows_are_joined() {
        let parsed = parse(TEXT).unwrap();
        let [clause] = parsed.clauses() else { panic!("{:?}", parsed.clauses()) };
        assert_eq!((clause.endpoint.as_str(), clause.is_silent), ("http://e.test/sparql", false));
        let sent = Query::parse(&clause.query, &QueryLimits::default()).unwrap();
        assert_eq!(sent.variables().map(|it| it.len()), Some(2), "{}", clause.query);
        let one = "<urn:lamp1> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer>";
        assert_eq!(answered(TEXT, Some(floors())), [one]);
        let optional = TEXT.replace("SERVICE", "OPTIONAL { SERVICE").replace("} }", "} } }");
        assert_eq!(answered(&optional, Some(floors())), [one, "<urn:lamp2> -"]);
        assert!(answered(TEXT, Some(ServiceRows::default())).is_empty());
    }

    #[test]
    fn a_silent_clause_without_an_answer_says_nothing() {
        let silent = TEXT.replace("SERVICE", "SERVICE SILENT");
        assert!(parse(&silent).unwrap().clauses()[0].is_silent);
        assert_eq!(answered(&silent, None), ["<urn:lamp1> -", "<urn:lamp2> -"]);
    }

    #[test]
    fn blank_nodes_of_one_answer_are_the_same_and_of_two_are_not() {
        let text = "SELECT ?a ?b { SERVICE <http://e.test/> { ?a <urn:p> ?b } }";
        let node: Term = BlankNode::new_unchecked("x").into();
        let variables = vec![Variable::new_unchecked("a"), Variable::new_unchecked("b")];
        let rows = vec![vec![Some(node.clone()), Some(node)]];
        let found = answered(text, Some(ServiceRows { variables, rows }));
        assert_eq!(found, ["<urn:tidegate:blank:1:x> <urn:tidegate:blank:1:x>"]);
    }

    #[test]
    fn an_endpoint_has_a_name_and_asks_no_other() {
        let refused = |text: &str| match parse(text) {
            Err(GraphError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("SELECT * { ?s ?p ?x SERVICE ?x { ?s ?p ?o } }"), QueryRefusal::ServiceVariable);
        let nested = "SELECT * { SERVICE <http://a.test/> { SERVICE <http://b.test/> { ?s ?p ?o } } }";
        assert_eq!(refused(nested), QueryRefusal::ServiceNested);
        assert!(parse("SELECT * { ?s ?p ?o }").unwrap().clauses().is_empty());
        let within = "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE <http://a.test/> { ?s ?p 1 } } }";
        assert_eq!(parse(within).unwrap().clauses().len(), 1);
    }
}
