//! Numbers for those who keep very many of them.

/// A number ≥ 0 in 16 bits: 0, or 2⁻³² to 2³² with ten bits of mantissa, one part in two thousand. NaN is 0.
pub fn close(value: f32) -> u16 {
    if value.is_nan() || value <= 0.0 {
        return 0;
    }
    let value = value.clamp(LEAST, MOST);
    // Rounded to the nearest; a carry goes into the exponent, where it belongs.
    (((value.to_bits() + (1 << 12)) >> 13) - EXPONENT_MIN) as u16
}

/// The number again.
pub fn open(code: u16) -> f32 {
    if code == 0 { 0.0 } else { f32::from_bits((u32::from(code) + EXPONENT_MIN) << 13) }
}

/// The exponent of 2⁻³² as `f32` has it, before ten bits of mantissa.
const EXPONENT_MIN: u32 = 95 << 10;
/// Just above 2⁻³², whose code would be 0, and just below 2³².
const LEAST: f32 = 2.4e-10;
const MOST: f32 = 4.29e9;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back_within_a_part_in_two_thousand(value in 1e-9..4e9_f32) {
            let opened = open(close(value));
            prop_assert!((opened / value - 1.0).abs() <= 1.0 / 2047.0, "{value} {opened}");
            prop_assert_eq!(close(opened), close(value));
        }
    }

    #[test]
    fn nothing_is_nothing_and_all_is_not_too_much() {
        assert!([0.0, -1.0, f32::NAN, f32::NEG_INFINITY].into_iter().all(|value| open(close(value)) == 0.0));
        assert!(open(close(1e-30)) > 0.0);
        assert!((4.2e9..=4.3e9).contains(&open(close(f32::INFINITY))));
    }
}
