//! What the broker's packets mean to a session.

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{PacketId, QoS, ReasonCode, Version};

use super::connection::{BrokerReason, PacketMeaning, ReceivedMessage};
use super::{MqttEvent, MqttMessage, MqttPhase, MqttSession};
use crate::limits::{COMEBACK_MAX, INBOX_MAX, RECEIVE_MAX};
use crate::prelude::*;

impl MqttSession {
    /// Bytes arrived. False: the connection is to be given up, and an event says why.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Timestamp) -> bool {
        self.connection.handle_bytes(bytes);
        while let Some(meaning) = self.connection.poll_packet(|_, _| ()) {
            if !self.handle(meaning, now) {
                return false;
            }
        }
        true
    }

    fn handle(&mut self, meaning: PacketMeaning, now: Timestamp) -> bool {
        match meaning {
            PacketMeaning::Nothing | PacketMeaning::Unsubscribed(_) => {}
            PacketMeaning::Connected { session_present, client_id } => self.welcome(session_present, client_id, now),
            PacketMeaning::Message(message) => return self.on_message(message),
            PacketMeaning::Stored(id) => {
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.is_released = true;
                }
            }
            PacketMeaning::Done(id, reason) => self.on_done(id, reason, now),
            PacketMeaning::Subscribed(id, reasons) => {
                if let Some(token) = self.asked.remove(&id) {
                    let reason = reasons.first().copied().unwrap_or(ReasonCode::UnspecifiedError);
                    self.events.push_back(MqttEvent::Subscribed { token, reason });
                }
            }
            PacketMeaning::Refused(BrokerReason { reason, hints, .. }) => {
                if reason == ReasonCode::UnsupportedProtocolVersion && self.connection.version().is_v5() {
                    // An older broker: the next greeting is in its language.
                    self.connection.set_version(Version::V311);
                }
                self.events.push_back(MqttEvent::Refused { reason, hints });
                return false;
            }
            PacketMeaning::Ended(BrokerReason { reason, hints, .. }) => {
                self.events.push_back(MqttEvent::Ended { reason, hints });
                return false;
            }
            PacketMeaning::Nonsense(words) => {
                self.events.push_back(MqttEvent::Nonsense(words));
                return false;
            }
        }
        true
    }

    fn welcome(&mut self, session_present: bool, client_id: Option<String>, now: Timestamp) {
        if let Some(id) = client_id {
            self.config.client_id = id;
        }
        self.phase = MqttPhase::Up;
        self.was_up = true;
        self.reconnect.on_success(now);
        self.events.push_back(MqttEvent::Connected { session_present });
        if !session_present {
            for place in 0..self.subscriptions.len() {
                self.ask_for(place);
            }
        }
        self.resume(session_present, now);
        self.is_draining = !self.backlog.is_empty();
    }

    fn on_message(&mut self, message: ReceivedMessage) -> bool {
        let ReceivedMessage { topic, payload, qos, retain, packet_id, .. } = message;
        self.unread.extend(packet_id);
        if self.unread.len() > UNREAD_MAX {
            self.events.push_back(MqttEvent::Nonsense("more messages at once than it was told to send".to_owned()));
            return false;
        }
        self.events.push_back(MqttEvent::Message(MqttMessage { topic, payload, qos, retain }, packet_id));
        true
    }

    /// A message was taken by its reader: now it is acknowledged.
    pub fn hand_over(&mut self, qos: QoS, id: Option<PacketId>) {
        if let Some(id) = id.filter(|id| self.phase == MqttPhase::Up && self.unread.remove(id)) {
            self.connection.acknowledge(qos, id);
        }
    }

    fn on_done(&mut self, id: PacketId, BrokerReason { reason, detail, hints }: BrokerReason, now: Timestamp) {
        let Some(flight) = self.flights.remove(&id) else { return };
        self.again.retain(|waiting| *waiting != id);
        // The pace that the broker would like, whether it took this one or not.
        let pause = hints.retry_after.filter(|_| reason.is_failure()).max(hints.interval);
        if let Some(pause) = pause {
            self.not_before = self.not_before.max(now + pause.min(COMEBACK_MAX));
        }
        let (token, after) = (flight.token, now.since(flight.sent));
        self.events.push_back(if reason.is_failure() {
            MqttEvent::Rejected { token, reason, detail, hints }
        } else {
            MqttEvent::Published { token, after }
        });
    }
}

/// A broker before MQTT 5 knows no Receive Maximum, and may send this many.
const UNREAD_MAX: usize = if (RECEIVE_MAX as usize) > INBOX_MAX { RECEIVE_MAX as usize } else { INBOX_MAX };
