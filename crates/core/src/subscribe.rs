//! SUBSCRIBE and UNSUBSCRIBE, and what the other shards are told of them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_wire_mqtt::{
    Limits, Properties, QoS, ReasonCode, ReasonCodes, RetainHandling, SubAck, Subscribe, Subscription, TopicFilter,
    UnsubAck, Unsubscribe,
};

use crate::access::Action;
use crate::envelope::Envelope;
use crate::event::Event;
use crate::ledger::Loss;
use crate::limits::{FILTER_LEVELS_MAX, SHARED_SUBSCRIPTIONS_MAX, STRANGER_BYTES};
use crate::overload::Kind;
use crate::session::{Queued, SubscriptionIds};
use crate::shard::{ConnId, Shard};
use crate::subscriptions::{Change, Presence, Wish};

impl Shard {
    pub(crate) fn handle_subscribe(&mut self, conn: ConnId, packet: &Subscribe<'_>, now: Timestamp) {
        let Some(index) = self.connection(conn).map(|connection| connection.session) else { return };
        let id = packet.properties.subscription_id();
        let mut reasons = Vec::new();
        let mut wanted = Vec::new();
        for subscription in packet.subscriptions.iter() {
            let granted = self.grant(index, &subscription);
            if let Ok(qos) = granted {
                let mut wish = Wish::new(subscription.options, id);
                wish.qos = qos;
                let change = self.subscribe_one(index, &subscription.filter, wish);
                if wants_retained(&subscription, change) {
                    wanted.push((subscription.filter, wish));
                }
            }
            reasons.push(match granted {
                Ok(QoS::AtMostOnce) => ReasonCode::Success,
                Ok(QoS::AtLeastOnce) => ReasonCode::GrantedQos1,
                Ok(QoS::ExactlyOnce) => ReasonCode::GrantedQos2,
                Err(reason) => reason,
            });
        }
        let answer =
            SubAck { packet_id: packet.packet_id, properties: Properties::EMPTY, reasons: ReasonCodes::new(&reasons) };
        self.send(conn, &answer);
        for (filter, wish) in wanted {
            self.queue_retained(index, &filter, wish, now);
        }
        self.pump(index, now);
    }

    pub(crate) fn handle_unsubscribe(&mut self, conn: ConnId, packet: &Unsubscribe<'_>) {
        let Some(index) = self.connection(conn).map(|connection| connection.session) else { return };
        let mut reasons = Vec::new();
        for filter in packet.filters.iter() {
            let session = self.sessions.get_mut(index);
            let existed = session.is_some_and(|session| {
                let existed = session.subscriptions.remove(filter.as_str()).is_some();
                session.filter_levels -= if existed { levels(&filter) } else { 0 };
                existed
            });
            if existed {
                self.unsubscribe_one(index, &filter);
            }
            reasons.push(if existed { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted });
        }
        let answer = UnsubAck {
            packet_id: packet.packet_id,
            properties: Properties::EMPTY,
            reasons: ReasonCodes::new(&reasons),
        };
        self.send(conn, &answer);
    }

    /// The quality of service that is granted, or why none is.
    fn grant(&mut self, index: u32, subscription: &Subscription<'_>) -> Result<QoS, ReasonCode> {
        let filter = subscription.filter.as_str();
        let Some(session) = self.sessions.get(index) else { return Err(ReasonCode::UnspecifiedError) };
        let is_new = !session.subscriptions.contains_key(filter);
        let is_full = session.subscriptions.len() >= self.settings.subscriptions_max
            || session.filter_levels + levels(&subscription.filter) > FILTER_LEVELS_MAX;
        // While the broker is overloaded it takes on no new work.
        let is_pressed = self.gate.level >= Level::Overloaded || !self.memory.has_room(Kind::Session, STRANGER_BYTES);
        if is_new && (is_full || is_pressed) {
            return Err(ReasonCode::QuotaExceeded);
        }
        let shared = || session.subscriptions.keys().filter(|filter| filter.starts_with("$share/")).count();
        if is_new && subscription.filter.group().is_some() && shared() >= SHARED_SUBSCRIPTIONS_MAX {
            return Err(ReasonCode::QuotaExceeded);
        }
        // Rules are about topics: a shared subscription is judged by what it shares.
        if !self.may(&session.identity, &session.client_id, Action::Subscribe, subscription.filter.pattern()) {
            let client_id = Arc::clone(&session.client_id);
            self.tell(Event::Denied { client_id, what: "subscribe", topic: filter.into() });
            return Err(ReasonCode::NotAuthorized);
        }
        Ok(subscription.options.qos.min(self.settings.qos_max))
    }

    fn subscribe_one(&mut self, index: u32, filter: &TopicFilter<'_>, wish: Wish) -> Change {
        if let Some(session) = self.sessions.get_mut(index)
            && session.subscriptions.insert(filter.as_str().into(), wish).is_none()
        {
            session.filter_levels += levels(filter);
        }
        let pattern = filter.pattern();
        if let Some(group) = filter.group() {
            let change = self.subscriptions.join(pattern, group, index, wish);
            self.tell_members(pattern, group);
            return change;
        }
        let change = self.subscriptions.subscribe(pattern, index, wish);
        if change == Change::First {
            self.tell_others(&Envelope::Interest { filter: pattern, interested: true });
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
            self.tell_others(&Envelope::Interest { filter: pattern, interested: false });
        }
    }

    /// The client came or went: its groups should know.
    pub(crate) fn set_group_presence(&mut self, index: u32, presence: Presence) {
        let Some(session) = self.sessions.get(index) else { return };
        let shared: Vec<_> =
            session.subscriptions.keys().filter(|filter| filter.starts_with("$share/")).cloned().collect();
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
        self.tell_others(&Envelope::Group { filter: pattern, group, members });
    }

    /// Retained messages wait in the session's queue behind what is there, and go out as the client takes them.
    fn queue_retained(&mut self, index: u32, filter: &TopicFilter<'_>, wish: Wish, now: Timestamp) {
        // Room for every retained message once, beside what waits already: who subscribes again and again without
        // reading gets no more, and is not looked for more.
        let messages_max = self.settings.queue_messages_max.saturating_add(self.retained.len());
        let bytes_max = self.settings.queue_bytes_max.saturating_add(self.retained.bytes());
        let Some(session) = self.sessions.get_mut(index) else { return };
        let room = messages_max.saturating_sub(session.queue.len());
        if room == 0 || session.queue_bytes >= bytes_max {
            self.stats.deliveries += 1;
            session.ledger.deliveries += 1;
            session.ledger.lose(Loss::QueueFull, 1, &mut self.stats);
            return;
        }
        // One more than there is room for: what finds none must show in the counter.
        for (found, message) in
            self.retained.matches(filter.pattern(), now, room.saturating_add(1)).into_iter().enumerate()
        {
            self.stats.deliveries += 1;
            session.ledger.deliveries += 1;
            if found >= room || session.queue_bytes + message.size() > bytes_max {
                session.ledger.lose(Loss::QueueFull, 1, &mut self.stats);
                continue;
            }
            let view = message.view();
            let qos = view.qos.min(wish.qos);
            let ids = wish.id.map_or(SubscriptionIds::None, SubscriptionIds::One);
            session.enqueue(Queued { message, qos, retain: true, ids }, &mut self.stats);
        }
    }
}

fn levels(filter: &TopicFilter<'_>) -> usize {
    filter.pattern().split('/').count()
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
