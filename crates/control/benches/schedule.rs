//! What it costs to wait in line: one push and one pop with 10 000 publishers, beside the structures one would reach for
//! first, and the upkeep of the ranks. Every figure is for one pair, one lookup or one update, in the steady state.
#![expect(clippy::expect_used, reason = "a benchmark with wrong bounds has nothing to measure")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use divan::{Bencher, black_box};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tidegate_control::rank::Ranks;
use tidegate_control::schedule::{FlowId, Pushed, Scheduler, SchedulerConfig, SchedulerRule};

fn main() {
    divan::main();
}

const PUBLISHERS: u32 = 10_000;
/// Items that wait all the time: two for each publisher on average.
const WAITING: usize = 2 * PUBLISHERS as usize;

/// Whose message comes next.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Everyone's with the same probability.
    Uniform,
    /// Rates over three decades.
    Skewed,
}

const LOADS: [Load; 2] = [Load::Uniform, Load::Skewed];

/// A fixed sequence of publishers, repeated for ever: the generator is not what is measured.
struct Arrivals {
    flows: Vec<u32>,
    next: usize,
}

impl Arrivals {
    fn new(load: Load) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(22);
        let cumulated: Vec<f64> = (0..PUBLISHERS)
            .scan(0.0, |sum, flow| {
                *sum += match load {
                    Load::Uniform => 1.0,
                    Load::Skewed => 10f64.powf(3.0 * f64::from(flow) / f64::from(PUBLISHERS)),
                };
                Some(*sum)
            })
            .collect();
        let total = cumulated[cumulated.len() - 1];
        let mut draw = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        // Identifiers are scattered, so that neighbours in rate are not neighbours in memory.
        let scattered = |flow: usize| (flow as u32).wrapping_mul(7919) % PUBLISHERS;
        let flows = (0..1 << 18)
            .map(|_| {
                let drawn = draw();
                scattered(cumulated.partition_point(|sum| *sum < drawn))
            })
            .collect();
        Self { flows, next: 0 }
    }

    fn next(&mut self) -> FlowId {
        self.next = (self.next + 1) % self.flows.len();
        FlowId(self.flows[self.next])
    }
}

fn scheduler(rule: SchedulerRule, items_max: usize, arrivals: &mut Arrivals) -> Scheduler<u64> {
    let config =
        SchedulerConfig { rule, quantum: 1, cost_max: 1, items_max: items_max as u32, ..SchedulerConfig::default() };
    let mut scheduler = config.build().expect("bounds are fine");
    for flow in (0..PUBLISHERS).map(FlowId) {
        let _ = scheduler.set_weight(flow, 4 >> (flow.0 % 3));
        let _ = scheduler.set_order(flow, u64::from(flow.0));
    }
    while scheduler.len() < WAITING as u32 {
        let _ = scheduler.push(arrivals.next(), 0, 1);
    }
    scheduler
}

fn pairs(bencher: Bencher, rule: SchedulerRule, load: Load) {
    let mut arrivals = Arrivals::new(load);
    let mut scheduler = scheduler(rule, 2 * WAITING, &mut arrivals);
    bencher.bench_local(|| {
        let _ = black_box(scheduler.push(arrivals.next(), 7, 1));
        black_box(scheduler.pop())
    });
}

#[divan::bench(args = LOADS, sample_count = 100, sample_size = 20_000)]
fn push_pop_drr(bencher: Bencher, load: Load) {
    pairs(bencher, SchedulerRule::Drr, load);
}

#[divan::bench(args = LOADS, sample_count = 100, sample_size = 20_000)]
fn push_pop_strict(bencher: Bencher, load: Load) {
    pairs(bencher, SchedulerRule::Strict, load);
}

/// A full pool: every push drops the head of the longest queue first.
#[divan::bench(args = LOADS, sample_count = 100, sample_size = 20_000)]
fn push_evict_drr(bencher: Bencher, load: Load) {
    let mut arrivals = Arrivals::new(load);
    let mut scheduler = scheduler(SchedulerRule::Drr, WAITING, &mut arrivals);
    bencher.bench_local(|| {
        let flow = arrivals.next();
        let Pushed::Full(item) = scheduler.push(flow, 7, 1) else { return };
        black_box(scheduler.evict_longest());
        let _ = black_box(scheduler.push(flow, item, 1));
    });
}

/// The default bounds, costs in bytes: some items are larger than a quantum and leave debts.
#[divan::bench(sample_count = 100, sample_size = 20_000)]
fn push_pop_drr_bytes(bencher: Bencher) {
    let mut arrivals = Arrivals::new(Load::Skewed);
    let mut scheduler: Scheduler<u64> = SchedulerConfig::default().build().expect("defaults are fine");
    let size = |flow: FlowId| 64 + flow.0 % 2000;
    for _ in 0..WAITING {
        let flow = arrivals.next();
        let _ = scheduler.push(flow, 0, size(flow));
    }
    bencher.bench_local(|| {
        let flow = arrivals.next();
        let _ = black_box(scheduler.push(flow, 7, size(flow)));
        black_box(scheduler.pop())
    });
}

/// Peer: strict priority in one heap, ties by arrival.
#[divan::bench(args = LOADS, sample_count = 100, sample_size = 20_000)]
fn push_pop_binary_heap(bencher: Bencher, load: Load) {
    let mut arrivals = Arrivals::new(load);
    let mut heap: BinaryHeap<Reverse<(u32, u64, u64)>> = BinaryHeap::new();
    let mut sequence = 0;
    let mut push = |heap: &mut BinaryHeap<_>| {
        sequence += 1;
        heap.push(Reverse((arrivals.next().0, sequence, 7)));
    };
    for _ in 0..WAITING {
        push(&mut heap);
    }
    bencher.bench_local(|| {
        push(&mut heap);
        black_box(heap.pop())
    });
}

/// Peer: strict priority in a tree of queues.
#[divan::bench(args = LOADS, sample_count = 100, sample_size = 20_000)]
fn push_pop_btree_of_queues(bencher: Bencher, load: Load) {
    let mut arrivals = Arrivals::new(load);
    let mut tree: BTreeMap<u32, VecDeque<u64>> = BTreeMap::new();
    for _ in 0..WAITING {
        tree.entry(arrivals.next().0).or_default().push_back(0);
    }
    bencher.bench_local(|| {
        tree.entry(arrivals.next().0).or_default().push_back(7);
        let mut first = tree.first_entry()?;
        let item = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        black_box(item)
    });
}

const CROWDS: [u32; 2] = [10_000, 1_000_000];

/// Publishers with rates over three decades, and an order of visits that no cache foresees.
fn ranked(publishers: u32) -> (Ranks, Vec<f64>, impl FnMut() -> u32) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(22);
    let mut ranks = Ranks::new(publishers);
    let rates: Vec<f64> =
        (0..publishers).map(|_| 10f64.powf(3.0 * (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64)).collect();
    for (id, rate) in (0..).zip(&rates) {
        ranks.set(FlowId(id), Some(*rate)).expect("within the maximum");
    }
    let visits: Vec<u32> = (0..1 << 18).map(|_| (rng.next_u64() % u64::from(publishers)) as u32).collect();
    let mut at = 0;
    let visit = move || {
        at = (at + 1) % visits.len();
        visits[at]
    };
    (ranks, rates, visit)
}

#[divan::bench(args = CROWDS, sample_count = 50, sample_size = 20_000)]
fn rank_lookup(bencher: Bencher, publishers: u32) {
    let (ranks, _, mut visit) = ranked(publishers);
    bencher.bench_local(|| black_box(ranks.rank(FlowId(visit()))));
}

#[divan::bench(args = CROWDS, sample_count = 50, sample_size = 20_000)]
fn rank_tercile(bencher: Bencher, publishers: u32) {
    let (ranks, _, mut visit) = ranked(publishers);
    bencher.bench_local(|| black_box(ranks.tercile(FlowId(visit()))));
}

/// An estimate that trembles by up to 1 % with each message.
#[divan::bench(args = CROWDS, sample_count = 50, sample_size = 20_000)]
fn rank_update_by_a_hair(bencher: Bencher, publishers: u32) {
    let (mut ranks, rates, mut visit) = ranked(publishers);
    let mut step = 0u32;
    bencher.bench_local(|| {
        let id = visit();
        step = step.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let rate = rates[id as usize] * (1.0 + 0.01 * f64::from(step) / f64::from(u32::MAX));
        black_box(ranks.set(FlowId(id), Some(rate)))
    });
}

/// A rate that has nothing to do with the one before.
#[divan::bench(args = CROWDS, sample_count = 50, sample_size = 20_000)]
fn rank_update_far(bencher: Bencher, publishers: u32) {
    let (mut ranks, rates, mut visit) = ranked(publishers);
    let mut step = 0;
    bencher.bench_local(|| {
        step += 1;
        let (id, other) = (visit(), (visit() + step) % publishers);
        black_box(ranks.set(FlowId(id), Some(rates[other as usize])))
    });
}

/// Peer: the same update in an ordered set, which cannot tell ranks at all.
#[divan::bench(args = CROWDS, sample_count = 50, sample_size = 20_000)]
fn rank_update_far_btree_set(bencher: Bencher, publishers: u32) {
    let (ranks, rates, mut visit) = ranked(publishers);
    let mut keys: Vec<u64> = (0..publishers).map(|id| ranks.order_key(FlowId(id))).collect();
    let mut set: std::collections::BTreeSet<u64> = keys.iter().copied().collect();
    let mut step = 0;
    bencher.bench_local(|| {
        step += 1;
        let (id, other) = (visit(), (visit() + step) % publishers);
        let new = rates[other as usize].to_bits() >> 32 << 32 | u64::from(id);
        set.remove(&std::mem::replace(&mut keys[id as usize], new));
        black_box(set.insert(new))
    });
}
