//! Many clients that check one broker for updates (papers 000 and 002).
//!
//! Real are the clients that ship (algorithm `session`: the session of the client library), the pacer alone where rules of
//! pace are compared, and the broker that ships (preset `product`: the request queue of the smart space); for comparisons
//! there are the papers' pool and algorithms of the literature. Modelled are the
//! host (service times, capacity), the links (round trip, lost notifications and requests) and the updates. The world is
//! driven by one wheel of events; the same configuration and seed give the same run, to the bit. What is random about
//! the clients' items and radio is drawn from a stream of each client, so that two algorithms meet the same updates.

mod ask;
mod baseline;
mod bound;
mod client;
mod config;
mod derived;
mod front;
mod host;
mod news;
mod own;
mod pool;
mod product;
mod rules;
mod session;
mod tally;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tidegate_control::admission::QueryKey;
use tidegate_control::hints::Hints;
use tidegate_control::{ConfigError, Timestamp};

pub use config::{
    Algorithm, Baseline, Broker, BrokerRule, Change, Clients, Count, Host, Link, Polling, Service, StepChoice, Updates,
};
pub use own::{CheckEnd, Own, OwnAlgorithm};
pub use tally::{METRICS, Metric, Second};

use crate::chance::Stream;
use crate::wheel::Wheel;
use client::{Client, Maker, NEVER};
use front::{Asker, Front, Job, Visit};
use session::{Session, Values};
use tally::{Ended, Tally};

/// What a client costs in memory: its state, and its share of the wheel.
pub const BYTES_PER_CLIENT: u64 = size_of::<Client>() as u64 + 3 * 24;
/// The same for one with a session, without the rows that it watches.
pub const BYTES_PER_SESSION: u64 = BYTES_PER_CLIENT + size_of::<Session>() as u64;

/// Everything that came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The figures, in the order of [`METRICS`].
    pub metrics: Vec<Metric>,
    /// Second by second.
    pub timeline: Vec<Second>,
    /// AST and RBT of one client after each of its checks: time, AST, RBT, in seconds.
    pub trace: Vec<(f64, f64, f64)>,
}

impl Outcome {
    /// A figure by its name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Due(Asker),
    Arrive(Asker),
    Served { server: u32 },
    Reply { slot: u32 },
    GiveUp(Asker),
    Wake { client: u32 },
    Update { client: u32 },
    Slide,
    Tick,
}

/// An answer or refusal on its way.
#[derive(Clone, Debug)]
struct Reply {
    asker: Asker,
    word: Word,
    hints: Hints,
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Answer { losses: u32, lost_at_sum: f64, version: u32 },
    Denied,
}

struct InService {
    job: Job,
    first: Visit,
    joined: Vec<Visit>,
    started: Timestamp,
    queued: Duration,
    /// Of the time of this service, what notifications took: the broker does not take that for the cost of a request.
    news: Duration,
}

struct World<'a> {
    config: &'a Polling,
    now: Timestamp,
    /// The same in seconds.
    at: f64,
    wheel: Wheel<Event>,
    clients: Vec<Client>,
    front: Front,
    values: Values,
    serving: Vec<Option<InService>>,
    replies: Vec<Reply>,
    replies_free: Vec<u32>,
    service: Stream,
    radio: Stream,
    /// Work of denials that the host still has to do, and that of notifications, seconds.
    chores: f64,
    news: f64,
    /// The slide that is shown, in a slide show.
    slide: u32,
    tally: Tally,
    /// Since the beginning, for the checks of conservation.
    ledger: Ledger,
    trace: Vec<(f64, f64, f64)>,
}

/// Every request and update must be somewhere.
#[derive(Clone, Copy, Debug, Default)]
struct Ledger {
    sent: u64,
    request_lost: u64,
    arrived: u64,
    answered: u64,
    denied: u64,
    timed_out: u64,
    updates: u64,
    notified: u64,
    radio_lost: u64,
    shed: u64,
    events: u64,
}

/// Runs a world to its end.
pub fn run(config: &Polling, seed: u64) -> Result<Outcome, ConfigError> {
    let mut world = World::new(config, seed)?;
    world.start();
    let end = (config.duration * 1e9) as u64;
    while let Some((at, event)) = world.wheel.pop() {
        if at > end {
            break;
        }
        world.now = Timestamp::from_nanos(at);
        world.at = at as f64 * 1e-9;
        world.ledger.events += 1;
        world.handle(event);
        if config.clients.once && world.tally.first_answer.count() == world.clients.len() as u64 {
            break;
        }
    }
    Ok(world.finish())
}

impl<'a> World<'a> {
    fn new(config: &'a Polling, seed: u64) -> Result<Self, ConfigError> {
        let makers =
            [Maker::new(config, config.clients.algorithm)?, Maker::new(config, config.clients.others_algorithm)?];
        let basic = [config.clients.algorithm, config.clients.others_algorithm].map(Maker::is_basic);
        let count = config.clients_count();
        let (clients, updates) = (Stream::of(seed, "clients"), Stream::of(seed, "updates"));
        let mut tally = Tally::default();
        tally.stale.iter_mut().for_each(|stale| stale.start(config.warm_up));
        let spread = config.updates.spread;
        let mut made = Vec::with_capacity(count as usize);
        for number in 0..u64::from(count) {
            let mut updates = updates.member(number);
            let rate = config.updates.rate * (spread * updates.normal() - spread * spread / 2.0).exp();
            // Spread evenly among the numbers, so that groups meet everything alike.
            let others = (number as f64 + 1.0) * config.clients.others;
            let group = u8::from(others.floor() > (number as f64 * config.clients.others).floor());
            tally.stale[usize::from(group)].of += 1;
            let fading = config.link.loss_burst > 1.0 && updates.happens(config.link.loss);
            let mut chance = clients.member(number);
            let control = makers[usize::from(group)].make(&mut chance);
            made.push(Client {
                control,
                chance,
                speaks: makers[usize::from(group)].speaks(),
                updates,
                ticket: None,
                sent: NEVER,
                tried: NEVER,
                succeeded: NEVER,
                stale_since: NEVER,
                lost_at_sum: 0.0,
                lost: 0,
                attempt: 0,
                version: 0,
                known: 0,
                rate: rate as f32,
                successes: 0,
                group,
                fading,
                basic: basic[usize::from(group)],
                done: false,
            });
        }
        Ok(Self {
            config,
            now: Timestamp::ZERO,
            at: 0.0,
            wheel: Wheel::default(),
            clients: made,
            front: Front::new(config, seed)?,
            values: Values::new(!config.updates.events),
            serving: (0..config.host.servers).map(|_| None).collect(),
            replies: Vec::new(),
            replies_free: Vec::new(),
            service: Stream::of(seed, "service"),
            radio: Stream::of(seed, "radio"),
            chores: 0.0,
            news: 0.0,
            slide: 0,
            tally,
            ledger: Ledger::default(),
            trace: Vec::new(),
        })
    }

    fn start(&mut self) {
        let together = self.config.clients.together;
        for client in 0..self.clients.len() as u32 {
            self.begin_session(client);
            let state = &mut self.clients[client as usize];
            if let Some(delay) = state.first_delay(together, self.config.clients.interval) {
                self.after(delay, Event::Due(Asker { client, attempt: 0 }));
            }
            if self.config.updates.slides.is_none() && self.config.updates.rate > 0.0 {
                self.plan_update(client);
            }
        }
        if let Some(period) = self.config.updates.slides {
            self.after_secs(period, Event::Slide);
        }
        self.after_secs(1.0, Event::Tick);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Due(asker) => self.due(asker),
            Event::Arrive(asker) => self.arrive(asker),
            Event::Served { server } => self.served(server),
            Event::Reply { slot } => self.reply(slot),
            Event::GiveUp(asker) => self.give_up(asker),
            Event::Wake { client } => self.wake(client),
            Event::Update { client } => self.update(client),
            Event::Slide => self.next_slide(),
            Event::Tick => self.tick(),
        }
    }

    /// The end of a second.
    fn tick(&mut self) {
        let stale: u32 = self.tally.stale.iter().map(|group| group.clients).sum();
        let backlog = self.front.backlog(self.now) as f32;
        let stale = stale as f32 / self.clients.len() as f32;
        // Time has just become the next second.
        let second = self.tally.second(self.at - 0.5);
        second.stale = stale;
        second.backlog = backlog;
        self.after_secs(1.0, Event::Tick);
    }

    fn is_measured(&self) -> bool {
        self.at >= self.config.warm_up
    }

    /// What equal queries have in common: in a slide show and in a burst everybody asks for the same.
    fn key(&self) -> Option<QueryKey> {
        let is_shared = self.config.updates.slides.is_some() || self.config.clients.once;
        (self.config.broker.coalescing && is_shared).then_some(QueryKey(1))
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.wheel.push((self.now + delay).as_nanos(), event);
    }

    fn after_secs(&mut self, delay: f64, event: Event) {
        self.wheel.push(self.now.as_nanos() + (delay * 1e9) as u64, event);
    }

    fn finish(mut self) -> Outcome {
        let end = self.config.duration;
        self.tally.stale.iter_mut().for_each(|stale| stale.count(end));
        self.check_conservation();
        let now = self.now.as_nanos();
        for client in &self.clients {
            if client.stale_since != NEVER {
                // Still out of date: what there was of it counts, else the slowest would be left out.
                self.tally.outdated.add(now.saturating_sub(client.stale_since) as f64 * 1e-9);
            }
        }
        let count = self.clients.len().max(1) as f64;
        let (mut ast, mut stretch, mut congested, mut pacers) = (0.0, 0.0, 0.0, 0.0_f64);
        for client in &self.clients {
            if let Some(snapshot) = client.control.snapshot() {
                ast += snapshot.ast.as_secs_f64();
                stretch += snapshot.stretch;
                congested += f64::from(u8::from(snapshot.congested));
                pacers += 1.0;
            }
        }
        let unserved = self.clients.iter().filter(|client| client.succeeded == NEVER).count();
        let ended = Ended {
            jain: tally::fairness(
                self.clients.iter().filter(|client| client.group == 0).map(|client| client.successes),
            ),
            requests_per_client: self.ledger.sent as f64 / count,
            unserved: unserved as f64 / count,
            ast_mean: ast / pacers.max(1.0),
            stretch_mean: stretch / pacers.max(1.0),
            congested: congested / pacers.max(1.0),
            events: self.ledger.events,
        };
        let metrics = self.tally.metrics(self.config, &ended);
        Outcome { metrics, timeline: self.tally.timeline, trace: self.trace }
    }

    /// Bugs, not results: whatever was sent, offered or changed must be somewhere.
    fn check_conservation(&self) {
        let (ledger, pool) = (&self.ledger, self.front.counts());
        let ends = pool.denied + pool.dropped + pool.expired + pool.displaced + pool.taken + pool.waiting;
        assert_eq!(pool.offered, ends, "the pool lost a request");
        let outstanding = self.clients.iter().filter(|client| client.sent != NEVER).count() as u64;
        let ended = ledger.answered + ledger.denied + ledger.timed_out;
        assert_eq!(ledger.sent, ended + outstanding, "an attempt has no end, or two");
        assert!(ledger.sent >= ledger.request_lost + ledger.arrived, "a request arrived that nobody sent");
        assert_eq!(ledger.updates, ledger.notified + ledger.radio_lost + ledger.shed, "a notification is missing");
        let stale = self.clients.iter().filter(|client| client.stale_since != NEVER).count() as u32;
        assert_eq!(stale, self.tally.stale.iter().map(|group| group.clients).sum::<u32>(), "stale copies miscounted");
    }
}
