//! Classes of messages: which come first when not all can, and which go when there is no more room.
//!
//! Plain values that the operator can set. A class has a weight, which is the share of each of its publishers in a queue
//! that is not empty, and a policy for a full queue. A message belongs to a class by a rule (topics, users, clients,
//! addresses) or by how often its publisher publishes; who decides is in `classify.rs`, what comes of it in `queue.rs`.
//!
//! Four classes are always there: `high`, `normal` and `low`, into which publishers are sorted by their rate (the rarest
//! third first), and `sys` for the broker's own `$SYS`. An operator's class of the same name takes the place of one.

mod askers;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::rank::Tercile;
use tidegate_control::schedule::WEIGHT_MAX;
use tidegate_wire_mqtt::{Limits, TopicFilter, topic};

use crate::access::Identity;
use crate::glob::Glob;
use crate::settings::Rate;
pub use askers::{AddressRange, Asker, AskerClass, ClassRole, NotAnAddressRange};

/// Classes that there can be, the four that are always there included: what counters have room for.
pub const CLASSES_MAX: usize = 8;
/// Patterns of one class, of each kind: all of them may be looked at for every message.
pub const PATTERNS_MAX: usize = 64;

/// The least that a class may be allowed to have waiting: a message with a small payload and what it costs to keep.
pub const CLASS_BYTES_MIN: usize = 1024;
/// The shortest time that a class may be given: a turn of a busy broker takes some milliseconds.
pub const CLASS_DELAY_MIN: Duration = Duration::from_millis(10);

/// Which messages come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// By which rule.
    pub mode: PriorityMode,
    /// Who belongs to which class.
    pub by: ClassBy,
    pub classes: Classes,
}

impl Priority {
    /// Nobody comes first: one line for all, and whoever comes when it is full goes.
    pub fn off() -> Self {
        Self { mode: PriorityMode::Off, ..Self::default() }
    }

    /// Whether a message's class takes more than its publisher's rate to tell.
    #[inline]
    pub(crate) fn has_more_to_ask(&self) -> bool {
        !self.classes.order.is_empty() || self.by == ClassBy::Rules || self.mode == PriorityMode::Paper
    }

    /// What a full queue does about a message of this class.
    pub(crate) fn on_full(&self, class: ClassId) -> OnFull {
        match self.mode {
            PriorityMode::Practical => self.classes.get(class).map_or(OnFull::DropLongest, |class| class.on_full),
            // P22 says who comes first and not who goes. If the newcomer went, the rarest would be lost as often as it finds
            // a queue full of the others' messages: always, under a lasting overload.
            PriorityMode::Paper => OnFull::DropLongest,
            PriorityMode::Off => OnFull::DropNewest,
        }
    }

    /// Bytes of this class that may wait in one queue.
    pub(crate) fn bytes_max(&self, class: ClassId) -> usize {
        self.capped(class).and_then(|class| class.max_bytes).unwrap_or(usize::MAX)
    }

    /// How long a message of this class may wait for its receiver.
    pub(crate) fn delay_max(&self, class: ClassId) -> Option<Duration> {
        self.capped(class).and_then(|class| class.max_delay)
    }

    /// Whether either is bounded.
    pub(crate) fn is_capped(&self, class: ClassId) -> bool {
        self.bytes_max(class) < usize::MAX || self.delay_max(class).is_some()
    }

    /// Without priorities nobody belongs to a class, so there is nothing to cap.
    fn capped(&self, class: ClassId) -> Option<&Class> {
        if self.mode == PriorityMode::Off { None } else { self.classes.get(class) }
    }
}

/// By which rule messages leave a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityMode {
    /// Every publisher in proportion to the weight of its class; the longest queue pays.
    #[default]
    Practical,
    /// The rarest publisher first, whatever that costs the others; the newcomer is dropped (P22).
    Paper,
    /// In the order in which they came.
    Off,
}

/// What decides about the class of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassBy {
    /// Rules; who is in none is `normal`.
    Rules,
    /// How often the publisher publishes.
    Rank,
    /// Rules, and for those who are in none, how often they publish.
    #[default]
    Both,
}

/// What happens to a message that finds the queue of its receiver full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The oldest message of the publisher with the most bytes waiting makes room.
    #[default]
    DropLongest,
    /// The message itself is dropped.
    DropNewest,
    /// The oldest message of the same publisher makes room.
    DropOldest,
    /// Of each topic only the newest message waits, full or not; beyond that as `DropLongest`.
    Latest,
    /// QoS 1 and 2 are not taken from their publisher, which is told so; what is in already is dropped.
    Refuse,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What it is called.
    pub name: Box<str>,
    /// Share of each of its publishers in a queue.
    pub weight: u32,
    /// What happens when a queue is full.
    pub on_full: OnFull,
    /// Bytes of it that may wait in one queue, or in the hold of one publisher; none: as many as fit.
    pub max_bytes: Option<usize>,
    /// How long a message of it may wait for its receiver; none: as long as it lives.
    pub max_delay: Option<Duration>,
    /// Messages that each of its publishers may send; none: what everybody may.
    pub rate: Option<Rate>,
    /// Topic filters, one of which must match. None: any topic.
    pub topics: Vec<Box<str>>,
    /// Users, one of whom must be the publisher. None: anybody.
    pub users: Vec<Box<str>>,
    /// Patterns of client identifiers, one of which must match. None: anybody.
    pub clients: Vec<Glob>,
    /// Addresses, from one of which the client must come. None: from anywhere.
    pub addresses: Vec<AddressRange>,
    /// Whether its members come first at the smart space.
    pub role: ClassRole,
    /// Users who may claim this class for what they ask of the smart space, though it is not theirs.
    pub claimants: Vec<Box<str>>,
}

impl Class {
    /// A class without rules.
    pub fn new(name: &str, weight: u32) -> Self {
        Self {
            name: name.into(),
            weight,
            on_full: OnFull::default(),
            max_bytes: None,
            max_delay: None,
            rate: None,
            topics: Vec::new(),
            users: Vec::new(),
            clients: Vec::new(),
            addresses: Vec::new(),
            role: ClassRole::default(),
            claimants: Vec::new(),
        }
    }

    fn has_rules(&self) -> bool {
        let is_open = self.users.is_empty() && self.clients.is_empty() && self.addresses.is_empty();
        !(self.topics.is_empty() && is_open)
    }

    /// Whether everything that the class asks for is so.
    fn contains(&self, identity: &Identity, client_id: &str, topic_name: &str) -> bool {
        let is_user = |name: &str| identity.user.as_deref() == Some(name);
        self.has_rules()
            && (self.users.is_empty() || self.users.iter().any(|name| is_user(name)))
            && (self.clients.is_empty() || self.clients.iter().any(|pattern| pattern.matches(client_id)))
            && (self.topics.is_empty() || self.topics.iter().any(|filter| topic::matches(filter, topic_name)))
            && self.is_from_there(identity)
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return Err(format!("class {:?}: a weight is from 1 to {WEIGHT_MAX}", self.name));
        }
        let counts =
            [self.topics.len(), self.users.len(), self.clients.len(), self.addresses.len(), self.claimants.len()];
        if counts.iter().any(|count| *count > PATTERNS_MAX) {
            return Err(format!("class {:?}: at most {PATTERNS_MAX} of each kind", self.name));
        }
        // Every message would be dropped.
        if self.max_bytes.is_some_and(|bytes| bytes < CLASS_BYTES_MIN) {
            return Err(format!("class {:?}: max_bytes is at least {CLASS_BYTES_MIN}", self.name));
        }
        if self.max_delay.is_some_and(|delay| delay < CLASS_DELAY_MIN) {
            return Err(format!("class {:?}: max_delay is at least {} ms", self.name, CLASS_DELAY_MIN.as_millis()));
        }
        // Publishers are limited, and not what they publish.
        if self.rate.is_some() && (!self.topics.is_empty() || !self.has_rules()) {
            let needs = "a rate is for publishers: by clients, users or addresses, and not by topics";
            return Err(format!("class {:?}: {needs}", self.name));
        }
        let is_filter = |text: &str| TopicFilter::parse(text, &Limits::default()).is_ok_and(|it| it.group().is_none());
        match self.topics.iter().find(|text| !is_filter(text)) {
            Some(text) => Err(format!("class {:?}: {text:?} is no topic filter", self.name)),
            None => Ok(()),
        }
    }
}

/// One of the classes: a place among the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u8);

impl ClassId {
    /// The third of the publishers with the lowest rates.
    pub const HIGH: Self = Self(0);
    /// The third between, and everybody of whom nothing is known.
    pub const NORMAL: Self = Self(1);
    /// The third with the highest rates.
    pub const LOW: Self = Self(2);
    /// What the broker says of itself.
    pub const SYS: Self = Self(3);

    /// Its place, less than [`CLASSES_MAX`].
    pub const fn index(self) -> usize {
        (self.0 as usize) % CLASSES_MAX
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits % CLASSES_MAX as u8)
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn of(tercile: Tercile) -> Self {
        match tercile {
            Tercile::Rare => Self::HIGH,
            Tercile::Middle => Self::NORMAL,
            Tercile::Chatty => Self::LOW,
        }
    }
}

/// All classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// By [`ClassId`].
    list: Vec<Class>,
    /// Those with rules, in the order in which they are asked.
    order: Vec<ClassId>,
}

impl Default for Classes {
    fn default() -> Self {
        let rank = |name, tercile: Tercile| Class::new(name, tercile.weight());
        let [high, normal, low] =
            [rank("high", Tercile::Rare), rank("normal", Tercile::Middle), rank("low", Tercile::Chatty)];
        // Of a value that is published every few seconds, the last one is enough.
        let sys = Class { on_full: OnFull::Latest, ..Class::new("sys", 1) };
        Self { list: alloc::vec![high, normal, low, sys], order: Vec::new() }
    }
}

impl Classes {
    /// Their names, by [`ClassId::index`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|class| &*class.name)
    }

    /// The operator's classes beside those that are always there. A message belongs to the first whose rules it meets.
    pub fn new(own: Vec<Class>) -> Result<Self, String> {
        let mut classes = Self::default();
        let mut given = Vec::new();
        for class in own {
            class.check()?;
            let has_rules = class.has_rules();
            let known = classes.list.iter().position(|other| other.name == class.name);
            let place = known.unwrap_or(classes.list.len());
            if place >= CLASSES_MAX {
                return Err(format!("class {:?}: there are at most {CLASSES_MAX}, four of them always", class.name));
            }
            let id = ClassId(place as u8);
            if given.contains(&id) {
                return Err(format!("class {:?} is there twice", class.name));
            }
            given.push(id);
            match known {
                Some(_) => classes.list[place] = class,
                None => classes.list.push(class),
            }
            if has_rules {
                classes.order.push(id);
            }
        }
        Ok(classes)
    }

    /// The class with this number.
    pub fn get(&self, id: ClassId) -> Option<&Class> {
        self.list.get(id.index())
    }

    /// The class with this name.
    pub fn find(&self, name: &str) -> Option<ClassId> {
        self.list.iter().position(|class| *class.name == *name).map(|place| ClassId(place as u8))
    }

    /// All of them with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.list.iter().enumerate().map(|(place, class)| (ClassId(place as u8), class))
    }

    /// Share of each publisher of this class.
    pub fn weight(&self, id: ClassId) -> u32 {
        self.get(id).map_or(1, |class| class.weight)
    }

    /// The class whose rules this message meets, and whether they name topics.
    pub(crate) fn by_rules(&self, identity: &Identity, client_id: &str, topic_name: &str) -> Option<(ClassId, bool)> {
        let mut asked = self.order.iter().filter_map(|id| Some((*id, self.get(*id)?)));
        let (id, class) = asked.find(|(_, class)| class.contains(identity, client_id, topic_name))?;
        Some((id, !class.topics.is_empty()))
    }

    /// What the first class with a rate whose rules a publisher meets lets it send.
    pub(crate) fn rate_of(&self, identity: &Identity, client_id: &str) -> Option<Rate> {
        let mut asked = self.order.iter().filter_map(|id| self.get(*id)).filter(|class| class.rate.is_some());
        asked.find(|class| class.contains(identity, client_id, ""))?.rate
    }

    /// Whether publishers may send as much as by these.
    pub(crate) fn has_rates_of(&self, others: &Self) -> bool {
        let rates = |classes: &Self| -> Vec<Class> {
            classes.order.iter().filter_map(|id| classes.get(*id)).filter(|it| it.rate.is_some()).cloned().collect()
        };
        rates(self) == rates(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, topics: &[&str], users: &[&str]) -> Class {
        let own = |list: &[&str]| list.iter().map(|text| (*text).into()).collect();
        Class { topics: own(topics), users: own(users), ..Class::new(name, 3) }
    }

    fn identity(user: Option<&str>) -> Identity {
        Identity { user: user.map(Into::into), ..Identity::default() }
    }

    #[test]
    fn the_first_class_all_of_whose_rules_are_met_is_it() {
        let own = alloc::vec![class("alarm", &["alarm/#"], &["panel"]), class("low", &["#"], &[])];
        let classes = Classes::new(own).unwrap();
        let alarm = classes.find("alarm").unwrap();
        assert_eq!(classes.by_rules(&identity(Some("panel")), "c", "alarm/1"), Some((alarm, true)));
        assert_eq!(classes.by_rules(&identity(None), "c", "alarm/1"), Some((ClassId::LOW, true)), "another user");
        assert_eq!(classes.by_rules(&identity(None), "c", "$SYS/x"), None);
        assert_eq!(classes.iter().count(), 5, "\"low\" took the place of the usual one");
        assert_eq!(classes.weight(ClassId::LOW), 3);
    }

    #[test]
    fn clients_are_meant_by_pattern_and_a_class_without_rules_by_nobody() {
        let pumps = Class { clients: alloc::vec![Glob::new("pump-*")], ..Class::new("pumps", 9) };
        let classes = Classes::new(alloc::vec![pumps, Class::new("empty", 1)]).unwrap();
        let pumps = classes.find("pumps").unwrap();
        assert_eq!(classes.by_rules(&identity(None), "pump-7", "t"), Some((pumps, false)));
        assert_eq!(classes.by_rules(&identity(None), "7-pump", "t"), None);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let faults = |own| Classes::new(own).unwrap_err();
        assert!(faults(alloc::vec![Class::new("a", 0)]).contains("weight"));
        assert!(faults(alloc::vec![class("a", &["x/#/y"], &[])]).contains("no topic filter"));
        assert!(faults(alloc::vec![class("a", &["x"], &[]), class("a", &[], &[])]).contains("twice"));
        let small = Class { max_bytes: Some(10), ..Class::new("a", 1) };
        assert!(faults(alloc::vec![small]).contains("max_bytes is at least 1024"));
        let short = Class { max_delay: Some(Duration::ZERO), ..Class::new("a", 1) };
        assert!(faults(alloc::vec![short]).contains("max_delay is at least 10 ms"));
        let rate = Some(Rate::new(5, Duration::from_secs(1), 5));
        for topics in [&[][..], &["x"][..]] {
            let limited = Class { rate, ..class("a", topics, &[]) };
            assert!(faults(alloc::vec![limited]).contains("a rate is for publishers"));
        }
        let five = ["a", "b", "c", "d", "e"].map(|name| Class::new(name, 1));
        assert!(faults(five.to_vec()).contains("at most 8"));
    }
}
