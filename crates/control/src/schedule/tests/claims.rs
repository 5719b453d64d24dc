//! The rule of claims against lists that are searched from end to end, and what it promises.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::*;

const UNIT: u64 = 1 << 20;
const FLOWS: u32 = 8;

fn scheduler() -> Scheduler<u64> {
    SchedulerConfig { rule: SchedulerRule::Claims, ..SchedulerConfig::default() }.build().unwrap()
}

fn push(scheduler: &mut Scheduler<u64>, flow: u32, item: u64, claim: Entitlement) {
    assert_eq!(scheduler.push_as(FlowId(flow), item, 100, claim), Pushed::Queued);
}

/// Everything that could be said of one flow.
#[derive(Clone, Default)]
struct Flow {
    items: VecDeque<(u64, u64)>,
    waiting: [u64; 2],
    tags: [u64; 2],
    weight: u64,
}

#[derive(Clone, Default)]
struct Parent {
    clocks: [u64; 2],
    tags: [u64; 2],
    used: u64,
}

/// As the words say it, without a list in order.
#[derive(Default)]
struct Model {
    flows: BTreeMap<u32, Flow>,
    parents: BTreeMap<u32, Parent>,
    clocks: [u64; 2],
    fair: u64,
    since_excess: usize,
}

fn parent_of(flow: u32) -> u32 {
    flow / 3
}

fn woken(tag: u64, clock: u64) -> u64 {
    if tag > clock { tag } else { clock & !1 }
}

impl Model {
    fn order_of(flow: &Flow) -> Option<usize> {
        (!flow.items.is_empty()).then(|| usize::from(flow.waiting[0] == 0))
    }

    fn standing(&self, order: usize) -> Vec<u32> {
        let stands = |(_, flow): &(&u32, &Flow)| Self::order_of(flow) == Some(order);
        self.flows.iter().filter(stands).map(|(flow, _)| *flow).collect()
    }

    fn parents_in(&self, order: usize) -> BTreeSet<u32> {
        self.standing(order).into_iter().map(parent_of).collect()
    }

    fn push(&mut self, id: u32, item: u64, cost: u64, claim: Entitlement) {
        let was_listed: Vec<_> = [0, 1].map(|order| self.parents_in(order)).into();
        let flow = self.flows.entry(id).or_default();
        let before = Self::order_of(flow);
        let parent = self.parents.entry(parent_of(id)).or_default();
        let is_sparse = claim == Entitlement::Excess && before.is_none() && parent.used <= self.fair;
        if is_sparse {
            parent.used = self.fair + UNIT;
        }
        flow.items.push_back((item, cost));
        flow.waiting[usize::from(claim == Entitlement::Excess && !is_sparse)] += cost;
        self.wake(id, before, &was_listed);
    }

    fn wake(&mut self, id: u32, before: Option<usize>, was_listed: &[BTreeSet<u32>]) {
        let Some(order) = self.flows.get(&id).and_then(Self::order_of).filter(|order| before != Some(*order)) else {
            return;
        };
        let parent = self.parents.entry(parent_of(id)).or_default();
        let flow = self.flows.entry(id).or_default();
        flow.tags[order] = woken(flow.tags[order], parent.clocks[order]);
        if !was_listed[order].contains(&parent_of(id)) {
            parent.tags[order] = woken(parent.tags[order], self.clocks[order]);
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let (entitled, excess) = (self.parents_in(0), self.parents_in(1));
        let is_excess =
            entitled.is_empty() || (!excess.is_empty() && self.since_excess + 1 >= 32.max(entitled.len() + 1));
        let order = usize::from(is_excess);
        let standing = self.standing(order);
        let parent = standing.iter().map(|id| parent_of(*id)).min_by_key(|id| (self.parents[id].tags[order], *id))?;
        let of_parent = standing.iter().filter(|id| parent_of(**id) == parent);
        let id = *of_parent.min_by_key(|id| (self.flows[id].tags[order], **id))?;
        self.fair += UNIT / (self.standing(0).len() + excess.len()) as u64;
        self.since_excess = if is_excess || excess.is_empty() { 0 } else { self.since_excess + 1 };
        let (flow, owner) = (self.flows.get_mut(&id)?, self.parents.get_mut(&parent)?);
        if is_excess {
            owner.used = owner.used.max(self.fair) + UNIT;
        }
        let (item, cost) = flow.items.pop_front()?;
        let charge = (UNIT + cost * UNIT / 1024) / flow.weight.max(1);
        owner.clocks[order] = flow.tags[order];
        self.clocks[order] = self.clocks[order].max(owner.tags[order]);
        owner.tags[order] = (owner.tags[order] + charge) | 1;
        flow.tags[order] = (flow.tags[order] + charge) | 1;
        let first = cost.min(flow.waiting[order]);
        flow.waiting[order] -= first;
        flow.waiting[1 - order] -= cost - first;
        // It leaves, and comes back where it then belongs: a parent without others has left with it.
        let others = [0, 1].map(|order| self.standing(order).into_iter().filter(|other| *other != id));
        let listed: Vec<BTreeSet<u32>> = others.into_iter().map(|ids| ids.map(parent_of).collect()).collect();
        self.wake(id, None, &listed);
        Some(item)
    }

    fn evicted(&mut self, id: u32) {
        let was_listed: Vec<_> = [0, 1].map(|order| self.parents_in(order)).into();
        let flow = self.flows.entry(id).or_default();
        let before = Self::order_of(flow);
        let (_, cost) = flow.items.pop_front().unwrap();
        let excess = cost.min(flow.waiting[1]);
        flow.waiting[1] -= excess;
        flow.waiting[0] -= cost - excess;
        self.wake(id, before, &was_listed);
    }

    /// The longest backlog that may be asked to give way.
    fn longest(&self) -> u64 {
        let excess = |parent: u32| -> u64 {
            self.flows.iter().filter(|(id, _)| parent_of(**id) == parent).map(|(_, flow)| flow.waiting[1]).sum()
        };
        let entitled = self.flows.values().map(|flow| flow.waiting[0]).max().unwrap_or(0);
        entitled.max((0..FLOWS).map(|flow| excess(parent_of(flow))).max().unwrap_or(0))
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Push { flow: u32, cost: u32, is_excess: bool },
    Pop,
    Evict,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0..FLOWS, 1..3000_u32, any::<bool>())
            .prop_map(|(flow, cost, is_excess)| Operation::Push { flow, cost, is_excess }),
        6 => Just(Operation::Pop),
        1 => Just(Operation::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn claims_are_served_as_the_words_say(
        weights in prop::collection::vec(1..5_u32, FLOWS as usize),
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let (mut scheduler, mut model) = (scheduler(), Model::default());
        for (flow, weight) in (0..).zip(&weights) {
            scheduler.set_weight(FlowId(flow), *weight).unwrap();
            scheduler.set_parent(FlowId(flow), parent_of(flow).into()).unwrap();
            model.flows.insert(flow, Flow { weight: u64::from(*weight), ..Flow::default() });
        }
        for (item, operation) in (0..).zip(&operations) {
            match *operation {
                Operation::Push { flow, cost, is_excess } => {
                    let claim = if is_excess { Entitlement::Excess } else { Entitlement::Entitled };
                    prop_assert_eq!(scheduler.push_as(FlowId(flow), item, cost, claim), Pushed::Queued);
                    model.push(flow, item, cost.into(), claim);
                }
                Operation::Pop => {
                    let next = scheduler.peek().copied();
                    let popped = scheduler.pop().map(|taken| taken.item);
                    prop_assert_eq!(next, popped);
                    prop_assert_eq!(popped, model.pop());
                }
                Operation::Evict => {
                    let longest = model.longest();
                    let Some(taken) = scheduler.evict_longest() else {
                        prop_assert_eq!(longest, 0);
                        continue;
                    };
                    let flow = &model.flows[&taken.flow.0];
                    prop_assert_eq!(flow.items.front().map(|(item, _)| *item), Some(taken.item));
                    let members = model.flows.iter().filter(|(id, _)| parent_of(**id) == parent_of(taken.flow.0));
                    let excess: u64 = members.map(|(_, flow)| flow.waiting[1]).sum();
                    prop_assert!(excess.max(flow.waiting[0]) * 9 >= longest * 8);
                    model.evicted(taken.flow.0);
                }
            }
        }
        while let Some(taken) = scheduler.pop() {
            prop_assert_eq!(Some(taken.item), model.pop());
        }
        prop_assert_eq!(model.pop(), None);
    }
}

#[test]
fn a_rare_flow_waits_for_one_item_at_most() {
    let mut scheduler = scheduler();
    for flow in 0..100 {
        scheduler.set_weight(FlowId(flow), 4).unwrap();
        (0..50).for_each(|item| push(&mut scheduler, flow, item, Entitlement::Entitled));
    }
    scheduler.set_weight(FlowId(200), 4).unwrap();
    for round in 0..20 {
        for _ in 0..137 {
            scheduler.pop();
        }
        push(&mut scheduler, 200, 1000 + round, Entitlement::Entitled);
        let wait = core::iter::from_fn(|| scheduler.pop()).position(|taken| taken.item >= 1000).unwrap();
        assert!(wait <= 1, "behind {wait} others");
    }
}

#[test]
fn excess_gets_one_in_thirty_two_and_no_more_while_claims_wait() {
    let mut scheduler = scheduler();
    (0..2000).for_each(|item| push(&mut scheduler, 0, item, Entitlement::Entitled));
    (0..2000).for_each(|item| push(&mut scheduler, 1, item, Entitlement::Excess));
    let served = |scheduler: &mut Scheduler<u64>, count| -> usize {
        (0..count).filter(|_| scheduler.pop().is_some_and(|taken| taken.flow == FlowId(1))).count()
    };
    let excess = served(&mut scheduler, 1600);
    assert!((50..=51).contains(&excess), "{excess}");
}

#[test]
fn ten_times_as_many_names_of_one_parent_change_nothing() {
    let shares = |names: u32| {
        let mut scheduler = scheduler();
        let flows = [vec![0], vec![1], (2..2 + names).collect::<Vec<u32>>()];
        for (parent, flows) in (0_u64..).zip(&flows) {
            for flow in flows {
                scheduler.set_parent(FlowId(*flow), parent).unwrap();
                (0..600).for_each(|item| push(&mut scheduler, *flow, item, Entitlement::Excess));
            }
        }
        let mut served = [0; 3];
        for _ in 0..900 {
            let FlowId(flow) = scheduler.pop().unwrap().flow;
            served[flow.min(2) as usize] += 1;
        }
        served
    };
    let (one, ten) = (shares(1), shares(10));
    assert!(one.iter().chain(&ten).all(|served: &u32| served.abs_diff(300) <= 11), "{one:?} {ten:?}");
}

#[test]
fn ever_new_names_are_sparse_once_a_round_and_not_once_each() {
    let mut scheduler = scheduler();
    for flow in 0..10 {
        scheduler.set_parent(FlowId(flow), flow.into()).unwrap();
        (0..300).for_each(|item| push(&mut scheduler, flow, item, Entitlement::Entitled));
    }
    let (mut rotating, mut served) = (10, 0);
    for _ in 0..1100 {
        // One of the same network comes with a name of its own before every item that is served.
        scheduler.set_parent(FlowId(rotating), 99).unwrap();
        push(&mut scheduler, rotating, 0, Entitlement::Excess);
        rotating += 1;
        served += u32::from(scheduler.pop().unwrap().flow.0 >= 10);
    }
    assert!((80..=150).contains(&served), "{served}: a flow's share is 100, and one of 32 beside it");
}

#[test]
fn one_entitled_item_behind_others_in_excess_brings_its_flow_forward_and_nobody_overtakes_itself() {
    let mut scheduler = scheduler();
    (0..4).for_each(|item| push(&mut scheduler, 0, item, Entitlement::Excess));
    (0..9).for_each(|item| push(&mut scheduler, 1, item, Entitlement::Entitled));
    push(&mut scheduler, 0, 4, Entitlement::Entitled);
    let own: Vec<u64> = core::iter::from_fn(|| scheduler.pop())
        .filter(|taken| taken.flow == FlowId(0))
        .map(|taken| taken.item)
        .collect();
    assert_eq!(own, [0, 1, 2, 3, 4]);
}

#[test]
fn many_short_flows_in_excess_of_one_parent_give_way_before_one_long_flow_with_a_claim() {
    let mut scheduler = scheduler();
    (0..30).for_each(|item| push(&mut scheduler, 0, item, Entitlement::Entitled));
    for flow in 1..=100 {
        scheduler.set_parent(FlowId(flow), 7).unwrap();
        (0..2).for_each(|item| push(&mut scheduler, flow, item, Entitlement::Excess));
    }
    for _ in 0..150 {
        assert_ne!(scheduler.evict_longest().unwrap().flow, FlowId(0));
    }
}

proptest! {
    #[test]
    fn as_good_as_the_longest_is_who_has_eight_ninths_of_it(items in prop::collection::vec((0..FLOWS, 1..500_u32), 1..200)) {
        let mut scheduler = scheduler();
        for (number, (flow, cost)) in items.into_iter().enumerate() {
            prop_assert_eq!(scheduler.push_as(FlowId(flow), number as u64, cost, Entitlement::Entitled), Pushed::Queued);
        }
        let longest = scheduler.longest().unwrap();
        prop_assert!(scheduler.is_longest(longest, Entitlement::Entitled));
        let most = (0..FLOWS).map(|flow| scheduler.flow_backlog(FlowId(flow))).max().unwrap_or(0);
        for flow in (0..FLOWS).map(FlowId) {
            let is_near = scheduler.flow_backlog(flow) * 9 >= most * 8;
            prop_assert!(is_near || !scheduler.is_longest(flow, Entitlement::Entitled));
            prop_assert!(!scheduler.is_longest(flow, Entitlement::Excess), "nobody has anything in excess");
        }
    }

    #[test]
    fn in_excess_it_goes_by_parent_and_then_by_flow(counts in prop::collection::vec(0..40_usize, FLOWS as usize)) {
        let mut scheduler = scheduler();
        for flow in 0..FLOWS {
            scheduler.set_parent(FlowId(flow), parent_of(flow).into()).unwrap();
            // The first of a flow may count as entitled.
            push(&mut scheduler, flow, 0, Entitlement::Entitled);
            (0..counts[flow as usize]).for_each(|_| push(&mut scheduler, flow, 1, Entitlement::Excess));
        }
        let of_parent = |parent: u32| {
            (0..FLOWS).filter(|flow| parent_of(*flow) == parent).map(|flow| counts[flow as usize]).sum::<usize>()
        };
        let most = (0..FLOWS).map(|flow| of_parent(parent_of(flow))).max().unwrap_or(0);
        for flow in 0..FLOWS {
            let siblings = (0..FLOWS).filter(|other| parent_of(*other) == parent_of(flow));
            let longest = siblings.map(|other| counts[other as usize]).max().unwrap_or(0);
            let is_near = of_parent(parent_of(flow)) * 9 >= most * 8 && counts[flow as usize] * 9 >= longest * 8;
            prop_assert!(is_near || !scheduler.is_longest(FlowId(flow), Entitlement::Excess));
        }
        if let Some(longest) = scheduler.longest().filter(|_| most > 1) {
            prop_assert!(scheduler.is_longest(longest, Entitlement::Excess));
        }
    }
}
