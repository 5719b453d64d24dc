//! One execution for many answers, within bounds.

use super::*;

fn keyed(value: u32, key: u128) -> AdmissionRequest<u32> {
    AdmissionRequest { key: Some(QueryKey(key)), ..query(value) }
}

/// Invariant 23: equal queries, one execution, an answer for each.
#[test]
fn equal_queries_share_one_execution_even_when_the_queue_is_full() {
    let mut pool = pool(Policy::Deny, |config| config.shared_max = 3);
    assert_eq!(pool.offer(at(0), keyed(0, 7)), OfferOutcome::Queued);
    for value in 1..10 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    assert_eq!(pool.offer(at(0), keyed(10, 7)), OfferOutcome::Joined);
    assert_eq!(pool.offer(at(0), keyed(11, 7)), OfferOutcome::Joined);
    assert!(matches!(pool.offer(at(0), keyed(12, 7)), OfferOutcome::Denied { .. }), "three recipients at most");
    assert!(matches!(pool.offer(at(0), keyed(13, 8)), OfferOutcome::Denied { .. }), "another query");
    let taken = pool.take(at(0)).unwrap();
    assert_eq!((taken.value, taken.joined), (0, vec![10, 11]));
    pool.on_served(taken.job, Duration::from_millis(10));
    assert_eq!(pool.offer(at(0), keyed(14, 7)), OfferOutcome::Queued, "what runs already is not joined");
}

/// Fills the queue with 100 ms of work.
fn full(policy: Policy, change: impl FnOnce(&mut PoolConfig)) -> RequestPool<u32> {
    let mut pool = pool(policy, change);
    for value in 0..10 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    pool
}

#[test]
fn parked_queries_are_shared_too() {
    let mut pool = full(Policy::Postpone, |_| {});
    assert_eq!(pool.offer(at(0), keyed(10, 7)), OfferOutcome::Parked { until: at(100) });
    for value in 11..20 {
        assert_eq!(pool.offer(at(0), keyed(value, 7)), OfferOutcome::Joined);
    }
    let mut executions = Vec::new();
    for step in 0..11 {
        let taken = pool.take(at(10 * step)).unwrap();
        executions.push((taken.value, taken.joined.len()));
        pool.on_served(taken.job, Duration::from_millis(10));
    }
    assert_eq!(executions.pop(), Some((10, 9)));
    assert_eq!(pool.take(at(200)), None);
}

/// When the first execution has as many recipients as it may, the next one collects the rest, parked or not.
#[test]
fn moving_up_does_not_change_who_is_joined() {
    let mut pool = full(Policy::Postpone, |config| config.shared_max = 2);
    let mut offered = |value| pool.offer(at(0), keyed(value, 7));
    assert!(matches!(offered(10), OfferOutcome::Parked { .. }));
    assert_eq!(offered(11), OfferOutcome::Joined);
    assert!(matches!(offered(12), OfferOutcome::Parked { .. }));
    for step in 0..10 {
        let taken = pool.take(at(10 * step)).unwrap();
        pool.on_served(taken.job, Duration::from_millis(10));
    }
    assert_eq!(pool.offer(at(100), keyed(13, 7)), OfferOutcome::Joined);
    let shared = [pool.take(at(100)), pool.take(at(100))].map(|taken| {
        let taken = taken.unwrap();
        pool.on_served(taken.job, Duration::from_millis(10));
        (taken.value, taken.joined)
    });
    assert_eq!(shared, [(10, vec![11]), (12, vec![13])]);
}

#[test]
fn answers_count_against_the_delay_bound() {
    for policy in [Policy::Deny, Policy::TailDrop] {
        let mut pool = pool(policy, |config| {
            config.classes[Class::Query.index()].answer_cost = Duration::from_millis(1);
        });
        assert_eq!(pool.offer(at(0), keyed(0, 7)), OfferOutcome::Queued);
        for value in 1..=100 {
            assert_eq!(pool.offer(at(0), keyed(value, 7)), OfferOutcome::Joined);
        }
        let refused = pool.offer(at(0), keyed(101, 7));
        match policy {
            Policy::Deny => assert!(matches!(refused, OfferOutcome::Denied { reason: ShedReason::QueueFull, .. })),
            _ => assert!(matches!(refused, OfferOutcome::Dropped { .. })),
        }
        assert_eq!(pool.backlog(Class::Query, at(0)), Duration::from_millis(110), "the bound and one request");
    }
}

#[test]
fn waiters_are_bounded_with_those_that_joined() {
    for policy in [Policy::Deny, Policy::Postpone, Policy::TailDrop] {
        let mut pool = pool(policy, |config| config.classes[Class::Query.index()].waiters_max = 5);
        let joined = (0..1000).filter(|value| {
            let offered = pool.offer(at(0), keyed(*value, u128::from(value % 2)));
            matches!(offered, OfferOutcome::Queued | OfferOutcome::Joined | OfferOutcome::Parked { .. })
        });
        assert_eq!(joined.count(), 5, "{policy}");
        assert_eq!(pool.counts(Class::Query).waiting, 5);
    }
    let mut pool = pool(Policy::HeadDrop, |config| config.classes[Class::Query.index()].waiters_max = 5);
    for value in 0..1000 {
        let _ = pool.offer(at(0), keyed(value, u128::from(value % 2)));
        assert!(pool.counts(Class::Query).waiting <= 5);
    }
}

#[test]
fn who_joins_in_vain_is_denied_at_once() {
    let mut pool = pool(Policy::Deny, |_| {});
    for value in 0..9 {
        assert_eq!(pool.offer(at(0), keyed(value, u128::from(value))), OfferOutcome::Queued);
    }
    let hurried = |key| AdmissionRequest { deadline: Some(Duration::from_millis(20)), ..keyed(100, key) };
    assert_eq!(pool.offer(at(0), hurried(0)), OfferOutcome::Joined, "the first in the queue is soon enough");
    let offered = pool.offer(at(0), hurried(8));
    assert!(matches!(offered, OfferOutcome::Denied { reason: ShedReason::DeadlineHopeless, .. }), "{offered:?}");
}

#[test]
fn the_answers_of_those_that_joined_are_not_learned_as_cost() {
    let mut pool = pool(Policy::Deny, |config| {
        config.classes[Class::Query.index()].answer_cost = Duration::from_millis(1);
    });
    for round in 0..100 {
        for value in 0..50 {
            let _ = pool.offer(at(1000 * round), keyed(value, 7));
        }
        let taken = pool.take(at(1000 * round)).unwrap();
        assert_eq!(taken.joined.len(), 49);
        pool.on_served(taken.job, Duration::from_millis(10 + 49));
    }
    let cost = pool.cost(Class::Query).as_secs_f64();
    assert!((cost / 0.010 - 1.0).abs() < 0.01, "{cost}");
}

/// If an answer costs less than is configured, what remains of the sample is not nothing.
#[test]
fn a_cheap_answer_does_not_make_the_execution_free() {
    let mut pool = pool(Policy::Deny, |config| {
        config.classes[Class::Query.index()].answer_cost = Duration::from_millis(1);
    });
    for value in 0..50 {
        let _ = pool.offer(at(0), keyed(value, 7));
    }
    let taken = pool.take(at(0)).unwrap();
    pool.on_served(taken.job, Duration::from_millis(20));
    let expected = 10_000 - 10_000 / 16 + 20_000 / 50 / 16;
    assert_eq!(pool.cost(Class::Query), Duration::from_micros(expected));
}
