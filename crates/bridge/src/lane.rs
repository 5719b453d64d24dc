//! One direction of a bridge: what came from one broker, its *source*, and is on its way to the other, its *sink*.
//!
//! A lane has nothing that has to outlive a connection. The source keeps each message until it has the sink's answer, because the
//! answer that it gets *is* the sink's, under the number that the source gave the message:
//!
//! ```text
//! source ──PUBLISH 7──> lane ──PUBLISH 7──> sink        PUBACK 7, PUBREC 7, PUBREL 7 and PUBCOMP 7 likewise
//! ```
//! Two things are more than a wire. A refusal that passes (0x97) is not passed on: the message is sent again later. And before a
//! number is used for a new message of QoS 2 for the first time in this process, the sink is told to release it (PUBREL): a sink that
//! kept the number from a session that the source has lost would take the new message for the old one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{Ack, AckKind, Delivery, Packet, PacketId, Properties, Publish, QoS, ReasonCode};

use crate::limits::{BRIM_BYTES_MAX, BRIM_MAX, HELD_BYTES_MAX, HELD_MAX, MESSAGE_OVERHEAD, OUTPUT_BYTES_MAX};
use crate::pace::{DrainPace, PaceVerdict};
use crate::packet_ids::PacketIds;
use crate::wire_end::WireEnd;

/// A message between the two, as the sink is to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayedMessage {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) properties: Vec<u8>,
    pub(crate) retain: bool,
    /// As the source sent it.
    pub(crate) delivery: Delivery,
    /// The best that the bridge's topic allows.
    pub(crate) qos_max: QoS,
}

/// A message in the hands of a lane.
#[derive(Debug)]
struct HeldMessage {
    message: RelayedMessage,
    /// Its place in the order in which messages came.
    place: u64,
}

impl HeldMessage {
    /// Bytes of memory that it takes, about.
    fn bytes(&self) -> usize {
        let RelayedMessage { topic, payload, properties, .. } = &self.message;
        topic.len() + payload.len() + properties.len() + MESSAGE_OVERHEAD
    }

    fn has_number(&self) -> bool {
        self.message.delivery.packet_id().is_some()
    }
}

#[derive(Debug)]
struct Flight {
    /// None once the sink has it (QoS 2, released).
    message: Option<HeldMessage>,
    sent_at: Timestamp,
    /// The source has released it (QoS 2).
    is_released: bool,
}

/// What an answer of the sink came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneOutcome {
    /// Nothing that counts.
    Step,
    /// The sink has the message, this long after it was sent.
    Taken(Duration),
    /// Not now; it is sent again.
    Deferred,
    /// Never.
    Refused(ReasonCode),
}

#[derive(Debug)]
pub(crate) struct RelayLane {
    /// Came, and not sent yet; in order.
    held: VecDeque<HeldMessage>,
    held_bytes: usize,
    /// How many of them have a number.
    held_numbered: usize,
    next_place: u64,
    flights: BTreeMap<PacketId, Flight>,
    /// Numbers that the source has released; passed on when the sink is there.
    released: VecDeque<PacketId>,
    /// Numbers that the sink holds nothing old under.
    clean: PacketIds,
    /// In this process the source has begun to count anew: whatever number is not clean may be an old one at the sink.
    has_forgotten: bool,
    /// The sink was told to release these for that reason only; its answer is nobody's.
    rinsing: BTreeSet<PacketId>,
    /// Messages of this connection for which there was no room, or no number of their own.
    overrun: u64,
}

impl RelayLane {
    pub(crate) fn new() -> Self {
        Self {
            held: VecDeque::new(),
            held_bytes: 0,
            held_numbered: 0,
            next_place: 0,
            flights: BTreeMap::new(),
            released: VecDeque::new(),
            clean: PacketIds::default(),
            has_forgotten: false,
            rinsing: BTreeSet::new(),
            overrun: 0,
        }
    }

    /// The connections are gone; the source sends again whatever has no answer. The answer is how many messages nobody sends again.
    pub(crate) fn reset(&mut self) -> u64 {
        let lost = self.held.iter().filter(|held| held.message.delivery.qos() == QoS::AtMostOnce).count();
        self.held.clear();
        (self.held_bytes, self.held_numbered) = (0, 0);
        self.flights.clear();
        self.released.clear();
        self.rinsing.clear();
        self.overrun = 0;
        lost as u64
    }

    /// The source has lost the session: its numbers mean other messages from now on.
    pub(crate) fn on_source_forgot(&mut self) {
        self.clean.clear();
        self.has_forgotten = true;
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// There is room for more of the source.
    pub(crate) fn has_room(&self) -> bool {
        self.held.len() < HELD_MAX && self.held_bytes < HELD_BYTES_MAX
    }

    /// The source has something to say without which the lane does not go on: a message of QoS 2 leaves the window when it is
    /// released.
    pub(crate) fn awaits_release(&self) -> bool {
        self.flights.values().any(|flight| flight.message.is_none() && !flight.is_released)
    }

    /// The source sends more at once than it was told it may.
    pub(crate) fn is_overfull(&self) -> bool {
        self.held_bytes >= 2 * HELD_BYTES_MAX || self.held.len() >= 2 * HELD_MAX
    }

    /// There is more here than may ever be.
    pub(crate) fn is_brimful(&self) -> bool {
        self.held_bytes >= BRIM_BYTES_MAX || self.held.len() >= BRIM_MAX
    }

    /// Messages of the source that have a number and no last answer.
    pub(crate) fn unanswered(&self) -> usize {
        self.held_numbered + self.flights.len()
    }

    /// Messages of this connection that were not taken: the source sends them again on the next one.
    pub(crate) fn overrun(&self) -> u64 {
        self.overrun
    }

    /// Nothing is held, under way or to be passed on.
    pub(crate) fn is_drained(&self) -> bool {
        self.held.is_empty() && self.flights.is_empty() && self.released.is_empty()
    }

    /// A message of the source, to be sent when its time comes.
    pub(crate) fn take(&mut self, message: RelayedMessage) {
        let number = message.delivery.packet_id();
        if let Some(flight) = number.and_then(|id| self.flights.get(&id)) {
            // Sent twice on one connection: it is on its way already. But mosquitto 2.0.11 gives a number to a second message when more
            // than 65 535 wait.
            let is_same = flight
                .message
                .as_ref()
                .is_some_and(|held| (&held.message.topic, &held.message.payload) == (&message.topic, &message.payload));
            self.overrun += u64::from(!is_same);
            return;
        }
        if number.is_some() && self.is_brimful() {
            self.overrun += 1;
            return;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.hold(HeldMessage { message, place });
    }

    /// Puts a message where it belongs by the order in which messages came.
    fn hold(&mut self, held: HeldMessage) {
        self.held_bytes += held.bytes();
        self.held_numbered += usize::from(held.has_number());
        let at = self.held.partition_point(|other| other.place < held.place);
        self.held.insert(at, held);
    }

    /// Sends what may be sent, with at most so many under way. `gone` is told of each message that is done with: whether it was sent (QoS 0), or is too large. The
    /// answer is when to try again.
    pub(crate) fn pump(
        &mut self,
        pace: &mut DrainPace,
        ((source, sink), most): ((&mut WireEnd, &mut WireEnd), u16),
        now: Timestamp,
        mut gone: impl FnMut(bool),
    ) -> Option<Timestamp> {
        self.pass_releases(source, sink);
        while let Some(next) = self.held.front() {
            if sink.out.len() >= OUTPUT_BYTES_MAX {
                return None;
            }
            let qos = next.message.delivery.qos().min(next.message.qos_max).min(sink.qos_max);
            let verdict = match qos {
                QoS::AtMostOnce => pace.verdict_without_window(now),
                _ => pace.verdict(self.flights.len(), sink.receive_max.min(most), now),
            };
            match verdict {
                PaceVerdict::Ready => {}
                PaceVerdict::At(then) => return Some(then),
                PaceVerdict::Full => return None,
            }
            let held = self.held.pop_front()?;
            self.held_bytes = self.held_bytes.saturating_sub(held.bytes());
            self.held_numbered = self.held_numbered.saturating_sub(usize::from(held.has_number()));
            self.send(held, qos, source, sink, now, &mut gone);
            pace.on_sent(now);
        }
        None
    }

    fn send(
        &mut self,
        held: HeldMessage,
        qos: QoS,
        source: &mut WireEnd,
        sink: &mut WireEnd,
        now: Timestamp,
        gone: &mut impl FnMut(bool),
    ) {
        let message = &held.message;
        let dup = message.delivery.dup();
        let delivery = match (qos, message.delivery.packet_id()) {
            (QoS::AtLeastOnce, Some(packet_id)) => Delivery::AtLeastOnce { packet_id, dup },
            (QoS::ExactlyOnce, Some(packet_id)) => {
                // What is sent again must find what the sink kept of it. But the source sets DUP also on what never came as far as
                // the sink: since it has begun to count anew, only what is clean was sent.
                if self.clean.insert(packet_id) && (!dup || self.has_forgotten) {
                    sink.write_ack(AckKind::PubRel, packet_id, ReasonCode::Success);
                    self.rinsing.insert(packet_id);
                }
                Delivery::ExactlyOnce { packet_id, dup }
            }
            _ => Delivery::AtMostOnce,
        };
        let publish = Publish {
            delivery,
            retain: message.retain && sink.retains,
            topic: &message.topic,
            properties: if sink.version().is_v5() {
                Properties::from_encoded(&message.properties)
            } else {
                Properties::EMPTY
            },
            payload: &message.payload,
        };
        let is_sent = sink.write(&Packet::Publish(publish));
        if let Some(id) = delivery.packet_id().filter(|_| is_sent) {
            self.flights.insert(id, Flight { message: Some(held), sent_at: now, is_released: false });
        } else {
            answer_source(source, message.delivery, ReasonCode::Success);
            gone(is_sent);
        }
    }

    /// An answer of the sink to a message of this lane.
    pub(crate) fn on_answer(&mut self, ack: &Ack<'_>, source: &mut WireEnd, now: Timestamp) -> LaneOutcome {
        let id = ack.packet_id;
        if ack.kind == AckKind::PubComp {
            if self.rinsing.remove(&id) {
                return LaneOutcome::Step;
            }
            // Also of a message that an earlier connection has brought so far.
            self.flights.remove(&id);
            source.write_ack(AckKind::PubComp, id, ReasonCode::Success);
            return LaneOutcome::Step;
        }
        let Some(flight) = self.flights.get_mut(&id) else { return LaneOutcome::Step };
        let Some(held) = flight.message.take() else { return LaneOutcome::Step };
        let latency = now.since(flight.sent_at);
        if is_passing(ack.reason) {
            self.flights.remove(&id);
            // A refusal ends the exchange: the next attempt is a first one, and goes before what came later.
            self.hold(held);
            return LaneOutcome::Deferred;
        }
        if ack.kind == AckKind::PubRec && !ack.reason.is_failure() {
            source.write_ack(AckKind::PubRec, id, ReasonCode::Success);
            return LaneOutcome::Taken(latency);
        }
        self.flights.remove(&id);
        answer_source(source, held.message.delivery, ack.reason);
        if ack.reason.is_failure() { LaneOutcome::Refused(ack.reason) } else { LaneOutcome::Taken(latency) }
    }

    /// The source releases a message of QoS 2.
    pub(crate) fn on_release(&mut self, id: PacketId) {
        if let Some(flight) = self.flights.get_mut(&id) {
            flight.is_released = true;
        }
        self.released.push_back(id);
    }

    fn pass_releases(&mut self, source: &mut WireEnd, sink: &mut WireEnd) {
        for id in self.released.drain(..) {
            if sink.qos_max < QoS::ExactlyOnce {
                // The sink knows no such step: the bridge has taken it from there.
                source.write_ack(AckKind::PubComp, id, ReasonCode::Success);
            } else {
                sink.write_ack(AckKind::PubRel, id, ReasonCode::Success);
            }
        }
    }
}

/// Tells the source what became of a message, in the steps of its own quality of service.
pub(crate) fn answer_source(source: &mut WireEnd, delivery: Delivery, reason: ReasonCode) {
    match delivery {
        Delivery::AtMostOnce => {}
        Delivery::AtLeastOnce { packet_id, .. } => source.write_ack(AckKind::PubAck, packet_id, reason),
        // Before MQTT 5 a refusal cannot be said: the source releases the number then, and the sink answers to that.
        Delivery::ExactlyOnce { packet_id, .. } => source.write_ack(AckKind::PubRec, packet_id, reason),
    }
}

/// Whether a refusal is about this moment and not about the message.
fn is_passing(reason: ReasonCode) -> bool {
    matches!(reason, ReasonCode::QuotaExceeded | ReasonCode::ServerBusy | ReasonCode::MessageRateTooHigh)
}

/// What an answer says about the pace.
pub(crate) fn hints_of(properties: Properties<'_>) -> Hints {
    let mut hints = Hints::default();
    for (name, text) in properties.user_properties() {
        hints.read(name, text);
    }
    hints
}
