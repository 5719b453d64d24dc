//! What is known of each publisher, for as long as it is connected and an hour longer.
//!
//! The key is the client identifier under its *parent*: the authenticated user, else the network it comes from (/24 of
//! IPv4, /64 of IPv6). A reconnect therefore buys no new learning phase, somebody else who uses a victim's identifier
//! as another user or from another network does not spoil its claim, and the devices of one user, or behind one NAT,
//! are told apart. An entry that a connection uses stays; of the others the one that was used last the longest ago goes
//! first. Those of whom nothing was learned have a smaller place of their own: a flood of names that come once does not
//! push out anybody (F057).
//!
//! What one costs, as long as nothing is wrong with it: 81 bytes here, and 6 to 12 in the table that finds it (5 for each
//! place, of which 7/16 to 7/8 are taken). Everything else is kept apart for the few who need it.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashTable};
use tidegate_control::Timestamp;
use tidegate_control::claim::{Claim, ClaimPlan};
use tidegate_control::rank::{Band, Bands, Tercile};
use tidegate_control::rhythm::Rhythm;

use super::parents::Parents;
use super::publisher::{Flag, Publisher, PublisherKey, PublisherTrouble};
use super::streak::Streak;
use crate::access::Identity;
use crate::classes::ClassId;
use crate::limits::{PUBLISHERS_IDLE_MAX, STRANGERS_IDLE_MAX};
use crate::message::{Precedence, RATE_UNKNOWN};
use crate::parent::{keyed, parent_name, parent_number};

#[derive(Debug)]
pub(crate) struct Publishers {
    seed: u64,
    by_key: HashTable<u32>,
    table: Vec<Option<Publisher>>,
    free: Vec<u32>,
    troubles: HashMap<u32, PublisherTrouble, FixedState>,
    /// Connections beyond the first, of those that have several.
    more: HashMap<u32, u32, FixedState>,
    /// Those without a connection; and those of them whose rhythm is not known.
    idle: Away,
    strangers: Away,
    /// Those with one, by their rate.
    bands: Bands,
    /// What the publishers of each parent are used to together.
    parents: Parents,
    /// What comes now of one of them.
    pub(super) streak: Option<Streak>,
}

/// Publishers without a connection, by when they lost it.
#[derive(Debug)]
struct Away {
    order: BTreeSet<(Timestamp, u32)>,
    since: HashMap<u32, Timestamp, FixedState>,
}

impl Away {
    fn new(seed: u64) -> Self {
        Self { order: BTreeSet::new(), since: HashMap::with_hasher(FixedState::with_seed(seed)) }
    }

    fn insert(&mut self, slot: u32, now: Timestamp) {
        self.order.insert((now, slot));
        self.since.insert(slot, now);
    }

    fn remove(&mut self, slot: u32) {
        if let Some(since) = self.since.remove(&slot) {
            self.order.remove(&(since, slot));
        }
    }

    /// Takes out the one that is gone the longest, if that is what is wanted of it.
    fn pop_if(&mut self, is_wanted: impl FnOnce(Timestamp) -> bool) -> Option<u32> {
        let (since, slot) = *self.order.first()?;
        is_wanted(since).then(|| {
            self.remove(slot);
            slot
        })
    }
}

impl Publishers {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            seed,
            by_key: HashTable::new(),
            table: Vec::new(),
            free: Vec::new(),
            troubles: HashMap::with_hasher(hasher.clone()),
            more: HashMap::with_hasher(hasher),
            idle: Away::new(seed),
            strangers: Away::new(seed),
            bands: Bands::default(),
            parents: Parents::new(seed),
            streak: None,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// The place of a principal.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.find_key(self.key(name))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Publisher> {
        self.table.get(slot as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Publisher> {
        self.table.get_mut(slot as usize)?.as_mut()
    }

    /// With its trouble, if it ever had any, and what there is to know of parents.
    #[inline]
    pub(crate) fn get_all(
        &mut self,
        slot: u32,
    ) -> Option<(&mut Publisher, Option<&mut PublisherTrouble>, &mut Parents)> {
        let publisher = self.table.get_mut(slot as usize)?.as_mut()?;
        let trouble = if publisher.has(Flag::Troubled) { self.troubles.get_mut(&slot) } else { None };
        Some((publisher, trouble, &mut self.parents))
    }

    pub(crate) fn trouble(&self, slot: u32) -> Option<&PublisherTrouble> {
        self.troubles.get(&slot)
    }

    /// From now on there is something to remember.
    pub(crate) fn trouble_mut(&mut self, slot: u32) -> Option<&mut PublisherTrouble> {
        self.end_streak();
        self.get_mut(slot)?.set(Flag::Troubled, true);
        Some(self.troubles.entry(slot).or_default())
    }

    /// A turn took so long, and so many messages were taken in all turns so far.
    #[inline]
    pub(crate) fn on_turn(&mut self, messages: u64, took: Duration) {
        self.parents.on_turn(messages, took);
    }

    /// A connection publishes as this principal, who belongs to `parent`; its place is sure until it leaves.
    pub(crate) fn join(&mut self, name: &str, parent: u64, rhythm: impl FnOnce() -> Rhythm) -> u32 {
        let key = self.key(name);
        let slot = self.find_key(key).unwrap_or_else(|| self.insert(Publisher::new(key, parent, rhythm())));
        if let Some(publisher) = self.get_mut(slot) {
            if publisher.has(Flag::Connected) {
                *self.more.entry(slot).or_default() += 1;
            } else {
                publisher.set(Flag::Connected, true);
                self.idle.remove(slot);
                self.strangers.remove(slot);
            }
        }
        slot
    }

    /// The connection is gone.
    pub(crate) fn leave(&mut self, slot: u32, now: Timestamp) {
        self.end_streak();
        if let Some(more) = self.more.get_mut(&slot) {
            *more -= 1;
            if *more == 0 {
                self.more.remove(&slot);
            }
            return;
        }
        let Some(publisher) = self.table.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        publisher.set(Flag::Connected, false);
        publisher.set(Flag::Ranked, false);
        self.bands.shift(core::mem::replace(&mut publisher.band, Band::ABSENT), Band::ABSENT);
        let (kind, most) = if publisher.is_learned() {
            (&mut self.idle, PUBLISHERS_IDLE_MAX)
        } else {
            (&mut self.strangers, STRANGERS_IDLE_MAX)
        };
        kind.insert(slot, now);
        let is_full = kind.since.len() > most;
        if let Some(oldest) = kind.pop_if(|_| is_full) {
            self.forget(oldest);
        }
    }

    /// How the messages of a publisher stand by its rate; with the rate itself if that is asked for.
    #[inline]
    pub(crate) fn standing(&mut self, slot: u32, wants_rate: bool, now: Timestamp) -> Precedence {
        let Some(publisher) = self.get(slot) else { return Precedence::UNKNOWN };
        let bits = |rate: f64| (rate as f32).max(0.0).to_bits();
        let rate = if wants_rate { bits(rate_so_far(publisher, now)) } else { RATE_UNKNOWN };
        let class = publisher.class().unwrap_or_else(|| self.rank(slot, now));
        Precedence { rate, ..Precedence::of(class) }
    }

    /// Its place among the others may have changed, by its own doing or by theirs.
    #[cold]
    fn rank(&mut self, slot: u32, now: Timestamp) -> ClassId {
        let Some(publisher) = self.table.get_mut(slot as usize).and_then(Option::as_mut) else {
            return ClassId::NORMAL;
        };
        // Who is rare by habit and floods now is not rare now. A burst that is part of the habit is none: only a rate
        // that the habit does not explain by far counts.
        let current = publisher.current_rate(now);
        let is_flood = |learned: f64| match publisher.rhythm.rate() {
            Some(_) => current > learned * f64::from(publisher.batch()) * FLOOD,
            None => current > learned * FLOOD && !publisher.is_entitled(),
        };
        let Some(likely) = likely_rate(publisher, now) else {
            // Too little is known to count it among the others; but if it is rare even at most, it is rare.
            let bound = publisher.claim.rate_bound(now);
            self.bands.shift(core::mem::replace(&mut publisher.band, Band::LEARNING), Band::LEARNING);
            let class = self.class_at_most(bound);
            if let Some(publisher) = self.get_mut(slot) {
                publisher.set_class(class);
            }
            return class;
        };
        let band = Band::of(Some(if is_flood(likely) { current } else { likely }));
        self.bands.shift(core::mem::replace(&mut publisher.band, band), band);
        let class = ClassId::of(self.bands.tercile(band));
        publisher.set_class(class);
        class
    }

    /// The class of somebody of whom no more is known than that its rate is not higher than this.
    pub(crate) fn class_at_most(&mut self, rate: Option<f64>) -> ClassId {
        let is_rare = |rate| self.bands.tercile(Band::of(Some(rate))) == Tercile::Rare;
        if rate.is_some_and(is_rare) { ClassId::HIGH } else { ClassId::NORMAL }
    }

    /// How many publishers come before this one by its rate, and how many there are.
    pub(crate) fn rank_of(&self, slot: u32) -> Option<(u32, u32)> {
        self.bands.rank(self.get(slot)?.band)
    }

    /// Forgets whoever was gone for longer than `memory`.
    pub(crate) fn expire(&mut self, memory: Duration, now: Timestamp) {
        let is_old = |since: Timestamp| now.since(since) >= memory;
        while let Some(slot) = self.idle.pop_if(is_old).or_else(|| self.strangers.pop_if(is_old)) {
            self.forget(slot);
        }
    }

    /// By how much the claims of the parent of such a principal may grow.
    pub(crate) fn room_of(&self, key: &str) -> f32 {
        self.parents.room(self.parent_in(key))
    }

    fn parent_in(&self, key: &str) -> u64 {
        parent_in(key).map_or(0, |name| parent_number(name, self.seed))
    }

    /// What was known of somebody who is not connected yet.
    pub(crate) fn import(&mut self, key: &str, rhythm: Rhythm, claim: Claim, now: Timestamp) {
        let slot = self.join(key, self.parent_in(key), || rhythm);
        if let Some((publisher, _, parents)) = self.get_all(slot) {
            let before = publisher.learned();
            publisher.claim = claim;
            parents.shift(publisher.parent(), publisher.learned() - before);
        }
        self.leave(slot, now);
    }

    /// What was learned of it while nobody was watched, if no more is known and its parent has room for it.
    pub(crate) fn adopt(&mut self, slot: u32, claim: Claim) {
        let Some((publisher, _, parents)) = self.get_all(slot) else { return };
        let learned = claim.learned_rate().unwrap_or(0.0);
        if !publisher.is_learned() && learned <= parents.room(publisher.parent()) {
            publisher.claim = claim;
            parents.shift(publisher.parent(), learned);
        }
    }

    /// What the operator has granted it, or no more.
    pub(crate) fn grant(&mut self, slot: u32, plan: &ClaimPlan, rate: Option<f32>) {
        if let Some(publisher) = self.get_mut(slot) {
            publisher.claim.grant(plan, rate);
        }
    }

    /// The rule has changed: what was learned under another one is of no use.
    pub(crate) fn relearn(&mut self, rhythm: impl Fn() -> Rhythm) {
        for (slot, publisher) in self.table.iter_mut().enumerate() {
            let is_pinned = self.troubles.get(&(slot as u32)).is_some_and(|trouble| trouble.pin().is_some());
            if let Some(publisher) = publisher.as_mut().filter(|_| !is_pinned) {
                publisher.rhythm = rhythm();
                self.parents.shift(publisher.parent(), -publisher.learned());
                publisher.claim.forget();
            }
        }
    }

    fn key(&self, name: &str) -> PublisherKey {
        let mut hasher = keyed(self.seed);
        hasher.write(name.as_bytes());
        PublisherKey::new(hasher.finish())
    }

    fn find_key(&self, key: PublisherKey) -> Option<u32> {
        let is_it = |slot: &u32| self.get(*slot).is_some_and(|publisher| publisher.key == key);
        self.by_key.find(key.hash(), is_it).copied()
    }

    fn insert(&mut self, publisher: Publisher) -> u32 {
        let hash = publisher.key.hash();
        self.parents.join(publisher.parent(), publisher.learned());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            (self.table.len() - 1) as u32
        });
        if let Some(place) = self.table.get_mut(slot as usize) {
            *place = Some(publisher);
        }
        let table = &self.table;
        let hash_of = |slot: &u32| table.get(*slot as usize).and_then(Option::as_ref).map_or(0, |it| it.key.hash());
        self.by_key.insert_unique(hash, slot, hash_of);
        slot
    }

    fn forget(&mut self, slot: u32) {
        let Some(publisher) = self.table.get_mut(slot as usize).and_then(Option::take) else { return };
        self.parents.leave(publisher.parent(), publisher.learned());
        if let Ok(entry) = self.by_key.find_entry(publisher.key.hash(), |other| *other == slot) {
            entry.remove();
        }
        self.troubles.remove(&slot);
        self.free.push(slot);
    }
}

/// So many times its usual rate is a flood.
const FLOOD: f64 = 8.0;

/// What is known of its rate: learned, or by what it sent so far.
fn likely_rate(publisher: &Publisher, now: Timestamp) -> Option<f64> {
    publisher.rhythm.rate().or_else(|| publisher.claim.likely_rate(now))
}

/// The rate by which the paper ranks: what was learned, and before that the mean of the intervals so far. Nobody is faster
/// than that, and who sends its first message comes first.
fn rate_so_far(publisher: &Publisher, now: Timestamp) -> f64 {
    publisher.rhythm.rate().unwrap_or_else(|| publisher.claim.rate_so_far(now))
}

/// The principal that a client publishes as.
pub(crate) fn key_of(identity: &Identity, client_id: &str) -> String {
    let mut key = parent_name(identity);
    key.push(if identity.user.is_some() { '\0' } else { ' ' });
    key.push_str(client_id);
    key
}

/// The client identifier in such a name; none if there is none. (A key that begins with "u" is from before: a user
/// without a client. It is of no use.)
pub(crate) fn client_in(key: &str) -> Option<&str> {
    split(key).map(|(_, client)| client)
}

/// The name of the parent in such a name.
fn parent_in(key: &str) -> Option<&str> {
    split(key).map(|(parent, _)| parent)
}

fn split(key: &str) -> Option<(&str, &str)> {
    match key.chars().next()? {
        'U' => key.split_once('\0'),
        '4' | '6' => {
            let end = key.find("] ")? + 1;
            Some((key.get(..end)?, key.get(end + 1..)?))
        }
        '?' => key.split_once(' '),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
