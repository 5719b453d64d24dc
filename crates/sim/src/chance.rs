//! Random numbers: one stream per concern, so that a change in one leaves the others as they were.

use core::convert::Infallible;

use rand_core::TryRng;

/// A small generator (SplitMix64): eight bytes of state, so that a million clients can have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u64);

impl Stream {
    /// The stream of a concern (`"service"`, `"radio"`, …) under a seed.
    pub fn of(seed: u64, concern: &str) -> Self {
        // FNV-1a: names are short and few.
        let name = concern
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Self(mix(seed ^ name))
    }

    /// The stream of one among many: a client.
    #[must_use]
    pub fn member(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number.wrapping_add(0x9E37_79B9_7F4A_7C15))))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Standard normal (Box and Muller; the second value is thrown away, which keeps the stream simple).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Whether something of this probability happens.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.bits() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.bits())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_concern_and_member_and_repeat() {
        let mut first: Vec<u64> = Vec::new();
        for seed in 0..10 {
            for concern in ["service", "radio", "updates"] {
                for member in 0..100 {
                    first.push(Stream::of(seed, concern).member(member).bits());
                }
            }
        }
        let again = Stream::of(0, "service").member(0).bits();
        assert_eq!(first[0], again);
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 3000);
    }

    #[test]
    fn the_moments_are_right() {
        let mut stream = Stream::of(7, "test");
        let n = 200_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || stream.unit()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || stream.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(&mut || stream.normal()).abs() < 0.01);
        assert!((mean(&mut || stream.normal().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || f64::from(stream.happens(0.2))) - 0.2).abs() < 0.005);
    }
}
