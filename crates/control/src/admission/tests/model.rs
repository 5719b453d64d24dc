//! Invariants 12–14, 17 and 23 of CONTROL §11, against a model that keeps every request in a list.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Offer { class: Class, key: Option<u8>, deadline_ms: Option<u64> },
    Take,
    Serve { millis: u64 },
    Cancel,
    Pass { millis: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let deadline = prop::option::of(prop_oneof![0..500_u64, Just(u64::MAX)]);
    prop_oneof![
        6 => (prop::sample::select(Class::ALL), prop::option::of(0..3_u8), deadline)
            .prop_map(|(class, key, deadline_ms)| Operation::Offer { class, key, deadline_ms }),
        3 => Just(Operation::Take),
        2 => (0..100_u64).prop_map(|millis| Operation::Serve { millis }),
        1 => Just(Operation::Cancel),
        2 => (0..200_u64).prop_map(|millis| Operation::Pass { millis }),
    ]
}

/// Every request that waits, in a plain list: what the pool is measured against.
struct Model {
    pool: RequestPool<u32>,
    now: Timestamp,
    waiting: Vec<Waiting>,
    /// With the time at which each should end.
    jobs: Vec<(AdmittedJob, Timestamp)>,
    /// The highest mean service time so far, by class.
    cost_max: [Duration; Class::COUNT],
    next: u32,
    ended: u32,
}

#[derive(Clone, Copy)]
struct Waiting {
    value: u32,
    class: Class,
    /// Latest time at which it may start.
    deadline: Timestamp,
    /// What it should have added to the backlog: an execution or an answer.
    work: Duration,
}

impl Model {
    fn new(pool: RequestPool<u32>) -> Self {
        let cost_max = [Duration::ZERO; Class::COUNT];
        Self { pool, now: at(1000), waiting: Vec::new(), jobs: Vec::new(), cost_max, next: 0, ended: 0 }
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Offer { class, key, deadline_ms } => self.offer(*class, *key, *deadline_ms)?,
            Operation::Take if self.jobs.len() < self.pool.config.servers as usize => self.take()?,
            Operation::Take => {}
            Operation::Serve { millis } => {
                if let Some((job, _)) = self.jobs.pop() {
                    self.pool.on_served(job, Duration::from_millis(*millis));
                }
            }
            Operation::Cancel => {
                if let Some((job, _)) = self.jobs.pop() {
                    self.pool.on_cancelled(job);
                }
            }
            Operation::Pass { millis } => self.now = self.now + Duration::from_millis(*millis),
        }
        while let Some(ended) = self.pool.poll_ended() {
            let Waiting { class, deadline, .. } = self.remove(ended.value)?;
            prop_assert_eq!(class, ended.class);
            prop_assert!(ended.reason == ShedReason::Displaced || self.now > deadline);
            self.ended += 1;
        }
        Ok(())
    }

    fn offer(&mut self, class: Class, key: Option<u8>, deadline_ms: Option<u64>) -> Result<(), TestCaseError> {
        let value = self.next;
        self.next += 1;
        let deadline = deadline_ms.map(Duration::from_millis);
        let request = AdmissionRequest { class, key: key.map(|key| QueryKey(key.into())), deadline, value };
        let deadline = self.now + deadline.unwrap_or(Duration::from_millis(1800));
        let work = match self.pool.offer(self.now, request) {
            OfferOutcome::Queued => {
                // Invariant 14: what is let in waits within the bound, unless it is alone.
                let within = self.pool.backlog(class, self.now) <= DELAY_MAX;
                prop_assert!(within || self.pool.len(class) == 1, "let in beyond the bound");
                self.pool.cost(class)
            }
            OfferOutcome::Parked { .. } => self.pool.cost(class),
            OfferOutcome::Joined => ANSWER_COST,
            OfferOutcome::Immediate(_) | OfferOutcome::Denied { .. } | OfferOutcome::Dropped { .. } => {
                self.ended += 1;
                return Ok(());
            }
        };
        self.waiting.push(Waiting { value, class, deadline, work });
        Ok(())
    }

    fn take(&mut self) -> Result<(), TestCaseError> {
        let alive = self.waiting.iter().any(|waiting| self.now <= waiting.deadline);
        let Some(taken) = self.pool.take(self.now) else {
            // Invariant 17: work conserving.
            prop_assert!(!alive, "idle while something waits");
            return Ok(());
        };
        let end = Timestamp::from_nanos(taken.job.end);
        self.jobs.push((taken.job, end));
        for value in core::iter::once(taken.value).chain(taken.joined) {
            // Invariant 13: nothing is executed after its deadline.
            let deadline = self.remove(value)?.deadline;
            prop_assert!(self.now <= deadline);
            self.ended += 1;
        }
        Ok(())
    }

    fn remove(&mut self, value: u32) -> Result<Waiting, TestCaseError> {
        let position = self.waiting.iter().position(|waiting| waiting.value == value);
        prop_assert!(position.is_some(), "request {value} ended twice");
        Ok(self.waiting.remove(position.unwrap_or_default()))
    }

    /// The wait behind this work, by its definition: until then the servers have just done it, on top of what they are
    /// doing.
    fn is_wait(&self, wait: Duration, work: u64) -> bool {
        let mut rests: Vec<u64> = self.jobs.iter().map(|(_, end)| nanos(end.since(self.now))).collect();
        rests.resize(self.pool.config.servers as usize, 0);
        let done = |nanos: u64| rests.iter().map(|rest| nanos.saturating_sub(*rest)).sum::<u64>();
        let wait = nanos(wait);
        done(wait.saturating_sub(1)) <= work && work <= done(wait) && work < done(wait + 1)
    }

    fn invariants(&mut self) -> Result<(), TestCaseError> {
        // Invariant 12: every request is accounted for, exactly once.
        prop_assert_eq!(self.next, self.ended + self.waiting.len() as u32);
        for class in Class::ALL {
            let counts = self.pool.counts(*class);
            let ended = counts.denied + counts.dropped + counts.expired + counts.displaced + counts.taken;
            prop_assert_eq!(counts.offered, ended + counts.waiting);
            let waiting = self.waiting.iter().filter(|waiting| waiting.class == *class);
            prop_assert_eq!(counts.waiting, waiting.clone().count() as u64);
            // Invariant 14: all bounds, the delay up to one request.
            let queue = &self.pool.queues[class.index()];
            prop_assert!(queue.len() <= ITEMS_MAX && queue.parked_len() <= PARKED_MAX);
            prop_assert!(counts.waiting <= WAITERS_MAX.into());
            let cost_max = &mut self.cost_max[class.index()];
            *cost_max = (*cost_max).max(self.pool.cost(*class));
            let work_max = DELAY_MAX * self.pool.config.servers + *cost_max;
            prop_assert!(queue.work() <= nanos(work_max), "{} of {work_max:?}", queue.work());
            // The backlog is what waits, no more and no less, and what is left of the work in service.
            let work: Duration = waiting.map(|waiting| waiting.work).sum();
            prop_assert_eq!(queue.work_with_parked(), nanos(work));
            prop_assert!(self.is_wait(self.pool.backlog(*class, self.now), queue.work()));
        }
        let total = self.pool.queues.iter().map(ClassQueue::work_with_parked).sum();
        prop_assert!(self.is_wait(self.pool.backlog_total(self.now), total));
        Ok(())
    }
}

const DELAY_MAX: Duration = Duration::from_millis(100);
/// So much that the answers alone reach the bound.
const ANSWER_COST: Duration = Duration::from_millis(15);
const ITEMS_MAX: usize = 8;
const PARKED_MAX: usize = 4;
const WAITERS_MAX: u32 = 20;

proptest! {
    #[test]
    fn every_request_ends_exactly_once(
        policy in prop::sample::select(Policy::ALL),
        servers in 1..4_u32,
        operations in prop::collection::vec(operation(), 1..300),
    ) {
        let pool = pool(policy, |config| {
            config.servers = servers;
            config.shared_max = 16;
            for class in &mut config.classes {
                class.items_max = ITEMS_MAX as u32;
                class.delay_max = DELAY_MAX;
                class.parked_max = PARKED_MAX as u32;
                class.waiters_max = WAITERS_MAX;
                class.answer_cost = ANSWER_COST;
            }
        });
        let mut model = Model::new(pool);
        for operation in &operations {
            model.apply(operation)?;
            model.invariants()?;
        }
    }

    /// Requests of one class that do not join another are served in the order of arrival.
    #[test]
    fn each_class_is_first_in_first_out(classes in prop::collection::vec(prop::sample::select(Class::ALL), 1..100)) {
        let mut pool = pool(Policy::Postpone, |_| {});
        let mut waiting = [const { Vec::new() }; Class::COUNT];
        for (value, class) in classes.into_iter().enumerate() {
            let request = AdmissionRequest { class, ..query(value as u32) };
            if matches!(pool.offer(at(0), request), OfferOutcome::Queued | OfferOutcome::Parked { .. }) {
                waiting[class.index()].push(value as u32);
            }
        }
        let mut served = [const { Vec::new() }; Class::COUNT];
        while let Some(taken) = pool.take(at(0)) {
            served[taken.job.class.index()].push(taken.value);
            pool.on_served(taken.job, Duration::from_millis(10));
        }
        prop_assert_eq!(served, waiting);
    }
}
