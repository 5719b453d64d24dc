//! Any sequence of operations, against queues that are searched from end to end.

use alloc::collections::VecDeque;

use proptest::prelude::*;

use super::super::*;
use super::config;

const FLOWS: u32 = 6;

#[derive(Clone, Debug)]
enum Operation {
    Push { flow: u32, cost: u32 },
    Pop,
    Evict,
    EvictFrom { flow: u32 },
    Remove { flow: u32, taken_max: usize },
    SetWeight { flow: u32, weight: u32 },
    SetOrder { flow: u32, key: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    // One flow too many, costs below and above what is allowed.
    let flow = 0..=FLOWS;
    prop_oneof![
        10 => (flow.clone(), 0..20u32).prop_map(|(flow, cost)| Operation::Push { flow, cost }),
        6 => Just(Operation::Pop),
        1 => Just(Operation::Evict),
        1 => flow.clone().prop_map(|flow| Operation::EvictFrom { flow }),
        1 => (flow.clone(), 0..4usize).prop_map(|(flow, taken_max)| Operation::Remove { flow, taken_max }),
        1 => (flow.clone(), any::<u32>()).prop_map(|(flow, weight)| Operation::SetWeight { flow, weight: weight % 9 }),
        1 => (flow, 0..4u64).prop_map(|(flow, key)| Operation::SetOrder { flow, key }),
    ]
}

#[derive(Default)]
struct Model {
    /// By flow: items and their costs.
    queues: [VecDeque<(u64, u32)>; FLOWS as usize],
    keys: [Option<u64>; FLOWS as usize],
    pushed: u64,
    refused: u64,
    left: u64,
}

impl Model {
    fn apply(&mut self, scheduler: &mut Scheduler<u64>, rule: SchedulerRule, operation: &Operation) {
        match *operation {
            Operation::Push { flow, cost } => self.push(scheduler, rule, flow, cost),
            Operation::Pop => self.pop(scheduler, rule),
            Operation::Evict => self.evict(scheduler),
            Operation::EvictFrom { flow } => {
                let waits = self.queues.get(flow as usize).is_some_and(|queue| !queue.is_empty());
                let taken = scheduler.evict(FlowId(flow));
                assert_eq!(taken.is_some(), waits);
                taken.inspect(|taken| self.leave(taken));
            }
            Operation::Remove { flow, taken_max } => {
                for taken in scheduler.remove_flow(FlowId(flow)).take(taken_max) {
                    self.leave(&taken);
                }
                if let Some(queue) = self.queues.get_mut(flow as usize) {
                    self.left += queue.drain(..).count() as u64;
                    self.keys[flow as usize] = None;
                }
            }
            Operation::SetWeight { flow, weight } => {
                assert_eq!(scheduler.set_weight(FlowId(flow), weight).is_ok(), flow < FLOWS);
            }
            Operation::SetOrder { flow, key } => {
                assert_eq!(scheduler.set_order(FlowId(flow), key).is_ok(), flow < FLOWS);
                self.keys.get_mut(flow as usize).map(|old| old.replace(key));
            }
        }
    }

    fn push(&mut self, scheduler: &mut Scheduler<u64>, rule: SchedulerRule, flow: u32, cost: u32) {
        let bounds = config(rule);
        self.pushed += 1;
        let mut evictions = 0;
        loop {
            let counted = cost.clamp(1, bounds.cost_max);
            let full =
                self.items() >= bounds.items_max as usize || self.backlog() + u64::from(counted) > bounds.backlog_max;
            match scheduler.push(FlowId(flow), self.pushed, cost) {
                Pushed::Queued => {
                    assert!(!full && flow < FLOWS);
                    self.queues[flow as usize].push_back((self.pushed, counted));
                    return;
                }
                Pushed::Full(item) => {
                    assert!(full && rule != SchedulerRule::Strict && item == self.pushed);
                    self.evict(scheduler);
                    evictions += 1;
                    assert!(evictions <= counted);
                }
                Pushed::Refused(item, reason) => {
                    let expected =
                        if flow < FLOWS { ScheduleRefusal::PoolFull } else { ScheduleRefusal::FlowOverMaximum };
                    assert!(reason == expected && item == self.pushed);
                    assert!(reason == ScheduleRefusal::FlowOverMaximum || full && rule == SchedulerRule::Strict);
                    self.refused += 1;
                    return;
                }
            }
        }
    }

    fn pop(&mut self, scheduler: &mut Scheduler<u64>, rule: SchedulerRule) {
        let busy = (0..FLOWS).filter(|flow| !self.queues[*flow as usize].is_empty());
        let first = busy.min_by_key(|flow| (self.keys[*flow as usize].unwrap_or(u64::MAX), *flow));
        let seen = scheduler.peek().copied();
        let taken = scheduler.pop();
        assert_eq!(seen, taken.map(|taken| taken.item), "what is shown is what comes");
        assert_eq!(taken.is_some(), first.is_some(), "idle while something waits");
        let Some(taken) = taken else { return };
        if rule == SchedulerRule::Strict {
            assert_eq!(Some(taken.flow.0), first);
        }
        self.leave(&taken);
    }

    fn evict(&mut self, scheduler: &mut Scheduler<u64>) {
        let longest = (0..FLOWS as usize).map(|flow| self.flow_backlog(flow)).max();
        let Some(taken) = scheduler.evict_longest() else {
            return assert_eq!(longest, Some(0));
        };
        let victim = self.flow_backlog(taken.flow.index());
        assert!(victim * 9 >= longest.unwrap() * 8, "{victim} of {longest:?}");
        self.leave(&taken);
    }

    /// Items leave in the order in which they came.
    fn leave(&mut self, taken: &ScheduledItem<u64>) {
        assert_eq!(self.queues[taken.flow.index()].pop_front(), Some((taken.item, taken.cost)));
        self.left += 1;
    }

    fn invariants(&self, scheduler: &Scheduler<u64>, rule: SchedulerRule) {
        let bounds = config(rule);
        assert_eq!(self.pushed, self.refused + self.left + u64::from(scheduler.len()));
        assert_eq!((scheduler.len() as usize, scheduler.backlog()), (self.items(), self.backlog()));
        assert_eq!(scheduler.is_empty(), self.items() == 0);
        assert!(scheduler.len() <= bounds.items_max && scheduler.backlog() <= bounds.backlog_max);
        for flow in 0..FLOWS {
            let expected = (self.queues[flow as usize].len() as u32, self.flow_backlog(flow as usize));
            assert_eq!((scheduler.flow_len(FlowId(flow)), scheduler.flow_backlog(FlowId(flow))), expected);
        }
    }

    fn items(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    fn backlog(&self) -> u64 {
        (0..FLOWS as usize).map(|flow| self.flow_backlog(flow)).sum()
    }

    fn flow_backlog(&self, flow: usize) -> u64 {
        self.queues[flow].iter().map(|(_, cost)| u64::from(*cost)).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn scheduler_agrees_with_plain_queues(
        rule in prop::sample::select(SchedulerRule::ALL),
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let mut scheduler = config(rule).build().unwrap();
        let mut model = Model::default();
        for operation in &operations {
            model.apply(&mut scheduler, rule, operation);
            model.invariants(&scheduler, rule);
        }
        while !scheduler.is_empty() {
            model.pop(&mut scheduler, rule);
        }
        model.invariants(&scheduler, rule);
    }
}
