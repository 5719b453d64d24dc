//! What was begun as a short request and takes long: it yields, and begins anew as a long one.
//!
//! ```text
//! more take long than may at once   who began last of those that were taken for short, and has run for as long as four of these
//!                                   take (50 ms at least), is stopped, and waits among the long ones
//! begun anew                        it goes on to its end
//! ```
//! Of what a request costs only a guess is known before it runs, and where guesses are wrong (constants decide, or nobody has
//! asked it before) every server was at something long: whoever waited for a few milliseconds waited for seconds. What is
//! stopped has lost what it had done, so it is stopped soon or never, and once; who asked for it pays for that.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::estimate::{APART_TIMES, LONG_NANOS};
use super::lane::{Entry, Waiter};
use super::passage::{Job, Returned, Servers};
use super::{LONG, Order};

impl<T> Order<T> {
    /// A job that is to be stopped, by its number, and to be returned with [`Order::take_back`].
    pub(crate) fn poll_yielding(&mut self, now: Timestamp) -> Option<u64> {
        let Servers { threads, long_max, .. } = self.servers;
        if self.is_paper() || long_max >= threads {
            return None;
        }
        self.service.poll_yielding(now, LONG_NANOS, APART_TIMES, long_max)
    }

    /// A job was stopped after this time: its requests wait again, among those that take long, in the line of whoever was first.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub(crate) fn take_back(&mut self, job: Job, requests: Vec<Returned<T>>, elapsed: Duration) {
        self.estimates.on_yielded(job.shape, elapsed);
        self.leave(&job, elapsed);
        let waiter = |Returned { value, arrived, deadline, check }| Waiter { value, arrived, deadline, check };
        let mut waiters = requests.into_iter().map(waiter);
        let Some(first) = waiters.next() else { return };
        let Job { class, line, standing, shape, key, asker, keeps_appointments, .. } = job;
        let took = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let work = self.estimates.of(class, shape).nanos.max(took.saturating_mul(2)).max(LONG_NANOS);
        // It was taken already: whatever comes after it on its connection need not wait for it.
        let (joined, is_known, flow) = (waiters.collect(), true, 0);
        let entry =
            Entry { first, joined, key, class, shape, standing, work, is_known, keeps_appointments, asker, flow };
        self.enqueue(LONG, line, entry);
    }
}
