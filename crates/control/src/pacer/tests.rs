//! The papers' own numbers, and the client's invariants of CONTROL §11 (the numbers in the names are theirs).

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
    let plan = plan(Preset::AdaptiveEquation3, |config| config.ast.step = Step::Fixed(Duration::from_secs(1)));
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
    let plan = plan(Preset::AdaptiveEquation3, |config| config.ast.step = Step::Fixed(Duration::from_secs(8)));
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
            config.ast.step = Step::Fixed(Duration::from_millis(500));
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

fn hints() -> impl Strategy<Value = Hints> {
    let time =
        || prop::option::of(prop_oneof![Just(0), Just(u64::MAX), 0..100_000_u64].prop_map(Duration::from_millis));
    let stretch =
        prop::option::of(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), 1.0..2000.0_f64]);
    let ticket = prop::option::of(Just(Ticket { slot: Timestamp::ZERO, mac: 0 }));
    (time(), time(), stretch, time(), time(), ticket, time()).prop_map(
        |(queued, permitted, stretch, interval, retry_after, ticket, spread)| Hints {
            queued,
            permitted,
            stretch,
            interval,
            retry_after,
            ticket,
            spread,
        },
    )
}

#[derive(Clone, Debug)]
enum Operation {
    Finish(Outcome),
    Sent,
    Late(u32),
    Push(Option<Duration>),
    Settled,
    UserWaiting,
    Pass(u64),
    ClockBack(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let losses = || prop_oneof![4 => Just(0), 4 => 1..10_u32, 1 => Just(u32::MAX)];
    let latency = prop_oneof![0..5000_u64, Just(u64::MAX)].prop_map(Duration::from_millis);
    let answer = (latency, losses(), any::<bool>(), hints()).prop_map(|(latency, losses, not_modified, hints)| {
        Operation::Finish(Outcome::Answered { latency, losses, not_modified, hints })
    });
    prop_oneof![
        8 => answer,
        4 => hints().prop_map(|hints| Operation::Finish(Outcome::Denied { hints })),
        2 => Just(Operation::Finish(Outcome::TimedOut)),
        1 => Just(Operation::Finish(Outcome::Failed)),
        2 => Just(Operation::Sent),
        1 => losses().prop_map(Operation::Late),
        1 => prop::option::of(any::<u64>().prop_map(Duration::from_nanos)).prop_map(Operation::Push),
        1 => Just(Operation::Settled),
        1 => Just(Operation::UserWaiting),
        4 => (0..100_000_000_000_u64).prop_map(Operation::Pass),
        1 => any::<u64>().prop_map(Operation::ClockBack),
    ]
}

fn config() -> impl Strategy<Value = PacerConfig> {
    (
        prop::sample::select(Preset::ALL),
        prop::sample::select(DetectorRule::ALL),
        prop::sample::select(InitialRule::ALL),
        prop::sample::select(Growth::ALL),
        prop::sample::select(HintUse::ALL),
        any::<bool>(),
    )
        .prop_map(|(preset, detector, initial, growth, hints, fixed)| {
            let mut config = PacerConfig::from(preset);
            config.detector.rule = detector;
            config.initial = initial;
            config.ast.growth = growth;
            config.hints = hints;
            if fixed {
                config.ast.step = Step::Fixed(Duration::from_millis(700));
            }
            config
        })
}

/// What is known of the pacer from outside: the model that its invariants are checked against.
struct Model {
    pacer: Pacer,
    config: PacerConfig,
    now: Timestamp,
    rng: Xoshiro256PlusPlus,
}

impl Model {
    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Finish(outcome) => return self.finish(outcome),
            Operation::Sent => self.pacer.on_sent(),
            Operation::Late(losses) => self.pacer.on_late_answer(self.now, *losses),
            Operation::Push(spread) => {
                if let Some(delay) = self.pacer.on_push_hint(*spread, &mut self.rng) {
                    self.in_bounds(delay)?;
                }
            }
            Operation::Settled => self.pacer.on_settled(),
            Operation::UserWaiting => self.pacer.on_user_waiting(),
            Operation::Pass(nanos) => self.now = self.now + Duration::from_nanos(*nanos),
            Operation::ClockBack(to) => self.now = self.now.min(Timestamp::from_nanos(*to)),
        }
        Ok(())
    }

    fn finish(&mut self, outcome: &Outcome) -> Result<(), TestCaseError> {
        let before = self.pacer.snapshot();
        let delay = self.pacer.on_outcome(self.now, outcome, &mut self.rng);
        let after = self.pacer.snapshot();
        prop_assert_eq!(delay.is_none(), self.config.level == Level::None);
        let Some(delay) = delay else { return Ok(()) };
        self.in_bounds(delay)?;
        if after.congested && self.config.back_off.rule == RbtRule::Stretch {
            // Invariants 3 and 4: no speed-up under congestion.
            prop_assert!(after.stretch >= before.stretch, "{before:?} {after:?}");
            if self.config.ast.rule == AstRule::Practical {
                prop_assert!(after.ast >= before.ast, "{before:?} {after:?}");
            }
            self.not_before_half_a_stretched_interval(outcome, &after, delay)?;
        }
        Ok(())
    }

    /// Invariant 3, second half: a periodic check without a slot waits at least half of the raised σ·a.
    fn not_before_half_a_stretched_interval(
        &self,
        outcome: &Outcome,
        after: &PacerSnapshot,
        delay: Duration,
    ) -> Result<(), TestCaseError> {
        let failed = !matches!(outcome, Outcome::Answered { .. });
        let slot = outcome.hints().is_some_and(|hints| hints.ticket.is_some() && hints.retry_after.is_some());
        if failed && !after.urgent && !slot && self.config.level == Level::Active {
            let half = 0.5 * after.stretch * after.ast.as_secs_f64();
            let least = half.min(self.config.delay_max.as_secs_f64());
            prop_assert!(delay.as_secs_f64() >= least * (1.0 - 1e-6), "{delay:?} after {after:?}");
        }
        Ok(())
    }

    /// Invariant 1.
    fn in_bounds(&self, delay: Duration) -> Result<(), TestCaseError> {
        prop_assert!((self.config.delay_min..=self.config.delay_max).contains(&delay), "{delay:?}");
        Ok(())
    }

    /// Invariant 2, and that every number shown is a number.
    fn invariants(&self) -> Result<(), TestCaseError> {
        let state = self.pacer.snapshot();
        prop_assert!((self.config.ast.floor..=self.config.ast.ceiling).contains(&state.ast), "{state:?}");
        prop_assert!((1.0..=self.config.back_off.stretch_max).contains(&state.stretch), "{state:?}");
        prop_assert!(state.loss_rate.is_finite() && state.loss_rate > 0.0, "{state:?}");
        prop_assert!(state.burst.is_finite() && state.burst >= 1.0, "{state:?}");
        prop_assert!(state.growths.is_none_or(|growths| growths.is_finite() && growths >= 0.0), "{state:?}");
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_breaks_a_pacer(
        config in config(),
        operations in prop::collection::vec(operation(), 1..200),
        seed in any::<u64>(),
    ) {
        let pacer = Pacer::new(&config.build().unwrap());
        let mut model = Model { pacer, config, now: Timestamp::from_secs_f64(1e6), rng: rng(seed) };
        if let Some(delay) = model.pacer.first_delay(&mut model.rng) {
            model.in_bounds(delay)?;
        }
        for operation in &operations {
            model.apply(operation)?;
            model.invariants()?;
        }
        let resumed = Pacer::resume(&model.config.build().unwrap(), &model.pacer.snapshot());
        prop_assert_eq!(resumed.snapshot().ast, model.pacer.snapshot().ast);
    }

    /// The strategy `history` keeps one entry of the paper's ring of 16; the ring itself is the model.
    #[test]
    fn history_equals_the_papers_ring(checks in prop::collection::vec((1.0_f32..100.0, any::<bool>()), 1..60)) {
        let plan = BackOffConfig { rule: RbtRule::P18, ..BackOffConfig::default() }.build().unwrap();
        let (mut past, mut ring) = (Past::NONE, Vec::new());
        for (interval, congested) in checks {
            past.on_check(interval, congested);
            ring.push((interval, congested));
            let recent = ring.iter().rev().take(16).find(|(_, congested)| !congested);
            let situation = Situation { now: Timestamp::ZERO, interval: 1000.0, ast: 1.0, hints: None };
            // A current interval of 1000 s makes b negative: t_min if the ring has an entry, nothing if not.
            let first = past.first_back_off(InitialRule::History, &plan, &situation, &mut rng(0));
            prop_assert_eq!(first, recent.map(|_| 0.1));
            let situation = Situation { interval: 0.0, ..situation };
            let first = past.first_back_off(InitialRule::History, &plan, &situation, &mut rng(0));
            let expected = recent.map(|(interval, _)| draw::exponential(&mut rng(0), f64::from(*interval)));
            prop_assert_eq!(first, expected);
        }
    }
}

/// A client alone with Poisson losses, `stretch` advised by the broker: its mean AST, T, N and delay per check.
fn alone(preset: Preset, stretch: f64, loss_rate: f64, step: f64, checks: u32) -> (f64, f64, f64) {
    alone_with(preset, stretch, loss_rate, Step::Fixed(Duration::from_secs_f64(step)), checks)
}

fn alone_with(preset: Preset, stretch: f64, loss_rate: f64, step: Step, checks: u32) -> (f64, f64, f64) {
    let plan = plan(preset, |config| {
        config.ast.step = step;
        config.ast.floor = Duration::from_millis(1);
        config.interval = Duration::from_secs(6);
        config.jitter = 0.0;
    });
    let (mut pacer, mut rng, mut now) = (Pacer::new(&plan), rng(11), Timestamp::ZERO);
    let mut next_loss = draw::exponential(&mut rng, 1.0 / loss_rate);
    let (mut sum, mut before_decrease, mut decreases, burn_in) = (0.0, 0.0, 0, 1000);
    for check in 0..checks + burn_in {
        let mut losses = 0;
        while next_loss <= now.as_secs_f64() {
            losses += 1;
            next_loss += draw::exponential(&mut rng, 1.0 / loss_rate);
        }
        let before = pacer.snapshot().ast.as_secs_f64();
        let hints = Hints { stretch: Some(stretch), queued: Some(Duration::ZERO), ..Hints::default() };
        let delay = pacer.on_outcome(now, &answered(0, losses, hints), &mut rng).unwrap();
        now = now + delay;
        if check >= burn_in {
            let after = pacer.snapshot().ast.as_secs_f64();
            sum += after;
            if after < before {
                before_decrease += before;
                decreases += 1;
            }
        }
    }
    let growths = f64::from(checks) / f64::from(decreases) - 1.0;
    (sum / f64::from(checks), before_decrease / f64::from(decreases), growths)
}

/// Invariant 5: thinning keeps the law of AST under any constant stretch.
#[test]
fn exposure_does_not_move_the_practical_ast() {
    let (rate, step) = (0.02, 0.5);
    let expected = Aimd::new(rate, step, 2.0).unwrap().estimate().timeout;
    for stretch in [1.0, 3.0, 10.0] {
        let (mean, _, _) = alone(Preset::Active, stretch, rate, step, 60_000);
        assert!((mean / expected - 1.0).abs() < 0.03, "stretch {stretch}: {mean} s, expected {expected} s");
    }
}

/// The default step is chosen so that a loss is found after 5 s on average: τ ≈ 8.6 s, for losses that are frequent enough
/// to be estimated from some 32 checks. Rarer ones are overestimated, which lengthens the interval.
#[test]
fn the_default_step_gives_the_same_interval_to_everybody() {
    for rate in [0.01, 0.02, 0.05] {
        let step = Step::DetectionDelay(Duration::from_secs(5));
        let (mean, _, _) = alone_with(Preset::Active, 1.0, rate, step, 60_000);
        assert!((6.0..11.0).contains(&mean), "at {rate} losses/s: {mean} s");
    }
}

/// Invariant 6: the balance identity F1, on the real thing.
#[test]
fn growths_and_decreases_balance() {
    let (_, before_decrease, growths) = alone(Preset::AdaptiveEquation3, 1.0, 0.02, 0.5, 100_000);
    let identity = growths * 0.5 * 2.0;
    assert!((before_decrease / identity - 1.0).abs() < 1e-3, "T = {before_decrease}, N·δ·α/(α−1) = {identity}");
}

/// Algorithm 2 with the closed forms keeps its interval; with self-measured T it would go to zero (A7).
#[test]
fn algorithm_2_holds_near_its_target() {
    let expected = Aimd::new(0.02, 0.5, 2.0).unwrap().estimate();
    let (mean, _, _) = alone(Preset::AdaptiveAlgorithm2, 1.0, 0.02, 0.5, 60_000);
    assert!((0.8..1.3).contains(&(mean / expected.timeout)), "{mean} s, equation (3) has {} s", expected.timeout);
}

/// Invariant 7: after the last congested sample σ is back at 1 within ⌈1/g⌉ good checks.
#[test]
fn stretch_returns_home() {
    let (mut pacer, mut rng) = (Pacer::new(&plan(Preset::Active, |_| {})), rng(2));
    for _ in 0..40 {
        pacer.on_outcome(Timestamp::ZERO, &Outcome::TimedOut, &mut rng);
    }
    assert_eq!(pacer.snapshot().stretch, 1000.0);
    for _ in 0..50 {
        pacer.on_outcome(Timestamp::ZERO, &answered(1, 0, Hints::default()), &mut rng);
    }
    assert_eq!(pacer.snapshot().stretch, 1.0);
}

/// Invariant 8: equal outcomes, different clients, different delays.
#[test]
fn clients_do_not_march_in_step() {
    let plan = plan(Preset::Active, |_| {});
    let delays = |seed| -> Vec<f64> {
        let (mut pacer, mut rng) = (Pacer::new(&plan), rng(seed));
        let outcome =
            |n| if n % 7 == 0 { Outcome::TimedOut } else { answered(5, u32::from(n % 5 == 0), Hints::default()) };
        (0..5000)
            .map(|n: u32| {
                let delay = pacer.on_outcome(Timestamp::from_secs_f64(f64::from(n) * 10.0), &outcome(n), &mut rng);
                let state = pacer.snapshot();
                // Relative to the common part, which both clients must follow.
                delay.unwrap().as_secs_f64() / (state.ast.as_secs_f64() * state.stretch)
            })
            .collect()
    };
    let (one, two) = (delays(1), delays(2));
    let mean = |xs: &[f64]| xs.iter().sum::<f64>() / xs.len() as f64;
    let (mean_one, mean_two) = (mean(&one), mean(&two));
    let covariance: f64 = one.iter().zip(&two).map(|(x, y)| (x - mean_one) * (y - mean_two)).sum();
    let spread = |xs: &[f64], mean: f64| libm::sqrt(xs.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>());
    // Failures are wider spread than answers, in both alike; that is not correlation of the draws.
    let correlation = covariance / (spread(&one, mean_one) * spread(&two, mean_two));
    assert!(correlation.abs() < 0.05, "{correlation}");
}

/// Invariant 11: the same seed and the same outcomes give the same delays on every platform.
#[test]
fn delays_are_reproducible() {
    let golden = |preset| {
        let (mut pacer, mut rng) = (Pacer::new(&plan(preset, |_| {})), rng(42));
        (0..1000_u32)
            .map(|n| {
                let outcome = match n % 11 {
                    3 => Outcome::denied(),
                    7 => Outcome::TimedOut,
                    _ => answered(u64::from(n * 37 % 300), u32::from(n % 4 == 0) * 2, Hints::default()),
                };
                let now = Timestamp::from_secs_f64(f64::from(n) * 7.0);
                pacer.on_outcome(now, &outcome, &mut rng).unwrap().as_secs_f64()
            })
            .sum::<f64>()
    };
    for (preset, expected) in GOLDEN {
        let sum = golden(preset);
        assert!((sum / expected - 1.0).abs() < 1e-12, "{preset}: {sum:?}");
    }
}

/// Sums of 1000 delays; a change here is a change of behaviour and wants a line in the changelog.
const GOLDEN: [(Preset, f64); 4] = [
    (Preset::Active, 3289996.939899477),
    (Preset::Adaptive, 49390.296667837974),
    (Preset::ActiveP18, 5003.004453450001),
    (Preset::Exponential, 10196.176804188004),
];
