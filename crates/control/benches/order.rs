//! What it costs to ask who is next, and what a message is entitled to: `cargo bench -p tidegate-control --bench order`.
//! A turn is what the broker has; every figure is for one message of it, with so many connections that never stop.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tidegate_control::Timestamp;
use tidegate_control::claim::{Claim, ClaimPlan};
use tidegate_control::order::{ReadOrder, Served, Standing};

fn main() {
    divan::main();
}

/// As in the broker.
const TURN_UNITS: u32 = 2048;

const STRANGER: Standing = Standing { entitled_at: Timestamp::MAX, weight: 2, grant: 0 };

/// Each of its own network.
#[divan::bench(args = [1, 50, 1000, 10_000])]
fn turn_of_floods(bencher: Bencher, flows: u32) {
    let mut order = ReadOrder::default();
    for key in 0..flows {
        order.wait(key, key.into(), STRANGER, 100, Timestamp::ZERO);
    }
    bencher.counter(ItemsCount::new(TURN_UNITS as usize)).bench_local(|| {
        let now = Timestamp::ZERO;
        order.begin_turn(TURN_UNITS, now);
        let mut left = TURN_UNITS;
        while left > 0
            && let Some(visit) = order.next(now, |_| 0)
        {
            order.served(visit.place, visit.units, Served::More(STRANGER), now);
            left = left.saturating_sub(visit.units);
        }
    });
}

/// 10 000 publishers in turn: the state is not all in the first cache.
#[divan::bench]
fn colour_of_a_message(bencher: Bencher) {
    const PUBLISHERS: usize = 10_000;
    let plan = ClaimPlan::default();
    let mut claims = vec![Claim::resume(&plan, 10.0, 1, Timestamp::ZERO); PUBLISHERS];
    let mut millis = 0_u64;
    bencher.counter(ItemsCount::new(PUBLISHERS)).bench_local(|| {
        millis += 100;
        let now = Timestamp::from_nanos(millis * 1_000_000);
        for claim in &mut claims {
            if claim.ends_second(now) {
                claim.go_on(&plan, now, now, f32::INFINITY);
            }
            black_box(claim.on_message(&plan, now, now));
        }
    });
}
