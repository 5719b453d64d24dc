use std::sync::Arc;

use tidegate_control::rhythm::RhythmRule;
use tidegate_core::trace::{Arrival, Trace};

use super::*;

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
    let outcome = run(&attacked, None, 1).unwrap();
    let passed = outcome.metric("attack_passed").unwrap();
    assert!(passed < 5.0, "{passed} times its rate");
    let of_learned = outcome.metric("attack_over_learned").unwrap();
    assert!((0.5..5.0).contains(&of_learned), "{of_learned} times what was learned, {passed} times its rate");
    let free = metric(&Publishers { rule: None, ..attacked }, None, "attack_passed");
    assert!(free > 40.0, "without control {free} times its rate");
}

#[test]
fn the_paper_saves_bytes_with_closed_loops_only() {
    for (closed_loop, low, high) in [(true, 0.75, 0.95), (false, 0.6, 1.01)] {
        let mean = |rule| -> f64 {
            let config =
                Publishers { closed_loop, rule, interval: Interval::WholeSeconds(1, 5), ..Publishers::default() };
            (0..3).map(|seed| run(&config, None, seed).unwrap().metric("uplink_bytes").unwrap()).sum()
        };
        let ratio = mean(Some(RhythmRule::Paper)) / mean(None);
        assert!((low..=high).contains(&ratio), "closed loop {closed_loop}: {ratio}");
    }
}

#[test]
fn a_healthy_sensor_is_delayed_by_the_paper_and_not_by_us() {
    let config = |rule| Publishers {
        rule: Some(rule),
        interval: Interval::Periodic(10.0, 0.2),
        closed_loop: false,
        duration: 3600.0,
        ..Publishers::default()
    };
    assert_eq!(metric(&config(RhythmRule::Practical), None, "held"), 0.0);
    assert!(metric(&config(RhythmRule::Paper), None, "held") > 0.3);
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
        group: 0,
    };
    let trace = Arc::new(Trace::new((0..600).map(arrival).collect()));
    let config = Publishers { duration: trace.seconds() + 10.0, closed_loop: false, ..steady() };
    let outcome = run(&config, Some(&trace), 1).unwrap();
    let of = |name: &str| outcome.metric(name).unwrap();
    assert_eq!((of("messages"), of("uplink_bytes")), (600.0, 600.0 * 64.0));
    assert_eq!((of("held"), of("refused"), of("lost_busy")), (0.0, 0.0, 0.0));
}
