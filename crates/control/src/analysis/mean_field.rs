//! The mean-field fixed point of the adaptive timeout (F4 of CONTROL §3.2).
//!
//! In truth the timeout after a decrease is random; here every cycle starts at its mean, T/α, and T is the value that
//! such a cycle gives back: T(1 − 1/α) = ε·S(T/α), S(x) = Σ_{n≥1} exp(−(εnx + ε²n(n−1)/2)). Times are in units of
//! sqrt(δ/λ), so ε is the step and the only parameter beside α. `aimd` drives this and knows the seconds.

/// Means of the cycle that reproduces itself.
pub(crate) struct FixedPoint {
    /// τ, over the checks of the cycle.
    pub(crate) timeout: f64,
    /// T.
    pub(crate) before_decrease: f64,
    /// D = E[t²]/(2E[t]): Poisson losses fall evenly into each check.
    pub(crate) detection_delay: f64,
}

/// Solves by bisection, for ε in 0..=1 and α in 1.1..=8. An ε below 10⁻³ is computed at 10⁻³, which changes the result by
/// less than 0.1 % and bounds the sums.
pub(crate) fn solve(epsilon: f64, alpha: f64) -> FixedPoint {
    let epsilon = epsilon.max(EPSILON_MIN);
    let share = 1.0 - 1.0 / alpha;
    // The left side rises with T and the right side falls, so there is one root; S(0) bounds it from above.
    let (mut low, mut high) = (0.0, epsilon * cycle(epsilon, 0.0).growths() / share);
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (low + high);
        if middle * share < epsilon * cycle(epsilon, middle / alpha).growths() {
            low = middle;
        } else {
            high = middle;
        }
    }
    let cycle = cycle(epsilon, high / alpha);
    FixedPoint {
        timeout: cycle.time / cycle.checks,
        before_decrease: high,
        detection_delay: 0.5 * cycle.squares / cycle.time,
    }
}

/// Sums over the checks of one cycle, each weighted with the probability to get there.
struct Cycle {
    checks: f64,
    time: f64,
    squares: f64,
}

impl Cycle {
    /// S(x): every check but the last is a growth.
    fn growths(&self) -> f64 {
        self.checks - 1.0
    }
}

/// The cycle that starts at x. A check of length t is without loss with probability e^(−εt); from one check to the next
/// that falls by the factor e^(−ε²), so the loop needs no exponential.
fn cycle(epsilon: f64, x: f64) -> Cycle {
    let mut sums = Cycle { checks: 0.0, time: 0.0, squares: 0.0 };
    let (mut reached, mut timeout) = (1.0, x);
    let (mut quiet, slower) = (libm::exp(-epsilon * x), libm::exp(-epsilon * epsilon));
    for _ in 0..TERMS_MAX {
        sums.checks += reached;
        sums.time += reached * timeout;
        sums.squares += reached * timeout * timeout;
        reached *= quiet;
        quiet *= slower;
        timeout += epsilon;
        if reached < TERM_PRECISION {
            break;
        }
    }
    sums
}

/// Halvings from the first bracket, at most 20 wide, to the fourteenth digit.
const BISECTIONS: usize = 50;
/// CONTROL §3.2: stop when a term is below 10⁻¹².
const TERM_PRECISION: f64 = 1e-12;
/// e^(−v²/2) is below the precision at v = 7.5, so a sum takes at most 7.5/ε terms: 7 500.
const TERMS_MAX: usize = 8192;
const EPSILON_MIN: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::exact::exact;

    #[test]
    fn fixed_point_is_within_its_stated_errors() {
        for alpha in [1.1, 1.25, 1.5, 2.0, 4.0, 8.0] {
            for (epsilon, timeout_error, before_error, delay_error) in [
                (0.05, 0.017, 0.026, 0.032),
                (0.3, 0.017, 0.026, 0.032),
                (0.6, 0.037, 0.061, 0.088),
                (1.0, 0.037, 0.061, 0.088),
            ] {
                let (point, exact) = (solve(epsilon, alpha), exact(epsilon, alpha));
                for (what, value, expected, error_max) in [
                    ("timeout", point.timeout, exact.timeout, timeout_error),
                    ("before_decrease", point.before_decrease, exact.before_decrease, before_error),
                    ("detection_delay", point.detection_delay, exact.detection_delay, delay_error),
                ] {
                    let error = value / expected - 1.0;
                    assert!(error.abs() < error_max, "{what} at ε = {epsilon}, α = {alpha}: {value} {expected}");
                }
            }
        }
    }

    #[test]
    fn the_smallest_step_stands_for_all_smaller_ones() {
        for alpha in [1.1, 2.0, 8.0] {
            let (finest, next) = (solve(0.0, alpha), solve(2.0 * EPSILON_MIN, alpha));
            // Halving ε halves its effect, so the difference to 2ε bounds what is left between ε and 0.
            assert!((finest.timeout / next.timeout - 1.0).abs() < 1e-3, "α = {alpha}");
            assert!((finest.before_decrease / next.before_decrease - 1.0).abs() < 1e-3, "α = {alpha}");
        }
    }

    #[test]
    fn sums_end_before_their_maximum() {
        let whole = cycle(EPSILON_MIN, 0.0).checks * EPSILON_MIN;
        // ∫ e^(−v²/2) over v > 0, plus half of the first term and half a term for the n(n−1) of the exponent.
        let expected = libm::sqrt(core::f64::consts::FRAC_PI_2) + EPSILON_MIN;
        assert!((whole - expected).abs() < 1e-6, "{whole} {expected}");
    }
}
