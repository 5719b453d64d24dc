//! What the log has done, and how long the disk took for it.

use std::time::Duration;

/// Counters of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogMetrics {
    /// Records written.
    pub records: u64,
    /// Batches written.
    pub batches: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Times the disk refused a write or a sync.
    pub failures: u64,
    /// Compactions done.
    pub compactions: u64,
    pub syncs: SyncTimes,
}

/// A histogram of sync times: bucket n counts those below 2ⁿ microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// Counts; the last bucket holds everything from 4 s on.
    pub buckets: [u64; Self::BUCKETS],
    /// Number of syncs.
    pub count: u64,
    /// The sum of all sync times.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
    /// The last one: a disk that just became slow.
    pub last: Duration,
}

impl SyncTimes {
    /// Up to 2²² µs, about 4 s, and one for the rest.
    pub const BUCKETS: usize = 24;

    /// A time that this share of all syncs did not exceed: the end of its bucket, or the longest of all.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && wanted > 0 {
                return Duration::from_micros(1 << bucket).min(self.max);
            }
        }
        self.max
    }

    pub(crate) fn note(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)] += 1;
        self.count += 1;
        self.total += time;
        self.max = self.max.max(time);
        self.last = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sync_is_seen() {
        let mut times = SyncTimes::default();
        for micros in [0, 1, 900, 30_000_000] {
            times.note(Duration::from_micros(micros));
        }
        assert_eq!((times.buckets[0], times.buckets[1], times.buckets[10], times.buckets[23]), (1, 1, 1, 1));
        assert_eq!((times.count, times.max), (4, Duration::from_secs(30)));
        assert_eq!(times.quantile(0.5), Duration::from_micros(2));
        assert_eq!(times.quantile(0.75), Duration::from_micros(1024));
        assert_eq!(times.quantile(1.0), Duration::from_secs(30).min(Duration::from_micros(1 << 23)));
        assert_eq!(SyncTimes::default().quantile(0.99), Duration::ZERO);
    }
}
