//! SUBSCRIBE and UNSUBSCRIBE, and what the other shards are told of them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    Limits, Properties, QoS, ReasonCode, ReasonCodes, RetainHandling, SubAck, Subscribe, Subscription, TopicFilter,
    UnsubAck, Unsubscribe,
};

use crate::access::Action;
use crate::between::Envelope;
use crate::event::Event;
use crate::gate::Kind;
use crate::limits::STRANGER_BYTES;
use crate::shard::ConnId;
use crate::shares::Shares;
use crate::state::ShardState;
use crate::subscriptions::{Change, Presence, Wish};

impl ShardState {
    pub(crate) fn handle_subscribe(&mut self, conn: ConnId, packet: &Subscribe<'_>, now: Timestamp) {
        let Some(index) = self.connection(conn).map(|connection| connection.session) else { return };
        let id = packet.properties.subscription_id();
        let wants_latest = packet.properties.user_properties().any(|(name, text)| name == CONFLATE && text == "latest");
        let (mark, kept) = (self.journal.mark(), self.sessions.get(index).map_or(0, |session| session.kept));
        let mut reasons = Vec::new();
        for subscription in packet.subscriptions.iter() {
            // Of a group's messages each has one receiver: one that is dropped there would be missed by all.
            let is_latest = wants_latest && subscription.filter.group().is_none();
            let wish = Wish { is_latest, ..Wish::new(subscription.options, id) };
            let granted = self.grant(index, &subscription, wish);
            if let Ok(wish) = granted {
                let change = self.subscribe_one(index, &subscription.filter, wish);
                self.journal.subscribe(kept, subscription.filter.as_str(), wish);
                if wants_retained(&subscription, change) {
                    self.start_burst(index, &subscription.filter);
                }
            }
            reasons.push(match granted.map(|wish| wish.qos) {
                Ok(QoS::AtMostOnce) => ReasonCode::Success,
                Ok(QoS::AtLeastOnce) => ReasonCode::GrantedQos1,
                Ok(QoS::ExactlyOnce) => ReasonCode::GrantedQos2,
                Err(reason) => reason,
            });
        }
        let answer =
            SubAck { packet_id: packet.packet_id, properties: Properties::EMPTY, reasons: ReasonCodes::new(&reasons) };
        self.reply(conn, &answer, self.journal.until(mark));
        self.pump(index, now);
    }

    pub(crate) fn handle_unsubscribe(&mut self, conn: ConnId, packet: &Unsubscribe<'_>) {
        let Some(index) = self.connection(conn).map(|connection| connection.session) else { return };
        let (mark, kept) = (self.journal.mark(), self.sessions.get(index).map_or(0, |session| session.kept));
        let mut reasons = Vec::new();
        for filter in packet.filters.iter() {
            let session = self.sessions.get_mut(index);
            let existed = session.is_some_and(|session| {
                let Some(wish) = session.subscriptions.remove(filter.as_str()) else { return false };
                session.shares = session.shares - Shares::of(&filter, wish);
                session.bursts.remove(filter.as_str());
                true
            });
            if existed {
                self.unsubscribe_one(index, &filter);
                self.journal.unsubscribe(kept, filter.as_str());
            }
            reasons.push(if existed { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted });
        }
        let answer = UnsubAck {
            packet_id: packet.packet_id,
            properties: Properties::EMPTY,
            reasons: ReasonCodes::new(&reasons),
        };
        self.reply(conn, &answer, self.journal.until(mark));
    }

    /// What is granted of a wish, or why nothing is.
    fn grant(&mut self, index: u32, subscription: &Subscription<'_>, wish: Wish) -> Result<Wish, ReasonCode> {
        let filter = subscription.filter.as_str();
        let Some(session) = self.sessions.get(index) else { return Err(ReasonCode::UnspecifiedError) };
        let before = session.subscriptions.get(filter).map(|before| Shares::of(&subscription.filter, *before));
        let after = session.shares - before.unwrap_or_default() + Shares::of(&subscription.filter, wish);
        let is_full = session.subscriptions.len() >= self.settings.subscriptions_max
            || !self.subscriptions.has_room_for(subscription.filter.pattern());
        // Who was let in is not made deaf because the broker is busy; only for want of memory.
        let is_pressed = !self.memory.has_room(Kind::Session, STRANGER_BYTES);
        // A promise that cannot be kept is not made.
        let is_lost = session.kept != 0 && self.store_trouble().is_some();
        if is_lost || (before.is_none() && (is_full || is_pressed)) || after.exceed() {
            return Err(ReasonCode::QuotaExceeded);
        }
        // Rules are about topics: a shared subscription is judged by what it shares.
        if !self.may(&session.identity, &session.client_id, Action::Subscribe, subscription.filter.pattern()) {
            let client_id = Arc::clone(&session.client_id);
            self.tell(Event::Denied { client_id, what: "subscribe", topic: filter.into() });
            return Err(ReasonCode::NotAuthorized);
        }
        Ok(Wish { qos: wish.qos.min(self.settings.qos_max), ..wish })
    }

    pub(crate) fn subscribe_one(&mut self, index: u32, filter: &TopicFilter<'_>, wish: Wish) -> Change {
        if let Some(session) = self.sessions.get_mut(index) {
            let before = session.subscriptions.insert(filter.as_str().into(), wish);
            let before = before.map(|before| Shares::of(filter, before)).unwrap_or_default();
            session.shares = session.shares - before + Shares::of(filter, wish);
        }
        let pattern = filter.pattern();
        if let Some(group) = filter.group() {
            let change = self.subscriptions.join(pattern, group, index, wish);
            self.tell_members(pattern, group);
            return change;
        }
        let change = self.subscriptions.subscribe(pattern, index, wish);
        if change == Change::First {
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
        let from_there = session.subscriptions.range::<str, _>((Bound::Included("$share/"), Bound::Unbounded));
        let filters = from_there.map(|(filter, _)| filter);
        let shared: Vec<_> = filters.take_while(|filter| filter.starts_with("$share/")).cloned().collect();
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

fn wants_retained(subscription: &Subscription<'_>, change: Change) -> bool {
    // [MQTT-3.3.1-9..11]; shared subscriptions never get retained messages at subscribe (section 4.8.2).
    subscription.filter.group().is_none()
        && match subscription.options.retain_handling {
            RetainHandling::Send => true,
            RetainHandling::SendIfNew => change != Change::Replaced,
            RetainHandling::DoNotSend => false,
        }
}

/// The user property by which a client asks, with the text `latest`, for no more than the newest message of each topic
/// while it is away or slow. It asks for less, and for itself only: no right is needed.
const CONFLATE: &str = "pace-conflate";
