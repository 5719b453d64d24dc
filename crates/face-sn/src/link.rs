//! One client: how a shard speaks to it, and what of that it may have now.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::SN_IDS;
use tidegate_core::datagrams::Chance;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_core::{Charge, Confirmation, Memory};
use tidegate_wire_mqtt::{Delivery, QoS, ReasonCode};

use crate::frame::{self, Outgoing};
use crate::greet::Will;
use crate::inbound::Inbound;
use crate::limits::{IDLE_MAX, PACKET_BYTES_MAX, SENDER_IDLE_MAX, UNPROVED_TIME};
use crate::outbound::{Outbound, PublishNumber, Send};
use crate::packet::{Packet, Publish, Quality, ReturnCode, TopicRef};
use crate::topics::{PredefinedTopics, Standing, TopicTable, as_short};

/// What a client is told of only to hear whether it is there: it tells the client of no message.
const PROOF_TOPIC: &str = "$SYS/hello";

/// How one client is spoken to.
#[derive(Debug)]
pub(crate) struct SnLink {
    kind: LinkKind,
    pub(crate) presence: Presence,
    pub(crate) heard_at: Timestamp,
    met_at: Timestamp,
    proof: Proof,
    /// Its session was there before.
    pub(crate) is_resumed: bool,
    pub(crate) chance: Chance,
    pub(crate) predefined: Arc<PredefinedTopics>,
    pub(crate) topics: TopicTable,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    /// What it wants to be published when it is lost, as far as it can change that by halves.
    pub(crate) will: Option<Box<Will>>,
    pub(crate) charge: Charge,
    /// Nothing came since its CONNECT.
    pub(crate) is_fresh: bool,
    /// The driver is to look at the outbox, though nothing new is in it.
    pub(crate) wants_write: bool,
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// A client that has connected.
    Client,
    /// Somebody who publishes without that, and hears nothing.
    Sender,
}

/// How far a client has come with showing that it hears us, beside answering a REGISTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It has not been asked for it yet.
    ToAsk,
    /// It was, or nobody asks it.
    Asked,
    /// It has used an identifier that was drawn for it. (Not enough to send it more than it sends.)
    UsedId,
}

/// Whether a client listens (section 6.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It does, and says something at least this often.
    Active(Duration),
    /// It does not, and will say something after this time.
    Asleep(Duration),
    /// It does until it has what waits for it, and sleeps as long again.
    Awake(Duration),
}

/// What became of a message for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was sent, or will not be.
    Gone,
    /// It cannot be sent yet.
    Kept,
}

impl SnLink {
    pub(crate) fn new(
        kind: LinkKind,
        presence: Presence,
        predefined: Arc<PredefinedTopics>,
        memory: &Memory,
        (chance, is_proved): (Chance, bool),
        now: Timestamp,
    ) -> Self {
        Self {
            kind,
            presence,
            heard_at: now,
            met_at: now,
            proof: if kind == LinkKind::Client && !is_proved { Proof::ToAsk } else { Proof::Asked },
            is_resumed: false,
            chance,
            predefined,
            topics: TopicTable::new(memory.charge()),
            inbound: Inbound::default(),
            outbound: Outbound::new(memory.charge(), is_proved),
            will: None,
            charge: memory.charge(),
            is_fresh: true,
            wants_write: false,
        }
    }

    pub(crate) fn is_sender(&self) -> bool {
        self.kind == LinkKind::Sender
    }

    /// Remembers another will.
    pub(crate) fn set_will(&mut self, will: Option<Will>) {
        let bytes = |will: Option<&Will>| will.map_or(0, Will::bytes);
        self.charge.change(bytes(will.as_ref()), bytes(self.will.as_deref()));
        self.will = will.map(Box::new);
    }

    /// When its silence has lasted too long.
    fn silent_at(&self) -> Timestamp {
        let most = match (self.kind, self.presence) {
            (LinkKind::Sender, _) => SENDER_IDLE_MAX,
            (_, Presence::Active(Duration::ZERO)) => IDLE_MAX,
            // One and a half times what was agreed on, as in MQTT.
            (_, Presence::Active(time) | Presence::Asleep(time) | Presence::Awake(time)) => time + time / 2,
        };
        let silent_at = self.heard_at + most;
        if self.is_there() { silent_at } else { silent_at.min(self.met_at + UNPROVED_TIME) }
    }

    /// Whether somebody is at its address who hears us; nobody asks that of who hears nothing.
    pub(crate) fn is_there(&self) -> bool {
        self.is_sender() || self.outbound.is_proved() || self.proof == Proof::UsedId
    }

    /// It has used an identifier that was drawn for it: whether it answers what it was asked to answer does not matter any more.
    pub(crate) fn note_used_id(&mut self) {
        let before = core::mem::replace(&mut self.proof, Proof::UsedId);
        if before != Proof::UsedId && !self.outbound.is_proved() {
            self.outbound.stop_registering();
        }
    }

    /// Whoever has just been let in is asked to answer something that only it can have heard: a REGISTER, of which number and
    /// identifier are drawn.
    pub(crate) fn ask_for_proof(&mut self, memory: &Memory, now: Timestamp, send: Send<'_>) {
        if self.proof != Proof::ToAsk {
            return;
        }
        self.proof = Proof::Asked;
        if !self.outbound.is_registering() {
            self.tell_topic(PROOF_TOPIC, memory, now, send);
        }
    }

    /// Whether it is to be forgotten.
    pub(crate) fn is_silent(&self, now: Timestamp) -> bool {
        self.silent_at() <= now
    }

    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.presence, Presence::Asleep(_))
    }

    /// When something is to be done without being told.
    pub(crate) fn deadline(&self) -> Timestamp {
        let silent_at = self.silent_at();
        let due = self.outbound.due().filter(|_| !self.is_asleep());
        due.map_or(silent_at, |due| due.min(silent_at))
    }

    /// Whether nothing more of the outbox can be taken.
    pub(crate) fn is_full(&self) -> bool {
        self.outbound.held.len() >= crate::limits::HELD_MAX
    }

    /// Sends what waits, as far as the client may have it now.
    pub(crate) fn send_held(&mut self, memory: &Memory, now: Timestamp, send: Send<'_>) {
        if self.is_asleep() {
            return;
        }
        self.outbound.release_next(now, send);
        while let Some(frame) = self.outbound.held.pop_front() {
            let fate = match frame::split(&frame) {
                Some((frame::Frame::Publication(outgoing), _)) => self.send(&outgoing, memory, now, send),
                _ => Fate::Gone,
            };
            self.outbound.held.push_front(frame);
            if fate == Fate::Kept {
                return;
            }
            self.outbound.pop_held();
        }
    }

    /// A message out of the outbox: it is sent, or kept until it can be. False if there is no room to keep it.
    pub(crate) fn take(
        &mut self,
        (frame, outgoing): (&[u8], &Outgoing<'_>),
        memory: &Memory,
        now: Timestamp,
        send: Send<'_>,
    ) -> bool {
        let is_next = self.outbound.held.is_empty() && !self.is_asleep();
        (is_next && self.send(outgoing, memory, now, send) == Fate::Gone) || self.outbound.hold(frame)
    }

    fn send(&mut self, outgoing: &Outgoing<'_>, memory: &Memory, now: Timestamp, send: Send<'_>) -> Fate {
        let number = NonZeroU16::new(outgoing.message).filter(|_| outgoing.qos != QoS::AtMostOnce);
        if self.outbound.is_registering() || (number.is_some() && !self.outbound.has_window()) {
            return Fate::Kept;
        }
        let topic = match self.topic_of(outgoing.topic, memory, now) {
            Standing::Told(_) if !self.outbound.is_proved() => None,
            Standing::Told(id) => Some(TopicRef::Id(id)),
            Standing::Untold(_) => None,
            // Not the client's fault: the core is not told that it has the message.
            Standing::Full => return Fate::Kept,
            Standing::Refused => {
                self.outbound.dropped += 1;
                if let Some(number) = number {
                    let is_exact = outgoing.qos == QoS::ExactlyOnce;
                    let how = if is_exact { Confirmation::Declined } else { Confirmation::Received };
                    self.outbound.declined.push((number, how));
                }
                return Fate::Gone;
            }
        };
        let known = self.known_form(outgoing.topic).filter(|_| self.outbound.is_proved());
        let Some(topic) = known.or(topic) else {
            self.tell_topic(outgoing.topic, memory, now, send);
            return Fate::Kept;
        };
        let Outgoing { qos, dup, retain, message, payload, .. } = *outgoing;
        let packet =
            Packet::Publish(Publish { dup, quality: Quality::Connected(qos), retain, topic, message, payload });
        let awaited = number.map(|message| PublishNumber { qos, message, topic });
        if self.outbound.publish(packet.bytes(), awaited, now, send) { Fate::Gone } else { Fate::Kept }
    }

    /// The client is told of a topic before it gets a message of it.
    fn tell_topic(&mut self, name: &str, memory: &Memory, now: Timestamp, send: Send<'_>) {
        if let Standing::Told(id) | Standing::Untold(id) = self.topics.lend(name, &mut self.chance, memory, now) {
            let message = (self.chance.draw() as u16).max(1);
            self.outbound.register((id, name), message, now, send);
        }
    }

    /// Tells it again of a topic that it does not know any more.
    pub(crate) fn tell_again(&mut self, id: u16, now: Timestamp, send: Send<'_>) {
        self.topics.doubt(id);
        if !self.outbound.is_registering()
            && let Some(name) = self.topics.name(id).cloned()
        {
            let message = (self.chance.draw() as u16).max(1);
            self.outbound.register((id, &name), message, now, send);
        }
    }

    /// What the client can read without being told.
    fn known_form(&self, name: &str) -> Option<TopicRef> {
        let predefined = self.predefined.id(name).filter(|id| self.topics.knows_predefined(*id));
        predefined.map(TopicRef::Predefined).or_else(|| as_short(name).map(TopicRef::Short))
    }

    fn topic_of(&mut self, name: &str, memory: &Memory, now: Timestamp) -> Standing {
        if self.outbound.is_proved() && self.known_form(name).is_some() {
            // It needs no identifier of its own.
            return Standing::Told(0);
        }
        self.topics.lend(name, &mut self.chance, memory, now)
    }
}

/// Why something is not done, as a code.
pub(crate) fn code_of(reason: ReasonCode) -> ReturnCode {
    match reason {
        ReasonCode::QuotaExceeded | ReasonCode::ServerBusy | ReasonCode::ServerUnavailable => ReturnCode::Congestion,
        _ => ReturnCode::NotSupported,
    }
}

impl SnLink {
    /// What is said about a message that was sent to us.
    fn put_verdict(&mut self, delivery: Delivery, code: ReturnCode, out: &mut Vec<u8>) {
        match delivery.packet_id() {
            Some(number) => frame::put_answer(number.get(), delivery.qos(), code, out),
            None => {
                if let Some(topic) = self.inbound.current.take() {
                    frame::put_datagram(&Packet::PubAck { topic, message: 0, code }.bytes(), out);
                }
            }
        }
    }
}

impl Face for SnLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        if self.is_sender() {
            return;
        }
        let mut say = |packet: Packet<'_>| frame::put_datagram(&packet.bytes(), out);
        match *answer {
            ClientAnswer::Welcome { is_resumed } => {
                self.is_resumed = is_resumed;
                say(Packet::ConnAck(ReturnCode::Accepted));
            }
            ClientAnswer::Unwelcome { reason, later } => {
                let code = if later.is_some() { ReturnCode::Congestion } else { code_of(reason) };
                say(Packet::ConnAck(code));
            }
            ClientAnswer::Taken { delivery, .. } => self.put_verdict(delivery, ReturnCode::Accepted, out),
            ClientAnswer::Refused { delivery, .. } => self.put_verdict(delivery, ReturnCode::Congestion, out),
            ClientAnswer::Rejected { delivery, reason } => self.put_verdict(delivery, code_of(reason), out),
            ClientAnswer::Release { number, is_known } => frame::put_release(number, is_known, out),
            ClientAnswer::Complete { number, .. } => say(Packet::PubComp(number)),
            ClientAnswer::Subscribed { number, grants } => {
                let topic_id = self.inbound.end_subscription(number);
                let message = number.get();
                say(match grants.first() {
                    Some(Ok(qos)) => Packet::SubAck { qos: *qos, topic_id, message, code: ReturnCode::Accepted },
                    Some(Err(reason)) => {
                        Packet::SubAck { qos: QoS::AtMostOnce, topic_id, message, code: code_of(*reason) }
                    }
                    None => return,
                });
            }
            ClientAnswer::Unsubscribed { number, .. } => say(Packet::UnsubAck(number.get())),
            ClientAnswer::Goodbye(_) => say(Packet::Disconnect { seconds: None }),
            ClientAnswer::Due => {
                if core::mem::take(&mut self.wants_write) {
                    frame::put_datagram(&[], out);
                }
            }
            ClientAnswer::Alive => {}
        }
    }

    fn publication(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        _: &mut Frames,
        _: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let (topic, payload) = (outgoing.topic(), outgoing.payload());
        // A message is one datagram, and so is the word that names its topic.
        let longest = payload.len().max(topic.len()) + HEAD_BYTES;
        if longest > PACKET_BYTES_MAX || topic.len() + payload.len() > usize::from(u16::MAX) / 2 {
            return None;
        }
        let before = out.len();
        frame::put_publication(outgoing.delivery(), outgoing.retain(), topic, payload, out);
        Some(out.len() - before)
    }

    fn hears_refusals(&self) -> bool {
        true
    }

    fn hears_every_refusal(&self) -> bool {
        true
    }

    fn given_ids(&self) -> Option<&'static str> {
        self.is_sender().then_some(SN_IDS)
    }

    fn holds_outbox(&self) -> bool {
        !matches!(self.presence, Presence::Active(_)) || !self.outbound.held.is_empty()
    }

    fn protocol(&self) -> &'static str {
        "MQTT-SN 1.2"
    }

    fn packet_length(&self) -> PacketLength {
        frame::length
    }
}

/// The header of a PUBLISH of more than 255 bytes; that of a REGISTER is shorter.
const HEAD_BYTES: usize = 9;
