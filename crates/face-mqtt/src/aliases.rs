//! Topic aliases of one connection, in both directions, and the memory that their topics are charged with.
//!
//! A topic may have 64 KiB, so the aliases of one connection may be megabytes. They are charged as long as the connection
//! has them, and given back with it, however it ends. Who decides what happens without room: for the client's own
//! `read`, here for ours, which are only a convenience.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_core::{Charge, Kind, Memory};
use tidegate_wire_mqtt::OutgoingAlias;

/// Topics that the client gave numbers to.
#[derive(Debug)]
pub(crate) struct AliasesIn {
    /// By alias − 1; empty where it gave none.
    topics: Vec<Box<str>>,
    charge: Charge,
}

/// Topics that we gave numbers to.
#[derive(Debug)]
pub(crate) struct AliasesOut {
    max: u16,
    by_topic: HashMap<Box<str>, NonZeroU16, FixedState>,
    charge: Charge,
}

/// There is no memory for another alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Topics of people who use aliases to save bytes are shorter than this; 64 of them are 16 KiB.
const ALIAS_SHORT_BYTES: usize = 256;

impl AliasesIn {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self { topics: Vec::new(), charge: memory.charge() }
    }

    /// The topic that an alias stands for.
    pub(crate) fn topic_of(&self, alias: NonZeroU16) -> Option<&str> {
        self.topics.get(usize::from(alias.get()) - 1).map(|topic| &**topic).filter(|topic| !topic.is_empty())
    }

    /// From now on it stands for this.
    pub(crate) fn set(&mut self, alias: NonZeroU16, topic: &str, memory: &Memory) -> Result<(), NoRoom> {
        let position = usize::from(alias.get()) - 1;
        let before = self.topics.get(position).map_or("", |topic| &**topic);
        if before == topic {
            return Ok(());
        }
        let places = (position + 1).saturating_sub(self.topics.len()) * size_of::<Box<str>>();
        let (more, less) = (topic.len() + places, before.len());
        // An alias that cannot be kept ends its connection, so an ordinary one has as much room as what is acknowledged.
        let kind = if topic.len() <= ALIAS_SHORT_BYTES { Kind::Queued } else { Kind::Session };
        if more > less && !memory.has_room(kind, more - less) {
            return Err(NoRoom);
        }
        if self.topics.len() <= position {
            self.topics.reserve_exact(position + 1 - self.topics.len());
            self.topics.resize(position + 1, Box::default());
        }
        self.topics[position] = topic.into();
        self.charge.change(more, less);
        Ok(())
    }
}

impl AliasesOut {
    pub(crate) fn new(max: u16, hasher: FixedState, memory: &Memory) -> Self {
        Self { max, by_topic: HashMap::with_hasher(hasher), charge: memory.charge() }
    }

    /// First come, first served: topics that come when all numbers are taken, or when there is no memory for them, are sent
    /// as they are.
    pub(crate) fn alias(&mut self, topic: &str, memory: &Memory) -> OutgoingAlias {
        if let Some(alias) = self.by_topic.get(topic) {
            return OutgoingAlias::Use(*alias);
        }
        let is_worth_it = topic.len() > ALIAS_WORTH_BYTES && self.by_topic.len() < usize::from(self.max);
        if !is_worth_it || !memory.has_room(Kind::Session, topic.len() + ALIAS_COST) {
            return OutgoingAlias::None;
        }
        let Some(alias) = NonZeroU16::new(self.by_topic.len() as u16 + 1) else { return OutgoingAlias::None };
        self.by_topic.insert(topic.into(), alias);
        self.charge.change(topic.len() + ALIAS_COST, 0);
        OutgoingAlias::Define(alias)
    }

    /// The packet that would have defined an alias was not sent.
    pub(crate) fn forget(&mut self, topic: &str) {
        if self.by_topic.remove(topic).is_some() {
            self.charge.change(0, topic.len() + ALIAS_COST);
        }
    }
}

/// An alias costs three bytes of properties; shorter topics are not worth it.
const ALIAS_WORTH_BYTES: usize = 4;
/// Its place in the table, which is never full.
const ALIAS_COST: usize = 2 * size_of::<(Box<str>, NonZeroU16)>();

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn what_aliases_are_charged_with_is_given_back() {
        let memory = Memory::new(usize::MAX);
        let number = |alias: usize| NonZeroU16::new(alias as u16).unwrap();
        let (mut incoming, mut outgoing) =
            (AliasesIn::new(&memory), AliasesOut::new(3, FixedState::with_seed(7), &memory));
        for (alias, bytes) in [(3, 1000), (1, 10), (3, 10), (3, 500), (3, 500)] {
            assert_eq!(incoming.set(number(alias), &"x".repeat(bytes), &memory), Ok(()));
        }
        assert_eq!(memory.charged(), 500 + 10 + 3 * size_of::<Box<str>>());
        let before = memory.charged();
        for topic in 0..5 {
            outgoing.alias(&format!("topic/{topic}"), &memory);
        }
        assert_eq!(memory.charged() - before, 3 * (7 + ALIAS_COST));
        outgoing.forget("topic/2");
        outgoing.forget("topic/4");
        assert_eq!(memory.charged() - before, 2 * (7 + ALIAS_COST));
        drop((incoming, outgoing));
        assert_eq!(memory.charged(), 0);
    }
}
