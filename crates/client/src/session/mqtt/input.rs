//! What the broker's packets mean.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{
    Ack, AckKind, ConnAck, Decoded, Delivery, Packet, PacketId, Peer, Properties, Publish, QoS, ReasonCode, Version,
    decode,
};

use super::{MqttEvent, MqttMessage, MqttPhase, MqttSession};
use crate::limits::{ALIASES_MAX, COMEBACK_MAX, INBOX_MAX, RECEIVE_MAX, WINDOW_MAX};

impl MqttSession {
    /// Bytes arrived. False: the connection is to be given up, and an event says why.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Timestamp) -> bool {
        self.inbox.extend_from_slice(bytes);
        let inbox = std::mem::take(&mut self.inbox);
        let mut read = 0;
        let goes_on = loop {
            match decode(&inbox[read..], self.peer.version, &self.limits) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    read += consumed;
                    if !self.handle(&packet, now) {
                        break false;
                    }
                }
                Ok(Decoded::Incomplete { .. }) => break true,
                Err(error) => {
                    self.events.push_back(MqttEvent::Nonsense(format!("{} [{}]", error.detail, error.section)));
                    break false;
                }
            }
        };
        self.inbox = inbox;
        self.inbox.drain(..read);
        goes_on
    }

    fn handle(&mut self, packet: &Packet<'_>, now: Timestamp) -> bool {
        match (self.phase, packet) {
            (MqttPhase::Greeting(_), Packet::ConnAck(answer)) => return self.welcome(answer, now),
            (MqttPhase::Up, Packet::Publish(publish)) => return self.on_publish(publish),
            (MqttPhase::Up, Packet::Ack(ack)) => self.on_ack(ack, now),
            (MqttPhase::Up, Packet::SubAck(answer)) => {
                if let Some(token) = self.asked.remove(&answer.packet_id) {
                    let reason = answer.reasons.iter().next().unwrap_or(ReasonCode::UnspecifiedError);
                    self.events.push_back(MqttEvent::Subscribed { token, reason });
                }
            }
            (MqttPhase::Up, Packet::PingResp) => self.pinged = None,
            (_, Packet::Disconnect(goodbye)) => {
                let hints = hints_of(goodbye.properties);
                self.events.push_back(MqttEvent::Ended { reason: goodbye.reason, hints });
                return false;
            }
            (_, other) => {
                self.events.push_back(MqttEvent::Nonsense(format!("unexpected {:?}", other.kind())));
                return false;
            }
        }
        true
    }

    fn welcome(&mut self, answer: &ConnAck<'_>, now: Timestamp) -> bool {
        let properties = answer.properties;
        let hints = hints_of(properties);
        if answer.reason != ReasonCode::Success {
            if answer.reason == ReasonCode::UnsupportedProtocolVersion && self.peer.version.is_v5() {
                // An older broker: the next greeting is in its language.
                self.peer = Peer::new(Version::V311);
            }
            self.events.push_back(MqttEvent::Refused { reason: answer.reason, hints });
            return false;
        }
        let allowed = properties.receive_maximum().map_or(WINDOW_MAX, |max| max.get().into());
        self.window = allowed.min(WINDOW_MAX);
        // What an earlier connection was told does not hold for this one.
        let packet_bytes_max = Peer::new(self.peer.version).packet_bytes_max;
        self.peer.packet_bytes_max = properties.maximum_packet_size().map_or(packet_bytes_max, NonZeroU32::get);
        if let Some(seconds) = properties.server_keep_alive() {
            self.keep_alive = Duration::from_secs(seconds.max(1).into());
        }
        if let Some(id) = properties.assigned_client_id() {
            id.clone_into(&mut self.config.client_id);
        }
        self.phase = MqttPhase::Up;
        self.was_up = true;
        self.reconnect.on_success(now);
        self.events.push_back(MqttEvent::Connected { session_present: answer.session_present });
        if !answer.session_present {
            self.incoming.clear();
            for place in 0..self.subscriptions.len() {
                self.ask_for(place);
            }
        }
        self.resume(answer.session_present, now);
        self.is_draining = !self.backlog.is_empty();
        true
    }

    fn on_publish(&mut self, publish: &Publish<'_>) -> bool {
        let topic = match (publish.properties.topic_alias(), publish.topic) {
            (Some(alias), "") => self.aliases.get(&alias).cloned(),
            (Some(alias), name) if self.aliases.len() < ALIASES_MAX || self.aliases.contains_key(&alias) => {
                self.aliases.insert(alias, name.to_owned());
                Some(name.to_owned())
            }
            (Some(_), _) => None,
            (None, name) => Some(name.to_owned()),
        };
        let Some(topic) = topic else {
            self.events.push_back(MqttEvent::Nonsense("a topic alias that is not known".to_owned()));
            return false;
        };
        let id = match publish.delivery {
            Delivery::AtMostOnce => None,
            // Until it is released, the same identifier is the same message. [MQTT-4.3.3-10]
            Delivery::ExactlyOnce { packet_id, .. } if !self.incoming.insert(packet_id) => {
                self.write(&Packet::Ack(Ack::success(AckKind::PubRec, packet_id)));
                return true;
            }
            Delivery::AtLeastOnce { packet_id, .. } | Delivery::ExactlyOnce { packet_id, .. } => Some(packet_id),
        };
        self.unread.extend(id);
        if self.unread.len() > UNREAD_MAX {
            self.events.push_back(MqttEvent::Nonsense("more messages at once than it was told to send".to_owned()));
            return false;
        }
        let (qos, retain) = (publish.delivery.qos(), publish.retain);
        let message = MqttMessage { topic, payload: publish.payload.to_vec(), qos, retain };
        self.events.push_back(MqttEvent::Message(message, id));
        true
    }

    /// A message was taken by its reader: now it is acknowledged.
    pub fn hand_over(&mut self, qos: QoS, id: Option<PacketId>) {
        let Some(id) = id.filter(|id| self.phase == MqttPhase::Up && self.unread.remove(id)) else { return };
        let kind = if qos == QoS::ExactlyOnce { AckKind::PubRec } else { AckKind::PubAck };
        self.write(&Packet::Ack(Ack::success(kind, id)));
    }

    fn on_ack(&mut self, ack: &Ack<'_>, now: Timestamp) {
        let id = ack.packet_id;
        match ack.kind {
            AckKind::PubRel => {
                self.incoming.remove(&id);
                self.write(&Packet::Ack(Ack::success(AckKind::PubComp, id)));
            }
            AckKind::PubRec if !ack.reason.is_failure() => {
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.is_released = true;
                }
                self.write(&Packet::Ack(Ack::success(AckKind::PubRel, id)));
            }
            AckKind::PubAck | AckKind::PubRec | AckKind::PubComp => {
                let Some(flight) = self.flights.remove(&id) else { return };
                self.again.retain(|waiting| *waiting != id);
                let hints = hints_of(ack.properties);
                // The pace that the broker would like, whether it took this one or not.
                let pause = hints.retry_after.filter(|_| ack.reason.is_failure()).max(hints.interval);
                if let Some(pause) = pause {
                    self.not_before = self.not_before.max(now + pause.min(COMEBACK_MAX));
                }
                let (token, after) = (flight.token, now.since(flight.sent));
                self.events.push_back(if ack.reason.is_failure() {
                    let detail = ack.properties.reason_string().map(str::to_owned);
                    MqttEvent::Rejected { token, reason: ack.reason, detail, hints }
                } else {
                    MqttEvent::Published { token, after }
                });
            }
        }
    }
}

/// A broker before MQTT 5 knows no Receive Maximum, and may send this many.
const UNREAD_MAX: usize = if (RECEIVE_MAX as usize) > INBOX_MAX { RECEIVE_MAX as usize } else { INBOX_MAX };

/// What user properties say about pace.
fn hints_of(properties: Properties<'_>) -> Hints {
    let mut hints = Hints::default();
    for (name, text) in properties.user_properties() {
        hints.read(name, text);
    }
    hints
}
