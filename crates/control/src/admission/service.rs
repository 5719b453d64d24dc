//! What is under way, and how long it keeps the servers from anything new.
//!
//! ```text
//! rᵢ = max(0, startᵢ + workᵢ − now)         what server i still has to do; 0 if it is free
//! Σ max(0, t − rᵢ) = queued work            t is the wait of whoever comes behind that work
//! ```
//!
//! As if the queued work were poured into the servers. One long query among idle or soon idle servers does not delay
//! anybody; (Σ rᵢ + queued) / servers, the usual estimate, would let it refuse everybody. With one server both are the
//! same. A job that takes longer than estimated counts as done: nothing is known about its rest.

use alloc::vec::Vec;

use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct ServerPool {
    servers: u32,
    /// When the jobs under way should end, in nanoseconds, the soonest first. Seldom more than there are servers.
    ends: Vec<u64>,
}

impl ServerPool {
    pub(super) const fn new(servers: u32) -> Self {
        Self { servers, ends: Vec::new() }
    }

    /// A job begins; the result is what [`ServerPool::on_ended`] wants back.
    pub(super) fn on_started(&mut self, now: Timestamp, work: u64) -> u64 {
        let end = now.as_nanos().saturating_add(work);
        self.ends.insert(self.ends.partition_point(|other| *other <= end), end);
        end
    }

    pub(super) fn on_ended(&mut self, end: u64) {
        if let Ok(position) = self.ends.binary_search(&end) {
            self.ends.remove(position);
        }
    }

    /// How long until the servers have done so much queued work: the wait of a request behind it. Nanoseconds.
    pub(super) fn wait(&self, now: Timestamp, queued: u64) -> u64 {
        let remaining = |end: &u64| end.saturating_sub(now.as_nanos());
        // A caller that starts more jobs than it has servers makes them share: the first to end count as queued.
        let (shared, alone) = self.ends.split_at(self.ends.len().saturating_sub(self.servers as usize));
        let mut work = shared.iter().map(remaining).fold(queued, u64::saturating_add);
        let mut open = u64::from(self.servers) - alone.len() as u64;
        for rest in alone.iter().map(remaining) {
            if work <= rest.saturating_mul(open) && open > 0 {
                break;
            }
            work = work.saturating_add(rest);
            open += 1;
        }
        // Rounded up: a wait within a bound is work within the bound.
        work.div_ceil(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by pouring: one nanosecond of work at a time into the server that is free first.
    fn poured(servers: usize, jobs: &[u64], queued: u64) -> u64 {
        let mut rests = alloc::vec![0; servers];
        rests[..jobs.len()].copy_from_slice(jobs);
        for _ in 0..queued {
            *rests.iter_mut().min().unwrap() += 1;
        }
        *rests.iter().min().unwrap()
    }

    proptest! {
        #[test]
        fn the_wait_is_what_pouring_gives(
            idle in 0..4_usize,
            jobs in prop::collection::vec(0..50_u64, 1..6),
            queued in 0..300_u64,
            passed in 0..20_u64,
        ) {
            let mut service = ServerPool::new((idle + jobs.len()) as u32);
            let start = Timestamp::from_nanos(1000);
            for job in &jobs {
                service.on_started(start, *job);
            }
            let now = Timestamp::from_nanos(1000 + passed);
            let rests: Vec<u64> = jobs.iter().map(|job| job.saturating_sub(passed)).collect();
            let expected = poured(idle + jobs.len(), &rests, queued);
            // Whole nanoseconds are poured, so the level of the pouring is rounded down.
            prop_assert!((expected..=expected + 1).contains(&service.wait(now, queued)));
        }
    }

    #[test]
    fn jobs_beyond_the_servers_share_them() {
        let mut service = ServerPool::new(2);
        let ends = [10, 20, 30].map(|work| service.on_started(Timestamp::ZERO, work));
        // 10 of work and 5 more behind 20: the first server is full at 35, above what the other one has.
        assert_eq!(service.wait(Timestamp::ZERO, 5), 33);
        for end in ends {
            service.on_ended(end);
        }
        assert_eq!(service.wait(Timestamp::ZERO, 0), 0);
    }

    #[test]
    fn nothing_overflows() {
        let mut service = ServerPool::new(2);
        service.on_started(Timestamp::MAX, u64::MAX);
        service.on_started(Timestamp::ZERO, u64::MAX);
        assert_eq!(service.wait(Timestamp::ZERO, u64::MAX), u64::MAX);
    }
}
