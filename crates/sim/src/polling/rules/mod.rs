//! Brokers of the literature, for comparison: how others keep a server within its capacity, each a rule of its own by its name.
//!
//! ```text
//! codel        refuse at the head while every wait of the last 100 ms was too long
//! fq-codel     the same for each of 1024 flows, new flows first
//! dagor        a level among 128 of users, moved once a second by the mean wait
//! breakwater   credits for as many requests as keep the wait at its target
//! rajomon      a price that rises with the wait; requests bring tokens
//! gradient2    as many at a time as the ratio of usual to last latency allows
//! ```
//! Nichols and others, *Controlled Delay Active Queue Management*, RFC 8289, 2018. Høiland-Jørgensen and others, *The Flow Queue
//! CoDel Packet Scheduler and Active Queue Management Algorithm*, RFC 8290, 2018. Zhou and others, *Overload Control for Scaling
//! WeChat Microservices* (DAGOR), SoCC 2018. Cho and others, *Overload Control for µs-scale RPCs with Breakwater*, OSDI 2020. Xing
//! and others, *Rajomon: Decentralized and Coordinated Overload Control for Latency-Sensitive Microservices*, NSDI 2025. Netflix,
//! *concurrency-limits* (Gradient2), 2018.
//!
//! Rules for clients are in `baseline`. A rule decides and owns no clock; `RuleBroker` counts for it. What a paper
//! leaves to its clients beyond a word of refusal (a caller that sheds for others) has no place here: clients are those of the
//! case.

mod codel;
mod credits;
mod dagor;
mod fq_codel;
mod gradient;
mod prices;

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::ClassCounts;
use tidegate_control::hints::Hints;

use super::config::{BrokerRule, Polling};
use super::front::{Arrival, Asked, Asker, Job, Visit, Work};

/// A request at the broker, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    asker: Asker,
    at: f64,
    /// After that nobody waits for the answer.
    until: f64,
}

/// What becomes of a request at the door.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Offer {
    Waits,
    /// Refused, with the seconds after which it is worth another try, where the rule knows that.
    Refused(Option<f64>),
}

/// What is done with a request that is to be served next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Serve(Request),
    Refuse(Request),
    /// Its client has given up; the rule knows that.
    Expired,
}

/// A rule of admission and order.
trait Rule {
    fn on_request(&mut self, now: f64, request: Request) -> Offer;

    /// Whoever leaves the queue next, to be served or not.
    fn next(&mut self, now: f64) -> Option<Next>;

    /// A service ended after so many seconds in the broker.
    fn on_served(&mut self, _in_broker: f64) {}

    fn waiting(&self) -> usize;

    /// How many of those wait at the broker itself, and are work for it.
    fn at_the_server(&self) -> usize {
        self.waiting()
    }
}

/// Requests that wait at most, whatever a rule says: the bound of Linux for `fq_codel`.
const ITEMS_MAX: usize = 10_240;

/// A rule, and the books around it.
pub(super) struct RuleBroker {
    rule: Box<dyn Rule>,
    counts: ClassCounts,
    refused: Vec<Asker>,
    /// Seconds of a service, nominally.
    service: f64,
}

/// What a server works on: when its request came.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleJob {
    waited: f64,
}

impl RuleBroker {
    pub(super) fn new(config: &Polling, name: BrokerRule, seed: u64) -> Self {
        let service = config.host.mean_service(0.0);
        let rule: Box<dyn Rule> = match name {
            BrokerRule::Codel => Box::new(codel::CodelQueue::new(service)),
            BrokerRule::FqCodel => Box::new(fq_codel::FqCodel::new(service)),
            BrokerRule::Dagor => Box::new(dagor::Dagor::new(service)),
            BrokerRule::Breakwater => Box::new(credits::Credits::new(config.clients_count(), config.link.rtt, seed)),
            BrokerRule::Rajomon => Box::new(prices::Prices::new(config.clients_count())),
            BrokerRule::Gradient2 => Box::new(gradient::Gradient::default()),
        };
        Self { rule, counts: ClassCounts::default(), refused: Vec::new(), service }
    }

    pub(super) fn on_request(&mut self, now: Timestamp, asked: &Asked) -> Arrival {
        self.counts.offered += 1;
        let at = now.as_secs_f64();
        let patience = asked.asks.deadline.map_or(f64::INFINITY, |deadline| deadline.as_secs_f64());
        let offer = if self.rule.waiting() >= ITEMS_MAX {
            Offer::Refused(None)
        } else {
            self.rule.on_request(at, Request { asker: asked.asker, at, until: at + patience })
        };
        match offer {
            Offer::Waits => Arrival::Waits,
            Offer::Refused(retry) => {
                self.counts.denied += 1;
                let retry_after = retry.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, RETRY_MAX)));
                Arrival::Denied(Box::new(Hints { retry_after, ..Hints::default() }))
            }
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) -> Option<Work> {
        let at = now.as_secs_f64();
        loop {
            match self.rule.next(at)? {
                Next::Serve(request) => {
                    self.counts.taken += 1;
                    let waited = at - request.at;
                    let first = Visit { asker: request.asker, hints: Hints::default() };
                    let job = Job::Rule(RuleJob { waited });
                    let queued = Duration::from_secs_f64(waited.max(0.0));
                    return Some(Work { job, first, joined: Vec::new(), queued });
                }
                Next::Refuse(request) => {
                    self.counts.denied += 1;
                    self.refused.push(request.asker);
                }
                Next::Expired => self.counts.expired += 1,
            }
        }
    }

    pub(super) fn sent_away(&mut self) -> Vec<(Asker, Box<Hints>)> {
        self.refused.drain(..).map(|asker| (asker, Box::default())).collect()
    }

    pub(super) fn on_served(&mut self, job: RuleJob, elapsed: Duration) {
        self.rule.on_served(job.waited + elapsed.as_secs_f64());
    }

    pub(super) fn backlog(&self) -> f64 {
        self.rule.at_the_server() as f64 * self.service
    }

    pub(super) fn counts(&self) -> ClassCounts {
        ClassCounts { waiting: self.rule.waiting() as u64, ..self.counts }
    }
}

/// Longest time that a refusal asks for, seconds.
const RETRY_MAX: f64 = 3600.0;

#[cfg(test)]
fn request(client: u32, at: f64) -> Request {
    Request { asker: Asker { client, attempt: 0 }, at, until: at + 2.0 }
}
