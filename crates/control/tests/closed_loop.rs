//! The control loop closed in virtual time: real pacers, a real request pool, 2 000 clients, one server.
//!
//! These are smoke tests of what the papers' design does and what the repairs do; the experiments proper, with
//! confidence intervals and many seeds, belong to the laboratory.

#[path = "support/space.rs"]
mod space;

use std::sync::Arc;
use std::time::Duration;

use space::{Report, Scenario};
use tidegate_control::admission::{Policy, PoolConfig};
use tidegate_control::pacer::{AstConfig, PacerConfig, PacerPlan, Preset, Step};

const CLIENTS: usize = 2000;

/// A pool that denies beyond 100 ms of work.
fn delay_bounded(capacity: f64) -> PoolConfig {
    let mut config = PoolConfig::default();
    for class in &mut config.classes {
        class.policy = Policy::Deny;
        class.cost_initial = Duration::from_secs_f64(1.0 / capacity);
    }
    config
}

/// A pool of the papers: a queue of so many seconds, silent tail drop, no deadlines.
fn item_bounded(capacity: f64, seconds: f64) -> PoolConfig {
    PoolConfig::paper((capacity * seconds) as u32)
}

/// A pacer whose mean interval is `interval` seconds when `loss_rate` losses come per second (α = 2).
fn pacer(preset: Preset, interval: f64, loss_rate: f64, change: impl FnOnce(&mut PacerConfig)) -> Arc<PacerPlan> {
    let mut config = PacerConfig::from(preset);
    let step = loss_rate * (interval / tidegate_control::analysis::aimd::c(2.0)).powi(2);
    config.interval = Duration::from_secs_f64(interval);
    config.ast = AstConfig { step: Step::Fixed(Duration::from_secs_f64(step)), ..config.ast };
    config.request_timeout = Duration::from_secs(2);
    change(&mut config);
    config.build().expect("a valid configuration")
}

/// Ten times more checks than the server can serve, on a broker that bounds delay.
fn overload(preset: Preset) -> Report {
    let (capacity, interval, update_rate, radio_loss) = (200.0, 1.0, 1.0, 0.2);
    space::run(&Scenario {
        clients: CLIENTS,
        capacity,
        update_rate,
        radio_loss,
        pool: delay_bounded(capacity),
        pacer: pacer(preset, interval, update_rate * radio_loss, |_| {}),
        request_timeout: 2.0,
        dip: None,
        warm_up: 400.0,
        duration: 600.0,
        seed: 1,
    })
}

#[test]
fn at_ten_times_the_capacity_ast_alone_collapses_and_the_practical_pacer_does_not() {
    let ast = overload(Preset::AdaptiveEquation3);
    let active = overload(Preset::Active);
    println!("{ast:?}\n{active:?}");
    assert!(ast.goodput < 0.10, "AST alone: {ast:?}");
    assert!(active.goodput >= 0.90, "practical: {active:?}");
}

/// Half load, 1 % of the notifications lost, a tenth of the capacity for one minute; observed long after.
fn dip(preset: Preset, pool: fn(f64) -> PoolConfig, gate: bool) -> Report {
    let (capacity, interval, update_rate, radio_loss) = (400.0, 10.0, 0.1, 0.01);
    space::run(&Scenario {
        clients: CLIENTS,
        capacity,
        update_rate,
        radio_loss,
        pool: pool(capacity),
        pacer: pacer(preset, interval, update_rate * radio_loss, |config| config.ast.gate = gate),
        request_timeout: 2.0,
        dip: Some((120.0, 180.0, 0.1)),
        warm_up: 600.0,
        duration: 900.0,
        seed: 1,
    })
}

#[test]
fn after_a_dip_plain_ast_stays_down_and_the_gated_one_recovers() {
    let bloated = |capacity| item_bounded(capacity, 5.0);
    let plain = dip(Preset::AdaptiveEquation3, bloated, true);
    let gated = dip(Preset::Adaptive, bloated, true);
    println!("{plain:?}\n{gated:?}");
    assert!(plain.stale > 0.3, "plain AST recovered: {plain:?}");
    assert!(gated.stale < 0.02, "gated AST did not recover: {gated:?}");
}
