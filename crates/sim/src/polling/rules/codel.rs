//! CoDel (RFC 8289, 2018): the wait of whoever leaves the queue decides.
//!
//! ```text
//! every wait above the target for an interval          begin to refuse, at the head
//! while that lasts                                     the n-th refusal interval/√n after the one before
//! a wait below the target, or nobody behind            end
//! soon again                                           go on from the rate of the last time
//! ```
//! The target is 5 ms, or a service and a half where that is longer: the RFC asks for more than one packet's time on slow links.

use std::collections::VecDeque;

use super::{Next, Offer, Request, Rule};

/// Seconds.
const TARGET: f64 = 0.005;
const INTERVAL: f64 = 0.1;
/// A time after the last refusal within which its rate is remembered, in intervals.
const MEMORY: f64 = 16.0;

/// The law, for one queue.
#[derive(Clone, Debug)]
pub(super) struct Codel {
    target: f64,
    /// When waits will have been too long for an interval.
    above_until: Option<f64>,
    is_refusing: bool,
    next: f64,
    count: u32,
    last_count: u32,
}

impl Codel {
    pub(super) fn new(service: f64) -> Self {
        let target = TARGET.max(1.5 * service);
        Self { target, above_until: None, is_refusing: false, next: 0.0, count: 0, last_count: 0 }
    }

    /// Whether the one that leaves the queue now is refused.
    pub(super) fn refuses(&mut self, now: f64, waited: f64, is_last: bool) -> bool {
        let is_long = self.is_long(now, waited, is_last);
        if self.is_refusing {
            self.is_refusing = is_long;
            if !is_long || now < self.next {
                return false;
            }
            self.count += 1;
            self.next += INTERVAL / f64::from(self.count).sqrt();
            return true;
        }
        if is_long {
            self.is_refusing = true;
            let since = self.count.saturating_sub(self.last_count);
            let is_soon = now - self.next < MEMORY * INTERVAL;
            self.count = if since > 1 && is_soon { since } else { 1 };
            self.last_count = self.count;
            self.next = now + INTERVAL / f64::from(self.count).sqrt();
        }
        is_long
    }

    fn is_long(&mut self, now: f64, waited: f64, is_last: bool) -> bool {
        if waited < self.target || is_last {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + INTERVAL)
    }
}

/// First come, first served, with that law.
pub(super) struct CodelQueue {
    law: Codel,
    queue: VecDeque<Request>,
}

impl CodelQueue {
    pub(super) fn new(service: f64) -> Self {
        Self { law: Codel::new(service), queue: VecDeque::new() }
    }
}

impl Rule for CodelQueue {
    fn on_request(&mut self, _now: f64, request: Request) -> Offer {
        if self.queue.len() >= QUEUE_MAX {
            return Offer::Refused(None);
        }
        self.queue.push_back(request);
        Offer::Waits
    }

    fn next(&mut self, now: f64) -> Option<Next> {
        let request = self.queue.pop_front()?;
        let refused = self.law.refuses(now, now - request.at, self.queue.is_empty());
        Some(if refused { Next::Refuse(request) } else { Next::Serve(request) })
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// The bound that Linux gives such a queue.
const QUEUE_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_come_closer_by_the_root_of_their_number() {
        let mut law = Codel::new(0.001);
        let refused: Vec<f64> =
            (0..20_000).map(|n| f64::from(n) * 1e-4).filter(|now| law.refuses(*now, 0.02, false)).collect();
        assert!((refused[0] - 0.1).abs() < 2e-3, "after an interval: {}", refused[0]);
        for (n, pair) in refused.windows(2).take(8).enumerate() {
            let wanted = INTERVAL / (n as f64 + 1.0).sqrt();
            assert!((pair[1] - pair[0] - wanted).abs() < 2e-3, "{n}: {} and {wanted}", pair[1] - pair[0]);
        }
    }

    #[test]
    fn a_short_wait_or_a_last_one_ends_it() {
        let mut law = Codel::new(0.001);
        law.refuses(0.0, 0.02, false);
        assert!(law.refuses(0.11, 0.02, false));
        assert!(!law.refuses(1.0, 0.001, false), "short");
        assert!(!law.refuses(1.01, 0.02, false), "a new interval begins");
        assert!(!law.refuses(2.0, 0.02, true), "nobody is behind it");
    }

    #[test]
    fn who_soon_begins_again_begins_faster() {
        let mut law = Codel::new(0.001);
        (0..30_000).for_each(|n| _ = law.refuses(f64::from(n) * 1e-4, 0.02, false));
        law.refuses(3.0, 0.0, false);
        let refused: Vec<f64> =
            (30_001..36_000).map(|n| f64::from(n) * 1e-4).filter(|now| law.refuses(*now, 0.02, false)).collect();
        assert!(refused[1] - refused[0] < INTERVAL / 2.0, "{refused:?}");
    }

    #[test]
    fn the_target_is_longer_than_a_service() {
        assert!((Codel::new(0.02).target - 0.03).abs() < 1e-12);
        assert!((Codel::new(1e-4).target - TARGET).abs() < 1e-12);
    }
}
