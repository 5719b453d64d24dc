//! What one connection sends is taken in the order in which it came, whatever its kind, role and promises; and nobody else
//! waits for it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
/// Names of changes that are short, and that are long by what was learned.
const SHORT: u64 = 1;
const LONG_ONE: u64 = 2;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// A change of a flow, and its number.
type Sent = (u64, u32);

fn change(flow: u64, kind: u64, number: u32) -> Arrival<Sent> {
    let shape = Shape { exact: 0, kind, size: 1, own: 0 };
    let (class, patience) = (Class::Update, Duration::from_secs(10));
    let terms = WaitTerms { flow, ..WaitTerms::default() };
    Arrival { class, key: None, kp: flow.into(), check: None, shape, patience, terms, value: (flow, number) }
}

/// A writer that has seen both kinds of changes.
fn writer() -> Order<Sent> {
    let servers = Servers { threads: usize::MAX, long_max: usize::MAX, worth: 1, apart_max: 1 };
    let mut order = Order::new(&PoolConfig::default(), servers, |_| false).unwrap();
    for (kind, cost) in [(SHORT, MS / 20), (LONG_ONE, MS * 200)] {
        assert!(matches!(order.offer(at(0), change(0, kind, 0)), Offered::Queued));
        let taken = order.take(at(0), &[]).unwrap();
        order.on_served(taken.job, cost);
    }
    order
}

#[test]
fn a_change_that_is_estimated_to_be_long_is_neither_overtaken_nor_overtakes() {
    let mut order = writer();
    for (number, kind) in [(0, SHORT), (1, LONG_ONE), (2, SHORT)] {
        assert!(matches!(order.offer(at(0), change(7, kind, number)), Offered::Queued));
    }
    assert!(matches!(order.offer(at(0), change(8, SHORT, 9)), Offered::Queued));
    let mut taken: Vec<Sent> = Vec::new();
    while let Some(next) = order.take(at(0), &[]) {
        taken.push(next.value);
        order.on_served(next.job, MS);
    }
    let own: Vec<u32> = taken.iter().filter(|(flow, _)| *flow == 7).map(|(_, number)| *number).collect();
    assert_eq!(own, [0, 1, 2]);
    assert_ne!(taken.last(), Some(&(8, 9)), "another connection does not wait for the long one: {taken:?}");
}

#[test]
fn a_flow_that_is_held_up_keeps_nobody_else_not_even_in_the_same_line() {
    let mut order = writer();
    // Newcomers of one address.
    for (number, flow) in [(0, 7), (1, 8), (2, 7)] {
        let request = Arrival { kp: 1.into(), ..change(flow, SHORT, number) };
        assert!(matches!(order.offer(at(0), request), Offered::Queued));
    }
    let next = order.take(at(0), &[7]).unwrap();
    assert_eq!(next.value, (8, 1));
    order.on_served(next.job, MS);
    assert!(order.take(at(0), &[7]).is_none(), "its own later changes wait");
    let rest: Vec<u32> = std::iter::from_fn(|| order.take(at(0), &[])).map(|taken| taken.value.1).collect();
    assert_eq!(rest, [0, 2]);
}

proptest! {
    #[test]
    fn what_one_connection_sends_is_taken_in_order(
        steps in prop::collection::vec((0..4u64, any::<bool>(), any::<bool>(), any::<bool>(), 0..3usize), 1..120),
    ) {
        let mut order = writer();
        let mut last: BTreeMap<u64, u32> = BTreeMap::new();
        let mut running = Vec::new();
        for (number, (flow, is_long, is_promised, is_service, takes)) in steps.into_iter().enumerate() {
            let mut request = change(flow, if is_long { LONG_ONE } else { SHORT }, u32::try_from(number).unwrap());
            request.terms.is_promised = is_promised;
            request.kp.standing.role = if is_service { KpRole::Service } else { KpRole::Customer };
            let _ = order.offer(at(0), request);
            for _ in 0..takes {
                let Some(taken) = order.take(at(0), &[]) else { break };
                let (flow, number) = taken.value;
                if flow != 0 {
                    prop_assert!(last.insert(flow, number) < Some(number), "{number} of {flow}");
                }
                running.push(taken.job);
            }
            if number % 3 == 0 {
                running.drain(..).for_each(|job| order.on_served(job, MS));
            }
        }
        running.drain(..).for_each(|job| order.on_served(job, MS));
        while let Some(taken) = order.take(at(0), &[]) {
            let (flow, number) = taken.value;
            prop_assert!(flow == 0 || last.insert(flow, number) < Some(number), "{number} of {flow}");
            order.on_served(taken.job, MS);
        }
        prop_assert!(order.is_empty());
    }
}
