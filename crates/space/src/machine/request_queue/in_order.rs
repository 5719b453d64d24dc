//! Whoever sends one request behind the other is served in that order, whatever becomes of its name meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::names::HEARD_ENOUGH;
use super::tests::Fixed;
use super::*;

const WORK: Duration = Duration::from_millis(1);
const SERVERS: Servers = Servers { threads: 1, long_max: 1, worth: 1, apart_max: 0 };

/// Who asked, as what, and the number of the request.
type Sent = ((u64, u64), Class, u64);

struct Counter {
    queue: RequestQueue<Sent>,
    now: Timestamp,
    sent: u64,
    /// The last that was served of each client and class.
    last: BTreeMap<((u64, u64), usize), u64>,
}

impl Counter {
    fn new() -> Self {
        let queue = RequestQueue::new(&PoolConfig::default(), SERVERS, TicketKey::new([3; 16])).unwrap();
        Self { queue, now: Timestamp::from_nanos(1), sent: 0, last: BTreeMap::new() }
    }

    fn ask(&mut self, household: u64, client: u64, class: Class) {
        self.sent += 1;
        let value = ((household, client), class, self.sent);
        // Numbers of households are hashes of another kind than those of clients.
        let household = if household == 0 { 0 } else { household | 1 << 63 };
        let caller = Caller { client: household << 8 | client, household, ..Caller::default() };
        let shape = Shape { exact: 0, kind: 1, size: 1, own: 0 };
        let (kp, terms, patience) = (KpPlace::default(), WaitTerms::default(), Duration::from_secs(10));
        let hints = self.queue.hints(self.now, class, &caller);
        let arrival = Arrival { class, key: None, kp, check: None, shape, patience, terms, value };
        self.queue.offer(self.now, arrival, &caller, &hints, &mut Fixed);
    }

    /// Serves the next one; its number.
    fn serve(&mut self) -> Option<u64> {
        let Taken { job, value: (who, class, number), .. } = self.queue.take(self.now)?;
        self.now = self.now + WORK;
        self.queue.served(job, WORK);
        let before = self.last.insert((who, class.index()), number);
        assert!(before < Some(number), "{number} of {who:?} behind {before:?}, which came later");
        Some(number)
    }
}

#[test]
fn a_newcomer_that_becomes_known_while_it_waits_is_served_in_order() {
    let mut counter = Counter::new();
    for _ in 0..2 * HEARD_ENOUGH {
        counter.ask(1, 1, Class::Update);
    }
    let served: Vec<u64> = std::iter::from_fn(|| counter.serve()).collect();
    assert_eq!(served, (1..=u64::from(2 * HEARD_ENOUGH)).collect::<Vec<u64>>());
    // Nothing of it waits: it has a line of its own, and newcomers before it are others.
    for newcomer in 10..20 {
        counter.ask(1, newcomer, Class::Update);
    }
    counter.ask(1, 1, Class::Update);
    let last = counter.sent;
    let place = std::iter::from_fn(|| counter.serve()).position(|number| number == last);
    assert!(place.is_some_and(|place| place <= 1), "{place:?}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many requests, one behind the other.
    Ask(u64, u64, Class, u64),
    Serve(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // A query that only looks dear by its text stands with the others once its cost is known: it may overtake itself.
    let in_order = Class::ALL.iter().copied().filter(|class| *class != Class::AdvancedQuery).collect::<Vec<_>>();
    let ask = (0..3u64, 1..6u64, prop::sample::select(in_order), 1..8u64);
    prop_oneof![
        ask.prop_map(|(household, client, class, count)| Step::Ask(household, client, class, count)),
        (1..12u64).prop_map(Step::Serve),
    ]
}

proptest! {
    #[test]
    fn requests_of_one_client_and_kind_are_taken_in_the_order_in_which_they_came(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut counter = Counter::new();
        for step in steps {
            match step {
                Step::Ask(household, client, class, count) => (0..count).for_each(|_| counter.ask(household, client, class)),
                Step::Serve(count) => (0..count).for_each(|_| {
                    counter.serve();
                }),
            }
        }
        while counter.serve().is_some() {}
        prop_assert!(counter.queue.is_empty());
    }
}
