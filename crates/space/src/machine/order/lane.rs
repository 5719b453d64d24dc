//! Requests of one kind and role that wait: a line for each client, lines by household, and whose turn it is.
//!
//! ```text
//! household (a user, or an address without one)   the next by what it has used: `FairShares`
//!   client (a KP by its name)                     inside of it the next by what that has used
//!     its requests                                in the order of arrival
//! ```
//! Whoever has asked for little is served before whoever asks for much; nobody gains by sending more at once, nor by more
//! names: these share what their household has. A share is by weight: work costs whoever has twice the weight half as much.
//!
//! In whose line an asker stands may change, from the newcomers' of its household to its own; not while anything of it waits,
//! or its later requests would overtake its earlier ones.
//!
//! Equal questions wait as one entry, whoever asks them. A later check of the same standing question by the same client takes
//! the place of the one that waits. Knows neither time nor servers.

use std::collections::{BTreeMap, VecDeque};

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, QueryKey};

use super::estimate::{Estimate, Shape};
use super::fair::FairShares;
use crate::limits::SSAP_WINDOW;
use crate::machine::standing::KpStanding;

/// Whose line a request stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineId {
    pub(super) household: u64,
    pub(super) client: u64,
}

/// A request that waits, and whoever asked for the same since.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) first: Waiter<T>,
    pub(super) joined: Vec<Waiter<T>>,
    pub(super) key: Option<QueryKey>,
    pub(super) class: Class,
    pub(super) shape: Shape,
    pub(super) standing: KpStanding,
    /// Estimated nanoseconds, and whether requests like this one were seen before.
    pub(super) work: u64,
    pub(super) is_known: bool,
    pub(super) keeps_appointments: bool,
    /// Whose tickets are good for it.
    pub(super) asker: u64,
    /// The connection whose requests are taken in order; 0: of none.
    pub(super) flow: u64,
}

impl<T> Entry<T> {
    pub(super) fn waiters(self) -> impl Iterator<Item = Waiter<T>> {
        std::iter::once(self.first).chain(self.joined)
    }

    /// Lets a later check take the place of an earlier one by the same asker; gives it back if there is none.
    pub(super) fn supersede(&mut self, later: Waiter<T>) -> Result<T, Waiter<T>> {
        let mut waiting = std::iter::once(&mut self.first).chain(&mut self.joined);
        match waiting.find(|waiter| waiter.check.is_some() && waiter.check == later.check) {
            Some(earlier) => Ok(std::mem::replace(earlier, later).value),
            None => Err(later),
        }
    }
}

#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) value: T,
    pub(super) arrived: Timestamp,
    pub(super) deadline: Timestamp,
    /// The standing question that it checks, and for whom.
    pub(super) check: Option<u64>,
}

#[derive(Debug)]
struct Line<T> {
    /// With their numbers, which grow and never change. (Not a map: one entry would take the room of eleven.)
    entries: VecDeque<(u64, Entry<T>)>,
    next: u64,
    work: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), next: 0, work: 0 }
    }
}

impl<T> Line<T> {
    /// The first that is of none of these flows: newcomers of a household share a line, and one that is held up keeps none of
    /// the others.
    fn first(&self, held: &[u64]) -> Option<&(u64, Entry<T>)> {
        if held.is_empty() {
            return self.entries.front();
        }
        self.entries.iter().take(HELD_LOOKS_MAX).find(|(_, entry)| held.binary_search(&entry.flow).is_err())
    }

    fn find(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

#[derive(Debug)]
struct Household<T> {
    lines: BTreeMap<u64, Line<T>>,
    shares: FairShares,
}

#[derive(Debug)]
pub(super) struct Lane<T> {
    households: BTreeMap<u64, Household<T>>,
    shares: FairShares,
    /// Which entry an equal question may join, and which one a later check replaces.
    shared: BTreeMap<QueryKey, (LineId, u64)>,
    checks: BTreeMap<u64, (LineId, u64)>,
    /// By household and asker: in whose line it has something waiting, and how much.
    askers: BTreeMap<(u64, u64), (u64, usize)>,
    /// By flow: where it has something waiting, and how much.
    flows: BTreeMap<u64, (LineId, usize)>,
    items: usize,
    work: u64,
}

impl<T> Lane<T> {
    pub(super) fn new() -> Self {
        Self {
            households: BTreeMap::new(),
            shares: FairShares::new(HOUSEHOLDS_OWING_MAX),
            shared: BTreeMap::new(),
            checks: BTreeMap::new(),
            askers: BTreeMap::new(),
            flows: BTreeMap::new(),
            items: 0,
            work: 0,
        }
    }

    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Estimated nanoseconds of all that waits.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Households with something waiting, and clients of this one.
    pub(super) fn waiting(&self, household: u64) -> (usize, usize) {
        let own = self.households.get(&household).map_or(0, |it| it.shares.waiting());
        (self.shares.waiting(), own)
    }

    /// Estimates anew what was not known when it came.
    pub(super) fn reassess(&mut self, estimate: impl Fn(Class, Shape) -> Estimate) {
        self.work = 0;
        for line in self.households.values_mut().flat_map(|household| household.lines.values_mut()) {
            line.work = 0;
            for (_, entry) in &mut line.entries {
                if !entry.is_known {
                    let Estimate { nanos, is_known, .. } = estimate(entry.class, entry.shape);
                    (entry.work, entry.is_known) = (nanos, is_known);
                }
                line.work = line.work.saturating_add(entry.work);
            }
            self.work = self.work.saturating_add(line.work);
        }
    }

    /// Requests of a client that wait, and their estimated nanoseconds.
    pub(super) fn of(&self, id: LineId) -> (usize, u64) {
        self.line(id).map_or((0, 0), |line| (line.entries.len(), line.work))
    }

    /// In whose line of its household an asker has something waiting.
    pub(super) fn stands_with(&self, household: u64, asker: u64) -> Option<u64> {
        self.askers.get(&(household, asker)).map(|(client, _)| *client)
    }

    /// In whose line something of a flow waits.
    pub(super) fn flow(&self, flow: u64) -> Option<LineId> {
        self.flows.get(&flow).map(|(line, _)| *line)
    }

    fn line(&self, id: LineId) -> Option<&Line<T>> {
        self.households.get(&id.household)?.lines.get(&id.client)
    }

    pub(super) fn push(&mut self, id: LineId, entry: Entry<T>) {
        let Self { households, shares, shared, checks, askers, flows, items, work } = self;
        let new = || Household { lines: BTreeMap::new(), shares: FairShares::new(LINES_OWING_MAX) };
        let household = households.entry(id.household).or_insert_with(new);
        let line = household.lines.entry(id.client).or_default();
        if line.entries.is_empty() {
            household.shares.on_waiting(id.client);
            shares.on_waiting(id.household);
        }
        let number = line.next;
        line.next += 1;
        if let Some(key) = entry.key {
            shared.insert(key, (id, number));
        }
        if let Some(check) = entry.first.check {
            checks.insert(check, (id, number));
        }
        askers.entry((id.household, entry.asker)).or_insert((id.client, 0)).1 += 1;
        if entry.flow != 0 {
            flows.entry(entry.flow).or_insert((id, 0)).1 += 1;
        }
        line.work = line.work.saturating_add(entry.work);
        *work = work.saturating_add(entry.work);
        *items += 1;
        line.entries.push_back((number, entry));
    }

    fn entry(&mut self, (id, number): (LineId, u64)) -> Option<&mut Entry<T>> {
        let line = self.households.get_mut(&id.household)?.lines.get_mut(&id.client)?;
        let place = line.find(number)?;
        line.entries.get_mut(place).map(|(_, entry)| entry)
    }

    /// An equal question that waits, if as many do not wait with it yet as may.
    pub(super) fn equal(&mut self, key: QueryKey, joined_max: usize) -> Option<&mut Entry<T>> {
        let place = *self.shared.get(&key)?;
        self.entry(place).filter(|entry| entry.joined.len() < joined_max)
    }

    /// Somebody asks what waits in another's line, and would be served before that: has the entry wait in the line of who comes.
    /// False if the entry must stay where it is, because its connection's requests are taken in order: then who comes had
    /// better wait alone. Nobody is to wait longer because others ask the same.
    pub(super) fn advance(&mut self, key: QueryKey, to: LineId) -> bool {
        let Some((from, number)) = self.shared.get(&key).copied() else { return true };
        if from == to || !self.is_ahead(to, from, number) {
            return true;
        }
        if self.entry((from, number)).is_some_and(|entry| entry.flow != 0) {
            return false;
        }
        if let Some(entry) = self.remove(from, number) {
            self.on_left(from);
            self.push(to, entry);
        }
        true
    }

    /// Whether a first request in one line would be taken before this one of another.
    fn is_ahead(&self, line: LineId, other: LineId, number: u64) -> bool {
        let Some(household) = self.households.get(&other.household) else { return false };
        let is_first =
            self.line(other).and_then(|line| line.entries.front()).is_some_and(|(first, _)| *first == number);
        let (is_free, tags) = if line.household == other.household {
            let is_free = household.lines.get(&line.client).is_none_or(|line| line.entries.is_empty());
            (is_free, [line.client, other.client].map(|client| household.shares.tag(client)))
        } else {
            let is_free = self.households.get(&line.household).is_none_or(|it| it.shares.waiting() == 0);
            (is_free, [line.household, other.household].map(|household| self.shares.tag(household)))
        };
        let [own, others] = tags;
        is_free && (own < others || own == others && !is_first)
    }

    /// The entry whose first waiter checks the same for the same client.
    pub(super) fn checking(&mut self, check: u64) -> Option<&mut Entry<T>> {
        let place = *self.checks.get(&check)?;
        self.entry(place)
    }

    /// Whether anybody's first request is wanted; looks at a bounded number of clients.
    pub(super) fn has(&self, held: &[u64], is_wanted: impl Fn(&Entry<T>) -> bool) -> bool {
        self.find(held, is_wanted).is_some()
    }

    fn in_order(&self, of_household: usize) -> impl Iterator<Item = (LineId, &Line<T>)> {
        let households = self.shares.in_order().filter_map(|key| Some((key, self.households.get(&key)?)));
        households.flat_map(move |(key, household)| {
            let clients = household.shares.in_order().take(of_household);
            clients.filter_map(move |client| Some((LineId { household: key, client }, household.lines.get(&client)?)))
        })
    }

    fn find(&self, held: &[u64], is_wanted: impl Fn(&Entry<T>) -> bool) -> Option<(LineId, u64)> {
        let mut looked = self.in_order(LOOKS_OF_HOUSEHOLD).take(LOOKS_MAX);
        let of_line =
            |line: &Line<T>| line.first(held).filter(|(_, entry)| is_wanted(entry)).map(|(number, _)| *number);
        looked.find_map(|(id, line)| Some((id, of_line(line)?)))
    }

    /// The next request of which this is true, of other flows than these, and whose it is.
    pub(super) fn pop(&mut self, held: &[u64], is_wanted: impl Fn(&Entry<T>) -> bool) -> Option<(LineId, Entry<T>)> {
        let (id, number) = self.find(held, is_wanted)?;
        let entry = self.remove(id, number)?;
        let cost = entry.standing.charge(entry.work);
        self.settle(id, |shares, key, is_waiting| shares.on_served(key, cost, is_waiting));
        Some((id, entry))
    }

    /// Takes the oldest request of a client, without a turn.
    pub(super) fn displace(&mut self, id: LineId) -> Option<Entry<T>> {
        let number = self.line(id)?.entries.front()?.0;
        let entry = self.remove(id, number)?;
        self.on_left(id);
        Some(entry)
    }

    /// Takes out what is to go, wherever it stands, of so many clients at most.
    pub(super) fn sweep(&mut self, looks: usize, goes: impl Fn(&Entry<T>) -> bool) -> Vec<Entry<T>> {
        let of_line = |(id, line): (LineId, &Line<T>)| {
            let gone = line.entries.iter().filter(|(_, entry)| goes(entry));
            gone.map(|(number, _)| (id, *number)).collect::<Vec<_>>()
        };
        let gone: Vec<_> = self.in_order(usize::MAX).take(looks).flat_map(of_line).collect();
        let mut swept = Vec::with_capacity(gone.len());
        for (id, number) in gone {
            swept.extend(self.remove(id, number));
            self.on_left(id);
        }
        swept
    }

    /// Takes out the lines of which everything may go, but for those that are next, up to so many nanoseconds of work; what is
    /// left of these is returned, too.
    pub(super) fn shed(&mut self, mut keep: u64, may_go: impl Fn(&Entry<T>) -> bool) -> (u64, Vec<Entry<T>>) {
        let mut leaving = Vec::new();
        for (id, line) in self.in_order(usize::MAX) {
            if keep == 0 && line.entries.iter().all(|(_, entry)| may_go(entry)) {
                leaving.push(id);
            } else {
                keep = keep.saturating_sub(line.work);
            }
        }
        let mut shed = Vec::new();
        for id in leaving {
            while let Some(entry) = self.displace(id) {
                shed.push(entry);
            }
        }
        (keep, shed)
    }

    /// A request took longer than estimated: its client pays for it, and its household.
    pub(super) fn charge(&mut self, id: LineId, cost: u64) {
        self.settle(id, |shares, key, _| shares.charge(key, cost));
    }

    /// The same if it took less: who pays for an estimate that others have made dear would wait as they do.
    pub(super) fn refund(&mut self, id: LineId, cost: u64) {
        self.settle(id, |shares, key, _| shares.refund(key, cost));
    }

    /// Nobody waits and nothing runs: whoever owes something harmed nobody.
    pub(super) fn forgive(&mut self) {
        if self.items == 0 {
            self.households.clear();
            self.shares = FairShares::new(HOUSEHOLDS_OWING_MAX);
        }
    }

    fn remove(&mut self, id: LineId, number: u64) -> Option<Entry<T>> {
        let line = self.households.get_mut(&id.household)?.lines.get_mut(&id.client)?;
        let place = line.find(number)?;
        let (_, entry) = line.entries.remove(place)?;
        line.work = line.work.saturating_sub(entry.work);
        self.work = self.work.saturating_sub(entry.work);
        self.items -= 1;
        if let Some(key) = entry.key.filter(|key| self.shared.get(key) == Some(&(id, number))) {
            self.shared.remove(&key);
        }
        if let Some(check) = entry.first.check.filter(|check| self.checks.get(check) == Some(&(id, number))) {
            self.checks.remove(&check);
        }
        if let Some((_, count)) = self.askers.get_mut(&(id.household, entry.asker)) {
            *count -= 1;
            if *count == 0 {
                self.askers.remove(&(id.household, entry.asker));
            }
        }
        if let Some((_, count)) = self.flows.get_mut(&entry.flow) {
            *count -= 1;
            if *count == 0 {
                self.flows.remove(&entry.flow);
            }
        }
        Some(entry)
    }

    /// A request of this client is gone, without a turn.
    fn on_left(&mut self, id: LineId) {
        self.settle(id, |shares, key, is_waiting| {
            if !is_waiting {
                shares.on_left(key);
            }
        });
    }

    /// Says what happened to the shares of a client and its household; lines that owe nothing any more are forgotten.
    fn settle(&mut self, id: LineId, told: impl Fn(&mut FairShares, u64, bool)) {
        let Self { households, shares, .. } = self;
        let Some(household) = households.get_mut(&id.household) else { return };
        let is_waiting = household.lines.get(&id.client).is_some_and(|line| !line.entries.is_empty());
        told(&mut household.shares, id.client, is_waiting);
        while let Some(client) = household.shares.forget_one() {
            household.lines.remove(&client);
        }
        let is_waiting = household.shares.waiting() > 0;
        told(shares, id.household, is_waiting);
        while let Some(household) = shares.forget_one() {
            households.remove(&household);
        }
    }
}

/// Clients whose first request is looked at for one that fits a server: more than have one under way; and of one household, so
/// that another is looked at, too.
const LOOKS_MAX: usize = 64;
const LOOKS_OF_HOUSEHOLD: usize = 16;
/// Requests of one line that are looked at for one whose flow is not held up: twice as many as one connection has under way.
const HELD_LOOKS_MAX: usize = 2 * SSAP_WINDOW;
/// Households that owe something and have nothing waiting; beyond, the smallest debts are forgiven.
const HOUSEHOLDS_OWING_MAX: usize = 16_384;
/// The same for the clients of one household: few of them owe much.
const LINES_OWING_MAX: usize = 64;

#[cfg(test)]
mod tests;
