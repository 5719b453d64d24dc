//! The request pool: take, park, drop or deny; and who is served next.
//!
//! Several FIFO queues by class (Table I of the papers). Practical admission (CONTROL §8.1–8.3):
//! ```text
//! equal query waiting already                   join it: one execution, many answers (before any refusal for room)
//! now + backlog_c + w > deadline                deny at once: nobody would read the answer (unless nobody is ahead)
//! backlog_c + w > delay_max_c                   policy of the class: the bound is delay, not items
//! at dequeue: now > deadline                    drop, do not execute: never work for the dead
//! ```
//! `w` is the mean service time of the class (weight 1/16). Between classes the server is shared by deficit round robin
//! over estimated work, so that no class starves. The contract: *offer what arrives, take when a worker is free, report
//! what it cost or that it was cancelled, drain [`RequestPool::poll_ended`]*. Every request ends exactly once: taken, or
//! ended with a reason, or given back by `offer`. [`PoolRule`] names the two pools, this one and that of the papers.

mod config;
mod queue;
mod request;
mod service;
#[cfg(test)]
mod tests;
mod turns;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

pub use config::{Class, ClassConfig, DELAY_UNBOUNDED, Deadlines, Policy, PoolConfig, PoolRule};
pub use request::{
    AdmissionRequest, AdmittedJob, ClassCounts, EndedRequest, OfferOutcome, QueryKey, ShedReason, TakenRequest,
};

use crate::config::ConfigError;
use crate::time::{Timestamp, nanos};
use queue::{ClassQueue, QueuedRequest};
use service::ServerPool;
use turns::Turns;

/// The request pool. See the [module](self).
#[derive(Debug)]
pub struct RequestPool<T> {
    config: PoolConfig,
    queues: [ClassQueue<T>; Class::COUNT],
    counts: [ClassCounts; Class::COUNT],
    /// Mean service time by class, nanoseconds.
    costs: [u64; Class::COUNT],
    turns: Turns,
    service: ServerPool,
    ended: VecDeque<EndedRequest<T>>,
}

impl<T> RequestPool<T> {
    /// An empty pool.
    pub fn new(config: &PoolConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config: *config,
            queues: [const { ClassQueue::new() }; Class::COUNT],
            counts: [ClassCounts::default(); Class::COUNT],
            costs: config.classes.map(|class| nanos(class.cost_initial)),
            turns: Turns::new(config),
            service: ServerPool::new(config.servers),
            ended: VecDeque::new(),
        })
    }

    /// A request arrives.
    pub fn offer(&mut self, now: Timestamp, request: AdmissionRequest<T>) -> OfferOutcome<T> {
        self.offer_within(now, request, 1)
    }

    /// A request arrives that was promised a place: it may find a queue several times as long as others may. The promises
    /// keep the queue short; without this room the first inaccuracy would break them.
    pub fn offer_promised(&mut self, now: Timestamp, request: AdmissionRequest<T>) -> OfferOutcome<T> {
        self.offer_within(now, request, PROMISED_ROOM)
    }

    fn offer_within(&mut self, now: Timestamp, request: AdmissionRequest<T>, times: u32) -> OfferOutcome<T> {
        let class = request.class;
        self.counts[class.index()].offered += 1;
        if class == Class::Control {
            self.counts[class.index()].taken += 1;
            return OfferOutcome::Immediate(request.value);
        }
        let deadline = now + request.deadline.unwrap_or(self.config.deadline_default);
        let entry = QueuedRequest::new(request, now, deadline, self.costs[class.index()]);
        let entry = match self.join(now, class, entry) {
            Ok(offered) => return offered,
            Err(entry) => entry,
        };
        let ahead = self.queues[class.index()].work_with_parked();
        // Whoever finds nobody is served, however long it may take: the estimate is learned from what is served only, so
        // one long stall would make everything hopeless for ever.
        let alone = ahead == 0 && self.wait(now, 0).is_zero();
        if !alone && self.is_hopeless(now, ahead, entry.work, entry.first.deadline) {
            return self.deny(now, class, entry, ShedReason::DeadlineHopeless);
        }
        let is_first = times > 1 || self.queues[class.index()].parked_len() == 0;
        if is_first && !self.is_crowded(class) && self.fits_times(now, class, entry.work, times) {
            self.enqueue(class, entry);
            return OfferOutcome::Queued;
        }
        self.overflow(now, class, entry)
    }

    /// The next request for a server that is free; `None` only if nothing waits.
    #[must_use = "a job that is not handed back stays in service for ever"]
    pub fn take(&mut self, now: Timestamp) -> Option<TakenRequest<T>> {
        loop {
            for class in Class::ALL {
                self.move_up(now, *class);
            }
            let class = self.turns.next(|class| self.queues[class.index()].len() > 0)?;
            let entry = self.queues[class.index()].pop()?;
            if let Some(taken) = self.start(now, class, entry) {
                return Some(taken);
            }
        }
    }

    /// A job ended after this time, spent on executing it and on answering everybody.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub fn on_served(&mut self, job: AdmittedJob, elapsed: Duration) {
        let AdmittedJob { class, joined, end } = job;
        self.service.on_ended(end);
        let cost = &mut self.costs[class.index()];
        // The answers of those that joined are in the estimate of an entry already; learned as cost they would count
        // twice. At least the share of one recipient remains: if answers are cheaper than configured, the rest could be
        // nothing, and the pool would believe that queries are free.
        let answers = self.config.classes[class.index()].answer_cost.saturating_mul(joined);
        let sample = elapsed.saturating_sub(answers).max(elapsed / joined.saturating_add(1)).clamp(COST_MIN, COST_MAX);
        // Weight 1/16; with whole nanoseconds and a floor of 1 µs nothing is lost by the rounding.
        *cost = *cost - *cost / COST_SAMPLES + nanos(sample) / COST_SAMPLES;
    }

    /// A job ended without a result: its worker died, or its query was cancelled. It leaves the service, and nothing is
    /// learned from it: how long a query lived says little about how long it takes.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub fn on_cancelled(&mut self, job: AdmittedJob) {
        self.service.on_ended(job.end);
    }

    /// A request that ended in the queue, to be told or counted. Drain it after `offer` and `take`.
    pub fn poll_ended(&mut self) -> Option<EndedRequest<T>> {
        self.ended.pop_front()
    }

    /// Estimated time until a new request of this class would be served, if no other class had anything waiting.
    pub fn backlog(&self, class: Class, now: Timestamp) -> Duration {
        self.wait(now, self.queues[class.index()].work())
    }

    /// Estimated time until everything that waits or is parked now is under way: for pressure and appointments. Not the
    /// sum over the classes, which would count what is in service once for each.
    pub fn backlog_total(&self, now: Timestamp) -> Duration {
        self.wait(now, self.queues.iter().map(ClassQueue::work_with_parked).fold(0, u64::saturating_add))
    }

    /// What a request of this class may have to wait and last: the `D_br` of the papers.
    pub fn permitted(&self, class: Class) -> Duration {
        self.cost(class).saturating_add(self.config.classes[class.index()].delay_max)
    }

    /// Mean service time of a class.
    pub fn cost(&self, class: Class) -> Duration {
        Duration::from_nanos(self.costs[class.index()])
    }

    /// What has happened to the requests of a class.
    pub fn counts(&self, class: Class) -> ClassCounts {
        self.counts[class.index()]
    }

    /// Entries waiting in a class; joined requests count with the one they joined.
    pub fn len(&self, class: Class) -> usize {
        self.queues[class.index()].len()
    }

    /// Nothing waits or is parked in any class.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.len() + queue.parked_len() == 0)
    }

    /// An equal query that waits already is joined, before any refusal for want of room: refusing equal queries would
    /// make them come one by one, and cost more. Joining takes room for an answer only, and for that it may use one
    /// execution more than the delay bound; else a full queue could not be joined.
    fn join(
        &mut self,
        now: Timestamp,
        class: Class,
        entry: QueuedRequest<T>,
    ) -> Result<OfferOutcome<T>, QueuedRequest<T>> {
        let (index, limits) = (class.index(), &self.config.classes[class.index()]);
        let Some(seat) = entry.key.and_then(|key| self.queues[index].seat(key, self.config.shared_max)) else {
            return Err(entry);
        };
        let answer = nanos(limits.answer_cost);
        let work = seat.work.saturating_add(answer);
        if self.is_hopeless(now, seat.ahead, work, entry.first.deadline) {
            return Ok(self.deny(now, class, entry, ShedReason::DeadlineHopeless));
        }
        let room = nanos(limits.delay_max).saturating_mul(self.config.servers.into()).saturating_add(self.costs[index]);
        if self.is_crowded(class) || seat.bounded.saturating_add(answer) > room {
            return Err(entry);
        }
        self.queues[index].join(&seat, entry.first, answer);
        self.counts[index].waiting += 1;
        Ok(OfferOutcome::Joined)
    }

    /// Whether this work, behind that of others, would be done too late.
    fn is_hopeless(&self, now: Timestamp, ahead: u64, work: u64, deadline: Timestamp) -> bool {
        let done = now + self.wait(now, ahead) + Duration::from_nanos(work);
        self.config.deadlines == Deadlines::Enforce && done > deadline
    }

    /// How long a request waits behind so much queued work.
    fn wait(&self, now: Timestamp, queued: u64) -> Duration {
        Duration::from_nanos(self.service.wait(now, queued))
    }

    /// Whether there may not be one more waiter, whatever it costs.
    fn is_crowded(&self, class: Class) -> bool {
        self.counts[class.index()].waiting >= self.config.classes[class.index()].waiters_max.into()
    }

    /// Whether there is room for one more request.
    fn admits(&self, now: Timestamp, class: Class, work: u64) -> bool {
        !self.is_crowded(class) && self.fits(now, class, work)
    }

    /// Whether there is room in the queue for one more entry.
    fn fits(&self, now: Timestamp, class: Class, work: u64) -> bool {
        let queue = &self.queues[class.index()];
        self.fits_behind(now, class, (queue.len(), queue.work()), work)
    }

    /// The same, for a delay bound so many times as long.
    fn fits_times(&self, now: Timestamp, class: Class, work: u64, times: u32) -> bool {
        let (queue, limits) = (&self.queues[class.index()], &self.config.classes[class.index()]);
        let delay = self.wait(now, queue.work().saturating_add(work));
        let is_within = queue.len() < limits.items_max as usize && delay <= limits.delay_max.saturating_mul(times);
        is_within || self.fits(now, class, work)
    }

    /// Whether there is room behind so many entries with so much work.
    fn fits_behind(&self, now: Timestamp, class: Class, (items, queued): (usize, u64), work: u64) -> bool {
        let limits = &self.config.classes[class.index()];
        let delay = self.wait(now, queued.saturating_add(work));
        // A single request is served even if it alone is longer than the bound, else it never would be.
        let empty_and_idle = items == 0 && self.wait(now, 0).is_zero();
        items < limits.items_max as usize && (delay <= limits.delay_max || empty_and_idle)
    }

    fn enqueue(&mut self, class: Class, entry: QueuedRequest<T>) {
        self.counts[class.index()].waiting += 1;
        self.queues[class.index()].push(entry);
    }

    fn overflow(&mut self, now: Timestamp, class: Class, entry: QueuedRequest<T>) -> OfferOutcome<T> {
        let limits = self.config.classes[class.index()];
        match limits.policy {
            // Where even an empty queue would have no room, the overload is in service and displacing is in vain.
            Policy::HeadDrop if self.fits_behind(now, class, (0, 0), entry.work) => {
                while !self.admits(now, class, entry.work)
                    && let Some(oldest) = self.queues[class.index()].pop()
                {
                    self.end(class, oldest, ShedReason::Displaced);
                }
                self.enqueue(class, entry);
                OfferOutcome::Queued
            }
            Policy::TailDrop | Policy::HeadDrop => self.drop(class, entry),
            Policy::Postpone
                if self.queues[class.index()].parked_len() < limits.parked_max as usize && !self.is_crowded(class) =>
            {
                let until = now + self.wait(now, self.queues[class.index()].work_with_parked());
                self.counts[class.index()].waiting += 1;
                self.queues[class.index()].park(entry);
                OfferOutcome::Parked { until }
            }
            Policy::Deny | Policy::Postpone => self.deny(now, class, entry, ShedReason::QueueFull),
        }
    }

    fn deny(&mut self, now: Timestamp, class: Class, entry: QueuedRequest<T>, reason: ShedReason) -> OfferOutcome<T> {
        self.counts[class.index()].denied += 1;
        let retry_after = self.backlog(class, now).max(Duration::from_nanos(entry.work));
        OfferOutcome::Denied { value: entry.first.value, reason, retry_after }
    }

    fn drop(&mut self, class: Class, entry: QueuedRequest<T>) -> OfferOutcome<T> {
        self.counts[class.index()].dropped += 1;
        OfferOutcome::Dropped { value: entry.first.value, reason: ShedReason::QueueFull }
    }

    /// Ends every request of an entry.
    fn end(&mut self, class: Class, entry: QueuedRequest<T>, reason: ShedReason) {
        for waiter in core::iter::once(entry.first).chain(entry.joined) {
            self.end_one(class, waiter.value, reason);
        }
    }

    fn end_one(&mut self, class: Class, value: T, reason: ShedReason) {
        let counts = &mut self.counts[class.index()];
        counts.waiting -= 1;
        match reason {
            ShedReason::Expired => counts.expired += 1,
            _ => counts.displaced += 1,
        }
        self.ended.push_back(EndedRequest { class, value, reason });
    }

    /// Parked requests move up as far as there is room; into an empty queue one always does.
    fn move_up(&mut self, now: Timestamp, class: Class) {
        while let Some(work) = self.queues[class.index()].parked_next()
            && (self.queues[class.index()].len() == 0 || self.fits(now, class, work))
        {
            self.queues[class.index()].unpark();
        }
    }

    /// Makes a job of an entry, for those of its requests that are still alive; `None` if none is.
    fn start(&mut self, now: Timestamp, class: Class, entry: QueuedRequest<T>) -> Option<TakenRequest<T>> {
        let enforce = self.config.deadlines == Deadlines::Enforce;
        let mut alive = Vec::with_capacity(entry.joined.len());
        let mut first = None;
        let arrived = entry.first.arrived;
        for waiter in core::iter::once(entry.first).chain(entry.joined) {
            if enforce && now > waiter.deadline {
                self.end_one(class, waiter.value, ShedReason::Expired);
            } else if first.is_none() {
                first = Some(waiter.value);
            } else {
                alive.push(waiter.value);
            }
        }
        let value = first?;
        let counts = &mut self.counts[class.index()];
        counts.waiting -= 1 + alive.len() as u64;
        counts.taken += 1 + alive.len() as u64;
        let joined = alive.len() as u32;
        let answers = self.config.classes[class.index()].answer_cost.saturating_mul(joined);
        // Only what is executed and answered is paid for.
        let work = entry.work.saturating_add(nanos(answers));
        self.turns.on_started(class, work);
        let job = AdmittedJob { class, joined, end: self.service.on_started(now, work) };
        Some(TakenRequest { job, value, joined: alive, queued: now.since(arrived) })
    }
}

const COST_SAMPLES: u64 = 16;
/// How many delay bounds a request with a promised place may find.
const PROMISED_ROOM: u32 = 5;
/// Service times are counted within these bounds.
const COST_MIN: Duration = Duration::from_micros(1);
const COST_MAX: Duration = Duration::from_secs(3600);
