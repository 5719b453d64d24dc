//! Paper 003 in numbers, and publishers that keep or break their rhythm.

use super::*;
use tidegate_control::rhythm::RhythmRule;

fn metric(config: &Publishers, seed: u64, name: &str) -> f64 {
    run(config, seed).unwrap().metric(name).unwrap()
}

#[test]
fn the_paper_saves_bytes_with_closed_loops_only() {
    for (closed_loop, low, high) in [(true, 0.75, 0.9), (false, 0.6, 1.01)] {
        let mean = |rule| -> f64 {
            let config =
                Publishers { closed_loop, rule, interval: Interval::WholeSeconds(1, 5), ..Publishers::default() };
            (0..10).map(|seed| metric(&config, seed, "uplink_bytes")).sum()
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
    assert_eq!(metric(&config(RhythmRule::Practical), 1, "held"), 0.0);
    assert!(metric(&config(RhythmRule::Paper), 1, "held") > 0.3);
}

#[test]
fn an_attacker_gets_little_and_the_rare_are_served_first() {
    let config = Publishers {
        rule: Some(RhythmRule::Practical),
        interval: Interval::Periodic(1.0, 0.1),
        attackers: 1,
        attack_factor: 100.0,
        attack_from: 120.0,
        attack_length: 300.0,
        closed_loop: false,
        ..Publishers::default()
    };
    let outcome = run(&config, 1).unwrap();
    assert!(outcome.metric("attack_passed").unwrap() < 4.0, "{outcome:?}");
    assert!(outcome.metric("after_attack_passed").unwrap() > 0.9, "{outcome:?}");
    let served = |order| {
        let config = Publishers {
            order,
            capacity: Some(100.0),
            load: Some(1.2),
            rate_range: 1000.0,
            interval: Interval::Exponential(1.0),
            regular: 0,
            warm_up: 1000.0,
            duration: 4000.0,
            closed_loop: false,
            ..Publishers::default()
        };
        (metric(&config, 1, "latency_rare_mean"), metric(&config, 1, "lost_rare"))
    };
    let (fifo, strict, drr) = (served(Order::Fifo), served(Order::Strict), served(Order::Drr));
    assert!(fifo.0 > 10.0 && fifo.1 > 0.05, "{fifo:?}");
    assert!(strict.0 < 0.1 && strict.1 > 0.05, "strict rank does not keep the rare from being dropped: {strict:?}");
    assert!(drr.0 < 0.3 && drr.1 == 0.0, "{drr:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let config = Publishers { rule: Some(RhythmRule::Paper), ..Publishers::default() };
    assert_eq!(run(&config, 9).unwrap(), run(&config, 9).unwrap());
    assert_ne!(run(&config, 9).unwrap(), run(&config, 10).unwrap());
}
