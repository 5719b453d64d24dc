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
    /// (request, class, latest time at which it may start)
    waiting: Vec<(u32, Class, Timestamp)>,
    jobs: Vec<Job>,
    next: u32,
    ended: u32,
}

impl Model {
    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Offer { class, key, deadline_ms } => self.offer(*class, *key, *deadline_ms),
            Operation::Take => self.take()?,
            Operation::Serve { millis } => {
                if let Some(job) = self.jobs.pop() {
                    self.pool.on_served(job, Duration::from_millis(*millis));
                }
            }
            Operation::Cancel => {
                if let Some(job) = self.jobs.pop() {
                    self.pool.on_cancelled(job);
                }
            }
            Operation::Pass { millis } => self.now = self.now + Duration::from_millis(*millis),
        }
        while let Some(ended) = self.pool.poll_ended() {
            let (_, class, deadline) = self.remove(ended.value)?;
            prop_assert_eq!(class, ended.class);
            prop_assert!(ended.reason == ShedReason::Displaced || self.now > deadline);
            self.ended += 1;
        }
        Ok(())
    }

    fn offer(&mut self, class: Class, key: Option<u8>, deadline_ms: Option<u64>) {
        let value = self.next;
        self.next += 1;
        let deadline = deadline_ms.map(Duration::from_millis);
        let request = Request { class, key: key.map(|key| Key(key.into())), deadline, value };
        match self.pool.offer(self.now, request) {
            Offered::Queued | Offered::Joined | Offered::Parked { .. } => {
                self.waiting.push((value, class, self.now + deadline.unwrap_or(Duration::from_millis(1800))));
            }
            Offered::Immediate(_) | Offered::Denied { .. } | Offered::Dropped { .. } => self.ended += 1,
        }
    }

    fn take(&mut self) -> Result<(), TestCaseError> {
        let alive = self.waiting.iter().any(|(_, _, deadline)| self.now <= *deadline);
        let Some(taken) = self.pool.take(self.now) else {
            // Invariant 17: work conserving.
            prop_assert!(!alive, "idle while something waits");
            return Ok(());
        };
        self.jobs.push(taken.job);
        for value in core::iter::once(taken.value).chain(taken.joined) {
            let (_, _, deadline) = self.remove(value)?;
            // Invariant 13: nothing is executed after its deadline.
            prop_assert!(self.now <= deadline);
            self.ended += 1;
        }
        Ok(())
    }

    fn remove(&mut self, value: u32) -> Result<(u32, Class, Timestamp), TestCaseError> {
        let position = self.waiting.iter().position(|(waiting, _, _)| *waiting == value);
        prop_assert!(position.is_some(), "request {value} ended twice");
        Ok(self.waiting.remove(position.unwrap_or_default()))
    }

    fn invariants(&self) -> Result<(), TestCaseError> {
        // Invariant 12: every request is accounted for, exactly once.
        prop_assert_eq!(self.next, self.ended + self.waiting.len() as u32);
        for class in Class::ALL {
            let counts = self.pool.counts(*class);
            let ended = counts.denied + counts.dropped + counts.expired + counts.displaced + counts.taken;
            prop_assert_eq!(counts.offered, ended + counts.waiting);
            let waiting = self.waiting.iter().filter(|(_, waiting, _)| waiting == class).count();
            prop_assert_eq!(counts.waiting, waiting as u64);
            // Invariant 14: both bounds, the delay up to one request and what joined.
            prop_assert!(self.pool.len(*class) <= 8);
            let queued = Duration::from_nanos(self.pool.queues[class.index()].work()) / self.pool.config.servers;
            let slack = self.pool.cost(*class).max(Duration::from_millis(100));
            prop_assert!(queued <= Duration::from_millis(100) + slack + Duration::from_micros(20) * self.next);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_request_ends_exactly_once(
        policy in prop::sample::select(Policy::ALL),
        servers in 1..4_u32,
        operations in prop::collection::vec(operation(), 1..300),
    ) {
        let pool = pool(policy, |config| {
            config.servers = servers;
            config.shared_max = 4;
            for class in &mut config.classes {
                class.items_max = 8;
                class.parked_max = 4;
            }
        });
        let mut model =
            Model { pool, now: at(1000), waiting: Vec::new(), jobs: Vec::new(), next: 0, ended: 0 };
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
            let request = Request { class, ..query(value as u32) };
            if matches!(pool.offer(at(0), request), Offered::Queued | Offered::Parked { .. }) {
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
