//! Rajomon (NSDI 2025): clients earn tokens, requests bring them, and the broker has a price that follows its wait.
//!
//! ```text
//! tokens of a client     one a second, up to 3600; a request brings all it has, and pays the price
//! every 10 ms            wait > target:  price + 1/50·(wait − target)/target, by 1/20 at most
//!                        else:           price − 1/200
//! tokens < price         refused, with the time until they suffice
//! ```
//! The paper's clients hold requests back while they know that their tokens do not suffice; a client here that obeys the time
//! of a refusal does the same. Target as for credits. How fast a price moves is chosen here: the paper leaves it to tuning. A
//! request whose client has given up is not served, as a call that was cancelled.

use std::collections::VecDeque;

use super::{Next, Offer, Request, Rule};

const TARGET: f64 = 0.04;
const ROUND: f64 = 0.01;
const RISE: f64 = 0.02;
const RISE_MAX: f64 = 0.05;
const FALL: f64 = 0.005;
/// Tokens that a client can save, and with that the highest price that anybody could pay.
const TOKENS_MAX: f64 = 3600.0;

pub(super) struct Prices {
    price: f64,
    adjusted: f64,
    queue: VecDeque<Request>,
    /// Since when each client has earned without paying, seconds.
    paid: Vec<f64>,
}

impl Prices {
    /// Everybody begins with the tokens of some seconds, not all with the same.
    pub(super) fn new(clients: u32) -> Self {
        let paid = (0..clients).map(|client| -f64::from(client.wrapping_mul(0x9E37_79B9) >> 28)).collect();
        Self { price: 0.0, adjusted: 0.0, queue: VecDeque::new(), paid }
    }

    fn adjust(&mut self, now: f64) {
        let rounds = ((now - self.adjusted) / ROUND).floor();
        if rounds < 1.0 {
            return;
        }
        self.adjusted += rounds * ROUND;
        let wait = self.queue.front().map_or(0.0, |first| now - first.at);
        let change = if wait > TARGET { (RISE * (wait - TARGET) / TARGET).min(RISE_MAX) } else { -FALL };
        self.price = (self.price + change * rounds).clamp(0.0, TOKENS_MAX);
    }
}

impl Rule for Prices {
    fn on_request(&mut self, now: f64, request: Request) -> Offer {
        self.adjust(now);
        let Some(paid) = self.paid.get_mut(request.asker.client as usize) else { return Offer::Refused(None) };
        let tokens = (now - *paid).min(TOKENS_MAX);
        if tokens < self.price {
            return Offer::Refused(Some(self.price - tokens));
        }
        *paid = now - (tokens - self.price);
        self.queue.push_back(request);
        Offer::Waits
    }

    fn next(&mut self, now: f64) -> Option<Next> {
        self.adjust(now);
        let request = self.queue.pop_front()?;
        Some(if request.until <= now { Next::Expired } else { Next::Serve(request) })
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;

    #[test]
    fn the_price_rises_with_the_wait_and_falls_slowly() {
        let mut rule = Prices::new(10);
        rule.on_request(0.0, request(1, 0.0));
        rule.adjust(0.08);
        assert!((rule.price - 0.16).abs() < 1e-9, "eight rounds of one target too long: {}", rule.price);
        rule.next(0.08);
        rule.adjust(0.28);
        assert!((rule.price - 0.06).abs() < 1e-9, "twenty rounds down: {}", rule.price);
    }

    #[test]
    fn who_has_too_few_tokens_is_told_how_long_to_wait() {
        let mut rule = Prices { price: 30.0, paid: vec![0.0; 2], ..Prices::new(2) };
        rule.adjusted = 10.0;
        assert_eq!(rule.on_request(10.0, request(0, 10.0)), Offer::Refused(Some(20.0)));
        rule.adjusted = 30.0;
        assert_eq!(rule.on_request(30.0, request(0, 30.0)), Offer::Waits);
        let Offer::Refused(Some(again)) = rule.on_request(30.0, request(0, 30.0)) else { panic!("it has paid") };
        assert!((again - 30.0).abs() < 1e-9, "{again}");
    }
}
