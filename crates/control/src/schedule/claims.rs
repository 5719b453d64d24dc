//! Who has a claim before who has none, fairly among equals.
//!
//! ```text
//! order     entitled, then excess; every 32nd item, or rarer than all entitled parents have had one, is excess
//! in each   the parent with the lowest tag, then its flow with the lowest tag
//! serving   clock ← tag;  tag ← tag + (1 + cost/1024) / weight                       (of the flow, and of its parent)
//! waking    tag ← max(tag, clock), and before all others that have the same
//! ```
//! Within an order this is start-time fair queueing (Goyal, Vin and Cheng, 1996), twice: whoever comes back after having
//! had less than its share is next, and of everybody else it waits for one item at most. One item at a time, whatever
//! the weights.
//!
//! *Claims belong to a flow, not to its items.* A flow has so much entitled and so much excess waiting, as what came said
//! of itself; it stands among the entitled as long as it has any of the first left, and sends its items in the order in
//! which they came. So what is in excess does not hold up what is not, and nobody overtakes itself.
//!
//! *Sparse.* An item in excess of a flow that had nothing waiting counts as entitled while its parent is below the fair
//! share: as many a round as one flow. All that a parent has in excess is one flow in that, so new names gain nothing.
//!
//! *The longest* is a flow by what it has entitled, or a parent by all that it has in excess, and of that its longest
//! flow. Knows no items and no time; driven by [`Scheduler`](super::Scheduler).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::links::NIL;
use super::longest::bucket;
use super::ranking::Ranking;

/// Whether an item is within what its sender may expect to be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entitlement {
    /// The item is within the claim of its sender.
    #[default]
    Entitled,
    /// It is more than that.
    Excess,
}

/// Who is next, by claim, parent and flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    flows: Vec<ClaimFlow>,
    parents: Vec<ClaimParent>,
    by_key: BTreeMap<u64, u32>,
    free: Vec<u32>,
    orders: [ClaimOrder; 2],
    /// Items since one in excess was served, or nobody waited for that.
    since_excess: usize,
    /// The time of a server that gives every busy flow the same; see [`ClaimParent::used`].
    fair: u64,
    by_entitled: Sizes,
    by_excess: Sizes,
    /// Parents that have something waiting.
    busy_parents: usize,
}

#[derive(Clone, Debug, Default)]
struct ClaimOrder {
    clock: u64,
    /// Parents that have something to send here.
    parents: Ranking,
    /// Flows that stand here.
    flows: usize,
}

#[derive(Clone, Copy, Debug)]
struct ClaimFlow {
    parent: u32,
    weight: u32,
    tags: [u64; 2],
    /// Costs that wait, by claim.
    waiting: [u64; 2],
    stands: Option<Entitlement>,
}

#[derive(Clone, Debug, Default)]
struct ClaimParent {
    key: u64,
    /// Flows that belong to it.
    members: u32,
    /// Items of theirs that wait.
    items: usize,
    branches: [Branch; 2],
    excess: u64,
    /// Up to when, by the clock of fair shares, it has had a flow's share for what it has in excess.
    used: u64,
    by_excess: Sizes,
}

#[derive(Clone, Debug, Default)]
struct Branch {
    clock: u64,
    tag: u64,
    flows: Ranking,
}

/// Sizes, roughly: an entry moves only when its size has changed by a ninth.
#[derive(Clone, Debug, Default)]
struct Sizes(BTreeSet<(u16, u32)>);

impl Sizes {
    fn on_change(&mut self, id: u32, before: u64, after: u64) {
        let (old, new) = (bucket(before) as u16, bucket(after) as u16);
        if before > 0 && (old != new || after == 0) {
            self.0.remove(&(old, id));
        }
        if after > 0 && (old != new || before == 0) {
            self.0.insert((new, id));
        }
    }

    fn longest(&self) -> Option<u32> {
        self.0.last().map(|(_, id)| *id)
    }
}

impl ClaimFlow {
    const UNKNOWN: Self = Self { parent: NIL, weight: 1, tags: [0; 2], waiting: [0; 2], stands: None };
}

impl Claims {
    pub(super) fn grow(&mut self, len: usize) {
        if self.flows.len() < len {
            self.flows.resize(len, ClaimFlow::UNKNOWN);
        }
    }

    pub(super) fn set_weight(&mut self, flow: u32, weight: u32) {
        self.flows[flow as usize].weight = weight;
    }

    /// Whom a flow belongs to, from when it has nothing waiting.
    pub(super) fn set_parent(&mut self, flow: u32, key: u64) {
        let ClaimFlow { parent, stands, .. } = self.flows[flow as usize];
        let is_same = self.parents.get(parent as usize).is_some_and(|parent| parent.key == key);
        if is_same || stands.is_some() {
            return;
        }
        self.leave_parent(flow);
        let parent = match self.by_key.get(&key) {
            Some(parent) => *parent,
            None => self.found_parent(key),
        };
        self.parents[parent as usize].members += 1;
        let flow = &mut self.flows[flow as usize];
        (flow.parent, flow.tags) = (parent, [0; 2]);
    }

    fn found_parent(&mut self, key: u64) -> u32 {
        let parent = self.free.pop().unwrap_or(self.parents.len() as u32);
        if parent as usize == self.parents.len() {
            self.parents.push(ClaimParent::default());
        }
        self.parents[parent as usize] = ClaimParent { key, ..ClaimParent::default() };
        self.by_key.insert(key, parent);
        parent
    }

    fn leave_parent(&mut self, flow: u32) {
        let index = core::mem::replace(&mut self.flows[flow as usize].parent, NIL);
        let Some(parent) = self.parents.get_mut(index as usize) else { return };
        parent.members -= 1;
        if parent.members == 0 {
            self.by_key.remove(&parent.key);
            self.free.push(index);
        }
    }

    /// An item waits behind the others of its flow.
    pub(super) fn on_pushed(&mut self, flow: u32, cost: u32, claim: Entitlement) {
        if self.flows[flow as usize].parent == NIL {
            // Nobody's: a parent of its own, beyond all that callers name.
            self.set_parent(flow, u64::MAX - u64::from(flow));
        }
        let ClaimFlow { parent, stands, .. } = self.flows[flow as usize];
        let is_sparse = claim == Entitlement::Excess && stands.is_none() && self.take_fair_share(parent);
        let claim = if is_sparse { Entitlement::Entitled } else { claim };
        let items = &mut self.parents[parent as usize].items;
        self.busy_parents += usize::from(*items == 0);
        *items += 1;
        self.weigh(flow, claim, |waiting| waiting + u64::from(cost));
        self.stand(flow);
    }

    /// The flow to serve.
    pub(super) fn next(&self) -> Option<u32> {
        let (entitled, excess) = (&self.orders[0].parents, &self.orders[1].parents);
        let round = EXCESS_EVERY.max(entitled.len() + 1);
        let is_excess = entitled.is_empty() || (!excess.is_empty() && self.since_excess + 1 >= round);
        let order = usize::from(is_excess);
        let parent = self.orders[order].parents.first()?;
        self.parents[parent as usize].branches[order].flows.first()
    }

    /// Whether something entitled waits.
    pub(super) fn has_entitled(&self) -> bool {
        !self.orders[0].parents.is_empty()
    }

    /// An item of this flow has left in its turn.
    pub(super) fn on_served(&mut self, flow: u32, cost: u32) {
        let ClaimFlow { parent, stands, weight, .. } = self.flows[flow as usize];
        let Some(claim) = stands else { return };
        self.count_out(parent);
        let order = claim as usize;
        let charge = (UNIT + u64::from(cost) * UNIT / COST_OF_ONE) / u64::from(weight.max(1));
        let busy = self.orders[0].flows + self.orders[1].parents.len();
        self.fair += UNIT / (busy.max(1) as u64);
        self.since_excess =
            if claim == Entitlement::Excess || self.orders[1].parents.is_empty() { 0 } else { self.since_excess + 1 };
        if claim == Entitlement::Excess {
            let used = &mut self.parents[parent as usize].used;
            *used = (*used).max(self.fair) + UNIT;
        }
        self.leave_order(flow, claim);
        let branch = &mut self.parents[parent as usize].branches[order];
        branch.clock = self.flows[flow as usize].tags[order];
        self.orders[order].clock = self.orders[order].clock.max(branch.tag);
        branch.tag = (branch.tag + charge) | STANDING;
        let tag = &mut self.flows[flow as usize].tags[order];
        *tag = (*tag + charge) | STANDING;
        self.list_parent(parent, order);
        self.pay(flow, cost, [claim, Entitlement::Entitled, Entitlement::Excess]);
        self.stand(flow);
    }

    /// The oldest item of this flow has left out of turn.
    pub(super) fn on_evicted(&mut self, flow: u32, cost: u32) {
        self.count_out(self.flows[flow as usize].parent);
        self.pay(flow, cost, [Entitlement::Excess, Entitlement::Entitled, Entitlement::Excess]);
        self.stand(flow);
    }

    fn count_out(&mut self, parent: u32) {
        if let Some(parent) = self.parents.get_mut(parent as usize) {
            parent.items = parent.items.saturating_sub(1);
            self.busy_parents -= usize::from(parent.items == 0);
        }
    }

    pub(super) fn busy_parents(&self) -> usize {
        self.busy_parents
    }

    /// Items of a parent that wait, and of how many flows.
    pub(super) fn parent_share(&self, key: u64) -> (usize, usize) {
        let parent = self.by_key.get(&key).map(|parent| &self.parents[*parent as usize]);
        let flows = |parent: &ClaimParent| parent.branches.iter().map(|branch| branch.flows.len()).sum();
        parent.map_or((0, 0), |parent| (parent.items, flows(parent)))
    }

    /// A flow without anything waiting is forgotten.
    pub(super) fn forget(&mut self, flow: u32) {
        if (flow as usize) < self.flows.len() {
            self.leave_parent(flow);
            self.flows[flow as usize] = ClaimFlow::UNKNOWN;
        }
    }

    /// About the longest; see above.
    pub(super) fn longest(&self) -> Option<u32> {
        let flow = self.by_entitled.longest();
        let parent = self.by_excess.longest().map(|parent| &self.parents[parent as usize]);
        let entitled = flow.map_or(0, |flow| self.flows[flow as usize].waiting[0]);
        match parent {
            Some(parent) if parent.excess >= entitled => parent.by_excess.longest(),
            _ => flow,
        }
    }

    /// Whether a flow is as good as the longest for an item with this claim: nobody else would have to make room for it.
    pub(super) fn is_longest(&self, flow: u32, claim: Entitlement) -> bool {
        let Some(ClaimFlow { parent, waiting, .. }) = self.flows.get(flow as usize) else { return false };
        let entitled = self.by_entitled.longest().map_or(0, |flow| self.flows[flow as usize].waiting[0]);
        let excess = self.by_excess.longest().map_or(0, |parent| self.parents[parent as usize].excess);
        match claim {
            Entitlement::Entitled => excess < entitled && bucket(waiting[0]) >= bucket(entitled),
            Entitlement::Excess => self.parents.get(*parent as usize).is_some_and(|own| {
                let longest = own.by_excess.longest().map_or(0, |flow| self.flows[flow as usize].waiting[1]);
                excess >= entitled && bucket(own.excess) >= bucket(excess) && bucket(waiting[1]) >= bucket(longest)
            }),
        }
    }

    /// Whether this parent has had less than one flow's share for what it has in excess; then it has this item more.
    fn take_fair_share(&mut self, parent: u32) -> bool {
        let used = &mut self.parents[parent as usize].used;
        let is_below = *used <= self.fair;
        if is_below {
            *used = self.fair + UNIT;
        }
        is_below
    }

    /// Takes what an item counted for from what its flow has waiting, the first claim first.
    fn pay(&mut self, flow: u32, cost: u32, from: [Entitlement; 3]) {
        let mut left = u64::from(cost);
        for claim in from {
            let part = left.min(self.flows[flow as usize].waiting[claim as usize]);
            if part > 0 {
                self.weigh(flow, claim, |waiting| waiting - part);
            }
            left -= part;
        }
    }

    fn weigh(&mut self, flow: u32, claim: Entitlement, change: impl FnOnce(u64) -> u64) {
        let index = flow;
        let flow = &mut self.flows[index as usize];
        let before = flow.waiting[claim as usize];
        let after = change(before);
        flow.waiting[claim as usize] = after;
        match claim {
            Entitlement::Entitled => self.by_entitled.on_change(index, before, after),
            Entitlement::Excess => {
                let parent = &mut self.parents[flow.parent as usize];
                parent.by_excess.on_change(index, before, after);
                let sum = parent.excess;
                parent.excess = sum - before + after;
                self.by_excess.on_change(flow.parent, sum, parent.excess);
            }
        }
    }

    /// Puts a flow where it belongs now.
    fn stand(&mut self, flow: u32) {
        let ClaimFlow { parent, waiting, stands, tags, .. } = self.flows[flow as usize];
        let belongs = match waiting {
            [0, 0] => None,
            [0, _] => Some(Entitlement::Excess),
            _ => Some(Entitlement::Entitled),
        };
        if stands == belongs {
            return;
        }
        if let Some(claim) = stands {
            self.leave_order(flow, claim);
            self.list_parent(parent, claim as usize);
        }
        let Some(claim) = belongs else { return };
        let order = claim as usize;
        let branch = &mut self.parents[parent as usize].branches[order];
        let was_idle = branch.flows.is_empty();
        let tag = woken(tags[order], branch.clock);
        branch.flows.insert(tag, flow);
        self.orders[order].flows += 1;
        self.flows[flow as usize].tags[order] = tag;
        self.flows[flow as usize].stands = Some(claim);
        if was_idle {
            branch.tag = woken(branch.tag, self.orders[order].clock);
            self.list_parent(parent, order);
        }
    }

    /// Takes a flow from where it stands, and its parent with it, which may have to be listed again.
    fn leave_order(&mut self, flow: u32, claim: Entitlement) {
        let ClaimFlow { parent, tags, .. } = self.flows[flow as usize];
        let order = claim as usize;
        let branch = &mut self.parents[parent as usize].branches[order];
        branch.flows.remove(tags[order], flow);
        self.orders[order].parents.remove(branch.tag, parent);
        self.orders[order].flows -= 1;
        self.flows[flow as usize].stands = None;
    }

    fn list_parent(&mut self, parent: u32, order: usize) {
        let branch = &self.parents[parent as usize].branches[order];
        if !branch.flows.is_empty() {
            self.orders[order].parents.insert(branch.tag, parent);
        }
    }
}

/// The tag of somebody who comes back: what it had before is worth nothing if that was less than its share. Then it is
/// also before those who were served and have the same.
fn woken(tag: u64, clock: u64) -> u64 {
    if tag > clock { tag } else { clock & !STANDING }
}

/// In the lowest bit of tags: of those who have the same, this one has been served. Whoever comes now is before it.
const STANDING: u64 = 1;
/// One item, in the units of tags and clocks.
const UNIT: u64 = 1 << 20;
/// What an item costs beyond which it counts for more than one: with bytes, a KiB more is one more.
const COST_OF_ONE: u64 = 1024;
/// One item of so many is one in excess, at least.
const EXCESS_EVERY: usize = 32;
