//! Chance for message identifiers and repetitions, from a seed that the rim draws.

use core::time::Duration;

/// A small generator (splitmix64); nothing secret depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A time, and up to half of it more (`ACK_RANDOM_FACTOR`).
    pub(crate) fn stretch(&mut self, time: Duration) -> Duration {
        time + time.mul_f32((self.draw() >> 40) as f32 / (1_u32 << 24) as f32 / 2.0)
    }
}
