//! When the next message of `pub` is due, and when one that was refused comes again. Pure: time is an argument.

use std::time::{Duration, Instant};

/// How often a message is sent that is refused with a time to come back.
pub(super) const TRIES_MAX: u32 = 5;
/// No broker has a promise for later worth waiting for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Who is later than this does not catch up: a program that stood still does not flood.
const LATE_MAX: Duration = Duration::from_secs(1);

/// A message by message timetable: each is due a delay after the one before was, not after it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueTimes {
    due: Instant,
    every: Duration,
}

impl DueTimes {
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self { due: now, every }
    }

    /// When the next one is.
    pub(super) fn next(&self) -> Instant {
        self.due
    }

    /// One was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        let due = self.due + self.every;
        self.due = if due + LATE_MAX < now { now } else { due };
    }

    /// One was refused for so long: nothing goes before it. Whether that is news.
    pub(super) fn wait(&mut self, time: Duration, now: Instant) -> bool {
        let is_news = self.due <= now;
        self.due = self.due.max(now + time.min(WAIT_MAX));
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that wakes up every 8 ms, as timers of sockets do.
    #[test]
    fn a_thousand_a_second_are_a_thousand_however_coarse_the_clock_is() {
        let begin = Instant::now();
        let mut due = DueTimes::new(Duration::from_millis(1), begin);
        let mut sent = 0;
        for tick in 0..125 {
            let now = begin + Duration::from_millis(8 * tick);
            while due.next() <= now {
                due.sent(now);
                sent += 1;
            }
        }
        assert!((990..=1001).contains(&sent), "{sent}");
    }

    #[test]
    fn who_stood_still_does_not_flood() {
        let begin = Instant::now();
        let mut due = DueTimes::new(Duration::from_millis(1), begin);
        let now = begin + Duration::from_secs(100);
        due.sent(now);
        assert!(due.next() >= now);
    }

    #[test]
    fn a_refusal_holds_up_what_follows_and_no_longer_than_a_minute() {
        let begin = Instant::now();
        let mut due = DueTimes::new(Duration::ZERO, begin);
        assert!(due.wait(Duration::from_millis(800), begin), "news");
        assert!(!due.wait(Duration::from_millis(900), begin), "of the same window");
        assert_eq!(due.next(), begin + Duration::from_millis(900));
        due.wait(Duration::from_secs(1 << 40), begin);
        assert_eq!(due.next(), begin + WAIT_MAX);
    }
}
