//! CONTROL 11, invariant 18: nobody gets more than its share while others wait, and nobody waits for ever.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::*;

const FLOWS: usize = 5;

#[derive(Clone, Debug)]
struct Shares {
    quantum: u32,
    cost_max: u32,
    weights: [u32; FLOWS],
}

fn shares() -> impl Strategy<Value = Shares> {
    let weights = prop::array::uniform5(prop_oneof![Just(1), Just(2), Just(4), 1..9u32]);
    (1..20u32, 1..40u32, weights).prop_map(|(quantum, cost_max, weights)| Shares { quantum, cost_max, weights })
}

#[derive(Clone, Debug)]
enum Operation {
    /// So many items of the same flow, so that queues last for many rounds.
    Push {
        flow: usize,
        costs: Vec<u32>,
    },
    Pop {
        times: u32,
    },
    Evict,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..FLOWS, prop::collection::vec(1..40u32, 1..20)).prop_map(|(flow, costs)| Operation::Push { flow, costs }),
        4 => (1..30u32).prop_map(|times| Operation::Pop { times }),
        1 => Just(Operation::Evict),
    ]
}

/// How far two flows have drifted apart since both are busy.
#[derive(Clone, Copy, Default)]
struct Drift {
    /// Service per weight of the one minus that of the other, times both weights; its extremes so far.
    now: i64,
    low: i64,
    high: i64,
}

struct Model {
    shares: Shares,
    scheduler: Scheduler<u64>,
    /// For every pair of flows with the first less than the second.
    drifts: [[Drift; FLOWS]; FLOWS],
    /// By flow: for each item the total service by which it must have had its own.
    deadlines: [VecDeque<u64>; FLOWS],
    served: u64,
}

impl Model {
    fn new(shares: Shares) -> Self {
        let bounds =
            SchedulerConfig { quantum: shares.quantum, cost_max: shares.cost_max, ..SchedulerConfig::default() };
        let mut scheduler: Scheduler<u64> = bounds.build().unwrap();
        for (flow, weight) in (0..).map(FlowId).zip(shares.weights) {
            scheduler.set_weight(flow, weight).unwrap();
        }
        Self { shares, scheduler, drifts: Default::default(), deadlines: Default::default(), served: 0 }
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Push { flow, costs } => costs.iter().for_each(|cost| self.push(*flow, *cost)),
            Operation::Pop { times } => (0..*times).for_each(|_| self.pop()),
            Operation::Evict => {
                let evicted = self.scheduler.evict_longest();
                evicted.map(|taken| self.deadlines[taken.flow.index()].pop_front());
                self.invariants();
            }
        }
    }

    fn push(&mut self, flow: usize, cost: u32) {
        let id = FlowId(flow as u32);
        assert_eq!(self.scheduler.push(id, 0, cost), Pushed::Queued);
        let Shares { quantum, cost_max, weights } = &self.shares;
        let share = |flow: usize| u64::from(quantum * weights[flow]);
        // To pay the largest debt and everything up to this item, and the rounds that had begun on either side.
        let rounds = (u64::from(*cost_max) + self.scheduler.flow_backlog(id)) / share(flow) + 2;
        let round_max: u64 = (0..FLOWS).map(|flow| share(flow) + u64::from(*cost_max)).sum();
        self.deadlines[flow].push_back(self.served + rounds * round_max);
        self.invariants();
    }

    fn pop(&mut self) {
        let Some(taken) = self.scheduler.pop() else { return };
        self.served += u64::from(taken.cost);
        let flow = taken.flow.index();
        self.deadlines[flow].pop_front();
        for other in (0..FLOWS).filter(|other| *other != flow) {
            let change = i64::from(taken.cost) * i64::from(self.shares.weights[other]);
            let (pair, change) = if flow < other { ((flow, other), change) } else { ((other, flow), -change) };
            let drift = &mut self.drifts[pair.0][pair.1];
            drift.now += change;
            drift.low = drift.low.min(drift.now);
            drift.high = drift.high.max(drift.now);
        }
        self.invariants();
    }

    /// The promises are about every moment, so this is asked after each push, pop and eviction.
    fn invariants(&mut self) {
        let Shares { quantum, cost_max, weights } = &self.shares;
        for second in 0..FLOWS {
            for first in 0..second {
                let drift = &mut self.drifts[first][second];
                let (one, two) = (i64::from(weights[first]), i64::from(weights[second]));
                let bound = i64::from(*quantum) * one * two + (i64::from(*cost_max) - 1) * (one + two);
                assert!(drift.high - drift.low <= bound, "flows {first} and {second}");
            }
        }
        assert!(self.deadlines.iter().flatten().all(|deadline| self.served <= *deadline));
        self.forget_idle();
    }

    /// The promise holds while both are busy; it starts again when they are.
    fn forget_idle(&mut self) {
        for second in 0..FLOWS {
            for first in 0..second {
                if [first, second].iter().any(|flow| self.scheduler.flow_len(FlowId(*flow as u32)) == 0) {
                    self.drifts[first][second] = Drift::default();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn busy_flows_share_by_weight_and_nobody_starves(
        shares in shares(),
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        let mut model = Model::new(shares);
        for operation in &operations {
            model.apply(operation);
        }
        (0..model.scheduler.len()).for_each(|_| model.pop());
        assert!(model.scheduler.is_empty());
    }
}
