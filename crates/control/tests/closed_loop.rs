//! The control loop closed in virtual time: real pacers, a real request pool, 2 000 clients, one server.
//!
//! These are smoke tests of what the papers' design does and what the repairs do; the experiments proper, with
//! confidence intervals and many seeds, belong to the laboratory.

#[path = "support/space.rs"]
mod space;

use tidegate_control::pacer::Preset;

#[test]
fn at_ten_times_the_capacity_ast_alone_collapses_and_the_practical_pacer_does_not() {
    let (ast, active) = (space::overload(Preset::AdaptiveEquation3), space::overload(Preset::Active));
    assert!(ast.goodput < 0.10, "AST alone: {ast:?}");
    assert!(active.goodput >= 0.90, "practical: {active:?}");
}

#[test]
fn after_a_dip_plain_ast_stays_down_and_the_gated_one_recovers() {
    let (plain, gated) = (space::dip(Preset::AdaptiveEquation3), space::dip(Preset::Adaptive));
    assert!(plain.stale > 0.3, "plain AST recovered: {plain:?}");
    assert!(gated.stale < 0.02, "gated AST did not recover: {gated:?}");
}
