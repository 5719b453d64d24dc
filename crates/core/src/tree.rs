//! A tree of the levels of filters, in one arena.
//!
//! Children are found through one hash table for the whole tree, keyed by parent and level, so a node costs no table of
//! its own. Everything is iterative: the depth of a topic never becomes the depth
//! of a stack.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

pub(crate) type NodeId = u32;

pub(crate) const ROOT: NodeId = 0;
const NONE: NodeId = u32::MAX;

#[derive(Debug)]
pub(crate) struct Tree<V> {
    nodes: Vec<Node<V>>,
    free: Vec<NodeId>,
    children: HashTable<NodeId>,
    hasher: FixedState,
}

#[derive(Debug)]
struct Node<V> {
    level: Box<str>,
    value: V,
    parent: NodeId,
    /// The children `+` and `#`, if there are any: filters have them everywhere, and matching asks for them at each step.
    plus: NodeId,
    hash: NodeId,
    /// How many other children there are. Where there are none, nothing needs to be looked up.
    literals: u32,
}

impl<V: Default> Tree<V> {
    /// The seed keeps an attacker from choosing topics that collide.
    pub(crate) fn new(seed: u64) -> Self {
        let root =
            Node { level: Box::default(), value: V::default(), parent: NONE, plus: NONE, hash: NONE, literals: 0 };
        Self {
            nodes: alloc::vec![root],
            free: Vec::new(),
            children: HashTable::new(),
            hasher: FixedState::with_seed(seed),
        }
    }

    /// Nodes, the root included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    pub(crate) fn value(&self, node: NodeId) -> &V {
        &self.nodes[node as usize].value
    }

    pub(crate) fn value_mut(&mut self, node: NodeId) -> &mut V {
        &mut self.nodes[node as usize].value
    }

    #[inline]
    pub(crate) fn child(&self, parent: NodeId, level: &str) -> Option<NodeId> {
        let hash = self.hash(parent, level);
        self.children
            .find(hash, |child| {
                let node = &self.nodes[*child as usize];
                node.parent == parent && *node.level == *level
            })
            .copied()
    }

    /// The child for this level of a topic name, which is no wildcard.
    #[inline]
    pub(crate) fn literal(&self, parent: NodeId, level: &str) -> Option<NodeId> {
        if self.nodes[parent as usize].literals == 0 {
            return None;
        }
        self.child(parent, level)
    }

    /// The child `+`.
    #[inline]
    pub(crate) fn plus(&self, parent: NodeId) -> Option<NodeId> {
        Some(self.nodes[parent as usize].plus).filter(|child| *child != NONE)
    }

    /// The child `#`.
    #[inline]
    pub(crate) fn hash_sign(&self, parent: NodeId) -> Option<NodeId> {
        Some(self.nodes[parent as usize].hash).filter(|child| *child != NONE)
    }

    /// The node at the end of this path, if it is there.
    pub(crate) fn find(&self, path: &str) -> Option<NodeId> {
        path.split('/').try_fold(ROOT, |node, level| self.child(node, level))
    }

    /// The node at the end of this path, made if it is not there.
    pub(crate) fn insert(&mut self, path: &str) -> NodeId {
        path.split('/').fold(ROOT, |node, level| self.child(node, level).unwrap_or_else(|| self.add(node, level)))
    }

    /// Whether nothing is below this node.
    pub(crate) fn is_leaf(&self, node: NodeId) -> bool {
        let Node { plus, hash, literals, .. } = self.nodes[node as usize];
        plus == NONE && hash == NONE && literals == 0
    }

    /// Removes this node, and every ancestor that becomes useless by it, while `is_useless` says so of its value.
    pub(crate) fn prune(&mut self, mut node: NodeId, is_useless: impl Fn(&V) -> bool) {
        while node != ROOT {
            let Node { ref value, parent, .. } = self.nodes[node as usize];
            if !self.is_leaf(node) || !is_useless(value) {
                return;
            }
            self.unlink(node);
            node = parent;
        }
    }

    /// The path that leads to this node.
    pub(crate) fn path(&self, mut node: NodeId) -> String {
        let mut levels = Vec::new();
        while node != ROOT {
            let Node { level, parent, .. } = &self.nodes[node as usize];
            levels.push(&**level);
            node = *parent;
        }
        levels.reverse();
        levels.join("/")
    }

    fn add(&mut self, parent: NodeId, level: &str) -> NodeId {
        let node = Node { level: level.into(), value: V::default(), parent, plus: NONE, hash: NONE, literals: 0 };
        let id = if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            id
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as NodeId
        };
        let above = &mut self.nodes[parent as usize];
        match level {
            "+" => above.plus = id,
            "#" => above.hash = id,
            _ => above.literals += 1,
        }
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        let hash = hash_of(hasher, parent, level);
        self.children.insert_unique(hash, id, |child| {
            let node = &nodes[*child as usize];
            hash_of(hasher, node.parent, &node.level)
        });
        id
    }

    fn unlink(&mut self, id: NodeId) {
        let Node { parent, ref level, .. } = self.nodes[id as usize];
        let hash = hash_of(&self.hasher, parent, level);
        if let Ok(entry) = self.children.find_entry(hash, |child| *child == id) {
            entry.remove();
        }
        let above = &mut self.nodes[parent as usize];
        if above.plus == id {
            above.plus = NONE;
        } else if above.hash == id {
            above.hash = NONE;
        } else {
            above.literals -= 1;
        }
        let node = &mut self.nodes[id as usize];
        node.value = V::default();
        node.level = Box::default();
        self.free.push(id);
    }

    #[inline]
    fn hash(&self, parent: NodeId, level: &str) -> u64 {
        hash_of(&self.hasher, parent, level)
    }
}

#[inline]
fn hash_of(hasher: &FixedState, parent: NodeId, level: &str) -> u64 {
    hasher.hash_one((parent, level))
}
