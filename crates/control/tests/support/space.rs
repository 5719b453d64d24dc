//! A smart space in virtual time: one broker with one server, many clients that check their item for updates.
//!
//! The broker is a real `RequestPool`, the clients are real `Pacer`s; modelled are the network (20 ms round trip, lost
//! notifications), the service times (exponential) and the updates (Poisson, one item per client). A denial costs the
//! server 5 % of a service. Notifications are shed while the backlog exceeds 200 ms. The same seed gives the same run.
//! This is the small model of the smoke tests and of the `overload` example; the laboratory is a crate of its own.

#![allow(dead_code, reason = "not every user reads every figure")]
#![allow(clippy::expect_used, reason = "a wrong scenario is a bug of the test")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tidegate_control::Timestamp;
use tidegate_control::admission::{AdmissionRequest, AdmittedJob, Class, OfferOutcome, PoolConfig, RequestPool};
use tidegate_control::analysis::aimd::step_for_rate;
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{AstStep, Outcome, Pacer, PacerConfig, PacerPlan, Preset};

/// What is simulated.
struct Scenario {
    clients: usize,
    /// Requests per second that the server can serve.
    capacity: f64,
    /// Updates per second and item.
    update_rate: f64,
    /// Share of the notifications that the radio loses.
    radio_loss: f64,
    pool: PoolConfig,
    pacer: Arc<PacerPlan>,
    /// Patience of the clients.
    request_timeout: f64,
    /// Times between which the capacity is multiplied by the last number.
    dip: Option<(f64, f64, f64)>,
    /// Measured from here on.
    warm_up: f64,
    duration: f64,
    seed: u64,
}

impl Report {
    /// A line of the tables in the README and of the `overload` example.
    pub(crate) fn row(&self, preset: Preset) -> String {
        let (goodput, stale) = (self.goodput * 100.0, self.stale * 100.0);
        format!("{:<22}{goodput:>9.0}%{:>10.2}{stale:>9.1}%", preset.name(), self.offered)
    }
}

/// What came of it, after the warm-up.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Answers that reached a client still waiting, as a share of the capacity.
    pub(crate) goodput: f64,
    /// Requests, as a multiple of the capacity.
    pub(crate) offered: f64,
    /// Mean share of the clients whose copy was out of date.
    pub(crate) stale: f64,
}

/// Ten times more checks than the server can answer, on a broker that keeps at most 100 ms of work and denies the rest.
pub(crate) fn overload(preset: Preset) -> Report {
    let load = Load { capacity: 200.0, interval: 1.0, update_rate: 1.0, radio_loss: 0.2 };
    let mut pool = PoolConfig::default();
    for class in &mut pool.classes {
        class.cost_initial = Duration::from_secs_f64(1.0 / load.capacity);
    }
    run(&load.scenario(preset, |_| {}, &pool, None, 400.0, 600.0))
}

/// Half load and a tenth of the capacity for one minute, on a broker of the papers that queues up to 5 s of work and
/// drops the rest without a word; measured from seven minutes after the dip.
pub(crate) fn dip(preset: Preset) -> Report {
    dip_with(preset, |_| {})
}

/// The same, with one thing changed in the pacers.
pub(crate) fn dip_with(preset: Preset, change: impl FnOnce(&mut PacerConfig)) -> Report {
    let load = Load { capacity: 400.0, interval: 10.0, update_rate: 0.1, radio_loss: 0.01 };
    let pool = PoolConfig::paper((load.capacity * 5.0) as u32);
    run(&load.scenario(preset, change, &pool, Some((120.0, 180.0, 0.1)), 600.0, 900.0))
}

struct Load {
    capacity: f64,
    /// Mean interval between checks of a client that meets no congestion, seconds.
    interval: f64,
    update_rate: f64,
    radio_loss: f64,
}

impl Load {
    fn scenario(
        &self,
        preset: Preset,
        change: impl FnOnce(&mut PacerConfig),
        pool: &PoolConfig,
        dip: Option<(f64, f64, f64)>,
        warm_up: f64,
        duration: f64,
    ) -> Scenario {
        let mut config = PacerConfig::from(preset);
        let step = step_for_rate(self.update_rate * self.radio_loss, 1.0 / self.interval, config.ast.alpha);
        config.interval = Duration::from_secs_f64(self.interval);
        config.ast.step = AstStep::Fixed(Duration::from_secs_f64(step));
        config.request_timeout = Duration::from_secs(2);
        change(&mut config);
        Scenario {
            clients: 2000,
            capacity: self.capacity,
            update_rate: self.update_rate,
            radio_loss: self.radio_loss,
            pool: *pool,
            pacer: config.build().expect("a valid configuration"),
            request_timeout: 2.0,
            dip,
            warm_up,
            duration,
            seed: 1,
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send { client: usize, attempt: u32 },
    Arrive { client: usize, attempt: u32 },
    Served,
    Reply { client: usize, attempt: u32, queued: Option<Duration>, losses: u32 },
    GiveUp { client: usize, attempt: u32 },
    Update { client: usize },
}

struct Client {
    pacer: Pacer,
    rng: Xoshiro256PlusPlus,
    attempt: u32,
    sent: Option<Timestamp>,
    /// Notifications lost since the last successful check.
    lost: u32,
    stale: bool,
}

struct Space<'a> {
    scenario: &'a Scenario,
    now: Timestamp,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    sequence: u64,
    rng: Xoshiro256PlusPlus,
    clients: Vec<Client>,
    pool: RequestPool<(usize, u32)>,
    serving: Option<(AdmittedJob, usize, u32, Timestamp, Duration)>,
    /// Work of denials that the server still has to do, seconds.
    denials: f64,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    useful: u64,
    offered: u64,
    stale_clients: u64,
    stale_seconds: f64,
    stale_since: f64,
}

fn run(scenario: &Scenario) -> Report {
    let mut space = Space::new(scenario);
    space.start();
    while let Some(Reverse((at, _, event))) = space.events.pop() {
        if at.as_secs_f64() > scenario.duration {
            break;
        }
        space.now = at;
        space.handle(&event);
    }
    space.report()
}

impl<'a> Space<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let clients = (0..scenario.clients as u64)
            .map(|id| Client {
                pacer: Pacer::new(&scenario.pacer),
                rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed ^ id.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                attempt: 0,
                sent: None,
                lost: 0,
                stale: false,
            })
            .collect();
        Self {
            scenario,
            now: Timestamp::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
            clients,
            pool: RequestPool::new(&scenario.pool).expect("a valid pool"),
            serving: None,
            denials: 0.0,
            tally: Tally::default(),
        }
    }

    fn start(&mut self) {
        for client in 0..self.clients.len() {
            let Client { pacer, rng, .. } = &mut self.clients[client];
            if let Some(delay) = pacer.first_delay(rng) {
                self.after(delay, Event::Send { client, attempt: 0 });
            }
            self.plan_update(client);
        }
    }

    fn handle(&mut self, event: &Event) {
        match *event {
            Event::Send { client, attempt } => self.send(client, attempt),
            Event::Arrive { client, attempt } => self.arrive(client, attempt),
            Event::Served => self.served(),
            Event::Reply { client, attempt, queued, losses } => self.reply(client, attempt, queued, losses),
            Event::GiveUp { client, attempt } => self.finish(client, attempt, &Outcome::TimedOut),
            Event::Update { client } => self.update(client),
        }
    }

    fn send(&mut self, client: usize, attempt: u32) {
        let state = &mut self.clients[client];
        if state.attempt != attempt || state.sent.is_some() {
            return;
        }
        state.sent = Some(self.now);
        state.pacer.on_sent();
        self.after_secs(RTT / 2.0, Event::Arrive { client, attempt });
        self.after_secs(self.scenario.request_timeout, Event::GiveUp { client, attempt });
    }

    fn arrive(&mut self, client: usize, attempt: u32) {
        if self.is_measured() {
            self.tally.offered += 1;
        }
        let deadline = Some(Duration::from_secs_f64(self.scenario.request_timeout));
        let request = AdmissionRequest { class: Class::Query, key: None, deadline, value: (client, attempt) };
        let offered = self.pool.offer(self.now, request);
        while self.pool.poll_ended().is_some() {}
        match offered {
            OfferOutcome::Denied { .. } => {
                self.denials += DENIAL_COST / self.capacity();
                self.after_secs(RTT / 2.0, Event::Reply { client, attempt, queued: None, losses: 0 });
            }
            OfferOutcome::Dropped { .. } => self.denials += DROP_COST / self.capacity(),
            _ => self.serve(),
        }
    }

    fn serve(&mut self) {
        if self.serving.is_some() {
            return;
        }
        let Some(taken) = self.pool.take(self.now) else { return };
        let (client, attempt) = taken.value;
        let service = -(1.0 - unit(&mut self.rng)).ln() / self.capacity() + std::mem::take(&mut self.denials);
        self.serving = Some((taken.job, client, attempt, self.now, taken.queued));
        self.after_secs(service, Event::Served);
    }

    fn served(&mut self) {
        while self.pool.poll_ended().is_some() {}
        if let Some((job, client, attempt, started, queued)) = self.serving.take() {
            self.pool.on_served(job, self.now.since(started));
            let losses = self.clients[client].lost;
            self.after_secs(RTT / 2.0, Event::Reply { client, attempt, queued: Some(queued), losses });
        }
        self.serve();
    }

    /// `queued` is none for a denial.
    fn reply(&mut self, client: usize, attempt: u32, queued: Option<Duration>, losses: u32) {
        let state = &mut self.clients[client];
        let Some(sent) = state.sent.filter(|_| state.attempt == attempt) else { return };
        let Some(queued) = queued else {
            return self.finish(client, attempt, &Outcome::denied());
        };
        state.lost -= losses;
        if state.lost == 0 {
            self.set_stale(client, false);
        }
        if self.is_measured() {
            self.tally.useful += 1;
        }
        let hints = Hints { queued: Some(queued), ..Hints::default() };
        let latency = self.now.since(sent);
        self.finish(client, attempt, &Outcome::Answered { latency, losses, not_modified: losses == 0, hints });
    }

    fn finish(&mut self, client: usize, attempt: u32, outcome: &Outcome) {
        let state = &mut self.clients[client];
        if state.attempt != attempt || state.sent.is_none() {
            return;
        }
        state.sent = None;
        state.attempt += 1;
        let attempt = state.attempt;
        if let Some(delay) = state.pacer.on_outcome(self.now, outcome, &mut state.rng) {
            self.after(delay, Event::Send { client, attempt });
        }
    }

    fn update(&mut self, client: usize) {
        let shed = self.pool.backlog(Class::Query, self.now).as_secs_f64() > SHED_BACKLOG;
        let lost = shed || unit(&mut self.rng) < self.scenario.radio_loss;
        if lost {
            self.clients[client].lost += 1;
        }
        self.set_stale(client, lost);
        self.plan_update(client);
    }

    fn plan_update(&mut self, client: usize) {
        let wait = -(1.0 - unit(&mut self.rng)).ln() / self.scenario.update_rate;
        self.after_secs(wait, Event::Update { client });
    }

    fn set_stale(&mut self, client: usize, stale: bool) {
        let now = self.now.as_secs_f64().max(self.scenario.warm_up);
        self.tally.stale_seconds += self.tally.stale_clients as f64 * (now - self.tally.stale_since).max(0.0);
        self.tally.stale_since = now;
        match (self.clients[client].stale, stale) {
            (false, true) => self.tally.stale_clients += 1,
            (true, false) => self.tally.stale_clients -= 1,
            _ => {}
        }
        self.clients[client].stale = stale;
    }

    fn capacity(&self) -> f64 {
        let now = self.now.as_secs_f64();
        match self.scenario.dip {
            Some((from, to, factor)) if (from..to).contains(&now) => self.scenario.capacity * factor,
            _ => self.scenario.capacity,
        }
    }

    fn is_measured(&self) -> bool {
        self.now.as_secs_f64() >= self.scenario.warm_up
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay, self.sequence, event)));
    }

    fn after_secs(&mut self, delay: f64, event: Event) {
        self.after(Duration::from_secs_f64(delay), event);
    }

    fn report(&self) -> Report {
        let seconds = self.scenario.duration - self.scenario.warm_up;
        let work = self.scenario.capacity * seconds;
        Report {
            goodput: self.tally.useful as f64 / work,
            offered: self.tally.offered as f64 / work,
            stale: self.tally.stale_seconds / (seconds * self.clients.len() as f64),
        }
    }
}

fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Seconds.
const RTT: f64 = 0.02;
const SHED_BACKLOG: f64 = 0.2;
/// Shares of a service.
const DENIAL_COST: f64 = 0.05;
const DROP_COST: f64 = 0.02;
