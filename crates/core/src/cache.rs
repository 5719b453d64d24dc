//! Remembers what a topic matched, until any subscription changes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_wire_mqtt::QoS;

use crate::limits::{CACHE_TARGETS_MAX, CACHE_TOPIC_BYTES_MAX, CACHE_TOPICS_MAX};
use crate::session::SubscriptionIds;
use crate::subscriptions::{GroupId, Matches, Wish};

/// One receiver of a topic, with its overlapping subscriptions made one: the best QoS, all identifiers.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) session: u32,
    pub(crate) qos: QoS,
    pub(crate) retain_as_published: bool,
    /// Some of its subscriptions do not want the session's own messages.
    pub(crate) no_local: bool,
    pub(crate) ids: SubscriptionIds,
}

/// Everything that a topic matched, ready for delivery.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub(crate) targets: Vec<Target>,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) shards: u64,
}

#[derive(Debug)]
pub(crate) struct MatchCache {
    routes: HashMap<Box<str>, Arc<Route>, FixedState>,
    generation: u64,
    /// Receivers in all of them.
    targets: usize,
}

impl MatchCache {
    pub(crate) fn new(seed: u64) -> Self {
        Self { routes: HashMap::with_hasher(FixedState::with_seed(seed)), generation: 0, targets: 0 }
    }

    #[inline]
    pub(crate) fn get(&mut self, topic: &str, generation: u64) -> Option<&Arc<Route>> {
        if self.generation != generation {
            self.clear();
            self.generation = generation;
        }
        self.routes.get(topic)
    }

    pub(crate) fn put(&mut self, topic: &str, route: Arc<Route>) {
        let size = route.targets.len() + route.groups.len();
        if topic.len() > CACHE_TOPIC_BYTES_MAX || size > CACHE_TARGETS_MAX {
            return;
        }
        if self.routes.len() >= CACHE_TOPICS_MAX || self.targets + size > CACHE_TARGETS_MAX {
            self.clear();
        }
        self.targets += size;
        self.routes.insert(topic.into(), route);
    }

    fn clear(&mut self) {
        self.routes.clear();
        self.targets = 0;
    }
}

impl Route {
    pub(crate) fn new(matches: Matches) -> Self {
        Self { targets: merged(matches.subscribers, |_| true), groups: matches.groups, shards: matches.shards }
    }
}

/// One target per session, from those of its subscriptions that `counts` accepts.
pub(crate) fn merged(mut subscribers: Vec<(u32, Wish)>, counts: impl Fn(&Wish) -> bool) -> Vec<Target> {
    subscribers.sort_by_key(|(session, _)| *session);
    let mut targets: Vec<Target> = Vec::with_capacity(subscribers.len());
    for (session, wish) in subscribers.into_iter().filter(|(_, wish)| counts(wish)) {
        match targets.last_mut().filter(|target| target.session == session) {
            Some(target) => target.add(wish),
            None => targets.push(Target::new(session, wish)),
        }
    }
    targets
}

impl Target {
    pub(crate) fn new(session: u32, wish: Wish) -> Self {
        Self {
            session,
            qos: wish.qos,
            retain_as_published: wish.retain_as_published,
            no_local: wish.no_local,
            ids: wish.id.map_or(SubscriptionIds::None, SubscriptionIds::One),
        }
    }

    fn add(&mut self, wish: Wish) {
        self.qos = self.qos.max(wish.qos);
        self.retain_as_published |= wish.retain_as_published;
        self.no_local |= wish.no_local;
        if let Some(id) = wish.id {
            self.ids.add(id);
        }
    }
}
