use std::sync::Arc;

use tidegate_control::rhythm::RhythmRule;

use super::trace::{Arrival, Trace};
use super::*;
use crate::publishers::{Interval, Order, Publishers};

fn metric(config: &Publishers, trace: Option<&Arc<Trace>>, name: &str) -> f64 {
    run(config, trace, 1).unwrap().metric(name).unwrap()
}

fn steady() -> Publishers {
    Publishers {
        duration: 60.0,
        interval: Interval::Periodic(1.0, 0.05),
        closed_loop: false,
        rule: Some(RhythmRule::Practical),
        ..Publishers::default()
    }
}

#[test]
fn in_rhythm_nothing_is_held_and_everything_arrives() {
    let outcome = run(&steady(), None, 1).unwrap();
    let of = |name: &str| outcome.metric(name).unwrap();
    assert!((1_750.0..1_850.0).contains(&of("messages")), "{}", of("messages"));
    assert_eq!(of("uplink_bytes"), of("messages") * 16.0);
    for name in ["held", "refused", "blocked", "lost_rare", "lost_middle", "lost_busy"] {
        assert_eq!(of(name), 0.0, "{name}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let config = Publishers { attackers: 1, attack_factor: 50.0, attack_from: 20.0, attack_length: 20.0, ..steady() };
    let (one, again) = (run(&config, None, 3).unwrap(), run(&config, None, 3).unwrap());
    assert_eq!(one.metrics, again.metrics);
    assert_ne!(one.metrics, run(&config, None, 4).unwrap().metrics);
}

#[test]
fn a_flooder_passes_little_more_than_its_rhythm_and_is_heard_afterwards() {
    let attacked = Publishers { attackers: 1, attack_factor: 50.0, attack_from: 20.0, attack_length: 20.0, ..steady() };
    let passed = metric(&attacked, None, "attack_passed");
    assert!(passed < 5.0, "{passed} times its rate");
    let free = metric(&Publishers { rule: None, ..attacked }, None, "attack_passed");
    assert!(free > 40.0, "without control {free} times its rate");
}

#[test]
fn the_two_worlds_agree_about_the_paper() {
    // Closed loops, intervals of 0 to 20 s, the paper's rule: only the rhythm decides, and it is the same code.
    let config = Publishers { rule: Some(RhythmRule::Paper), ..Publishers::default() };
    let bytes = |rule| metric(&Publishers { rule, ..config.clone() }, None, "uplink_bytes");
    let model = |rule| {
        let outcome = crate::publishers::run(&Publishers { rule, ..config.clone() }, 1).unwrap();
        outcome.metric("uplink_bytes").unwrap()
    };
    assert_eq!(bytes(None), model(None));
    let (real, model) = (bytes(config.rule), model(config.rule));
    assert!((real / model - 1.0).abs() < 0.1, "{real} and {model}");
}

#[test]
fn rare_publishers_come_first_at_a_slow_reader() {
    let crowded = |order| Publishers {
        duration: 120.0,
        warm_up: 30.0,
        interval: Interval::Exponential(1.0),
        rate_range: 100.0,
        closed_loop: false,
        capacity: Some(200.0),
        load: Some(1.5),
        queue_items: 500,
        message_bytes: 1000,
        rule: (order == Order::Drr).then_some(RhythmRule::Practical),
        enforce_always: false,
        order,
        ..Publishers::default()
    };
    let rare = |order| {
        let outcome = run(&crowded(order), None, 1).unwrap();
        (outcome.metric("latency_rare_mean").unwrap(), outcome.metric("lost_rare").unwrap())
    };
    let ((line, lost_in_line), (ours, lost)) = (rare(Order::Fifo), rare(Order::Drr));
    assert!(ours * 5.0 < line, "{ours} s against {line} s");
    assert_eq!(lost, 0.0);
    assert!(lost_in_line > 0.1, "{lost_in_line}");
}

#[test]
fn a_trace_is_replayed_message_by_message() {
    let arrival = |number: u64| Arrival {
        micros: number * 100_000,
        publisher: (number % 3) as u32,
        topic: (number % 5) as u32,
        topic_bytes: 20,
        payload_bytes: 44,
        qos: (number % 3) as u8,
        retain: number.is_multiple_of(7),
    };
    let trace = Arc::new(Trace::new((0..600).map(arrival).collect()));
    let config = Publishers { duration: trace.seconds() + 10.0, closed_loop: false, ..steady() };
    let outcome = run(&config, Some(&trace), 1).unwrap();
    let of = |name: &str| outcome.metric(name).unwrap();
    assert_eq!((of("messages"), of("uplink_bytes")), (600.0, 600.0 * 64.0));
    assert_eq!((of("held"), of("refused"), of("lost_busy")), (0.0, 0.0, 0.0));
}
