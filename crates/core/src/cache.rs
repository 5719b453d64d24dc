//! Remembers what a topic matched, until a subscription changes that may concern it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_wire_mqtt::QoS;

use crate::between::ShardSet;
use crate::limits::{CACHE_TOPIC_BYTES_MAX, CACHE_TOPICS_MAX};
use crate::session::SubscriptionIds;
use crate::subscriptions::{Changes, GroupId, Matches, SubscriberOptions, Subscriptions, TopicWatch};
use crate::tap::Taps;

/// One receiver of a topic, with its overlapping subscriptions made one: the best QoS, all identifiers.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) session: u32,
    pub(crate) qos: QoS,
    pub(crate) retain_as_published: bool,
    /// None of its subscriptions wants more than the newest while it has to wait.
    pub(crate) is_latest: bool,
    /// Some of its subscriptions do not want the session's own messages.
    pub(crate) no_local: bool,
    pub(crate) ids: SubscriptionIds,
}

/// Everything that a topic matched, ready for delivery.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub(crate) targets: Vec<Target>,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) shards: ShardSet,
    /// Somebody outside wants to see it.
    pub(crate) is_tapped: bool,
    /// What it depends on.
    watch: TopicWatch,
}

#[derive(Debug)]
pub(crate) struct MatchCache {
    routes: HashMap<Box<str>, CachedRoute, FixedState>,
    /// What all of them cost.
    bytes: usize,
}

#[derive(Debug)]
struct CachedRoute {
    route: Arc<Route>,
    /// Changes after which it was still good.
    checked_at: u64,
}

impl MatchCache {
    pub(crate) fn new(seed: u64) -> Self {
        Self { routes: HashMap::with_hasher(FixedState::with_seed(seed)), bytes: 0 }
    }

    /// What the topic matched, unless a change since may concern it.
    #[inline]
    pub(crate) fn get(&mut self, topic: &str, changes: &Changes) -> Option<&Arc<Route>> {
        let entry = self.routes.get_mut(topic)?;
        if entry.checked_at != changes.total() {
            if !changes.holds(&entry.route.watch) {
                return None;
            }
            entry.checked_at = changes.total();
        }
        Some(&entry.route)
    }

    /// Everything is to be found anew.
    pub(crate) fn clear(&mut self) {
        self.routes.clear();
        self.bytes = 0;
    }

    /// What all of them cost.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Remembers a match, if it fits into so many bytes for all.
    pub(crate) fn put(&mut self, topic: &str, route: &Arc<Route>, changes: &Changes, bytes_max: usize) {
        let bytes = cost(topic, route);
        if topic.len() > CACHE_TOPIC_BYTES_MAX || bytes > bytes_max {
            return;
        }
        if self.routes.len() >= CACHE_TOPICS_MAX || self.bytes + bytes > bytes_max {
            self.clear();
        }
        self.bytes += bytes;
        let entry = CachedRoute { route: Arc::clone(route), checked_at: changes.total() };
        if let Some(stale) = self.routes.insert(topic.into(), entry) {
            self.bytes -= cost(topic, &stale.route);
        }
    }
}

/// What it costs to remember a match.
fn cost(topic: &str, route: &Route) -> usize {
    let ids: usize = route.targets.iter().map(|target| target.ids.heap_bytes()).sum();
    size_of::<(Box<str>, CachedRoute)>()
        + size_of::<Route>()
        + topic.len()
        + route.targets.capacity() * size_of::<Target>()
        + route.groups.capacity() * size_of::<GroupId>()
        + ids
}

impl Route {
    pub(crate) fn find(topic: &str, subscriptions: &mut Subscriptions, taps: &Taps) -> Self {
        let Matches { subscribers, groups, shards } = subscriptions.matches(topic);
        let (is_tapped, watch) = (taps.want(topic), subscriptions.changes().watch(topic));
        Self { targets: merged(subscribers, |_| true), groups, shards, is_tapped, watch }
    }
}

/// One target per session, from those of its subscriptions that `counts` accepts.
pub(crate) fn merged(
    mut subscribers: Vec<(u32, SubscriberOptions)>,
    counts: impl Fn(&SubscriberOptions) -> bool,
) -> Vec<Target> {
    subscribers.retain(|(_, wish)| counts(wish));
    subscribers.sort_by_key(|(session, _)| *session);
    let mut targets: Vec<Target> = Vec::with_capacity(subscribers.len());
    for same in subscribers.chunk_by(|one, other| one.0 == other.0) {
        let Some((session, first)) = same.first() else { continue };
        let mut target = Target::new(*session, *first);
        if same.len() > 1 {
            same[1..].iter().for_each(|(_, wish)| target.add(*wish));
            target.ids = same.iter().filter_map(|(_, wish)| wish.id).collect();
        }
        targets.push(target);
    }
    // What is remembered should have no air in it.
    targets.shrink_to_fit();
    targets
}

impl Target {
    pub(crate) fn new(session: u32, wish: SubscriberOptions) -> Self {
        Self {
            session,
            qos: wish.qos,
            retain_as_published: wish.retain_as_published,
            is_latest: wish.is_latest,
            no_local: wish.no_local,
            ids: wish.id.map_or(SubscriptionIds::None, SubscriptionIds::One),
        }
    }

    /// Its identifier is not added here.
    fn add(&mut self, wish: SubscriberOptions) {
        self.qos = self.qos.max(wish.qos);
        self.retain_as_published |= wish.retain_as_published;
        self.is_latest &= wish.is_latest;
        self.no_local |= wish.no_local;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use core::num::NonZeroU32;

    fn wish(id: u32) -> SubscriberOptions {
        let (no_local, retain_as_published, is_latest) = (false, false, false);
        SubscriberOptions { qos: QoS::AtMostOnce, no_local, retain_as_published, is_latest, id: NonZeroU32::new(id) }
    }

    fn remember(cache: &mut MatchCache, subscriptions: &mut Subscriptions, topic: &str) {
        let route = Arc::new(Route::find(topic, subscriptions, &Taps::default()));
        cache.put(topic, &route, subscriptions.changes(), 1 << 20);
    }

    #[test]
    fn a_change_elsewhere_costs_a_topic_nothing() {
        let (mut cache, mut subscriptions) = (MatchCache::new(1), Subscriptions::new(1));
        subscriptions.subscribe("a/+/c", 1, wish(0));
        subscriptions.join("a/#", "g", 2, wish(0));
        remember(&mut cache, &mut subscriptions, "a/b/c");
        for n in 0..50 {
            subscriptions.subscribe(&format!("a/{n}/c"), 3, wish(0));
            subscriptions.unsubscribe(&format!("a/{n}/c"), 3);
            subscriptions.set_interest(&format!("other/{n}/#"), 1, true);
            subscriptions.set_presence("a/#", "g", 2, crate::subscriptions::Presence::Offline);
        }
        assert!(cache.get("a/b/c", subscriptions.changes()).is_some());
        for filter in ["a/b/c", "a/b/#", "a/+/+", "#"] {
            subscriptions.subscribe(filter, 4, wish(0));
            assert!(cache.get("a/b/c", subscriptions.changes()).is_none(), "{filter}");
            remember(&mut cache, &mut subscriptions, "a/b/c");
            subscriptions.unsubscribe(filter, 4);
            assert!(cache.get("a/b/c", subscriptions.changes()).is_none(), "{filter}");
            remember(&mut cache, &mut subscriptions, "a/b/c");
        }
        subscriptions.leave("a/#", "g", 2);
        assert!(cache.get("a/b/c", subscriptions.changes()).is_none());
    }

    #[test]
    fn identifiers_count_against_the_bytes() {
        let (mut cache, mut subscriptions) = (MatchCache::new(1), Subscriptions::new(1));
        for n in 0..1000 {
            let levels: Vec<&str> = (0..10).map(|bit| if n >> bit & 1 == 1 { "+" } else { "a" }).collect();
            subscriptions.subscribe(&levels.join("/"), 1, wish(n + 1));
        }
        let topic = ["a"; 10].join("/");
        remember(&mut cache, &mut subscriptions, &topic);
        assert!((4000..4000 + 1024).contains(&cache.bytes), "{}", cache.bytes);
        let before = cache.bytes;
        remember(&mut cache, &mut subscriptions, &topic);
        assert_eq!(cache.bytes, before, "what is replaced is no longer counted");
        let route = Arc::new(Route::find("b", &mut subscriptions, &Taps::default()));
        cache.put("b", &route, subscriptions.changes(), before);
        assert!(cache.bytes > 0 && cache.bytes < before, "no room for both: all others are forgotten");
        cache.put("c", &route, subscriptions.changes(), 1);
        assert!(cache.get("c", subscriptions.changes()).is_none() && cache.bytes > 0, "too large for all the room");
    }
}
