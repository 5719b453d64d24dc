//! DAGOR (SoCC 2018): users have levels, and the broker takes those up to a level that follows the mean wait.
//!
//! ```text
//! level of a user       one of 128, drawn anew every hour
//! window                a second, or 2000 requests
//! mean wait > 20 ms     (six services, where that is longer) take 5 % fewer than in the window before: down to the
//!                       level whose histogram says so
//! else                  1 % more
//! ```
//! There is one kind of business here, so the second dimension, that of users, decides alone. The paper's 20 ms are those of its
//! services; later comparisons (Breakwater's) set about six services instead.

use std::collections::VecDeque;

use super::{Next, Offer, Request, Rule};

const LEVELS: usize = 128;
const WINDOW: f64 = 1.0;
const WINDOW_REQUESTS: u32 = 2000;
const WAIT_MAX: f64 = 0.02;
const WAIT_SERVICES: f64 = 6.0;
const FEWER: f64 = 0.05;
const MORE: f64 = 0.01;
/// After an hour other users are the first.
const HOUR: f64 = 3600.0;

pub(super) struct Dagor {
    queue: VecDeque<Request>,
    wait_max: f64,
    /// Levels below this one are taken.
    level: usize,
    /// Requests by level in this window.
    arrived: [u32; LEVELS],
    requests: u32,
    taken: u32,
    waits: f64,
    left: u32,
    began: f64,
}

impl Dagor {
    pub(super) fn new(service: f64) -> Self {
        Self {
            queue: VecDeque::new(),
            wait_max: WAIT_MAX.max(WAIT_SERVICES * service),
            level: LEVELS,
            arrived: [0; LEVELS],
            requests: 0,
            taken: 0,
            waits: 0.0,
            left: 0,
            began: 0.0,
        }
    }

    fn end_window(&mut self, now: f64) {
        let is_overloaded = self.waits > self.wait_max * f64::from(self.left.max(1));
        let mut expected = f64::from(self.taken);
        if is_overloaded {
            let wanted = (1.0 - FEWER) * expected;
            while expected > wanted && self.level > 1 {
                self.level -= 1;
                expected -= f64::from(self.arrived[self.level]);
            }
        } else {
            let wanted = (1.0 + MORE) * expected;
            while expected <= wanted && self.level < LEVELS {
                expected += f64::from(self.arrived[self.level]);
                self.level += 1;
            }
        }
        self.arrived = [0; LEVELS];
        (self.requests, self.taken, self.waits, self.left, self.began) = (0, 0, 0.0, 0, now);
    }
}

impl Rule for Dagor {
    fn on_request(&mut self, now: f64, request: Request) -> Offer {
        if now - self.began >= WINDOW || self.requests >= WINDOW_REQUESTS {
            self.end_window(now);
        }
        let level = level_of(request.asker.client, now);
        self.arrived[level] += 1;
        self.requests += 1;
        if level >= self.level {
            return Offer::Refused(None);
        }
        self.taken += 1;
        self.queue.push_back(request);
        Offer::Waits
    }

    fn next(&mut self, now: f64) -> Option<Next> {
        let request = self.queue.pop_front()?;
        self.waits += now - request.at;
        self.left += 1;
        Some(Next::Serve(request))
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

fn level_of(client: u32, now: f64) -> usize {
    let hour = (now / HOUR) as u32;
    let mixed = (client ^ hour.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0x9E37_79B9);
    (mixed >> 25) as usize % LEVELS
}

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;

    /// Seconds of 2000 users who ask once each, and are served after this wait.
    fn run(rule: &mut Dagor, seconds: std::ops::Range<u32>, wait: f64) {
        for second in seconds {
            for user in 0..2000 {
                let at = f64::from(second) + f64::from(user) / 2000.0;
                if rule.on_request(at, request(user, at)) == Offer::Waits {
                    rule.next(at + wait);
                }
            }
        }
    }

    #[test]
    fn long_waits_lower_the_level_and_short_ones_raise_it_slowly() {
        let mut rule = Dagor::new(0.001);
        run(&mut rule, 0..20, 0.1);
        // The window that is under way ends with the next request.
        run(&mut rule, 20..21, 0.001);
        let lowest = rule.level;
        assert!((30..80).contains(&lowest), "0.95^20 of 128 levels: {lowest}");
        run(&mut rule, 21..23, 0.001);
        assert!(rule.level > lowest && rule.level <= lowest + 6, "{} after {lowest}", rule.level);
        run(&mut rule, 23..300, 0.001);
        assert_eq!(rule.level, LEVELS);
    }

    #[test]
    fn the_same_users_are_refused_for_an_hour() {
        let mut rule = Dagor { level: 64, ..Dagor::new(0.001) };
        let refused = |rule: &mut Dagor, at: f64| -> Vec<u32> {
            (0..200).filter(|user| rule.on_request(at, request(*user, at)) != Offer::Waits).collect()
        };
        let (first, again) = (refused(&mut rule, 0.1), refused(&mut rule, 0.2));
        assert_eq!(first, again);
        assert!((60..140).contains(&first.len()), "{}", first.len());
        assert_ne!(level_of(1, 0.0), level_of(1, 2.0 * HOUR), "another hour");
    }
}
