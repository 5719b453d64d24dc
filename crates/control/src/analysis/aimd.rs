//! The stationary behaviour of the adaptive timeout: t' = t + δ if a check found no loss, t' = t/α if it did.
//!
//! Losses come in *events* of rate λ (a batch is one event, see [`burst`]). With ε = sqrt(λδ), every time divided by
//! sqrt(δ/λ), and N, are functions of ε and α alone: a caller on a hot path may keep them for as long as its ε stands
//! still. The formulas are F1–F6 of CONTROL §3.2; three ways to the same five numbers:
//!
//! * [`Aimd::fluid`], F3: the limit ε → 0, closed form;
//! * [`Aimd::estimate`]: F3 with a correction for ε up to 0.3, F4 above. The one to use;
//! * [`Aimd::mean_field`], F4: a fixed point, for ε up to 1. Beyond that a step is longer than the mean distance of
//!   losses and the map makes no sense; such a configuration is refused.
//!
//! Refuses to know how λ was measured. T must never be measured and fed back: a cap at T makes every observed T smaller.

use crate::analysis::mean_field;
use crate::config::{ConfigError, number};

/// The map with its parameters, all in range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// λ, loss events per second, in `RATE_MIN..=RATE_MAX`.
    event_rate: f64,
    /// δ in seconds, in `STEP_MIN..=STEP_MAX` and at most 1/λ.
    step: f64,
    /// α, in `ALPHA_MIN..=ALPHA_MAX`.
    alpha: f64,
    /// c(α).
    c: f64,
}

/// Long-run means of the map. Finite and not negative, whatever they were computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AimdEstimates {
    /// τ, mean timeout over all checks, in seconds; 1/τ is the rate of checks.
    pub timeout: f64,
    /// T, mean timeout just before a decrease, in seconds.
    pub before_decrease: f64,
    /// N, mean number of growths between two decreases.
    pub growths: f64,
    /// p = 1/(N+1), the probability that a check finds a loss.
    pub hit_probability: f64,
    /// D, mean time that a lost update stays undetected, in seconds.
    pub detection_delay: f64,
}

impl Aimd {
    /// Loss events per second, growth step in seconds, divisor. Refuses rates and steps that are not in
    /// 10⁻⁹..=10⁹, a step above 1/`event_rate`, and an α outside of 1.1..=8.
    pub fn new(event_rate: f64, step: f64, alpha: f64) -> Result<Self, ConfigError> {
        let event_rate = number("event_rate", event_rate, RATE_MIN, RATE_MAX)?;
        let step = number("step", step, STEP_MIN, STEP_MAX.min(1.0 / event_rate))?;
        let alpha = number("alpha", alpha, ALPHA_MIN, ALPHA_MAX)?;
        Ok(Self { event_rate, step, alpha, c: c(alpha) })
    }

    /// As [`Aimd::new`], for measured rates: what is out of range is moved to the nearest end of it, the step to
    /// 1/`event_rate` (F4). NaN gives the lowest rate, the lowest step, α = 2.
    pub fn clamped(event_rate: f64, step: f64, alpha: f64) -> Self {
        let event_rate = in_range(event_rate, RATE_MIN, RATE_MAX);
        let step = in_range(step, STEP_MIN, STEP_MAX.min(1.0 / event_rate));
        let alpha = alpha_in_range(alpha);
        Self { event_rate, step, alpha, c: c(alpha) }
    }

    /// δ in seconds.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// α.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// ε = sqrt(λδ), in 10⁻⁹..=1.
    pub fn epsilon(&self) -> f64 {
        libm::sqrt(self.event_rate * self.step).min(1.0)
    }

    /// F1: T = N·δ·α/(α−1), exact for every stationary flow of losses. NaN and negative counts give 0; a product
    /// beyond `f64` gives `f64::MAX`.
    pub fn balance(&self, growths: f64) -> f64 {
        in_range(growths * self.step * self.alpha / (self.alpha - 1.0), 0.0, f64::MAX)
    }

    /// F2: `E[T²]` = 2δ/(λ(1 − α⁻²)) in s², exact as ε → 0 for every stationary flow of losses. A finite ε makes a
    /// difference of 1.6·ε of it at most, if α ≥ 1.5.
    pub fn second_moment(&self) -> f64 {
        2.0 * self.step / (self.event_rate * (1.0 - 1.0 / (self.alpha * self.alpha)))
    }

    /// F3: Poisson losses, ε → 0. τ = c·s, T = α/((α−1)c)·s, N = 1/(cε), D = T/2, where s = sqrt(δ/λ).
    pub fn fluid(&self) -> AimdEstimates {
        let before = self.fluid_before_decrease();
        self.scaled(self.c, before, 0.5 * before)
    }

    /// Poisson losses, any ε: F3 with a first-order correction up to ε = 0.3, [`Aimd::mean_field`] above.
    ///
    /// The corrections, with T₀ = α/((α−1)c), the fluid T in units of s = sqrt(δ/λ):
    /// ```text
    /// τ = c·s / (1 + 0.22·c·ε)      T = T₀·s / (1 + κε), κ = ¾c − T₀/2      D = T/2 + δ·(T₀/2)·(c·α/(α+1) − T₀/2)
    /// ```
    /// N follows from T by F1. Where they come from: put τ = c·s·(1 − kcε) into p = `E[1 − e^(−λt)]` = 1/(N+1), expand to
    /// the first order of ε, and N (so T) has the factor 1 − ε(c(1−k) − T₀/2). The same expansion of the mean drift gives
    /// `E[t²]`, and D = `E[t²]/(2E[t])` exceeds T/2 by the δ-term above, free of k. Measured, k falls from ¼ (α → 1, ε → 0)
    /// to 0.17 (α = 4, ε = 0.3); ¼ serves T best and 0.22 serves τ. The form 1/(1+x) instead of CONTROL's 1 − x halves
    /// the error, as the next order has the opposite sign.
    ///
    /// Against the exact law, ε ≤ 0.3: for 1.25 ≤ α ≤ 4 within 1.1 % (τ), 0.7 % (T, N, D) and 0.4 % (p); for all α
    /// within 1.3 %. Above 0.3 see [`Aimd::mean_field`]; the two differ by up to 3 % where they meet.
    pub fn estimate(&self) -> AimdEstimates {
        let epsilon = self.epsilon();
        if epsilon > EPSILON_CORRECTED_MAX {
            return self.mean_field();
        }
        let (c, fluid) = (self.c, self.fluid_before_decrease());
        let timeout = c / (1.0 + 0.22 * c * epsilon);
        let before = fluid / (1.0 + (0.75 * c - 0.5 * fluid) * epsilon);
        let lag = 0.5 * fluid * (c * self.alpha / (self.alpha + 1.0) - 0.5 * fluid);
        self.scaled(timeout, before, 0.5 * before + lag * epsilon)
    }

    /// F4: Poisson losses; T solves T(1 − 1/α) = δ·S(T/α), where S(x) = Σ_{n≥1} exp(−λ(nx + δn(n−1)/2)) is the mean
    /// number of growths from x.
    ///
    /// Against the exact law, all α: τ within 1.7 % for ε ≤ 0.3 and 3.7 % up to 1; T and N within 2.6 % and 6.1 %, D
    /// within 3.2 % and 8.8 %. Costs 50 sums of about 6/ε terms, 7 500 at most.
    pub fn mean_field(&self) -> AimdEstimates {
        let point = mean_field::solve(self.epsilon(), self.alpha);
        self.scaled(point.timeout, point.before_decrease, point.detection_delay)
    }

    /// F5: losses that form a renewal flow, ε up to about 0.1. `cv2` is the squared coefficient of variation of the
    /// distance between losses: 0 is a metronome, 1 near to Poisson, more is bursty.
    /// T = `sqrt(E[T²])·(1 + v)^(−1/8)` with v = cv2·(α²−1)/(α²+1) and `E[T²]` from F2; N by F1; τ = 1/(λN); D = T/2.
    ///
    /// Within 5 % at ε = 0.05 for `cv2` up to 4. NaN and negative values count as 0, values above 10⁶ as 10⁶.
    pub fn renewal(&self, cv2: f64) -> AimdEstimates {
        let square = self.alpha * self.alpha;
        let variation = in_range(cv2, 0.0, CV2_MAX) * (square - 1.0) / (square + 1.0);
        let before = libm::sqrt(2.0 / (1.0 - 1.0 / square)) * libm::pow(1.0 + variation, -0.125);
        self.scaled(self.alpha / ((self.alpha - 1.0) * before), before, 0.5 * before)
    }

    /// T₀ = α/((α−1)c).
    fn fluid_before_decrease(&self) -> f64 {
        self.alpha / ((self.alpha - 1.0) * self.c)
    }

    /// Estimates from τ, T and D in units of sqrt(δ/λ). N is taken from T, so that F1 holds whatever the method.
    fn scaled(&self, timeout: f64, before_decrease: f64, detection_delay: f64) -> AimdEstimates {
        let unit = libm::sqrt(self.step / self.event_rate);
        let growths = before_decrease * (1.0 - 1.0 / self.alpha) / self.epsilon();
        AimdEstimates {
            timeout: timeout * unit,
            before_decrease: before_decrease * unit,
            growths,
            hit_probability: 1.0 / (growths + 1.0),
            detection_delay: detection_delay * unit,
        }
    }
}

/// F3: c(α) = sqrt(2/π)·Π_{n≥1} (1 − α^(−2n))/(1 − α^(−(2n−1))), the mean timeout in units of sqrt(δ/λ) as ε → 0.
/// An α outside of 1.1..=8 is moved to the nearest end, NaN to 2; so c is in 0.899..=3.279.
pub fn c(alpha: f64) -> f64 {
    let b = 1.0 / alpha_in_range(alpha);
    let (mut odd, mut product) = (b, libm::sqrt(core::f64::consts::FRAC_2_PI));
    for _ in 0..FACTORS_MAX {
        product *= (1.0 - odd * b) / (1.0 - odd);
        odd *= b * b;
        if odd < FACTOR_PRECISION {
            break;
        }
    }
    product
}

/// η = c²(α−1)/α: the detection delay of periodic checks over that of this map at the same rate of checks (F3). In
/// 0.70..=0.98, 1 would be ideal; α as for [`c`].
pub fn efficiency(alpha: f64) -> f64 {
    c(alpha) * c(alpha) * (1.0 - 1.0 / alpha_in_range(alpha))
}

/// F6: K = Λτ/p, the mean number of losses found by a check that finds any; exact for every flow. Λ counts single
/// losses per second, and λ = Λ/K is the event rate for everything above.
///
/// At least 1 and finite: 1 also if an argument is NaN or not positive, for then nothing was found yet.
pub fn burst(total_rate: f64, timeout: f64, hit_probability: f64) -> f64 {
    if !(total_rate > 0.0 && timeout > 0.0 && hit_probability > 0.0) {
        return 1.0;
    }
    in_range(total_rate * timeout / hit_probability.min(1.0), 1.0, f64::MAX)
}

/// δ = λ·(2D/T₀)²: the step, in seconds, for a mean detection delay of `delay` seconds (CONTROL §3.4, by F3).
/// In 10⁻⁹..=min(10⁹, 1/λ), the range of [`Aimd::new`]; `event_rate` and `alpha` are clamped as by [`Aimd::clamped`], a
/// `delay` that is NaN or negative counts as 0.
pub fn step_for_delay(event_rate: f64, delay: f64, alpha: f64) -> f64 {
    let map = Aimd::clamped(event_rate, STEP_MIN, alpha);
    let ratio = 2.0 * in_range(delay, 0.0, f64::MAX) / map.fluid_before_decrease();
    Aimd::clamped(map.event_rate, map.event_rate * ratio * ratio, map.alpha).step
}

/// δ = λ/(c·r)²: the step, in seconds, for `check_rate` checks per second (CONTROL §3.4, by F3). Range and clamping as
/// for [`step_for_delay`]; a `check_rate` that is NaN or not positive gives the longest step there is.
pub fn step_for_rate(event_rate: f64, check_rate: f64, alpha: f64) -> f64 {
    let map = Aimd::clamped(event_rate, STEP_MIN, alpha);
    let root = map.c * in_range(check_rate, 0.0, f64::MAX);
    // Division by 0 gives +∞ here, never NaN, since the rate is positive.
    Aimd::clamped(map.event_rate, map.event_rate / (root * root), map.alpha).step
}

/// `value` moved into the range; NaN is the low end.
fn in_range(value: f64, low: f64, high: f64) -> f64 {
    if value.is_nan() { low } else { value.clamp(low, high) }
}

fn alpha_in_range(alpha: f64) -> f64 {
    if alpha.is_nan() { ALPHA_DEFAULT } else { alpha.clamp(ALPHA_MIN, ALPHA_MAX) }
}

/// Range and default of α (CONTROL §10).
const ALPHA_MIN: f64 = 1.1;
const ALPHA_MAX: f64 = 8.0;
const ALPHA_DEFAULT: f64 = 2.0;
/// From one loss in thirty years to one in a nanosecond; keeps every product and quotient below far inside of `f64`.
const RATE_MIN: f64 = 1e-9;
const RATE_MAX: f64 = 1e9;
const STEP_MIN: f64 = 1e-9;
const STEP_MAX: f64 = 1e9;
/// Up to here the corrected closed form is closer to the exact law than the fixed point is.
const EPSILON_CORRECTED_MAX: f64 = 0.3;
/// (1 + 10⁶)^(−1/8) = 0.18; a flow that bursty is a flow of batches.
const CV2_MAX: f64 = 1e6;
/// α = 1.1 needs 206 factors to reach the precision.
const FACTORS_MAX: usize = 256;
const FACTOR_PRECISION: f64 = 1e-17;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::exact::exact;
    use proptest::prelude::*;

    /// The table of F3.
    #[test]
    fn constants_have_the_printed_digits() {
        for (alpha, mean, before, share) in [
            (1.1, 3.2780, 3.3557, 0.977),
            (1.25, 2.1768, 2.2969, 0.948),
            (1.5, 1.6521, 1.8159, 0.910),
            (2.0, 1.3098, 1.5269, 0.858),
            (3.0, 1.0945, 1.3705, 0.799),
            (4.0, 1.0100, 1.3201, 0.765),
            (8.0, 0.8992, 1.2710, 0.707),
        ] {
            let fluid = Aimd::new(1.0, 1.0, alpha).unwrap().fluid();
            assert!((c(alpha) - mean).abs() <= 5.1e-5, "c({alpha}) = {}", c(alpha));
            assert!((fluid.before_decrease - before).abs() <= 5.1e-5, "T({alpha}) = {}", fluid.before_decrease);
            assert!((efficiency(alpha) - share).abs() <= 5.1e-4, "efficiency({alpha}) = {}", efficiency(alpha));
        }
    }

    #[test]
    fn estimates_are_within_two_percent_of_the_exact_law() {
        for alpha in [1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0] {
            for epsilon in [0.05, 0.1, 0.2, 0.3] {
                let exact = exact(epsilon, alpha);
                let estimate = Aimd::new(epsilon, epsilon, alpha).unwrap().estimate();
                for (what, value, expected, error_max) in [
                    ("timeout", estimate.timeout, exact.timeout, 0.013),
                    ("before_decrease", estimate.before_decrease, exact.before_decrease, 0.012),
                    ("growths", estimate.growths, exact.growths, 0.012),
                    ("detection_delay", estimate.detection_delay, exact.detection_delay, 0.012),
                    ("hit_probability", estimate.hit_probability, 1.0 / (exact.growths + 1.0), 0.006),
                ] {
                    let error = value / expected - 1.0;
                    assert!(error.abs() < error_max, "{what} at ε = {epsilon}, α = {alpha}: {value} {expected}");
                }
            }
        }
    }

    #[test]
    fn a_metronome_gives_the_classical_saw_tooth() {
        let map = Aimd::new(1.0, 1.0, 2.0).unwrap();
        assert!((map.renewal(0.0).timeout - libm::sqrt(1.5)).abs() < 1e-12);
        assert!((map.renewal(0.0).before_decrease - libm::sqrt(map.second_moment())).abs() < 1e-12);
    }

    #[test]
    fn a_step_reaches_its_target() {
        let slow = Aimd::new(0.01, step_for_delay(0.01, 5.0, 2.0), 2.0).unwrap().fluid();
        assert!((slow.detection_delay - 5.0).abs() < 1e-9);
        let steady = Aimd::new(0.01, step_for_rate(0.01, 0.2, 1.5), 1.5).unwrap().fluid();
        assert!((steady.timeout - 5.0).abs() < 1e-9);
        // A delay that the losses do not leave time for: the step ends at 1/λ.
        assert_eq!(step_for_delay(10.0, 5.0, 2.0), 0.1);
    }

    #[test]
    fn configurations_out_of_range_are_refused_by_name() {
        for (rate, step, alpha, field) in [
            (0.0, 0.1, 2.0, "event_rate"),
            (f64::NAN, 0.1, 2.0, "event_rate"),
            (1.0, 0.0, 2.0, "step"),
            (1.0, f64::INFINITY, 2.0, "step"),
            (4.0, 0.26, 2.0, "step"),
            (1.0, 0.1, 1.0, "alpha"),
        ] {
            assert_eq!(Aimd::new(rate, step, alpha).unwrap_err().field, field);
        }
        assert_eq!(Aimd::new(4.0, 0.26, 2.0).unwrap_err().allowed, "a number in 0.000000001..=0.25");
    }

    #[test]
    fn no_sign_of_losses_is_no_burst() {
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!([burst(nothing, 9.0, 0.5), burst(9.0, nothing, 0.5), burst(9.0, 9.0, nothing)], [1.0; 3]);
        }
        assert_eq!((burst(2.0, 3.0, 0.5), burst(2.0, 3.0, 7.0)), (12.0, 6.0));
        assert_eq!(burst(f64::INFINITY, f64::MAX, f64::MIN_POSITIVE), f64::MAX);
    }

    proptest! {
        #[test]
        fn any_input_gives_finite_estimates(
            rate in proptest::num::f64::ANY, step in proptest::num::f64::ANY, alpha in proptest::num::f64::ANY,
            exponents in (-10.0..10.0f64, -10.0..10.0f64), any in proptest::num::f64::ANY,
        ) {
            let (usual_rate, usual_step) = (libm::exp10(exponents.0), libm::exp10(exponents.1));
            for map in [Aimd::clamped(rate, step, alpha), Aimd::clamped(usual_rate, usual_step, alpha)] {
                prop_assert!(Aimd::new(map.event_rate, map.step, map.alpha).is_ok());
                for e in [map.fluid(), map.estimate(), map.mean_field(), map.renewal(any)] {
                    for value in [e.timeout, e.before_decrease, e.growths, e.detection_delay] {
                        prop_assert!(value > 0.0 && value.is_finite(), "{map:?} {e:?}");
                    }
                    prop_assert!(e.hit_probability > 0.0 && e.hit_probability < 1.0);
                    prop_assert!((map.balance(e.growths) / e.before_decrease - 1.0).abs() < 1e-12);
                }
                prop_assert!(map.second_moment() > 0.0 && map.second_moment().is_finite());
            }
            prop_assert!((0.0..=f64::MAX).contains(&Aimd::clamped(rate, step, alpha).balance(any)));
            prop_assert!((1.0..=f64::MAX).contains(&burst(rate, step, any)));
            prop_assert!((STEP_MIN..=STEP_MAX).contains(&step_for_delay(rate, any, alpha)));
            prop_assert!((STEP_MIN..=STEP_MAX).contains(&step_for_rate(rate, any, alpha)));
        }
    }
}
