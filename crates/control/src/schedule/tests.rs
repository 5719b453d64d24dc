//! The scheduler against a naive model, its promises of fairness, and the comparison of EVAL 4.9.

mod claims;
mod comparison;
mod fairness;
mod model;

use alloc::vec::Vec;

use super::*;

fn config(rule: SchedulerRule) -> SchedulerConfig {
    SchedulerConfig { rule, quantum: 4, cost_max: 16, items_max: 12, backlog_max: 40, flows_max: 6 }
}

fn drr() -> Scheduler<u32> {
    config(SchedulerRule::Drr).build().unwrap()
}

fn push(scheduler: &mut Scheduler<u32>, flow: u32, item: u32, cost: u32) {
    assert_eq!(scheduler.push(FlowId(flow), item, cost), Pushed::Queued);
}

fn popped(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
    core::iter::from_fn(|| scheduler.pop()).map(|taken| taken.item).collect()
}

#[test]
fn impossible_bounds_are_refused_by_name() {
    let fine = SchedulerConfig::default();
    for (field, wrong) in [
        ("quantum", SchedulerConfig { quantum: 0, ..fine.clone() }),
        ("quantum", SchedulerConfig { quantum: fine.cost_max / DEBT_ROUNDS_MAX - 1, ..fine.clone() }),
        ("cost_max", SchedulerConfig { cost_max: 0, ..fine.clone() }),
        ("items_max", SchedulerConfig { items_max: 0, ..fine.clone() }),
        ("items_max", SchedulerConfig { items_max: u32::MAX, ..fine.clone() }),
        ("backlog_max", SchedulerConfig { backlog_max: u64::from(fine.cost_max) - 1, ..fine.clone() }),
        ("flows_max", SchedulerConfig { flows_max: u32::MAX, ..fine.clone() }),
    ] {
        assert_eq!(wrong.build::<()>().unwrap_err().field, field);
    }
    assert!(Scheduler::<()>::new(&fine).is_ok());
    assert_eq!("strict".parse(), Ok(SchedulerRule::Strict));
}

#[test]
fn unknown_flows_are_answered() {
    for rule in SchedulerRule::ALL {
        let mut scheduler = config(*rule).build().unwrap();
        for flow in [6, u32::MAX].map(FlowId) {
            assert_eq!(scheduler.push(flow, 1, 1), Pushed::Refused(1, ScheduleRefusal::FlowOverMaximum));
            let error = scheduler.set_weight(flow, 1).unwrap_err();
            assert_eq!(error, FlowOverMaximum { flow, flows_max: 6 });
            assert!(scheduler.set_order(flow, 1).is_err());
            assert_eq!((scheduler.flow_len(flow), scheduler.flow_backlog(flow)), (0, 0));
            assert_eq!(scheduler.remove_flow(flow).count(), 0);
        }
        assert_eq!(scheduler.remove_flow(FlowId(5)).count(), 0);
        assert_eq!(scheduler.pop(), None);
        assert_eq!(scheduler.evict_longest(), None);
    }
}

#[test]
fn costs_are_clamped() {
    let mut scheduler = drr();
    push(&mut scheduler, 0, 1, 0);
    push(&mut scheduler, 0, 2, u32::MAX);
    assert_eq!(scheduler.backlog(), 17);
    assert_eq!(scheduler.pop(), Some(ScheduledItem { flow: FlowId(0), item: 1, cost: 1 }));
    assert_eq!(scheduler.pop(), Some(ScheduledItem { flow: FlowId(0), item: 2, cost: 16 }));
}

#[test]
fn weights_share_the_service() {
    let mut scheduler = drr();
    scheduler.set_weight(FlowId(1), 2).unwrap();
    for item in 0..4 {
        push(&mut scheduler, 0, item, 4);
        push(&mut scheduler, 1, 10 + item, 4);
    }
    // The heavier first, when both have just come.
    assert_eq!(popped(&mut scheduler), [10, 11, 0, 12, 13, 1, 2, 3]);
}

#[test]
fn a_fresh_flow_waits_for_one_turn_and_not_for_a_round() {
    let config =
        SchedulerConfig { items_max: 10_000, backlog_max: 10_000, flows_max: 200, ..config(SchedulerRule::Drr) };
    let mut scheduler = config.build().unwrap();
    for item in 0..50 {
        (0..100).for_each(|flow| push(&mut scheduler, flow, item, 1));
    }
    // Everyone's first turn; from here on the hundred are standing.
    (0..400).for_each(|_| assert!(scheduler.pop().is_some()));
    for (flow, before) in (100..).zip([0, 1, 2, 3, 5, 7, 398]) {
        (0..before).for_each(|_| assert!(scheduler.pop().is_some()));
        push(&mut scheduler, flow, u32::MAX, 1);
        let waits = core::iter::from_fn(|| scheduler.pop()).position(|taken| taken.item == u32::MAX).unwrap();
        assert!(waits < 4, "{waits} services after {before}");
    }
}

#[test]
fn a_flow_that_keeps_coming_back_starves_nobody() {
    let mut scheduler = drr();
    (0..5).for_each(|item| push(&mut scheduler, 0, item, 4));
    push(&mut scheduler, 1, 10, 4);
    let mut served = [0; 2];
    while scheduler.flow_len(FlowId(0)) > 0 {
        let flow = scheduler.pop().unwrap().flow;
        served[flow.index()] += 1;
        if flow == FlowId(1) {
            push(&mut scheduler, 1, 10, 4);
        }
        assert!(served[1] <= served[0] + 1, "{served:?}");
    }
}

#[test]
fn sending_single_large_items_does_not_pay() {
    let config = SchedulerConfig { items_max: 1000, backlog_max: 1000, ..config(SchedulerRule::Drr) };
    let mut scheduler = config.build().unwrap();
    (0..500).for_each(|item| push(&mut scheduler, 0, item, 1));
    push(&mut scheduler, 1, 0, 16);
    let mut served = [0; 2];
    while scheduler.flow_len(FlowId(0)) > 0 {
        let taken = scheduler.pop().unwrap();
        served[taken.flow.index()] += taken.cost;
        // Its queue is empty after every item, and it is back at once.
        if taken.flow == FlowId(1) {
            push(&mut scheduler, 1, 0, 16);
        }
        assert!(served[1] <= served[0] + 4 + 16, "{served:?}");
    }
}

#[test]
fn room_for_a_large_item_is_made_at_the_longest_queue() {
    let mut scheduler = drr();
    push(&mut scheduler, 0, 0, 10);
    (1..=10).for_each(|item| push(&mut scheduler, 1, item, 3));
    let mut evicted = Vec::new();
    while let Pushed::Full(_) = scheduler.push(FlowId(2), 99, 9) {
        evicted.push(scheduler.evict_longest().unwrap().item);
    }
    assert_eq!(evicted, [1, 2, 3]);
    assert_eq!((scheduler.len(), scheduler.backlog()), (9, 40));
}

#[test]
fn strict_rule_drops_the_newcomer_whoever_it_is() {
    let mut scheduler = config(SchedulerRule::Strict).build().unwrap();
    scheduler.set_order(FlowId(1), 1).unwrap();
    (0..12).for_each(|item| push(&mut scheduler, 0, item, 1));
    assert_eq!(scheduler.push(FlowId(1), 99, 1), Pushed::Refused(99, ScheduleRefusal::PoolFull));
    assert!(scheduler.pop().is_some());
    push(&mut scheduler, 1, 99, 1);
    assert_eq!(scheduler.pop().unwrap().item, 99);
}

#[test]
fn a_removed_flow_hands_over_its_items_and_starts_anew() {
    let mut scheduler = drr();
    scheduler.set_weight(FlowId(0), 8).unwrap();
    (0..6).for_each(|item| push(&mut scheduler, 0, item, 4));
    push(&mut scheduler, 1, 10, 4);
    assert_eq!(scheduler.pop().unwrap().item, 0);
    let first_two: Vec<u32> = scheduler.remove_flow(FlowId(0)).take(2).map(|taken| taken.item).collect();
    assert_eq!(first_two, [1, 2]);
    assert_eq!((scheduler.len(), scheduler.backlog()), (1, 4));
    (20..22).for_each(|item| push(&mut scheduler, 0, item, 4));
    assert_eq!(popped(&mut scheduler), [10, 20, 21]);
}

#[test]
fn an_abandoned_drain_leaves_a_working_flow() {
    let mut scheduler = drr();
    (0..3).for_each(|item| push(&mut scheduler, 0, item, 4));
    let mut drain = scheduler.remove_flow(FlowId(0));
    assert_eq!(drain.next().unwrap().item, 0);
    core::mem::forget(drain);
    assert_eq!(popped(&mut scheduler), [1, 2]);
}
