//! Start-time fair queueing over numbers: whose turn it is, by what each has used.
//!
//! ```text
//! somebody comes who had nothing waiting  tag = max(tag, V)
//! the lowest tag is next                  V = tag,  tag = tag + cost;  of equal ones that which came first
//! ```
//! Whoever has used little is served before whoever uses much, and nobody gains by sending more at once. What somebody owes is
//! kept while nothing of it waits, up to a bound. Knows neither requests nor time; a lane drives it, for households and again
//! inside of each.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct FairShares {
    /// Those that wait, by tag and turn; and those that only owe something, by tag.
    ready: BTreeSet<(u64, u64, u64)>,
    owing: BTreeSet<(u64, u64)>,
    places: BTreeMap<u64, SharePlace>,
    virtual_time: u64,
    turns: u64,
    /// Those that owe and have nothing waiting; beyond, the smallest debts are forgiven.
    owing_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct SharePlace {
    tag: u64,
    /// When somebody came who had nothing waiting: of equal tags the older is next.
    turn: u64,
    is_waiting: bool,
}

impl FairShares {
    pub(super) fn new(owing_max: usize) -> Self {
        let (ready, owing, places) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { ready, owing, places, virtual_time: 0, turns: 0, owing_max }
    }

    /// Something of this one waits.
    pub(super) fn on_waiting(&mut self, key: u64) {
        let before = self.places.get(&key).copied();
        if before.is_some_and(|place| place.is_waiting) {
            return;
        }
        let tag = before.map_or(0, |place| place.tag);
        self.owing.remove(&(tag, key));
        self.turns += 1;
        let place = SharePlace { tag: tag.max(self.virtual_time), turn: self.turns, is_waiting: true };
        self.ready.insert((place.tag, place.turn, key));
        self.places.insert(key, place);
    }

    /// Those that wait, the next one first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().map(|(_, _, key)| *key)
    }

    /// One was served, at this cost; whether more of it waits.
    pub(super) fn on_served(&mut self, key: u64, cost: u64, is_waiting: bool) {
        let tag = self.places.get(&key).map_or(0, |place| place.tag);
        self.virtual_time = self.virtual_time.max(tag);
        self.settle(key, tag.saturating_add(cost), is_waiting);
    }

    /// It has used more than it has paid for.
    pub(super) fn charge(&mut self, key: u64, cost: u64) {
        if let Some(place) = self.places.get(&key).copied() {
            self.settle(key, place.tag.saturating_add(cost), place.is_waiting);
        }
    }

    /// It has used less than it has paid for.
    pub(super) fn refund(&mut self, key: u64, cost: u64) {
        if let Some(place) = self.places.get(&key).copied() {
            self.settle(key, place.tag.saturating_sub(cost), place.is_waiting);
        }
    }

    /// Nothing of it waits any more, and it was not served.
    pub(super) fn on_left(&mut self, key: u64) {
        if let Some(place) = self.places.get(&key).copied() {
            self.settle(key, place.tag, false);
        }
    }

    /// The next one that owes nothing worth keeping, and is not known any more.
    pub(super) fn forget_one(&mut self) -> Option<u64> {
        let (tag, key) = self.owing.first().copied()?;
        if tag > self.virtual_time && self.owing.len() <= self.owing_max {
            return None;
        }
        self.owing.pop_first();
        self.places.remove(&key);
        Some(key)
    }

    /// The tag with which somebody would wait now, or waits.
    pub(super) fn tag(&self, key: u64) -> u64 {
        let place = self.places.get(&key).copied();
        place.map_or(
            self.virtual_time,
            |place| if place.is_waiting { place.tag } else { place.tag.max(self.virtual_time) },
        )
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.ready.len()
    }

    fn settle(&mut self, key: u64, tag: u64, is_waiting: bool) {
        let Some(place) = self.places.get_mut(&key) else { return };
        self.ready.remove(&(place.tag, place.turn, key));
        self.owing.remove(&(place.tag, key));
        (place.tag, place.is_waiting) = (tag, is_waiting);
        if is_waiting {
            self.ready.insert((tag, place.turn, key));
        } else {
            self.owing.insert((tag, key));
        }
    }
}
