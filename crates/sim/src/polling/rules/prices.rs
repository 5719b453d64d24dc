//! Rajomon (NSDI 2025): clients earn tokens, requests bring them, and the broker has a price that follows its wait.
//!
//! ```text
//! tokens of a client     one a second, up to 3600; a request brings all it has, and pays the price
//! every 10 ms            price + step·(wait − target)/target; the third rise in a row and those behind it by 0.8ⁿ of that
//! tokens < price         refused, with the time until they suffice
//! ```
//! Rounds, both directions and the decay of rises are those of the authors' published program (its strategy with decay); target as
//! for credits. How large a step is the paper finds by search for each service; here it is chosen by hand, so that the price of
//! three times the capacity is reached within some seconds (`STEP`). The paper's clients hold requests back while they know that their tokens do not suffice; a client
//! here that obeys the time of a refusal does the same. A request whose client has given up is not served, as a call
//! that was cancelled.

use std::collections::VecDeque;

use super::{Next, Offer, Request, Rule};

const TARGET: f64 = 0.04;
const ROUND: f64 = 0.01;
/// What the price rises by in a round with a wait of twice the target.
const STEP: f64 = 0.01;
/// By what the third rise in a row, and each behind it, is less.
const DECAY: f64 = 0.8;
const RISES_FREE: i32 = 2;
/// Longest wait that counts, as targets.
const WAIT_MAX: f64 = 50.0;
/// Tokens that a client can save, and with that the highest price that anybody could pay.
const TOKENS_MAX: f64 = 3600.0;

pub(super) struct Prices {
    price: f64,
    adjusted: f64,
    /// In a row.
    rises: i32,
    queue: VecDeque<Request>,
    /// Since when each client has earned without paying, seconds.
    paid: Vec<f64>,
}

impl Prices {
    /// Everybody begins with the tokens of some seconds, not all with the same.
    pub(super) fn new(clients: u32) -> Self {
        let paid = (0..clients).map(|client| -f64::from(client.wrapping_mul(0x9E37_79B9) >> 28)).collect();
        Self { price: 0.0, adjusted: 0.0, rises: 0, queue: VecDeque::new(), paid }
    }

    fn adjust(&mut self, now: f64) {
        while now - self.adjusted >= ROUND {
            self.adjusted += ROUND;
            let wait = self.queue.front().map_or(0.0, |first| (self.adjusted - first.at).max(0.0));
            let error = (wait / TARGET).min(WAIT_MAX) - 1.0;
            let decay = if error > 1e-9 && self.rises >= RISES_FREE { DECAY.powi(self.rises) } else { 1.0 };
            self.rises = if error > 1e-9 { self.rises.saturating_add(1) } else { 0 };
            self.price = (self.price + STEP * error * decay).clamp(0.0, TOKENS_MAX);
        }
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
    fn the_price_follows_the_wait_both_ways_and_rises_in_a_row_count_less() {
        let mut rule = Prices::new(10);
        rule.on_request(0.0, request(1, 0.0));
        rule.adjust(0.0601);
        // Below the target for three rounds, at it for one, above it for two.
        assert!((rule.price - STEP * (0.25 + 0.5)).abs() < 1e-9, "{}", rule.price);
        let before = rule.price;
        rule.adjust(0.0701);
        assert!((rule.price - before - STEP * 0.75 * DECAY * DECAY).abs() < 1e-9, "{}", rule.price);
        rule.next(0.0701);
        let before = rule.price;
        rule.adjust(0.0801);
        assert!((rule.price - (before - STEP).max(0.0)).abs() < 1e-9, "{}", rule.price);
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
