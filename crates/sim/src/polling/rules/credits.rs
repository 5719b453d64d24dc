//! Breakwater (OSDI 2020): a request needs a credit, and there are as many as keep the wait at its target.
//!
//! ```text
//! every round trip       wait ≤ target:  credits + max(0.1 % of the clients, 1)
//!                        wait > target:  credits · max(1 − 2 %·(wait − target)/target, 1/2)
//! wait > 2·target        refuse (active queue management)
//! no credit is left      wait at the client, until one of those that wait is drawn, or until it gives up
//! ```
//! Target: 40 % of 100 ms, the wait that the broker of the product promises. Charitable: a credit is there when it is drawn,
//! as if the server had always guessed right who wants to ask, and demand costs nothing.

use std::collections::VecDeque;

use super::{Next, Offer, Request, Rule};
use crate::chance::Stream;

const TARGET: f64 = 0.04;
const MORE: f64 = 0.001;
const FEWER: f64 = 0.02;
const LEAST: f64 = 0.5;
/// Beyond so many targets a request is refused.
const REFUSE: f64 = 2.0;
/// A network faster than this is not measured more often, seconds.
const ROUND_MIN: f64 = 0.001;
/// Seconds between two looks for those that gave up.
const SWEEP: f64 = 0.2;

pub(super) struct Credits {
    /// How many there are.
    total: f64,
    step: f64,
    round: f64,
    adjusted: f64,
    /// With a credit, at the server.
    queue: VecDeque<Request>,
    /// Without one, at their clients.
    wanting: Vec<Request>,
    /// Those of them that gave up and have not been counted yet.
    gone: usize,
    swept: f64,
    chance: Stream,
}

impl Credits {
    pub(super) fn new(clients: u32, round: f64, seed: u64) -> Self {
        let step = (MORE * f64::from(clients)).max(1.0);
        let chance = Stream::of(seed, "credits");
        let round = round.max(ROUND_MIN);
        let (queue, wanting) = (VecDeque::new(), Vec::new());
        Self { total: step, step, round, adjusted: 0.0, queue, wanting, gone: 0, swept: 0.0, chance }
    }

    fn adjust(&mut self, now: f64) {
        if now - self.adjusted < self.round {
            return;
        }
        self.adjusted = now;
        if now - self.swept >= SWEEP {
            self.swept = now;
            let before = self.wanting.len();
            self.wanting.retain(|request| request.until > now);
            self.gone += before - self.wanting.len();
        }
        let wait = self.wait(now);
        self.total = if wait <= TARGET {
            self.total + self.step
        } else {
            self.total * (1.0 - FEWER * (wait - TARGET) / TARGET).max(LEAST)
        };
        // More than can be wanted are not given out.
        let most = (self.queue.len() + self.wanting.len()) as f64 + self.step;
        self.total = self.total.clamp(1.0, most.max(1.0));
    }

    fn wait(&self, now: f64) -> f64 {
        self.queue.front().map_or(0.0, |first| now - first.at)
    }

    /// Gives free credits to some of those that want one.
    fn hand_out(&mut self, now: f64) {
        while self.queue.len() < self.total as usize && !self.wanting.is_empty() {
            let drawn = (self.chance.unit() * self.wanting.len() as f64) as usize;
            let request = self.wanting.swap_remove(drawn);
            if request.until > now {
                // It begins to wait at the server now.
                self.queue.push_back(Request { at: now, ..request });
            } else {
                self.gone += 1;
            }
        }
    }
}

impl Rule for Credits {
    fn on_request(&mut self, now: f64, request: Request) -> Offer {
        self.adjust(now);
        if self.wait(now) > REFUSE * TARGET {
            return Offer::Refused(None);
        }
        self.wanting.push(request);
        self.hand_out(now);
        Offer::Waits
    }

    fn next(&mut self, now: f64) -> Option<Next> {
        self.adjust(now);
        self.hand_out(now);
        if self.gone > 0 {
            self.gone -= 1;
            return Some(Next::Expired);
        }
        let request = self.queue.pop_front()?;
        Some(if request.until <= now { Next::Expired } else { Next::Serve(request) })
    }

    fn waiting(&self) -> usize {
        self.queue.len() + self.wanting.len() + self.gone
    }

    fn at_the_server(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;

    #[test]
    fn credits_grow_by_steps_and_shrink_with_the_wait() {
        let mut rule = Credits::new(5000, 0.02, 1);
        assert_eq!(rule.step, 5.0);
        (0..100).for_each(|client| _ = rule.on_request(0.0, request(client, 0.0)));
        assert_eq!(rule.queue.len(), 5, "no more than there are credits");
        rule.adjust(0.02);
        assert!((rule.total - 10.0).abs() < 1e-9);
        // The first has waited for two targets.
        rule.adjust(0.08);
        assert!((rule.total - 9.8).abs() < 1e-9, "{}", rule.total);
        rule.adjust(10.0);
        assert!((rule.total - 4.9).abs() < 1e-9, "never less than half: {}", rule.total);
    }

    #[test]
    fn long_waits_are_refused_and_those_who_gave_up_are_not_served() {
        let mut rule = Credits::new(100, 0.02, 1);
        rule.on_request(0.0, request(1, 0.0));
        assert_eq!(rule.on_request(0.1, request(2, 0.1)), Offer::Refused(None));
        assert_eq!(rule.next(3.0), Some(Next::Expired));
        assert_eq!((rule.next(3.0), rule.waiting()), (None, 0));
    }
}
