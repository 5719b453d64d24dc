//! From a publication to everybody who wants it.
//!
//! Matching only collects; delivery comes after. What a topic matched is remembered until a subscription changes that
//! may concern it. Other
//! shards with interest get the publication once each, whatever the number of their subscribers.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;
use tidegate_wire_mqtt::topic::matches as topic_matches;

use crate::access::{Action, Policy};
use crate::between::{Envelope, Tried};
use crate::cache::{Route, Target, merged};
use crate::connect::may;
use crate::connection::Connection;
use crate::face::Frames;
use crate::limits::BATCH_BYTES_MAX;
use crate::message::{Message, Publication, Shareable};
use crate::session::{Queued, Session};
use crate::slab::Slab;
use crate::state::ShardState;
use crate::subscriptions::{GroupId, GroupRef, Load, Pick, SubscriberOptions};

impl ShardState {
    /// The same for a publisher, of whom nothing is learned if nobody had room.
    pub(crate) fn route_for(&mut self, index: u32, message: &Shareable<'_>, now: Timestamp) -> usize {
        self.saturation.begin_message();
        let route = self.find_route(message.publication.topic);
        let places = self.route_by(&route, message, now);
        if self.saturation.is_taken() {
            self.saturation.begin_reading();
        } else if !route.is_tapped {
            self.note_reach(index, &message.publication, &route.shards, now);
        }
        places
    }

    /// Delivers here and sends on; the answer is the number of receivers here, of shards and of taps.
    pub(crate) fn route(&mut self, message: &Shareable<'_>, now: Timestamp) -> usize {
        let route = self.find_route(message.publication.topic);
        self.route_by(&route, message, now)
    }

    fn route_by(&mut self, route: &Route, message: &Shareable<'_>, now: Timestamp) -> usize {
        let mut places = self.deliver_all(route, message, now);
        if route.is_tapped {
            self.tap(&message.publication);
            places += 1;
        }
        for group in &route.groups {
            places += usize::from(self.route_to_group(*group, message, now));
        }
        // A retained message is kept by every shard, so that each can answer its own subscribers.
        if message.publication.retain {
            self.links.others().for_each(|shard| self.send_on(shard, message));
        } else if !route.shards.is_empty() {
            route.shards.iter().for_each(|shard| self.send_on(shard, message));
        }
        places + route.shards.len()
    }

    fn send_on(&mut self, shard: usize, message: &Shareable<'_>) {
        let (publication, count, routing) = (message.publication, self.retain_count, message.routing.get());
        self.forward(shard, &Envelope::Publish { publication, count, routing }, &message.publication);
    }

    /// A publication from another shard: its groups were served there.
    pub(crate) fn route_here(&mut self, message: &Shareable<'_>, now: Timestamp) {
        let route = self.find_route(message.publication.topic);
        self.deliver_all(&route, message, now);
    }

    pub(crate) fn find_route(&mut self, topic: &str) -> Arc<Route> {
        if let Some(route) = self.cache.get(topic, self.subscriptions.changes()) {
            return Arc::clone(route);
        }
        let route = Arc::new(Route::find(topic, &mut self.subscriptions, &self.taps));
        let room = self.memory.room_for_matches();
        self.cache.put(topic, &route, self.subscriptions.changes(), room);
        route
    }

    fn deliver_all(&mut self, route: &Route, message: &Shareable<'_>, now: Timestamp) -> usize {
        let mut frames = Frames::for_receivers(route.targets.len());
        for target in &route.targets {
            if target.no_local && self.is_own(target, message) {
                self.deliver_own(target, message, now);
            } else {
                self.deliver(target, message, &mut frames, now);
            }
        }
        route.targets.len()
    }

    fn is_own(&self, target: &Target, message: &Shareable<'_>) -> bool {
        self.sessions.get(target.session).is_some_and(|session| session.origin() == message.publication.origin)
    }

    /// The publisher has a subscription that does not want its own messages. [MQTT-3.8.3-3] Others of its may: they are
    /// matched again, without the ones that do not.
    fn deliver_own(&mut self, target: &Target, message: &Shareable<'_>, now: Timestamp) {
        let mut subscribers = self.subscriptions.matches(message.publication.topic).subscribers;
        subscribers.retain(|(session, _)| *session == target.session);
        for own in merged(subscribers, |wish| !wish.no_local) {
            self.deliver(&own, message, &mut Frames::for_receivers(1), now);
        }
    }

    /// True if a member of the group gets it.
    fn route_to_group(&mut self, group: GroupId, message: &Shareable<'_>, now: Timestamp) -> bool {
        let (policy, sessions, connections) = (&*self.policy, &self.sessions, &self.connections);
        let load = |session| load_of(policy, sessions, connections, session, message.publication.topic);
        match self.subscriptions.pick(group, message.publication.qos, load) {
            Some(Pick::Local(session, wish)) => {
                // The name is only needed to be noted.
                let is_noted = message.routing.get() != 0;
                let group = is_noted.then(|| self.subscriptions.group_of(group)).flatten();
                let group = group.as_ref().map(|(name, filter)| GroupRef { name, filter });
                self.deliver_shared(session, wish, group.as_ref(), message, now);
            }
            Some(Pick::Remote(shard)) => {
                let Some((name, filter)) = self.subscriptions.group_of(group) else { return false };
                let (publication, routing) = (message.publication, message.routing.get());
                let envelope =
                    Envelope::Shared { tried: Tried::default(), filter: &filter, group: &name, publication, routing };
                self.forward(shard, &envelope, &publication);
                // Whether a member there has room is not known here.
                self.saturation.note_taken();
            }
            None => return false,
        }
        true
    }

    /// A session has ended, and its subscriptions with it: what it was given for a group and has not acknowledged goes to
    /// the others. [MQTT-4.8.2] Not what is under way at QoS 2, which nobody else may have [MQTT-4.8.2-5], nor what is on
    /// disk; nor topics that it also had by a subscription of its own: there it cannot be told for which of the two it was.
    pub(crate) fn hand_over(&mut self, session: &mut Session, now: Timestamp) {
        let shared: Vec<(Box<str>, Box<str>)> = groups_of(session);
        if shared.is_empty() {
            return;
        }
        let is_own = |topic: &str| session.unshared_filters().any(|filter| topic_matches(filter, topic));
        let mut orphans: Vec<(Timestamp, Arc<Message>)> = Vec::new();
        let mut take = |queued: &Queued| {
            let view = queued.message.view();
            if !is_own(view.topic) && !view.is_expired(now) {
                orphans.push((queued.since, Arc::clone(&queued.message)));
            }
        };
        for (queued, is_sent) in session.under_way.unconfirmed() {
            if queued.qos == QoS::AtLeastOnce || !is_sent {
                take(queued);
            }
        }
        if let Some(queue) = session.queue() {
            queue.for_each(&mut take);
        }
        // A queue shows them flow by flow; those who get them want the older first.
        orphans.sort_by_key(|(since, _)| *since);
        let hasher = FixedState::with_seed(0);
        let name_of = |message: &Message| {
            let view = message.view();
            hasher.hash_one((view.origin, view.topic, view.payload))
        };
        let mut copies: HashMap<u64, (usize, usize), FixedState> = HashMap::with_hasher(FixedState::with_seed(0));
        for (_, message) in &orphans {
            copies.entry(name_of(message)).or_default().0 += 1;
        }
        for (_, message) in orphans {
            let topic = message.view().topic;
            let groups: Vec<_> = shared.iter().filter(|(filter, _)| topic_matches(filter, topic)).collect();
            let Some((all, gone)) = copies.get_mut(&name_of(&message)) else { continue };
            // Of a message that came for several groups each gets one. If some copies have been acknowledged, it cannot be
            // told which: nobody gets it twice.
            if groups.is_empty() || !all.is_multiple_of(groups.len()) {
                continue;
            }
            let (filter, name) = groups[*gone % groups.len()];
            *gone += 1;
            if let Some(group) = self.subscriptions.find_group(filter, name) {
                self.route_to_group(group, &Shareable::of(&message), now);
            }
        }
    }

    /// A message from another shard for a group whose members here have left: a shard that was not asked yet may have one.
    /// Each is asked once, so it ends, and a member that stays is found.
    pub(crate) fn pass_on(
        &mut self,
        from: usize,
        (filter, group): (&str, &str),
        message: &Shareable<'_>,
        tried: Tried<'_>,
    ) -> bool {
        let tried = tried.with(self.links.own());
        let tried = Tried::of(&tried);
        let is_tried = |shard| tried.contains(self.links.address_of(shard));
        let Some(shard) = self.subscriptions.shard_with_members(filter, group, is_tried) else { return false };
        let (publication, routing) = (message.publication, message.routing.get());
        self.forward(shard, &Envelope::Shared { tried, filter, group, publication, routing }, &publication);
        if publication.qos > QoS::AtMostOnce {
            self.journal.pass(from, shard);
        }
        true
    }

    /// To a member of a group.
    pub(crate) fn deliver_shared(
        &mut self,
        session: u32,
        wish: SubscriberOptions,
        group: Option<&GroupRef<'_>>,
        message: &Shareable<'_>,
        now: Timestamp,
    ) {
        self.deliver_for(&Target::new(session, wish), group, message, &mut Frames::for_receivers(1), now);
    }

    /// Sends on, unless too much waits already and the message may get lost. One that is retained may not: all shards keep
    /// the same. Its publisher is no longer read when much less waits.
    fn forward(&mut self, shard: usize, envelope: &Envelope<'_>, publication: &Publication<'_>) {
        let Some(waiting) = self.links.waiting(shard) else { return };
        let may_get_lost = publication.qos == QoS::AtMostOnce && !publication.retain;
        if may_get_lost && waiting > BATCH_BYTES_MAX {
            self.stats.dropped_shard_full += 1;
            return;
        }
        self.links.send(shard, envelope);
        if publication.qos > QoS::AtMostOnce {
            self.journal.ask(shard);
        }
    }
}

/// What lies before a session, for whoever chooses among the members of a group for a message at this topic. One that may
/// not receive it is none of them.
pub(crate) fn load_of(
    policy: &dyn Policy,
    sessions: &Slab<Session>,
    connections: &Slab<Connection>,
    index: u32,
    topic: &str,
) -> Load {
    let Some(session) = sessions.get(index) else { return Load::IDLE };
    if !may(policy, session.identity(), session.client_id(), Action::Receive, topic) {
        return Load::FORBIDDEN;
    }
    let outbox = session.conn().and_then(|conn| connections.get(conn)).map_or(0, Connection::outbox_len);
    Load::new(session.queue_len(), session.under_way.len(), outbox)
}

/// Filters and names of the groups that a session is a member of.
fn groups_of(session: &Session) -> Vec<(Box<str>, Box<str>)> {
    let shared = session.shared_filters().filter_map(|text| text.strip_prefix("$share/"));
    shared.filter_map(|rest| rest.split_once('/')).map(|(name, filter)| (filter.into(), name.into())).collect()
}
