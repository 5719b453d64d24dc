//! An MQTT connection without a socket: what is under way, what waits, and what the broker said about it.
//!
//! Messages wait in a bounded *backlog* and go out while the broker's Receive Maximum allows. What waited while there was
//! no connection is sent at a pace, so that a thousand clients that come back together do not flood their broker. A
//! refusal with a time holds everything back until then. What was under way when a connection broke is sent again on the
//! next one, first and in order; if the broker has kept the session, QoS 2 stays exactly once.
//!
//! - told: [`MqttSession::handle_opened`], [`MqttSession::handle_bytes`], [`MqttSession::handle_lost`], [`MqttSession::publish`],
//!   [`MqttSession::subscribe`], [`MqttSession::hand_over`]
//! - asked: [`MqttSession::turn`], [`MqttSession::take_output`], [`MqttSession::poll_event`], [`MqttSession::poll_timeout`]

mod again;
pub mod connection;
mod input;
#[cfg(test)]
mod tests;
mod words;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::num::NonZeroU16;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::rand_core::Rng;
use tidegate_wire_mqtt::{
    Connect, Delivery, Disconnect, Limits, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode, Subscribe,
    Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version,
};

use self::connection::{ConnectionBounds, MqttConnection};
use super::reconnect::Reconnect;
use crate::limits::{ALIASES_MAX, ANSWER_TIMEOUT, DRAIN_INTERVAL, MQTT_PACKET_BYTES_MAX, RECEIVE_MAX, WINDOW_MAX};
use crate::prelude::*;
pub use words::{BacklogFull, BacklogPolicy, MqttConfig, MqttEvent, MqttMessage, Token};

#[derive(Clone, Debug)]
struct WaitingPublish {
    token: Token,
    message: MqttMessage,
}

#[derive(Clone, Debug)]
struct InFlight {
    token: Token,
    message: MqttMessage,
    sent: Timestamp,
    /// QoS 2: the broker has it, and is to be told so.
    is_released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MqttPhase {
    Away,
    Greeting(Timestamp),
    Up,
}

/// See the [module](self).
#[derive(Debug)]
pub struct MqttSession {
    config: MqttConfig,
    connection: MqttConnection,
    phase: MqttPhase,
    events: VecDeque<MqttEvent>,
    backlog: VecDeque<WaitingPublish>,
    backlog_bytes: usize,
    flights: BTreeMap<PacketId, InFlight>,
    /// Flights of an earlier connection that have not been sent on this one, in order.
    again: VecDeque<PacketId>,
    /// The broker has kept its session, and may have seen them.
    is_again_known: bool,
    /// Subscriptions that are wanted, with the answer that is awaited.
    subscriptions: Vec<(Token, String, QoS)>,
    asked: BTreeMap<PacketId, Token>,
    /// Messages that came and that nobody has taken.
    unread: BTreeSet<PacketId>,
    /// No message goes out before.
    not_before: Timestamp,
    /// The backlog of the time without connection is being worked off.
    is_draining: bool,
    was_up: bool,
    reconnect: Reconnect,
}

impl MqttSession {
    /// A session that has no connection yet.
    pub fn new(config: MqttConfig) -> Self {
        let bounds = ConnectionBounds {
            limits: Limits { packet_bytes_max: MQTT_PACKET_BYTES_MAX, ..Limits::default() },
            window_max: WINDOW_MAX,
            aliases_max: ALIASES_MAX,
            keep_alive_min: Duration::from_secs(1),
        };
        Self {
            config,
            connection: MqttConnection::new(Version::V5, bounds),
            phase: MqttPhase::Away,
            events: VecDeque::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            flights: BTreeMap::new(),
            again: VecDeque::new(),
            is_again_known: false,
            subscriptions: Vec::new(),
            asked: BTreeMap::new(),
            unread: BTreeSet::new(),
            not_before: Timestamp::ZERO,
            is_draining: false,
            was_up: false,
            reconnect: Reconnect::default(),
        }
    }

    /// Messages that wait, their bytes, and messages under way.
    pub fn load(&self) -> (usize, usize, usize) {
        (self.backlog.len(), self.backlog_bytes, self.flights.len())
    }

    /// Whether one more message finds room.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.backlog.len() < self.config.backlog_messages && self.backlog_bytes + bytes <= self.config.backlog_bytes
    }

    /// Whether whoever publishes has to wait for room. A message that is larger than all room is never waited for.
    pub fn must_wait(&self, bytes: usize) -> bool {
        self.config.on_full == BacklogPolicy::Wait && !self.has_room(bytes) && !self.backlog.is_empty()
    }

    /// Takes a message. What had to go for it is an event.
    pub fn publish(&mut self, token: Token, message: MqttMessage) -> Result<(), BacklogFull> {
        let bytes = message.bytes();
        if !self.has_room(bytes) {
            match self.config.on_full {
                BacklogPolicy::Wait | BacklogPolicy::Reject => return Err(BacklogFull),
                BacklogPolicy::DropOldest => {
                    while !self.has_room(bytes) {
                        let Some(oldest) = self.backlog.pop_front() else { return Err(BacklogFull) };
                        self.drop_waiting(&oldest);
                    }
                }
                BacklogPolicy::Latest => {
                    let same = self.backlog.iter().position(|waiting| waiting.message.topic == message.topic);
                    let old = same.and_then(|place| self.backlog.remove(place)).ok_or(BacklogFull)?;
                    self.drop_waiting(&old);
                    if !self.has_room(bytes) {
                        return Err(BacklogFull);
                    }
                }
            }
        }
        self.backlog_bytes += bytes;
        self.backlog.push_back(WaitingPublish { token, message });
        Ok(())
    }

    fn drop_waiting(&mut self, waiting: &WaitingPublish) {
        self.backlog_bytes -= waiting.message.bytes();
        self.events.push_back(MqttEvent::Dropped { token: waiting.token });
    }

    /// Wants messages of a filter, now and after each return.
    pub fn subscribe(&mut self, token: Token, filter: &str, qos: QoS) {
        self.subscriptions.retain(|(_, known, _)| known != filter);
        self.subscriptions.push((token, filter.to_owned(), qos));
        if self.phase == MqttPhase::Up {
            self.ask_for(self.subscriptions.len() - 1);
        }
    }

    fn ask_for(&mut self, place: usize) {
        let Some((token, filter, qos)) = self.subscriptions.get(place).cloned() else { return };
        let Ok(wanted) = TopicFilter::parse(&filter, self.connection.limits()) else {
            return self.events.push_back(MqttEvent::Subscribed { token, reason: ReasonCode::TopicFilterInvalid });
        };
        let packet_id = self.take_id();
        self.asked.insert(packet_id, token);
        let list = [Subscription { filter: wanted, options: SubscriptionOptions::with_qos(qos) }];
        let subscriptions = SubscriptionList::new(&list);
        let packet = Packet::Subscribe(Subscribe { packet_id, properties: Properties::EMPTY, subscriptions });
        let _ = self.connection.write(&packet);
    }

    /// A connection is open: greets.
    pub fn handle_opened(&mut self, now: Timestamp) {
        self.asked.clear();
        self.phase = MqttPhase::Greeting(now);
        let (config, version) = (&self.config, self.connection.version());
        let receive = NonZeroU16::new(RECEIVE_MAX).map(Property::ReceiveMaximum);
        let list: Vec<Property<'_>> = if version.is_v5() {
            receive.into_iter().chain([Property::SessionExpiry(config.session_expiry)]).collect()
        } else {
            Vec::new()
        };
        let greeting = Connect {
            version,
            is_bridge: false,
            clean_start: !self.was_up || config.client_id.is_empty(),
            keep_alive: config.keep_alive.max(1),
            properties: Properties::new(&list),
            client_id: &config.client_id,
            will: None,
            user_name: config.user.as_ref().map(|(name, _)| name.as_str()),
            password: config.user.as_ref().map(|(_, password)| password.as_bytes()),
        };
        // Before the broker's answer every packet is small enough.
        let _ = self.connection.open(&greeting, now);
    }

    /// The connection is gone, or could not be opened; the answer is when to try the next.
    pub fn handle_lost<R: Rng + ?Sized>(&mut self, now: Timestamp, hints: Option<&Hints>, rng: &mut R) -> Duration {
        self.phase = MqttPhase::Away;
        self.connection.take_output();
        // Not acknowledged: they come again, and are new then.
        for id in core::mem::take(&mut self.unread) {
            self.connection.forget_incoming(id);
        }
        self.reconnect.on_failure(now, hints, rng)
    }

    /// Does what it is time for. False: the broker is silent, the connection is to be given up.
    pub fn turn(&mut self, now: Timestamp) -> bool {
        match self.phase {
            MqttPhase::Away => return true,
            MqttPhase::Greeting(since) => return now < since + ANSWER_TIMEOUT,
            MqttPhase::Up => {}
        }
        if now >= self.not_before {
            self.send_again(now);
        }
        while now >= self.not_before && self.flights.len() < self.connection.window() {
            let Some(waiting) = self.backlog.pop_front() else {
                self.is_draining = false;
                break;
            };
            self.backlog_bytes -= waiting.message.bytes();
            self.send(waiting, now);
            if self.is_draining {
                self.not_before = now + DRAIN_INTERVAL;
            }
        }
        self.connection.turn(now)
    }

    fn send(&mut self, waiting: WaitingPublish, now: Timestamp) {
        let WaitingPublish { token, message } = waiting;
        let id = (message.qos != QoS::AtMostOnce).then(|| self.take_id());
        if !self.write_publish(&message, id, false) {
            return self.events.push_back(MqttEvent::TooLarge { token });
        }
        self.connection.note_sent(now);
        match id {
            Some(id) => {
                self.flights.insert(id, InFlight { token, message, sent: now, is_released: false });
            }
            None => self.events.push_back(MqttEvent::Published { token, after: Duration::ZERO }),
        }
    }

    /// False if it is larger than the broker takes.
    fn write_publish(&mut self, message: &MqttMessage, id: Option<PacketId>, dup: bool) -> bool {
        let delivery = match (message.qos, id) {
            (QoS::AtLeastOnce, Some(packet_id)) => Delivery::AtLeastOnce { packet_id, dup },
            (QoS::ExactlyOnce, Some(packet_id)) => Delivery::ExactlyOnce { packet_id, dup },
            _ => Delivery::AtMostOnce,
        };
        let (retain, topic, payload) = (message.retain, message.topic.as_str(), message.payload.as_slice());
        let properties = Properties::EMPTY;
        self.connection.write(&Packet::Publish(Publish { delivery, retain, topic, properties, payload })).is_ok()
    }

    /// Says goodbye.
    pub fn goodbye(&mut self) {
        if self.phase == MqttPhase::Up {
            let goodbye = Disconnect { reason: ReasonCode::Success, properties: Properties::EMPTY };
            let _ = self.connection.write(&Packet::Disconnect(goodbye));
        }
    }

    /// Bytes to be written.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.connection.take_output()
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<MqttEvent> {
        self.events.pop_front()
    }

    /// When to turn again, if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self.phase {
            MqttPhase::Away => None,
            MqttPhase::Greeting(since) => Some(since + ANSWER_TIMEOUT),
            MqttPhase::Up => {
                let may_send =
                    self.in_air() < self.connection.window() && !(self.again.is_empty() && self.backlog.is_empty());
                self.connection.poll_timeout().into_iter().chain(may_send.then_some(self.not_before)).min()
            }
        }
    }

    fn take_id(&mut self) -> PacketId {
        let (flights, asked) = (&self.flights, &self.asked);
        self.connection.take_id(|id| flights.contains_key(&id) || asked.contains_key(&id))
    }
}
