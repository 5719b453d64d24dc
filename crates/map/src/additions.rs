//! What `append` rules have added, so that the oldest can go when there is too much of it. It knows what was added since the
//! process began, and no more.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oxrdf::{GraphName, NamedOrBlankNode, Quad};
use tidegate_graph::{Mask, MaskGraph};

use crate::limits::{KEPT_TRIPLES_MAX, OWED_MAX, OWED_PER_EDIT};

/// The additions of all rules, each rule's in order.
#[derive(Debug)]
pub struct Additions {
    /// By rule and by what its captures were; the triples of each message that are its own.
    lists: BTreeMap<(usize, String), VecDeque<Vec<Quad>>>,
    /// How many messages have each: what two have said is gone with the second.
    counts: HashMap<Quad, u32, FixedState>,
    triples: usize,
    /// What should have gone with changes that the space refused.
    owed: VecDeque<Quad>,
}

impl Additions {
    /// Nothing. The seed feeds the hash table.
    pub fn new(seed: u64) -> Self {
        let counts = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { lists: BTreeMap::new(), counts, triples: 0, owed: VecDeque::new() }
    }

    /// Notes what a message of this rule and these captures has added, of which so many messages are kept. The answer is
    /// what has to go.
    pub fn add(&mut self, rule: usize, captures: String, added: Vec<Quad>, keep: usize) -> Vec<Mask> {
        // What does not vary is nobody's own, and nothing of it ever goes.
        if added.is_empty() {
            return Vec::new();
        }
        self.triples += added.len();
        for quad in &added {
            *self.counts.entry_ref(quad).or_insert(0) += 1;
        }
        let list = self.lists.entry((rule, captures)).or_default();
        list.push_back(added);
        let mut gone = Vec::new();
        while list.len() > keep.max(1) {
            gone.extend(list.pop_front().unwrap_or_default());
        }
        // Too many different captures: those that sort first give.
        while self.triples - gone.len() > KEPT_TRIPLES_MAX {
            let Some(mut entry) = self.lists.first_entry() else { break };
            gone.extend(entry.get_mut().pop_front().unwrap_or_default());
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        self.triples -= gone.len();
        gone.into_iter().filter(|quad| self.forget(quad)).map(exactly).collect()
    }

    /// A change was refused that would have removed these: later ones do, if nobody has said them again until then. The
    /// answer is how many had to be given up.
    pub fn owe(&mut self, quads: Vec<Quad>) -> usize {
        self.owed.extend(quads);
        let too_many = self.owed.len().saturating_sub(OWED_MAX);
        self.owed.drain(..too_many);
        too_many
    }

    /// A part of what is owed, for the next change.
    pub(crate) fn pay(&mut self) -> Vec<Mask> {
        let part = self.owed.len().min(OWED_PER_EDIT);
        self.owed.drain(..part).filter(|quad| !self.counts.contains_key(quad)).map(exactly).collect()
    }

    /// True if nobody else has it.
    fn forget(&mut self, quad: &Quad) -> bool {
        let Some(count) = self.counts.get_mut(quad) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.counts.remove(quad);
        }
        is_last
    }
}

/// The mask of one quad.
fn exactly(quad: Quad) -> Mask {
    let graph = match quad.graph_name {
        GraphName::DefaultGraph => MaskGraph::Default,
        GraphName::NamedNode(name) => MaskGraph::Named(name.into()),
        GraphName::BlankNode(name) => MaskGraph::Named(name.into()),
    };
    Mask { subject: Some(quad.subject), predicate: Some(quad.predicate), object: Some(quad.object), graph }
}

/// The quad of such a mask; none if it is wider.
pub(crate) fn quad_of(mask: &Mask) -> Option<Quad> {
    let graph_name = match &mask.graph {
        MaskGraph::Default => GraphName::DefaultGraph,
        MaskGraph::Named(NamedOrBlankNode::NamedNode(name)) => name.clone().into(),
        MaskGraph::Named(NamedOrBlankNode::BlankNode(name)) => name.clone().into(),
        MaskGraph::AnyNamed | MaskGraph::Any | MaskGraph::Readable(_) => return None,
    };
    let (subject, predicate, object) = (mask.subject.clone()?, mask.predicate.clone()?, mask.object.clone()?);
    Some(Quad { subject, predicate, object, graph_name })
}

#[cfg(test)]
mod tests {
    use oxrdf::{Literal, NamedNode};

    use super::*;

    fn quad(value: i32) -> Quad {
        let node = |text: &str| NamedNode::new_unchecked(text);
        Quad::new(node("urn:s"), node("urn:p"), Literal::from(value), GraphName::DefaultGraph)
    }

    #[test]
    fn the_oldest_goes_unless_a_newer_message_said_the_same() {
        let mut kept = Additions::new(7);
        let mut add = |value, captures: &str| kept.add(0, captures.to_owned(), vec![quad(value)], 2).len();
        assert_eq!((add(1, "a"), add(2, "a"), add(1, "a"), add(3, "b")), (0, 0, 0, 0));
        assert_eq!(add(4, "a"), 1, "the 2: the first 1 was said again");
        assert_eq!(add(5, "a"), 1, "now the 1");
        assert_eq!(kept.triples, 3);
        assert_eq!(kept.counts.len(), 3);
    }

    #[test]
    fn what_is_owed_is_bounded_and_what_does_not_vary_takes_no_room() {
        let mut kept = Additions::new(7);
        assert!(kept.add(0, "a".to_owned(), Vec::new(), 2).is_empty());
        assert!(kept.lists.is_empty());
        assert_eq!(kept.owe((0..5).map(quad).collect()), 0);
        kept.add(0, "a".to_owned(), vec![quad(3)], 2);
        assert_eq!((kept.pay().len(), kept.pay().len()), (4, 0), "the 3 was said again");
        let many = i32::try_from(OWED_MAX).unwrap() + 7;
        assert_eq!(kept.owe((0..many).map(quad).collect()), 7);
        assert_eq!(kept.pay().len(), OWED_PER_EDIT);
    }
}
