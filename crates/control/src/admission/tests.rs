//! What the pool does, one behaviour at a time; the invariants of CONTROL §11 are in [`model`],
//! coalescing is in [`sharing`], and the paper's pool in [`configuration`].

mod configuration;
mod model;
mod sharing;

use super::*;
use alloc::vec;
use alloc::vec::Vec;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn query(value: u32) -> AdmissionRequest<u32> {
    AdmissionRequest { class: Class::Query, key: None, deadline: None, value }
}

fn pool(policy: Policy, change: impl FnOnce(&mut PoolConfig)) -> RequestPool<u32> {
    let mut config = PoolConfig::default();
    for class in &mut config.classes {
        class.policy = policy;
        class.cost_initial = Duration::from_millis(10);
    }
    change(&mut config);
    RequestPool::new(&config).unwrap()
}

#[test]
fn delay_is_bounded_not_items() {
    let mut pool = pool(Policy::Deny, |_| {});
    for value in 0..10 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    let OfferOutcome::Denied { value, reason, retry_after } = pool.offer(at(0), query(10)) else { panic!("taken") };
    assert_eq!((value, reason), (10, ShedReason::QueueFull));
    assert_eq!(retry_after, Duration::from_millis(100));
}

#[test]
fn whoever_was_promised_a_place_finds_more_room_but_not_without_end() {
    let mut pool = pool(Policy::Deny, |config| config.deadline_default = Duration::from_secs(60));
    for value in 0..10 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    assert_eq!(pool.permitted(Class::Query), Duration::from_millis(110));
    assert!(matches!(pool.offer(at(0), query(10)), OfferOutcome::Denied { .. }));
    for value in 10..50 {
        assert_eq!(pool.offer_promised(at(0), query(value)), OfferOutcome::Queued);
    }
    let refused = pool.offer_promised(at(0), query(50));
    assert!(matches!(refused, OfferOutcome::Denied { reason: ShedReason::QueueFull, value: 50, .. }));
    let order: Vec<u32> = core::iter::from_fn(|| pool.take(at(0)).map(|taken| taken.value)).collect();
    assert!(order.into_iter().eq(0..50), "in the order of arrival");
}

#[test]
fn control_is_never_behind_work() {
    let mut pool = pool(Policy::Deny, |_| {});
    for value in 0..20 {
        let _ = pool.offer(at(0), query(value));
    }
    let ping = AdmissionRequest { class: Class::Control, key: None, deadline: None, value: 99 };
    assert_eq!(pool.offer(at(0), ping), OfferOutcome::Immediate(99));
}

#[test]
fn what_cannot_be_in_time_is_denied_and_what_is_late_is_not_executed() {
    let mut pool = pool(Policy::Deny, |_| {});
    let patient = AdmissionRequest { deadline: Some(Duration::from_millis(50)), ..query(1) };
    let hurried = AdmissionRequest { deadline: Some(Duration::from_millis(15)), ..query(2) };
    assert_eq!(pool.offer(at(0), patient), OfferOutcome::Queued);
    assert!(matches!(
        pool.offer(at(0), hurried),
        OfferOutcome::Denied { reason: ShedReason::DeadlineHopeless, value: 2, .. }
    ));
    assert_eq!(pool.take(at(51)), None);
    let late = EndedRequest { class: Class::Query, value: 1, reason: ShedReason::Expired };
    assert_eq!(pool.poll_ended(), Some(late));
}

#[test]
fn a_stall_does_not_make_everything_hopeless_for_ever() {
    let mut pool = pool(Policy::Deny, |_| {});
    assert_eq!(pool.offer(at(0), query(0)), OfferOutcome::Queued);
    let stalled = pool.take(at(0)).unwrap();
    // The estimate is now some 4 s, beyond the deadline of 1.8 s.
    pool.on_served(stalled.job, Duration::from_secs(60));
    let mut now = 60_000;
    for value in 1..40 {
        assert_eq!(pool.offer(at(now), query(value)), OfferOutcome::Queued, "an idle server takes whoever comes");
        let taken = pool.take(at(now)).unwrap();
        pool.on_served(taken.job, Duration::from_millis(10));
        now += 10;
    }
    assert!(pool.cost(Class::Query) < Duration::from_millis(500), "{:?}", pool.cost(Class::Query));
}

#[test]
fn head_drop_keeps_the_newest() {
    let mut pool = pool(Policy::HeadDrop, |_| {});
    for value in 0..12 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    let displaced: Vec<u32> = core::iter::from_fn(|| pool.poll_ended()).map(|ended| ended.value).collect();
    assert_eq!(displaced, [0, 1]);
    assert_eq!(pool.take(at(0)).unwrap().value, 2);
}

#[test]
fn head_drop_displaces_nobody_in_vain() {
    let mut pool = pool(Policy::HeadDrop, |config| {
        config.classes[Class::AdvancedQuery.index()].cost_initial = Duration::from_millis(95);
    });
    for value in 0..5 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    assert_eq!(pool.offer(at(0), AdmissionRequest { class: Class::AdvancedQuery, ..query(9) }), OfferOutcome::Queued);
    let short = pool.take(at(0)).unwrap();
    pool.on_served(short.job, Duration::from_millis(10));
    let long = pool.take(at(0)).unwrap();
    assert_eq!((short.value, long.value), (0, 9));
    // 95 ms are under way: there is no room even in an empty queue.
    assert!(matches!(pool.offer(at(0), query(5)), OfferOutcome::Dropped { value: 5, .. }));
    assert_eq!(pool.poll_ended(), None);
    assert_eq!(pool.len(Class::Query), 4);
    // 35 ms under way and 40 ms in the queue leave room for two; the third displaces one.
    for value in 6..9 {
        assert_eq!(pool.offer(at(60), query(value)), OfferOutcome::Queued);
    }
    let displaced: Vec<u32> = core::iter::from_fn(|| pool.poll_ended()).map(|ended| ended.value).collect();
    assert_eq!(displaced, [1]);
    pool.on_served(long.job, Duration::from_millis(95));
}

#[test]
fn postponed_requests_move_up_in_order_and_are_not_overtaken() {
    let mut pool = pool(Policy::Postpone, |_| {});
    for value in 0..10 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    assert_eq!(pool.offer(at(0), query(10)), OfferOutcome::Parked { until: at(100) });
    assert_eq!(pool.offer(at(0), query(11)), OfferOutcome::Parked { until: at(110) });
    let mut order = Vec::new();
    let mut now = 0;
    while let Some(taken) = pool.take(at(now)) {
        order.push(taken.value);
        now += 10;
        pool.on_served(taken.job, Duration::from_millis(10));
    }
    assert_eq!(order, (0..12).collect::<Vec<u32>>());
}

#[test]
fn the_cost_of_a_class_is_learned() {
    let mut pool = pool(Policy::Deny, |_| {});
    for value in 0..200 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
        let taken = pool.take(at(0)).unwrap();
        pool.on_served(taken.job, Duration::from_millis(40));
    }
    let cost = pool.cost(Class::Query).as_secs_f64();
    assert!((cost / 0.040 - 1.0).abs() < 0.01, "{cost}");
    assert_eq!(pool.cost(Class::Update), Duration::from_millis(10));
}

fn with_servers(servers: u32, advanced_secs: u64) -> RequestPool<u32> {
    pool(Policy::Deny, |config| {
        config.servers = servers;
        let advanced = &mut config.classes[Class::AdvancedQuery.index()];
        advanced.cost_initial = Duration::from_secs(advanced_secs);
        advanced.delay_max = Duration::from_secs(60);
    })
}

fn advanced(value: u32) -> AdmissionRequest<u32> {
    AdmissionRequest { class: Class::AdvancedQuery, deadline: Some(Duration::from_secs(60)), ..query(value) }
}

#[test]
fn a_long_query_does_not_delay_what_another_server_can_do() {
    let mut pool = with_servers(4, 10);
    assert_eq!(pool.offer(at(0), advanced(0)), OfferOutcome::Queued);
    let long = pool.take(at(0)).unwrap();
    assert_eq!(pool.offer(at(0), query(1)), OfferOutcome::Queued, "three servers are idle");
    let short = pool.take(at(0)).unwrap();
    for value in 2..4 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    let others = [pool.take(at(0)).unwrap(), pool.take(at(0)).unwrap()];
    assert_eq!(pool.offer(at(0), query(4)), OfferOutcome::Queued, "all are busy, three of them for 10 ms");
    for taken in [long, short].into_iter().chain(others) {
        pool.on_served(taken.job, Duration::from_millis(10));
    }
}

#[test]
fn work_in_service_counts_as_far_as_it_is_not_done() {
    let mut pool = with_servers(1, 1);
    assert_eq!(pool.offer(at(0), advanced(0)), OfferOutcome::Queued);
    let taken = pool.take(at(0)).unwrap();
    assert!(matches!(pool.offer(at(100), query(1)), OfferOutcome::Denied { reason: ShedReason::QueueFull, .. }));
    let hurried = AdmissionRequest { deadline: Some(Duration::from_millis(800)), ..query(2) };
    assert!(matches!(pool.offer(at(100), hurried), OfferOutcome::Denied { reason: ShedReason::DeadlineHopeless, .. }));
    assert_eq!(pool.offer(at(920), query(3)), OfferOutcome::Queued, "80 ms are left of the second");
    pool.on_served(taken.job, Duration::from_secs(1));
}

#[test]
fn a_cancelled_job_leaves_the_service_and_teaches_nothing() {
    let mut pool = with_servers(1, 1);
    assert_eq!(pool.offer(at(0), advanced(0)), OfferOutcome::Queued);
    let taken = pool.take(at(0)).unwrap();
    assert_eq!(pool.backlog(Class::Query, at(10)), Duration::from_millis(990));
    pool.on_cancelled(taken.job);
    assert_eq!(pool.backlog(Class::Query, at(10)), Duration::ZERO);
    assert_eq!(pool.cost(Class::AdvancedQuery), Duration::from_secs(1));
}

#[test]
fn the_total_backlog_counts_the_service_once() {
    let mut pool = with_servers(1, 1);
    assert_eq!(pool.offer(at(0), advanced(0)), OfferOutcome::Queued);
    let taken = pool.take(at(0)).unwrap();
    for class in [Class::Update, Class::Query, Class::Check] {
        assert_eq!(pool.offer(at(950), AdmissionRequest { class, ..query(1) }), OfferOutcome::Queued);
    }
    assert_eq!(pool.backlog(Class::Query, at(950)), Duration::from_millis(60));
    assert_eq!(pool.backlog_total(at(950)), Duration::from_millis(80));
    assert_eq!(pool.backlog_total(at(980)), Duration::from_millis(50), "as far as the service is not done");
    pool.on_served(taken.job, Duration::from_secs(1));
    assert_eq!(pool.backlog_total(at(980)), Duration::from_millis(30));
}

/// Classes that both wait share the server by weight: 6 for advanced queries, 16 for updates.
#[test]
fn classes_share_by_weight_and_none_starves() {
    let mut pool = pool(Policy::Deny, |config| {
        config.deadlines = Deadlines::Ignore;
        for class in &mut config.classes {
            class.delay_max = Duration::from_secs(86_400);
        }
    });
    for value in 0..10_000 {
        for class in [Class::AdvancedQuery, Class::Update] {
            assert_eq!(pool.offer(at(0), AdmissionRequest { class, ..query(value) }), OfferOutcome::Queued);
        }
    }
    for _ in 0..6000 {
        let taken = pool.take(at(0)).unwrap();
        pool.on_served(taken.job, Duration::from_millis(10));
    }
    let served = |class| pool.counts(class).taken as f64 / 6000.0;
    assert!((served(Class::AdvancedQuery) - 6.0 / 22.0).abs() < 0.01, "{}", served(Class::AdvancedQuery));
    assert!((served(Class::Update) - 16.0 / 22.0).abs() < 0.01, "{}", served(Class::Update));
}

/// Updates always wait; one query of 1 s at a time, its successor comes an update later.
#[test]
fn a_queue_that_is_empty_for_a_moment_keeps_its_debt() {
    let mut pool = pool(Policy::Deny, |config| {
        config.deadlines = Deadlines::Ignore;
        config.classes[Class::AdvancedQuery.index()].cost_initial = Duration::from_secs(1);
        config.classes[Class::Update.index()].cost_initial = Duration::from_millis(1);
        for class in &mut config.classes {
            class.delay_max = Duration::from_secs(86_400);
        }
    });
    let (mut now, mut busy) = (Timestamp::ZERO, [Duration::ZERO; Class::COUNT]);
    for round in 0..100_000 {
        while pool.len(Class::Update) < 2 {
            assert_eq!(
                pool.offer(now, AdmissionRequest { class: Class::Update, ..query(round) }),
                OfferOutcome::Queued
            );
        }
        let taken = pool.take(now).unwrap();
        let class = taken.job.class;
        if class == Class::Update && pool.len(Class::AdvancedQuery) == 0 {
            assert_eq!(
                pool.offer(now, AdmissionRequest { class: Class::AdvancedQuery, ..query(round) }),
                OfferOutcome::Queued
            );
        }
        let cost = pool.cost(class);
        busy[class.index()] += cost;
        now = now + cost;
        pool.on_served(taken.job, cost);
    }
    let [update, advanced] = [Class::Update, Class::AdvancedQuery].map(|class| busy[class.index()].as_secs_f64());
    let share = advanced / (advanced + update);
    assert!((share - 6.0 / 22.0).abs() < 0.01, "advanced {advanced} s, update {update} s");
}

/// All of them wait: each gets its weight, and the lowest one is not forgotten.
#[test]
fn every_class_gets_its_weight() {
    let mut pool = pool(Policy::Deny, |config| {
        config.deadlines = Deadlines::Ignore;
        for (index, class) in config.classes.iter_mut().enumerate() {
            class.delay_max = Duration::from_secs(86_400);
            class.cost_initial = Duration::from_millis(1 + 7 * index as u64);
        }
    });
    let (mut busy, mut all) = ([Duration::ZERO; Class::COUNT], Duration::ZERO);
    for value in 0..60_000 {
        for class in &Class::ALL[1..] {
            while pool.len(*class) < 2 {
                assert_eq!(pool.offer(at(0), AdmissionRequest { class: *class, ..query(value) }), OfferOutcome::Queued);
            }
        }
        let taken = pool.take(at(0)).unwrap();
        let cost = pool.cost(taken.job.class);
        busy[taken.job.class.index()] += cost;
        all += cost;
        pool.on_served(taken.job, cost);
    }
    for class in &Class::ALL[1..] {
        let share = busy[class.index()].as_secs_f64() / all.as_secs_f64();
        let weight = f64::from(PoolConfig::default().classes[class.index()].weight) / 100.0;
        assert!((share / weight - 1.0).abs() < 0.01, "{class}: {share} for {weight}");
    }
}

#[test]
fn a_class_does_not_pay_for_requests_that_were_not_executed() {
    let mut pool = pool(Policy::Deny, |_| {});
    for value in 0..9 {
        assert_eq!(pool.offer(at(0), query(value)), OfferOutcome::Queued);
    }
    let other = AdmissionRequest { class: Class::Check, deadline: Some(Duration::from_secs(60)), ..query(9) };
    assert_eq!(pool.offer(at(0), other), OfferOutcome::Queued);
    // All nine are late; the class comes back and is served at its next turn.
    let taken = pool.take(at(5000)).unwrap();
    pool.on_served(taken.job, Duration::from_millis(10));
    for value in 10..20 {
        let request = AdmissionRequest { class: [Class::Query, Class::Check][value as usize % 2], ..query(value) };
        assert_eq!(pool.offer(at(5000), request), OfferOutcome::Queued);
    }
    let mut served = Vec::new();
    for _ in 0..4 {
        let taken = pool.take(at(5000)).unwrap();
        served.push(taken.job.class);
        pool.on_served(taken.job, Duration::from_millis(10));
    }
    assert_eq!(served.iter().filter(|class| **class == Class::Query).count(), 2, "{served:?}");
}
