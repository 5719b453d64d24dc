//! The order of service at the front desk: who is next, and who is told to come back. Pure: time is an argument.
//!
//! ```text
//! equal question waiting                         join it: one execution, many answers
//! now + wait + work > deadline, others ahead     denied: nobody would read the answer
//! 64 of this client wait, and delay_max of work  the policy of the class, for this client alone
//! else                                           it waits: lanes by kind, in a lane fair by client, by work
//! at dequeue: now > deadline                     ended, not executed
//! ```
//! Nothing is refused because others were promised a place, because the mean of a class is high, or because something dear
//! is under way; a client that asks one thing after the other is never refused for delay. A lane that holds what takes
//! long may occupy only some of the servers, and the last free one is kept for what is known to be short: two slow
//! queries used to shut everybody out for ten seconds.
//!
//! The contract: *offer what arrives, take when a worker is free, give the job back with what it cost, drain
//! [`Order::poll_ended`]*. Every request ends once.

mod estimate;
mod lane;
mod service;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, Policy, PoolConfig, QueryKey};

pub use estimate::Shape;
pub(crate) use estimate::USUAL_SAMPLES;
use estimate::{Estimate, Estimates, LONG_NANOS};
use lane::{Entry, Lane, Waiter};
use service::Service;

/// Servers that take from one order.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    /// Threads.
    pub threads: usize,
    /// Of these, those that may do at once what takes long.
    pub long_max: usize,
    /// What they are worth together: processors.
    pub worth: u32,
}

/// A request as it arrives.
#[derive(Debug)]
pub struct Arrival<T> {
    /// What kind of request it is.
    pub class: Class,
    /// Equal keys may be answered by one execution.
    pub key: Option<QueryKey>,
    /// Whose it is: requests of one client share one line.
    pub client: u64,
    /// What its cost is estimated from.
    pub shape: Shape,
    /// How long its client waits.
    pub patience: Duration,
    /// How the request may wait; the queue finds out and sets it.
    pub terms: WaitTerms,
    /// The request itself.
    pub value: T,
}

/// How a request may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTerms {
    /// A place was promised for now.
    pub is_promised: bool,
    /// Its client keeps appointments.
    pub keeps_appointments: bool,
    /// Until it is known what such requests cost: then it is decided whether it stays.
    pub is_provisional: bool,
}

/// What became of an offer.
#[derive(Debug)]
pub(crate) enum Offered<T> {
    Queued,
    Joined,
    /// Its client is to come back after this time.
    Denied(T, Duration),
}

/// A request that waited, and gets a place instead.
#[derive(Debug)]
pub(crate) struct ShedEntry<T> {
    pub(crate) client: u64,
    pub(crate) place: Duration,
    pub(crate) value: T,
}

/// Work for a server.
#[derive(Debug)]
pub struct Taken<T> {
    /// To be given back when the work is done.
    pub job: Job,
    /// The request.
    pub value: T,
    /// Equal requests that get the same answer.
    pub joined: Vec<T>,
    /// How long the first one waited.
    pub queued: Duration,
}

/// A piece of work under way. Not `Clone`: each ends once.
#[derive(Debug)]
#[must_use = "a job that is not given back stays in service for ever"]
pub struct Job {
    number: u64,
    class: Class,
    lane: usize,
    client: u64,
    shape: Shape,
    work: u64,
    joined: u32,
    /// A place was promised for it.
    #[cfg(test)]
    pub(crate) is_promised: bool,
    /// Its client could have been given another time.
    pub(crate) keeps_appointments: bool,
}

#[derive(Debug)]
pub(crate) struct Order<T> {
    config: PoolConfig,
    servers: Servers,
    estimates: Estimates,
    lanes: [Lane<T>; LANES],
    /// What each lane has used, by its weight; the lowest is next.
    tags: [u64; LANES],
    virtual_time: u64,
    service: Service,
    ended: VecDeque<T>,
}

impl<T> Order<T> {
    /// None for a configuration that makes no sense.
    pub(crate) fn new(config: &PoolConfig, servers: Servers) -> Option<Self> {
        // The bounds of the papers' pool are checked where it is built.
        tidegate_control::admission::RequestPool::<()>::new(config).ok()?;
        Some(Self {
            config: *config,
            servers,
            estimates: Estimates::new(config),
            lanes: std::array::from_fn(|_| Lane::new()),
            tags: [0; LANES],
            virtual_time: 0,
            service: Service::new(servers.worth.max(1)),
            ended: VecDeque::new(),
        })
    }

    /// A request arrives.
    pub(crate) fn offer(&mut self, now: Timestamp, request: Arrival<T>) -> Offered<T> {
        let Arrival { class, key, client, shape, patience, terms, value } = request;
        let WaitTerms { is_promised, keeps_appointments, is_provisional } = terms;
        let estimate = self.estimates.of(class, shape);
        let lane = if is_promised { PROMISED } else { lane_of(class, estimate) };
        let waiter = Waiter { value, arrived: now, deadline: now + patience };
        let shared_max = self.config.shared_max as usize;
        if let Some(equal) = key.and_then(|key| self.lanes[lane].equal(key, shared_max)) {
            equal.joined.push(waiter);
            return Offered::Joined;
        }
        let wait = self.wait(now, lane, client, estimate);
        let is_alone = wait.is_zero();
        // Whoever finds nobody ahead is served, however long it may take: else one stall would be for ever.
        if !is_alone && !is_provisional && wait + Duration::from_nanos(estimate.nanos) > patience {
            return Offered::Denied(waiter.value, lead(wait, patience));
        }
        let limits = self.config.classes[class.index()];
        if self.lanes[lane].items() >= limits.items_max as usize {
            return Offered::Denied(waiter.value, lead(wait, Duration::ZERO));
        }
        let (items, work) = self.lanes[lane].of(client);
        let own = Duration::from_nanos(work.saturating_add(estimate.nanos) / u64::from(self.servers.worth.max(1)));
        if !is_promised && items >= CLIENT_FREE && own > limits.delay_max {
            match limits.policy {
                Policy::HeadDrop => {
                    if let Some(oldest) = self.lanes[lane].displace(client) {
                        self.end(oldest);
                    }
                }
                Policy::Postpone if items < CLIENT_FREE + limits.parked_max as usize => {}
                Policy::Deny | Policy::TailDrop | Policy::Postpone => {
                    // When what this client has waiting will be done.
                    return Offered::Denied(waiter.value, own);
                }
            }
        }
        self.enqueue(
            lane,
            client,
            Entry {
                first: waiter,
                joined: Vec::new(),
                key,
                class,
                shape,
                work: estimate.nanos,
                is_known: estimate.is_known,
                keeps_appointments,
            },
        );
        Offered::Queued
    }

    fn enqueue(&mut self, lane: usize, client: u64, entry: Entry<T>) {
        if self.lanes[lane].items() == 0 {
            // A lane that had nothing to do has saved nothing up.
            self.tags[lane] = self.tags[lane].max(self.virtual_time);
        }
        self.lanes[lane].push(client, entry);
    }

    /// The next request for a free server; none if nothing waits that this server may do.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Taken<T>> {
        let free = self.servers.threads.saturating_sub(self.service.len());
        if free == 0 {
            return None;
        }
        let may_be_long = self.service.long(now, LONG_NANOS) < self.servers.long_max;
        let is_last = free == 1 && self.servers.threads > 1;
        loop {
            let is_wanted = move |entry: &Entry<T>| {
                let is_short = entry.work < LONG_NANOS;
                (may_be_long || is_short) && !(is_last && !(is_short && entry.is_known))
            };
            let waiting = (0..LANES).filter(|lane| self.lanes[*lane].items() > 0);
            let wanted = waiting.filter(|lane| may_be_long || !is_long_lane(*lane));
            let lane = wanted.filter(|lane| self.lanes[*lane].has(is_wanted)).min_by_key(|lane| self.tags[*lane])?;
            let (client, entry) = self.lanes[lane].pop(is_wanted)?;
            if let Some(taken) = self.start(now, lane, client, entry) {
                return Some(taken);
            }
        }
    }

    /// Makes a job of an entry, for those who still wait; none if nobody does.
    fn start(&mut self, now: Timestamp, lane: usize, client: u64, entry: Entry<T>) -> Option<Taken<T>> {
        let Entry { first, joined, class, shape, work, keeps_appointments, .. } = entry;
        let arrived = first.arrived;
        let (alive, late): (Vec<_>, Vec<_>) =
            std::iter::once(first).chain(joined).partition(|waiter| waiter.deadline >= now);
        self.ended.extend(late.into_iter().map(|waiter| waiter.value));
        let mut alive = alive.into_iter().map(|waiter| waiter.value);
        let value = alive.next()?;
        let joined: Vec<T> = alive.collect();
        self.virtual_time = self.virtual_time.max(self.tags[lane]);
        self.tags[lane] = self.tags[lane].saturating_add(work.max(1) / u64::from(self.weight(lane)) + 1);
        let number = self.service.on_started(now, work);
        let job = Job {
            number,
            class,
            lane,
            client,
            shape,
            work,
            joined: joined.len() as u32,
            #[cfg(test)]
            is_promised: lane == PROMISED,
            keeps_appointments,
        };
        Some(Taken { job, value, joined, queued: now.since(arrived) })
    }

    /// A job was done in this time. To be called before its client is answered, or the client's next request finds it
    /// still under way.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub(crate) fn on_served(&mut self, job: Job, elapsed: Duration) {
        // Answers to those that joined are not what the next execution costs; at least one share of it is.
        let answers = self.config.classes[job.class.index()].answer_cost.saturating_mul(job.joined);
        let sample = elapsed.saturating_sub(answers).max(elapsed / job.joined.saturating_add(1));
        self.estimates.on_served(job.class, job.shape, sample);
        self.leave(&job, sample);
    }

    /// A job ended without a result after this time.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub(crate) fn on_cancelled(&mut self, job: Job, elapsed: Duration) {
        self.estimates.on_cancelled(job.shape, elapsed);
        self.leave(&job, elapsed);
    }

    /// Estimates anew what was not known when it came: while little was served, what waits may be taken for a fraction of
    /// what it is.
    pub(crate) fn reassess(&mut self) {
        let Self { lanes, estimates, .. } = self;
        for lane in lanes {
            lane.reassess(|class, shape| estimates.of(class, shape));
        }
    }

    /// Sends away who keeps appointments and would wait for longer than this, the last to be served first of all; with what a
    /// place is worth for each.
    pub(crate) fn shed(&mut self, wait: Duration) -> Vec<ShedEntry<T>> {
        let mut keep = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).saturating_mul(self.servers.worth.into());
        let Self { lanes, estimates, .. } = self;
        let mut shed = Vec::new();
        for lane in &mut lanes[..PROMISED] {
            let may_go = |entry: &Entry<T>| entry.keeps_appointments && entry.key.is_none();
            let (left, gone) = lane.shed(keep, may_go);
            keep = left;
            shed.extend(gone.into_iter().map(|(client, entry)| {
                let place = Duration::from_nanos(estimates.of(entry.class, entry.shape).place);
                ShedEntry { client, place, value: entry.first.value }
            }));
        }
        shed
    }

    fn leave(&mut self, job: &Job, elapsed: Duration) {
        self.service.on_ended(job.number);
        let over = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_sub(job.work);
        self.lanes[job.lane].charge(job.client, over);
        if self.service.len() == 0 && self.is_empty() {
            self.lanes.iter_mut().for_each(Lane::forgive);
            self.tags = [self.virtual_time; LANES];
        }
    }

    /// A request that ended while it waited.
    pub(crate) fn poll_ended(&mut self) -> Option<T> {
        self.ended.pop_front()
    }

    /// Everything that waits, whoever may serve it; and nothing is under way any more.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        for lane in 0..LANES {
            while let Some((_, entry)) = self.lanes[lane].pop(|_| true) {
                self.end(entry);
            }
        }
        self.service.clear();
        std::mem::take(&mut self.ended).into()
    }

    fn end(&mut self, entry: Entry<T>) {
        self.ended.extend(std::iter::once(entry.first).chain(entry.joined).map(|waiter| waiter.value));
    }

    /// Requests that wait; equal ones count as one.
    pub(crate) fn items(&self) -> usize {
        self.lanes.iter().map(Lane::items).sum()
    }

    /// Something is under way.
    pub(crate) fn is_working(&self) -> bool {
        self.service.len() > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.items() == 0)
    }

    /// How long a request of this client would wait, if it were offered now.
    pub(crate) fn wait_of(&self, now: Timestamp, class: Class, client: u64, shape: Shape) -> Duration {
        let estimate = self.estimates.of(class, shape);
        self.wait(now, lane_of(class, estimate), client, estimate)
    }

    /// Ahead of a request is what its client has waiting, once for each client that waits, and never more than all.
    /// What is under way matters only if no server is free for this request.
    fn wait(&self, now: Timestamp, lane: usize, client: u64, estimate: Estimate) -> Duration {
        let all = self.lanes.iter().map(Lane::work).fold(0, u64::saturating_add);
        let clients: usize = self.lanes.iter().map(Lane::clients).sum();
        let own = self.lanes[lane].of(client).1;
        let fair = own.saturating_add(estimate.nanos).saturating_mul(clients as u64);
        let ahead = all.min(fair);
        let free = self.servers.threads.saturating_sub(self.service.len());
        let is_long = estimate.nanos >= LONG_NANOS;
        let may_run = !is_long || self.service.long(now, LONG_NANOS) < self.servers.long_max;
        let is_last = free == 1 && self.servers.threads > 1;
        if free > 0 && may_run && (!is_last || !is_long && estimate.is_known) {
            return Duration::from_nanos(ahead / u64::from(self.servers.worth.max(1)).min(free as u64));
        }
        Duration::from_nanos(self.service.wait(now, ahead))
    }

    /// Estimated time until all that waits is under way.
    pub(crate) fn backlog(&self, now: Timestamp) -> Duration {
        let all = self.lanes.iter().map(Lane::work).fold(0, u64::saturating_add);
        if all == 0 && self.service.len() < self.servers.threads {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.service.wait(now, all))
    }

    /// What a request of this class may have to wait and last: the `D_br` of the papers.
    pub(crate) fn permitted(&self, class: Class) -> Duration {
        self.cost(class).saturating_add(self.config.classes[class.index()].delay_max)
    }

    /// What a stranger of this class is taken to cost.
    pub(crate) fn cost(&self, class: Class) -> Duration {
        self.estimates.class(class)
    }

    /// What such requests take on a usual day, and whether this is one.
    pub(crate) fn usual_of(&self, class: Class, shape: Shape) -> (Duration, bool) {
        let estimate = self.estimates.of(class, shape);
        (Duration::from_nanos(estimate.usual), estimate.nanos <= estimate.usual.saturating_mul(2))
    }

    /// How long a place for such a request is.
    pub(crate) fn place_of(&self, class: Class, shape: Shape) -> Duration {
        Duration::from_nanos(self.estimates.of(class, shape).place)
    }

    /// For how long the oldest job has been under way.
    pub(crate) fn longest(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.service.longest(now))
    }

    /// The shortest that any class may wait.
    pub(crate) fn delay_max_shared(&self) -> Duration {
        self.config.classes.iter().map(|class| class.delay_max).min().unwrap_or_default()
    }

    pub(crate) fn delay_max(&self, class: Class) -> Duration {
        self.config.classes[class.index()].delay_max
    }

    fn weight(&self, lane: usize) -> u32 {
        let weight = |class: Class| self.config.classes[class.index()].weight.max(1);
        match lane {
            PROMISED => Class::ALL.iter().map(|class| weight(*class)).sum(),
            LONG | BULK => weight(Class::AdvancedQuery),
            lane => Class::ALL.get(lane).map_or(1, |class| weight(*class)),
        }
    }
}

/// Lanes: one for each class, and what takes long, large changes, and those who were promised a place.
const LANES: usize = Class::COUNT + 3;
const LONG: usize = Class::COUNT;
const BULK: usize = Class::COUNT + 1;
const PROMISED: usize = Class::COUNT + 2;

fn lane_of(class: Class, estimate: Estimate) -> usize {
    let is_long = estimate.nanos >= LONG_NANOS;
    match class {
        Class::Query | Class::AdvancedQuery | Class::Publish if is_long => LONG,
        // What only looks dear by its text waits with the others once it is known.
        Class::AdvancedQuery if estimate.is_known => Class::Query.index(),
        Class::Update if is_long => BULK,
        class => class.index(),
    }
}

/// When whoever was denied finds room: when the wait is half of what its patience bears.
fn lead(wait: Duration, patience: Duration) -> Duration {
    wait.saturating_sub(patience / 2).max(RETRY_MIN)
}

fn is_long_lane(lane: usize) -> bool {
    lane == LONG
}

/// Requests of one client that may wait without any bound of delay: as many as an SSAP connection may have under way.
pub(crate) const CLIENT_FREE: usize = 64;
/// Nobody is told to come back sooner.
const RETRY_MIN: Duration = Duration::from_millis(1);
