//! Who cares about a quad? Each interest is a pattern; it is filed under the positions it binds and their terms, so a
//! changed quad asks at most once per combination of bound positions, however many patterns do not match it.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oxrdf::{NamedNode, NamedOrBlankNode, Term, TermRef};

use crate::dataset::Snapshot;
use crate::dictionary::Id;
use crate::index::{IdPattern, InGraph, Quad};
use crate::rights::GraphList;

/// A pattern for quads: what is `None` may be anything. Several masks together are the union of their matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// The subject.
    pub subject: Option<NamedOrBlankNode>,
    /// The predicate.
    pub predicate: Option<NamedNode>,
    /// The object.
    pub object: Option<Term>,
    /// The graphs that are looked at.
    pub graph: MaskGraph,
}

impl Mask {
    /// Whether it says all three terms.
    pub(crate) fn is_exact(&self) -> bool {
        self.subject.is_some() && self.predicate.is_some() && self.object.is_some()
    }

    /// The pattern in the numbers of a snapshot. `None` if it has a term that the snapshot has not.
    pub(crate) fn pattern(&self, snapshot: &Snapshot) -> Option<IdPattern> {
        let find = |term: TermRef<'_>| snapshot.terms.find(term);
        let bound = |term: Option<TermRef<'_>>| match term {
            None => Some(None),
            Some(term) => find(term).map(Some),
        };
        let graph = match &self.graph {
            MaskGraph::Default => InGraph::One(0),
            MaskGraph::Named(name) => InGraph::One(find(name.as_ref().into())?),
            MaskGraph::AnyNamed => InGraph::AnyNamed,
            MaskGraph::Any | MaskGraph::Readable(_) => InGraph::Any,
        };
        Some(IdPattern {
            graph,
            subject: bound(self.subject.as_ref().map(|node| node.as_ref().into()))?,
            predicate: bound(self.predicate.as_ref().map(|node| node.as_ref().into()))?,
            object: bound(self.object.as_ref().map(Term::as_ref))?,
        })
    }
}

/// The graphs of a mask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MaskGraph {
    /// The default graph, which is the only one that SSAP knows.
    #[default]
    Default,
    /// One named graph.
    Named(NamedOrBlankNode),
    /// Every named graph.
    AnyNamed,
    /// Every graph.
    Any,
    /// Every graph that may be read by somebody. Not for standing queries and not for changes.
    Readable(Arc<GraphList>),
}

/// Patterns and their owners.
pub(crate) struct Interests {
    /// By combination: three bits for bound positions, times three kinds of graph.
    shapes: [HashMap<[Id; 4], Vec<usize>, FixedState>; SHAPES],
}

/// Eight combinations of positions, three kinds of graph.
const SHAPES: usize = 24;

impl Interests {
    pub(crate) fn new(hasher: &FixedState) -> Self {
        Self { shapes: std::array::from_fn(|_| HashMap::with_hasher(hasher.clone())) }
    }

    pub(crate) fn add(&mut self, pattern: &IdPattern, owner: usize) {
        let (shape, key) = place(pattern);
        self.shapes[shape].entry(key).or_default().push(owner);
    }

    pub(crate) fn remove(&mut self, pattern: &IdPattern, owner: usize) {
        let (shape, key) = place(pattern);
        if let Some(owners) = self.shapes[shape].get_mut(&key) {
            if let Some(at) = owners.iter().position(|known| *known == owner) {
                owners.swap_remove(at);
            }
            if owners.is_empty() {
                self.shapes[shape].remove(&key);
            }
        }
    }

    /// Calls with every owner of a pattern that matches, more than once if several of its patterns do.
    pub(crate) fn of(&self, quad: Quad, mut found: impl FnMut(usize)) {
        for (shape, filed) in self.shapes.iter().enumerate().filter(|(_, filed)| !filed.is_empty()) {
            let kind = shape / 8;
            if kind == ANY_NAMED && quad.graph == 0 {
                continue;
            }
            let bound = |bit: usize, id: Id| if shape & bit == 0 { 0 } else { id };
            let graph = if kind == ONE { quad.graph } else { 0 };
            let key = [bound(1, quad.subject), bound(2, quad.predicate), bound(4, quad.object), graph];
            if let Some(owners) = filed.get(&key) {
                for owner in owners {
                    found(*owner);
                }
            }
        }
    }
}

const ONE: usize = 0;
const ANY_NAMED: usize = 1;
const ANY: usize = 2;

fn place(pattern: &IdPattern) -> (usize, [Id; 4]) {
    let (kind, graph) = match pattern.graph {
        InGraph::One(graph) => (ONE, graph),
        InGraph::AnyNamed => (ANY_NAMED, 0),
        InGraph::Any => (ANY, 0),
    };
    let IdPattern { subject, predicate, object, .. } = *pattern;
    let bits =
        usize::from(subject.is_some()) | usize::from(predicate.is_some()) << 1 | usize::from(object.is_some()) << 2;
    let key = [subject.unwrap_or(0), predicate.unwrap_or(0), object.unwrap_or(0), graph];
    (kind * 8 + bits, key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns() -> impl Strategy<Value = Vec<IdPattern>> {
        let position = || prop::option::of(1..4u32);
        let graph = prop_oneof![(0..3u32).prop_map(InGraph::One), Just(InGraph::AnyNamed), Just(InGraph::Any)];
        let pattern = (graph, position(), position(), position())
            .prop_map(|(graph, subject, predicate, object)| IdPattern { graph, subject, predicate, object });
        prop::collection::vec(pattern, 0..40)
    }

    proptest! {
        #[test]
        fn a_quad_finds_exactly_the_patterns_that_match(
            patterns in patterns(),
            gone in prop::collection::vec(any::<bool>(), 40),
            (graph, subject, predicate, object) in (0..3u32, 1..4u32, 1..4u32, 1..4u32),
        ) {
            let quad = Quad { graph, subject, predicate, object };
            let mut interests = Interests::new(&FixedState::with_seed(1));
            for (owner, pattern) in patterns.iter().enumerate() {
                interests.add(pattern, owner);
            }
            for (owner, pattern) in patterns.iter().enumerate().filter(|(owner, _)| gone[*owner]) {
                interests.remove(pattern, owner);
            }
            let mut found = Vec::new();
            interests.of(quad, |owner| found.push(owner));
            found.sort_unstable();
            let expected: Vec<usize> =
                (0..patterns.len()).filter(|owner| !gone[*owner] && patterns[*owner].matches(quad)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
