//! Processors that threads share evenly, in virtual time: what a scheduler without priorities makes of them.

use std::time::Duration;

use tidegate_control::Timestamp;

#[derive(Debug)]
pub(super) struct Processors {
    count: f64,
    /// What each thread has to do; none if it waits.
    threads: Vec<Option<ThreadWork>>,
}

#[derive(Debug)]
struct ThreadWork {
    left_ns: f64,
    /// When somebody ends it, done or not.
    until: Timestamp,
}

impl Processors {
    pub(super) fn new(count: u32, threads: usize) -> Self {
        Self { count: count.into(), threads: (0..threads).map(|_| None).collect() }
    }

    pub(super) fn is_free(&self, thread: usize) -> bool {
        self.threads[thread].is_none()
    }

    pub(super) fn begin(&mut self, thread: usize, work: Duration, until: Timestamp) {
        assert!(self.is_free(thread), "thread {thread} is at work");
        self.threads[thread] = Some(ThreadWork { left_ns: work.as_nanos() as f64, until });
    }

    /// Somebody ends what a thread is at.
    pub(super) fn stop(&mut self, thread: usize) {
        self.threads[thread] = None;
    }

    /// The part of a processor that each thread has which works.
    fn rate(&self) -> f64 {
        let working = self.threads.iter().flatten().count();
        (self.count / working.max(1) as f64).min(1.0)
    }

    /// When the next thread ends, if nothing else happens.
    pub(super) fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        let rate = self.rate();
        let end = |work: &ThreadWork| (now + Duration::from_nanos((work.left_ns / rate).ceil() as u64)).min(work.until);
        self.threads.iter().flatten().map(end).min()
    }

    pub(super) fn advance(&mut self, from: Timestamp, to: Timestamp) {
        let done = to.since(from).as_nanos() as f64 * self.rate();
        self.threads.iter_mut().flatten().for_each(|work| work.left_ns -= done);
    }

    /// A thread that has ended by now, and whether its work is done.
    pub(super) fn poll_ended(&mut self, now: Timestamp) -> Option<(usize, bool)> {
        let is_done = |work: &ThreadWork| work.left_ns < 1.0;
        let place = |work: &Option<ThreadWork>| work.as_ref().is_some_and(|it| is_done(it) || it.until <= now);
        let thread = self.threads.iter().position(place)?;
        self.threads[thread].take().map(|work| (thread, is_done(&work)))
    }
}

#[test]
fn three_threads_on_two_processors_take_half_as_long_again() {
    let (mut processors, start, second) = (Processors::new(2, 3), Timestamp::ZERO, Duration::from_secs(1));
    let late = start + second * 100;
    (0..3).for_each(|thread| processors.begin(thread, second, if thread == 2 { start + second } else { late }));
    assert_eq!(processors.next_end(start), Some(start + second), "the third is ended by somebody");
    processors.advance(start, start + second);
    assert_eq!(processors.poll_ended(start + second), Some((2, false)));
    assert_eq!(processors.poll_ended(start + second), None);
    let end = processors.next_end(start + second).unwrap();
    assert!(end.since(start + second).abs_diff(second / 3) < Duration::from_micros(1), "{end:?}");
}
