//! Latencies in fixed memory: 64 buckets for each power of two, so that a quantile is at most 1/64 above the truth and
//! never below it. Recording is two shifts and an increment, cheap enough for each message.

const SUB_BITS: u32 = 6;
/// Buckets per power of two.
const SUB: u64 = 1 << SUB_BITS;
/// Values below `SUB` have a bucket each, then one row of `SUB` for each of the 58 higher powers.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB as usize;

/// How often which value was seen.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    smallest: u64,
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, smallest: u64::MAX, largest: 0 }
    }

    /// A value was seen.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[index(value)] += 1;
        self.total += 1;
        self.smallest = self.smallest.min(value);
        self.largest = self.largest.max(value);
    }

    /// How many values were seen.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The smallest and the largest value, exactly; none if nothing was seen.
    pub fn range(&self) -> Option<(u64, u64)> {
        (self.total > 0).then_some((self.smallest, self.largest))
    }

    /// Adds what another one saw.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
    }

    /// The smallest bucket edge that at least this share of the values does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_edge(bucket).min(self.largest);
            }
        }
        self.largest
    }
}

/// The same for seconds, with their mean.
#[derive(Clone, Debug, Default)]
pub struct SecondsHistogram {
    nanos: Histogram,
    sum: f64,
}

impl SecondsHistogram {
    /// A time was seen.
    pub fn add(&mut self, seconds: f64) {
        self.nanos.record((seconds * 1e9).round() as u64);
        self.sum += seconds;
    }

    /// How many were seen.
    pub fn count(&self) -> u64 {
        self.nanos.total
    }

    /// Their mean; zero without any.
    pub fn mean(&self) -> f64 {
        self.sum / self.count().max(1) as f64
    }

    /// The longest; zero without any.
    pub fn max(&self) -> f64 {
        self.nanos.largest as f64 / 1e9
    }

    /// See [`Histogram::quantile`].
    pub fn quantile(&self, share: f64) -> f64 {
        self.nanos.quantile(share) as f64 / 1e9
    }
}

#[inline]
fn index(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((u64::from(shift) + 1) * SUB + ((value >> shift) - SUB)) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let (row, column) = (bucket as u64 / SUB, bucket as u64 % SUB);
    if row == 0 {
        return column;
    }
    let shift = row - 1;
    ((column + SUB) << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All magnitudes alike, not only the huge ones.
    fn value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    proptest! {
        #[test]
        fn a_quantile_is_never_too_low_and_hardly_too_high(
            mut values in prop::collection::vec(value(), 1..200),
            share in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::new();
            for &value in &values {
                histogram.record(value);
            }
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len());
            let (exact, told) = (values[rank - 1], histogram.quantile(share));
            prop_assert!(told >= exact, "{told} is below {exact}");
            prop_assert!(told - exact <= exact / SUB, "{told} is far above {exact}");
        }

        #[test]
        fn buckets_are_ordered_as_their_values(a in value(), b in value()) {
            prop_assert!((a <= b) == (index(a) <= index(b)) || index(a) == index(b));
            prop_assert!(index(a) < BUCKETS);
        }
    }

    #[test]
    fn nothing_seen_is_zero() {
        assert_eq!(Histogram::new().quantile(0.99), 0);
        assert_eq!(Histogram::new().range(), None);
    }

    #[test]
    fn quantiles_of_seconds_are_close_and_their_mean_is_exact() {
        let mut histogram = SecondsHistogram::default();
        (1..=100_000).for_each(|n| histogram.add(f64::from(n) / 1000.0));
        for share in [0.5, 0.9, 0.99, 0.999] {
            let exact = share * 100.0;
            assert!((histogram.quantile(share) / exact - 1.0).abs() < 0.02, "{share}: {}", histogram.quantile(share));
        }
        assert_eq!((histogram.quantile(1.0), histogram.max()), (100.0, 100.0));
        assert!((histogram.mean() - 50.0).abs() < 0.01);
        let empty = SecondsHistogram::default();
        assert_eq!((empty.quantile(0.5), empty.mean()), (0.0, 0.0));
    }

    #[test]
    fn two_are_one_when_added() {
        let (mut one, mut other) = (Histogram::new(), Histogram::new());
        one.record(1_000_000);
        other.record(5);
        other.record(7);
        one.add(&other);
        assert_eq!((one.total(), one.range(), one.quantile(0.6)), (3, Some((5, 1_000_000)), 7));
    }
}
