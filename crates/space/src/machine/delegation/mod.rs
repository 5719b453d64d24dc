//! Who brings the changes of a subscription to its client: the broker, or under load the client itself.
//!
//! While what comes has to wait too long, subscriptions are *delegated*: their clients are told "I stop pushing this, check
//! every t", and ask what they missed by its number. When it is calm again they are taken back. Only who has said that it
//! accepts it is concerned; the least important first, of equals the dearest, and who is of rank 0 never.
//!
//! ```text
//! wait ≥ 50 ms at two looks    a quarter of the pushed work is delegated, and again while the wait does not become shorter
//! wait ≤ 10 ms for 5 s         an eighth comes back, and another each second: the most important first
//! a check costs more than      taken back at once
//!   what would be pushed
//! t                            so that all checks take a twentieth of a processor, and each less than half of its pushes
//! ```
//! No flapping: whoever was moved stays for 5 s, and delegated twice as long each time, up to 160 s. Pure: time is an argument, and a load
//! is what its driver measured. Driven by the writer; refuses to know of queries, rows and connections.

mod entry;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_control::Timestamp;

use super::standing::{KpRole, KpStanding, WEIGHT_MAX};
use entry::{DelegationEntry, check_load, own_interval};

/// How much may be delegated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelegationConfig {
    /// The share of the subscriptions of clients that accept it, 0 ..= 1; 0 is never.
    pub share_max: f64,
    /// Processors: where pushing to all of them takes less, handing it over helps nobody.
    pub load_min: f64,
    /// How long what comes has to wait before something is handed over. Half of what a change may wait by default: from
    /// here on others would be refused soon. With none it is done always.
    pub wait: Duration,
}

impl Default for DelegationConfig {
    fn default() -> Self {
        Self { share_max: 1.0, load_min: 0.02, wait: Duration::from_millis(50) }
    }
}

/// What is known of a subscriber, for this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DelegationTerms {
    /// It has said that it checks by itself while it is asked to.
    pub(crate) is_accepted: bool,
    /// How important it is; 0 is most, and never delegated.
    pub(crate) rank: u8,
    /// Whose it is, for whoever asks.
    pub(crate) client: u64,
}

impl DelegationTerms {
    /// Of a client that accepts it, or does not. Services are always pushed to; customers with a larger share are more
    /// important.
    pub(crate) fn new(is_accepted: bool, standing: KpStanding) -> Self {
        let rank = match standing.role {
            KpRole::Service => 0,
            KpRole::Customer => 1 + (WEIGHT_MAX / standing.weight.clamp(1, WEIGHT_MAX)).ilog2() as u8,
        };
        Self { is_accepted, rank, client: 0 }
    }

    /// The same, of this client.
    #[must_use]
    pub(crate) fn of(self, client: u64) -> Self {
        Self { client, ..self }
    }
}

/// The subscriptions of one client that accepts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientDelegation {
    /// Those that may be delegated.
    pub accepting: usize,
    /// Of these, those that are.
    pub delegated: usize,
    /// The shortest interval of its checks that it was told.
    pub every: Option<Duration>,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationCounts {
    /// Subscriptions whose clients check by themselves now.
    pub delegated: usize,
    /// Subscriptions whose clients have said that they would.
    pub accepting: usize,
    /// How often one was delegated.
    pub handed_over: u64,
    /// How often one was taken back.
    pub taken_back: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Delegator {
    share_max: f64,
    load_min: f64,
    wait: Duration,
    entries: BTreeMap<u64, DelegationEntry>,
    delegated: BTreeSet<u64>,
    /// Those who have not been told yet how it is.
    notices: BTreeSet<u64>,
    /// The latest time that was told, and when it was last looked.
    clock: Timestamp,
    looked: Option<Timestamp>,
    /// Looks in a row that found a long wait, and how long it was at the last look.
    pressed: u8,
    waited: Duration,
    calm_since: Option<Timestamp>,
    /// Nobody is taken back before.
    next_return: Timestamp,
    handed_over: u64,
    taken_back: u64,
}

impl Delegator {
    pub(crate) fn new(config: &DelegationConfig) -> Self {
        // What makes no sense delegates nobody.
        let share_max = if config.share_max > 0.0 { config.share_max.min(1.0) } else { 0.0 };
        Self {
            share_max,
            load_min: config.load_min.max(0.0),
            wait: config.wait,
            entries: BTreeMap::new(),
            delegated: BTreeSet::new(),
            notices: BTreeSet::new(),
            clock: Timestamp::ZERO,
            looked: None,
            pressed: 0,
            waited: Duration::ZERO,
            calm_since: None,
            next_return: Timestamp::ZERO,
            handed_over: 0,
            taken_back: 0,
        }
    }

    /// A subscription is pushed from now on, to a connection that has not heard of anything else.
    pub(crate) fn begin(&mut self, now: Timestamp, id: u64, terms: DelegationTerms) {
        self.release(now, id);
        self.clock = now;
        if !terms.is_accepted || terms.rank == 0 || self.share_max == 0.0 {
            self.entries.remove(&id);
        } else if let Some(entry) = self.entries.get_mut(&id) {
            (entry.rank, entry.client) = (terms.rank, terms.client);
        } else {
            self.entries.insert(id, DelegationEntry::new(now, &terms));
        }
    }

    /// There is no such subscription any more.
    pub(crate) fn end(&mut self, id: u64) {
        self.entries.remove(&id);
        self.delegated.remove(&id);
        self.notices.remove(&id);
    }

    /// Its connection is lost, or another has it: it is pushed, and nobody is told so.
    pub(crate) fn release(&mut self, now: Timestamp, id: u64) {
        self.notices.remove(&id);
        if self.delegated.remove(&id)
            && let Some(entry) = self.entries.get_mut(&id)
        {
            entry.on_returned(now);
            self.taken_back += 1;
        }
    }

    /// A change of so many rows was pushed; at the latest time that was told, which is near enough.
    pub(crate) fn note(&mut self, id: u64, rows: usize) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.note(self.clock, rows);
        }
    }

    /// Its client has checked: so often would something have been pushed since it did before.
    pub(crate) fn note_check(&mut self, now: Timestamp, id: u64, changes: u64) {
        if let Some(entry) = self.entries.get_mut(&id).filter(|_| self.delegated.contains(&id)) {
            entry.note_check(now, changes);
        }
    }

    /// How often its client is to check; none if it is pushed.
    pub(crate) fn every(&self, id: u64) -> Option<Duration> {
        self.delegated.get(&id).and_then(|id| self.entries.get(id)).map(|entry| entry.every)
    }

    /// The same, and its client is told.
    pub(crate) fn tell_every(&mut self, id: u64) -> Option<Duration> {
        let every = self.every(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.told = every;
        }
        every
    }

    pub(crate) fn is_delegated(&self, id: u64) -> bool {
        self.delegated.contains(&id)
    }

    /// Whether nothing is pushed to it, not even that.
    pub(crate) fn is_silent(&self, id: u64) -> bool {
        self.is_delegated(id) && !self.notices.contains(&id)
    }

    /// Whether its client has yet to be told how it is ([`Delegator::every`]); it is from now on.
    pub(crate) fn poll_notice(&mut self, id: u64) -> bool {
        self.notices.remove(&id)
    }

    /// When [`Delegator::look`] is to be called; never while nobody is concerned.
    pub(crate) fn poll_look(&self) -> Option<Timestamp> {
        if self.entries.is_empty() {
            return None;
        }
        Some(self.looked.map_or(Timestamp::ZERO, |looked| looked + LOOK_INTERVAL))
    }

    /// It is looked how long things have to wait. The answer is who is to be told something.
    pub(crate) fn look(&mut self, now: Timestamp, wait: Duration) -> Vec<u64> {
        (self.clock, self.looked) = (now, Some(now));
        if wait >= self.wait {
            (self.pressed, self.calm_since) = (self.pressed.saturating_add(1), None);
        } else {
            self.pressed = 0;
            self.calm_since = if wait <= self.wait / CALM_PART { self.calm_since.or(Some(now)) } else { None };
        }
        // What becomes shorter is being worked off: enough has been done.
        let is_growing = wait >= std::mem::replace(&mut self.waited, wait);
        let mut moved = Vec::new();
        if !self.delegated.is_empty() {
            self.set_intervals(now);
            self.return_idle(now, &mut moved);
        }
        if self.pressed >= PRESSED_LOOKS && is_growing {
            self.hand_over(now, &mut moved);
            self.set_intervals(now);
        } else if !self.delegated.is_empty()
            && self.calm_since.is_some_and(|since| now.since(since) >= CALM_AFTER)
            && now >= self.next_return
        {
            self.next_return = now + RETURN_PAUSE;
            self.take_back(now, &mut moved);
        }
        self.notices.extend(&moved);
        moved
    }

    pub(crate) fn counts(&self) -> DelegationCounts {
        DelegationCounts {
            delegated: self.delegated.len(),
            accepting: self.entries.len(),
            handed_over: self.handed_over,
            taken_back: self.taken_back,
        }
    }

    /// The same by client.
    pub(crate) fn by_client(&self) -> BTreeMap<u64, ClientDelegation> {
        let mut all: BTreeMap<u64, ClientDelegation> = BTreeMap::new();
        for (id, entry) in &self.entries {
            let own = all.entry(entry.client).or_default();
            own.accepting += 1;
            if self.delegated.contains(id) {
                own.delegated += 1;
                own.every = own.every.into_iter().chain(entry.told).min();
            }
        }
        all
    }

    /// Those whose checks cost more than what would be pushed to them.
    fn return_idle(&mut self, now: Timestamp, moved: &mut Vec<u64>) {
        let is_idle = |id: &&u64| self.entries.get(id).is_none_or(|entry| check_load(entry) > entry.load(now));
        let idle: Vec<u64> = self.delegated.iter().filter(is_idle).copied().take(MOVES_MAX - moved.len()).collect();
        for id in idle {
            self.return_one(now, id, moved);
        }
    }

    fn return_one(&mut self, now: Timestamp, id: u64, moved: &mut Vec<u64>) {
        self.release(now, id);
        moved.push(id);
    }

    /// The most important come back first, of equals the cheapest; one at least.
    fn take_back(&mut self, now: Timestamp, moved: &mut Vec<u64>) {
        let mut candidates: Vec<(u8, f64, u64)> = self
            .delegated
            .iter()
            .filter_map(|id| Some((*id, self.entries.get(id)?)))
            .filter(|(_, entry)| entry.is_settled(now))
            .map(|(id, entry)| (entry.rank, entry.load(now), id))
            .collect();
        keep_first(&mut candidates, MOVES_MAX - moved.len(), |a, b| {
            (a.0.cmp(&b.0)).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        });
        let mut room = (self.pushed_load(now) * RETURNED_PART).max(self.load_min);
        for (place, (_, load, id)) in candidates.into_iter().enumerate() {
            if place > 0 && load > room {
                return;
            }
            room -= load;
            self.return_one(now, id, moved);
        }
    }

    /// The least important go first, of equals the dearest, until a part of what is pushed is gone.
    fn hand_over(&mut self, now: Timestamp, moved: &mut Vec<u64>) {
        let pushed = self.pushed_load(now);
        let room = (self.entries.len() as f64 * self.share_max) as usize;
        let room = room.saturating_sub(self.delegated.len()).min(MOVES_MAX - moved.len());
        if pushed < self.load_min || room == 0 {
            return;
        }
        let mut candidates: Vec<(u8, f64, u64)> = self
            .entries
            .iter()
            .filter(|(id, entry)| self.may_go(now, **id, entry))
            .map(|(id, entry)| (entry.rank, entry.load(now), *id))
            .collect();
        keep_first(&mut candidates, room, |a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        let (mut checks, mut relief) = (self.checks_cost(), pushed * DELEGATED_PART);
        for (_, load, id) in candidates {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            checks += entry.check_cost();
            if relief <= 0.0 || checks > ALLOWANCE * INTERVAL_MAX.as_secs_f64() {
                return;
            }
            relief -= load;
            entry.on_delegated(now);
            self.delegated.insert(id);
            self.handed_over += 1;
            moved.push(id);
        }
    }

    /// It is pushed, has been for long enough, and gains much by being checked.
    fn may_go(&self, now: Timestamp, id: u64, entry: &DelegationEntry) -> bool {
        !self.delegated.contains(&id) && entry.is_settled(now) && own_interval(entry, now) <= ENTRY_INTERVAL_MAX
    }

    /// Work that pushing is now, as processors.
    fn pushed_load(&self, now: Timestamp) -> f64 {
        let pushed = self.entries.iter().filter(|(id, _)| !self.delegated.contains(id));
        pushed.map(|(_, entry)| entry.load(now)).sum()
    }

    /// Seconds of work if everybody who is delegated checks once.
    fn checks_cost(&self) -> f64 {
        self.delegated.iter().filter_map(|id| self.entries.get(id)).map(DelegationEntry::check_cost).sum()
    }

    /// All checks together take the allowance at most, and each less than half of the pushes that it replaces.
    fn set_intervals(&mut self, now: Timestamp) {
        let common = Duration::from_secs_f64(self.checks_cost() / ALLOWANCE);
        for id in &self.delegated {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.every = common.max(own_interval(entry, now)).clamp(INTERVAL_MIN, INTERVAL_MAX);
            }
        }
    }
}

/// The first so many in this order, in order.
fn keep_first<T>(all: &mut Vec<T>, count: usize, order: impl Fn(&T, &T) -> std::cmp::Ordering) {
    if count < all.len() {
        all.select_nth_unstable_by(count, &order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
}

/// How often it is looked while somebody accepts to be delegated.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The part of the wait below which it is calm: there the load has room to grow without another handover.
const CALM_PART: u32 = 5;
/// One long wait is an accident.
const PRESSED_LOOKS: u8 = 2;
/// How long it has to be calm before somebody is taken back.
const CALM_AFTER: Duration = Duration::from_secs(5);
/// The time in which it is seen what those who were taken back cost.
const RETURN_PAUSE: Duration = Duration::from_secs(1);
/// Subscriptions that are moved at one look: 256 a second, each of which is one short message.
const MOVES_MAX: usize = 64;
/// The part of the pushed work that goes at one look.
const DELEGATED_PART: f64 = 0.25;
/// The part of it that comes back at once.
const RETURNED_PART: f64 = 0.125;
/// Processors that all checks together may take.
const ALLOWANCE: f64 = 0.05;
/// The shortest interval that a client is told: a reader notices less than that of a busy broker anyway.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The longest: half of the time for which a silent subscription is kept.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Who would have to wait longer than this between checks that are worth it is pushed.
const ENTRY_INTERVAL_MAX: Duration = Duration::from_secs(20);
