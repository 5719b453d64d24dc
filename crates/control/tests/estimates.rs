//! The estimates of `analysis::aimd` against the map itself: t' = t + δ after a quiet check, t' = t/α after a loss.
//!
//! Seeded simulations of single clients on five flows of losses, with the event rate λ = 1. Times are in units of 1/λ.
//! Tolerances are the errors that the formulas state and about 1 % for chance.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_control::analysis::Aimd;
use tidegate_control::analysis::aimd::burst;

/// How losses come. The rate of events is 1 for all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    /// One at a time, at equal distances.
    Metronome,
    /// Distances are the sum of four exponentials: squared coefficient of variation 1/4.
    Gamma,
    Poisson,
    /// Distances are short or long exponentials (balanced means): squared coefficient of variation 4.
    Hyperexponential,
    /// Poisson events of a geometric number of losses, five in the mean.
    Batches,
}

const FLOWS: [Flow; 5] = [Flow::Metronome, Flow::Gamma, Flow::Poisson, Flow::Hyperexponential, Flow::Batches];
const ALPHAS: [f64; 3] = [1.5, 2.0, 4.0];
const BATCH_MEAN: f64 = 5.0;

impl Flow {
    /// Of the distances between events.
    fn cv2(self) -> f64 {
        match self {
            Flow::Metronome => 0.0,
            Flow::Gamma => 0.25,
            Flow::Poisson | Flow::Batches => 1.0,
            Flow::Hyperexponential => 4.0,
        }
    }

    fn losses_per_event(self) -> f64 {
        if self == Flow::Batches { BATCH_MEAN } else { 1.0 }
    }

    /// Time to the next event and the losses it brings.
    fn next(self, rng: &mut Xoshiro256PlusPlus) -> (f64, u64) {
        match self {
            Flow::Metronome => (1.0, 1),
            Flow::Gamma => ((0..4).map(|_| exponential(rng)).sum::<f64>() / 4.0, 1),
            Flow::Poisson => (exponential(rng), 1),
            Flow::Hyperexponential => {
                let often = 0.5 * (1.0 + (3.0f64 / 5.0).sqrt());
                let branch = if unit(rng) < often { often } else { 1.0 - often };
                (exponential(rng) / (2.0 * branch), 1)
            }
            Flow::Batches => {
                let gap = exponential(rng);
                (gap, 1 + (exponential(rng) / -(1.0 - 1.0 / BATCH_MEAN).ln()) as u64)
            }
        }
    }
}

fn unit(rng: &mut Xoshiro256PlusPlus) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    -(1.0 - unit(rng)).ln()
}

/// Sums over a run.
#[derive(Debug, Default)]
struct Run {
    checks: f64,
    decreases: f64,
    losses: f64,
    time: f64,
    time_before_decreases: f64,
    squares_before_decreases: f64,
    undetected: f64,
}

impl Run {
    /// One client until `decreases` checks found a loss, after a tenth as many to forget the start.
    fn of(flow: Flow, map: Aimd, decreases: u32) -> Self {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(0x7e1d_9a7e);
        let mut run = Run::default();
        let (mut now, mut timeout) = (0.0, map.fluid().timeout);
        let (mut loss_at, mut size) = flow.next(rng);
        for found in 0..decreases + decreases / 10 {
            if found == decreases / 10 {
                run = Run::default();
            }
            loop {
                let end = now + timeout;
                let before = run.losses;
                while loss_at <= end {
                    run.losses += size as f64;
                    run.undetected += size as f64 * (end - loss_at);
                    let (gap, next) = flow.next(rng);
                    (loss_at, size) = (loss_at + gap, next);
                }
                now = end;
                run.checks += 1.0;
                run.time += timeout;
                if run.losses > before {
                    break;
                }
                timeout += map.step();
            }
            run.decreases += 1.0;
            run.time_before_decreases += timeout;
            run.squares_before_decreases += timeout * timeout;
            timeout /= map.alpha();
        }
        run
    }

    fn timeout(&self) -> f64 {
        self.time / self.checks
    }

    fn before_decrease(&self) -> f64 {
        self.time_before_decreases / self.decreases
    }

    fn growths(&self) -> f64 {
        self.checks / self.decreases - 1.0
    }

    fn hit_probability(&self) -> f64 {
        self.decreases / self.checks
    }

    fn detection_delay(&self) -> f64 {
        self.undetected / self.losses
    }
}

fn map(epsilon: f64, alpha: f64) -> Aimd {
    Aimd::clamped(1.0, epsilon * epsilon, alpha)
}

#[track_caller]
fn close(what: &str, value: f64, expected: f64, error_max: f64) {
    let error = value / expected - 1.0;
    assert!(error.abs() < error_max, "{what}: {value}, expected {expected}, error {error:+.4}");
}

/// F1 telescopes: what the timeout gained it lost again, up to the ends of the run.
#[test]
fn balance_holds_for_every_flow() {
    for flow in FLOWS {
        for alpha in ALPHAS {
            for epsilon in [0.05, 0.3, 1.0] {
                let map = map(epsilon, alpha);
                let run = Run::of(flow, map, 10_000);
                let what = format!("T of {flow:?}, α = {alpha}, ε = {epsilon}");
                close(&what, run.before_decrease(), map.balance(run.growths()), 1e-3);
            }
        }
    }
}

#[test]
fn second_moment_is_the_same_for_every_flow() {
    for flow in FLOWS {
        for alpha in ALPHAS {
            let map = map(0.01, alpha);
            let run = Run::of(flow, map, 40_000);
            let what = format!("E[T²] of {flow:?}, α = {alpha}");
            close(&what, run.squares_before_decreases / run.decreases, map.second_moment(), 0.025);
        }
    }
}

#[test]
fn poisson_losses_follow_the_estimates() {
    for alpha in [1.25, 1.5, 2.0, 4.0] {
        for (epsilon, timeout_error, before_error, delay_error) in [
            (0.05, 0.02, 0.02, 0.02),
            (0.15, 0.02, 0.02, 0.02),
            (0.3, 0.02, 0.02, 0.02),
            (0.5, 0.03, 0.045, 0.06),
            (1.0, 0.04, 0.07, 0.09),
        ] {
            let map = map(epsilon, alpha);
            let (run, estimate) = (Run::of(Flow::Poisson, map, 40_000), map.estimate());
            let at = format!("α = {alpha}, ε = {epsilon}");
            close(&format!("τ, {at}"), estimate.timeout, run.timeout(), timeout_error);
            close(&format!("T, {at}"), estimate.before_decrease, run.before_decrease(), before_error);
            close(&format!("N, {at}"), estimate.growths, run.growths(), before_error);
            close(&format!("p, {at}"), estimate.hit_probability, run.hit_probability(), before_error);
            close(&format!("D, {at}"), estimate.detection_delay, run.detection_delay(), delay_error);
        }
    }
}

#[test]
fn fluid_limit_and_fixed_point_have_their_stated_errors() {
    for alpha in ALPHAS {
        let map = map(0.02, alpha);
        let (run, fluid, fixed) = (Run::of(Flow::Poisson, map, 40_000), map.fluid(), map.mean_field());
        // Without the correction τ is 0.24 cε too long, 0.8 % at most here; the fixed point is 1.7 % off.
        close(&format!("fluid τ, α = {alpha}"), fluid.timeout, run.timeout(), 0.018);
        close(&format!("fluid T, α = {alpha}"), fluid.before_decrease, run.before_decrease(), 0.018);
        close(&format!("fixed τ, α = {alpha}"), fixed.timeout, run.timeout(), 0.027);
        close(&format!("fixed T, α = {alpha}"), fixed.before_decrease, run.before_decrease(), 0.036);
    }
}

#[test]
fn other_flows_follow_the_renewal_estimate() {
    for flow in FLOWS {
        for alpha in ALPHAS {
            let map = map(0.05, alpha);
            let (run, estimate) = (Run::of(flow, map, 20_000), map.renewal(flow.cv2()));
            let what = format!("{flow:?}, α = {alpha}");
            close(&format!("τ of {what}"), estimate.timeout, run.timeout(), 0.05);
            close(&format!("T of {what}"), estimate.before_decrease, run.before_decrease(), 0.05);
            close(&format!("N of {what}"), estimate.growths, run.growths(), 0.05);
        }
    }
}

#[test]
fn burst_is_exact_for_every_flow() {
    for flow in FLOWS {
        for alpha in ALPHAS {
            let run = Run::of(flow, map(0.05, alpha), 20_000);
            let what = format!("K of {flow:?}, α = {alpha}");
            let found = run.losses / run.decreases;
            close(&what, burst(run.losses / run.time, run.timeout(), run.hit_probability()), found, 1e-12);
            close(&what, burst(flow.losses_per_event(), run.timeout(), run.hit_probability()), found, 0.03);
            // Events seldom share a check at this ε, except where they crowd.
            let crowding = if flow == Flow::Hyperexponential { 1.2 } else { 1.1 };
            let events = found / flow.losses_per_event();
            assert!((0.97..crowding).contains(&events), "{what}: {events} events in a check that found any");
        }
    }
}
