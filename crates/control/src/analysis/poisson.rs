//! How many requests arrive in a window of time, and how many clients a limit can carry (CONTROL §7).
//!
//! m clients that each ask about every τ seconds, with independent phases, bring a Poisson number of requests into a
//! window of t seconds; its mean is the *load* a = m·t/τ. The papers give Pr{X = N}, the chance of exactly N requests,
//! which tends to zero in overload; what a limit needs is the [`tail`] Pr{X ≥ N}, and its inverse in a. Clients that
//! are periodic with jitter are a little more regular than this (the model is on the safe side); clients that have been
//! synchronised, by a restart for example, are nothing like it.
//!
//! Refuses to know where the load comes from. Limits are whole numbers; above 2⁵³ they are rounded as `f64` rounds.
//! Loads are clamped to `0..=LOAD_MAX`, and NaN counts as 0, in every function here.

use core::f64::consts::PI;

use crate::analysis::normal::{upper_quantile, upper_tail};

/// The largest load that is told apart from a larger one. Far above `u64::MAX`, so every limit is certainly exceeded.
pub const LOAD_MAX: f64 = 1e30;

/// The longest interval that [`shortest_interval`] returns, in seconds: 570 years, just what a `Duration` of this crate
/// can hold.
pub const INTERVAL_SECS_MAX: f64 = 1.8e10;

/// ln Pr{X = limit} = N ln a − a − ln N!, in the form −(N ln(N/a) + a − N) − ½ ln 2πN − s(N) that does not lose its
/// digits when N is large (§7; s is the error of Stirling's formula).
///
/// Never positive and never −∞: the impossible (`load` 0, `limit` above 0) is `f64::MIN`, whose exponential is 0.
pub(crate) fn ln_pmf(limit: u64, load: f64) -> f64 {
    let load = load_in_range(load);
    if limit == 0 {
        return -load;
    }
    if load <= 0.0 {
        return f64::MIN;
    }
    let n = limit as f64;
    -(deviance(n, load) + 0.5 * libm::log(2.0 * PI * n) + stirling_error(n)).max(0.0)
}

/// Pr{X = limit} = a^N e^(−a) / N!, the number that the papers print (§7). In `[0, 1]`.
pub fn pmf(limit: u64, load: f64) -> f64 {
    libm::exp(ln_pmf(limit, load))
}

/// Pr{X ≥ limit} = γ(N, a)/Γ(N): the chance that a window brings at least `limit` requests (§7).
///
/// In `[0, 1]`; 1 for `limit` 0, else 0 for `load` 0. Loads up to 10⁵ are summed term by term, away from the mean, at
/// most 2 800 terms; above that the normal approximation of `uniform_tail` takes over, where it is good to ten digits.
pub fn tail(limit: u64, load: f64) -> f64 {
    let load = load_in_range(load);
    let n = limit as f64;
    if limit == 0 {
        1.0
    } else if load <= 0.0 {
        0.0
    } else if load > LOAD_SUMMED_MAX {
        uniform_tail(n, load)
    } else if n > load {
        sum_from(limit, load).min(1.0)
    } else {
        (1.0 - sum_below(limit, load)).clamp(0.0, 1.0)
    }
}

/// The largest load with Pr{X ≥ limit} ≤ `risk`, by bisection on [`tail`] (§7); the result itself keeps the risk.
///
/// A `risk` of 0 or less, or NaN, allows no load: 0. A `risk` of 1 or more allows any: [`LOAD_MAX`]. A `limit` of 0 is
/// reached by no requests at all: 0. Costs about 50 tails; where a percent or two do not matter,
/// [`admissible_load_approx`] is 7 to 200 times cheaper.
pub fn admissible_load(limit: u64, risk: f64) -> f64 {
    if let Some(load) = trivial_load(limit, risk) {
        return load;
    }
    // Beyond twice the limit (plus some for the smallest) the tail is 1 to the last bit, so the root is inside.
    let (mut low, mut high) = (0.0, 2.0 * limit as f64 + 100.0);
    for _ in 0..BISECTIONS_MAX {
        let middle = 0.5 * (low + high);
        if tail(limit, middle) <= risk {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= LOAD_PRECISION * high {
            break;
        }
    }
    low
}

/// a* ≈ (sqrt(N + z²/4) − z/2)² with z = Φ⁻¹(1 − risk): [`admissible_load`] in closed form (§7).
///
/// Within 1.8 % for limits from 120 and risks from 10⁻³ to one half, and ever closer as the limit grows. It may
/// overstep the risk by a little. Out of its domain it answers as [`admissible_load`] does.
pub fn admissible_load_approx(limit: u64, risk: f64) -> f64 {
    if let Some(load) = trivial_load(limit, risk) {
        return load;
    }
    let (n, z) = (limit as f64, upper_quantile(risk));
    let sum = libm::sqrt(n + 0.25 * z * z) + 0.5 * z.abs();
    // sqrt(…) − |z|/2 as n/sum: the difference of near equals would lose its digits.
    let root = if z > 0.0 { n / sum } else { sum };
    root * root
}

/// `τ_min = m·t/a*`: how far apart, in seconds, each of `clients` must keep its checks so that at least `limit` of them
/// fall into a window of `window` seconds with probability `risk` at most (§7).
///
/// In `0..=INTERVAL_SECS_MAX`: 0 if there are no clients, the window is not positive (or NaN), or the risk is 1 or more;
/// the maximum if no load is admissible.
pub fn shortest_interval(clients: u64, window: f64, limit: u64, risk: f64) -> f64 {
    if clients == 0 || window <= 0.0 || window.is_nan() || risk >= 1.0 {
        return 0.0;
    }
    let load = admissible_load(limit, risk);
    if load <= 0.0 {
        return INTERVAL_SECS_MAX;
    }
    (clients as f64 * window / load).min(INTERVAL_SECS_MAX)
}

/// What [`admissible_load`] is at and beyond the ends of its domain.
fn trivial_load(limit: u64, risk: f64) -> Option<f64> {
    if risk >= 1.0 {
        Some(LOAD_MAX)
    } else if limit == 0 || risk <= 0.0 || risk.is_nan() {
        Some(0.0)
    } else {
        None
    }
}

fn load_in_range(load: f64) -> f64 {
    if load.is_nan() { 0.0 } else { load.clamp(0.0, LOAD_MAX) }
}

/// Σ_{j ≥ N} pmf(j) for N > a. The ratios a/(j+1) are below 1 and fall, so the last term bounds what is left out.
fn sum_from(limit: u64, load: f64) -> f64 {
    let (mut term, mut sum, mut j) = (1.0, 1.0, limit as f64);
    for _ in 0..TERMS_MAX {
        j += 1.0;
        term *= load / j;
        sum += term;
        if term < TERM_PRECISION * sum {
            break;
        }
    }
    pmf(limit, load) * sum
}

/// Σ_{j < N} pmf(j) for 1 ≤ N ≤ a, from the largest term down; it ends by itself at j = 0.
fn sum_below(limit: u64, load: f64) -> f64 {
    let (mut term, mut sum, mut j) = (1.0, 1.0, limit as f64 - 1.0);
    for _ in 0..TERMS_MAX {
        term *= j / load;
        sum += term;
        if term < TERM_PRECISION * sum {
            break;
        }
        j -= 1.0;
    }
    pmf(limit - 1, load) * sum
}

/// The normal law with the deviance as its exponent and one term of correction (Temme's uniform expansion of the
/// incomplete gamma function, DLMF 8.12): ½ erfc(−η sqrt(N/2)) − e^(−Nη²/2)/sqrt(2πN)·(C(η) − 1/(540 N)), where ½Nη² is
/// the deviance.
fn uniform_tail(n: f64, load: f64) -> f64 {
    let exponent = deviance(n, load);
    if exponent > EXPONENT_MAX {
        return if load > n { 1.0 } else { 0.0 };
    }
    let eta = libm::copysign(libm::sqrt(2.0 * exponent / n), load - n);
    let correction = libm::exp(-exponent) / libm::sqrt(2.0 * PI * n) * (temme(eta) - 1.0 / (540.0 * n));
    (upper_tail(-eta * libm::sqrt(n)) - correction).clamp(0.0, 1.0)
}

/// C(η) = 1/(λ−1) − 1/η by its power series: |η| is below 0.12 whenever the tail is neither 0 nor 1 and N above 10⁵.
fn temme(eta: f64) -> f64 {
    const SERIES: [f64; 6] = [-1.0 / 3.0, 1.0 / 12.0, -2.0 / 135.0, 1.0 / 864.0, 1.0 / 2835.0, -139.0 / 777_600.0];
    SERIES.iter().rev().fold(0.0, |sum, coefficient| sum * eta + coefficient)
}

/// N ln(N/a) + a − N: not negative, 0 at N = a.
fn deviance(n: f64, load: f64) -> f64 {
    if load < 0.5 * n {
        return n * (libm::log(n) - libm::log(load)) + load - n;
    }
    let mu = (load - n) / n;
    if mu.abs() < 1e-3 {
        // μ − ln(1+μ) loses its digits here; the first term left out is 3·10⁻¹⁶ of the sum.
        return n * mu * mu * (0.5 - mu * (1.0 / 3.0 - mu * (0.25 - mu * (0.2 - mu / 6.0))));
    }
    n * (mu - libm::log1p(mu)).max(0.0)
}

/// ln N! − (½ ln 2πN + N ln N − N).
fn stirling_error(n: f64) -> f64 {
    if n < 16.0 {
        return libm::lgamma(n + 1.0) - (n + 0.5) * libm::log(n) + n - 0.5 * libm::log(2.0 * PI);
    }
    let square = n * n;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / n
}

/// Loads up to this are summed. The approximation above it would do from 10⁴; the sum costs microseconds here.
const LOAD_SUMMED_MAX: f64 = 1e5;
/// Terms are negligible after 8.9·sqrt(load) of them, 2 800 at the largest load that is summed.
const TERMS_MAX: usize = 4096;
/// Terms below this part of the sum cannot change it.
const TERM_PRECISION: f64 = 1e-17;
/// A tail of e^(−700) is 0 for every purpose, and its complement 1.
const EXPONENT_MAX: f64 = 700.0;
/// Halvings that take the widest bracket to the precision, for admissible loads down to 10⁻²⁵; smaller ones come out
/// less precise, or as 0, on the safe side.
const BISECTIONS_MAX: usize = 128;
const LOAD_PRECISION: f64 = 1e-13;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1000 clients, a window of 1 s, room for 120: checks every 10 s are a load of 100, every 5 s one of 200.
    #[test]
    fn the_numbers_of_the_papers() {
        for (what, value, low, high) in [
            ("pmf at 10 s", pmf(120, 100.0), 5.55e-3, 5.65e-3),
            ("pmf at 5 s", pmf(120, 200.0), 2.749e-10, 2.751e-10),
            ("tail at 10 s", tail(120, 100.0), 2.75e-2, 2.85e-2),
            ("tail at 5 s", tail(120, 200.0), 1.0 - 1e-8, 1.0),
        ] {
            assert!((low..=high).contains(&value), "{what}: {value:e}");
        }
        let interval = shortest_interval(1000, 1.0, 120, tail(120, 100.0));
        assert!((interval - 10.0).abs() < 1e-6, "{interval}");
    }

    #[test]
    fn small_cases_agree_with_the_definition() {
        assert!((pmf(0, 2.0) - libm::exp(-2.0)).abs() < 1e-16);
        assert!((pmf(3, 2.0) - 8.0 / 6.0 * libm::exp(-2.0)).abs() < 1e-15);
        assert!((tail(1, 1e-9) / 1e-9 - 1.0).abs() < 1e-8);
        assert!((tail(3, 2.0) - (1.0 - 5.0 * libm::exp(-2.0))).abs() < 1e-15);
    }

    #[test]
    fn sum_and_normal_approximation_meet() {
        for z in [-12.0, -3.0, -1.0, -0.01, 0.0, 0.5, 2.0, 6.0, 12.0] {
            let load = LOAD_SUMMED_MAX;
            let limit = (load + z * libm::sqrt(load)) as u64;
            let (summed, approximated) = (tail(limit, load), uniform_tail(limit as f64, load));
            assert!((approximated / summed - 1.0).abs() < 1e-10, "z = {z}: {summed:e} {approximated:e}");
        }
    }

    #[test]
    fn closed_form_inverse_is_within_its_stated_error() {
        for limit in [120, 200, 500, 2_000, 50_000, 1_000_000] {
            for risk in [1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.5] {
                let error = admissible_load_approx(limit, risk) / admissible_load(limit, risk) - 1.0;
                assert!(error.abs() < 0.0185, "N = {limit}, risk {risk}: {error}");
            }
        }
    }

    #[test]
    fn the_ends_of_every_domain() {
        for load in [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0] {
            assert_eq!((pmf(0, load), pmf(1, load), tail(0, load), tail(1, load)), (1.0, 0.0, 1.0, 0.0), "{load}");
        }
        assert_eq!((pmf(u64::MAX, f64::INFINITY), tail(u64::MAX, f64::INFINITY)), (0.0, 1.0));
        for risk in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
            assert_eq!((admissible_load(9, risk), admissible_load_approx(9, risk)), (0.0, 0.0), "{risk}");
            assert_eq!(shortest_interval(1, 1.0, 9, risk), INTERVAL_SECS_MAX);
        }
        assert_eq!((admissible_load(9, 1.0), shortest_interval(1, 1.0, 9, 1.0)), (LOAD_MAX, 0.0));
        assert_eq!((admissible_load(0, 0.5), shortest_interval(1, 1.0, 0, 0.5)), (0.0, INTERVAL_SECS_MAX));
        assert_eq!((shortest_interval(0, 1.0, 9, 0.1), shortest_interval(7, f64::NAN, 9, 0.1)), (0.0, 0.0));
        assert_eq!(shortest_interval(u64::MAX, f64::INFINITY, 1, 1e-300), INTERVAL_SECS_MAX);
    }

    fn any_limit() -> impl Strategy<Value = u64> {
        prop_oneof![0..200u64, 99_000..101_000u64, any::<u64>(), (0..64u32).prop_map(|bits| 1 << bits)]
    }

    fn any_load() -> impl Strategy<Value = f64> {
        prop_oneof![
            0.0..300.0f64,
            99_000.0..101_000.0f64,
            proptest::num::f64::ANY,
            (-30.0..25.0f64).prop_map(libm::exp10)
        ]
    }

    proptest! {
        #[test]
        fn any_input_gives_a_result_in_range(limit in any_limit(), load in any_load(), other in proptest::num::f64::ANY) {
            prop_assert!((f64::MIN..=0.0).contains(&ln_pmf(limit, load)));
            prop_assert!((0.0..=1.0).contains(&pmf(limit, load)));
            prop_assert!((0.0..=1.0).contains(&tail(limit, load)));
            for risk in [other, load] {
                prop_assert!((0.0..=LOAD_MAX).contains(&admissible_load(limit, risk)));
                prop_assert!((0.0..=LOAD_MAX).contains(&admissible_load_approx(limit, risk)));
                prop_assert!((0.0..=INTERVAL_SECS_MAX).contains(&shortest_interval(limit, other, limit, risk)));
            }
        }

        /// Near the mean the approximation and the sum differ in the eleventh digit, hence the tolerance.
        #[test]
        fn tail_falls_with_the_limit_and_grows_with_the_load(
            limit in any_limit(), more in any_limit(), load in any_load(), heavier in 0.0..0.1f64,
        ) {
            let here = tail(limit, load);
            prop_assert!(tail(limit.saturating_add(more), load) <= here * (1.0 + 1e-9));
            prop_assert!(tail(limit.saturating_add(1), load) <= here * (1.0 + 1e-9));
            prop_assert!(tail(limit, load.abs() * (1.0 + heavier)) >= tail(limit, load.abs()) * (1.0 - 1e-9));
        }

        #[test]
        fn tail_keeps_its_bounds(limit in 1..2_000u64, share in 0.01..0.999f64) {
            let n = limit as f64;
            let load = n * share;
            let (exactly, at_least) = (pmf(limit, load), tail(limit, load));
            prop_assert!(exactly <= at_least * (1.0 + 1e-12));
            prop_assert!(at_least <= exactly * (n + 1.0) / (n + 1.0 - load) * (1.0 + 1e-12));
            prop_assert!(at_least <= libm::exp(-deviance(n, load)) * (1.0 + 1e-12));
        }

        #[test]
        fn admissible_load_is_the_largest(limit in 1..3_000u64, exponent in -12.0..-0.01f64) {
            let risk = libm::exp10(exponent);
            let load = admissible_load(limit, risk);
            prop_assert!(tail(limit, load) <= risk);
            prop_assert!(tail(limit, load * (1.0 + 1e-9)) > risk);
        }
    }
}
