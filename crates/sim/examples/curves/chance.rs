//! Random numbers with fixed seeds, through `libm`, so that a curve has the same bytes on every platform.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub(crate) type Chance = Xoshiro256PlusPlus;

pub(crate) fn seeded(seed: u64) -> Chance {
    Chance::seed_from_u64(seed)
}

/// Uniform in `[0, 1)`.
pub(crate) fn unit(chance: &mut Chance) -> f64 {
    (chance.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

pub(crate) fn exponential(chance: &mut Chance, mean: f64) -> f64 {
    -mean * libm::log(1.0 - unit(chance))
}

/// How many events of a Poisson flow fall into a time in which `mean` are expected.
pub(crate) fn poisson(chance: &mut Chance, mean: f64) -> u32 {
    let (mut events, mut at) = (0, exponential(chance, 1.0));
    while at < mean {
        events += 1;
        at += exponential(chance, 1.0);
    }
    events
}
