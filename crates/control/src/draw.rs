//! Random numbers from the caller's bits.
//!
//! The generator is always an argument, one stream per client, never seeded by the time of day: clients that start
//! together, the very case back-off is for, would otherwise draw the same "random" delays. The transformations use
//! `libm` and a fixed number of draws, so that a seed gives the same bits on every platform.

use rand_core::Rng;

/// Uniform in `[0, 1)`, with 53 random bits.
pub(crate) fn unit<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Uniform in `[low, high)`.
pub(crate) fn uniform<R: Rng + ?Sized>(rng: &mut R, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(rng)
}

/// Exponential with the given mean; at most 36.7 means, because [`unit`] has 53 bits.
pub(crate) fn exponential<R: Rng + ?Sized>(rng: &mut R, mean: f64) -> f64 {
    -mean * libm::log(1.0 - unit(rng))
}

/// Standard normal (Box–Muller, one of the pair); within ±8.6.
pub(crate) fn normal<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(rng)));
    radius * libm::cos(2.0 * core::f64::consts::PI * unit(rng))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    fn moments(mut draw: impl FnMut(&mut Xoshiro256PlusPlus) -> f64) -> (f64, f64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let draws: alloc::vec::Vec<f64> = (0..100_000).map(|_| draw(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / draws.len() as f64;
        (mean, variance)
    }

    #[test]
    fn draws_have_the_moments_of_their_laws() {
        for (what, (mean, variance), expected_mean, expected_variance) in [
            ("uniform", moments(|rng| uniform(rng, 2.0, 4.0)), 3.0, 1.0 / 3.0),
            ("exponential", moments(|rng| exponential(rng, 2.0)), 2.0, 4.0),
            ("normal", moments(normal), 0.0, 1.0),
        ] {
            assert!((mean - expected_mean).abs() < 0.02, "{what}: mean {mean}");
            assert!((variance / expected_variance - 1.0).abs() < 0.03, "{what}: variance {variance}");
        }
    }

    /// Bits all zero or all one: the corners of every transformation.
    struct Stuck(u64);
    impl rand_core::TryRng for Stuck {
        type Error = core::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(self.0 as u32)
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0)
        }
        fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Self::Error> {
            dst.fill(self.0 as u8);
            Ok(())
        }
    }

    #[test]
    fn a_broken_generator_gives_finite_numbers() {
        for bits in [0, u64::MAX] {
            let rng = &mut Stuck(bits);
            assert!((0.0..1.0).contains(&unit(rng)));
            assert!((0.0..37.0).contains(&exponential(rng, 1.0)));
            assert!(normal(rng).abs() < 9.0);
        }
    }
}
