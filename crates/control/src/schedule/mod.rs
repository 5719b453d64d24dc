//! Who is next, and who has to go when there is no more room.
//!
//! [`Scheduler`] is one bounded pool of waiting items with a queue for each flow (a publisher, a principal, a class; the
//! caller says which). It knows neither time nor what an item is, only its cost, in whatever unit the caller counts:
//! messages, bytes, microseconds of work. Three rules decide who is next:
//!
//! * [`SchedulerRule::Claims`], what a receiver's queue is served by: who has a claim before who has none, fairly by
//!   parent and then by flow, one item at a time, and the head of the longest flow is dropped;
//! * [`SchedulerRule::Drr`], practical: every flow gets service in proportion to its weight, and when the pool is full
//!   the head of the longest queue is dropped, so that those pay who caused it;
//! * [`SchedulerRule::Strict`], faithful to P22: the lowest order key first, and when the pool is full the newcomer is
//!   dropped, whoever it is. Rare publishers then wait least and still lose as much as everyone else (B15).
//!
//! Invariants worth naming: the items of a flow leave in the order in which they came; [`Scheduler::pop`] returns
//! nothing only if nothing waits; what was pushed is popped, evicted, drained, refused or still there; nothing is
//! allocated beyond `items_max` slots and `flows_max` flows, and nothing before it is used.

mod claims;
mod drr;
mod links;
mod longest;
mod pool;
mod ranking;
mod strict;
#[cfg(test)]
mod tests;

use core::fmt;

use crate::config::{ConfigError, count, named};
use claims::Claims;
pub use claims::Entitlement;
use drr::Drr;
use pool::Pool;
use strict::Strict;

/// A flow of items that keep their order: the index of a slot in the caller's own table, so small and dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

impl FlowId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

named! {
    "scheduler rule";
    /// How the next flow is chosen, and who is dropped from a full pool.
    pub enum SchedulerRule {
        /// Deficit round robin by weight; the head of the longest queue is dropped.
        #[default]
        Drr = "drr",
        /// Lowest order key first; the newcomer is dropped.
        Strict = "strict",
        /// Entitled before excess, then fair by parent and flow; the head of the longest queue is dropped.
        Claims = "claims",
    }
}

/// Bounds and shares of a [`Scheduler`]. The defaults count the cost in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The rule that says which flow is served next.
    pub rule: SchedulerRule,
    /// Cost that a flow of weight 1 may spend in one turn. Small is smooth; it is fair at any size.
    pub quantum: u32,
    /// Cost of the largest item; more counts as this much. At most [`DEBT_ROUNDS_MAX`] quanta.
    pub cost_max: u32,
    /// Items that may wait.
    pub items_max: u32,
    /// Sum of the costs that may wait; at least `cost_max`.
    pub backlog_max: u64,
    /// Flows, and one more than the largest [`FlowId`].
    pub flows_max: u32,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            rule: SchedulerRule::Drr,
            // A few sensor readings, so that a turn is over soon, and a usual packet limit.
            quantum: 1024,
            cost_max: 256 * 1024,
            items_max: 65_536,
            backlog_max: 64 * 1024 * 1024,
            flows_max: 1 << 20,
        }
    }
}

/// Rounds that a flow sits out for a single item at most. Each costs the visit of a flow without serving it, so this is
/// the price of a large item in visits.
pub const DEBT_ROUNDS_MAX: u32 = 256;

/// The largest weight of a flow. With the quantum of every other flow it bounds how long one waits.
pub const WEIGHT_MAX: u32 = 256;

/// A bounded pool of waiting items, and the rule by which they leave.
#[derive(Clone, Debug)]
pub struct Scheduler<T> {
    pool: Pool<T>,
    order: RuleState,
    cost_max: u32,
    flows_max: u32,
}

/// Who is next: the state of the rule.
#[derive(Clone, Debug)]
enum RuleState {
    Drr(Drr),
    Strict(Strict),
    Claims(Claims),
}

/// What became of a pushed item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pushed<T> {
    /// The item waits.
    Queued,
    /// There is no room: [`Scheduler::evict_longest`] makes some, then push it again. An item may need several
    /// evictions, but never more than its cost. Not under [`SchedulerRule::Strict`].
    Full(T),
    /// It will not be queued.
    Refused(T, ScheduleRefusal),
}

/// Why an item was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScheduleRefusal {
    /// There is no room, and the rule drops the newcomer.
    PoolFull,
    /// The flow's identifier is `flows_max` or more.
    FlowOverMaximum,
}

/// An item that left the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledItem<T> {
    /// The flow that the item waited in.
    pub flow: FlowId,
    /// The item as it was pushed.
    pub item: T,
    /// What it was counted for: at least 1, at most `cost_max`.
    pub cost: u32,
}

/// A flow beyond the configured number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOverMaximum {
    /// The flow.
    pub flow: FlowId,
    /// How many there may be.
    pub flows_max: u32,
}

impl FlowOverMaximum {
    pub(crate) const fn check(flow: FlowId, flows_max: u32) -> Result<(), Self> {
        if flow.0 < flows_max { Ok(()) } else { Err(Self { flow, flows_max }) }
    }
}

impl fmt::Display for FlowOverMaximum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {} is beyond the maximum of {} flows", self.flow.0, self.flows_max)
    }
}

impl core::error::Error for FlowOverMaximum {}

impl SchedulerConfig {
    /// An empty scheduler, or what is wrong with these bounds.
    pub fn build<T>(&self) -> Result<Scheduler<T>, ConfigError> {
        let quantum_min = self.cost_max.div_ceil(DEBT_ROUNDS_MAX).max(1);
        count("cost_max", self.cost_max.into(), 1, (u32::MAX / 2).into())?;
        count("quantum", self.quantum.into(), 1, u32::MAX.into())?;
        if self.quantum < quantum_min {
            let allowed = alloc::format!("at least cost_max / {DEBT_ROUNDS_MAX} = {quantum_min}");
            return Err(ConfigError { field: "quantum", value: alloc::format!("{}", self.quantum), allowed });
        }
        count("items_max", self.items_max.into(), 1, INDEX_MAX.into())?;
        count("backlog_max", self.backlog_max, self.cost_max.into(), u64::MAX / 2)?;
        count("flows_max", self.flows_max.into(), 1, INDEX_MAX.into())?;
        let order = match self.rule {
            SchedulerRule::Drr => RuleState::Drr(Drr::new(self.quantum)),
            SchedulerRule::Strict => RuleState::Strict(Strict::default()),
            SchedulerRule::Claims => RuleState::Claims(Claims::default()),
        };
        let pool = Pool::new(self.items_max, self.backlog_max);
        Ok(Scheduler { pool, order, cost_max: self.cost_max, flows_max: self.flows_max })
    }
}

impl<T> Scheduler<T> {
    /// The same as [`SchedulerConfig::build`].
    pub fn new(config: &SchedulerConfig) -> Result<Self, ConfigError> {
        config.build()
    }

    /// Items that wait.
    pub const fn len(&self) -> u32 {
        self.pool.items()
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.pool.items() == 0
    }

    /// Sum of the costs of everything that waits.
    pub const fn backlog(&self) -> u64 {
        self.pool.backlog()
    }

    /// Items of one flow that wait.
    pub fn flow_len(&self, flow: FlowId) -> u32 {
        self.pool.queue(flow.0).items
    }

    /// Sum of the costs of one flow's items that wait.
    pub fn flow_backlog(&self, flow: FlowId) -> u64 {
        self.pool.queue(flow.0).backlog
    }

    /// The oldest item of a flow.
    pub fn first(&self, flow: FlowId) -> Option<&T> {
        self.pool.first(flow.0)
    }

    /// The items of a flow, the oldest first.
    pub fn items_of(&self, flow: FlowId) -> impl Iterator<Item = &T> {
        self.pool.of_flow(flow.0)
    }

    /// Flows that have something waiting.
    pub fn busy_flows(&self) -> usize {
        self.pool.busy()
    }

    /// Parents that have something waiting; as many as flows where the rule knows no parents.
    pub fn busy_parents(&self) -> usize {
        match &self.order {
            RuleState::Claims(claims) => claims.busy_parents(),
            RuleState::Drr(_) | RuleState::Strict(_) => self.busy_flows(),
        }
    }

    /// Items of a parent that wait, and of how many flows; none where the rule knows no parents.
    pub fn parent_share(&self, key: u64) -> (usize, usize) {
        match &self.order {
            RuleState::Claims(claims) => claims.parent_share(key),
            RuleState::Drr(_) | RuleState::Strict(_) => (0, 0),
        }
    }

    /// Everything that waits, flow by flow, the oldest of each first.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.pool.all()
    }

    /// Share of a flow in the service, clamped to `1..=WEIGHT_MAX`; 1 until it is set. Counts from the flow's next turn
    /// on, and not under [`SchedulerRule::Strict`].
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) -> Result<(), FlowOverMaximum> {
        self.know(flow)?;
        let weight = weight.clamp(1, WEIGHT_MAX);
        match &mut self.order {
            RuleState::Drr(drr) => drr.set_weight(flow.0, weight),
            RuleState::Claims(claims) => claims.set_weight(flow.0, weight),
            RuleState::Strict(_) => {}
        }
        Ok(())
    }

    /// Whom a flow belongs to: parents share the service evenly before their flows do. Counts when the flow has nothing
    /// waiting, and under [`SchedulerRule::Claims`] only; until it is set, the flow is a parent of its own.
    pub fn set_parent(&mut self, flow: FlowId, key: u64) -> Result<(), FlowOverMaximum> {
        self.know(flow)?;
        if let RuleState::Claims(claims) = &mut self.order {
            claims.set_parent(flow.0, key);
        }
        Ok(())
    }

    /// Place of a flow among the others, lowest first, ties by identifier; last until it is set. Counts at once, and
    /// under [`SchedulerRule::Strict`] only.
    pub fn set_order(&mut self, flow: FlowId, key: u64) -> Result<(), FlowOverMaximum> {
        self.know(flow)?;
        if let RuleState::Strict(strict) = &mut self.order {
            strict.set_order(flow.0, key);
        }
        Ok(())
    }

    /// Queues an item behind the others of its flow, if there is room. The cost is clamped to `1..=cost_max`.
    pub fn push(&mut self, flow: FlowId, item: T, cost: u32) -> Pushed<T> {
        self.push_as(flow, item, cost, Entitlement::Entitled)
    }

    /// The same with its claim, which matters under [`SchedulerRule::Claims`] only.
    pub fn push_as(&mut self, flow: FlowId, item: T, cost: u32, claim: Entitlement) -> Pushed<T> {
        let cost = cost.clamp(1, self.cost_max);
        if self.know(flow).is_err() {
            return Pushed::Refused(item, ScheduleRefusal::FlowOverMaximum);
        }
        if self.pool.is_full(cost) {
            return match self.order {
                RuleState::Drr(_) | RuleState::Claims(_) => Pushed::Full(item),
                RuleState::Strict(_) => Pushed::Refused(item, ScheduleRefusal::PoolFull),
            };
        }
        let is_first = self.pool.put(flow.0, item, cost) == 1;
        match &mut self.order {
            RuleState::Claims(claims) => claims.on_pushed(flow.0, cost, claim),
            RuleState::Drr(drr) if is_first => drr.on_busy(flow.0),
            RuleState::Strict(strict) if is_first => strict.on_busy(flow.0),
            RuleState::Drr(_) | RuleState::Strict(_) => {}
        }
        Pushed::Queued
    }

    /// The item that [`Scheduler::pop`] would take now.
    pub fn peek(&mut self) -> Option<&T> {
        let flow = self.next_flow()?;
        self.pool.first(flow)
    }

    /// Whether something entitled waits; none where claims do not matter.
    pub fn has_entitled(&self) -> Option<bool> {
        match &self.order {
            RuleState::Claims(claims) => Some(claims.has_entitled()),
            RuleState::Drr(_) | RuleState::Strict(_) => None,
        }
    }

    /// Takes the next item; nothing only if nothing waits.
    pub fn pop(&mut self) -> Option<ScheduledItem<T>> {
        let flow = self.next_flow()?;
        let (item, cost) = self.pool.take(flow)?;
        match &mut self.order {
            RuleState::Drr(drr) => drr.on_served(flow, cost),
            RuleState::Claims(claims) => claims.on_served(flow, cost),
            RuleState::Strict(_) => {}
        }
        self.settle(flow);
        Some(ScheduledItem { flow: FlowId(flow), item, cost })
    }

    /// Drops the oldest item of a flow whose backlog is at least 8/9 of the longest. The oldest, because it is the most
    /// outdated, and because its publisher sees the gap soonest. Under [`SchedulerRule::Claims`] the longest is a flow by
    /// what it has entitled, or a parent by what it has in excess, and then its longest flow.
    pub fn evict_longest(&mut self) -> Option<ScheduledItem<T>> {
        self.take(self.longest()?)
    }

    /// The flow that [`Scheduler::evict_longest`] would take from.
    pub fn longest(&self) -> Option<FlowId> {
        let flow = match &self.order {
            RuleState::Claims(claims) => claims.longest(),
            RuleState::Drr(_) | RuleState::Strict(_) => self.pool.longest(),
        };
        flow.map(FlowId)
    }

    /// Whether a flow's backlog is at least 8/9 of the longest, as [`Scheduler::evict_longest`] measures it for an item with
    /// this claim: evicting from anybody else would not be fairer.
    pub fn is_longest(&self, flow: FlowId, claim: Entitlement) -> bool {
        match &self.order {
            RuleState::Claims(claims) => claims.is_longest(flow.0, claim),
            RuleState::Drr(_) | RuleState::Strict(_) => self.longest() == Some(flow),
        }
    }

    /// Drops the oldest item of this flow.
    pub fn evict(&mut self, flow: FlowId) -> Option<ScheduledItem<T>> {
        self.take(flow)
    }

    /// Forgets a flow with its weight and order, and hands over what it had waiting, the oldest first. What the
    /// iterator has not returned when it is dropped, is dropped too.
    pub fn remove_flow(&mut self, flow: FlowId) -> FlowDrain<'_, T> {
        FlowDrain { scheduler: self, flow }
    }

    /// Whose turn it is. Asking may begin the turn, which whoever comes later has to wait for.
    fn next_flow(&mut self) -> Option<u32> {
        match &mut self.order {
            RuleState::Drr(drr) => drr.next(),
            RuleState::Strict(strict) => strict.next(),
            RuleState::Claims(claims) => claims.next(),
        }
    }

    /// Takes the oldest item of a flow out of turn.
    fn take(&mut self, flow: FlowId) -> Option<ScheduledItem<T>> {
        let (item, cost) = self.pool.take(flow.0)?;
        if let RuleState::Claims(claims) = &mut self.order {
            claims.on_evicted(flow.0, cost);
        } else if self.pool.queue(flow.0).items == 0 {
            self.on_emptied(flow.0);
        }
        Some(ScheduledItem { flow, item, cost })
    }

    /// Tells the rule what a served flow has left.
    fn settle(&mut self, flow: u32) {
        if self.pool.queue(flow).items == 0 {
            self.on_emptied(flow);
        } else if let RuleState::Drr(drr) = &mut self.order {
            drr.on_waiting(flow);
        }
    }

    fn on_emptied(&mut self, flow: u32) {
        match &mut self.order {
            RuleState::Drr(drr) => drr.on_emptied(flow),
            RuleState::Strict(strict) => strict.on_emptied(flow),
            RuleState::Claims(_) => {}
        }
    }

    /// Makes room for a flow seen for the first time.
    fn know(&mut self, flow: FlowId) -> Result<(), FlowOverMaximum> {
        FlowOverMaximum::check(flow, self.flows_max)?;
        let len = flow.index() + 1;
        self.pool.grow(len);
        match &mut self.order {
            RuleState::Drr(drr) => drr.grow(len),
            RuleState::Strict(strict) => strict.grow(len),
            RuleState::Claims(claims) => claims.grow(len),
        }
        Ok(())
    }
}

/// The items of a flow that is being removed.
#[derive(Debug)]
pub struct FlowDrain<'a, T> {
    scheduler: &'a mut Scheduler<T>,
    flow: FlowId,
}

impl<T> Iterator for FlowDrain<'_, T> {
    type Item = ScheduledItem<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scheduler.take(self.flow)
    }
}

impl<T> Drop for FlowDrain<'_, T> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
        match &mut self.scheduler.order {
            RuleState::Drr(drr) => drr.forget(self.flow.0),
            RuleState::Strict(strict) => strict.forget(self.flow.0),
            RuleState::Claims(claims) => claims.forget(self.flow.0),
        }
    }
}

/// Flows and items there may be at most: tables are indexed by them, and one wild identifier must not ask for gigabytes.
pub(crate) const INDEX_MAX: u32 = 16_000_000;
