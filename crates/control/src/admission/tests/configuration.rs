//! What can be configured, what is refused, and the pool of the papers.

use super::*;
use alloc::format;
use alloc::string::ToString;

#[test]
fn the_papers_pool_drops_at_the_tail_and_works_for_the_dead() {
    let mut pool = RequestPool::new(&PoolConfig::paper(2)).unwrap();
    assert_eq!(pool.offer(at(0), query(0)), OfferOutcome::Queued);
    assert_eq!(pool.offer(at(0), query(1)), OfferOutcome::Queued);
    assert!(matches!(pool.offer(at(0), query(2)), OfferOutcome::Dropped { value: 2, .. }));
    assert_eq!(pool.take(at(1_000_000)).unwrap().value, 0);
}

/// Requests of an hour each: there is no bound but the number, and nobody is refused for a deadline.
#[test]
fn only_the_length_of_a_queue_bounds_the_papers_pool() {
    let mut config = PoolConfig::from(PoolRule::Paper);
    for class in &mut config.classes {
        class.cost_initial = Duration::from_secs(3600);
    }
    let mut pool = RequestPool::new(&config).unwrap();
    for class in &Class::ALL[1..] {
        for value in 0..1000 {
            assert_eq!(pool.offer(at(0), AdmissionRequest { class: *class, ..query(value) }), OfferOutcome::Queued);
        }
        assert!(matches!(
            pool.offer(at(0), AdmissionRequest { class: *class, ..query(0) }),
            OfferOutcome::Dropped { .. }
        ));
    }
    let mut order = Vec::new();
    for _ in 0..12 {
        let taken = pool.take(at(0)).unwrap();
        order.push(taken.job.class);
        pool.on_served(taken.job, Duration::from_secs(3600));
    }
    assert_eq!(order, [&Class::ALL[1..], &Class::ALL[1..]].concat(), "one after the other");
}

#[test]
fn the_papers_pool_answers_equal_queries_once() {
    let mut pool = RequestPool::new(&PoolConfig::paper(1)).unwrap();
    let keyed = |value| AdmissionRequest { key: Some(QueryKey(7)), ..query(value) };
    assert_eq!(pool.offer(at(0), keyed(0)), OfferOutcome::Queued);
    for value in 1..100_000 {
        assert_eq!(pool.offer(at(0), keyed(value)), OfferOutcome::Joined);
    }
    assert!(matches!(pool.offer(at(0), query(2)), OfferOutcome::Dropped { .. }));
}

#[test]
fn both_pools_have_a_name() {
    assert_eq!("practical".parse::<PoolRule>().map(PoolConfig::from), Ok(PoolConfig::default()));
    assert_eq!("paper".parse::<PoolRule>().map(PoolConfig::from), Ok(PoolConfig::paper(1000)));
    for rule in PoolRule::ALL {
        assert!(RequestPool::<()>::new(&PoolConfig::from(*rule)).is_ok());
    }
}

#[test]
fn a_wrong_configuration_is_named_with_its_class() {
    for class in Class::ALL {
        let refused = |change: fn(&mut ClassConfig)| {
            let mut config = PoolConfig::default();
            change(&mut config.classes[class.index()]);
            RequestPool::<u32>::new(&config).unwrap_err()
        };
        for (field, change) in [
            ("items_max", (|class| class.items_max = 0) as fn(&mut ClassConfig)),
            ("delay_max", |class| class.delay_max = Duration::ZERO),
            ("delay_max", |class| class.delay_max = Duration::from_secs(86_401)),
            ("waiters_max", |class| class.waiters_max = 0),
            ("weight", |class| class.weight = 1001),
            ("parked_max", |class| class.parked_max = u32::MAX),
            ("cost_initial", |class| class.cost_initial = Duration::ZERO),
            ("answer_cost", |class| class.answer_cost = Duration::from_secs(2)),
        ] {
            assert_eq!(refused(change).field, format!("{class}.{field}"));
        }
    }
    let mut config = PoolConfig::default();
    config.classes[Class::AdvancedQuery.index()].weight = 0;
    let error = RequestPool::<u32>::new(&config).unwrap_err().to_string();
    assert_eq!(error, "advanced-query.weight = 0 is not allowed: expected a whole number in 1..=1000");
}
