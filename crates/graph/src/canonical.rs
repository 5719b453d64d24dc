//! Queries that are equal but for the names of their variables and the order of their triple patterns have one form.
//!
//! The effort is bounded: patterns are ordered by what is known of their variables after two looks at each pattern, and
//! where that does not tell two of them apart they stay as they were written. So equal queries may have different
//! forms, which costs an evaluation. Different queries never have one form: it is the query itself, with other names,
//! and with the patterns of each basic graph pattern, whose solutions have no order, in another order. What is cut
//! (`LIMIT`, `OFFSET`) keeps the order in which it was written, because whoever turns pages relies on it.
//!
//! A query is *plain* if it is a projection of one basic graph pattern. The rows of a plain query contain the answer to
//! each that has a constant in place of one of its columns: for every solution with that constant there, as often as it is
//! one, there is a row, and what is left of the row is the solution's row there. Terms are compared as terms, which is how
//! patterns compare them, too.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use oxrdf::{BlankNode, Term, Variable};
use spargebra::Query as Algebra;
use spargebra::algebra::{Expression, GraphPattern};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::algebra::{AlgebraVisitor, walk};
use crate::query::{Query, pattern_mut, pattern_of};

/// Patterns of a basic graph pattern that are put into an order; a longer one stays as it is.
const ORDERED_MAX: usize = 16;
/// Constants of a query that are tried in place of a column.
const FREED_MAX: usize = 3;

/// One form for equal queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalQuery {
    /// What is asked, without names. Of a plain query its pattern alone. Equal ones hash equally.
    pub question: CanonicalPattern,
    /// The number that each column has there, in the order of the columns. Of queries that are no `SELECT` none.
    pub columns: Vec<u32>,
    /// It is the projection of a basic graph pattern of this kind.
    pub plain: Option<PatternKind>,
}

/// The predicates of a basic graph pattern and how many constants it has beside them: what contains another has the same
/// ones, and fewer. Kinds tell which are worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternKind(u64);

/// An algebra whose variables have numbers instead of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CanonicalPattern(Algebra);

/// A plain query with a variable in place of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreedQuery {
    /// The pattern with the variable.
    pub question: CanonicalPattern,
    /// The numbers of the query's own columns.
    pub columns: Vec<u32>,
    /// The number of the variable.
    pub freed: u32,
    /// The constant.
    pub value: Term,
}

impl Query {
    /// The form of all queries that are equal to this one but for names and order.
    pub fn canonical_form(&self) -> CanonicalQuery {
        if let Some((patterns, columns)) = self.plain() {
            let (question, mut numbers) = pattern_form(patterns.to_vec());
            let columns = columns.iter().map(|name| numbers.of_variable(name)).collect();
            let kind = PatternKind::of(patterns, |_| true);
            return CanonicalQuery { question, columns, plain: Some(kind) };
        }
        let mut algebra = self.algebra.clone();
        let mut shape = PatternSort::default();
        walk(pattern_mut(&mut algebra), &mut shape);
        if !shape.is_cut {
            shape.sort(pattern_mut(&mut algebra));
        }
        let mut numbers = NameNumbers::default();
        walk(pattern_mut(&mut algebra), &mut numbers);
        if let Algebra::Construct { template, .. } = &mut algebra {
            for pattern in template {
                numbers.triple(pattern);
            }
        }
        let columns = self.variables().unwrap_or_default();
        let columns = columns.iter().map(|name| numbers.of_variable(name)).collect();
        CanonicalQuery { question: CanonicalPattern(algebra), columns, plain: None }
    }

    /// Plain queries that contain the answer to this one, if it is plain itself, and if their kind is known.
    pub fn freed(&self, is_known: impl Fn(PatternKind) -> bool) -> Vec<FreedQuery> {
        let Some((patterns, columns)) = self.plain() else { return Vec::new() };
        let mut constants: Vec<&TermPattern> = Vec::new();
        for term in patterns.iter().flat_map(|pattern| [&pattern.subject, &pattern.object]) {
            let is_constant = matches!(term, TermPattern::NamedNode(_) | TermPattern::Literal(_));
            if is_constant && constants.len() < FREED_MAX && !constants.contains(&term) {
                constants.push(term);
            }
        }
        // No variable that can be written has a space.
        let free = Variable::new_unchecked("free one");
        let freed = |constant: &TermPattern| {
            let value = match constant {
                TermPattern::NamedNode(node) => Term::from(node.clone()),
                TermPattern::Literal(literal) => literal.clone().into(),
                TermPattern::BlankNode(_) | TermPattern::Variable(_) => return None,
            };
            if !is_known(PatternKind::without(patterns, constant)) {
                return None;
            }
            let mut patterns = patterns.to_vec();
            for term in patterns.iter_mut().flat_map(|pattern| [&mut pattern.subject, &mut pattern.object]) {
                if term == constant {
                    *term = free.clone().into();
                }
            }
            let (question, numbers) = pattern_form(patterns);
            let columns = columns.iter().map(|name| numbers.known(name)).collect::<Option<_>>()?;
            Some(FreedQuery { question, columns, freed: numbers.known(&free)?, value })
        };
        constants.into_iter().filter_map(freed).collect()
    }

    /// The patterns and columns of a plain query.
    fn plain(&self) -> Option<(&[TriplePattern], &[Variable])> {
        if let (Algebra::Select { .. }, None) = (&self.algebra, self.dataset())
            && let GraphPattern::Project { inner, variables } = pattern_of(&self.algebra)
            && let GraphPattern::Bgp { patterns } = &**inner
        {
            return Some((patterns, variables));
        }
        None
    }
}

impl PatternKind {
    /// Of patterns in which these constants count.
    fn of(patterns: &[TriplePattern], counts: impl Fn(&TermPattern) -> bool) -> Self {
        let (mut predicates, mut constants) = (0u64, 0usize);
        for pattern in patterns {
            // In any order.
            predicates = predicates.wrapping_add(FixedState::default().hash_one(match &pattern.predicate {
                NamedNodePattern::NamedNode(node) => node.as_str(),
                NamedNodePattern::Variable(_) => "",
            }));
            let terms = [&pattern.subject, &pattern.object].into_iter();
            constants += terms.filter(|term| name_of(term).is_none() && counts(term)).count();
        }
        Self(FixedState::default().hash_one((predicates, patterns.len(), constants)))
    }

    fn without(patterns: &[TriplePattern], constant: &TermPattern) -> Self {
        Self::of(patterns, |term| term != constant)
    }
}

fn pattern_form(mut patterns: Vec<TriplePattern>) -> (CanonicalPattern, NameNumbers) {
    PatternSort::of(&patterns).order(&mut patterns);
    let mut numbers = NameNumbers::default();
    for pattern in &mut patterns {
        numbers.triple(pattern);
    }
    let algebra = Algebra::Ask { dataset: None, pattern: GraphPattern::Bgp { patterns }, base_iri: None };
    (CanonicalPattern(algebra), numbers)
}

/// Gives each name a number, in the order in which they come.
#[derive(Default)]
struct NameNumbers {
    variables: BTreeMap<String, u32>,
    blanks: BTreeMap<String, u32>,
}

impl NameNumbers {
    fn of_variable(&mut self, name: &Variable) -> u32 {
        let next = self.variables.len() as u32;
        match self.variables.get(name.as_str()) {
            Some(number) => *number,
            None => *self.variables.entry(name.as_str().to_owned()).or_insert(next),
        }
    }

    fn known(&self, name: &Variable) -> Option<u32> {
        self.variables.get(name.as_str()).copied()
    }

    fn variable(&mut self, name: &mut Variable) {
        *name = Variable::new_unchecked(self.of_variable(name).to_string());
    }

    fn term(&mut self, term: &mut TermPattern) {
        match term {
            TermPattern::Variable(name) => self.variable(name),
            TermPattern::BlankNode(node) => {
                let next = self.blanks.len() as u32;
                let number = *self.blanks.entry(node.as_str().to_owned()).or_insert(next);
                *node = BlankNode::new_unchecked(number.to_string());
            }
            TermPattern::NamedNode(_) | TermPattern::Literal(_) => {}
        }
    }

    fn named(&mut self, name: &mut NamedNodePattern) {
        if let NamedNodePattern::Variable(name) = name {
            self.variable(name);
        }
    }

    fn triple(&mut self, pattern: &mut TriplePattern) {
        self.term(&mut pattern.subject);
        self.named(&mut pattern.predicate);
        self.term(&mut pattern.object);
    }
}

impl AlgebraVisitor for NameNumbers {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        match pattern {
            GraphPattern::Bgp { patterns } => patterns.iter_mut().for_each(|pattern| self.triple(pattern)),
            GraphPattern::Path { subject, object, .. } => {
                self.term(subject);
                self.term(object);
            }
            GraphPattern::Graph { name, .. } | GraphPattern::Service { name, .. } => self.named(name),
            GraphPattern::Extend { variable, .. } => self.variable(variable),
            GraphPattern::Values { variables, .. } => variables.iter_mut().for_each(|name| self.variable(name)),
            GraphPattern::Group { variables, aggregates, .. } => {
                let made = aggregates.iter_mut().map(|(name, _)| name);
                for name in variables.iter_mut().chain(made) {
                    self.variable(name);
                }
            }
            GraphPattern::Project { variables, .. } => {
                let mut numbers: Vec<u32> = variables.iter().map(|name| self.of_variable(name)).collect();
                // The order of columns is put back for whoever asks.
                numbers.sort_unstable();
                *variables = numbers.iter().map(|number| Variable::new_unchecked(number.to_string())).collect();
            }
            GraphPattern::Join { .. }
            | GraphPattern::LeftJoin { .. }
            | GraphPattern::Lateral { .. }
            | GraphPattern::Filter { .. }
            | GraphPattern::Union { .. }
            | GraphPattern::Minus { .. }
            | GraphPattern::OrderBy { .. }
            | GraphPattern::Distinct { .. }
            | GraphPattern::Reduced { .. }
            | GraphPattern::Slice { .. } => {}
        }
    }

    fn expression(&mut self, expression: &mut Expression) {
        if let Expression::Variable(name) | Expression::Bound(name) = expression {
            self.variable(name);
        }
    }
}

/// Puts patterns into an order that does not depend on names: what is known of a variable is where it stands, and
/// beside what.
#[derive(Default)]
struct PatternSort {
    is_cut: bool,
    patterns: Vec<TriplePattern>,
    known: BTreeMap<String, u64>,
}

impl AlgebraVisitor for PatternSort {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        match pattern {
            GraphPattern::Slice { .. } => self.is_cut = true,
            GraphPattern::Bgp { patterns } if patterns.len() <= ORDERED_MAX => {
                self.patterns.extend_from_slice(patterns);
            }
            _ => {}
        }
    }
}

impl PatternSort {
    fn of(patterns: &[TriplePattern]) -> Self {
        let mut sort = Self::default();
        if (2..=ORDERED_MAX).contains(&patterns.len()) {
            sort.patterns.extend_from_slice(patterns);
            sort.look();
        }
        sort
    }

    fn sort(&mut self, pattern: &mut GraphPattern) {
        if self.patterns.len() < 2 {
            return;
        }
        self.look();
        walk(pattern, &mut PatternOrder(self));
    }

    /// Two looks: at what stands beside a variable, and at what stands beside that.
    fn look(&mut self) {
        for _ in 0..2 {
            let mut next = BTreeMap::new();
            for pattern in &self.patterns {
                let sign = self.sign(pattern);
                for (place, name) in places(pattern).into_iter().enumerate() {
                    if let Some(name) = name {
                        let seen = next.entry(name.to_owned()).or_insert(0u64);
                        *seen = seen.wrapping_add(FixedState::default().hash_one((sign, place)));
                    }
                }
            }
            self.known = next;
        }
    }

    fn sign(&self, pattern: &TriplePattern) -> u64 {
        let names = places(pattern);
        let known = names.map(|name| name.map(|name| self.known.get(name).copied().unwrap_or(0)));
        // Whether a name comes twice.
        let [subject, predicate, object] = names;
        let is_one = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
        let twice = [is_one(subject, predicate), is_one(subject, object), is_one(predicate, object)];
        let constant = |term: &TermPattern| match term {
            TermPattern::NamedNode(_) | TermPattern::Literal(_) => FixedState::default().hash_one(term),
            TermPattern::BlankNode(_) => 1,
            TermPattern::Variable(_) => 2,
        };
        let predicate = match &pattern.predicate {
            NamedNodePattern::NamedNode(node) => FixedState::default().hash_one(node),
            NamedNodePattern::Variable(_) => 2,
        };
        FixedState::default().hash_one((constant(&pattern.subject), predicate, constant(&pattern.object), known, twice))
    }

    fn order(&self, patterns: &mut [TriplePattern]) {
        if (2..=ORDERED_MAX).contains(&patterns.len()) {
            patterns.sort_by_cached_key(|pattern| self.sign(pattern));
        }
    }
}

struct PatternOrder<'a>(&'a PatternSort);

impl AlgebraVisitor for PatternOrder<'_> {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        if let GraphPattern::Bgp { patterns } = pattern {
            self.0.order(patterns);
        }
    }
}

/// The names in a pattern, by place. A variable and a blank node of one name are taken for one, which only matters to the
/// order.
fn places(pattern: &TriplePattern) -> [Option<&str>; 3] {
    [name_of(&pattern.subject), predicate_name(&pattern.predicate), name_of(&pattern.object)]
}

fn name_of(term: &TermPattern) -> Option<&str> {
    match term {
        TermPattern::Variable(name) => Some(name.as_str()),
        TermPattern::BlankNode(node) => Some(node.as_str()),
        TermPattern::NamedNode(_) | TermPattern::Literal(_) => None,
    }
}

fn predicate_name(name: &NamedNodePattern) -> Option<&str> {
    if let NamedNodePattern::Variable(name) = name { Some(name.as_str()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QueryLimits;

    fn query(text: &str) -> Query {
        Query::parse(text, &QueryLimits::default()).unwrap()
    }

    fn question(text: &str) -> CanonicalPattern {
        query(text).canonical_form().question
    }

    #[test]
    fn names_of_variables_and_the_order_of_patterns_do_not_matter() {
        for (a, b) in [
            ("SELECT ?s ?v { ?s <urn:a> ?v }", "SELECT ?v ?s { ?v <urn:a> ?s }"),
            ("ASK { ?s <urn:a> ?x . ?x <urn:b> ?y }", "ASK { ?b <urn:b> ?c . ?a <urn:a> ?b }"),
            ("ASK { ?s <urn:a> [ <urn:b> ?y ] }", "ASK { _:q <urn:b> ?o . ?i <urn:a> _:q }"),
            (
                "SELECT ?r (AVG(?t) AS ?m) { ?r a <urn:R> ; <urn:t> ?t FILTER(?t > 3) } GROUP BY ?r ORDER BY ?m",
                "SELECT (AVG(?x) AS ?z) ?y { ?y <urn:t> ?x . ?y a <urn:R> FILTER(?x > 3) } GROUP BY ?y ORDER BY ?z",
            ),
            ("CONSTRUCT { ?a <urn:x> ?b } { ?b <urn:y> ?a }", "CONSTRUCT { ?b <urn:x> ?a } { ?a <urn:y> ?b }"),
            (
                "SELECT * { ?a <urn:p> ?b . ?b <urn:p> ?c . ?c <urn:p> <urn:end> }",
                "SELECT * { ?z <urn:p> <urn:end> . ?x <urn:p> ?y . ?y <urn:p> ?z }",
            ),
        ] {
            assert_eq!(question(a), question(b), "{a} {b}");
        }
    }

    #[test]
    fn different_queries_have_different_forms() {
        let all = [
            "SELECT ?s ?v { ?s <urn:a> ?v }",
            "SELECT ?s { ?s <urn:a> ?s }",
            "SELECT ?s { ?s <urn:a> ?v . ?s <urn:b> ?v }",
            "SELECT ?s { ?s <urn:a> ?v . ?v <urn:b> ?s }",
            "SELECT ?s { ?s <urn:a> _:v . _:v <urn:b> ?s }",
            "SELECT DISTINCT ?s { ?s <urn:a> ?v }",
            "SELECT DISTINCT ?v { ?s <urn:a> ?v }",
            "SELECT ?s { ?s <urn:a> ?v } LIMIT 1",
            "SELECT ?v { ?s <urn:a> ?v } LIMIT 1",
            "SELECT ?s { ?s <urn:a> ?v } ORDER BY ?v",
            "SELECT ?s { ?s <urn:a> ?v } ORDER BY ?s",
            "SELECT ?s { ?s <urn:a> ?v FILTER(?v > 1) }",
            "SELECT ?s { ?s <urn:a> ?v FILTER(?s > 1) }",
            "SELECT ?s FROM <urn:g> { ?s <urn:a> ?v }",
            "SELECT ?s { GRAPH ?v { ?s <urn:a> ?v } }",
            "SELECT ?s { ?s <urn:a> ?v . ?s <urn:b> ?w } LIMIT 1",
            "SELECT ?s { ?s <urn:b> ?w . ?s <urn:a> ?v } LIMIT 1",
        ];
        for (n, a) in all.iter().enumerate() {
            for b in &all[..n] {
                assert_ne!(question(a), question(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn columns_are_known_by_number() {
        let columns = |text: &str| query(text).canonical_form().columns;
        let (a, b) = (columns("SELECT ?s ?v { ?s <urn:a> ?v }"), columns("SELECT ?x ?y { ?y <urn:a> ?x }"));
        assert_eq!((a[0], a[1]), (b[1], b[0]));
        assert_eq!(columns("SELECT ?no ?s { ?s <urn:a> 1 }").len(), 2);
        assert!(columns("ASK { ?s ?p ?o }").is_empty());
    }

    #[test]
    fn a_constant_is_freed_only_where_that_is_plain() {
        let general = query("SELECT ?a ?b { ?a <urn:p> ?b }").canonical_form();
        let freed = query("SELECT ?o { <urn:s> <urn:p> ?o }").freed(|kind| Some(kind) == general.plain);
        assert!(freed.iter().any(|one| one.question == general.question));
        for text in [
            "SELECT DISTINCT ?o { <urn:s> <urn:p> ?o }",
            "SELECT ?o { <urn:s> <urn:p> ?o FILTER(?o > 1) }",
            "SELECT ?o { <urn:s> <urn:p> ?o } LIMIT 1",
            "SELECT ?o FROM <urn:g> { <urn:s> <urn:p> ?o }",
            "SELECT ?missing { <urn:s> <urn:p> ?o }",
        ] {
            assert!(query(text).freed(|_| true).is_empty(), "{text}");
        }
    }
}
