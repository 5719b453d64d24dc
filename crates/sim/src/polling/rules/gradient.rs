//! Gradient2 of Netflix's concurrency-limits (2018): as many requests at a time as the latency allows.
//!
//! ```text
//! usual                  mean of the last 600 latencies; where it is more than twice the last one, 5 % less of it
//! gradient               3/2 · usual / last, within 1/2 and 1
//! limit'                 4/5 · limit + 1/5 · (gradient · limit + 4), within 20 and 200
//! half of it unused      no change
//! as many are there      refuse
//! ```

use std::collections::VecDeque;

use super::{Next, Offer, Request, Rule};

const LIMIT_MIN: f64 = 20.0;
const LIMIT_MAX: f64 = 200.0;
const QUEUE: f64 = 4.0;
const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;
/// Of an exponential mean over 600.
const WEIGHT: f64 = 2.0 / 601.0;

pub(super) struct Gradient {
    limit: f64,
    usual: f64,
    in_service: usize,
    queue: VecDeque<Request>,
}

impl Default for Gradient {
    fn default() -> Self {
        Self { limit: LIMIT_MIN, usual: 0.0, in_service: 0, queue: VecDeque::new() }
    }
}

impl Gradient {
    fn in_broker(&self) -> usize {
        self.queue.len() + self.in_service
    }
}

impl Rule for Gradient {
    fn on_request(&mut self, _now: f64, request: Request) -> Offer {
        if self.in_broker() >= self.limit as usize {
            return Offer::Refused(None);
        }
        self.queue.push_back(request);
        Offer::Waits
    }

    fn next(&mut self, _now: f64) -> Option<Next> {
        let request = self.queue.pop_front()?;
        self.in_service += 1;
        Some(Next::Serve(request))
    }

    fn on_served(&mut self, latency: f64) {
        let in_broker = self.in_broker();
        self.in_service = self.in_service.saturating_sub(1);
        self.usual = if self.usual == 0.0 { latency } else { self.usual + WEIGHT * (latency - self.usual) };
        if self.usual > 2.0 * latency {
            self.usual *= 0.95;
        }
        if (in_broker as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * self.usual / latency.max(1e-9)).clamp(0.5, 1.0);
        let wanted = gradient * self.limit + QUEUE;
        self.limit = (self.limit + SMOOTHING * (wanted - self.limit)).clamp(LIMIT_MIN, LIMIT_MAX);
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;

    fn busy(limit: f64) -> Gradient {
        let mut rule = Gradient { limit, ..Gradient::default() };
        (0..limit as u32).for_each(|client| _ = rule.on_request(0.0, request(client, 0.0)));
        rule
    }

    #[test]
    fn as_many_as_the_limit_are_there_at_a_time() {
        let mut rule = busy(20.0);
        assert_eq!(rule.on_request(0.0, request(99, 0.0)), Offer::Refused(None));
        rule.next(0.1);
        assert_eq!(rule.on_request(0.0, request(99, 0.0)), Offer::Refused(None), "one is served");
        rule.on_served(0.1);
        assert_eq!(rule.on_request(0.0, request(99, 0.0)), Offer::Waits);
    }

    #[test]
    fn a_latency_above_the_usual_lowers_the_limit_and_a_usual_one_raises_it() {
        let mut rule = Gradient { usual: 0.1, ..busy(100.0) };
        rule.on_served(0.1);
        assert!((rule.limit - 100.8).abs() < 0.1, "{}", rule.limit);
        let mut rule = Gradient { usual: 0.1, ..busy(100.0) };
        rule.on_served(0.3);
        assert!((rule.limit - 90.9).abs() < 0.3, "{}", rule.limit);
        let mut idle = Gradient { usual: 0.1, limit: 100.0, ..Gradient::default() };
        idle.on_served(0.3);
        assert!((idle.limit - 100.0).abs() < 1e-9, "an idle broker learns nothing");
    }
}
