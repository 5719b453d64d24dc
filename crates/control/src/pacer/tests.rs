//! The papers' own numbers, and the client's invariants of CONTROL §11 (the numbers in the names are theirs).

mod law;
mod model;
mod papers;

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use crate::analysis::Aimd;
use crate::appointments::Ticket;

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn plan(preset: Preset, change: impl FnOnce(&mut PacerConfig)) -> Arc<PacerPlan> {
    let mut config = PacerConfig::from(preset);
    change(&mut config);
    config.build().unwrap()
}

fn answered(latency_ms: u64, losses: u32, hints: Hints) -> Outcome {
    Outcome::Answered { latency: Duration::from_millis(latency_ms), losses, not_modified: false, hints }
}

fn rbt_trace(preset: Preset, rounds: u32) -> Vec<f64> {
    let plan = plan(preset, |config| {
        config.back_off.noise = Noise::Off;
        config.back_off.rounds = rounds;
    });
    let (mut pacer, mut rng) = (Pacer::new(&plan), rng(0));
    [20, 20, 500, 500, 500, 20]
        .into_iter()
        .enumerate()
        .map(|(second, latency)| {
            let now = Timestamp::from_secs_f64(second as f64 * 10.0);
            pacer.on_outcome(now, &answered(latency, 0, Hints::default()), &mut rng);
            pacer.snapshot().rbt.as_secs_f64()
        })
        .collect()
}

/// Invariant 9: the reference trace of Algorithm 3.
#[test]
fn algorithm_3_follows_the_reference_trace() {
    assert_eq!(rbt_trace(Preset::ActiveP18, 5), [0.0, 0.0, 0.2, 0.4, 0.8, 0.0]);
    assert_eq!(rbt_trace(Preset::ActiveP19, 5), [0.0, 0.0, 0.2, 0.4, 0.8, 0.0]);
    // Twice the mean of 20, 20, 500, 500, 500 ms caps the fifth.
    assert_eq!(rbt_trace(Preset::ActiveS19, 2), [0.0, 0.0, 0.2, 0.4, 0.616, 0.0]);
}

/// Ambiguity A12: with the cap of P19 a client that never succeeded never backs off.
#[test]
fn the_cap_of_p19_vanishes_for_a_client_that_never_succeeded() {
    for (preset, backs_off) in [(Preset::ActiveP18, true), (Preset::ActiveP19, false)] {
        let plan = plan(preset, |config| config.back_off.noise = Noise::Off);
        let (mut pacer, mut rng) = (Pacer::new(&plan), rng(0));
        pacer.on_outcome(Timestamp::ZERO, &Outcome::denied(), &mut rng);
        assert_eq!(pacer.snapshot().rbt > Duration::ZERO, backs_off, "{preset}");
    }
}

#[test]
fn equation_3_adds_a_step_or_divides() {
    let plan = plan(Preset::AdaptiveEquation3, |config| config.ast.step = AstStep::Fixed(Duration::from_secs(1)));
    let (mut pacer, mut rng) = (Pacer::new(&plan), rng(0));
    let mut next = |outcome: &Outcome| pacer.on_outcome(Timestamp::ZERO, outcome, &mut rng).unwrap();
    assert_eq!(next(&answered(1, 0, Hints::default())), Duration::from_secs(11));
    assert_eq!(next(&answered(1, 7, Hints::default())), Duration::from_millis(5500));
    // A failed check says nothing about losses (A4).
    assert_eq!(next(&Outcome::TimedOut), Duration::from_millis(5500));
    assert_eq!(
        next(&Outcome::Answered { latency: Duration::ZERO, losses: 3, not_modified: true, hints: Hints::default() }),
        Duration::from_millis(6500)
    );
}

#[test]
fn level_none_never_checks_and_the_basic_levels_have_their_means() {
    let mut rng = rng(5);
    let mut silent = Pacer::new(&plan(Preset::None, |_| {}));
    assert_eq!(silent.first_delay(&mut rng), None);
    assert_eq!(silent.on_outcome(Timestamp::ZERO, &Outcome::Failed, &mut rng), None);
    assert_eq!(silent.on_push_hint(None, &mut rng), None);
    for preset in [Preset::Fixed, Preset::Random, Preset::Exponential] {
        let mut pacer = Pacer::new(&plan(preset, |_| {}));
        let outcome = answered(1, 0, Hints::default());
        let total: f64 =
            (0..20_000).map(|_| pacer.on_outcome(Timestamp::ZERO, &outcome, &mut rng).unwrap().as_secs_f64()).sum();
        assert!((total / 20_000.0 - 10.0).abs() < 0.2, "{preset}: {}", total / 20_000.0);
    }
}

#[test]
fn a_slot_is_kept_to_the_nanosecond_and_advice_is_a_lower_bound() {
    let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(1));
    let slot = Duration::from_nanos(3_141_592_653);
    let ticket = Some(Ticket { slot: Timestamp::ZERO, mac: 0 });
    let hints = Hints { retry_after: Some(slot), ticket, ..Hints::default() };
    let delay = pacer.on_outcome(Timestamp::ZERO, &Outcome::Denied { hints }, &mut rng).unwrap();
    assert!(delay.abs_diff(slot) < Duration::from_nanos(10));
    let hints = Hints { retry_after: Some(Duration::from_secs(1000)), ..Hints::default() };
    let delay = pacer.on_outcome(Timestamp::ZERO, &Outcome::Denied { hints }, &mut rng).unwrap();
    assert!(delay >= Duration::from_secs(1000));
}

#[test]
fn a_user_who_waits_does_not_hide_an_announced_change() {
    let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(1));
    pacer.on_user_waiting();
    assert!(pacer.on_push_hint(None, &mut rng).is_some());
}

#[test]
fn denials_slow_a_client_down_whatever_the_advice() {
    for (ticket, slows) in [(None, true), (Some(Ticket { slot: Timestamp::ZERO, mac: 0 }), false)] {
        let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(1));
        let hints = Hints { stretch: Some(1.0), retry_after: Some(Duration::ZERO), ticket, ..Hints::default() };
        for _ in 0..5 {
            pacer.on_outcome(Timestamp::ZERO, &Outcome::Denied { hints: hints.clone() }, &mut rng);
        }
        assert_eq!(pacer.snapshot().stretch > 1.0, slows, "a slot replaces the back-off, advice alone does not");
    }
}

#[test]
fn the_declared_interval_follows_ast_with_an_eighth() {
    let plan = plan(Preset::AdaptiveEquation3, |config| config.ast.step = AstStep::Fixed(Duration::from_secs(8)));
    let (mut pacer, mut rng) = (Pacer::new(&plan), rng(1));
    pacer.on_outcome(Timestamp::ZERO, &answered(1, 0, Hints::default()), &mut rng);
    assert_eq!((pacer.snapshot().ast, pacer.want()), (Duration::from_secs(18), Duration::from_secs(11)));
}

/// `stride` reaches T in one step from far below, where `step` needs N of them.
#[test]
fn a_stride_grows_towards_the_target() {
    let grown = |growth| {
        let plan = plan(Preset::Active, |config| {
            config.ast.growth = growth;
            config.ast.step = AstStep::Fixed(Duration::from_millis(500));
            config.interval = Duration::from_secs(20);
            config.jitter = 0.0;
        });
        let (mut pacer, mut rng) = (Pacer::new(&plan), rng(1));
        let quiet = Hints { queued: Some(Duration::ZERO), ..Hints::default() };
        // Losses shorten it far below T, then a good check.
        for second in 0..6 {
            pacer.on_outcome(Timestamp::from_secs_f64(f64::from(second)), &answered(1, 1, quiet.clone()), &mut rng);
        }
        let before = pacer.snapshot().ast;
        pacer.on_outcome(Timestamp::from_secs_f64(7.0), &answered(1, 0, quiet), &mut rng);
        pacer.snapshot().ast.as_secs_f64() - before.as_secs_f64()
    };
    assert!((grown(Growth::Step) - 0.5).abs() < 1e-6);
    assert!(grown(Growth::Stride) > 0.6, "{}", grown(Growth::Stride));
}

#[test]
fn an_announced_change_is_fetched_once_within_its_spread() {
    let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(1));
    let spread = Some(Duration::from_secs(20));
    let delay = pacer.on_push_hint(spread, &mut rng).unwrap();
    assert!(delay < Duration::from_secs(20));
    assert_eq!(pacer.on_push_hint(spread, &mut rng), None, "the fetch is planned already");
    pacer.on_settled();
    assert!(pacer.on_push_hint(None, &mut rng).unwrap() <= Duration::from_secs(1), "W = min(AST, 1 s) by default");
    pacer.on_sent();
    assert_eq!(pacer.on_push_hint(None, &mut rng), None, "one request at a time");
    let retry = pacer.on_outcome(Timestamp::ZERO, &Outcome::TimedOut, &mut rng).unwrap();
    assert!(retry <= Duration::from_millis(200), "the announced change is still wanted: {retry:?}");
    pacer.on_sent();
    let regular = pacer.on_outcome(Timestamp::ZERO, &answered(1, 0, Hints::default()), &mut rng).unwrap();
    assert!(regular > Duration::from_secs(1), "and was fetched by the next request: {regular:?}");
    pacer.on_sent();
    assert_eq!(pacer.on_push_hint(None, &mut rng), None);
    let again = pacer.on_outcome(Timestamp::ZERO, &answered(1, 0, Hints::default()), &mut rng).unwrap();
    assert!(again <= Duration::from_secs(1), "announced during the request: fetched after it");
}

#[test]
fn urgent_fetches_retry_with_full_jitter_and_slow_the_periodic_checks_once() {
    let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(1));
    pacer.on_user_waiting();
    let mut stretches = Vec::new();
    for n in 1..=12 {
        let window = (0.1 * f64::from(1 << n)).min(60.0);
        let delay = pacer.on_outcome(Timestamp::ZERO, &Outcome::TimedOut, &mut rng).unwrap();
        assert!(delay.as_secs_f64() <= window, "attempt {n}: {delay:?}");
        stretches.push(pacer.snapshot().stretch);
    }
    assert!(stretches.iter().all(|stretch| *stretch == stretches[0]));
    pacer.on_outcome(Timestamp::ZERO, &answered(1, 0, Hints::default()), &mut rng);
    assert!(!pacer.snapshot().urgent);
}

#[test]
fn a_late_answer_counts_its_losses_and_nothing_else() {
    let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(1));
    pacer.on_outcome(Timestamp::ZERO, &Outcome::TimedOut, &mut rng);
    let before = pacer.snapshot();
    pacer.on_late_answer(Timestamp::from_secs_f64(10.0), 5);
    let after = pacer.snapshot();
    assert_eq!((after.ast, after.stretch), (before.ast, before.stretch));
    assert!(after.loss_rate > before.loss_rate);
}

#[test]
fn an_episode_that_ended_well_is_remembered_by_the_next_one() {
    let plan = plan(Preset::Active, |config| config.initial = InitialRule::Memory);
    let (mut pacer, mut rng) = (Pacer::new(&plan), rng(9));
    for _ in 0..5 {
        pacer.on_outcome(Timestamp::ZERO, &Outcome::TimedOut, &mut rng);
    }
    assert_eq!(pacer.snapshot().stretch, 32.0);
    for _ in 0..50 {
        pacer.on_outcome(Timestamp::ZERO, &answered(1, 0, Hints::default()), &mut rng);
    }
    assert_eq!(pacer.snapshot().stretch, 1.0);
    pacer.on_outcome(Timestamp::ZERO, &Outcome::TimedOut, &mut rng);
    // Half to three halves of what ended the last episode, on an AST that has grown since.
    assert!((8.0..48.0).contains(&pacer.snapshot().stretch), "{:?}", pacer.snapshot());
}
