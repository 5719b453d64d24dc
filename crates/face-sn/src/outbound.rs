//! What is on its way to one client: messages whose topic it has to be told first, and one message with a number, which is
//! sent again until it is answered (section 6.13).
//!
//! An address proves that it hears by answering a REGISTER: its number and its identifier are drawn, so nobody can guess both.
//! Until then no more goes there than three times what came from there.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use tidegate_control::Timestamp;
use tidegate_core::{Charge, Confirmation};
use tidegate_wire_mqtt::QoS;

use crate::frame::{self, Frame};
use crate::limits::{
    AMPLIFICATION_MAX, HEADER_BYTES, HELD_MAX, LAST_WORD_BYTES, RELEASES_MAX, RETRIES_MAX, RETRY_AFTER,
    WAIT_AFTER_CONGESTION,
};
use crate::packet::{Packet, ReturnCode, TopicRef};
use crate::write::mark_repeated;

/// Where datagrams to the client go.
pub(crate) type Send<'a> = &'a mut dyn FnMut(&[u8]);

#[derive(Debug)]
pub(crate) struct Outbound {
    /// Messages that were taken out of the outbox and cannot be sent yet, as frames, in order.
    pub(crate) held: VecDeque<Box<[u8]>>,
    charge: Charge,
    register: Option<Awaited>,
    message: Option<Awaited>,
    /// Numbers that wait for their turn to be released.
    releases: VecDeque<NonZeroU16>,
    /// Messages that the client will not have, for the core to know.
    pub(crate) declined: Vec<(NonZeroU16, Confirmation)>,
    is_proved: bool,
    received_bytes: usize,
    sent_bytes: usize,
    /// What was sent again, given up, and dropped because the client refused its topic or did not wake up for it.
    pub(crate) retransmitted: u64,
    pub(crate) given_up: u64,
    pub(crate) dropped: u64,
}

/// Something that the client has to answer.
#[derive(Debug)]
struct Awaited {
    what: Awaiting,
    bytes: Box<[u8]>,
    due: Timestamp,
    repetitions: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    Register { topic_id: u16, message: u16 },
    Publish { qos: QoS, message: NonZeroU16, topic: TopicRef },
    Release { message: NonZeroU16 },
}

/// What the client's answer to a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Nothing that was waited for.
    Stray,
    /// The core is to know of it.
    Confirmed(Confirmation),
    /// The client does not know this topic identifier.
    UnknownTopic(u16),
    /// It is not the end of it.
    Later,
}

impl Outbound {
    pub(crate) fn new(charge: Charge, is_proved: bool) -> Self {
        Self {
            held: VecDeque::new(),
            charge,
            register: None,
            message: None,
            releases: VecDeque::new(),
            declined: Vec::new(),
            is_proved,
            received_bytes: 0,
            sent_bytes: 0,
            retransmitted: 0,
            given_up: 0,
            dropped: 0,
        }
    }

    /// So many bytes came from the client.
    pub(crate) fn note_received(&mut self, bytes: usize) {
        self.received_bytes = self.received_bytes.saturating_add(bytes + HEADER_BYTES);
    }

    /// So many went there.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes + HEADER_BYTES);
    }

    pub(crate) fn is_proved(&self) -> bool {
        self.is_proved
    }

    /// Whether so many bytes may go there, and a last word behind them.
    pub(crate) fn may_send(&self, bytes: usize) -> bool {
        let most = self.received_bytes.saturating_mul(AMPLIFICATION_MAX);
        self.is_proved || self.sent_bytes.saturating_add(bytes + HEADER_BYTES + LAST_WORD_BYTES) <= most
    }

    /// What it was told of is not waited for any more.
    pub(crate) fn stop_registering(&mut self) {
        self.register = None;
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.register.is_none() && self.message.is_none() && self.releases.is_empty()
    }

    /// Whether something waits that could be sent when something else has changed.
    pub(crate) fn has_more(&self) -> bool {
        !self.held.is_empty() || (self.message.is_none() && !self.releases.is_empty())
    }

    /// Whether the client is being told of a topic: messages wait for that.
    pub(crate) fn is_registering(&self) -> bool {
        self.register.is_some()
    }

    /// Whether a message with a number may be sent: one at a time (section 6.6).
    pub(crate) fn has_window(&self) -> bool {
        self.message.is_none() && self.releases.is_empty()
    }

    /// Keeps a message that cannot be sent yet; false if there is no room.
    pub(crate) fn hold(&mut self, frame: &[u8]) -> bool {
        let has_room = self.held.len() < HELD_MAX;
        if has_room {
            self.charge.change(frame.len(), 0);
            self.held.push_back(frame.into());
        }
        has_room
    }

    /// The first message that waits is gone.
    pub(crate) fn pop_held(&mut self) {
        if let Some(frame) = self.held.pop_front() {
            self.charge.change(0, frame.len());
        }
    }

    /// The client is gone. Messages that wait here without a number have left the core already, so they are counted here; those
    /// with a number are the core's until the client has them.
    pub(crate) fn drop_held(&mut self) {
        while let Some(held) = self.held.front() {
            let is_lost = match frame::split(held) {
                Some((Frame::Publication(outgoing), _)) => outgoing.qos == QoS::AtMostOnce,
                _ => false,
            };
            self.dropped += u64::from(is_lost);
            self.pop_held();
        }
    }

    /// Tells the client of a topic, if so many bytes may go there.
    pub(crate) fn register(&mut self, (topic_id, name): (u16, &str), message: u16, now: Timestamp, send: Send<'_>) {
        let bytes = Packet::Register { topic_id, message, name }.bytes();
        if !self.may_send(bytes.len()) {
            return;
        }
        self.say(&bytes, send);
        self.register = Some(Awaited::new(Awaiting::Register { topic_id, message }, bytes, now));
    }

    /// Sends a message; false if it may not go there yet.
    pub(crate) fn publish(
        &mut self,
        bytes: Vec<u8>,
        await_: Option<PublishNumber>,
        now: Timestamp,
        send: Send<'_>,
    ) -> bool {
        if !self.may_send(bytes.len()) {
            return false;
        }
        self.say(&bytes, send);
        if let Some(PublishNumber { qos, message, topic }) = await_ {
            self.message = Some(Awaited::new(Awaiting::Publish { qos, message, topic }, bytes, now));
        }
        true
    }

    /// The client may forget a number, and has to say so if it is one that the core knows.
    pub(crate) fn release(&mut self, message: NonZeroU16, is_known: bool, now: Timestamp, send: Send<'_>) {
        if !is_known {
            return self.say(&Packet::PubRel(message).bytes(), send);
        }
        if self.message.is_some() {
            if self.releases.len() < RELEASES_MAX && !self.releases.contains(&message) {
                self.releases.push_back(message);
            }
            return;
        }
        let bytes = Packet::PubRel(message).bytes();
        self.say(&bytes, send);
        self.message = Some(Awaited::new(Awaiting::Release { message }, bytes, now));
    }

    /// The next number is released, if one waits for it.
    pub(crate) fn release_next(&mut self, now: Timestamp, send: Send<'_>) {
        if self.message.is_none()
            && let Some(message) = self.releases.pop_front()
        {
            self.release(message, true, now, send);
        }
    }

    /// The client has heard of a topic. Which one, if it is that which it was told of.
    pub(crate) fn on_regack(&mut self, topic_id: u16, message: u16, now: Timestamp) -> Option<u16> {
        self.register.take_if(|known| known.what == Awaiting::Register { topic_id, message })?;
        self.is_proved = true;
        // It may have been said before its topic was known.
        if let Some(Awaited { due, what: Awaiting::Publish { topic, .. }, .. }) = &mut self.message
            && *topic == TopicRef::Id(topic_id)
        {
            *due = now;
        }
        Some(topic_id)
    }

    pub(crate) fn on_puback(&mut self, number: u16, code: ReturnCode, now: Timestamp) -> Answered {
        let Some(known) = &mut self.message else { return Answered::Stray };
        let Awaiting::Publish { qos, message, topic } = known.what else { return Answered::Stray };
        if message.get() != number {
            return Answered::Stray;
        }
        match (code, topic, qos) {
            (ReturnCode::Congestion, ..) => {
                (known.due, known.repetitions) = (now + WAIT_AFTER_CONGESTION, 0);
                Answered::Later
            }
            (ReturnCode::InvalidTopicId, TopicRef::Id(id), _) => {
                known.due = now + RETRY_AFTER;
                Answered::UnknownTopic(id)
            }
            (ReturnCode::Accepted, _, QoS::ExactlyOnce) => Answered::Stray,
            (ReturnCode::Accepted, ..) => self.end(Confirmation::Received),
            (.., QoS::ExactlyOnce) => self.end(Confirmation::Declined),
            _ => self.end(Confirmation::Received),
        }
    }

    pub(crate) fn on_pubrec(&mut self, number: NonZeroU16, now: Timestamp) -> Answered {
        match &mut self.message {
            Some(Awaited { what: Awaiting::Publish { qos: QoS::ExactlyOnce, message, .. }, .. })
                if *message == number =>
            {
                self.end(Confirmation::Stored)
            }
            // Our answer was lost.
            Some(Awaited { what: Awaiting::Release { message }, due, .. }) if *message == number => {
                *due = now;
                Answered::Later
            }
            _ => Answered::Stray,
        }
    }

    pub(crate) fn on_pubcomp(&mut self, number: NonZeroU16) -> Answered {
        match &self.message {
            Some(Awaited { what: Awaiting::Release { message }, .. }) if *message == number => {
                self.end(Confirmation::Completed)
            }
            _ => Answered::Stray,
        }
    }

    fn end(&mut self, confirmation: Confirmation) -> Answered {
        self.message = None;
        Answered::Confirmed(confirmation)
    }

    /// When something is to be sent again.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.register.iter().chain(&self.message).map(|awaited| awaited.due).min()
    }

    /// The client has woken up: what it has not answered is sent now.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        for awaited in self.register.iter_mut().chain(&mut self.message) {
            (awaited.due, awaited.repetitions) = (now, 0);
        }
    }

    /// Sends again what is due. False if the client does not answer any more.
    pub(crate) fn repeat(&mut self, now: Timestamp, send: Send<'_>) -> bool {
        for slot in [&mut self.register, &mut self.message] {
            let Some(awaited) = slot.as_mut().filter(|awaited| awaited.due <= now) else { continue };
            if awaited.repetitions >= RETRIES_MAX {
                self.given_up += 1;
                return false;
            }
            awaited.repetitions += 1;
            awaited.due = now + RETRY_AFTER;
            mark_repeated(&mut awaited.bytes);
            let most = self.received_bytes.saturating_mul(AMPLIFICATION_MAX);
            let after = self.sent_bytes.saturating_add(awaited.bytes.len() + HEADER_BYTES);
            if self.is_proved || after + LAST_WORD_BYTES <= most {
                self.sent_bytes = after;
                self.retransmitted += 1;
                send(&awaited.bytes);
            }
        }
        true
    }

    pub(crate) fn say(&mut self, bytes: &[u8], send: Send<'_>) {
        self.note_sent(bytes.len());
        send(bytes);
    }
}

/// A message that the client has to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishNumber {
    pub(crate) qos: QoS,
    pub(crate) message: NonZeroU16,
    pub(crate) topic: TopicRef,
}

impl Awaited {
    fn new(what: Awaiting, bytes: Vec<u8>, now: Timestamp) -> Self {
        Self { what, bytes: bytes.into(), due: now + RETRY_AFTER, repetitions: 0 }
    }
}
