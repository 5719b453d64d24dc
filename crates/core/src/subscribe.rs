//! Subscriptions come and go, and the other shards are told of them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Limits, PacketId, ReasonCode, RetainHandling, Subscription, TopicFilter};

use crate::access::Action;
use crate::between::Envelope;
use crate::event::Event;
use crate::face::ClientAnswer;
use crate::gate::Kind;
use crate::limits::STRANGER_BYTES;
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::ShardState;
use crate::subscriptions::{Presence, SubscribeOutcome, SubscriberOptions};

/// A request for subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionRequest {
    /// The number of the request, for the answer.
    pub number: PacketId,
    /// What the client calls all of them.
    pub id: Option<NonZeroU32>,
    /// While messages have to wait, the client wants only the newest of each topic. It asks for less, and for itself only:
    /// no right is needed.
    pub wants_latest: bool,
}

impl ShardState {
    pub(crate) fn subscribe<'s>(
        &mut self,
        conn: ConnId,
        request: SubscriptionRequest,
        subscriptions: impl Iterator<Item = Subscription<'s>>,
        now: Timestamp,
    ) {
        let Some(index) = self.session_at(conn) else { return };
        let (mark, kept) = (self.journal.mark(), self.sessions.get(index).map_or(0, Session::kept));
        let mut grants = Vec::new();
        for subscription in subscriptions {
            // Of a group's messages each has one receiver: one that is dropped there would be missed by all.
            let is_latest = request.wants_latest && subscription.filter.group().is_none();
            let wish = SubscriberOptions { is_latest, ..SubscriberOptions::new(subscription.options, request.id) };
            let granted = self.grant(index, &subscription, wish);
            if let Ok(wish) = granted {
                let change = self.subscribe_one(index, &subscription.filter, wish);
                self.journal.subscribe(kept, subscription.filter.as_str(), wish);
                if wants_retained(&subscription, change) {
                    self.start_burst(index, &subscription.filter);
                }
            }
            if self.activities.is_on() {
                self.note_subscribed(index, subscription.filter.as_str(), granted.map(|wish| wish.qos));
            }
            grants.push(granted.map(|wish| wish.qos));
        }
        let answer = ClientAnswer::Subscribed { number: request.number, grants: &grants };
        self.reply(conn, &answer, self.journal.until(mark));
        self.pump(index, now);
    }

    pub(crate) fn unsubscribe<'s>(
        &mut self,
        conn: ConnId,
        number: PacketId,
        filters: impl Iterator<Item = TopicFilter<'s>>,
    ) {
        let Some(index) = self.session_at(conn) else { return };
        let (mark, kept) = (self.journal.mark(), self.sessions.get(index).map_or(0, Session::kept));
        let mut existed = Vec::new();
        for filter in filters {
            let session = self.sessions.get_mut(index);
            let is_ended = session.is_some_and(|session| session.remove_subscription(&filter));
            if is_ended {
                self.unsubscribe_one(index, &filter);
                self.journal.unsubscribe(kept, filter.as_str());
            }
            if self.activities.is_on() {
                self.note_unsubscribed(index, filter.as_str(), is_ended);
            }
            existed.push(is_ended);
        }
        self.reply(conn, &ClientAnswer::Unsubscribed { number, existed: &existed }, self.journal.until(mark));
    }

    /// What is granted of a wish, or why nothing is.
    fn grant(
        &mut self,
        index: u32,
        subscription: &Subscription<'_>,
        wish: SubscriberOptions,
    ) -> Result<SubscriberOptions, ReasonCode> {
        let filter = subscription.filter.as_str();
        let Some(session) = self.sessions.get(index) else { return Err(ReasonCode::UnspecifiedError) };
        let is_new = session.subscription(filter).is_none();
        let after = session.shares_with(&subscription.filter, wish);
        let is_full = session.subscriptions().len() >= self.settings.subscriptions_max
            || !self.subscriptions.has_room_for(subscription.filter.pattern());
        // Who was let in is not made deaf because the broker is busy; only for want of memory.
        let is_pressed = !self.memory.has_room(Kind::Session, STRANGER_BYTES);
        // A promise that cannot be kept is not made.
        let is_lost = session.is_kept() && self.store_trouble().is_some();
        if is_lost || (is_new && (is_full || is_pressed)) || after.exceed() {
            return Err(ReasonCode::QuotaExceeded);
        }
        // With its group: who shares takes from others, and the policy may be stricter for that.
        if !self.may(session.identity(), session.client_id(), Action::Subscribe, subscription.filter.as_str()) {
            let client_id = Arc::clone(session.client_id());
            self.tell(Event::Denied { client_id, what: "subscribe", topic: filter.into() });
            return Err(ReasonCode::NotAuthorized);
        }
        Ok(SubscriberOptions { qos: wish.qos.min(self.settings.qos_max), ..wish })
    }

    pub(crate) fn subscribe_one(
        &mut self,
        index: u32,
        filter: &TopicFilter<'_>,
        wish: SubscriberOptions,
    ) -> SubscribeOutcome {
        if let Some(session) = self.sessions.get_mut(index) {
            session.add_subscription(filter, wish);
        }
        let pattern = filter.pattern();
        if let Some(group) = filter.group() {
            let change = self.subscriptions.join(pattern, group, index, wish);
            self.tell_members(pattern, group);
            return change;
        }
        let change = self.subscriptions.subscribe(pattern, index, wish);
        if change == SubscribeOutcome::First {
            self.links.tell_all(&Envelope::Interest { filter: pattern, interested: true });
        }
        change
    }

    /// Takes a subscription out of the tree; the session has forgotten it already.
    pub(crate) fn unsubscribe_one(&mut self, index: u32, filter: &TopicFilter<'_>) {
        let pattern = filter.pattern();
        if let Some(group) = filter.group() {
            self.subscriptions.leave(pattern, group, index);
            self.tell_members(pattern, group);
        } else if self.subscriptions.unsubscribe(pattern, index) {
            self.links.tell_all(&Envelope::Interest { filter: pattern, interested: false });
        }
    }

    /// The client came or went: its groups should know.
    pub(crate) fn set_group_presence(&mut self, index: u32, presence: Presence) {
        let Some(session) = self.sessions.get(index) else { return };
        let shared: Vec<Box<str>> = session.shared_filters().map(Box::from).collect();
        for text in shared {
            let Ok(filter) = TopicFilter::parse(&text, &own_filters()) else { continue };
            if let Some(group) = filter.group() {
                self.subscriptions.set_presence(filter.pattern(), group, index, presence);
                self.tell_members(filter.pattern(), group);
            }
        }
    }

    fn tell_members(&mut self, pattern: &str, group: &str) {
        let members = self.subscriptions.local_members(pattern, group);
        self.links.tell_all(&Envelope::Group { filter: pattern, group, members });
    }
}

/// For filters that were checked when they came: the limits of today may be narrower.
pub(crate) fn own_filters() -> Limits {
    Limits { topic_levels_max: usize::MAX, topic_bytes_max: usize::MAX, ..Limits::default() }
}

fn wants_retained(subscription: &Subscription<'_>, change: SubscribeOutcome) -> bool {
    // [MQTT-3.3.1-9..11]; shared subscriptions never get retained messages at subscribe (section 4.8.2).
    subscription.filter.group().is_none()
        && match subscription.options.retain_handling {
            RetainHandling::Send => true,
            RetainHandling::SendIfNew => change != SubscribeOutcome::Replaced,
            RetainHandling::DoNotSend => false,
        }
}
