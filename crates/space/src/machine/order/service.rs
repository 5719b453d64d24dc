//! What is under way, until it ends.
//!
//! ```text
//! rᵢ = startᵢ + workᵢ − now              while a job is within its estimate
//! rᵢ = now − startᵢ                      beyond: it has run so long, so it may run as long again
//! Σ max(0, t − rᵢ) = queued work         t is the wait of whoever comes behind that work
//! t = max rᵢ + queued work               where jobs wait together for the disk: they end at the same time
//! ```
//! A job that overran its estimate was once taken for done: two slow queries looked like two idle servers, and whoever
//! waited behind them was told to expect nothing. Jobs that wait together were once taken to wait for each other: behind a
//! full group a second of work seemed to wait, and finding that out took longer than a change.

use std::collections::VecDeque;

use tidegate_control::Timestamp;

#[derive(Debug)]
pub(super) struct Service {
    servers: u32,
    ends_together: bool,
    /// In the order in which they began.
    running: VecDeque<Running>,
    begun: u64,
}

#[derive(Debug)]
struct Running {
    number: u64,
    start: u64,
    work: u64,
    most: u64,
    /// Estimated to take long.
    is_long: bool,
    /// It was told to yield, or is to go on to its end.
    yields: bool,
    goes_on: bool,
}

/// A job that begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    /// Estimated nanoseconds, and what most such jobs take.
    pub(super) work: u64,
    pub(super) most: u64,
    /// It was taken for long.
    pub(super) is_long: bool,
}

impl Running {
    fn rest(&self, now: u64) -> u64 {
        let end = self.start.saturating_add(self.work);
        if now < end { end - now } else { now.saturating_sub(self.start) }
    }
}

impl Service {
    /// Each job ends by itself.
    pub(super) const fn new(servers: u32) -> Self {
        Self { servers, ends_together: false, running: VecDeque::new(), begun: 0 }
    }

    /// One server, whose jobs end together.
    pub(super) fn together() -> Self {
        Self { ends_together: true, ..Self::new(1) }
    }

    /// A job begins; the answer is its number.
    pub(super) fn on_started(&mut self, now: Timestamp, Begun { work, most, is_long }: Begun) -> u64 {
        self.begun += 1;
        let (number, start) = (self.begun, now.as_nanos());
        self.running.push_back(Running { number, start, work, most, is_long, yields: false, goes_on: false });
        self.begun
    }

    /// Those that began first most often end first: then it is found at the front.
    pub(super) fn on_ended(&mut self, number: u64) {
        if let Ok(place) = self.running.binary_search_by_key(&number, |job| job.number) {
            self.running.remove(place);
        }
    }

    /// Whoever was at work is gone. A job that is given back later changes nothing.
    pub(super) fn clear(&mut self) {
        self.running.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Jobs that are long: estimated so, or found to be.
    pub(super) fn long(&self, now: Timestamp, long: u64) -> usize {
        let is_long = |job: &&Running| job.is_long || now.as_nanos().saturating_sub(job.start) >= long;
        self.running.iter().filter(is_long).count()
    }

    /// If more than so many are long, the job that began last of those that were taken for short and have run for longer than so
    /// many of these do. Whatever has, and is not named then, goes on to its end: nobody loses more than that time.
    pub(super) fn poll_yielding(&mut self, now: Timestamp, long: u64, times: u64, long_max: usize) -> Option<u64> {
        let is_over =
            self.long(now, long).saturating_sub(self.running.iter().filter(|job| job.yields).count()) > long_max;
        let has_overrun = |job: &&mut Running| {
            let took = now.as_nanos().saturating_sub(job.start);
            !job.is_long && !job.yields && !job.goes_on && took >= long.max(job.most.saturating_mul(times))
        };
        let mut overrun = self.running.iter_mut().rev().filter(has_overrun);
        if is_over {
            let job = overrun.next()?;
            job.yields = true;
            return Some(job.number);
        }
        overrun.for_each(|job| job.goes_on = true);
        None
    }

    /// Nanoseconds for which the oldest job has been under way.
    pub(super) fn longest(&self, now: Timestamp) -> u64 {
        self.running.front().map_or(0, |job| now.as_nanos().saturating_sub(job.start))
    }

    /// Nanoseconds until the servers have done so much queued work.
    pub(super) fn wait(&self, now: Timestamp, queued: u64) -> u64 {
        let rest = |job: &Running| job.rest(now.as_nanos());
        if self.ends_together {
            // What is done waits for the disk since the first of them, and the last one may not be done yet.
            let ends = [self.running.front(), self.running.back()].into_iter().flatten().map(rest).max();
            return queued.saturating_add(ends.unwrap_or(0));
        }
        let mut rests: Vec<u64> = self.running.iter().map(rest).collect();
        rests.sort_unstable();
        // More jobs than servers share them: those that end first count as queued.
        let shared = rests.len().saturating_sub(self.servers as usize);
        let mut work = rests[..shared].iter().copied().fold(queued, u64::saturating_add);
        let alone = &rests[shared..];
        let mut open = u64::from(self.servers) - alone.len() as u64;
        for rest in alone {
            if work <= rest.saturating_mul(open) && open > 0 {
                break;
            }
            work = work.saturating_add(*rest);
            open += 1;
        }
        work.div_ceil(open.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn begun(work: u64) -> Begun {
        Begun { work, ..Begun::default() }
    }

    #[test]
    fn queued_work_is_poured_into_the_servers() {
        let mut service = Service::new(2);
        assert_eq!(service.wait(at(0), 10), 5);
        let first = service.on_started(at(0), begun(30));
        assert_eq!(service.wait(at(0), 10), 10, "beside one that is busy for longer");
        assert_eq!(service.wait(at(0), 50), 40);
        service.on_started(at(0), begun(20));
        assert_eq!(service.wait(at(10), 0), 10);
        service.on_ended(first);
        assert_eq!(service.wait(at(10), 0), 0);
    }

    #[test]
    fn a_job_beyond_its_estimate_is_still_under_way() {
        let mut service = Service::new(1);
        service.on_started(at(0), begun(10));
        assert_eq!(service.wait(at(9), 0), 1);
        assert_eq!(service.wait(at(100), 0), 100);
        assert_eq!((service.long(at(100), 101), service.long(at(101), 101)), (0, 1));
    }

    #[test]
    fn jobs_beyond_the_servers_share_them_and_nothing_overflows() {
        let mut service = Service::new(2);
        for work in [10, 20, 30] {
            service.on_started(at(0), begun(work));
        }
        assert_eq!(service.wait(at(0), 5), 33);
        service.on_started(at(0), begun(u64::MAX));
        assert!(service.wait(at(1), u64::MAX) > 0);
    }

    #[test]
    fn jobs_that_wait_together_are_not_added_up() {
        let mut service = Service::together();
        let numbers: Vec<u64> = (0..1000).map(|n| service.on_started(at(n), begun(10))).collect();
        assert_eq!(service.wait(at(1000), 7), 7 + 1000, "since the first of them the disk is at work");
        for number in numbers {
            service.on_ended(number);
        }
        assert_eq!((service.len(), service.wait(at(1000), 7)), (0, 7));
        service.on_started(at(1000), begun(50));
        assert_eq!(service.wait(at(1010), 7), 47);
    }
}
