//! The control loop closed in virtual time: real pacers, a real request pool, 2 000 clients, one server.
//!
//! These are smoke tests of what the papers' design does and what the repairs do; the experiments proper, with
//! confidence intervals and many seeds, belong to the laboratory.

#![allow(clippy::expect_used, reason = "a wrong configuration is a bug of the test")]

#[path = "support/space.rs"]
mod space;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use tidegate_control::Timestamp;
use tidegate_control::advice::{AdviceConfig, Declared, StretchAdvice};
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{Outcome, Pacer, PacerConfig, Preset};

/// The page shows what the example prints; these two rows stand for the rest.
#[test]
fn the_tables_of_the_page_are_what_the_example_prints() {
    let page = include_str!("../../../docs/control/README.md");
    for row in [space::overload(Preset::Active).row(Preset::Active), space::dip(Preset::Active).row(Preset::Active)] {
        assert!(page.contains(&row), "docs/control/README.md has no row\n{row}");
    }
}

#[test]
fn at_ten_times_the_capacity_ast_alone_collapses_and_the_practical_pacer_does_not() {
    let (ast, active) = (space::overload(Preset::AdaptiveEquation3), space::overload(Preset::Active));
    assert!(ast.goodput < 0.10, "AST alone: {ast:?}");
    assert!(active.goodput >= 0.90, "practical: {active:?}");
}

#[test]
fn after_a_dip_plain_ast_stays_down_and_the_gate_alone_lets_it_recover() {
    let with_gate = |gate| {
        move |config: &mut PacerConfig| {
            // Thinning is off, so that the gate is the only difference.
            config.ast.thinning = false;
            config.ast.gate = gate;
        }
    };
    let plain = space::dip_with(Preset::AdaptiveEquation3, |_| {});
    let ungated = space::dip_with(Preset::Adaptive, with_gate(false));
    let gated = space::dip_with(Preset::Adaptive, with_gate(true));
    assert!(plain.stale > 0.3, "plain AST recovered: {plain:?}");
    assert!(ungated.stale > 0.3, "AST without the gate recovered: {ungated:?}");
    assert!(gated.stale < 0.02, "gated AST did not recover: {gated:?}");
}

/// Invariant 24: if all obey the advice, the offered work fits the host within one client interval of a step down.
#[test]
fn advised_clients_fit_the_host_soon_after_it_became_slower() {
    let mut advice = StretchAdvice::new(&AdviceConfig::default()).expect("valid");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    // 1000 clients with intervals of 1 to 10 s that see no losses and keep them.
    let mut clients: Vec<(Pacer, Declared)> = (0..1000)
        .map(|n| {
            let interval = Duration::from_millis(1000 + n * 9);
            let mut config = PacerConfig { interval, ..PacerConfig::default() };
            config.ast.ceiling = interval;
            (Pacer::new(&config.build().expect("valid")), Declared::default())
        })
        .collect();
    let mut due: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
    for (n, (pacer, declared)) in clients.iter_mut().enumerate() {
        advice.declare(declared, pacer.want());
        let first = pacer.first_delay(&mut rng).expect("an active pacer checks");
        due.push(Reverse((Timestamp::ZERO + first, n)));
    }
    // A check costs 1 ms, and from 100 s on 10 ms: then the demand of some 256 checks/s is 2.6 times the host.
    let cost = |now: Timestamp| Duration::from_millis(if now.as_secs_f64() < 100.0 { 1 } else { 10 });
    let (mut before, mut after) = (0.0, 0.0);
    while let Some(Reverse((now, n))) = due.pop().filter(|Reverse((now, _))| now.as_secs_f64() < 400.0) {
        match now.as_secs_f64() {
            50.0..100.0 => before += cost(now).as_secs_f64() / 50.0,
            // The longest interval before the step is 10 s, with jitter 12 s.
            112.0..400.0 => after += cost(now).as_secs_f64() / 288.0,
            _ => {}
        }
        let (pacer, declared) = &mut clients[n];
        pacer.on_sent();
        advice.declare(declared, pacer.want());
        let hints =
            Hints { stretch: Some(advice.stretch(cost(now))), queued: Some(Duration::ZERO), ..Hints::default() };
        let outcome = Outcome::Answered { latency: cost(now), losses: 0, not_modified: true, hints };
        let delay = pacer.on_outcome(now, &outcome, &mut rng).expect("an active pacer checks");
        due.push(Reverse((now + delay, n)));
    }
    assert!((0.2..0.3).contains(&before), "unstretched: {before}");
    // ρ·ρ_s = 0.92; jitter of ±20 % leaves the mean rate 1.4 % above the inverse of the mean interval.
    assert!((0.85..=0.97).contains(&after), "after the step: {after}");
}
