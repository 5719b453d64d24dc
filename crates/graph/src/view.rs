//! A snapshot as the evaluator sees it: numbers for terms that are stored, values for terms that were computed.

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use oxrdf::{NamedNode, Term};
use spareval::{InternalQuad, QueryableDataset};

use crate::dataset::Snapshot;
use crate::dictionary::Id;
use crate::error::GraphError;
use crate::index::{IdPattern, InGraph, IndexScan, Quad};
use crate::limits::EvaluationMeter;
use crate::restrict::ReadableGraphs;
use crate::rights::GraphList;

/// A snapshot and the meter of one evaluation.
pub(crate) struct SnapshotView<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) meter: Rc<EvaluationMeter>,
    /// The graphs of `FROM <a> FROM <b>`, whose merge stands under the number of [`MERGED`].
    merged: Rc<[Id]>,
    /// The graphs that may be found, if not all.
    readable: Option<Rc<ReadableGraphs>>,
}

/// The label under which the evaluator asks for the merged graphs. No label in a dataset has a space.
pub(crate) const MERGED: &str = "merged graphs";
/// And its number, which no term has.
const MERGED_ID: Id = Id::MAX;

/// A term in the evaluator's hands. Each holds the meter, whose references are thereby the count of live terms.
#[derive(Clone)]
pub(crate) enum HeldTerm {
    /// A stored term.
    Stored(Id, #[allow(dead_code, reason = "counted by being held")] Rc<EvaluationMeter>),
    /// A term that no quad has.
    Computed(Rc<Computed>),
}

pub(crate) struct Computed {
    term: Term,
    bytes: usize,
    meter: Rc<EvaluationMeter>,
}

impl Drop for Computed {
    fn drop(&mut self) {
        self.meter.free_bytes(self.bytes);
    }
}

impl PartialEq for HeldTerm {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(a, _), Self::Stored(b, _)) => a == b,
            (Self::Computed(a), Self::Computed(b)) => a.term == b.term,
            // A term is computed only if it is not stored.
            _ => false,
        }
    }
}

impl Eq for HeldTerm {}

impl Hash for HeldTerm {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Stored(id, _) => id.hash(state),
            Self::Computed(computed) => computed.term.hash(state),
        }
    }
}

/// Quads of a pattern until the meter says no; then the reason once, and nothing more, so that whatever loop the
/// evaluator is in runs dry.
pub(crate) struct Quads<'a> {
    snapshot: &'a Snapshot,
    pattern: IdPattern,
    scan: Option<IndexScan<'a>>,
    meter: Rc<EvaluationMeter>,
    /// The graphs to merge, and how many of them were entered.
    merged: Rc<[Id]>,
    entered: usize,
    /// Graphs that may be found, if not all. Those that are merged were named, and judged by that.
    readable: Option<Rc<ReadableGraphs>>,
}

impl Quads<'_> {
    /// The next quad that no merged graph before has.
    fn quad(&mut self) -> Option<Quad> {
        if self.merged.is_empty() {
            return self.scan.as_mut()?.next();
        }
        loop {
            let Some(quad) = self.scan.as_mut().and_then(Iterator::next) else {
                let graph = *self.merged.get(self.entered)?;
                self.entered += 1;
                self.scan = Some(self.snapshot.scan(IdPattern { graph: InGraph::One(graph), ..self.pattern }));
                continue;
            };
            let mut before = self.merged.iter().take(self.entered - 1);
            if !before.any(|graph| self.snapshot.index.contains(Quad { graph: *graph, ..quad })) {
                return Some(Quad { graph: 0, ..quad });
            }
        }
    }
}

impl Iterator for Quads<'_> {
    type Item = Result<InternalQuad<HeldTerm>, GraphError>;

    fn next(&mut self) -> Option<Self::Item> {
        let quad = loop {
            let quad = self.quad()?;
            if let Err(error) = self.meter.step() {
                (self.scan, self.merged) = (None, Rc::default());
                return Some(Err(error));
            }
            if self.readable.as_ref().is_none_or(|readable| readable.has(quad.graph, self.snapshot)) {
                break quad;
            }
        };
        let held = |id: Id| HeldTerm::Stored(id, Rc::clone(&self.meter));
        Some(Ok(InternalQuad {
            subject: held(quad.subject),
            predicate: held(quad.predicate),
            object: held(quad.object),
            graph_name: (quad.graph != 0).then(|| held(quad.graph)),
        }))
    }
}

/// The number, or nothing if no quad can have the term.
fn bound(term: Option<&HeldTerm>) -> Result<Option<Id>, ()> {
    match term {
        None => Ok(None),
        Some(HeldTerm::Stored(id, _)) => Ok(Some(*id)),
        Some(HeldTerm::Computed(_)) => Err(()),
    }
}

impl<'a> SnapshotView<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, meter: Rc<EvaluationMeter>, readable: Option<&Arc<GraphList>>) -> Self {
        let readable = readable.map(|readable| Rc::new(ReadableGraphs::new(readable)));
        Self { snapshot, meter, merged: Rc::default(), readable }
    }

    fn is_readable(&self, graph: Id) -> bool {
        self.readable.as_ref().is_none_or(|readable| readable.has(graph, self.snapshot))
    }

    pub(crate) fn merge(&mut self, graphs: &[NamedNode]) {
        let ids = graphs.iter().filter_map(|graph| self.snapshot.terms.find(graph.as_ref().into()));
        self.merged = ids.collect();
    }

    #[expect(clippy::option_option, reason = "the evaluator's words: any named graph, the default one, this one")]
    fn pattern(
        subject: Option<&HeldTerm>,
        predicate: Option<&HeldTerm>,
        object: Option<&HeldTerm>,
        graph: Option<Option<&HeldTerm>>,
    ) -> Result<IdPattern, ()> {
        let graph = match graph {
            None => InGraph::AnyNamed,
            Some(None) => InGraph::One(0),
            Some(Some(HeldTerm::Stored(id, _))) => InGraph::One(*id),
            Some(Some(HeldTerm::Computed(_))) => return Err(()),
        };
        Ok(IdPattern { graph, subject: bound(subject)?, predicate: bound(predicate)?, object: bound(object)? })
    }

    fn quads(&self, pattern: Result<IdPattern, ()>) -> Quads<'a> {
        let nowhere = IdPattern { graph: InGraph::One(MERGED_ID), subject: None, predicate: None, object: None };
        let is_merge = pattern.is_ok_and(|pattern| pattern.graph == InGraph::One(MERGED_ID));
        Quads {
            snapshot: self.snapshot,
            pattern: pattern.unwrap_or(nowhere),
            scan: pattern.ok().filter(|_| !is_merge).map(|pattern| self.snapshot.scan(pattern)),
            meter: Rc::clone(&self.meter),
            merged: if is_merge { Rc::clone(&self.merged) } else { Rc::default() },
            entered: 0,
            readable: self.readable.clone().filter(|_| !is_merge),
        }
    }
}

impl<'a> QueryableDataset<'a> for SnapshotView<'a> {
    type InternalTerm = HeldTerm;
    type Error = GraphError;

    fn internal_quads_for_pattern(
        &self,
        subject: Option<&HeldTerm>,
        predicate: Option<&HeldTerm>,
        object: Option<&HeldTerm>,
        graph_name: Option<Option<&HeldTerm>>,
    ) -> impl Iterator<Item = Result<InternalQuad<HeldTerm>, GraphError>> + use<'a> {
        self.quads(Self::pattern(subject, predicate, object, graph_name))
    }

    fn internal_named_graphs(&self) -> impl Iterator<Item = Result<HeldTerm, GraphError>> + use<'a> {
        let (snapshot, meter, readable) = (self.snapshot, Rc::clone(&self.meter), self.readable.clone());
        let graphs = std::iter::successors(snapshot.index.graph_after(0), |graph| snapshot.index.graph_after(*graph));
        graphs.filter_map(move |graph| match meter.step() {
            Err(error) => Some(Err(error)),
            Ok(()) if readable.as_ref().is_some_and(|readable| !readable.has(graph, snapshot)) => None,
            Ok(()) => Some(Ok(HeldTerm::Stored(graph, Rc::clone(&meter)))),
        })
    }

    fn contains_internal_graph_name(&self, graph_name: &HeldTerm) -> Result<bool, GraphError> {
        let pattern = Self::pattern(None, None, None, Some(Some(graph_name)));
        let is_readable = matches!(graph_name, HeldTerm::Stored(graph, _) if self.is_readable(*graph));
        Ok(is_readable && pattern.is_ok_and(|pattern| self.snapshot.scan(pattern).next().is_some()))
    }

    fn internalize_term(&self, term: Term) -> Result<HeldTerm, GraphError> {
        if let Some(id) = self.snapshot.terms.find(term.as_ref()) {
            return Ok(HeldTerm::Stored(id, Rc::clone(&self.meter)));
        }
        if matches!(&term, Term::BlankNode(node) if node.as_str() == MERGED) {
            return Ok(HeldTerm::Stored(MERGED_ID, Rc::clone(&self.meter)));
        }
        let bytes = match &term {
            Term::NamedNode(node) => node.as_str().len(),
            Term::BlankNode(node) => node.as_str().len(),
            Term::Literal(literal) => literal.value().len(),
        };
        self.meter.hold_bytes(bytes)?;
        Ok(HeldTerm::Computed(Rc::new(Computed { term, bytes, meter: Rc::clone(&self.meter) })))
    }

    fn externalize_term(&self, term: HeldTerm) -> Result<Term, GraphError> {
        match term {
            HeldTerm::Stored(id, _) => self.snapshot.terms.term(id).ok_or(GraphError::Unknown),
            HeldTerm::Computed(computed) => Ok(computed.term.clone()),
        }
    }
}
