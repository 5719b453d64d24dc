//! What kind of query it is, for whoever decides where it waits and whether its answer may be shared.

use std::collections::{BTreeMap, BTreeSet};

use spargebra::Query as Algebra;
use spargebra::algebra::{Expression, Function, GraphPattern};

use crate::algebra::{AlgebraVisitor, walk};
use crate::dataset::Snapshot;
use crate::error::GraphError;
use crate::index::{IdPattern, Quad};
use crate::limits::{EvaluationMeter, QueryLimits};
use crate::masks::{Mask, MaskGraph};
use crate::query::{Query, is_describe};
use crate::restrict::ReadableGraphs;
use crate::text::{Tokens, variable};

/// A query with so many triple patterns, and nothing worse, is cheap.
const CHEAP_PATTERNS: usize = 4;

/// The parser names what has no name (aggregates, brackets) by so many hexadecimal digits of chance, at most.
const INVENTED_DIGITS: std::ops::RangeInclusive<usize> = 20..=32;

/// The names in a text that look like invented ones. None if it has escapes, which could hide more of them; then equal
/// queries may be taken for different ones.
pub(crate) fn own_names(text: &str) -> Option<BTreeSet<String>> {
    (!text.contains('\\')).then(|| after_signs(text).map(str::to_owned).collect())
}

/// The text of an algebra with a number for each name that is not the client's own, in the order in which they appear.
pub(crate) fn with_numbers(algebra: String, own: &BTreeSet<String>) -> String {
    if after_signs(&algebra).next().is_none() {
        return algebra;
    }
    // By the piece: the parser joins prefixes and names to IRIs that the text does not have either.
    let names = Tokens::new(&algebra).filter_map(|token| token.strip_prefix("_:").or_else(|| variable(token)));
    let mut numbers = BTreeMap::new();
    for name in names.filter(|name| is_like_invented(digits(name)) && digits(name) == *name && !own.contains(*name)) {
        let number = numbers.len();
        numbers.entry(name).or_insert(number);
    }
    let mut text = String::with_capacity(algebra.len());
    for part in algebra.split_inclusive(['?', ':']) {
        let name = digits(part);
        match numbers.get(name) {
            // No name that can be written has this sign.
            Some(number) => text.extend(["$", &number.to_string(), &part[name.len()..]]),
            None => text.push_str(part),
        }
    }
    text
}

fn is_like_invented(name: &str) -> bool {
    INVENTED_DIGITS.contains(&name.len())
}

/// What looks like an invented name behind one of the signs with which variables and blank nodes begin.
fn after_signs(text: &str) -> impl Iterator<Item = &str> {
    let begins = memchr::memchr3_iter(b'?', b'$', b':', text.as_bytes()).map(|sign| digits(&text[sign + 1..]));
    begins.filter(|name| is_like_invented(name))
}

fn digits(text: &str) -> &str {
    let length = text.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
    &text[..length]
}

/// What a walk over a query has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nature {
    patterns: usize,
    is_costly: bool,
    pub(crate) is_fickle: bool,
}

impl Nature {
    pub(crate) fn of(pattern: &GraphPattern) -> Self {
        let mut nature = Self::default();
        walk(&mut pattern.clone(), &mut nature);
        nature
    }
}

impl AlgebraVisitor for Nature {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        match pattern {
            GraphPattern::Bgp { patterns } => self.patterns += patterns.len(),
            GraphPattern::Join { .. }
            | GraphPattern::Filter { .. }
            | GraphPattern::Union { .. }
            | GraphPattern::Graph { .. }
            | GraphPattern::Extend { .. }
            | GraphPattern::Values { .. }
            | GraphPattern::Project { .. }
            | GraphPattern::Distinct { .. }
            | GraphPattern::Reduced { .. }
            | GraphPattern::Slice { .. } => {}
            _ => self.is_costly = true,
        }
    }

    fn expression(&mut self, expression: &mut Expression) {
        match expression {
            Expression::Exists(_) => self.is_costly = true,
            Expression::FunctionCall(function, _) => {
                use Function::{BNode, Now, Rand, StrUuid, Uuid};
                self.is_fickle |= matches!(function, BNode | Now | Rand | StrUuid | Uuid);
            }
            _ => {}
        }
    }
}

impl Query {
    /// True for `CONSTRUCT` and `DESCRIBE`, whose answers are graphs.
    pub fn is_graph(&self) -> bool {
        matches!(self.algebra, Algebra::Construct { .. } | Algebra::Describe { .. })
    }

    /// What a `SELECT` gives, in order; none for other queries.
    pub fn variables(&self) -> Option<Vec<oxrdf::Variable>> {
        let Algebra::Select { pattern, .. } = &self.algebra else { return None };
        let mut pattern = pattern;
        loop {
            match pattern {
                GraphPattern::Project { variables, .. } => return Some(variables.clone()),
                GraphPattern::Distinct { inner }
                | GraphPattern::Reduced { inner }
                | GraphPattern::Slice { inner, .. } => pattern = inner,
                _ => return Some(Vec::new()),
            }
        }
    }

    /// True if nothing in it is likely to take long: few triple patterns, joined, filtered and cut.
    pub fn is_cheap(&self) -> bool {
        !self.nature.is_costly && self.nature.patterns <= CHEAP_PATTERNS && !is_describe(&self.algebra)
    }

    /// True if the same data give the same answer: no function of chance or time in it.
    pub fn is_repeatable(&self) -> bool {
        !self.nature.is_fickle
    }
}

impl Snapshot {
    /// The quads that match any of the masks, each once.
    pub fn matching(&self, masks: &[Mask], limits: &QueryLimits) -> Result<Vec<oxrdf::Quad>, GraphError> {
        let meter = EvaluationMeter::new(limits);
        let mut found = BTreeSet::new();
        for (mask, pattern) in masks.iter().filter_map(|mask| Some((mask, mask.pattern(self)?))) {
            let readable = if let MaskGraph::Readable(readable) = &mask.graph {
                Some(ReadableGraphs::new(readable))
            } else {
                None
            };
            for quad in self.scan(pattern) {
                meter.step()?;
                if readable.as_ref().is_some_and(|readable| !readable.has(quad.graph, self)) {
                    continue;
                }
                found.insert((quad.graph, quad.subject, quad.predicate, quad.object));
                if found.len() > limits.rows_max {
                    return Err(crate::error::Limit::Rows.into());
                }
            }
        }
        let of = |(graph, subject, predicate, object)| Quad { graph, subject, predicate, object };
        Ok(found.into_iter().filter_map(|ids| self.quad(of(ids))).collect())
    }

    /// Gives each quad that matches any of the masks to `found`, once, without a list of them: for answers that are too long to be
    /// held. Ends with the first error.
    pub fn each_matching<E: From<GraphError>>(
        &self,
        masks: &[Mask],
        limits: &QueryLimits,
        mut found: impl FnMut(oxrdf::Quad) -> Result<(), E>,
    ) -> Result<(), E> {
        let meter = EvaluationMeter::new(limits);
        let of = |mask: &Mask| {
            let readable = if let MaskGraph::Readable(it) = &mask.graph { Some(ReadableGraphs::new(it)) } else { None };
            Some((mask.pattern(self)?, readable))
        };
        let patterns: Vec<_> = masks.iter().filter_map(of).collect();
        let is_of = |(pattern, readable): &(IdPattern, Option<ReadableGraphs>), quad: Quad| {
            pattern.matches(quad) && readable.as_ref().is_none_or(|readable| readable.has(quad.graph, self))
        };
        for (place, pattern) in patterns.iter().enumerate() {
            for quad in self.scan(pattern.0) {
                meter.step()?;
                let is_first = !patterns[..place].iter().any(|earlier| is_of(earlier, quad));
                if is_first
                    && is_of(pattern, quad)
                    && let Some(quad) = self.quad(quad)
                {
                    found(quad)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::{NamedNode, NamedOrBlankNode};

    use super::*;
    use crate::space::{GraphSpace, SpaceLimits};
    use crate::update::Update;

    fn query(text: &str) -> Query {
        Query::parse(text, &QueryLimits::default()).unwrap()
    }

    #[test]
    fn a_select_says_what_it_gives() {
        let names = |text: &str| query(text).variables().map(|list| list.iter().map(ToString::to_string).collect());
        let expected: Option<Vec<String>> = Some(vec!["?o".to_owned(), "?s".to_owned()]);
        assert_eq!(names("SELECT DISTINCT ?o ?s { ?s ?p ?o } ORDER BY ?p LIMIT 3"), expected);
        assert_eq!(names("ASK { ?s ?p ?o }"), None);
    }

    #[test]
    fn cheap_is_what_reads_little() {
        for cheap in ["ASK { ?s ?p ?o }", "SELECT * { ?s <urn:a> ?o . ?o <urn:b> ?x FILTER(?x > 1) } LIMIT 3"] {
            assert!(query(cheap).is_cheap(), "{cheap}");
        }
        for costly in [
            "SELECT * { ?s <urn:a>+ ?o }",
            "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
            "SELECT * { ?s ?p ?o } ORDER BY ?o",
            "SELECT * { ?s ?p ?o FILTER NOT EXISTS { ?o ?p ?s } }",
            "DESCRIBE <urn:a>",
        ] {
            assert!(!query(costly).is_cheap(), "{costly}");
        }
    }

    #[test]
    fn f104_names_that_the_parser_invents_do_not_make_queries_different() {
        let equal = |a: &str, b: &str| query(a).canonical() == query(b).canonical();
        let count = "SELECT (COUNT(*) AS ?n) (MAX(?o) AS ?m) { ?s <urn:p> [ <urn:q> ?o ] } GROUP BY ?s";
        assert!(equal(count, &count.replace(' ', "\n")));
        assert!(!equal(count, &count.replace("MAX", "MIN")));
        let (a, b) = ("a".repeat(32), "b".repeat(32));
        let select = |name: &str| format!("SELECT ?{name} {{ ?s ?p ?{name} }}");
        assert!(!equal(&select(&a), &select(&b)), "these names are the client's own");
        let compare = |name: &str| format!("ASK {{ ?s ?p ?o FILTER(?s<?{name}&&?o>?s) }}");
        assert!(!equal(&compare(&a), &compare(&b)), "these, too");
    }

    #[test]
    fn names_that_a_prefix_or_base_makes_long_are_not_taken_for_invented_ones() {
        let differ =
            |text: &str| query(&text.replace('N', "b")).canonical() != query(&text.replace('N', "c")).canonical();
        let half = "a".repeat(12);
        let name = "N".repeat(12);
        assert!(differ(&format!("PREFIX a: <urn:{half}> ASK {{ ?s ?p a:{name} }}")));
        assert!(differ(&format!("PREFIX a: <urn:x?{half}> ASK {{ ?s ?p a:{name} }}")));
        assert!(differ(&format!("PREFIX a: <urn:_:{half}> ASK {{ ?s [] a:{name} }}").replace("[]", "<urn:p>/<urn:q>")));
        assert!(differ(&format!("BASE <http://e/x:{half}/> ASK {{ ?s ?p <../x:{half}{name}> }}")));
    }

    #[test]
    fn chance_and_time_are_not_shared() {
        assert!(query("SELECT (STR(?s) AS ?t) { ?s ?p ?o }").is_repeatable());
        assert!(!query("SELECT (NOW() AS ?t) {}").is_repeatable());
        assert!(!query("SELECT ?s { ?s ?p ?o FILTER(RAND() < 0.5) }").is_repeatable());
    }

    #[test]
    fn masks_together_match_each_quad_once() {
        let (mut space, limits) = (GraphSpace::new(1, SpaceLimits::default()), QueryLimits::default());
        let update = "INSERT DATA { <urn:a> <urn:p> 1 , 2 . <urn:b> <urn:p> 1 . GRAPH <urn:g> { <urn:a> <urn:p> 3 } }";
        space.update(&Update::parse(update, &limits).unwrap(), &limits).unwrap();
        let a = Mask { subject: Some(NamedOrBlankNode::from(NamedNode::new_unchecked("urn:a"))), ..Mask::default() };
        let snapshot = space.snapshot();
        let count = |masks: &[Mask]| {
            let (found, mut each) = (snapshot.matching(masks, &limits).unwrap(), Vec::new());
            let pushed = snapshot.each_matching(masks, &limits, |quad| {
                each.push(quad);
                Ok::<_, GraphError>(())
            });
            assert!(pushed.is_ok() && each.len() == found.len() && found.iter().all(|quad| each.contains(quad)));
            found.len()
        };
        assert_eq!((count(std::slice::from_ref(&a)), count(&[a, Mask::default()]), count(&[])), (2, 3, 0));
    }
}
