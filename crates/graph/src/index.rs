//! Quads as numbers in three orders, each a persistent ordered set: graph first, then subject-predicate-object,
//! predicate-object-subject or object-subject-predicate. One of the three answers every pattern with a range.
//!
//! The graph comes first in all of them. A pattern that asks for any named graph visits the graphs one by one; the
//! alternative, three more orders with the graph last, would double the memory for a rare question.

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
pub(crate) struct Pattern {
    pub(crate) graph: InGraph,
    pub(crate) subject: Option<Id>,
    pub(crate) predicate: Option<Id>,
    pub(crate) object: Option<Id>,
}

impl Pattern {
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
enum Order {
    Spo,
    Pos,
    Osp,
}

impl Order {
    fn key(self, quad: Quad) -> u128 {
        let Quad { graph, subject: s, predicate: p, object: o } = quad;
        match self {
            Self::Spo => pack([graph, s, p, o]),
            Self::Pos => pack([graph, p, o, s]),
            Self::Osp => pack([graph, o, s, p]),
        }
    }

    fn quad(self, key: u128) -> Quad {
        let [graph, a, b, c] = [key >> 96, key >> 64, key >> 32, key].map(|part| part as Id);
        let (subject, predicate, object) = match self {
            Self::Spo => (a, b, c),
            Self::Pos => (c, a, b),
            Self::Osp => (b, c, a),
        };
        Quad { graph, subject, predicate, object }
    }
}

fn pack(ids: [Id; 4]) -> u128 {
    ids.iter().fold(0, |key, id| key << 32 | u128::from(*id))
}

/// The three orders. Cloned in O(1).
#[derive(Clone, Default)]
pub(crate) struct Index {
    spo: OrdSet<u128>,
    pos: OrdSet<u128>,
    osp: OrdSet<u128>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.spo.len()
    }

    pub(crate) fn contains(&self, quad: Quad) -> bool {
        self.spo.contains(&Order::Spo.key(quad))
    }

    /// False if it was there already.
    pub(crate) fn insert(&mut self, quad: Quad) -> bool {
        let new = self.spo.insert(Order::Spo.key(quad)).is_none();
        if new {
            self.pos.insert(Order::Pos.key(quad));
            self.osp.insert(Order::Osp.key(quad));
        }
        new
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, quad: Quad) -> bool {
        let there = self.spo.remove(&Order::Spo.key(quad)).is_some();
        if there {
            self.pos.remove(&Order::Pos.key(quad));
            self.osp.remove(&Order::Osp.key(quad));
        }
        there
    }

    /// The first graph after `graph` that has a quad.
    pub(crate) fn graph_after(&self, graph: Id) -> Option<Id> {
        let from = pack([graph.checked_add(1)?, 0, 0, 0]);
        self.spo.range(from..).next().map(|key| Order::Spo.quad(*key).graph)
    }

    /// Quads that match, in the order of the index that answers.
    pub(crate) fn scan(&self, pattern: Pattern) -> Scan<'_> {
        let (graph, last) = match pattern.graph {
            InGraph::One(graph) => (Some(graph), Some(graph)),
            InGraph::Any => (Some(0), None),
            InGraph::AnyNamed => (self.graph_after(0), None),
        };
        let all = pattern.subject.is_none() && pattern.predicate.is_none() && pattern.object.is_none();
        if all && last.is_none() {
            let keys = graph.map(|graph| self.spo.range(pack([graph, 0, 0, 0])..=u128::MAX));
            return Scan { index: self, pattern, keys, order: Order::Spo, next: None };
        }
        let mut scan = Scan { index: self, pattern, keys: None, order: Order::Spo, next: None };
        if let Some(graph) = graph {
            scan.enter(graph);
        }
        scan
    }

    fn order(&self, order: Order) -> &OrdSet<u128> {
        match order {
            Order::Spo => &self.spo,
            Order::Pos => &self.pos,
            Order::Osp => &self.osp,
        }
    }
}

/// The quads of one pattern.
pub(crate) struct Scan<'a> {
    index: &'a Index,
    pattern: Pattern,
    keys: Option<RangedIter<'a, u128, DefaultSharedPtr>>,
    order: Order,
    /// The graph to look at when this one is exhausted.
    next: Option<Id>,
}

impl Scan<'_> {
    fn enter(&mut self, graph: Id) {
        let Pattern { subject, predicate, object, .. } = self.pattern;
        // Bound positions become the front of a range; the order is the one that has them in front.
        let (order, bound) = match (subject, predicate, object) {
            (Some(s), Some(p), Some(o)) => (Order::Spo, [Some(s), Some(p), Some(o)]),
            (Some(s), Some(p), None) => (Order::Spo, [Some(s), Some(p), None]),
            (Some(s), None, Some(o)) => (Order::Osp, [Some(o), Some(s), None]),
            (Some(s), None, None) => (Order::Spo, [Some(s), None, None]),
            (None, Some(p), o) => (Order::Pos, [Some(p), o, None]),
            (None, None, o) => (if o.is_some() { Order::Osp } else { Order::Spo }, [o, None, None]),
        };
        let edge = |rest: Id| {
            let [a, b, c] = bound.map(|id| id.unwrap_or(rest));
            pack([graph, a, b, c])
        };
        self.order = order;
        self.keys = Some(self.index.order(order).range(edge(0)..=edge(Id::MAX)));
        self.next = match self.pattern.graph {
            InGraph::One(_) => None,
            InGraph::AnyNamed | InGraph::Any => self.index.graph_after(graph),
        };
    }
}

impl Iterator for Scan<'_> {
    type Item = Quad;

    fn next(&mut self) -> Option<Quad> {
        loop {
            if let Some(key) = self.keys.as_mut()?.next() {
                return Some(self.order.quad(*key));
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
                    let pattern = Pattern { graph, subject, predicate, object };
                    let mut found: Vec<Quad> = index.scan(pattern).collect();
                    found.sort_unstable();
                    let expected: Vec<Quad> = left.iter().copied().filter(|quad| pattern.matches(*quad)).collect();
                    prop_assert_eq!(found, expected, "{:?}", pattern);
                }
            }
        }
    }
}
