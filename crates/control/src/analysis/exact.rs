//! The reference that the estimates of `aimd` are measured against: the stationary law of the map, numerically exact.
//!
//! Test support. The timeout after a decrease is a Markov chain X' = (X + Gε)/α, where G is the number of growths and
//! Pr{G ≥ k | x} = exp(−(εkx + ε²k(k−1)/2)). Its law is found on a grid by iteration, each landing point being shared
//! between its two neighbours; the error is of the order of the square of the grid's width, below 10⁻⁴.

use alloc::vec;
use alloc::vec::Vec;

/// Means of the map for Poisson losses; times in units of sqrt(δ/λ).
#[derive(Debug, Default)]
pub(crate) struct Exact {
    pub(crate) timeout: f64,
    pub(crate) before_decrease: f64,
    pub(crate) growths: f64,
    pub(crate) detection_delay: f64,
}

/// Solves for ε and α.
pub(crate) fn exact(epsilon: f64, alpha: f64) -> Exact {
    let mut law = vec![0.0; POINTS];
    law[POINTS / 5] = 1.0;
    for _ in 0..ITERATIONS_MAX {
        let next = one_cycle(&law, epsilon, alpha);
        let change: f64 = next.iter().zip(&law).map(|(new, old)| (new - old).abs()).sum();
        law = next;
        if change < 1e-9 {
            break;
        }
    }
    let (mut growths, mut time, mut squares, mut start) = (0.0, 0.0, 0.0, 0.0);
    for (x, share) in points(&law) {
        start += share * x;
        visit(x, epsilon, |timeout, reached, _| {
            growths += share * reached;
            time += share * reached * timeout;
            squares += share * reached * timeout * timeout;
        });
    }
    // `growths` counted the checks of a cycle so far; the last of them finds the loss.
    Exact {
        timeout: time / growths,
        before_decrease: alpha * start,
        growths: growths - 1.0,
        detection_delay: squares / (2.0 * time),
    }
}

fn one_cycle(law: &[f64], epsilon: f64, alpha: f64) -> Vec<f64> {
    let mut next = vec![0.0; POINTS];
    for (x, share) in points(law) {
        visit(x, epsilon, |timeout, _, lost| {
            let place = (timeout / alpha / WIDTH).min((POINTS - 2) as f64);
            let (below, part) = (place as usize, place - libm::floor(place));
            next[below] += share * lost * (1.0 - part);
            next[below + 1] += share * lost * part;
        });
    }
    let total: f64 = next.iter().sum();
    next.iter().map(|share| share / total).collect()
}

/// Calls `see(timeout, probability to get there, probability that the loss is found there)` along one cycle from `x`.
fn visit(x: f64, epsilon: f64, mut see: impl FnMut(f64, f64, f64)) {
    let (mut reached, mut timeout) = (1.0, x);
    let (mut quiet, slower) = (libm::exp(-epsilon * x), libm::exp(-epsilon * epsilon));
    while reached > 1e-14 {
        see(timeout, reached, reached * (1.0 - quiet));
        reached *= quiet;
        quiet *= slower;
        timeout += epsilon;
    }
}

fn points(law: &[f64]) -> impl Iterator<Item = (f64, f64)> {
    law.iter().enumerate().filter(|(_, share)| **share > 1e-14).map(|(i, share)| (i as f64 * WIDTH, *share))
}

/// The grid covers post-decrease timeouts up to 9 sqrt(δ/λ); their tail falls like that of a normal law.
const POINTS: usize = 600;
const WIDTH: f64 = 9.0 / POINTS as f64;
/// The slowest chain, α = 1.1, forgets its start in about 200 cycles.
const ITERATIONS_MAX: usize = 1000;
