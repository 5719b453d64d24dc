//! Who wants which topics: the subscriptions of this shard's sessions, and the interest of the other shards.
//!
//! One tree of filters. Each node holds the subscribers of its filter, the shared groups on it, and the other
//! shards that have subscribers there. Matching walks all branches level by level, without recursion, and only collects;
//! delivering is somebody else's work.

mod changes;
mod group;
mod shapes;
mod subscribers;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use tidegate_wire_mqtt::{QoS, SubscriptionOptions};

use crate::between::ShardSet;
use crate::tree::{NodeId, ROOT, Tree};
pub(crate) use changes::{Changes, TopicWatch};
use group::SharedGroup;
pub(crate) use group::{Load, Members, Pick, Presence};
use shapes::Shapes;
use subscribers::Subscribers;

/// How a subscriber wants its messages; kept as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberOptions {
    /// Highest quality of service.
    pub qos: QoS,
    /// Not its own.
    pub no_local: bool,
    /// With the flag they were published with.
    pub retain_as_published: bool,
    /// While they have to wait, only the newest of each topic.
    pub is_latest: bool,
    /// Identifier of the subscription.
    pub id: Option<NonZeroU32>,
}

impl SubscriberOptions {
    pub(crate) fn new(options: SubscriptionOptions, id: Option<NonZeroU32>) -> Self {
        let SubscriptionOptions { qos, no_local, retain_as_published, .. } = options;
        Self { qos, no_local, retain_as_published, is_latest: false, id }
    }
}

/// What hangs at a filter.
#[derive(Debug, Default)]
struct Place {
    subscribers: Subscribers,
    groups: Vec<SharedGroup>,
    /// Other shards with subscribers here.
    shards: ShardSet,
}

impl Place {
    fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.groups.is_empty() && self.shards.is_empty()
    }
}

/// A group by name, wherever its members are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupRef<'a> {
    pub(crate) name: &'a str,
    pub(crate) filter: &'a str,
}

impl GroupRef<'_> {
    /// As its members write it.
    pub(crate) fn text(&self) -> String {
        alloc::format!("$share/{}/{}", self.name, self.filter)
    }
}

/// A group that a topic matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupId {
    node: NodeId,
    index: u32,
}

/// Everything that a topic matched.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    /// Sessions of this shard with each of their matching subscriptions.
    pub(crate) subscribers: Vec<(u32, SubscriberOptions)>,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) shards: ShardSet,
}

/// Whether a subscription was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeOutcome {
    /// The first local one on its filter (and group): the other shards must know.
    First,
    /// A new one.
    New,
    /// An old one with new options.
    Replaced,
}

#[derive(Debug)]
pub(crate) struct Subscriptions {
    tree: Tree<Place>,
    count: usize,
    /// What results of matching are no longer good for.
    changes: Changes,
    /// Of this shard's own filters: others bound theirs.
    shapes: Shapes,
    /// Scratch of `matches`, kept for its capacity.
    frontier: Vec<NodeId>,
}

impl Subscriptions {
    pub(crate) fn new(seed: u64) -> Self {
        let (changes, shapes) = (Changes::new(seed), Shapes::new(seed));
        Self { tree: Tree::new(seed), count: 0, changes, shapes, frontier: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Whether a match stays bounded with another filter like this; see `shapes`.
    pub(crate) fn has_room_for(&mut self, filter: &str) -> bool {
        self.shapes.has_room_for(filter)
    }

    pub(crate) fn subscribe(&mut self, filter: &str, session: u32, wish: SubscriberOptions) -> SubscribeOutcome {
        self.changes.note(filter);
        let node = self.tree.insert(filter);
        let subscribers = &mut self.tree.value_mut(node).subscribers;
        if subscribers.insert(session, wish).is_some() {
            return SubscribeOutcome::Replaced;
        }
        self.count += 1;
        self.shapes.add(filter);
        if subscribers.len() == 1 { SubscribeOutcome::First } else { SubscribeOutcome::New }
    }

    /// True if it was the last local one on this filter.
    pub(crate) fn unsubscribe(&mut self, filter: &str, session: u32) -> bool {
        let Some(node) = self.tree.find(filter) else { return false };
        let subscribers = &mut self.tree.value_mut(node).subscribers;
        if subscribers.remove(session).is_none() {
            return false;
        }
        let last = subscribers.is_empty();
        self.changes.note(filter);
        self.count -= 1;
        self.shapes.remove(filter);
        self.tree.prune(node, Place::is_empty);
        last
    }

    /// Another shard has subscribers on this filter, or has none any more.
    pub(crate) fn set_interest(&mut self, filter: &str, shard: usize, interested: bool) {
        self.changes.note(filter);
        if interested {
            let node = self.tree.insert(filter);
            self.tree.value_mut(node).shards.insert(shard);
        } else if let Some(node) = self.tree.find(filter) {
            self.tree.value_mut(node).shards.remove(shard);
            self.tree.prune(node, Place::is_empty);
        }
    }

    pub(crate) fn join(
        &mut self,
        filter: &str,
        group: &str,
        session: u32,
        wish: SubscriberOptions,
    ) -> SubscribeOutcome {
        if self.group_mut(filter, group).join(session, wish).is_some() {
            return SubscribeOutcome::Replaced;
        }
        self.count += 1;
        self.shapes.add(filter);
        SubscribeOutcome::New
    }

    pub(crate) fn leave(&mut self, filter: &str, group: &str, session: u32) {
        if self.group_mut(filter, group).leave(session).is_some() {
            self.count -= 1;
            self.shapes.remove(filter);
        }
        self.forget_empty_groups(filter);
    }

    pub(crate) fn set_presence(&mut self, filter: &str, group: &str, session: u32, presence: Presence) {
        self.group_mut(filter, group).set_presence(session, presence);
        self.forget_empty_groups(filter);
    }

    /// Another shard's members of a group.
    pub(crate) fn set_remote_members(&mut self, filter: &str, group: &str, shard: usize, members: Members) {
        let found = self.group_mut(filter, group);
        found.remote.retain(|(other, _)| *other != shard);
        if members != Members::default() {
            found.remote.push((shard, members));
        }
        self.forget_empty_groups(filter);
    }

    /// This shard's members of a group, for the others.
    pub(crate) fn local_members(&self, filter: &str, group: &str) -> Members {
        let Some(node) = self.tree.find(filter) else { return Members::default() };
        let found = self.tree.value(node).groups.iter().find(|found| *found.name == *group);
        found.map_or_else(Members::default, SharedGroup::members)
    }

    /// Everything that wants this topic.
    pub(crate) fn matches(&mut self, topic: &str) -> Matches {
        let mut found = Matches::default();
        let mut frontier = core::mem::take(&mut self.frontier);
        frontier.clear();
        frontier.push(ROOT);
        // [MQTT-4.7.2-1] A leading wildcard does not match topics that begin with `$`.
        let mut wildcards = !topic.starts_with('$');
        for level in topic.split('/') {
            let here = frontier.len();
            for position in 0..here {
                let node = frontier[position];
                if wildcards {
                    self.collect_below(node, &mut found);
                    frontier.extend(self.tree.plus(node));
                }
                frontier.extend(self.tree.literal(node, level));
            }
            frontier.drain(..here);
            wildcards = true;
        }
        for node in &frontier {
            // `#` also stands for the level above it.
            self.collect_below(*node, &mut found);
            self.collect(*node, &mut found);
        }
        self.frontier = frontier;
        found
    }

    fn collect_below(&self, node: NodeId, found: &mut Matches) {
        if let Some(child) = self.tree.hash_sign(node) {
            self.collect(child, found);
        }
    }

    fn collect(&self, node: NodeId, found: &mut Matches) {
        let place = self.tree.value(node);
        found.subscribers.extend_from_slice(place.subscribers.as_slice());
        found.groups.extend((0..place.groups.len()).map(|index| GroupId { node, index: index as u32 }));
        found.shards.add(&place.shards);
    }

    /// Name and filter of a group, and whose turn it is: connected members first, wherever they are; without any, one
    /// that is away.
    pub(crate) fn pick(&mut self, id: GroupId, qos: QoS, load: impl Fn(u32) -> Load) -> Option<Pick> {
        self.tree.value_mut(id.node).groups.get_mut(id.index as usize)?.pick(qos, load)
    }

    /// A group by its name.
    pub(crate) fn find_group(&self, filter: &str, group: &str) -> Option<GroupId> {
        let node = self.tree.find(filter)?;
        let index = self.tree.value(node).groups.iter().position(|found| *found.name == *group)?;
        Some(GroupId { node, index: index as u32 })
    }

    /// The same among this shard's members only, for a message that another shard sent here.
    pub(crate) fn pick_local(
        &mut self,
        filter: &str,
        group: &str,
        load: impl Fn(u32) -> Load,
    ) -> Option<(u32, SubscriberOptions)> {
        let node = self.tree.find(filter)?;
        self.tree.value_mut(node).groups.iter_mut().find(|found| *found.name == *group)?.pick_local(load)
    }

    /// Another shard that has members of this group, connected ones first, and was not tried.
    pub(crate) fn shard_with_members(
        &self,
        filter: &str,
        group: &str,
        is_tried: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let node = self.tree.find(filter)?;
        let found = self.tree.value(node).groups.iter().find(|found| *found.name == *group)?;
        let others = found.remote.iter().filter(|(shard, _)| !is_tried(*shard));
        others.max_by_key(|(_, members)| (members.online > 0, members.offline)).map(|(shard, _)| *shard)
    }

    /// Name and filter of a group. The filter is found by walking up, which only messages for other shards pay for.
    pub(crate) fn group_of(&self, id: GroupId) -> Option<(String, String)> {
        let group = self.tree.value(id.node).groups.get(id.index as usize)?;
        Some((String::from(&*group.name), self.tree.path(id.node)))
    }

    /// The group, made if it is not there. Who its members are is asked at every message: only where groups are is
    /// remembered, and changes when one comes or goes.
    fn group_mut(&mut self, filter: &str, name: &str) -> &mut SharedGroup {
        let node = self.tree.insert(filter);
        let groups = &mut self.tree.value_mut(node).groups;
        let position = groups.iter().position(|group| *group.name == *name).unwrap_or_else(|| {
            self.changes.note(filter);
            groups.push(SharedGroup::new(name));
            groups.len() - 1
        });
        &mut groups[position]
    }

    fn forget_empty_groups(&mut self, filter: &str) {
        let Some(node) = self.tree.find(filter) else { return };
        let groups = &mut self.tree.value_mut(node).groups;
        let before = groups.len();
        groups.retain(|group| !group.is_empty());
        if groups.len() < before {
            self.changes.note(filter);
        }
        self.tree.prune(node, Place::is_empty);
    }
}
