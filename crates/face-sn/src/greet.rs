//! Clients on their way in: a CONNECT that promises a will is answered by two questions, and what was answered so far is
//! kept for a while (section 6.3). Bounded: whoever comes when there are too many takes the place of the one that has been
//! asked for longest.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::ClientWill;
use tidegate_wire_mqtt::{Properties, QoS};

use crate::limits::{GREETINGS_MAX, QUESTIONS_MAX, RETRY_AFTER};
use crate::packet::{Packet, WillTopic};

/// A CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) client_id: String,
    pub(crate) is_clean: bool,
    pub(crate) keep_alive: Duration,
    /// What it wants to be published when it is lost.
    pub(crate) will: Option<Will>,
}

/// What is to be published when a client is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Will {
    topic: String,
    qos: QoS,
    retain: bool,
    message: Vec<u8>,
}

impl Will {
    /// To this topic, and without a message yet.
    pub(crate) fn to(topic: WillTopic<'_>) -> Self {
        Self { topic: topic.name.into(), qos: topic.qos, retain: topic.retain, message: Vec::new() }
    }

    pub(crate) fn with_topic(&self, topic: WillTopic<'_>) -> Self {
        Self { message: self.message.clone(), ..Self::to(topic) }
    }

    pub(crate) fn with_message(&self, message: &[u8]) -> Self {
        Self { message: message.into(), ..self.clone() }
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) fn bytes(&self) -> usize {
        self.topic.len() + self.message.len()
    }

    /// As the core has it.
    pub(crate) fn as_core(&self) -> ClientWill<'_> {
        let (topic, payload, properties) = (self.topic.as_str(), self.message.as_slice(), Properties::EMPTY);
        ClientWill { topic, payload, properties, qos: self.qos, retain: self.retain, delay: Duration::ZERO }
    }
}

/// All clients on their way in.
#[derive(Debug, Default)]
pub(crate) struct Greetings {
    asked: BTreeMap<SocketAddr, Asked>,
}

#[derive(Debug)]
struct Asked {
    greeting: Greeting,
    since: Timestamp,
    due: Timestamp,
    repetitions: u8,
}

impl Asked {
    /// What it is asked for now.
    fn question(&self) -> Packet<'static> {
        if self.greeting.will.is_none() { Packet::WillTopicReq } else { Packet::WillMsgReq }
    }
}

/// What an answer of somebody on its way in leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It was not asked.
    Stray,
    /// It is asked for more.
    Ask(Packet<'static>),
    /// All is known.
    Come(Greeting),
}

impl Greetings {
    pub(crate) fn knows(&self, address: SocketAddr) -> bool {
        self.asked.contains_key(&address)
    }

    /// Asks for a will. Who has to go for that, if anybody.
    pub(crate) fn ask(&mut self, from: SocketAddr, greeting: Greeting, now: Timestamp) -> Option<SocketAddr> {
        let mut gone = None;
        if !self.knows(from) && self.asked.len() >= GREETINGS_MAX {
            gone = self.asked.iter().min_by_key(|(_, asked)| asked.since).map(|(address, _)| *address);
            gone.and_then(|address| self.asked.remove(&address));
        }
        self.asked.insert(from, Asked { greeting, since: now, due: now + RETRY_AFTER, repetitions: 0 });
        gone
    }

    pub(crate) fn forget(&mut self, address: SocketAddr) -> bool {
        self.asked.remove(&address).is_some()
    }

    /// The topic of a will; none: there is to be none.
    pub(crate) fn on_topic(&mut self, from: SocketAddr, topic: Option<WillTopic<'_>>, now: Timestamp) -> Next {
        let Some(asked) = self.asked.get_mut(&from) else { return Next::Stray };
        let Some(topic) = topic else { return self.come(from) };
        asked.greeting.will = Some(Will::to(topic));
        (asked.due, asked.repetitions) = (now + RETRY_AFTER, 0);
        Next::Ask(Packet::WillMsgReq)
    }

    /// What the will says.
    pub(crate) fn on_message(&mut self, from: SocketAddr, message: &[u8]) -> Next {
        let Some(asked) = self.asked.get_mut(&from) else { return Next::Stray };
        let Some(will) = &asked.greeting.will else { return Next::Ask(Packet::WillTopicReq) };
        asked.greeting.will = Some(will.with_message(message));
        self.come(from)
    }

    fn come(&mut self, from: SocketAddr) -> Next {
        self.asked.remove(&from).map_or(Next::Stray, |asked| Next::Come(asked.greeting))
    }

    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.asked.values().map(|asked| asked.due).min()
    }

    /// Asks again, and forgets who does not answer.
    pub(crate) fn turn(&mut self, now: Timestamp, mut say: impl FnMut(SocketAddr, Option<Packet<'static>>)) {
        self.asked.retain(|address, asked| {
            if asked.due > now {
                return true;
            }
            (asked.due, asked.repetitions) = (now + RETRY_AFTER, asked.repetitions + 1);
            let stays = asked.repetitions <= QUESTIONS_MAX;
            say(*address, stays.then(|| asked.question()));
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_on_their_way_in_are_bounded_and_the_oldest_goes() {
        let mut greetings = Greetings::default();
        let greeting = Greeting { client_id: "a".into(), is_clean: true, keep_alive: Duration::ZERO, will: None };
        let at = |number: u16| SocketAddr::from(([192, 0, 2, 1], number));
        for number in 0..GREETINGS_MAX as u16 + 9 {
            let now = Timestamp::from_secs_f64(f64::from(number));
            let gone = greetings.ask(at(number), greeting.clone(), now);
            assert_eq!(gone, number.checked_sub(GREETINGS_MAX as u16).map(at));
        }
        assert_eq!(greetings.asked.len(), GREETINGS_MAX);
        let (mut asked, mut gone) = (0, 0);
        for seconds in (1000..2000).step_by(10) {
            greetings.turn(Timestamp::from_secs_f64(f64::from(seconds)), |_, question| match question {
                Some(_) => asked += 1,
                None => gone += 1,
            });
        }
        assert_eq!((asked, gone), (GREETINGS_MAX * usize::from(QUESTIONS_MAX), GREETINGS_MAX));
    }
}
