//! Who is read next, when not everybody can be: an order of service instead of a punishment.
//!
//! A *flow* is a connection with something unread; its *parent* is its user, or its network. The caller says when a flow
//! begins to wait, asks for the next [`Visit`], serves it, and tells what that came to in *units* (a small message is
//! one; the caller adds what bytes and copies cost). Knows no sockets and no bytes. Nobody is delayed while nobody waits: who
//! reads everybody dry need not ask at all.
//!
//! ```text
//! Per parent: tag u, counter n. For all: U.
//! 1  each unit of work: U += 1/(parents that wait or have u > U); u = max(u, U) + 1; n += 1
//! 2  all of a parent's flows are read dry: n = 0
//! 3  SPARSE   = u ≤ U + 2 and n < 2, judged when the parent begins to wait and when it was served
//! 4  ENTITLED = its next message finds a token (`claim`)
//! 5  sparse before entitled before excess; each fair by parent and weight, then by flow
//! 6  every max(32, entitled parents + 1)-th unit goes to excess
//! 7  what the operator has granted stands with the sparse, with the grant as its weight
//! ```
//! *How much at once.* New flows are seen when a turn is over, so within a turn it does not matter whether equals alternate
//! after each message or once: a visit has the turn's units by the flows that wait, and at least [`QUANTUM_MIN`]. With few
//! flows that is one read of the socket. Who is entitled to half of a visit has a whole one.

mod fair;
#[cfg(test)]
mod tests;
mod upkeep;

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use crate::time::Timestamp;
use fair::{Fair, ONE, charge};
use upkeep::SWEEP_MIN;

/// The orders, the first first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceOrder {
    /// Below the fair share, and dry just now; or granted.
    Sparse,
    /// Within what is usual.
    Entitled,
    /// The rest.
    Excess,
}

/// How a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// When its next message finds a token; [`Timestamp::MAX`] if it never does.
    pub entitled_at: Timestamp,
    /// Its share beside others, at least 1.
    pub weight: u32,
    /// What the operator has granted it, as a weight; 0 if nothing.
    pub grant: u32,
}

/// A flow that waits. Stale ones are harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlace {
    index: u32,
    generation: u32,
}

/// Serve this flow, about so many units of it, and tell [`ReadOrder::served`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The caller's name of the flow.
    pub key: u32,
    /// The flow's place.
    pub place: ReadPlace,
    /// In which order it is served.
    pub order: ServiceOrder,
    /// What it may take, at least 1. One message may be more than that, and is then paid for.
    pub units: u32,
    /// How long it has waited for this.
    pub waited: Duration,
}

/// What is left of a flow after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// There is nothing left to read: it waits no more.
    Dry,
    /// There is more, and it stands like this.
    More(Standing),
}

#[derive(Debug)]
struct ReadFlow {
    key: u32,
    parent: u32,
    /// Which of the flows that had this place.
    generation: u32,
    /// Which of its entries in lists counts.
    stamp: u32,
    standing: Standing,
    /// In which of its parent's lists it is.
    list: ParentList,
    tag: u64,
    since: Timestamp,
    is_waiting: bool,
}

/// The lists of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParentList {
    Granted,
    Entitled,
    Excess,
}

const LISTS: usize = 3;

#[derive(Debug, Default)]
struct ReadParent {
    key: u64,
    u: u64,
    n: u32,
    /// Flows that wait, all and by list.
    waiting: u32,
    lens: [u32; LISTS],
    lists: [Fair; LISTS],
    tags: [u64; LISTS],
    /// In which orders it is listed: entries with another stamp are void.
    listed: [bool; LISTS],
    stamp: u32,
    /// It waits no more, and has had more than its share.
    is_ahead: bool,
    is_used: bool,
}

/// The flows that wait.
#[derive(Debug, Default)]
pub struct ReadOrder {
    flows: Vec<ReadFlow>,
    free_flows: Vec<u32>,
    parents: Vec<ReadParent>,
    free_parents: Vec<u32>,
    by_key: BTreeMap<u64, u32>,
    orders: [Fair; LISTS],
    /// U.
    clock: u64,
    waiting: u32,
    waiting_parents: u32,
    /// Parents with flows in the list.
    parents_in: [u32; LISTS],
    ahead: BinaryHeap<Reverse<(u64, u32)>>,
    ahead_len: u32,
    /// Flows in excess that will find a token, by when.
    promised: BinaryHeap<Reverse<(Timestamp, u32, u32)>>,
    /// Units since excess had one of its own.
    since_excess: u32,
    quantum: u32,
    current: Option<Current>,
    generations: u32,
}

/// The visit that goes on: its flow and its parent are in no list.
#[derive(Clone, Copy, Debug)]
struct Current {
    place: ReadPlace,
    parent: u32,
    order: ServiceOrder,
    tag: u64,
    weight: u32,
}

impl ReadOrder {
    /// How many flows wait.
    pub fn len(&self) -> usize {
        self.waiting as usize
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// A flow has something to read. `spent`: units that it was just served without being asked.
    pub fn wait(&mut self, key: u32, parent: u64, standing: Standing, spent: u32, now: Timestamp) -> ReadPlace {
        let parent = self.parent(parent);
        let list = list_of(&standing, now);
        self.generations = self.generations.wrapping_add(1);
        let generation = self.generations;
        let flow = ReadFlow { key, parent, generation, stamp: 0, standing, list, tag: 0, since: now, is_waiting: true };
        let index = if let Some(index) = self.free_flows.pop() {
            let stamp = self.flows[index as usize].stamp.wrapping_add(1);
            self.flows[index as usize] = ReadFlow { stamp, ..flow };
            index
        } else {
            self.flows.push(flow);
            (self.flows.len() - 1) as u32
        };
        self.waiting += 1;
        let it = &mut self.parents[parent as usize];
        it.waiting += 1;
        if it.waiting == 1 {
            self.waiting_parents += 1;
            if core::mem::take(&mut it.is_ahead) {
                self.ahead_len -= 1;
            }
        }
        if spent > 0 {
            self.account(parent, spent);
        }
        self.enlist(index, now);
        ReadPlace { index, generation }
    }

    /// A flow waits no more, for another reason than having been read.
    pub fn leave(&mut self, place: ReadPlace) {
        if self.is_current_flow(place) {
            self.flows[place.index as usize].is_waiting = false;
            return;
        }
        if self.flow(place).is_some() {
            self.delist(place.index);
            self.discharge(place.index);
        }
    }

    /// A turn begins in which so many units are served.
    pub fn begin_turn(&mut self, units: u32, now: Timestamp) {
        self.settle(now);
        self.quantum = (units / self.waiting.max(1)).max(QUANTUM_MIN);
        while let Some(&Reverse((at, index, stamp))) = self.promised.peek()
            && at <= now
        {
            self.promised.pop();
            if self.is_entry(index, stamp) {
                self.delist(index);
                self.enlist(index, now);
            }
        }
        self.sweep();
    }

    /// Who is served next. `tokens` says how many messages of a flow are entitled now.
    pub fn next(&mut self, now: Timestamp, mut tokens: impl FnMut(u32) -> u32) -> Option<Visit> {
        self.settle(now);
        loop {
            let order = self.order_of_next()?;
            let Some(entry) = self.orders[order as usize].pop() else { continue };
            let parent = &mut self.parents[entry.key as usize];
            if parent.stamp != entry.stamp || !parent.is_used {
                continue;
            }
            parent.listed[order as usize] = false;
            let Some((index, flow_tag)) = self.take_flow(entry.key, order) else { continue };
            let flow = &mut self.flows[index as usize];
            let place = ReadPlace { index, generation: flow.generation };
            let is_granted = flow.list == ParentList::Granted;
            let weight = if is_granted { flow.standing.grant.max(1) } else { flow.standing.weight.max(1) };
            flow.tag = flow_tag;
            let key = flow.key;
            let weight = if order == ServiceOrder::Sparse && !is_granted { 1 } else { weight };
            self.current = Some(Current { place, parent: entry.key, order, tag: entry.tag, weight });
            let units = match order {
                ServiceOrder::Sparse if !is_granted => SPARSE_UNITS - self.parents[entry.key as usize].n.min(1),
                ServiceOrder::Sparse | ServiceOrder::Entitled => {
                    let tokens = tokens(key);
                    if tokens == 0 {
                        // Somebody else has used it, or it was a promise of another time.
                        self.put_back(now);
                        continue;
                    }
                    self.whole_visit(tokens)
                }
                ServiceOrder::Excess if self.is_due() => self.since_excess.div_ceil(self.excess_every() - 1).max(1),
                ServiceOrder::Excess => self.quantum,
            };
            let waited = now.since(self.flows[index as usize].since);
            return Some(Visit { key, place, order, units, waited });
        }
    }

    /// What the visit came to.
    pub fn served(&mut self, place: ReadPlace, units: u32, result: Served, now: Timestamp) {
        let Some(current) = self.current.take_if(|current| current.place == place) else { return };
        let units = units.max(1);
        self.account(current.parent, units);
        self.since_excess = match current.order {
            ServiceOrder::Excess => self.since_excess.saturating_sub(units.saturating_mul(self.excess_every() - 1)),
            // Nobody saves up for a time at which nobody is there.
            _ if self.parents_in[ParentList::Excess as usize] == 0 => 0,
            ServiceOrder::Sparse | ServiceOrder::Entitled => self.since_excess.saturating_add(units),
        };
        let parent = &mut self.parents[current.parent as usize];
        parent.tags[current.order as usize] = current.tag + charge(units, current.weight);
        let flow = &mut self.flows[place.index as usize];
        flow.tag += charge(units, flow.standing.weight);
        match result {
            Served::More(standing) if flow.is_waiting => {
                (flow.standing, flow.since) = (standing, now);
                self.enlist(place.index, now);
            }
            _ => self.discharge(place.index),
        }
        self.list_parent(current.parent);
    }

    /// Nobody has said what a visit came to: its flow is gone, or waits on.
    fn settle(&mut self, now: Timestamp) {
        if let Some(Current { place, .. }) = self.current {
            let flow = &self.flows[place.index as usize];
            self.served(place, 1, Served::More(flow.standing), now);
        }
    }

    /// The visit is not made: its flow is listed anew.
    fn put_back(&mut self, now: Timestamp) {
        let Some(Current { place, parent, order, tag, .. }) = self.current.take() else { return };
        let flow = &mut self.flows[place.index as usize];
        flow.standing.entitled_at = flow.standing.entitled_at.max(now + RETRY);
        self.parents[parent as usize].tags[order as usize] = tag;
        self.enlist(place.index, now);
        self.list_parent(parent);
    }

    /// What an entitled flow with so many tokens is served at once. Tokens for half a visit make a whole one: a second visit
    /// in excess for the rest would be another read of the same socket, and the flow pays for all of it in this order.
    fn whole_visit(&self, tokens: u32) -> u32 {
        if tokens >= self.quantum / 2 { self.quantum } else { tokens }
    }

    fn order_of_next(&self) -> Option<ServiceOrder> {
        let has = |order: ServiceOrder| !self.orders[order as usize].is_empty();
        if has(ServiceOrder::Excess) && self.is_due() {
            return Some(ServiceOrder::Excess);
        }
        [ServiceOrder::Sparse, ServiceOrder::Entitled, ServiceOrder::Excess].into_iter().find(|order| has(*order))
    }

    /// Rule 6.
    fn excess_every(&self) -> u32 {
        let entitled = self.parents_in[ParentList::Entitled as usize] + self.parents_in[ParentList::Granted as usize];
        EXCESS_EVERY.max(entitled + 1)
    }

    fn is_due(&self) -> bool {
        self.since_excess + 1 >= self.excess_every()
    }

    /// Takes the next flow of a parent that is served in this order out of its list.
    fn take_flow(&mut self, parent: u32, order: ServiceOrder) -> Option<(u32, u64)> {
        let is_sparse = self.is_sparse(parent);
        let lists: &[ParentList] = match order {
            ServiceOrder::Sparse if is_sparse => &[ParentList::Granted, ParentList::Entitled, ParentList::Excess],
            ServiceOrder::Sparse => &[ParentList::Granted],
            ServiceOrder::Entitled => &[ParentList::Entitled],
            ServiceOrder::Excess => &[ParentList::Excess],
        };
        for list in lists {
            while let Some(entry) = self.parents[parent as usize].lists[*list as usize].pop() {
                if self.is_entry(entry.key, entry.stamp) {
                    self.delist(entry.key);
                    return Some((entry.key, entry.tag));
                }
            }
        }
        None
    }

    /// Rule 3.
    fn is_sparse(&self, parent: u32) -> bool {
        let parent = &self.parents[parent as usize];
        parent.n < SPARSE_UNITS && parent.u <= self.clock + u64::from(SPARSE_UNITS) * ONE
    }

    /// Rule 1.
    fn account(&mut self, parent: u32, units: u32) {
        let active = u64::from((self.waiting_parents + self.ahead_len).max(1));
        let it = &mut self.parents[parent as usize];
        it.u = it.u.max(self.clock) + u64::from(units) * ONE;
        it.n = it.n.saturating_add(units);
        self.clock += u64::from(units) * ONE / active;
        while let Some(&Reverse((u, index))) = self.ahead.peek()
            && u <= self.clock
        {
            self.ahead.pop();
            let it = &mut self.parents[index as usize];
            if it.is_ahead && it.u == u {
                it.is_ahead = false;
                self.ahead_len -= 1;
                self.forget_parent(index);
            }
        }
    }

    /// Puts a waiting flow into the list where it belongs, and its parent where that belongs.
    fn enlist(&mut self, index: u32, now: Timestamp) {
        let flow = &mut self.flows[index as usize];
        flow.list = list_of(&flow.standing, now);
        let (list, parent, at, stamp) = (flow.list, flow.parent, flow.standing.entitled_at, flow.stamp);
        let it = &mut self.parents[parent as usize];
        it.lists[list as usize].push(index, stamp, flow.tag);
        it.lens[list as usize] += 1;
        if it.lists[list as usize].len() > 4 * it.lens[list as usize] as usize + SWEEP_MIN {
            let flows = &self.flows;
            it.lists[list as usize].retain(|entry| is_entry(flows, entry.key, entry.stamp));
        }
        self.parents_in[list as usize] += u32::from(it.lens[list as usize] == 1);
        if list == ParentList::Excess && at < Timestamp::MAX {
            self.promised.push(Reverse((at, index, stamp)));
        }
        self.list_parent(parent);
    }

    /// A flow is in no list any more; its entry there is void or taken.
    fn delist(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        let it = &mut self.parents[flow.parent as usize];
        it.lens[flow.list as usize] -= 1;
        self.parents_in[flow.list as usize] -= u32::from(it.lens[flow.list as usize] == 0);
        // Whatever entry is left of it is void.
        flow.stamp = flow.stamp.wrapping_add(1);
    }

    /// Lists a parent in every order in which it has something and is not listed yet.
    fn list_parent(&mut self, parent: u32) {
        let is_waiting = self.parents.get(parent as usize).is_some_and(|it| it.waiting > 0);
        if !is_waiting || self.current.is_some_and(|current| current.parent == parent) {
            return;
        }
        let is_sparse = self.is_sparse(parent);
        let it = &mut self.parents[parent as usize];
        let [granted, entitled, excess] = it.lens.map(|len| len > 0);
        let wanted = [granted || is_sparse && (entitled || excess), entitled, excess];
        for (order, is_wanted) in wanted.into_iter().enumerate() {
            if is_wanted && !it.listed[order] {
                it.listed[order] = true;
                self.orders[order].push(parent, it.stamp, it.tags[order]);
            }
        }
    }

    fn is_entry(&self, index: u32, stamp: u32) -> bool {
        is_entry(&self.flows, index, stamp)
    }

    fn flow(&self, place: ReadPlace) -> Option<&ReadFlow> {
        let flow = self.flows.get(place.index as usize)?;
        (flow.is_waiting && flow.generation == place.generation).then_some(flow)
    }

    fn is_current_flow(&self, place: ReadPlace) -> bool {
        self.current.is_some_and(|current| current.place == place)
    }
}

/// Whether this entry of a list is the one that counts.
fn is_entry(flows: &[ReadFlow], index: u32, stamp: u32) -> bool {
    flows.get(index as usize).is_some_and(|flow| flow.is_waiting && flow.stamp == stamp)
}

fn list_of(standing: &Standing, now: Timestamp) -> ParentList {
    match (standing.entitled_at <= now, standing.grant) {
        (false, _) => ParentList::Excess,
        (true, 0) => ParentList::Entitled,
        (true, _) => ParentList::Granted,
    }
}

/// Rule 3: so many units since it was dry, and ahead of the others.
const SPARSE_UNITS: u32 = 2;
/// Rule 6.
const EXCESS_EVERY: u32 = 32;
/// A visit is worth the trouble; others wait for this longer.
pub const QUANTUM_MIN: u32 = 4;
/// A token that was not there is looked for again after this.
const RETRY: Duration = Duration::from_millis(1);
