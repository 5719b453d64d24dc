//! Messages of one client that wait for the core, and those that are recognised when they come again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::num::NonZeroU16;

use foldhash::quality::FixedState;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;

use crate::limits::{REMEMBERED_FOR, REMEMBERED_MAX, WAITING_MAX};
use crate::packet::{Packet, Publish, ReturnCode, TopicRef};

#[derive(Debug, Default)]
pub(crate) struct Inbound {
    messages: VecDeque<InboundMessage>,
    /// The topic of the message that is being published without a number.
    pub(crate) current: Option<u16>,
    /// Subscriptions that wait for the core: number, and the identifier that goes with the answer.
    subscribing: Vec<(u16, u16)>,
    /// Messages that were recognised as sent before.
    pub(crate) repeated: u64,
}

#[derive(Debug)]
struct InboundMessage {
    message: u16,
    topic: TopicRef,
    digest: u64,
    /// It was taken, and its sender was told so.
    is_done: bool,
    at: Timestamp,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Another one.
    New,
    /// It came before, and waits for the core.
    Waiting,
    /// It came before, and was taken.
    Done,
    /// There is no room for another one.
    Full,
}

impl Inbound {
    /// Whether a message with a number came before; if not, it waits for the core from now on.
    pub(crate) fn recall(&mut self, publish: &Publish<'_>, qos: QoS, now: Timestamp) -> Sight {
        self.messages.retain(|known| !known.is_done || now.since(known.at) < REMEMBERED_FOR);
        let digest = FixedState::with_seed(1).hash_one(publish.payload);
        let place = self.messages.iter().position(|known| known.message == publish.message);
        if let Some(known) = place.and_then(|place| self.messages.get(place)) {
            let is_same = known.topic == publish.topic && known.digest == digest;
            // What is to come exactly once, the core recognises by its number.
            if publish.dup && is_same && qos == QoS::AtLeastOnce {
                self.repeated += 1;
                return if known.is_done { Sight::Done } else { Sight::Waiting };
            }
        }
        if let Some(place) = place {
            self.messages.remove(place);
        }
        let waiting = self.messages.iter().filter(|known| !known.is_done).count();
        if waiting >= WAITING_MAX {
            return Sight::Full;
        }
        if self.messages.len() - waiting >= REMEMBERED_MAX
            && let Some(oldest) = self.messages.iter().position(|known| known.is_done)
        {
            self.messages.remove(oldest);
        }
        let (message, topic) = (publish.message, publish.topic);
        self.messages.push_back(InboundMessage { message, topic, digest, is_done: false, at: now });
        Sight::New
    }

    /// The core's answer to a message is on its way out.
    pub(crate) fn finish(&mut self, message: u16, qos: QoS, code: ReturnCode) -> Option<Vec<u8>> {
        let place = self.messages.iter().position(|known| known.message == message);
        let topic = place.and_then(|place| self.messages.get(place)).map_or(0, |known| known.topic.word());
        match (qos, code, place) {
            // Sent once more after a refusal, it is a new message.
            (QoS::AtLeastOnce, ReturnCode::Accepted, Some(place)) => self.messages.get_mut(place)?.is_done = true,
            (_, _, Some(place)) => drop(self.messages.remove(place)),
            (_, _, None) => {}
        }
        let packet = match (qos, code) {
            (QoS::ExactlyOnce, ReturnCode::Accepted) => Packet::PubRec(NonZeroU16::new(message)?),
            _ => Packet::PubAck { topic, message, code },
        };
        Some(packet.bytes())
    }

    /// A request for a subscription goes to the core; false if too many do already.
    pub(crate) fn begin_subscription(&mut self, message: NonZeroU16, topic_id: u16) -> bool {
        self.subscribing.retain(|(known, _)| *known != message.get());
        let has_room = self.subscribing.len() < WAITING_MAX;
        if has_room {
            self.subscribing.push((message.get(), topic_id));
        }
        has_room
    }

    /// The identifier that goes with the core's answer to it.
    pub(crate) fn end_subscription(&mut self, message: NonZeroU16) -> u16 {
        let place = self.subscribing.iter().position(|(known, _)| *known == message.get());
        place.map_or(0, |place| self.subscribing.swap_remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Quality;

    fn publish(message: u16, dup: bool, payload: &[u8]) -> Publish<'_> {
        let (quality, topic) = (Quality::Connected(QoS::AtLeastOnce), TopicRef::Id(7));
        Publish { dup, quality, retain: false, topic, message, payload }
    }

    #[test]
    fn what_comes_again_is_recognised_for_a_while() {
        let (mut inbound, now) = (Inbound::default(), Timestamp::from_secs_f64(1.0));
        let qos = QoS::AtLeastOnce;
        assert_eq!(inbound.recall(&publish(1, false, b"a"), qos, now), Sight::New);
        assert_eq!(inbound.recall(&publish(1, true, b"a"), qos, now), Sight::Waiting);
        let said = inbound.finish(1, qos, ReturnCode::Accepted).unwrap();
        assert_eq!(said, Packet::PubAck { topic: 7, message: 1, code: ReturnCode::Accepted }.bytes());
        assert_eq!(inbound.recall(&publish(1, true, b"a"), qos, now), Sight::Done);
        assert_eq!(inbound.recall(&publish(1, true, b"b"), qos, now), Sight::New, "another message of the same number");
        inbound.finish(1, qos, ReturnCode::Congestion);
        assert_eq!(inbound.recall(&publish(1, true, b"b"), qos, now), Sight::New, "it was refused");
        inbound.finish(1, qos, ReturnCode::Accepted);
        assert_eq!(inbound.recall(&publish(1, true, b"b"), qos, now + REMEMBERED_FOR), Sight::New);
    }

    #[test]
    fn what_is_remembered_and_what_waits_has_an_end() {
        let (mut inbound, now) = (Inbound::default(), Timestamp::from_secs_f64(1.0));
        let qos = QoS::AtLeastOnce;
        for message in 1..=100 {
            assert_eq!(inbound.recall(&publish(message, false, b"a"), qos, now), Sight::New);
            inbound.finish(message, qos, ReturnCode::Accepted);
        }
        assert_eq!(inbound.messages.len(), REMEMBERED_MAX);
        for message in 101..=200 {
            let expected = if message <= 100 + WAITING_MAX as u16 { Sight::New } else { Sight::Full };
            assert_eq!(inbound.recall(&publish(message, false, b"a"), qos, now), expected);
        }
        assert!((1..=100).all(|message| {
            let expected = message <= WAITING_MAX as u16;
            inbound.begin_subscription(NonZeroU16::new(message).unwrap(), 1) == expected
        }));
    }
}
