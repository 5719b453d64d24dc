//! The normal law: its upper tail and the inverse of it.
//!
//! Knows nothing of the counts that it approximates; `poisson` drives it.

use core::f64::consts::{PI, SQRT_2};

/// Pr{Z ≥ z} for a standard normal Z; relative precision is kept far into the tail.
pub(crate) fn upper_tail(z: f64) -> f64 {
    0.5 * libm::erfc(z / SQRT_2)
}

/// The `z` with Pr{Z ≥ z} = `risk`. The argument is clamped to `RISK_MIN..=1 − 2⁻⁵³`, so that z is within −8.3..=37.1;
/// NaN gives 0, the median.
///
/// Newton's method on the logarithm of the tail. That is a concave function, and `sqrt(−2 ln 2p)` is never left of the
/// root, so the iteration walks to it from the right and cannot overshoot. For risks above one half: by symmetry.
pub(crate) fn upper_quantile(risk: f64) -> f64 {
    if risk.is_nan() {
        return 0.0;
    }
    if risk > 0.5 {
        return -upper_quantile((1.0 - risk).max(f64::EPSILON / 2.0));
    }
    let target = libm::log(risk.max(RISK_MIN));
    let mut z = libm::sqrt((-2.0 * (target + core::f64::consts::LN_2)).max(0.0));
    for _ in 0..NEWTON_STEPS {
        let tail = upper_tail(z);
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(2.0 * PI);
        z -= (target - libm::log(tail)) * tail / density;
    }
    z
}

/// The tail of the first guess, 37.1, must still be a normal number.
const RISK_MIN: f64 = 1e-300;
/// The first guess is within 0.5 of the root and each step squares the error: five reach 1e-14, one is spare.
const NEWTON_STEPS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_the_usual_risks() {
        for (risk, expected) in [
            (0.5, 0.0),
            (0.1, 1.281_551_565_544_600_4),
            (0.05, 1.644_853_626_951_472_2),
            (0.01, 2.326_347_874_040_841),
            (1e-3, 3.090_232_306_167_813_5),
            (1e-9, 5.997_807_015_007_686_5),
            (0.975, -1.959_963_984_540_054),
        ] {
            assert!((upper_quantile(risk) - expected).abs() < 1e-12, "{risk}: {}", upper_quantile(risk));
        }
    }

    #[test]
    fn impossible_risks_are_clamped() {
        assert_eq!(upper_quantile(f64::NAN), 0.0);
        for risk in [0.0, -1.0, f64::NEG_INFINITY, f64::MIN_POSITIVE] {
            assert!((37.0..37.1).contains(&upper_quantile(risk)), "{risk}");
        }
        for risk in [1.0, 2.0, f64::INFINITY] {
            assert!((-8.3..-8.2).contains(&upper_quantile(risk)), "{risk}");
        }
    }

    proptest! {
        #[test]
        fn quantile_inverts_the_tail(exponent in -290.0..-0.01f64) {
            let risk = libm::pow(10.0, exponent);
            // Rounding of z by one unit moves a far tail by z²·2⁻⁵³.
            prop_assert!((upper_tail(upper_quantile(risk)) / risk - 1.0).abs() < 1e-11);
        }
    }
}
