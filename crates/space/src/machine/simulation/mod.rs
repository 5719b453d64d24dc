//! A whole space in virtual time: the front desk, the writer, readers, an evaluator, subscribers with little room, and a
//! log on a disk that fails by seed; then checks by what clients have seen, against a plain list of what was done.
//!
//! What is checked is what a client may rely on: what was confirmed is there after any crash; nobody sees, and nobody is
//! told, what is not stored; every subscriber's view is the result at the version that it was told, with numbers without
//! gaps; every request is answered once; and nothing grows without bound.
//!
//! `TIDEGATE_SEEDS=10000` runs more seeds, `TIDEGATE_SEED=7` one. A seed that fails prints its number.

mod apart;
mod disk;
mod drive;
pub(in crate::machine) mod subscriber;
mod waiting;
pub(in crate::machine) mod world;

use world::SpaceWorld;

const SEEDS: u64 = 300;

/// A small generator: the same numbers for the same seed, for ever.
pub(in crate::machine) struct Dice(u64);

impl Dice {
    pub(in crate::machine) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(in crate::machine) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(in crate::machine) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl rand_core::TryRng for Dice {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(self.next() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for byte in bytes {
            *byte = self.next() as u8;
        }
        Ok(())
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whatever_fails_what_was_confirmed_is_there_and_views_are_what_was_stored() {
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_SEEDS").unwrap_or(SEEDS),
    };
    let mut seen = world::SimulationCounts::default();
    for seed in seeds {
        let lived = std::panic::catch_unwind(|| {
            let mut world = SpaceWorld::new(seed);
            world.live();
            world.come_to_rest();
            world.seen
        });
        match lived {
            Ok(one) => seen.add(&one),
            Err(why) => {
                eprintln!("again: TIDEGATE_SEED={seed} cargo test -p tidegate-space --lib simulation");
                std::panic::resume_unwind(why);
            }
        }
    }
    println!("{seen:?}");
    // A world in which nothing happens proves nothing.
    assert!(seen.confirmed > 0 && seen.notified > 0 && seen.read > 0);
    if number("TIDEGATE_SEED").is_none() {
        assert!(seen.crashes > 0 && seen.restarts > 0 && seen.unconfirmed > 0 && seen.refused > 0, "{seen:?}");
        assert!(seen.resumed > 0 && seen.evaluated > 0 && seen.full > 0, "{seen:?}");
        assert!(seen.pieces > 2 * seen.loaded && seen.loaded > 0, "{seen:?}");
        assert!(seen.moved > 0 && seen.drafted > seen.moved / 2, "{seen:?}");
    }
}
