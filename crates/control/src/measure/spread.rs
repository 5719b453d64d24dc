//! A histogram: how often something took how long.
//!
//! Limits of buckets are powers of two, so that a bucket is found by counting bits, and they are the same everywhere, so
//! that those of several threads can be added up. A few nanoseconds for each number, 208 bytes in all.

use core::time::Duration;

/// Limits of buckets are 2^(`FIRST_BITS` + place) units; for times, 66 µs to 69 s.
const FIRST_BITS: u32 = 16;

/// Units of one.
const RATIO: f64 = (1 << FIRST_BITS) as f64;

/// Numbers in buckets. The unit is a nanosecond, or 1/65536 for what is no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many were in each bucket, not cumulative; the last one has no limit.
    pub buckets: [u64; Self::BUCKETS],
    /// The number of samples.
    pub count: u64,
    /// In 64 bits, one number from a clock that jumped, or a million queues of some hours, would end it for good.
    sum: u128,
}

impl Spread {
    /// How many buckets there are.
    pub const BUCKETS: usize = 22;

    /// The limit of a bucket, inclusive; none for the last.
    fn limit_units(place: usize) -> Option<u64> {
        (place + 1 < Self::BUCKETS).then(|| 1 << (FIRST_BITS as usize + place))
    }

    /// The limit of a bucket in seconds, inclusive; none for the last.
    pub fn limit_seconds(place: usize) -> Option<f64> {
        Self::limit_units(place).map(|units| units as f64 / 1e9)
    }

    /// The same for what is no time.
    pub fn limit_ratio(place: usize) -> Option<f64> {
        Self::limit_units(place).map(|units| units as f64 / RATIO)
    }

    /// All times together, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// The same for what is no time.
    pub fn sum_ratio(&self) -> f64 {
        self.sum as f64 / RATIO
    }

    /// One that took so long.
    #[inline]
    pub fn note(&mut self, time: Duration) {
        self.note_many(time, 1);
    }

    /// So many that took so long.
    #[inline]
    pub fn note_many(&mut self, time: Duration, count: u64) {
        self.put(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), count);
    }

    /// One that is no time.
    pub fn note_ratio(&mut self, ratio: f64) {
        // A cast stops at the ends of the type.
        self.put((ratio * RATIO) as u64, 1);
    }

    #[inline]
    fn put(&mut self, units: u64, count: u64) {
        let place = u64::BITS - (units.saturating_sub(1) >> FIRST_BITS).leading_zeros();
        self.buckets[(place as usize).min(Self::BUCKETS - 1)] += count;
        self.count += count;
        self.sum = self.sum.saturating_add(u128::from(units) * u128::from(count));
    }

    /// Adds what another one has.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += part;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_the_first_bucket_whose_limit_it_does_not_exceed() {
        let naive = |nanos: u64| {
            let is_in = |place: &usize| Spread::limit_units(*place).is_none_or(|limit| nanos <= limit);
            (0..Spread::BUCKETS).find(is_in).unwrap()
        };
        let around = (0..64).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for nanos in around.chain([0, u64::MAX]) {
            let mut spread = Spread::default();
            spread.note(Duration::from_nanos(nanos));
            assert_eq!(spread.buckets.iter().position(|count| *count == 1), Some(naive(nanos)), "{nanos}");
        }
    }

    /// A sum that stands still says that nothing takes any time.
    #[test]
    fn a_sum_goes_on_after_the_longest_times_and_the_greatest_ratios() {
        let mut times = Spread::default();
        times.note_many(Duration::MAX, 1000);
        let before = times;
        times.note(Duration::from_secs(3600));
        assert_eq!(times.sum - before.sum, 3_600_000_000_000);
        let mut both = before;
        both.add(&before);
        assert!((both.sum_seconds() / before.sum_seconds() - 2.0).abs() < 1e-9);
        let mut ratios = Spread::default();
        ratios.note_ratio(f64::INFINITY);
        let before = ratios;
        ratios.note_ratio(2.0);
        assert_eq!(ratios.sum - before.sum, 2 << FIRST_BITS);
    }
}
