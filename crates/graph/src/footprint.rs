//! When may an answer last have changed? A question reads the quads that match its patterns, and nothing else: a change
//! that touches none of them leaves its answer as it is.
//!
//! Changes are noted in a table of fixed size: a quad marks a place for each of some combinations of its terms with the
//! version of its change, a pattern looks at the place of the terms that it binds. Two combinations may share a place;
//! then an answer is taken for changed that is not, and never the other way round. Nothing is kept for a question, so
//! questions cost a change nothing. Pure; driven by whoever makes changes visible.

use foldhash::fast::FixedState;
use oxrdf::{GraphNameRef, QuadRef, TermRef};
use spargebra::algebra::GraphPattern;
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};
use std::hash::BuildHasher;

use crate::algebra::{AlgebraVisitor, walk};
use crate::delta::QuadDelta;
use crate::masks::{Mask, MaskGraph};
use crate::query::{Query, is_describe, pattern_mut};

/// Places of the table: a mebibyte of versions. A change of one quad marks a dozen of them, most of them its own, so an
/// answer outlives some ten thousand changes of other things before chance takes it for changed.
const PLACES: usize = 1 << 17;
/// Places that one group of changes may mark; a larger one is taken for a change of everything.
const MARKED_MAX: usize = 1 << 16;
/// Patterns of a question that are looked at one by one; one with more is taken to read everything.
const LOOKED_AT_MAX: usize = 64;
/// Graphs that are not one graph.
const ANY_NAMED: u64 = 1;
const ANY: u64 = 2;
const DEFAULT: u64 = 3;

/// What a question reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// None if it may read everything.
    places: Option<Vec<u32>>,
}

/// What changes have touched that nobody sees yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedPlaces {
    places: Vec<u32>,
    is_everything: bool,
}

/// When everything was touched last.
#[derive(Debug)]
pub struct ChangeTable {
    versions: Vec<u64>,
    /// The version at which everything was touched.
    everything: u64,
    /// The version of the last change.
    last: u64,
}

impl Footprint {
    /// What masks match.
    pub fn of_masks(masks: &[Mask]) -> Self {
        let place = |mask: &Mask| {
            let graph = match &mask.graph {
                MaskGraph::Default => DEFAULT,
                MaskGraph::Named(name) => number(name.as_ref().into()),
                MaskGraph::AnyNamed => ANY_NAMED,
                MaskGraph::Any | MaskGraph::Readable(_) => ANY,
            };
            let subject = mask.subject.as_ref().map(|node| number(node.as_ref().into()));
            let predicate = mask.predicate.as_ref().map(|node| number(node.as_ref().into()));
            place_of(graph, subject, predicate, mask.object.as_ref().map(|term| number(term.as_ref())))
        };
        Self { places: (masks.len() <= LOOKED_AT_MAX).then(|| masks.iter().map(place).collect()) }
    }
}

impl Query {
    /// What it reads.
    pub fn footprint(&self) -> Footprint {
        let mut survey = FootprintSurvey::default();
        walk(pattern_mut(&mut self.algebra.clone()), &mut survey);
        // A path visits nodes that its own triples do not name; what is said of a resource may be said anywhere; an empty
        // group in GRAPH asks whether the graph exists.
        let is_everything = survey.has_path
            || survey.has_graph && survey.has_empty
            || is_describe(&self.algebra)
            || survey.leaves.len() > LOOKED_AT_MAX;
        let outside = if self.dataset().is_some() { ANY } else { DEFAULT };
        let place = |leaf: &ReadLeaf| {
            let [subject, predicate, object] = leaf.terms;
            place_of(leaf.graph.unwrap_or(outside), subject, predicate, object)
        };
        Footprint { places: (!is_everything).then(|| survey.leaves.iter().map(place).collect()) }
    }
}

/// A triple pattern: the terms that it binds, and the graph that it is asked of, if that was said.
struct ReadLeaf {
    terms: [Option<u64>; 3],
    graph: Option<u64>,
}

#[derive(Default)]
struct FootprintSurvey {
    leaves: Vec<ReadLeaf>,
    has_path: bool,
    has_graph: bool,
    has_empty: bool,
}

impl AlgebraVisitor for FootprintSurvey {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        match pattern {
            GraphPattern::Bgp { patterns } => {
                self.has_empty |= patterns.is_empty();
                self.leaves.extend(patterns.iter().map(|pattern| ReadLeaf { terms: bound(pattern), graph: None }));
            }
            GraphPattern::Path { .. } | GraphPattern::Service { .. } => self.has_path = true,
            GraphPattern::Graph { name, inner } => {
                self.has_graph = true;
                let graph = match name {
                    NamedNodePattern::NamedNode(node) => number(node.as_ref().into()),
                    NamedNodePattern::Variable(_) => ANY_NAMED,
                };
                // What is within was visited just before; a graph within a graph has been said already.
                let mut within = LeafCount(0);
                walk(inner, &mut within);
                let first = self.leaves.len().saturating_sub(within.0);
                for leaf in self.leaves.iter_mut().skip(first).filter(|leaf| leaf.graph.is_none()) {
                    leaf.graph = Some(graph);
                }
            }
            _ => {}
        }
    }
}

struct LeafCount(usize);

impl AlgebraVisitor for LeafCount {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        if let GraphPattern::Bgp { patterns } = pattern {
            self.0 += patterns.len();
        }
    }
}

fn bound(pattern: &TriplePattern) -> [Option<u64>; 3] {
    let term = |term: &TermPattern| match term {
        TermPattern::NamedNode(node) => Some(number(node.as_ref().into())),
        TermPattern::Literal(literal) => Some(number(literal.as_ref().into())),
        TermPattern::Variable(_) | TermPattern::BlankNode(_) => None,
    };
    let predicate = match &pattern.predicate {
        NamedNodePattern::NamedNode(node) => Some(number(node.as_ref().into())),
        NamedNodePattern::Variable(_) => None,
    };
    [term(&pattern.subject), predicate, term(&pattern.object)]
}

/// A number for a term; those of graphs that are none are left out.
fn number(term: TermRef<'_>) -> u64 {
    FixedState::default().hash_one(term) | 1 << 63
}

/// The place of a pattern: of its graph and of two of its terms at most, which is where its quads mark.
fn place_of(graph: u64, subject: Option<u64>, predicate: Option<u64>, object: Option<u64>) -> u32 {
    match (subject, predicate, object) {
        (Some(subject), Some(predicate), _) => place(graph, 1, subject, predicate),
        (Some(subject), None, _) => place(graph, 2, subject, 0),
        (None, Some(predicate), Some(object)) => place(graph, 3, predicate, object),
        (None, Some(predicate), None) => place(graph, 4, predicate, 0),
        (None, None, Some(object)) => place(graph, 5, object, 0),
        (None, None, None) => place(graph, 6, 0, 0),
    }
}

fn place(graph: u64, kind: u64, first: u64, second: u64) -> u32 {
    // The low bits of a product of many are well mixed.
    (FixedState::default().hash_one((graph, kind, first, second)) % PLACES as u64) as u32
}

impl TouchedPlaces {
    /// A change is to be seen with the next ones.
    pub fn note(&mut self, delta: &QuadDelta) {
        if self.is_everything || self.places.len() + delta.len().saturating_mul(18) > MARKED_MAX {
            (self.is_everything, self.places) = (true, Vec::new());
            return;
        }
        for quad in delta.added.iter().chain(&delta.removed) {
            self.mark(quad.as_ref());
        }
    }

    fn mark(&mut self, quad: QuadRef<'_>) {
        let (subject, predicate) = (number(quad.subject.into()), number(quad.predicate.into()));
        let object = number(quad.object);
        let named = |name: TermRef<'_>| ([number(name), ANY_NAMED, ANY], 3);
        let (graphs, count) = match quad.graph_name {
            GraphNameRef::DefaultGraph => ([DEFAULT, ANY, ANY], 2),
            GraphNameRef::NamedNode(node) => named(node.into()),
            GraphNameRef::BlankNode(node) => named(node.into()),
        };
        for graph in graphs.into_iter().take(count) {
            self.places.extend([
                place(graph, 1, subject, predicate),
                place(graph, 2, subject, 0),
                place(graph, 3, predicate, object),
                place(graph, 4, predicate, 0),
                place(graph, 5, object, 0),
                place(graph, 6, 0, 0),
            ]);
        }
    }
}

impl ChangeTable {
    /// Of data whose changes up to this version are not known.
    pub fn new(version: u64) -> Self {
        Self { versions: vec![0; PLACES], everything: version, last: version }
    }

    /// These changes are seen with this version.
    pub fn show(&mut self, touched: &TouchedPlaces, version: u64) {
        self.last = version;
        if touched.is_everything {
            self.everything = version;
            return;
        }
        for place in &touched.places {
            if let Some(marked) = self.versions.get_mut(*place as usize) {
                *marked = version;
            }
        }
    }

    /// The version of the last change.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The version before which nothing is known of changes, or at which this was touched last, if that is later.
    pub fn version_of(&self, footprint: &Footprint) -> u64 {
        let Some(places) = &footprint.places else { return self.last };
        let marked = places.iter().filter_map(|place| self.versions.get(*place as usize).copied()).max();
        self.everything.max(marked.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::QueryLimits;
    use crate::query::QueryAnswer;
    use crate::space::{GraphSpace, SpaceLimits};
    use crate::update::Update;

    fn query(text: &str) -> Query {
        Query::parse(text, &QueryLimits::default()).unwrap()
    }

    /// The space after an update, and what that touched.
    fn change(space: &mut GraphSpace, table: &mut ChangeTable, text: &str) {
        let limits = QueryLimits::default();
        let outcome = space.update(&Update::parse(text, &limits).unwrap(), &limits).unwrap();
        let mut touched = TouchedPlaces::default();
        for delta in &outcome.deltas {
            touched.note(delta);
        }
        if !outcome.deltas.is_empty() {
            table.show(&touched, space.version());
        }
    }

    #[test]
    fn a_change_touches_what_reads_it_and_nothing_else() {
        let (mut space, mut table) = (GraphSpace::new(1, SpaceLimits::default()), ChangeTable::new(0));
        for (update, touched, untouched) in [
            (
                "INSERT DATA { <urn:a> <urn:p> 1 }",
                vec!["ASK { <urn:a> <urn:p> ?o }", "ASK { ?s <urn:p> 1 }", "ASK { ?s ?p ?o }", "ASK { <urn:x>+ ?o }"],
                vec!["ASK { <urn:b> <urn:p> ?o }", "ASK { ?s <urn:q> ?o }", "ASK { GRAPH ?g { ?s <urn:p> ?o } }"],
            ),
            (
                "INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:p> 1 } }",
                vec![
                    "ASK { GRAPH <urn:g> { <urn:a> ?p ?o } }",
                    "ASK FROM <urn:g> { ?s <urn:p> ?o }",
                    "ASK { GRAPH ?g {} }",
                ],
                vec!["ASK { ?s <urn:p> ?o }", "ASK { GRAPH <urn:h> { ?s <urn:p> ?o } }"],
            ),
            (
                "DELETE DATA { <urn:a> <urn:p> 1 }",
                vec!["DESCRIBE <urn:z>", "SELECT * { ?s <urn:q> ?o FILTER NOT EXISTS { ?s <urn:p> ?o } }"],
                vec!["SELECT * { ?s <urn:q> ?o OPTIONAL { ?s <urn:r> ?x } }", "SELECT (1 AS ?x) {}"],
            ),
        ] {
            change(&mut space, &mut table, update);
            let is_new = |text: &str| {
                table.version_of(&query(&text.replace("<urn:x>+", "?s <urn:x>+")).footprint()) == space.version()
            };
            assert!(touched.iter().all(|text| is_new(text)), "{update}");
            assert!(!untouched.iter().any(|text| is_new(text)), "{update}");
        }
    }

    #[test]
    fn what_is_too_much_to_note_touches_everything() {
        let (mut space, mut table) = (GraphSpace::new(1, SpaceLimits::default()), ChangeTable::new(0));
        let footprint = query("ASK { <urn:other> <urn:other> ?o }").footprint();
        let many = (0..6000).fold(String::new(), |text, n| format!("{text} <urn:a> <urn:p> {n} ."));
        change(&mut space, &mut table, &format!("INSERT DATA {{ {many} }}"));
        assert_eq!(table.version_of(&footprint), space.version());
        change(&mut space, &mut table, "INSERT DATA { <urn:a> <urn:q> 1 }");
        assert_eq!(table.version_of(&footprint), space.version() - 1);
    }

    const QUERIES: [&str; 14] = [
        "SELECT * { <urn:0> <urn:1> ?o }",
        "SELECT * { ?s <urn:1> 2 }",
        "SELECT * { ?s ?p 1 }",
        "SELECT * { ?s <urn:0> ?x . ?x <urn:1> ?o }",
        "SELECT * { ?s <urn:0> ?x OPTIONAL { ?s <urn:1> ?o } }",
        "SELECT * { ?s <urn:0> ?x MINUS { ?s <urn:1> 1 } }",
        "SELECT (COUNT(*) AS ?n) { GRAPH <urn:g> { ?s <urn:1> ?o } }",
        "SELECT * { GRAPH ?g { <urn:1> ?p ?o } }",
        "SELECT * { GRAPH ?g { ?s <urn:1> ?o } ?s <urn:0> ?x }",
        "SELECT ?s FROM <urn:g> { ?s <urn:1> ?o }",
        "SELECT * { ?s <urn:0>* ?o }",
        "SELECT * { { ?s <urn:0> 1 } UNION { GRAPH <urn:h> { ?s <urn:0> 1 } } }",
        "SELECT * { ?s <urn:0> ?o FILTER EXISTS { GRAPH <urn:h> { ?s <urn:1> ?o } } }",
        "SELECT DISTINCT ?g { GRAPH ?g {} }",
    ];

    proptest! {
        #[test]
        fn an_answer_whose_footprint_is_untouched_is_the_same(
            steps in prop::collection::vec((any::<bool>(), 0..3u8, 0..3u8, 0..3u8, 0..3u8), 1..25),
        ) {
            let (mut space, mut table) = (GraphSpace::new(1, SpaceLimits::default()), ChangeTable::new(0));
            let queries = QUERIES.map(query);
            let answers = |space: &GraphSpace| {
                let (snapshot, limits) = (space.snapshot(), QueryLimits::default());
                let answer = |query: &Query| {
                    let QueryAnswer::Rows(rows) = query.run(&snapshot, &limits).unwrap() else { panic!("no rows") };
                    let mut rows: Vec<String> = rows.map(|row| format!("{:?}", row.unwrap())).collect();
                    rows.sort();
                    rows
                };
                queries.iter().map(answer).collect::<Vec<_>>()
            };
            let mut before = answers(&space);
            for (is_insert, graph, s, p, o) in steps {
                let object = if o == 0 { "<urn:0>".to_owned() } else { o.to_string() };
                let triple = format!("<urn:{s}> <urn:{p}> {object}");
                let quad = match graph {
                    0 => triple,
                    graph => format!("GRAPH <urn:{}> {{ {triple} }}", if graph == 1 { 'g' } else { 'h' }),
                };
                let version = space.version();
                change(&mut space, &mut table, &format!("{} DATA {{ {quad} }}", if is_insert { "INSERT" } else { "DELETE" }));
                let after = answers(&space);
                for (number, query) in queries.iter().enumerate() {
                    if table.version_of(&query.footprint()) <= version {
                        prop_assert_eq!(&before[number], &after[number], "{}", QUERIES[number]);
                    }
                }
                before = after;
            }
        }
    }
}
