//! Retained messages: the last one of each topic, found again by filter.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;

use crate::limits::EMPTIED_BYTES_MAX;
use crate::message::Message;
use crate::tree::{NodeId, ROOT, Tree};

#[derive(Debug)]
pub(crate) struct Retained {
    tree: Tree<Option<(Arc<Message>, Stamp)>>,
    count: usize,
    bytes: usize,
    /// Topics that were emptied, for messages from other shards that were sent before and come after.
    emptied: HashMap<Box<str>, Stamp, FixedState>,
    emptied_bytes: usize,
}

/// The place of a retained message in one order that all shards agree on, so that two that cross on their way leave the
/// same one everywhere. A Lamport clock: each shard counts on from the highest that it has heard of; equal counts were
/// sent without knowledge of each other, and the shard decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    pub(crate) count: u64,
    pub(crate) shard: usize,
}

/// Whether older messages may still come from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    None,
    MayBeBehind,
}

/// What became of a message that was to be retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Yes,
    /// There is no room for another topic.
    Full,
}

impl Retained {
    pub(crate) fn new(seed: u64) -> Self {
        let emptied = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { tree: Tree::new(seed), count: 0, bytes: 0, emptied, emptied_bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the message of this topic says this already.
    pub(crate) fn says(&self, topic: &str, payload: &[u8]) -> bool {
        let node = self.tree.find(topic);
        let last = node.and_then(|node| self.tree.value(node).as_ref());
        last.is_some_and(|(message, _)| message.view().payload == payload)
    }

    pub(crate) fn set(
        &mut self,
        topic: &str,
        message: Arc<Message>,
        stamp: Stamp,
        count_max: usize,
        bytes_max: usize,
    ) -> Kept {
        let size = cost(&message);
        let existing = self.tree.find(topic);
        let last = existing.and_then(|node| self.tree.value(node).as_ref());
        if last.map(|(_, last)| last).or_else(|| self.emptied.get(topic)).is_some_and(|last| *last > stamp) {
            // A later one was here first.
            return Kept::Yes;
        }
        let before = last.map(|(message, _)| cost(message));
        if before.is_none() && self.count >= count_max || self.bytes - before.unwrap_or(0) + size > bytes_max {
            return Kept::Full;
        }
        let node = existing.unwrap_or_else(|| self.tree.insert(topic));
        *self.tree.value_mut(node) = Some((message, stamp));
        self.count += usize::from(before.is_none());
        self.bytes = self.bytes - before.unwrap_or(0) + size;
        Kept::Yes
    }

    pub(crate) fn remove(&mut self, topic: &str, stamp: Stamp, others: Others) {
        let node = self.tree.find(topic);
        if node.and_then(|node| self.tree.value(node).as_ref()).is_some_and(|(_, last)| *last > stamp) {
            return;
        }
        if others == Others::MayBeBehind {
            self.remember_emptied(topic, stamp);
        }
        if let Some(node) = node {
            self.forget(node);
        }
    }

    /// Not for ever, only for as long as a message may be on its way; when they become too many, all are forgotten.
    fn remember_emptied(&mut self, topic: &str, stamp: Stamp) {
        if self.emptied_bytes > EMPTIED_BYTES_MAX {
            self.emptied.clear();
            self.emptied_bytes = 0;
        }
        if let Some(last) = self.emptied.get_mut(topic) {
            *last = stamp.max(*last);
        } else {
            self.emptied_bytes += topic.len() + size_of::<(Box<str>, Stamp)>();
            self.emptied.insert(topic.into(), stamp);
        }
    }

    fn forget(&mut self, node: NodeId) {
        if let Some((message, _)) = self.tree.value_mut(node).take() {
            self.count -= 1;
            self.bytes -= cost(&message);
        }
        self.tree.prune(node, Option::is_none);
    }

    /// The messages whose topic matches the filter, at most so many. Those whose lifetime is over are forgotten on the
    /// way.
    pub(crate) fn matches(&mut self, filter: &str, now: Timestamp, most: usize) -> Vec<Arc<Message>> {
        let levels: Vec<&str> = filter.split('/').collect();
        let (mut found, mut expired) = (Vec::new(), Vec::new());
        let mut stack = alloc::vec![(ROOT, 0)];
        while let Some((node, depth)) = stack.pop().filter(|_| found.len() < most) {
            let Some(level) = levels.get(depth) else {
                self.collect(node, now, &mut found, &mut expired);
                continue;
            };
            match *level {
                "#" => {
                    // `#` stands for this level and everything below it.
                    self.collect(node, now, &mut found, &mut expired);
                    stack.extend(self.visible_children(node).map(|child| (child, depth)));
                }
                "+" => stack.extend(self.visible_children(node).map(|child| (child, depth + 1))),
                level => stack.extend(self.tree.child(node, level).map(|child| (child, depth + 1))),
            }
        }
        for node in expired {
            self.forget(node);
        }
        found
    }

    /// [MQTT-4.7.2-1] A leading wildcard does not match topics that begin with `$`.
    fn visible_children(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.tree
            .children(node)
            .filter(move |(_, level)| node != ROOT || !level.starts_with('$'))
            .map(|(child, _)| child)
    }

    fn collect(&self, node: NodeId, now: Timestamp, found: &mut Vec<Arc<Message>>, expired: &mut Vec<NodeId>) {
        let Some((message, _)) = self.tree.value(node) else { return };
        if message.view().is_expired(now) {
            expired.push(node);
        } else {
            found.push(Arc::clone(message));
        }
    }
}

/// What it costs to keep a message: itself, and a node for each level of its topic, as if it shared none.
fn cost(message: &Message) -> usize {
    message.size() + message.view().topic.split('/').count() * LEVEL_BYTES
}

/// Bytes of a node of the tree with its level's text and its place among the children.
const LEVEL_BYTES: usize = 112;
