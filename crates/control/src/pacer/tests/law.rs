//! Many checks of one client, or one check of many: what theory says of them.

use super::*;

/// A client alone with Poisson losses, `stretch` advised by the broker: its mean AST, T, N and delay per check.
fn alone(preset: Preset, stretch: f64, loss_rate: f64, step: f64, checks: u32) -> (f64, f64, f64) {
    alone_with(preset, stretch, loss_rate, AstStep::Fixed(Duration::from_secs_f64(step)), checks)
}

fn alone_with(preset: Preset, stretch: f64, loss_rate: f64, step: AstStep, checks: u32) -> (f64, f64, f64) {
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

/// The default step is the same whatever is lost, so that the interval follows the losses by the square root: over a
/// hundred times the losses it becomes a tenth. (By a detection delay it became a third.)
#[test]
fn the_default_step_lets_the_interval_follow_the_losses() {
    let interval = |rate| alone_with(Preset::Active, 1.0, rate, PacerConfig::default().ast.step, 60_000).0;
    let (rare, usual, frequent) = (interval(0.004), interval(0.04), interval(0.4));
    assert!(rare > usual && usual > frequent);
    assert!((9.0..13.0).contains(&(rare / frequent)), "{rare} s, {usual} s, {frequent} s");
}

/// A step by detection delay: a loss is found after 5 s on average, τ ≈ 8.6 s, for losses that are frequent enough to be
/// estimated from some 32 checks. Rarer ones are overestimated, which lengthens the interval.
#[test]
fn a_step_by_detection_delay_gives_the_same_interval_to_everybody() {
    for rate in [0.01, 0.02, 0.05] {
        let step = AstStep::DetectionDelay(Duration::from_secs(5));
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

/// While σ > 1 the mean of AST is stretched, not the saw-tooth: a copy that was spoilt is stale for half of E[t²]/E[t] in the
/// mean, so intervals that are as long on average and fluctuate less are worth more.
#[test]
fn while_everybody_waits_longer_the_mean_of_ast_is_stretched() {
    let spread = |smoothing, stretch: f64| {
        let plan = plan(Preset::Active, |config| (config.ast.smoothing, config.jitter) = (smoothing, 0.0));
        let (mut pacer, mut rng, mut now) = (Pacer::new(&plan), rng(5), Timestamp::ZERO);
        let (loss_rate, mut sum, mut squares) = (0.02, 0.0, 0.0);
        let mut next_loss = draw::exponential(&mut rng, 1.0 / loss_rate);
        for _ in 0..20_000 {
            let mut losses = 0;
            while next_loss <= now.as_secs_f64() {
                losses += 1;
                next_loss += draw::exponential(&mut rng, 1.0 / loss_rate);
            }
            let hints = Hints { stretch: Some(stretch), queued: Some(Duration::ZERO), ..Hints::default() };
            let delay = pacer.on_outcome(now, &answered(0, losses, hints), &mut rng).unwrap();
            now = now + delay;
            sum += delay.as_secs_f64();
            squares += delay.as_secs_f64() * delay.as_secs_f64();
        }
        squares * 20_000.0 / (sum * sum)
    };
    let (saw_tooth, smooth) = (spread(false, 1.5), spread(true, 1.5));
    assert!(smooth - 1.0 < (saw_tooth - 1.0) / 2.0, "{smooth} and {saw_tooth}");
    assert_eq!(spread(true, 1.0).to_bits(), spread(false, 1.0).to_bits(), "nothing changes while nobody is slowed");
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
                let stretched = if state.stretch > 1.0 { state.want } else { state.ast };
                delay.unwrap().as_secs_f64() / (stretched.as_secs_f64() * state.stretch)
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
    (Preset::Active, 3302757.9201272367),
    (Preset::Adaptive, 49303.113068233),
    (Preset::ActiveP18, 4919.088054865021),
    (Preset::Exponential, 10196.176804188004),
];
