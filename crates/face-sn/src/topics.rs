//! Topics by two bytes: those that the operator has given to everybody, and those of one client, which hold as long as its
//! connection.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::datagrams::Chance;
use tidegate_core::{Charge, Kind, Memory};
use tidegate_wire_mqtt::Limits;
use tidegate_wire_mqtt::topic::check_name;

use crate::limits::{LENT_MAX, NAMED_BYTES_MAX, NAMED_MAX, NAMES_BYTES_MAX, WAIT_AFTER_CONGESTION};

/// Topics whose identifiers both sides know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PredefinedTopics {
    names: BTreeMap<u16, Arc<str>>,
    ids: BTreeMap<Arc<str>, u16>,
}

impl PredefinedTopics {
    /// Of texts such as `1=room/t`. Or what is wrong with them.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut topics = Self::default();
        for text in texts {
            let (id, name) = text.split_once('=').ok_or_else(|| format!("\"{text}\" is not ID=TOPIC"))?;
            let id = id.trim().parse().ok().filter(|id| is_usable(*id));
            let id = id.ok_or_else(|| format!("\"{text}\": the identifier is to be from 1 to 65534"))?;
            check_name(name, &Limits::default()).map_err(|problem| format!("\"{text}\": {}", problem.detail))?;
            let name: Arc<str> = name.into();
            if topics.names.insert(id, Arc::clone(&name)).is_some() {
                return Err(format!("{id} has two topics"));
            }
            if topics.ids.insert(name, id).is_some() {
                return Err(format!("\"{text}\": its topic has two identifiers"));
            }
        }
        Ok(topics)
    }

    /// The topic of an identifier.
    pub fn name(&self, id: u16) -> Option<&Arc<str>> {
        self.names.get(&id)
    }

    /// The identifier of a topic.
    pub fn id(&self, name: &str) -> Option<u16> {
        self.ids.get(name).copied()
    }

    /// All of them, as they are written.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|(id, name)| format!("{id}={name}"))
    }
}

/// Two identifiers mean nothing (section 5.3.11).
fn is_usable(id: u16) -> bool {
    id != 0 && id != u16::MAX
}

/// The topics of one client.
#[derive(Debug)]
pub(crate) struct TopicTable {
    ids: BTreeMap<Arc<str>, u16>,
    topics: BTreeMap<u16, Topic>,
    /// Of these, those that the client has named itself, and the bytes of their names.
    named: usize,
    named_bytes: usize,
    bytes: usize,
    /// Identifiers of everybody that this client has used.
    known: BTreeSet<u16>,
    charge: Charge,
    next_use: u64,
}

#[derive(Debug)]
struct Topic {
    name: Arc<str>,
    /// The client has named it, so it stays as long as the connection.
    is_named: bool,
    /// The client knows the identifier.
    is_told: bool,
    /// The client wants no messages of it before then.
    refused_until: Timestamp,
    /// When it was used last, among others.
    used: u64,
}

/// There is no room for another topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What a client knows of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its identifier.
    Told(u16),
    /// It has to be told this one.
    Untold(u16),
    /// It has said that it does not want to know.
    Refused,
    /// There is no room for it now.
    Full,
}

/// What a topic costs beside its name, which is shared: two entries of trees.
const TOPIC_BYTES: usize = 128;

impl TopicTable {
    pub(crate) fn new(charge: Charge) -> Self {
        Self {
            ids: BTreeMap::new(),
            topics: BTreeMap::new(),
            named: 0,
            named_bytes: 0,
            bytes: 0,
            known: BTreeSet::new(),
            charge,
            next_use: 0,
        }
    }

    /// The name behind an identifier.
    pub(crate) fn name(&self, id: u16) -> Option<&Arc<str>> {
        self.topics.get(&id).map(|topic| &topic.name)
    }

    /// The client has named a topic and is told its identifier.
    pub(crate) fn register(&mut self, name: &str, chance: &mut Chance, memory: &Memory) -> Result<u16, Full> {
        let known = self.ids.get(name).copied();
        let is_named = known.and_then(|id| self.topics.get(&id)).is_some_and(|topic| topic.is_named);
        if !is_named && (self.named >= NAMED_MAX || self.named_bytes + name.len() > NAMED_BYTES_MAX) {
            return Err(Full);
        }
        let id = match known {
            Some(id) => id,
            None => self.make_room(name, usize::MAX).insert(name, chance, memory)?,
        };
        let named = self.topics.get_mut(&id).ok_or(Full)?;
        if !core::mem::replace(&mut named.is_named, true) {
            self.named += 1;
            self.named_bytes += name.len();
        }
        (named.is_told, named.refused_until) = (true, Timestamp::ZERO);
        Ok(id)
    }

    /// A message of this topic is for the client: how it is called.
    pub(crate) fn lend(&mut self, name: &str, chance: &mut Chance, memory: &Memory, now: Timestamp) -> Standing {
        let id = if let Some(id) = self.ids.get(name) {
            *id
        } else {
            let Ok(id) = self.make_room(name, LENT_MAX).insert(name, chance, memory) else { return Standing::Full };
            id
        };
        self.next_use += 1;
        let Some(topic) = self.topics.get_mut(&id) else { return Standing::Full };
        topic.used = self.next_use;
        match topic {
            Topic { is_told: true, .. } => Standing::Told(id),
            Topic { refused_until, .. } if *refused_until > now => Standing::Refused,
            _ => Standing::Untold(id),
        }
    }

    /// The client knows this identifier now, or wants no messages of the topic for a while.
    pub(crate) fn note_answer(&mut self, id: u16, is_taken: bool, now: Timestamp) {
        let Some(topic) = self.topics.get_mut(&id) else { return };
        topic.is_told |= is_taken;
        // What it knows already it cannot refuse.
        topic.refused_until = if topic.is_told { Timestamp::ZERO } else { now + WAIT_AFTER_CONGESTION };
    }

    /// The client may have forgotten this identifier.
    pub(crate) fn doubt(&mut self, id: u16) {
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.is_told = false;
        }
    }

    /// The client may have forgotten all of them: it has begun anew.
    pub(crate) fn doubt_all(&mut self) {
        self.topics.values_mut().for_each(|topic| topic.is_told = false);
        self.known.clear();
    }

    /// The client has used an identifier of everybody; there are only so many.
    pub(crate) fn note_predefined(&mut self, id: u16) {
        self.known.insert(id);
    }

    /// Whether it did.
    pub(crate) fn knows_predefined(&self, id: u16) -> bool {
        self.known.contains(&id)
    }

    fn insert(&mut self, name: &str, chance: &mut Chance, memory: &Memory) -> Result<u16, Full> {
        let cost = name.len() + TOPIC_BYTES;
        if self.bytes + name.len() > NAMES_BYTES_MAX || !memory.has_room(Kind::Session, cost) {
            return Err(Full);
        }
        // Not to be guessed by whoever would like to answer for somebody else; most are free.
        let id = loop {
            let id = chance.draw() as u16;
            if is_usable(id) && !self.topics.contains_key(&id) {
                break id;
            }
        };
        let name: Arc<str> = name.into();
        self.bytes += name.len();
        self.charge.change(cost, 0);
        self.ids.insert(Arc::clone(&name), id);
        let refused_until = Timestamp::ZERO;
        self.topics.insert(id, Topic { name, is_named: false, is_told: false, refused_until, used: self.next_use });
        Ok(id)
    }

    /// Topics make room for one more, as many as it takes: those that no message came of for longest. What the client has named
    /// stays, and is never so much that nothing else fits.
    fn make_room(&mut self, name: &str, lent_max: usize) -> &mut Self {
        while self.topics.len() > self.named
            && (self.topics.len() - self.named >= lent_max || self.bytes + name.len() > NAMES_BYTES_MAX)
        {
            self.forget_oldest();
        }
        self
    }

    fn forget_oldest(&mut self) {
        let lent = self.topics.iter().filter(|(_, topic)| !topic.is_named);
        let oldest = lent.min_by_key(|(_, topic)| topic.used).map(|(id, _)| *id);
        if let Some(topic) = oldest.and_then(|id| self.topics.remove(&id)) {
            self.ids.remove(&topic.name);
            self.bytes -= topic.name.len();
            self.charge.change(0, topic.name.len() + TOPIC_BYTES);
        }
    }
}

/// A short name as text, if it is one.
pub(crate) fn short_name(name: [u8; 2]) -> Option<String> {
    core::str::from_utf8(&name).ok().filter(|name| !name.contains(['+', '#', '\0'])).map(ToString::to_string)
}

/// The short name of a topic, if it has one: two bytes that say it all.
pub(crate) fn as_short(name: &str) -> Option<[u8; 2]> {
    <[u8; 2]>::try_from(name.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn predefined_topics_are_read_and_mistakes_named() {
        let topics = PredefinedTopics::parse(["1=room/t", "700=a=b"]).unwrap();
        assert_eq!(topics.name(1).map(|name| &**name), Some("room/t"));
        assert_eq!((topics.id("a=b"), topics.id("b")), (Some(700), None));
        assert_eq!(topics.texts().collect::<Vec<_>>(), ["1=room/t", "700=a=b"]);
        for wrong in ["x", "0=a", "65535=a", "x=a", "1=a/#", "1="] {
            assert!(PredefinedTopics::parse([wrong]).is_err(), "{wrong}");
        }
        assert!(PredefinedTopics::parse(["1=a", "1=b"]).is_err() && PredefinedTopics::parse(["1=a", "2=a"]).is_err());
    }

    #[test]
    fn topics_of_a_client_have_an_end_and_those_it_named_stay() {
        let memory = Memory::new(1 << 24);
        let (mut table, mut chance) = (TopicTable::new(memory.charge()), Chance::new(1));
        let now = Timestamp::from_secs_f64(1.0);
        let first = table.register("mine", &mut chance, &memory).unwrap();
        for number in 0..2 * LENT_MAX {
            let name = format!("lent/{number}");
            assert!(matches!(table.lend(&name, &mut chance, &memory, now), Standing::Untold(_)));
        }
        assert_eq!((table.topics.len(), table.ids.len()), (LENT_MAX + 1, LENT_MAX + 1));
        for number in 1..2 * NAMED_MAX {
            let name = format!("mine/{number}");
            assert_eq!(table.register(&name, &mut chance, &memory).is_ok(), number < NAMED_MAX);
        }
        assert_eq!(table.name(first).map(|name| &**name), Some("mine"));
        assert_eq!(table.lend("mine", &mut chance, &memory, now), Standing::Told(first));
        table.doubt_all();
        assert_eq!(table.lend("mine", &mut chance, &memory, now), Standing::Untold(first));
        table.note_answer(first, false, now);
        assert_eq!(table.lend("mine", &mut chance, &memory, now), Standing::Refused);
        drop(table);
        assert_eq!(memory.charged(), 0);
    }

    #[test]
    fn long_names_make_room_for_a_longer_one_and_only_the_client_refuses() {
        let memory = Memory::new(1 << 24);
        let (mut table, mut chance) = (TopicTable::new(memory.charge()), Chance::new(1));
        let now = Timestamp::from_secs_f64(1.0);
        let long = |number: usize, length: usize| format!("{number:0>length$}");
        // All that it may name of long ones, and many short ones behind.
        let named = (0..NAMED_MAX).filter(|number| table.register(&long(*number, 1000), &mut chance, &memory).is_ok());
        assert_eq!(named.count(), NAMED_BYTES_MAX / 1000);
        for number in 0..LENT_MAX {
            assert!(matches!(table.lend(&long(number, 150), &mut chance, &memory, now), Standing::Untold(_)));
        }
        assert!(table.bytes + 1200 > NAMES_BYTES_MAX, "one of 150 bytes that goes is not enough");
        assert!(matches!(table.lend(&long(7, 1200), &mut chance, &memory, now), Standing::Untold(_)));
        assert!(table.bytes <= NAMES_BYTES_MAX);
        // What has no room is not refused.
        assert_eq!(table.lend("more", &mut chance, &Memory::new(0), now), Standing::Full);
    }
}
