//! Quads as numbers in three orders, each a persistent ordered set: graph first, then subject-predicate-object,
//! predicate-object-subject or object-subject-predicate. One of the three answers every pattern with a range.
//!
//! The graph comes first in all of them. A pattern that asks for any named graph visits the graphs one by one; the
//! alternative, three more orders with the graph last, would double the memory for a rare question. The default graph has
//! sets of its own, whose keys leave the graph out.

use std::cmp::Ordering;

use imbl::OrdSet;
use imbl::ordset::RangedIter;
use imbl::shared_ptr::DefaultSharedPtr;

use crate::dictionary::Id;

/// A quad by the numbers of its terms; graph 0 is the default graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Quad {
    pub(crate) graph: Id,
    pub(crate) subject: Id,
    pub(crate) predicate: Id,
    pub(crate) object: Id,
}

impl Quad {
    pub(crate) fn ids(self) -> [Id; 4] {
        [self.subject, self.predicate, self.object, self.graph]
    }
}

/// Which graphs a pattern looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InGraph {
    /// This one; 0 is the default graph.
    One(Id),
    /// Every named graph.
    AnyNamed,
    /// Every graph.
    Any,
}

/// A pattern: `None` is a wildcard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdPattern {
    pub(crate) graph: InGraph,
    pub(crate) subject: Option<Id>,
    pub(crate) predicate: Option<Id>,
    pub(crate) object: Option<Id>,
}

impl IdPattern {
    pub(crate) fn matches(&self, quad: Quad) -> bool {
        let same = |wanted: Option<Id>, id: Id| wanted.is_none_or(|wanted| wanted == id);
        same(self.subject, quad.subject)
            && same(self.predicate, quad.predicate)
            && same(self.object, quad.object)
            && match self.graph {
                InGraph::One(graph) => graph == quad.graph,
                InGraph::AnyNamed => quad.graph != 0,
                InGraph::Any => true,
            }
    }
}

/// How the three numbers after the graph are arranged in a key.
#[derive(Clone, Copy)]
enum KeyOrder {
    Spo,
    Pos,
    Osp,
}

impl KeyOrder {
    fn arrange(self, quad: Quad) -> [Id; 3] {
        let Quad { subject: s, predicate: p, object: o, .. } = quad;
        match self {
            Self::Spo => [s, p, o],
            Self::Pos => [p, o, s],
            Self::Osp => [o, s, p],
        }
    }

    fn quad(self, graph: Id, [a, b, c]: [Id; 3]) -> Quad {
        let (subject, predicate, object) = match self {
            Self::Spo => (a, b, c),
            Self::Pos => (c, a, b),
            Self::Osp => (b, c, a),
        };
        Quad { graph, subject, predicate, object }
    }
}

/// A quad in one of the orders.
trait IndexKey: Ord + Copy {
    fn new(graph: Id, rest: [Id; 3]) -> Self;
    fn graph(self) -> Id;
    fn rest(self) -> [Id; 3];
}

/// With its graph in front.
type InNamed = u128;

impl IndexKey for InNamed {
    fn new(graph: Id, rest: [Id; 3]) -> Self {
        rest.iter().fold(graph.into(), |key, id| key << 32 | Self::from(*id))
    }

    fn graph(self) -> Id {
        (self >> 96) as Id
    }

    fn rest(self) -> [Id; 3] {
        [self >> 64, self >> 32, self].map(|part| part as Id)
    }
}

/// Of the default graph, which need not be said: a quarter less for what most data is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InDefault([Id; 3]);

impl IndexKey for InDefault {
    fn new(_: Id, rest: [Id; 3]) -> Self {
        Self(rest)
    }

    fn graph(self) -> Id {
        0
    }

    fn rest(self) -> [Id; 3] {
        self.0
    }
}

impl Ord for InDefault {
    fn cmp(&self, other: &Self) -> Ordering {
        // Two comparisons of numbers, where arrays are compared in a loop.
        InNamed::new(0, self.0).cmp(&InNamed::new(0, other.0))
    }
}

impl PartialOrd for InDefault {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The three orders.
#[derive(Clone)]
struct Orders<K> {
    spo: OrdSet<K>,
    pos: OrdSet<K>,
    osp: OrdSet<K>,
}

impl<K> Default for Orders<K> {
    fn default() -> Self {
        Self { spo: OrdSet::new(), pos: OrdSet::new(), osp: OrdSet::new() }
    }
}

impl<K: IndexKey> Orders<K> {
    fn contains(&self, quad: Quad) -> bool {
        self.spo.contains(&K::new(quad.graph, KeyOrder::Spo.arrange(quad)))
    }

    fn insert(&mut self, quad: Quad) -> bool {
        let key = |order: KeyOrder| K::new(quad.graph, order.arrange(quad));
        let new = self.spo.insert(key(KeyOrder::Spo)).is_none();
        if new {
            self.pos.insert(key(KeyOrder::Pos));
            self.osp.insert(key(KeyOrder::Osp));
        }
        new
    }

    fn remove(&mut self, quad: Quad) -> bool {
        let key = |order: KeyOrder| K::new(quad.graph, order.arrange(quad));
        let there = self.spo.remove(&key(KeyOrder::Spo)).is_some();
        if there {
            self.pos.remove(&key(KeyOrder::Pos));
            self.osp.remove(&key(KeyOrder::Osp));
        }
        there
    }

    fn run(&self, order: KeyOrder, first: K, last: K) -> KeyRun<'_, K> {
        let set = match order {
            KeyOrder::Spo => &self.spo,
            KeyOrder::Pos => &self.pos,
            KeyOrder::Osp => &self.osp,
        };
        KeyRun { keys: set.range(first..), last }
    }
}

/// Keys in a row. The set is not told where it ends, for which it would look as long as for the beginning.
struct KeyRun<'a, K> {
    keys: RangedIter<'a, K, DefaultSharedPtr>,
    last: K,
}

impl<K: IndexKey> Iterator for KeyRun<'_, K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.keys.next().copied().filter(|key| *key <= self.last)
    }
}

/// Quads of all graphs. Cloned in O(1).
#[derive(Clone, Default)]
pub(crate) struct Index {
    default: Orders<InDefault>,
    named: Orders<InNamed>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.default.spo.len() + self.named.spo.len()
    }

    pub(crate) fn contains(&self, quad: Quad) -> bool {
        if quad.graph == 0 { self.default.contains(quad) } else { self.named.contains(quad) }
    }

    /// False if it was there already.
    pub(crate) fn insert(&mut self, quad: Quad) -> bool {
        if quad.graph == 0 { self.default.insert(quad) } else { self.named.insert(quad) }
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, quad: Quad) -> bool {
        if quad.graph == 0 { self.default.remove(quad) } else { self.named.remove(quad) }
    }

    /// The first graph after `graph` that has a quad.
    pub(crate) fn graph_after(&self, graph: Id) -> Option<Id> {
        let from = InNamed::new(graph.checked_add(1)?, [0; 3]);
        self.named.spo.range(from..).next().map(|key| key.graph())
    }

    /// Quads that match, graph by graph, each in the order of the index that answers.
    pub(crate) fn scan(&self, pattern: IdPattern) -> IndexScan<'_> {
        let mut scan = IndexScan { index: self, pattern, keys: None, order: KeyOrder::Spo, next: None };
        let first = match pattern.graph {
            InGraph::One(graph) => Some(graph),
            InGraph::Any => Some(0),
            InGraph::AnyNamed => self.graph_after(0),
        };
        if let Some(graph) = first {
            scan.enter(graph);
        }
        scan
    }
}

/// The quads of one pattern.
pub(crate) struct IndexScan<'a> {
    index: &'a Index,
    pattern: IdPattern,
    keys: Option<Keys<'a>>,
    order: KeyOrder,
    /// The graph to look at when this one is exhausted.
    next: Option<Id>,
}

enum Keys<'a> {
    Default(KeyRun<'a, InDefault>),
    Named(KeyRun<'a, InNamed>),
}

impl IndexScan<'_> {
    fn enter(&mut self, graph: Id) {
        let IdPattern { subject, predicate, object, .. } = self.pattern;
        // Bound positions become the front of a range; the order is the one that has them in front.
        let (order, bound) = match (subject, predicate, object) {
            (Some(s), Some(p), Some(o)) => (KeyOrder::Spo, [Some(s), Some(p), Some(o)]),
            (Some(s), Some(p), None) => (KeyOrder::Spo, [Some(s), Some(p), None]),
            (Some(s), None, Some(o)) => (KeyOrder::Osp, [Some(o), Some(s), None]),
            (Some(s), None, None) => (KeyOrder::Spo, [Some(s), None, None]),
            (None, Some(p), o) => (KeyOrder::Pos, [Some(p), o, None]),
            (None, None, o) => (if o.is_some() { KeyOrder::Osp } else { KeyOrder::Spo }, [o, None, None]),
        };
        let edge = |rest: Id| bound.map(|id| id.unwrap_or(rest));
        let (is_one, is_all) = (matches!(self.pattern.graph, InGraph::One(_)), bound == [None; 3]);
        // Everything of every named graph is one range.
        let last = if is_all && !is_one { Id::MAX } else { graph };
        self.order = order;
        self.keys = Some(if graph == 0 {
            Keys::Default(self.index.default.run(order, InDefault(edge(0)), InDefault(edge(Id::MAX))))
        } else {
            let (first, last) = (InNamed::new(graph, edge(0)), InNamed::new(last, edge(Id::MAX)));
            Keys::Named(self.index.named.run(order, first, last))
        });
        self.next = if is_one || graph != 0 && is_all { None } else { self.index.graph_after(graph) };
    }
}

impl Iterator for IndexScan<'_> {
    type Item = Quad;

    fn next(&mut self) -> Option<Quad> {
        loop {
            let quad = match self.keys.as_mut()? {
                Keys::Default(keys) => keys.next().map(|key| self.order.quad(0, key.rest())),
                Keys::Named(keys) => keys.next().map(|key| self.order.quad(key.graph(), key.rest())),
            };
            if quad.is_some() {
                return quad;
            }
            let graph = self.next?;
            self.enter(graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quads() -> impl Strategy<Value = Vec<Quad>> {
        let quad = (0..3u32, 1..5u32, 1..4u32, 1..5u32).prop_map(|(graph, subject, predicate, object)| Quad {
            graph,
            subject,
            predicate,
            object,
        });
        prop::collection::vec(quad, 0..60)
    }

    proptest! {
        #[test]
        fn every_pattern_finds_what_a_walk_finds(quads in quads(), removed in quads()) {
            let mut index = Index::default();
            for quad in &quads {
                index.insert(*quad);
            }
            for quad in &removed {
                index.remove(*quad);
            }
            let mut left: Vec<Quad> = quads.iter().copied().filter(|quad| !removed.contains(quad)).collect();
            left.sort_unstable();
            left.dedup();
            prop_assert_eq!(index.len(), left.len());
            let graphs = [InGraph::One(0), InGraph::One(1), InGraph::One(9), InGraph::AnyNamed, InGraph::Any];
            let choices = |id: u32| [None, Some(id)];
            for graph in graphs {
                for (subject, (predicate, object)) in
                    choices(2).into_iter().flat_map(|s| choices(1).map(|p| (s, p)))
                        .flat_map(|(s, p)| choices(3).map(|o| (s, (p, o))))
                {
                    let pattern = IdPattern { graph, subject, predicate, object };
                    let mut found: Vec<Quad> = index.scan(pattern).collect();
                    found.sort_unstable();
                    let expected: Vec<Quad> = left.iter().copied().filter(|quad| pattern.matches(*quad)).collect();
                    prop_assert_eq!(found, expected, "{:?}", pattern);
                }
            }
        }
    }
}
