//! PUBLISH from a client: checked, answered, retained and routed.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::property::PayloadFormat;
use tidegate_wire_mqtt::{Ack, AckKind, Delivery, PacketId, Properties, Publish, QoS, ReasonCode, Version};

use crate::access::Action;
use crate::envelope::Envelope;
use crate::event::{Event, Why};
use crate::input::{Ending, Handled};
use crate::limits::INBOUND_MAX;
use crate::message::{Publication, Shareable, expiry};
use crate::retained::{Kept, Others, Stamp};
use crate::shard::{ConnId, Shard, WillFate};

impl Shard {
    pub(crate) fn handle_publish(&mut self, conn: ConnId, publish: &Publish<'_>, now: Timestamp) -> Handled {
        self.stats.publish_received += 1;
        let topic = self.resolve_alias(conn, publish)?;
        if let Delivery::ExactlyOnce { packet_id, .. } = publish.delivery
            && !self.note_inbound(conn, packet_id)?
        {
            // Sent again: it has been routed already.
            self.send(conn, &Ack::success(AckKind::PubRec, packet_id));
            return Ok(());
        }
        match self.accept(conn, &topic, publish, now) {
            Ok(reason) => self.answer(conn, publish.delivery, reason),
            Err(reason) => return self.reject(conn, publish.delivery, reason),
        }
        Ok(())
    }

    /// The broker itself publishes: `$SYS` topics. Retained, QoS 0, to all shards.
    pub fn handle_system(&mut self, topic: &str, payload: &[u8], now: Timestamp) {
        let publication = Publication {
            topic,
            payload,
            properties: Properties::EMPTY,
            qos: QoS::AtMostOnce,
            retain: true,
            expires: None,
            origin: 0,
        };
        self.publish(&publication, now);
    }

    /// Retains and routes a publication of this shard; the answer is how many places it went to.
    pub(crate) fn publish(&mut self, publication: &Publication<'_>, now: Timestamp) -> usize {
        let message = Shareable::new(*publication);
        if publication.retain {
            self.retain_here(&message);
        }
        self.route(&message, now)
    }

    /// Retains a message of this shard: it comes after all that were heard of.
    fn retain_here(&mut self, message: &Shareable<'_>) -> Kept {
        self.retain_count += 1;
        self.retain(message, Stamp { count: self.retain_count, shard: self.index })
    }

    /// Keeps or forgets the retained message of a topic. [MQTT-3.3.1-5, MQTT-3.3.1-6]
    fn retain(&mut self, message: &Shareable<'_>, stamp: Stamp) -> Kept {
        let topic = message.publication.topic;
        if message.publication.payload.is_empty() {
            let others = if self.outgoing.len() > 1 { Others::MayBeBehind } else { Others::None };
            self.retained.remove(topic, stamp, others);
            return Kept::Yes;
        }
        let (count_max, bytes_max) = (self.settings.retained_messages_max, self.settings.retained_bytes_max);
        self.retained.set(topic, message.share(), stamp, count_max, bytes_max)
    }

    /// The topic itself, or the one that the client's alias stands for.
    fn resolve_alias<'p>(&mut self, conn: ConnId, publish: &Publish<'p>) -> Result<Cow<'p, str>, Ending> {
        let Some(alias) = publish.properties.topic_alias() else { return Ok(Cow::Borrowed(publish.topic)) };
        let unknown = || Ending::protocol(ReasonCode::ProtocolError, "unknown topic alias [MQTT-3.3.2-7]");
        let connection = self.connection_mut(conn).ok_or_else(unknown)?;
        if publish.topic.is_empty() {
            return Ok(Cow::Owned(connection.topic_of(alias).ok_or_else(unknown)?.into()));
        }
        connection.set_alias(alias, publish.topic);
        Ok(Cow::Borrowed(publish.topic))
    }

    /// Remembers the identifier of a QoS 2 message; false if it is there already. What is left from earlier connections
    /// does not count against the window of this one (section 4.9).
    fn note_inbound(&mut self, conn: ConnId, id: PacketId) -> Result<bool, Ending> {
        let receive_max = usize::from(self.settings.receive_max);
        let version = self.connection(conn).map_or(Version::V5, |connection| connection.peer.version);
        let Some(session) = self.session_of(conn) else { return Ok(false) };
        let Err(position) = session.inbound.binary_search(&id) else { return Ok(false) };
        let most = if version == Version::V5 { receive_max } else { INBOUND_MAX };
        if session.inbound.len() - session.inbound_before >= most {
            return Err(Ending::protocol(
                ReasonCode::ReceiveMaximumExceeded,
                "receive maximum exceeded [MQTT-3.3.4-9]",
            ));
        }
        session.inbound.insert(position, id);
        Ok(true)
    }

    /// Checks and routes; the answer is the reason code of the acknowledgement.
    fn accept(
        &mut self,
        conn: ConnId,
        topic: &str,
        publish: &Publish<'_>,
        now: Timestamp,
    ) -> Result<ReasonCode, ReasonCode> {
        let session = self.connection(conn).and_then(|connection| self.sessions.get(connection.session));
        let Some(session) = session else { return Err(ReasonCode::UnspecifiedError) };
        let origin = session.origin;
        if !self.may(&session.identity, &session.client_id, Action::Publish, topic) {
            let client_id = Arc::clone(&session.client_id);
            self.tell(Event::Denied { client_id, what: "publish", topic: topic.into() });
            return Err(ReasonCode::NotAuthorized);
        }
        let format = publish.properties.payload_format();
        if format == Some(PayloadFormat::Utf8) && core::str::from_utf8(publish.payload).is_err() {
            return Err(ReasonCode::PayloadFormatInvalid);
        }
        let publication = Publication {
            topic,
            payload: publish.payload,
            properties: publish.properties,
            qos: publish.delivery.qos(),
            retain: publish.retain,
            expires: expiry(&publish.properties, now),
            origin,
        };
        let message = Shareable::new(publication);
        if publish.retain && self.retain_here(&message) == Kept::Full {
            return Err(ReasonCode::QuotaExceeded);
        }
        let places = self.route(&message, now);
        Ok(if places == 0 { ReasonCode::NoMatchingSubscribers } else { ReasonCode::Success })
    }

    fn answer(&mut self, conn: ConnId, delivery: Delivery, reason: ReasonCode) {
        let (kind, packet_id) = match delivery {
            Delivery::AtMostOnce => return,
            Delivery::AtLeastOnce { packet_id, .. } => (AckKind::PubAck, packet_id),
            Delivery::ExactlyOnce { packet_id, .. } => (AckKind::PubRec, packet_id),
        };
        self.send(conn, &Ack { kind, packet_id, reason, properties: Properties::EMPTY });
    }

    /// A message that is not taken is never acknowledged with success: MQTT 5 has reason codes for it, 3.1.1 may close
    /// the connection [MQTT-3.3.5-2 (3.1.1)]. At QoS 0 nobody waits for an answer.
    fn reject(&mut self, conn: ConnId, delivery: Delivery, reason: ReasonCode) -> Handled {
        match reason {
            ReasonCode::NotAuthorized => self.stats.dropped_denied += 1,
            ReasonCode::QuotaExceeded => self.stats.dropped_retained_full += 1,
            _ => {}
        }
        if let Delivery::ExactlyOnce { packet_id, .. } = delivery
            && let Some(session) = self.session_of(conn)
        {
            // [MQTT-4.3.3-9] After a refusal the identifier is free again: sent once more, it is a new message and not a
            // duplicate that may be acknowledged.
            session.release_inbound(packet_id);
        }
        let version = self.connection(conn).map_or(Version::V5, |connection| connection.peer.version);
        match (delivery, version) {
            (Delivery::AtMostOnce, _) if reason == ReasonCode::PayloadFormatInvalid => {
                Err(Ending::protocol(reason, "payload is not UTF-8 as its format says"))
            }
            (Delivery::AtMostOnce, _) => Ok(()),
            (_, Version::V5) => {
                self.answer(conn, delivery, reason);
                Ok(())
            }
            // The client broke no rule of the protocol; there is only no word to tell it.
            _ => Err(Ending { why: Why::Ended(reason), will: WillFate::Publish }),
        }
    }

    pub(crate) fn session_of(&mut self, conn: ConnId) -> Option<&mut crate::session::Session> {
        let session = self.connection(conn)?.session;
        self.sessions.get_mut(session)
    }

    pub(crate) fn handle_envelope(&mut self, from: usize, envelope: &Envelope<'_>, now: Timestamp) {
        match *envelope {
            Envelope::Publish { publication, count } => {
                let message = Shareable::new(publication);
                if publication.retain {
                    self.retain_count = self.retain_count.max(count);
                    self.retain(&message, Stamp { count, shard: from });
                }
                self.route_here(&message, now);
            }
            Envelope::Shared { filter, group, publication, hops } => {
                let message = Shareable::new(publication);
                if let Some((session, wish)) = self.subscriptions.pick_local(filter, group) {
                    self.deliver_shared(session, wish, &message, now);
                } else if hops == 0 || !self.pass_on(filter, group, &message, hops - 1) {
                    self.stats.dropped_no_member += 1;
                }
            }
            Envelope::Interest { filter, interested } => self.subscriptions.set_interest(filter, from, interested),
            Envelope::Group { filter, group, members } => {
                self.subscriptions.set_remote_members(filter, group, from, members);
            }
        }
    }
}
