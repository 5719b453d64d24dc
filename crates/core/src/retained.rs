//! Retained messages: the last one of each topic, found again by filter.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;

use crate::message::Message;
use crate::tree::{NodeId, ROOT, Tree};

#[derive(Debug)]
pub(crate) struct Retained {
    tree: Tree<Option<Arc<Message>>>,
    count: usize,
    bytes: usize,
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
        Self { tree: Tree::new(seed), count: 0, bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn set(&mut self, topic: &str, message: Arc<Message>, count_max: usize, bytes_max: usize) -> Kept {
        let size = message.size();
        let existing = self.tree.find(topic);
        let before = existing.and_then(|node| self.tree.value(node).as_ref()).map(|message| message.size());
        if before.is_none() && self.count >= count_max || self.bytes - before.unwrap_or(0) + size > bytes_max {
            return Kept::Full;
        }
        let node = existing.unwrap_or_else(|| self.tree.insert(topic));
        *self.tree.value_mut(node) = Some(message);
        self.count += usize::from(before.is_none());
        self.bytes = self.bytes - before.unwrap_or(0) + size;
        Kept::Yes
    }

    pub(crate) fn remove(&mut self, topic: &str) {
        let Some(node) = self.tree.find(topic) else { return };
        if let Some(message) = self.tree.value_mut(node).take() {
            self.count -= 1;
            self.bytes -= message.size();
        }
        self.tree.prune(node, Option::is_none);
    }

    /// The messages whose topic matches the filter. Those whose lifetime is over are forgotten on the way.
    pub(crate) fn matches(&mut self, filter: &str, now: Timestamp) -> Vec<Arc<Message>> {
        let levels: Vec<&str> = filter.split('/').collect();
        let (mut found, mut expired) = (Vec::new(), Vec::new());
        let mut stack = alloc::vec![(ROOT, 0)];
        while let Some((node, depth)) = stack.pop() {
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
        for topic in expired {
            self.remove(&topic);
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

    fn collect(
        &self,
        node: NodeId,
        now: Timestamp,
        found: &mut Vec<Arc<Message>>,
        expired: &mut Vec<alloc::string::String>,
    ) {
        let Some(message) = self.tree.value(node) else { return };
        if message.view().is_expired(now) {
            expired.push(message.view().topic.into());
        } else {
            found.push(Arc::clone(message));
        }
    }
}
