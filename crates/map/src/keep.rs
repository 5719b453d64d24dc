//! What `append` rules have added, so that the oldest can go when there is too much of it. It knows what was added since the
//! process began, and no more.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oxrdf::Quad;
use tidegate_graph::{Mask, MaskGraph};

use crate::limits::KEPT_TRIPLES_MAX;

/// The additions of all rules, each rule's in order.
#[derive(Debug)]
pub struct Kept {
    /// By rule and by what its captures were; the triples of each message that are its own.
    lists: BTreeMap<(usize, String), VecDeque<Vec<Quad>>>,
    /// How many messages have each: what two have said is gone with the second.
    counts: HashMap<Quad, u32, FixedState>,
    triples: usize,
}

impl Kept {
    /// Nothing. The seed feeds the hash table.
    pub fn new(seed: u64) -> Self {
        Self { lists: BTreeMap::new(), counts: HashMap::with_hasher(FixedState::with_seed(seed)), triples: 0 }
    }

    /// Notes what a message of this rule and these captures has added, of which so many messages are kept. The answer is
    /// what has to go.
    pub fn add(&mut self, rule: usize, captures: String, added: Vec<Quad>, keep: usize) -> Vec<Mask> {
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
        oxrdf::GraphName::DefaultGraph => MaskGraph::Default,
        oxrdf::GraphName::NamedNode(name) => MaskGraph::Named(name.into()),
        oxrdf::GraphName::BlankNode(name) => MaskGraph::Named(name.into()),
    };
    Mask { subject: Some(quad.subject), predicate: Some(quad.predicate), object: Some(quad.object), graph }
}

#[cfg(test)]
mod tests {
    use oxrdf::{GraphName, Literal, NamedNode};

    use super::*;

    fn quad(value: i32) -> Quad {
        let node = |text: &str| NamedNode::new_unchecked(text);
        Quad::new(node("urn:s"), node("urn:p"), Literal::from(value), GraphName::DefaultGraph)
    }

    #[test]
    fn the_oldest_goes_unless_a_newer_message_said_the_same() {
        let mut kept = Kept::new(7);
        let mut add = |value, captures: &str| kept.add(0, captures.to_owned(), vec![quad(value)], 2).len();
        assert_eq!((add(1, "a"), add(2, "a"), add(1, "a"), add(3, "b")), (0, 0, 0, 0));
        assert_eq!(add(4, "a"), 1, "the 2: the first 1 was said again");
        assert_eq!(add(5, "a"), 1, "now the 1");
        assert_eq!(kept.triples, 3);
        assert_eq!(kept.counts.len(), 3);
    }
}
