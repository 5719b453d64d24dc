//! The request queue against a naive model, which remembers every request that waits and knows nothing of lanes, work or
//! estimates: whatever clients send and servers do, each request ends once, in a way that the model allows.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_control::admission::QueryKey;

use super::*;
use crate::machine::order::Shape;

const MS: Duration = Duration::from_millis(1);
const SERVERS: Servers = Servers { threads: 3, long_max: 1, worth: 2, apart_max: 0 };

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A client asks; equal questions have equal names.
    Ask {
        client: u64,
        class: Class,
        name: u64,
        is_shared: bool,
        patience_ms: u64,
        habit: Habit,
    },
    /// A server is free.
    Take,
    /// The oldest job ends after this time, with a result or without.
    Serve(u64),
    Cancel(u64),
    Pass(u64),
    /// Nobody is served any more, and everybody is told.
    Clear,
}

/// What a client says about pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Plain,
    /// Keeps appointments.
    Tickets,
    /// Says how often it wants to ask, in milliseconds.
    Wants(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let class = prop::sample::select(Class::ALL);
    let habit = prop_oneof![
        Just(Habit::Plain),
        Just(Habit::Tickets),
        (0..100_000u64).prop_map(Habit::Wants),
        Just(Habit::Wants(u64::MAX))
    ];
    let ask = (0..5u64, class, 1..6u64, any::<bool>(), 1..5_000u64, habit).prop_map(
        |(client, class, name, is_shared, patience_ms, habit)| Operation::Ask {
            client,
            class,
            name,
            is_shared,
            patience_ms,
            habit,
        },
    );
    prop_oneof![
        8 => ask,
        4 => Just(Operation::Take),
        3 => (0..400u64).prop_map(Operation::Serve),
        1 => (0..4_000u64).prop_map(Operation::Cancel),
        2 => (0..300u64).prop_map(Operation::Pass),
        1 => Just(Operation::Clear),
    ]
}

#[derive(Debug)]
struct Waiter {
    client: u64,
    key: Option<QueryKey>,
    deadline: Timestamp,
}

/// Every request that waits, by its number.
#[derive(Debug, Default)]
struct Model {
    waiting: BTreeMap<u64, Waiter>,
    running: Vec<Job>,
    /// Jobs of servers that were given up; they are given back at last.
    lost: Vec<Job>,
    offered: u64,
    ended: u64,
    /// The ticket that each client was given, and when it is to come.
    tickets: BTreeMap<u64, (Timestamp, Ticket)>,
}

struct World {
    queue: RequestQueue<u64>,
    model: Model,
    now: Timestamp,
    chance: Count,
}

/// Numbers that differ.
struct Count(u64);

impl rand_core::TryRng for Count {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Ok((self.0 >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(u64::from(self.try_next_u32()?) << 32 | u64::from(self.try_next_u32()?))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for byte in bytes {
            *byte = self.try_next_u32()? as u8;
        }
        Ok(())
    }
}

impl World {
    fn new() -> Self {
        let queue = RequestQueue::new(&PoolConfig::default(), SERVERS, TicketKey::new([3; 16])).unwrap();
        Self { queue, model: Model::default(), now: Timestamp::from_secs_f64(100.0), chance: Count(1) }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Ask { client, class, name, is_shared, patience_ms, habit } => {
                let key = is_shared.then_some(QueryKey((name + 100 * class.index() as u64).into()));
                self.ask(client, class, name, key, Duration::from_millis(patience_ms), habit);
            }
            Operation::Take => self.take(),
            Operation::Serve(millis) => {
                if !self.model.running.is_empty() {
                    self.queue.served(self.model.running.remove(0), Duration::from_millis(millis));
                }
            }
            Operation::Cancel(millis) => {
                if !self.model.running.is_empty() {
                    self.queue.cancelled(self.model.running.remove(0), Duration::from_millis(millis));
                }
            }
            Operation::Pass(millis) => self.now = self.now + Duration::from_millis(millis),
            Operation::Clear => {
                let all = self.queue.clear();
                assert_eq!(all.len(), self.model.waiting.len(), "everybody who waits is told");
                for number in all {
                    self.end(number);
                }
                self.model.lost.append(&mut self.model.running);
            }
        }
        for ended in self.queue.drain() {
            let number = match ended {
                EndedWait::Late(number) => {
                    let waiter = &self.model.waiting[&number];
                    assert!(waiter.deadline < self.now, "only who waited too long ends by itself: {waiter:?}");
                    number
                }
                EndedWait::Outdated(number) | EndedWait::Dropped(number) => {
                    panic!("{number} is neither old nor in the way")
                }
                EndedWait::SentAway(number, place) => {
                    let waiter = &self.model.waiting[&number];
                    assert!(waiter.key.is_none(), "equals are never sent away: {waiter:?}");
                    if let Some(ticket) = place.ticket {
                        self.model.tickets.insert(waiter.client, (self.now + place.retry_after, ticket));
                    }
                    number
                }
            };
            self.end(number);
        }
    }

    fn end(&mut self, number: u64) {
        assert!(self.model.waiting.remove(&number).is_some(), "{number} ends once");
        self.model.ended += 1;
    }

    fn ask(&mut self, client: u64, class: Class, name: u64, key: Option<QueryKey>, patience: Duration, habit: Habit) {
        self.model.offered += 1;
        let number = self.model.offered;
        let want = if let Habit::Wants(millis) = habit { Some(Duration::from_millis(millis)) } else { None };
        let due = self.model.tickets.get(&client).filter(|(at, _)| *at <= self.now).map(|(_, ticket)| *ticket);
        let ticket = due.filter(|_| habit == Habit::Tickets);
        let caller = Caller { client, want, ticket, accepts_tickets: habit == Habit::Tickets, ..Caller::default() };
        let hints = self.queue.hints(self.now, class, &caller);
        assert!(hints.permitted.is_some());
        assert_eq!((hints.stretch.is_some(), hints.interval.is_some()), (want.is_some(), want.is_some()));
        assert!(hints.stretch.is_none_or(|stretch| (1.0..=1000.0).contains(&stretch)), "{hints:?}");
        let shape = Shape { exact: name, kind: name, size: 0, own: 0 };
        let (kp, check, terms) = (KpPlace::default(), None, WaitTerms::default());
        let arrival = Arrival { class, key, kp, check, shape, patience, terms, value: number };
        let is_nobody_here = self.model.waiting.is_empty() && self.model.running.is_empty();
        match self.queue.offer(self.now, arrival, &caller, &hints, &mut self.chance) {
            Entered::Waits => {
                let waiter = Waiter { client, key, deadline: self.now + patience };
                self.model.waiting.insert(number, waiter);
            }
            Entered::Refused(value, hints) => {
                assert_eq!(value, number, "it comes back to whoever offered it");
                assert!(!is_nobody_here || habit == Habit::Tickets, "who comes alone is served");
                assert!(hints.retry_after.is_some_and(|after| after > Duration::ZERO), "{hints:?}");
                assert!(hints.ticket.is_none() || habit == Habit::Tickets, "nobody else knows what a ticket is");
                if let (Some(ticket), Some(after)) = (hints.ticket, hints.retry_after) {
                    self.model.tickets.insert(client, (self.now + after, ticket));
                }
                self.model.ended += 1;
            }
            Entered::Dropped(_) => panic!("nobody said drop-newest"),
        }
    }

    fn take(&mut self) {
        let Some(Taken { job, value, joined, queued }) = self.queue.take(self.now) else { return };
        assert!(self.model.running.len() < SERVERS.threads, "there was a free server");
        let first = &self.model.waiting[&value];
        let (key, client) = (first.key, first.client);
        assert!(queued <= self.now.since(Timestamp::ZERO));
        for number in std::iter::once(value).chain(joined.iter().copied()) {
            let waiter = &self.model.waiting[&number];
            assert!(waiter.deadline >= self.now, "nobody is served too late");
            assert!(number == value || (waiter.key == key && key.is_some()), "only equals share an execution");
            self.end(number);
        }
        assert!(client < 5);
        self.model.running.push(job);
    }

    /// What must hold whatever happened.
    fn invariants(&self) {
        let Model { waiting, offered, ended, .. } = &self.model;
        assert_eq!(*offered, ended + waiting.len() as u64, "every request waits or has ended");
        assert_eq!(self.queue.is_empty(), waiting.is_empty());
        assert!(self.queue.wants.len() <= 5 && self.queue.silent.len() == self.queue.wants.len());
        assert!((0.0..=1.0).contains(&self.queue.unpromised));
    }

    /// With all servers free again, whatever waits is served or has waited too long.
    fn come_to_rest(&mut self) {
        self.model.running.append(&mut self.model.lost);
        while !self.model.running.is_empty() {
            self.apply(Operation::Cancel(1));
        }
        for _ in 0..=self.model.waiting.len() {
            self.apply(Operation::Take);
            self.apply(Operation::Serve(1));
        }
        assert!(self.model.waiting.is_empty(), "{:?}", self.model.waiting);
        assert!(self.queue.is_empty());
    }
}

proptest! {
    #[test]
    fn every_request_ends_once_and_as_a_plain_list_would_allow(
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let mut world = World::new();
        for operation in operations {
            world.apply(operation);
            world.invariants();
        }
        world.come_to_rest();
        world.invariants();
    }
}

/// What waits is bounded for one client that sends without end, and for many.
#[test]
fn what_waits_is_bounded_whoever_sends() {
    for clients in [1, 100_000] {
        let mut world = World::new();
        for number in 0..200_000 {
            world.ask(number % clients, Class::Query, 1, None, MS * 10_000, Habit::Plain);
        }
        world.invariants();
        assert!(world.model.waiting.len() <= 65_536, "{} of {clients} clients wait", world.model.waiting.len());
    }
}
