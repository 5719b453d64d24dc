//! Queries as somebody with less than all rights may ask them: the same text, of the graphs that it may read.
//!
//! A graph that the query names and that may not be read is replaced by one that nobody has, and so is the default graph.
//! Where it asks for graphs without naming them (`GRAPH ?g`) it takes the list along, and the view on which it is evaluated
//! has no others. What comes of it is what the query gives on a dataset without the other graphs. Standing queries, and
//! what answers are remembered under, follow by themselves, because they know the changed query only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use oxrdf::{GraphNameRef, NamedNode, Term};
use spargebra::algebra::{GraphPattern, QueryDataset};
use spargebra::term::NamedNodePattern;

use crate::algebra::{AlgebraVisitor, walk};
use crate::dataset::Snapshot;
use crate::dictionary::Id;
use crate::error::GraphError;
use crate::limits::QueryLimits;
use crate::query::{Query, dataset_mut, pattern_mut};
use crate::rights::{ForbiddenGraph, GraphList, GraphRights};

/// A graph that nobody has: no text can name it, because no IRI has a space.
const NO_GRAPH: &str = "urn:tidegate:no graph";

impl Query {
    /// The same query of the graphs that may be read.
    pub fn restricted(self, rights: &GraphRights, limits: &QueryLimits) -> Result<Self, GraphError> {
        Ok(self.restricted_noting(&rights.read, limits)?.0)
    }

    /// The same, refused if it names a graph that may not be read: for what is to be done whole or not at all.
    pub(crate) fn restricted_or_refused(self, rights: &GraphRights, limits: &QueryLimits) -> Result<Self, GraphError> {
        let reads_default = self.dataset().is_none() && reads_outside(self.pattern());
        if reads_default && !rights.read.has_default() {
            return Err(ForbiddenGraph::reading(GraphNameRef::DefaultGraph).into());
        }
        match self.restricted_noting(&rights.read, limits)? {
            (query, None) => Ok(query),
            (_, Some(forbidden)) => Err(forbidden.into()),
        }
    }

    /// The query, and the first graph that it names and that may not be read.
    fn restricted_noting(
        self,
        readable: &GraphList,
        limits: &QueryLimits,
    ) -> Result<(Self, Option<ForbiddenGraph>), GraphError> {
        if readable.has_all() {
            return Ok((self, None));
        }
        let mut algebra = self.algebra.clone();
        let mut restriction = Restriction { readable, forbidden: None, asks_for_names: false };
        walk(pattern_mut(&mut algebra), &mut restriction);
        restriction.dataset(dataset_mut(&mut algebra));
        let (forbidden, asks_for_names) = (restriction.forbidden, restriction.asks_for_names);
        let query = if algebra == self.algebra { self } else { self.with_algebra(algebra, limits)? };
        let readable = asks_for_names.then(|| Arc::new(readable.clone()));
        Ok((query.reading_only(readable), forbidden))
    }
}

/// The change of one query.
struct Restriction<'a> {
    readable: &'a GraphList,
    forbidden: Option<ForbiddenGraph>,
    /// It asks for graphs without naming them.
    asks_for_names: bool,
}

impl Restriction<'_> {
    fn is_readable(&mut self, name: &NamedNode) -> bool {
        let is_readable = self.readable.has_named(name.as_ref());
        if !is_readable {
            self.forbidden.get_or_insert_with(|| ForbiddenGraph::reading(name.as_ref().into()));
        }
        is_readable
    }

    /// The graphs of `FROM` and `FROM NAMED`, or of none.
    fn dataset(&mut self, dataset: &mut Option<QueryDataset>) {
        let no_graph = NamedNode::new_unchecked(NO_GRAPH);
        match dataset {
            None if self.readable.has_default() => {}
            // All that are named, and nothing else.
            None => *dataset = Some(QueryDataset { default: vec![no_graph], named: None }),
            Some(graphs) => {
                let had_some = !graphs.default.is_empty();
                graphs.default.retain(|name| self.is_readable(name));
                if had_some && graphs.default.is_empty() {
                    graphs.default.push(no_graph);
                }
                if let Some(named) = &mut graphs.named {
                    named.retain(|name| self.is_readable(name));
                }
            }
        }
    }
}

impl AlgebraVisitor for Restriction<'_> {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        let GraphPattern::Graph { name, .. } = pattern else { return };
        match name {
            NamedNodePattern::NamedNode(graph) => {
                if !self.is_readable(graph) {
                    *graph = NamedNode::new_unchecked(NO_GRAPH);
                }
            }
            NamedNodePattern::Variable(_) => self.asks_for_names = true,
        }
    }
}

/// The graphs of a snapshot that may be read, each looked up once.
pub(crate) struct ReadableGraphs {
    readable: Arc<GraphList>,
    known: RefCell<BTreeMap<Id, bool>>,
}

impl ReadableGraphs {
    pub(crate) fn new(readable: &Arc<GraphList>) -> Self {
        Self { readable: Arc::clone(readable), known: RefCell::default() }
    }

    /// Whether the graph of this number may be read; the default graph has none.
    pub(crate) fn has(&self, graph: Id, snapshot: &Snapshot) -> bool {
        *self.known.borrow_mut().entry(graph).or_insert_with(|| match (graph, snapshot.terms.term(graph)) {
            (0, _) => self.readable.has_default(),
            (_, Some(Term::NamedNode(name))) => self.readable.has_named(name.as_ref()),
            _ => self.readable.has_all(),
        })
    }
}

/// Whether something is read outside of every `GRAPH`.
fn reads_outside(pattern: &GraphPattern) -> bool {
    struct WithoutGraphs;
    impl AlgebraVisitor for WithoutGraphs {
        fn pattern(&mut self, pattern: &mut GraphPattern) {
            if let GraphPattern::Graph { inner, .. } = pattern {
                **inner = GraphPattern::Bgp { patterns: Vec::new() };
            }
        }
    }
    struct Reads(bool);
    impl AlgebraVisitor for Reads {
        fn pattern(&mut self, pattern: &mut GraphPattern) {
            self.0 |= match pattern {
                GraphPattern::Bgp { patterns } => !patterns.is_empty(),
                GraphPattern::Path { .. } => true,
                _ => false,
            };
        }
    }
    let (mut copy, mut reads) = (pattern.clone(), Reads(false));
    walk(&mut copy, &mut WithoutGraphs);
    walk(&mut copy, &mut reads);
    reads.0
}

#[cfg(test)]
#[path = "restrict_tests.rs"]
mod tests;
