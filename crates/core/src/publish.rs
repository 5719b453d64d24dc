//! PUBLISH from a client: checked, answered, retained and routed.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::property::PayloadFormat;
use tidegate_wire_mqtt::{Ack, AckKind, Delivery, Properties, Publish, QoS, ReasonCode, Version};

use crate::access::Action;
use crate::aliases::{AliasesIn, NoRoom};
use crate::classes::ClassId;
use crate::event::{Event, Why};
use crate::gate::{Admission, Arrival, Kind, Pace, Refusal};
use crate::input::{Ending, Flow, Handled};
use crate::ledger::Loss;
use crate::limits::INBOUND_MAX;
use crate::measures::Asked;
use crate::message::{Publication, Shareable, Standing, expiry};
use crate::persist::Until;
use crate::retained::{Kept, Others, Room, Stamp};
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};

impl ShardState {
    pub(crate) fn handle_publish(
        &mut self,
        conn: ConnId,
        publish: &Publish<'_>,
        came: ArrivalTime,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        let Some(connection) = self.connection(conn) else { return Ok(Flow::On) };
        let (session, dry_at) = (connection.session, connection.dry_at);
        let (index, delivery) = (session, publish.delivery);
        let arrival = Arrival { conn, session, delivery, came, dry_at };
        let topic = self.resolve_alias(conn, publish).map_err(|(loss, ending)| {
            self.lose(index, loss);
            ending
        })?;
        if delivery != Delivery::AtMostOnce {
            if self.is_repeated(arrival) {
                return Ok(Flow::On);
            }
            self.check_window(conn, index).inspect_err(|_| self.lose(index, Loss::Rejected))?;
        }
        let mut publication = Publication {
            topic: &topic,
            payload: publish.payload,
            properties: publish.properties,
            qos: publish.delivery.qos(),
            retain: publish.retain,
            expires: expiry(&publish.properties, now),
            origin: self.sessions.get(index).map_or(0, |session| session.origin),
            standing: Standing::UNKNOWN,
        };
        if let Err(reason) = self.check_rules(index, &publication) {
            return self.reject(Some(conn), index, delivery, reason).map(|()| Flow::On);
        }
        match self.pass_gates(arrival, &mut publication, now)? {
            Admission::Pass => self.take(Some(conn), index, delivery, &Shareable::new(publication), now, now)?,
            Admission::Settled => {}
            Admission::Refused(refusal) => self.answer_refused(conn, delivery, &refusal),
            Admission::Wait => return Ok(Flow::Wait),
        }
        Ok(Flow::On)
    }

    pub(crate) fn handle_system(&mut self, topic: &str, payload: &[u8], now: Timestamp) {
        let publication = Publication {
            topic,
            payload,
            properties: Properties::EMPTY,
            qos: QoS::AtMostOnce,
            retain: true,
            expires: None,
            origin: 0,
            standing: Standing::of(ClassId::SYS),
        };
        self.publish(&publication, now);
    }

    /// Retains and routes a publication of this shard; the answer is how many places it went to.
    pub(crate) fn publish(&mut self, publication: &Publication<'_>, now: Timestamp) -> usize {
        self.publish_shareable(&Shareable::new(*publication), now)
    }

    pub(crate) fn publish_shareable(&mut self, message: &Shareable<'_>, now: Timestamp) -> usize {
        if message.publication.retain && self.retain_here(message, now) == Kept::Full {
            self.stats.retained_memory_budget += 1;
            return self.route(&unretained(message), now);
        }
        self.route(message, now)
    }

    /// Retains a message of this shard: it comes after all that were heard of.
    fn retain_here(&mut self, message: &Shareable<'_>, now: Timestamp) -> Kept {
        self.retain_count += 1;
        self.retain(message, Stamp { count: self.retain_count, from: self.links.own() }, now)
    }

    /// Keeps or forgets the retained message of a topic. [MQTT-3.3.1-5, MQTT-3.3.1-6]
    pub(crate) fn retain(&mut self, message: &Shareable<'_>, stamp: Stamp, now: Timestamp) -> Kept {
        let topic = message.publication.topic;
        let before = if self.keeps_retained(topic) { self.retained.get(topic) } else { None };
        if message.publication.payload.is_empty() {
            let others = if self.links.has_others() { Others::MayBeBehind } else { Others::None };
            self.retained.remove(topic, stamp, others);
            self.note_retained(message, before, Kept::Yes);
            return Kept::Yes;
        }
        if self.is_store_lost(&message.publication) {
            self.stats.retained_store_error += 1;
            return Kept::Yes;
        }
        let room = self.memory.room(Kind::Retained);
        // One that replaces another as large needs no room.
        let bytes = self.settings.retained_bytes_max.min(self.retained.bytes().saturating_add(room));
        let room = Room { messages: self.settings.retained_messages_max, bytes };
        let kept = self.retained.set(topic, message.share(self.memory.tally()), stamp, room, now);
        self.note_retained(message, before, kept);
        kept
    }

    /// The topic itself, or the one that the client's alias stands for. An alias that there is no memory for ends the
    /// connection: it cannot be refused alone, because the client may use it from now on.
    fn resolve_alias<'p>(&mut self, conn: ConnId, publish: &Publish<'p>) -> Result<Cow<'p, str>, (Loss, Ending)> {
        let Some(alias) = publish.properties.topic_alias() else { return Ok(Cow::Borrowed(publish.topic)) };
        let unknown = || {
            let ending = Ending::protocol(ReasonCode::ProtocolError, "unknown topic alias [MQTT-3.3.2-7]");
            (Loss::Rejected, ending)
        };
        let known = self.connection(conn).ok_or_else(unknown)?.aliases_in.as_deref();
        if publish.topic.is_empty() {
            return Ok(Cow::Owned(known.and_then(|known| known.topic_of(alias)).ok_or_else(unknown)?.into()));
        }
        let connection = self.connections.get_mut(conn.index).ok_or_else(unknown)?;
        let known = connection.aliases_in.get_or_insert_with(|| Box::new(AliasesIn::new(&self.memory)));
        known.set(alias, publish.topic, &self.memory).map_err(|NoRoom| {
            (Loss::MemoryIn, Ending::new(Why::Ended(ReasonCode::QuotaExceeded), WillFate::Publish))
        })?;
        Ok(Cow::Borrowed(publish.topic))
    }

    /// Whether this is a message that we have already, sent again. QoS 2 is told by its identifier, QoS 1 by that of a
    /// held message and the flag: without the flag the client has given the identifier to another message.
    fn is_repeated(&mut self, Arrival { conn, session, delivery, .. }: Arrival) -> bool {
        let inbound = self.sessions.get(session).map_or(&[][..], |session| &session.inbound);
        let is_repeated = match delivery {
            Delivery::AtLeastOnce { dup: true, .. } => self.is_held(session, delivery),
            Delivery::ExactlyOnce { packet_id, .. } if inbound.binary_search(&packet_id).is_ok() => {
                if !self.is_held(session, delivery) {
                    // It has been routed already, and may not be kept yet.
                    let until = self.journal.until_kept();
                    self.answer_after(conn, delivery, ReasonCode::Success, until);
                }
                true
            }
            _ => false,
        };
        if is_repeated {
            self.lose(session, Loss::Repeated);
        }
        is_repeated
    }

    /// [MQTT-3.3.4-9] No more unacknowledged messages than we said we would take.
    fn check_window(&self, conn: ConnId, index: u32) -> Handled {
        let version = self.version_of(conn);
        let most = if version == Version::V5 { usize::from(self.settings.receive_max) } else { INBOUND_MAX };
        if self.sessions.get(index).is_some_and(|session| session.unacknowledged() >= most) {
            let detail = "receive maximum exceeded [MQTT-3.3.4-9]";
            return Err(Ending::protocol(ReasonCode::ReceiveMaximumExceeded, detail));
        }
        Ok(())
    }

    /// What is asked of a message when it arrives, and again if it had to wait: rules change.
    pub(crate) fn check_rules(&mut self, index: u32, publication: &Publication<'_>) -> Result<(), ReasonCode> {
        let Some(session) = self.sessions.get(index) else { return Err(ReasonCode::UnspecifiedError) };
        if !self.may(&session.identity, &session.client_id, Action::Publish, publication.topic) {
            let client_id = Arc::clone(&session.client_id);
            self.tell(Event::Denied { client_id, what: "publish", topic: publication.topic.into() });
            return Err(ReasonCode::NotAuthorized);
        }
        let format = publication.properties.payload_format();
        if format == Some(PayloadFormat::Utf8) && core::str::from_utf8(publication.payload).is_err() {
            return Err(ReasonCode::PayloadFormatInvalid);
        }
        Ok(())
    }

    /// Retains, routes and answers what came then.
    pub(crate) fn take(
        &mut self,
        conn: Option<ConnId>,
        index: u32,
        delivery: Delivery,
        message: &Shareable<'_>,
        came: Timestamp,
        now: Timestamp,
    ) -> Handled {
        let mark = self.journal.mark();
        self.prepare_routing(index, delivery, message);
        let mut not_retained = None;
        if message.publication.retain && self.retain_here(message, now) == Kept::Full {
            // MQTT 5 has a word for it, and then nothing is taken. Before, the connection would have to be closed, and its
            // client would come back with the same message for ever: it is delivered, which is what an acknowledgement
            // promises, and the client is told elsewhere that it is not retained.
            let Some(conn) = conn.filter(|conn| self.version_of(*conn) != Version::V5) else {
                return self.reject(conn, index, delivery, ReasonCode::QuotaExceeded);
            };
            self.note_not_retained(conn, index, now);
            not_retained = Some(unretained(message));
        }
        let message = not_retained.as_ref().unwrap_or(message);
        self.stats.publish_passed += 1;
        self.sample.note(message.publication.topic, now);
        self.stats.by_class[message.publication.standing.class.index()].received += 1;
        if let Some(session) = self.sessions.get_mut(index) {
            session.ledger.passed += 1;
        }
        let places = self.route_for(index, message, now);
        self.copies += places as u64;
        if let Delivery::ExactlyOnce { packet_id, .. } = delivery
            && let Some(session) = self.sessions.get_mut(index)
        {
            session.note_inbound(packet_id);
            self.journal.note_inbound(session.kept, packet_id);
        }
        if let Some(conn) = conn {
            let reason = if places == 0 { ReasonCode::NoMatchingSubscribers } else { ReasonCode::Success };
            let pace = if self.gate.is_unread() { self.pace_hint(conn, index, delivery, now) } else { None };
            let words = pace.as_ref().map(Pace::words).unwrap_or_default();
            let properties = if words.is_empty() { Properties::EMPTY } else { Properties::new(&words) };
            if let Some(ack) = ack_of(delivery, reason, properties) {
                let asked = Asked::new(delivery.qos(), message.publication.standing.class, came);
                self.acknowledge(conn, &ack, self.journal.until(mark), asked, now);
            }
        }
        Ok(())
    }

    pub(crate) fn answer(&mut self, conn: ConnId, delivery: Delivery, reason: ReasonCode) {
        self.answer_with(conn, delivery, reason, Properties::EMPTY);
    }

    /// A message was taken, and is answered when it is kept.
    fn answer_after(&mut self, conn: ConnId, delivery: Delivery, reason: ReasonCode, until: Until) {
        if let Some(ack) = ack_of(delivery, reason, Properties::EMPTY) {
            self.reply(conn, &ack, until);
        }
    }

    /// A message was refused by a gate.
    #[cold]
    fn answer_refused(&mut self, conn: ConnId, delivery: Delivery, refusal: &Refusal) {
        let pace = Pace::new(refusal.interval, refusal.retry_after);
        let properties = pace.properties(refusal.why);
        self.answer_with(conn, delivery, ReasonCode::QuotaExceeded, Properties::new(&properties));
    }

    fn answer_with(&mut self, conn: ConnId, delivery: Delivery, reason: ReasonCode, properties: Properties<'_>) {
        if let Some(ack) = ack_of(delivery, reason, properties) {
            self.reply(conn, &ack, Until::Now);
        }
    }

    /// A message that is not taken is never acknowledged with success: MQTT 5 has reason codes for it, 3.1.1 may close
    /// the connection [MQTT-3.3.5-2 (3.1.1)]. At QoS 0 nobody waits for an answer.
    pub(crate) fn reject(
        &mut self,
        conn: Option<ConnId>,
        index: u32,
        delivery: Delivery,
        reason: ReasonCode,
    ) -> Handled {
        let loss = match reason {
            ReasonCode::NotAuthorized => Loss::Denied,
            ReasonCode::QuotaExceeded => Loss::RetainedFull,
            _ => Loss::Rejected,
        };
        self.lose(index, loss);
        if let (Delivery::ExactlyOnce { packet_id, .. }, Some(session)) = (delivery, self.sessions.get_mut(index)) {
            // [MQTT-4.3.3-9] After a refusal the identifier is free again: sent once more, it is a new message and not a
            // duplicate that may be acknowledged.
            session.release_inbound(packet_id);
        }
        let Some(conn) = conn else { return Ok(()) };
        let version = self.version_of(conn);
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
            _ => Err(Ending::new(Why::Ended(reason), WillFate::Publish)),
        }
    }

    pub(crate) fn session_of(&mut self, conn: ConnId) -> Option<&mut crate::session::Session> {
        let session = self.connection(conn)?.session;
        self.sessions.get_mut(session)
    }
}

/// The same message, for those who get it now.
fn unretained<'a>(message: &Shareable<'a>) -> Shareable<'a> {
    let copy = Shareable::new(Publication { retain: false, ..message.publication });
    copy.routing.set(message.routing.get());
    copy
}

fn ack_of(delivery: Delivery, reason: ReasonCode, properties: Properties<'_>) -> Option<Ack<'_>> {
    let (kind, packet_id) = match delivery {
        Delivery::AtMostOnce => return None,
        Delivery::AtLeastOnce { packet_id, .. } => (AckKind::PubAck, packet_id),
        Delivery::ExactlyOnce { packet_id, .. } => (AckKind::PubRec, packet_id),
    };
    Some(Ack { kind, packet_id, reason, properties })
}
