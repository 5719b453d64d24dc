//! A message from a client: checked, answered, retained and routed.

use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::property::PayloadFormat;
use tidegate_wire_mqtt::{Delivery, Properties, QoS, ReasonCode};

use crate::classes::ClassId;
use crate::event::{Event, Why};
use crate::face::ClientAnswer;
use crate::gate::{Admission, GateArrival, Kind};
use crate::input::{Ending, Flow, Handled};
use crate::ledger::Loss;
use crate::measures::AwaitedAck;
use crate::message::{Precedence, Publication, Shareable, expiry};
use crate::persist::Until;
use crate::retained::{Others, RetainOutcome, Room, Stamp};
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};

/// A message as its client sent it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its topic, in full.
    pub topic: &'a str,
    /// What it says.
    pub payload: &'a [u8],
    /// Its attributes.
    pub properties: Properties<'a>,
    /// Guarantee, and the number by which it is answered.
    pub delivery: Delivery,
    /// Whether it is to be kept for those who come later.
    pub retain: bool,
}

impl ShardState {
    pub(crate) fn publish_from(
        &mut self,
        conn: ConnId,
        incoming: &Incoming<'_>,
        came: ArrivalTime,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        if self.activities.is_on() {
            return self.publish_followed(conn, incoming, came, now);
        }
        self.publish_unfollowed(conn, incoming, came, now)
    }

    /// The same, without a word about it.
    pub(crate) fn publish_unfollowed(
        &mut self,
        conn: ConnId,
        incoming: &Incoming<'_>,
        came: ArrivalTime,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        let Some(connection) = self.connection(conn) else { return Ok(Flow::On) };
        let (session, dry_at, inbound_max) = (connection.session(), connection.dry_at(), connection.inbound_max());
        let (index, delivery) = (session, incoming.delivery);
        let arrival = GateArrival { conn, session, delivery, came, dry_at };
        if delivery != Delivery::AtMostOnce {
            if self.is_repeated(arrival) {
                return Ok(Flow::On);
            }
            self.check_window(index, inbound_max).inspect_err(|_| self.lose(index, Loss::Rejected))?;
        }
        let mut publication = Publication {
            topic: incoming.topic,
            payload: incoming.payload,
            properties: incoming.properties,
            qos: delivery.qos(),
            retain: incoming.retain,
            expires: expiry(&incoming.properties, now),
            origin: self.sessions.get(index).map_or(0, Session::origin),
            standing: Precedence::UNKNOWN,
        };
        // Every door has checked the name. One that is empty got by a door once, and no client could decode what came of it.
        let named = if incoming.topic.is_empty() { Err(ReasonCode::TopicNameInvalid) } else { Ok(()) };
        if let Err(reason) = named.and_then(|()| self.check_rules(index, &publication)) {
            return self.reject(Some(conn), index, delivery, reason).map(|()| Flow::On);
        }
        match self.pass_gates(arrival, &mut publication, now)? {
            Admission::Pass => self.take(Some(conn), index, delivery, &Shareable::new(publication), now, now)?,
            Admission::Settled => {}
            Admission::Refused(refusal) => {
                self.reply(conn, &ClientAnswer::Refused { delivery, refusal: &refusal }, Until::Now);
            }
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
            standing: Precedence::of(ClassId::SYS),
        };
        self.publish(&publication, now);
    }

    /// Retains and routes a publication of this shard; the answer is how many places it went to.
    pub(crate) fn publish(&mut self, publication: &Publication<'_>, now: Timestamp) -> usize {
        self.publish_shareable(&Shareable::new(*publication), now)
    }

    pub(crate) fn publish_shareable(&mut self, message: &Shareable<'_>, now: Timestamp) -> usize {
        if message.publication.retain && self.retain_here(message, now) == RetainOutcome::Full {
            self.stats.retained_memory_budget += 1;
            return self.route(&unretained(message), now);
        }
        self.route(message, now)
    }

    /// Retains a message of this shard: it comes after all that were heard of.
    fn retain_here(&mut self, message: &Shareable<'_>, now: Timestamp) -> RetainOutcome {
        self.retain_count += 1;
        self.retain(message, Stamp { count: self.retain_count, from: self.links.own() }, now)
    }

    /// Keeps or forgets the retained message of a topic. [MQTT-3.3.1-5, MQTT-3.3.1-6]
    pub(crate) fn retain(&mut self, message: &Shareable<'_>, stamp: Stamp, now: Timestamp) -> RetainOutcome {
        let topic = message.publication.topic;
        let before = if self.keeps_retained(topic) { self.retained.get(topic) } else { None };
        if message.publication.payload.is_empty() {
            let others = if self.links.has_others() { Others::MayBeBehind } else { Others::None };
            self.retained.remove(topic, stamp, others);
            self.note_retained(message, before, RetainOutcome::Yes);
            return RetainOutcome::Yes;
        }
        if self.is_store_lost(&message.publication) {
            self.stats.retained_store_error += 1;
            return RetainOutcome::Yes;
        }
        let room = self.memory.room(Kind::Retained);
        // One that replaces another as large needs no room.
        let bytes = self.settings.retained_bytes_max.min(self.retained.bytes().saturating_add(room));
        let room = Room { messages: self.settings.retained_messages_max, bytes };
        let kept = self.retained.set(topic, message.share(self.memory.tally()), stamp, room, now);
        self.note_retained(message, before, kept);
        kept
    }

    /// Whether this is a message that we have already, sent again. QoS 2 is told by its identifier, QoS 1 by that of a
    /// held message and the flag: without the flag the client has given the identifier to another message.
    fn is_repeated(&mut self, GateArrival { conn, session, delivery, .. }: GateArrival) -> bool {
        let is_inbound = |id| self.sessions.get(session).is_some_and(|session| session.inbound.contains(id));
        let is_repeated = match delivery {
            Delivery::AtLeastOnce { dup: true, .. } => self.is_held(session, delivery),
            Delivery::ExactlyOnce { packet_id, .. } if is_inbound(packet_id) => {
                if !self.is_held(session, delivery) {
                    // It has been routed already, and may not be kept yet.
                    let until = self.journal.until_kept();
                    self.answer_taken(conn, delivery, true, until);
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

    /// [MQTT-3.3.4-9] No more unacknowledged messages than the client was told that we take.
    fn check_window(&self, index: u32, inbound_max: u16) -> Handled {
        if self.sessions.get(index).is_some_and(|session| session.unacknowledged() >= usize::from(inbound_max)) {
            let detail = "receive maximum exceeded [MQTT-3.3.4-9]";
            return Err(Ending::protocol(ReasonCode::ReceiveMaximumExceeded, detail));
        }
        Ok(())
    }

    /// What is asked of a message when it arrives, and again if it had to wait: rules change.
    pub(crate) fn check_rules(&mut self, index: u32, publication: &Publication<'_>) -> Result<(), ReasonCode> {
        let Some(session) = self.sessions.get(index) else { return Err(ReasonCode::UnspecifiedError) };
        if !self.may_publish(session.identity(), session.client_id(), publication.topic, publication.payload) {
            let client_id = Arc::clone(session.client_id());
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
        if message.publication.retain && self.retain_here(message, now) == RetainOutcome::Full {
            // Who can be told is, and nothing is taken. For others the connection would have to be closed, and its
            // client would come back with the same message for ever: it is delivered, which is what an acknowledgement
            // promises, and the client is told elsewhere that it is not retained.
            let Some(conn) = conn.filter(|conn| !self.hears_refusals(*conn)) else {
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
            session.ledger.pass();
        }
        let places = self.route_for(index, message, now);
        self.copies += places as u64;
        if let Delivery::ExactlyOnce { packet_id, .. } = delivery
            && let Some(session) = self.sessions.get_mut(index)
        {
            session.inbound.insert(packet_id);
            self.journal.note_inbound(session.kept(), packet_id);
        }
        if let Some(conn) = conn {
            let interval = if self.gate.is_unread() { self.pace_hint(conn, index, delivery, now) } else { None };
            if delivery != Delivery::AtMostOnce {
                let answer = ClientAnswer::Taken { delivery, is_reached: places > 0, interval };
                let asked = AwaitedAck::new(delivery.qos(), message.publication.standing.class, came);
                self.acknowledge(conn, &answer, self.journal.until(mark), asked, now);
            }
        }
        Ok(())
    }

    /// A message was taken, and nobody gets it; or it was taken before, and is answered again when it is kept.
    pub(crate) fn answer_taken(&mut self, conn: ConnId, delivery: Delivery, is_reached: bool, until: Until) {
        if delivery != Delivery::AtMostOnce {
            self.reply(conn, &ClientAnswer::Taken { delivery, is_reached, interval: None }, until);
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
            session.inbound.remove(packet_id);
        }
        let Some(conn) = conn else { return Ok(()) };
        match delivery {
            Delivery::AtMostOnce if self.hears_every_refusal(conn) => {
                self.reply(conn, &ClientAnswer::Rejected { delivery, reason }, Until::Now);
                Ok(())
            }
            Delivery::AtMostOnce if reason == ReasonCode::PayloadFormatInvalid => {
                Err(Ending::protocol(reason, "payload is not UTF-8 as its format says"))
            }
            Delivery::AtMostOnce => Ok(()),
            _ if self.hears_refusals(conn) => {
                self.reply(conn, &ClientAnswer::Rejected { delivery, reason }, Until::Now);
                Ok(())
            }
            // The client broke no rule of the protocol; there is only no word to tell it.
            _ => Err(Ending::new(Why::Ended(reason), WillFate::Publish)),
        }
    }
}

/// The same message, for those who get it now.
fn unretained<'a>(message: &Shareable<'a>) -> Shareable<'a> {
    let copy = Shareable::new(Publication { retain: false, ..message.publication });
    copy.routing.set(message.routing.get());
    copy
}
