//! The same order without an entry for everybody: publishers are only counted, by bands of rates.
//!
//! A band is a sixth of an octave, so that publishers within some 12 % (16 % at most) count as equals. A publisher keeps
//! the number of its band, one byte; the counts are one kilobyte for all of them. Enough to tell the thirds apart, which is
//! all that the practical mode asks.

use super::Tercile;

/// How many publishers have which rate.
#[derive(Clone, Debug)]
pub struct Bands {
    counts: [u32; BANDS],
    /// Publishers, and those among them that have a rate.
    len: u32,
    learned: u32,
    /// The first bands of the second third and of the last.
    borders: [u8; 2],
    /// Changes since the borders were looked for.
    changes: u32,
}

/// A range of rates; or nothing, or a rate that is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Band(u8);

impl Band {
    /// Not counted.
    pub const ABSENT: Self = Self(0);
    /// Counted, and without a rate.
    pub const LEARNING: Self = Self(1);

    /// The band of a rate in messages per second. Whatever is slower than a message in 48 days is in the first band, and
    /// what is faster than a million in a second in the last; `None` and NaN are not known.
    pub fn of(rate: Option<f64>) -> Self {
        let Some(rate) = rate.filter(|rate| !rate.is_nan()) else { return Self::LEARNING };
        let bits = (rate as f32).clamp(RATE_MIN, RATE_MAX).to_bits();
        // Octaves by the exponent, sixths by the mantissa: evenly in the rate, which is as good as evenly in its logarithm.
        let (octave, part) = ((bits >> 23) - EXPONENT_MIN, ((bits & 0x7F_FFFF) * 6) >> 23);
        Self(((octave * 6 + part) as u8).saturating_add(FIRST))
    }

    /// The lowest rate of the band; none if there is none.
    pub fn rate(self) -> Option<f64> {
        let number = u32::from(self.0.checked_sub(FIRST)?);
        let octave = f32::from_bits((number / 6 + EXPONENT_MIN) << 23);
        Some(f64::from(octave) * (1.0 + f64::from(number % 6) / 6.0))
    }

    /// By how many octaves this rate is above another.
    pub fn octaves_above(self, other: Self) -> u8 {
        if other.0 < FIRST { 0 } else { self.0.saturating_sub(other.0) / 6 }
    }
}

impl Default for Bands {
    fn default() -> Self {
        Self { counts: [0; BANDS], len: 0, learned: 0, borders: [u8::MAX; 2], changes: 0 }
    }
}

impl Bands {
    /// Counts a publisher in another band than before; [`Band::ABSENT`] is in none.
    pub fn shift(&mut self, from: Band, to: Band) {
        if from == to {
            return;
        }
        self.changes = self.changes.saturating_add(1);
        for (band, is_new) in [(from, false), (to, true)] {
            if band == Band::ABSENT {
                continue;
            }
            let change = |count: &mut u32| *count = if is_new { *count + 1 } else { count.saturating_sub(1) };
            change(&mut self.counts[usize::from(band.0)]);
            change(&mut self.len);
            if band != Band::LEARNING {
                change(&mut self.learned);
            }
        }
    }

    /// The third to which a publisher of this band belongs; all of a band are in the third of the middle one of them, so that
    /// equals are in the middle and the busiest band is never rare. Small changes of a large crowd are noticed when they have
    /// become a hundredth of it.
    pub fn tercile(&mut self, band: Band) -> Tercile {
        if self.learned == 0 {
            return Tercile::Middle;
        }
        if self.changes > 0 && u64::from(self.changes) * 100 >= self.learned.into() {
            self.find_borders();
        }
        match band {
            Band::ABSENT | Band::LEARNING => Tercile::Middle,
            Band(number) if number < self.borders[0] => Tercile::Rare,
            Band(number) if number < self.borders[1] => Tercile::Middle,
            Band(_) => Tercile::Chatty,
        }
    }

    /// How many publishers have a lower band than this, and how many there are. None for one that is not counted.
    pub fn rank(&self, band: Band) -> Option<(u32, u32)> {
        let rank = match band {
            Band::ABSENT => return None,
            Band::LEARNING => self.learned,
            Band(number) => self.counts[usize::from(FIRST)..usize::from(number)].iter().sum(),
        };
        Some((rank, self.len))
    }

    #[cold]
    fn find_borders(&mut self) {
        (self.changes, self.borders) = (0, [u8::MAX; 2]);
        let mut below = 0_u64;
        for number in FIRST..=u8::MAX {
            let count = u64::from(self.counts[usize::from(number)]);
            let third = (2 * below + count) * 3 / (2 * u64::from(self.learned.max(1)));
            for border in &mut self.borders[..third.min(2) as usize] {
                *border = (*border).min(number);
            }
            below += count;
        }
    }
}

const BANDS: usize = 256;
/// The number of the slowest.
const FIRST: u8 = 2;
/// 2⁻²², as `f32` has it.
const EXPONENT_MIN: u32 = 127 - 22;
const RATE_MIN: f32 = 1.0 / (1 << 22) as f32;
const RATE_MAX: f32 = (1 << 20) as f32;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn bands_are_in_the_order_of_rates_and_know_them_to_a_sixth() {
        let mut before = Band::LEARNING;
        for step in 0..10_000 {
            let rate = 1e-6 * libm::exp2(f64::from(step) / 250.0);
            let band = Band::of(Some(rate));
            assert!(band >= before && band > Band::LEARNING);
            let ratio = rate / band.rate().unwrap();
            assert!((0.999..1.168).contains(&ratio), "{rate}: {ratio}");
            before = band;
        }
        for odd in [f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX] {
            assert!(Band::of(Some(odd)) > Band::LEARNING);
        }
        assert_eq!(Band::of(Some(f64::NAN)), Band::LEARNING);
        assert_eq!(Band::of(Some(4.0)).octaves_above(Band::of(Some(1.0))), 2);
        assert_eq!(Band::of(Some(3.9)).octaves_above(Band::of(Some(1.0))), 1);
        assert_eq!(Band::of(Some(4.0)).octaves_above(Band::LEARNING), 0);
    }

    #[test]
    fn a_large_crowd_settles_into_thirds() {
        let mut bands = Bands::default();
        let band = |publisher: u32| Band::of(Some(f64::from(publisher % 3 + 1) * 10.0));
        (0..30_000).for_each(|publisher| bands.shift(Band::ABSENT, band(publisher)));
        let thirds: Vec<_> = (0..3).map(|publisher| bands.tercile(band(publisher)).weight()).collect();
        assert_eq!(thirds, [4, 2, 1]);
        (0..30_000).for_each(|publisher| bands.shift(band(publisher), Band::ABSENT));
        assert_eq!((bands.len, bands.learned), (0, 0));
    }

    #[test]
    fn the_busiest_of_a_fleet_is_never_rare_and_who_is_rarer_than_all_is() {
        for (rare, equal) in [(0, 1), (0, 2), (0, 5), (0, 300), (1, 1), (1, 5), (1, 299), (40, 60)] {
            let mut bands = Bands::default();
            let (seldom, busy) = (Band::of(Some(1.0 / 86_400.0)), Band::of(Some(40.0)));
            (0..rare).for_each(|_| bands.shift(Band::ABSENT, seldom));
            (0..equal).for_each(|_| bands.shift(Band::ABSENT, busy));
            assert_ne!(bands.tercile(busy), Tercile::Rare, "{equal} equals beside {rare}");
            assert_eq!(bands.tercile(seldom), Tercile::Rare, "counted or not: {equal} equals beside {rare}");
        }
        assert_eq!(Bands::default().tercile(Band::of(Some(1.0))), Tercile::Middle, "of nobody else anything is known");
    }

    proptest! {
        #[test]
        fn thirds_and_ranks_are_those_of_a_sorted_list(
            steps in prop::collection::vec((0..60_usize, prop::option::weighted(0.9, prop_oneof![Just(1.0), 0.0..100.0_f64]), any::<bool>()), 1..200),
        ) {
            let (mut bands, mut model) = (Bands::default(), [Band::ABSENT; 60]);
            for (publisher, rate, is_gone) in steps {
                let new = if is_gone { Band::ABSENT } else { Band::of(rate) };
                bands.shift(model[publisher], new);
                model[publisher] = new;
                let present: Vec<Band> = model.iter().copied().filter(|band| *band != Band::ABSENT).collect();
                let known: Vec<Band> = present.iter().copied().filter(|band| *band != Band::LEARNING).collect();
                for band in &present {
                    let below = known.iter().filter(|other| *other < band).count();
                    let is_known = *band != Band::LEARNING;
                    let rank = if is_known { below } else { known.len() };
                    prop_assert_eq!(bands.rank(*band), Some((rank as u32, present.len() as u32)));
                    let equal = known.iter().filter(|other| *other == band).count();
                    let weight = if is_known { 4 >> ((2 * below + equal) * 3 / (2 * known.len())) } else { 2 };
                    prop_assert_eq!(bands.tercile(*band).weight(), weight);
                }
                prop_assert_eq!(bands.rank(Band::ABSENT), None);
            }
        }
    }
}
