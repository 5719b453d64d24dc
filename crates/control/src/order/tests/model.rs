//! The rules as they are written, with lists that are searched: slow, and easy to check.

use super::*;

#[derive(Clone, Debug)]
struct Waiting {
    key: u32,
    parent: u64,
    standing: Standing,
    list: ParentList,
    tag: u64,
    turn: u64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    u: u64,
    n: u32,
    /// By order: tag and place in line while it is listed.
    listed: [Option<(u64, u64)>; 3],
    tags: [u64; 3],
    /// By list: the tag that is served.
    clocks: [u64; 3],
    turns: [u64; 3],
}

#[derive(Default)]
struct Model {
    flows: vec::Vec<Waiting>,
    parents: BTreeMap<u64, Known>,
    clock: u64,
    clocks: [u64; 3],
    turns: [u64; 3],
    since_excess: u32,
    quantum: u32,
}

impl Model {
    fn waits(&self, parent: u64) -> bool {
        self.flows.iter().any(|flow| flow.parent == parent)
    }

    fn has(&self, parent: u64, list: ParentList) -> bool {
        self.flows.iter().any(|flow| flow.parent == parent && flow.list == list)
    }

    fn is_sparse(&self, parent: u64) -> bool {
        self.parents.get(&parent).is_some_and(|it| it.n < 2 && it.u <= self.clock + 2 * ONE)
    }

    fn account(&mut self, parent: u64, units: u32) {
        let clock = self.clock;
        let active =
            self.parents.iter().filter(|(key, it)| self.waits(**key) || it.u > clock || **key == parent).count();
        let it = self.parents.get_mut(&parent).unwrap();
        it.u = it.u.max(clock) + u64::from(units) * ONE;
        it.n += units;
        self.clock += u64::from(units) * ONE / active.max(1) as u64;
        self.forget();
    }

    fn forget(&mut self) {
        let (flows, clock) = (&self.flows, self.clock);
        self.parents.retain(|key, it| it.u > clock || flows.iter().any(|flow| flow.parent == *key));
        if flows.is_empty() {
            *self = Self { quantum: self.quantum, ..Self::default() };
        }
    }

    fn list(&mut self, parent: u64) {
        let lists = [ParentList::Granted, ParentList::Entitled, ParentList::Excess].map(|list| self.has(parent, list));
        let wanted = [lists[0] || self.is_sparse(parent) && (lists[1] || lists[2]), lists[1], lists[2]];
        let Some(it) = self.parents.get_mut(&parent) else { return };
        for (order, is_wanted) in wanted.into_iter().enumerate() {
            if is_wanted && it.listed[order].is_none() {
                self.turns[order] += 1;
                it.listed[order] = Some((it.tags[order].max(self.clocks[order]), self.turns[order]));
            }
        }
    }

    fn enlist(&mut self, mut flow: Waiting, now: Timestamp) {
        flow.list = list_of(&flow.standing, now);
        let it = self.parents.get_mut(&flow.parent).unwrap();
        it.turns[flow.list as usize] += 1;
        flow.tag = flow.tag.max(it.clocks[flow.list as usize]);
        flow.turn = it.turns[flow.list as usize];
        self.flows.push(flow);
    }

    fn wait(&mut self, key: u32, parent: u64, standing: Standing, spent: u32, now: Timestamp) {
        self.parents.entry(parent).or_default();
        let flow = Waiting { key, parent, standing, list: ParentList::Excess, tag: 0, turn: 0 };
        if spent > 0 {
            // It counts as waiting while that is paid for.
            self.flows.push(flow.clone());
            self.account(parent, spent);
            self.flows.pop();
        }
        self.enlist(flow, now);
        self.list(parent);
    }

    fn every(&self) -> u32 {
        let entitled = |list| self.parents.keys().filter(|key| self.has(**key, list)).count() as u32;
        32.max(entitled(ParentList::Granted) + entitled(ParentList::Entitled) + 1)
    }

    /// Key, order, units, and what was taken out.
    fn next(&mut self) -> Option<(u32, ServiceOrder, u32, Waiting, u64)> {
        loop {
            let listed = |order: ServiceOrder| self.parents.values().any(|it| it.listed[order as usize].is_some());
            let is_due = self.since_excess + 1 >= self.every();
            let order = if listed(ServiceOrder::Excess) && is_due {
                ServiceOrder::Excess
            } else {
                [ServiceOrder::Sparse, ServiceOrder::Entitled, ServiceOrder::Excess]
                    .into_iter()
                    .find(|order| listed(*order))?
            };
            let first = self.parents.iter().filter_map(|(key, it)| Some((it.listed[order as usize]?, *key))).min();
            let ((tag, _), parent) = first?;
            self.clocks[order as usize] = self.clocks[order as usize].max(tag);
            self.parents.get_mut(&parent)?.listed[order as usize] = None;
            let lists: &[ParentList] = match order {
                ServiceOrder::Sparse if self.is_sparse(parent) => {
                    &[ParentList::Granted, ParentList::Entitled, ParentList::Excess]
                }
                ServiceOrder::Sparse => &[ParentList::Granted],
                ServiceOrder::Entitled => &[ParentList::Entitled],
                ServiceOrder::Excess => &[ParentList::Excess],
            };
            let of = |list: ParentList| {
                let own = self.flows.iter().enumerate().filter(|(_, it)| it.parent == parent && it.list == list);
                own.min_by_key(|(_, it)| (it.tag, it.turn)).map(|(place, _)| place)
            };
            let Some(place) = lists.iter().find_map(|list| of(*list)) else { continue };
            // Whether excess was due is judged with the flow taken out.
            let flow = self.flows.remove(place);
            let it = self.parents.get_mut(&parent)?;
            it.clocks[flow.list as usize] = it.clocks[flow.list as usize].max(flow.tag);
            let units = match (order, flow.list) {
                (ServiceOrder::Sparse, ParentList::Entitled | ParentList::Excess) => 2 - it.n.min(1),
                (ServiceOrder::Excess, _) if self.since_excess + 1 >= self.every() => {
                    self.since_excess.div_ceil(self.every() - 1).max(1)
                }
                _ => self.quantum,
            };
            return Some((flow.key, order, units, flow, tag));
        }
    }

    fn served(&mut self, order: ServiceOrder, tag: u64, mut flow: Waiting, units: u32, result: Served, now: Timestamp) {
        let parent = flow.parent;
        let weight = match (order, flow.list) {
            (_, ParentList::Granted) => flow.standing.grant,
            (ServiceOrder::Sparse, _) => 1,
            _ => flow.standing.weight,
        };
        self.flows.push(flow.clone());
        self.account(parent, units);
        self.flows.pop();
        let is_none_in_excess = !self.parents.keys().any(|key| self.has(*key, ParentList::Excess));
        self.since_excess = match order {
            ServiceOrder::Excess => self.since_excess.saturating_sub(units * (self.every() - 1)),
            _ if is_none_in_excess => 0,
            _ => self.since_excess + units,
        };
        self.parents.get_mut(&parent).unwrap().tags[order as usize] = tag + charge(units, weight);
        flow.tag += charge(units, flow.standing.weight);
        match result {
            Served::More(standing) => {
                flow.standing = standing;
                self.enlist(flow, now);
            }
            Served::Dry => {
                if !self.waits(parent)
                    && let Some(it) = self.parents.get_mut(&parent)
                {
                    it.n = 0;
                }
                self.forget();
            }
        }
        self.list(parent);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait { parent: u64, kind: u8, weight: u32, spent: u32 },
    Serve { units: u32, is_dry: bool, kind: u8 },
    Turn { units: u32 },
}

fn steps() -> impl Strategy<Value = vec::Vec<Step>> {
    let step = prop_oneof![
        (0..6_u64, 0..3_u8, 1..4_u32, prop_oneof![Just(0), 1..20_u32])
            .prop_map(|(parent, kind, weight, spent)| Step::Wait { parent, kind, weight, spent }),
        (1..12_u32, any::<bool>(), 0..3_u8).prop_map(|(units, is_dry, kind)| Step::Serve { units, is_dry, kind }),
        (1..12_u32, any::<bool>(), 0..3_u8).prop_map(|(units, _, kind)| Step::Serve { units, is_dry: false, kind }),
        (1..200_u32).prop_map(|units| Step::Turn { units }),
    ];
    prop::collection::vec(step, 1..300)
}

fn standing(kind: u8, weight: u32) -> Standing {
    match kind {
        0 => Standing { weight, ..STRANGER },
        1 => Standing { weight, ..ENTITLED },
        _ => Standing { weight, grant: 50, ..ENTITLED },
    }
}

proptest! {
    #[test]
    fn the_order_is_that_of_the_rules(steps in steps()) {
        let (mut order, mut model) = (ReadOrder::default(), Model::default());
        let mut keys = 0;
        for (n, step) in steps.into_iter().enumerate() {
            let now = at(n as u64);
            match step {
                Step::Wait { parent, kind, weight, spent } => {
                    keys += 1;
                    order.wait(keys, parent, standing(kind, weight), spent, now);
                    model.wait(keys, parent, standing(kind, weight), spent, now);
                }
                Step::Turn { units } => {
                    order.begin_turn(units, now);
                    model.quantum = (units / (model.flows.len() as u32).max(1)).max(QUANTUM_MIN);
                }
                Step::Serve { units, is_dry, kind } => {
                    let visit = order.next(now, |_| u32::MAX);
                    let expected = model.next();
                    prop_assert_eq!(
                        visit.map(|visit| (visit.key, visit.order, visit.units)),
                        expected.as_ref().map(|(key, order, units, ..)| (*key, *order, *units))
                    );
                    if let (Some(visit), Some((_, at_order, _, flow, tag))) = (visit, expected) {
                        let result =
                            if is_dry { Served::Dry } else { Served::More(standing(kind, flow.standing.weight)) };
                        order.served(visit.place, units, result, now);
                        model.served(at_order, tag, flow, units, result, now);
                    }
                }
            }
            prop_assert_eq!(order.len(), model.flows.len());
        }
    }
}
