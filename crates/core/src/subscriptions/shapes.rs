//! How much work the filters of all sessions can make of one match.
//!
//! A match walks down all branches of the tree of filters that fit the topic. The *shape* of a filter is where it has
//! wildcards. Of all filters with the same shape down to some level, one branch at most fits a topic there: the other
//! levels are the topic's own. So a match visits no more nodes than a tree of the shapes has, whatever the filters'
//! text, and that tree is bounded. Filters without `+` have one branch together and are not counted.

use alloc::string::String;

use crate::limits::{ORDINARY_LEVELS, ORDINARY_PLUS_LEVELS, SHAPE_NODES_MAX};
use crate::tree::{ROOT, Tree};

#[derive(Debug)]
pub(super) struct Shapes {
    /// Filters by shape.
    tree: Tree<u32>,
    /// Scratch for the shape that is looked for.
    shape: String,
}

impl Shapes {
    pub(super) fn new(seed: u64) -> Self {
        Self { tree: Tree::new(seed), shape: String::new() }
    }

    /// Whether another filter like this can be had. Those that people write always can.
    pub(super) fn has_room_for(&mut self, filter: &str) -> bool {
        if is_ordinary(filter) {
            return true;
        }
        self.write_shape(filter);
        let known = self.shape.split('/').try_fold((ROOT, 0), |(node, depth), level| {
            self.tree.child(node, level).map(|child| (child, depth + 1)).ok_or(depth)
        });
        let new = match known {
            Ok(_) => 0,
            Err(depth) => self.shape.split('/').count() - depth,
        };
        new == 0 || self.tree.len() + new <= SHAPE_NODES_MAX
    }

    pub(super) fn add(&mut self, filter: &str) {
        if has_plus(filter) {
            self.write_shape(filter);
            let node = self.tree.insert(&self.shape);
            *self.tree.value_mut(node) += 1;
        }
    }

    pub(super) fn remove(&mut self, filter: &str) {
        if !has_plus(filter) {
            return;
        }
        self.write_shape(filter);
        if let Some(node) = self.tree.find(&self.shape) {
            *self.tree.value_mut(node) -= 1;
            self.tree.prune(node, |count| *count == 0);
        }
    }

    /// Every level that is no wildcard is the same.
    fn write_shape(&mut self, filter: &str) {
        self.shape.clear();
        for (number, level) in filter.split('/').enumerate() {
            self.shape.push_str(if number > 0 { "/" } else { "" });
            self.shape.push_str(if matches!(level, "+" | "#") { level } else { "x" });
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }
}

fn has_plus(filter: &str) -> bool {
    filter.contains('+')
}

fn is_ordinary(filter: &str) -> bool {
    let levels = || filter.split('/');
    !has_plus(filter)
        || levels().count() <= ORDINARY_LEVELS && !levels().skip(ORDINARY_PLUS_LEVELS).any(|level| level == "+")
}
