//! FQ-CoDel (RFC 8290, 2018): a queue for each flow with CoDel on it, by turns, and flows that have just begun first.
//!
//! ```text
//! flow of a request      one of 1024, by its client
//! a flow that is new     before all that have waited in line already, for one quantum
//! a quantum              one request
//! all queues full        the longest one gives up its head
//! ```

use std::collections::VecDeque;

use super::codel::Codel;
use super::{ITEMS_MAX, Next, Offer, Request, Rule};

const FLOWS: usize = 1024;

struct Flow {
    queue: VecDeque<Request>,
    law: Codel,
    credit: i32,
    is_listed: bool,
}

pub(super) struct FqCodel {
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    waiting: usize,
    /// Taken out of the longest queue for somebody else.
    displaced: VecDeque<Request>,
}

impl FqCodel {
    pub(super) fn new(service: f64) -> Self {
        let flow = || Flow { queue: VecDeque::new(), law: Codel::new(service), credit: 0, is_listed: false };
        Self {
            flows: (0..FLOWS).map(|_| flow()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            waiting: 0,
            displaced: VecDeque::new(),
        }
    }

    fn displace(&mut self) {
        let longest = self.flows.iter_mut().max_by_key(|flow| flow.queue.len());
        if let Some(request) = longest.and_then(|flow| flow.queue.pop_front()) {
            self.displaced.push_back(request);
        }
    }
}

impl Rule for FqCodel {
    fn on_request(&mut self, _now: f64, request: Request) -> Offer {
        if self.waiting + 1 >= ITEMS_MAX {
            self.displace();
        }
        let number = flow_of(request.asker.client);
        let flow = &mut self.flows[number];
        flow.queue.push_back(request);
        self.waiting += 1;
        if !flow.is_listed {
            (flow.is_listed, flow.credit) = (true, 1);
            self.new.push_back(number);
        }
        Offer::Waits
    }

    fn next(&mut self, now: f64) -> Option<Next> {
        if let Some(request) = self.displaced.pop_front() {
            self.waiting -= 1;
            return Some(Next::Refuse(request));
        }
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let flow = &mut self.flows[number];
            if flow.credit <= 0 {
                list.pop_front();
                flow.credit += 1;
                self.old.push_back(number);
                continue;
            }
            let Some(request) = flow.queue.pop_front() else {
                list.pop_front();
                // A new flow that is empty waits once among the old ones: else it could be new for ever.
                if is_new {
                    self.old.push_back(number);
                } else {
                    flow.is_listed = false;
                }
                continue;
            };
            self.waiting -= 1;
            if flow.law.refuses(now, now - request.at, flow.queue.is_empty()) {
                return Some(Next::Refuse(request));
            }
            flow.credit -= 1;
            return Some(Next::Serve(request));
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}

/// Fibonacci hashing: neighbours are far apart.
fn flow_of(client: u32) -> usize {
    (client.wrapping_mul(0x9E37_79B9) >> 22) as usize % FLOWS
}

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;

    fn served(rule: &mut FqCodel, now: f64) -> Option<u32> {
        loop {
            match rule.next(now)? {
                Next::Serve(request) => return Some(request.asker.client),
                Next::Refuse(_) | Next::Expired => {}
            }
        }
    }

    #[test]
    fn one_that_asks_much_does_not_keep_others_waiting() {
        let mut rule = FqCodel::new(0.001);
        (0..50).for_each(|_| assert_eq!(rule.on_request(0.0, request(1, 0.0)), Offer::Waits));
        assert_eq!(served(&mut rule, 0.0), Some(1));
        rule.on_request(0.001, request(2, 0.001));
        assert_eq!(served(&mut rule, 0.001), Some(2), "a new flow comes first");
        assert_eq!(served(&mut rule, 0.002), Some(1));
        assert_eq!(rule.waiting(), 48);
    }

    #[test]
    fn everything_that_came_leaves_once() {
        let mut rule = FqCodel::new(0.001);
        (0..12_000).for_each(|client| _ = rule.on_request(0.0, request(client, 0.0)));
        let mut left = 0;
        while rule.next(5.0).is_some() {
            left += 1;
        }
        assert_eq!((left, rule.waiting()), (12_000, 0));
    }
}
