//! What the broker's packets mean to the client.

use std::time::Instant;

use tidegate_wire_mqtt::{Ack, AckKind, ConnAck, Decoded, Delivery, Packet, Properties, Publish, ReasonCode, decode};

use super::{BlockingClient, ClientError, Happened, ReceivedMessage};

impl BlockingClient {
    /// Waits for CONNACK and takes over what the broker announces.
    pub(super) fn await_connack(&mut self, deadline: Instant) -> Result<(), ClientError> {
        loop {
            let version = self.peer.version;
            let bytes = std::mem::take(&mut self.inbox);
            if let Decoded::Packet { packet, consumed } = decode(&bytes, version, &self.limits)? {
                self.trace(&packet, consumed);
                let Packet::ConnAck(answer) = packet else {
                    return Err(ClientError::Protocol(format!("{:?} instead of CONNACK", packet.kind())));
                };
                self.welcome(&answer)?;
                self.inbox = bytes;
                self.read = consumed;
                return Ok(());
            }
            self.inbox = bytes;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::Silent);
            }
            self.read_some(left.min(super::READ_MAX))?;
        }
    }

    fn welcome(&mut self, answer: &ConnAck<'_>) -> Result<(), ClientError> {
        let properties = answer.properties;
        if answer.reason != ReasonCode::Success {
            let detail = properties.reason_string().map(str::to_owned);
            let had_credentials = self.hello.user.is_some() || self.hello.password.is_some();
            let (reason, version) = (answer.reason, self.peer.version);
            return Err(ClientError::Refused { reason, version, detail, had_credentials });
        }
        if let Some(max) = properties.receive_maximum() {
            self.window = max.get().into();
        }
        if let Some(max) = properties.maximum_packet_size() {
            self.peer.packet_bytes_max = max.get();
        }
        if let Some(seconds) = properties.server_keep_alive() {
            self.keep_alive = std::time::Duration::from_secs(seconds.into());
        }
        Ok(())
    }

    /// The next packet of the inbox that means something to the owner.
    pub(super) fn take_packet(&mut self) -> Result<Option<Happened>, ClientError> {
        loop {
            let bytes = std::mem::take(&mut self.inbox);
            let (outcome, consumed) = match decode(&bytes[self.read..], self.peer.version, &self.limits)? {
                Decoded::Packet { packet, consumed } => {
                    self.trace(&packet, consumed);
                    (self.handle(&packet), consumed)
                }
                Decoded::Incomplete { .. } => {
                    self.inbox = bytes;
                    return Ok(None);
                }
            };
            self.inbox = bytes;
            self.read += consumed;
            if let Some(happened) = outcome? {
                return Ok(Some(happened));
            }
        }
    }

    fn handle(&mut self, packet: &Packet<'_>) -> Result<Option<Happened>, ClientError> {
        match packet {
            Packet::Publish(publish) => self.handle_publish(publish),
            Packet::Ack(ack) => self.handle_ack(ack),
            Packet::SubAck(answer) => Ok(Some(Happened::Subscribed(answer.reasons.iter().collect()))),
            Packet::UnsubAck(_) => Ok(Some(Happened::Unsubscribed)),
            Packet::PingResp => {
                self.pinged = None;
                Ok(None)
            }
            Packet::Disconnect(goodbye) => Err(ClientError::Ended {
                reason: goodbye.reason,
                detail: goodbye.properties.reason_string().map(str::to_owned),
            }),
            other => Err(ClientError::Protocol(format!("unexpected {:?}", other.kind()))),
        }
    }

    fn handle_publish(&mut self, publish: &Publish<'_>) -> Result<Option<Happened>, ClientError> {
        let is_new = match publish.delivery {
            Delivery::AtMostOnce => true,
            Delivery::AtLeastOnce { packet_id, .. } => {
                self.send(&Packet::Ack(Ack::success(AckKind::PubAck, packet_id)))?;
                true
            }
            Delivery::ExactlyOnce { packet_id, .. } => {
                self.send(&Packet::Ack(Ack::success(AckKind::PubRec, packet_id)))?;
                // Until it is released, the same identifier is the same message. [MQTT-4.3.3-10]
                self.incoming.insert(packet_id)
            }
        };
        if !is_new {
            return Ok(None);
        }
        Ok(Some(Happened::Message(self.message(publish)?)))
    }

    fn message(&mut self, publish: &Publish<'_>) -> Result<ReceivedMessage, ClientError> {
        let topic = match (publish.properties.topic_alias(), publish.topic) {
            (Some(alias), "") => self.aliases.get(&alias).cloned(),
            (Some(alias), name) => {
                self.aliases.insert(alias, name.to_owned());
                Some(name.to_owned())
            }
            (None, name) => Some(name.to_owned()),
        };
        let mut properties = Vec::new();
        publish.properties.encode(&mut properties, |_| true);
        Ok(ReceivedMessage {
            topic: topic.ok_or_else(|| ClientError::Protocol("unknown topic alias".to_owned()))?,
            payload: publish.payload.to_vec(),
            qos: publish.delivery.qos(),
            retain: publish.retain,
            dup: publish.delivery.dup(),
            packet_id: publish.delivery.packet_id().map_or(0, std::num::NonZero::get),
            properties,
        })
    }

    fn handle_ack(&mut self, ack: &Ack<'_>) -> Result<Option<Happened>, ClientError> {
        let id = ack.packet_id;
        match ack.kind {
            // A refused PUBREC is the end of the message, too. [MQTT-4.3.3-4]
            AckKind::PubRec if !ack.reason.is_failure() => {
                self.send(&Packet::Ack(Ack::success(AckKind::PubRel, id)))?;
                Ok(None)
            }
            AckKind::PubRel => {
                self.incoming.remove(&id);
                self.send(&Packet::Ack(Ack::success(AckKind::PubComp, id)))?;
                Ok(None)
            }
            AckKind::PubAck | AckKind::PubRec | AckKind::PubComp => {
                let is_ours = self.outgoing.remove(&id);
                Ok(is_ours.then_some(Happened::Published(id, ack.reason)))
            }
        }
    }

    fn trace(&self, packet: &Packet<'_>, len: usize) {
        if self.hello.debug {
            eprintln!("received {:?}, {len} bytes", packet.kind());
        }
    }
}

impl ReceivedMessage {
    /// The properties.
    pub(crate) fn properties(&self) -> Properties<'_> {
        Properties::from_encoded(&self.properties)
    }
}
