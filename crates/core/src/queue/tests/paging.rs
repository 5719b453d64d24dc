//! The same with a store: any sequence of newcomers, syncs, pages and departures, against plain lists.

use alloc::collections::{BTreeMap, BTreeSet};
use tidegate_wire_mqtt::QoS;

use super::*;
use crate::persist::Spot;

const WINDOW: usize = 500;

#[derive(Clone, Debug)]
enum Step {
    /// A message, of QoS 0 or 1.
    Offer(Sent, bool),
    Pop,
    /// What came until now is kept; of this part of it nobody says where.
    Sync(u8),
    /// A page is chosen, if one is wanted...
    Choose,
    /// ...and is read, but for this part of it.
    Fill(u8),
    DropPassing,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (sent(), prop::bool::weighted(0.8)).prop_map(|(sent, is_kept)| Step::Offer(sent, is_kept)),
        10 => Just(Step::Pop),
        5 => any::<u8>().prop_map(Step::Sync),
        5 => Just(Step::Choose),
        5 => any::<u8>().prop_map(Step::Fill),
        1 => Just(Step::DropPassing),
    ]
}

/// What is known of all messages, and where they should be.
struct World {
    queue: Queue,
    priority: Priority,
    waiting: BTreeMap<usize, (Sent, bool, Arc<Message>)>,
    unsynced: Vec<usize>,
    turn: u64,
    numbers: usize,
    job: Vec<(u64, Spot)>,
}

impl World {
    fn new(mode: PriorityMode) -> Self {
        let queue = Queue::default();
        let (waiting, unsynced, job) = (BTreeMap::new(), Vec::new(), Vec::new());
        // What has a bound is never on disk: one of them, which shares the flows of those without.
        let priority = priority_with(mode, |name| name == "normal");
        Self { queue, priority, waiting, unsynced, turn: 1, numbers: 0, job }
    }

    fn take(&mut self, step: &Step, bounds: Bounds) {
        match step {
            Step::Offer(sent, is_kept) => self.offer(sent, *is_kept, bounds),
            Step::Pop => drop(self.pop()),
            Step::Sync(part) => self.sync(*part),
            Step::Choose => self.choose(),
            Step::Fill(part) => self.fill(*part),
            Step::DropPassing => self.drop_passing(),
        }
        let bytes: usize = self.waiting.values().map(|(.., message)| message.size()).sum();
        assert_eq!((self.queue.len(), self.queue.bytes()), (self.waiting.len(), bytes));
    }

    fn offer(&mut self, sent: &Sent, is_kept: bool, bounds: Bounds) {
        self.numbers += 1;
        let number = self.numbers;
        let mut queued = queued(sent, number);
        // Subscriptions of that kind have a model of their own; here there are classes of it.
        queued.is_latest = false;
        if is_kept {
            (queued.qos, queued.place) = (QoS::AtLeastOnce, number as u64);
            queued.message.set_number(number as u64);
            queued.message.keep();
            self.unsynced.push(number);
        }
        self.waiting.insert(number, (sent.clone(), is_kept, Arc::clone(&queued.message)));
        let paging = Paging { window: WINDOW, turn: self.turn };
        let mut lost = Vec::new();
        self.queue.offer(queued, &self.priority, bounds, paging, |item, gone| lost.push((item, gone)));
        for (item, gone) in lost {
            let victim = number_in(&item);
            assert!(gone != Gone::Newest || victim == number);
            let (other, was_kept, _) = self.waiting.remove(&victim).unwrap();
            let flow = |sent: &Sent| (sent.publisher, sent.is_by_topic.then_some(sent.class));
            // One that stands in the place of an older one may be in the flow of another publisher.
            let is_latest = self.priority.on_full(ClassId::from_bits(other.class)) == OnFull::Latest;
            let is_own = flow(&other) == flow(sent) && !is_latest;
            assert!(is_kept || !was_kept || !is_own, "nothing acknowledged goes for QoS 0 of its own flow");
        }
    }

    /// None if there is nothing, or it is on disk.
    fn pop(&mut self) -> Option<usize> {
        let next = self.queue.next();
        let Some(queued) = self.queue.pop() else {
            assert!(next == NextMessage::OnDisk || self.waiting.is_empty(), "idle while something waits");
            return None;
        };
        assert_eq!(next, NextMessage::Message(queued.qos));
        let number = number_of(&queued);
        let (sent, is_kept, before) = self.waiting.remove(&number).unwrap();
        assert_eq!(queued.message.view().payload, before.view().payload);
        assert_eq!((queued.message.class(), queued.place), (before.class(), if is_kept { number as u64 } else { 0 }));
        let is_conflated = |sent: &Sent| self.priority.on_full(ClassId::from_bits(sent.class)) == OnFull::Latest;
        let overtaken = self.waiting.range(..number).find(|(_, (other, other_kept, _))| {
            (other.publisher, other.topic, other.is_by_topic) == (sent.publisher, sent.topic, sent.is_by_topic)
                && *other_kept == is_kept
                && !is_conflated(other)
        });
        assert!(overtaken.is_none() || is_conflated(&sent), "{number} before {overtaken:?}");
        Some(number)
    }

    fn sync(&mut self, part: u8) {
        for number in self.unsynced.drain(..) {
            if let Some((.., message)) = self.waiting.get(&number)
                && !is_chosen(number, part)
            {
                message.set_spot(Spot([number as u64, 1]));
            }
        }
        let turn = self.turn;
        self.turn += 1;
        self.queue.settle(|written| written <= turn, &self.priority, WINDOW);
        assert_eq!(self.queue.held_turn(), None);
    }

    fn choose(&mut self) {
        if self.job.is_empty() && self.queue.wants_page(WINDOW) {
            self.job = self.queue.choose(WINDOW, self.turn);
            assert!(!self.job.is_empty(), "nobody asks for nothing");
        }
    }

    fn fill(&mut self, part: u8) {
        let mut job = core::mem::take(&mut self.job);
        // Nobody says in which order they are found.
        if part % 2 == 1 {
            job.reverse();
        }
        for (place, Spot([number, _])) in job {
            assert_eq!(place, number);
            let number = number as usize;
            let lost = self.queue.fill(place, |class| {
                let (sent, _, before) = &self.waiting[&number];
                assert_eq!(before.class(), class);
                (!is_chosen(number, part)).then(|| queued(sent, number).message)
            });
            if let Some(lost) = lost {
                assert_eq!(lost.place, place);
                self.waiting.remove(&number);
            }
        }
        for job in 1..=self.turn {
            self.queue.end_job(job);
        }
    }

    fn drop_passing(&mut self) {
        let mut gone = BTreeSet::new();
        self.queue.drop_passing(|queued| assert!(gone.insert(number_of(&queued))));
        let passing = self.waiting.iter().filter(|(_, (_, is_kept, _))| !is_kept).map(|(number, _)| *number);
        assert_eq!(gone, passing.collect::<BTreeSet<usize>>());
        self.waiting.retain(|number, _| !gone.contains(number));
    }
}

/// One in 32 of them.
fn is_chosen(number: usize, part: u8) -> bool {
    number % 32 == usize::from(part)
}

fn number_in(item: &Item) -> usize {
    match item {
        Item::Message(queued) => number_of(queued),
        Item::Paged(paged) => paged.place as usize,
    }
}

const ROOM: Bounds = Bounds { messages_max: 1000, bytes_max: usize::MAX, class_bytes: usize::MAX, is_spool: false };
/// A message that fills the window.
const LARGE: Sent =
    Sent { publisher: 1, class: 0, is_by_topic: false, topic: 0, payload: WINDOW, rate: 0, colour: Colour::Entitled };

/// Everything that waits, in the order in which it leaves.
fn drained(world: &mut World) -> Vec<usize> {
    let mut order = Vec::new();
    while !world.waiting.is_empty() {
        world.choose();
        world.fill(255);
        order.extend(core::iter::from_fn(|| world.pop()));
    }
    order
}

/// A flooder has its messages on disk when somebody comes who is within its claim.
#[test]
fn what_is_on_disk_is_still_excess_when_others_come() {
    let mut world = World::new(PriorityMode::Practical);
    let flood = Sent { colour: Colour::Excess, ..LARGE };
    (0..20).for_each(|_| world.offer(&flood, true, ROOM));
    world.sync(255);
    assert!(world.queue.on_disk() >= 19);
    let (other, first) = (Sent { publisher: 2, ..LARGE }, world.numbers + 1);
    (0..10).for_each(|_| world.offer(&other, true, ROOM));
    world.sync(255);
    let order = drained(&mut world);
    // One message stood in memory before there was another flow, and one more of the flooder's flow is sparse.
    let late = order.iter().position(|number| *number == first + 9).unwrap();
    assert!(late <= 12, "all of the other before the flood: {order:?}");
}

/// A topic that tells the class: what an earlier life has left and what comes now are one flow.
#[test]
fn what_was_restored_is_not_overtaken_by_its_own_topic() {
    let mut world = World::new(PriorityMode::Practical);
    // So large that no flow sends two of them in one turn.
    let by_topic = Sent { class: 4, is_by_topic: true, topic: 1, payload: 60_000, ..LARGE };
    for place in 1..=6 {
        // Two flows, or it would be a plain line.
        let sent = if place == 1 { Sent { publisher: 2, ..LARGE } } else { by_topic.clone() };
        let message = queued(&sent, place).message;
        let (spot, class) = (Spot([place as u64, 1]), message.class());
        let paged = Paged::restored(spot, place as u64, message.size(), class, (QoS::AtLeastOnce, false));
        let origin = (sent.publisher, sent.is_by_topic);
        world.queue.restore(paged, &SubscriptionIds::None, origin, &world.priority);
        world.waiting.insert(place, (sent, true, message));
    }
    world.numbers = 6;
    world.offer(&Sent { payload: 0, ..by_topic }, true, ROOM);
    assert_eq!(world.queue.flows.as_ref().unwrap().places.len(), 2, "one of each publisher");
    let of_topic: Vec<usize> = drained(&mut world).into_iter().filter(|number| *number > 1).collect();
    assert_eq!(of_topic, [2, 3, 4, 5, 6, 7]);
}

/// Its class changes with its rate, and one of them is never on disk.
#[test]
fn a_bounded_class_does_not_overtake_what_is_held_back() {
    let mut world = World::new(PriorityMode::Practical);
    for class in [0, 2, 1, 0] {
        world.offer(&Sent { class, ..LARGE }, true, ROOM);
    }
    assert_eq!(world.queue.held_turn(), Some(1));
    world.sync(255);
    assert_eq!(world.queue.on_disk(), 3, "all but that one");
    assert_eq!(drained(&mut world), [1, 2, 3, 4]);
}

/// Bytes of a class that are held back count as well.
#[test]
fn a_bounded_class_keeps_its_bound_while_it_is_held_back() {
    let mut world = World::new(PriorityMode::Practical);
    let bounds = Bounds { class_bytes: 3 * WINDOW, ..ROOM };
    for class in [0, 2, 1, 1, 1, 1, 1, 1] {
        // Only this one is bounded.
        let class_bytes = if class == 1 { bounds.class_bytes } else { usize::MAX };
        world.offer(&Sent { class, ..LARGE }, true, Bounds { class_bytes, ..bounds });
    }
    world.sync(255);
    assert!(world.queue.class_bytes[1] > 0 && world.queue.class_bytes[1] <= bounds.class_bytes);
}

/// The oldest of its own flow goes, or nobody's that was acknowledged.
#[test]
fn what_another_was_promised_does_not_go_for_the_oldest_of_ones_own() {
    let mut world = World::new(PriorityMode::Practical);
    world.offer(&LARGE, true, ROOM);
    world.sync(255);
    // It has been on disk, and goes out next.
    world.choose();
    world.fill(255);
    let passing = Sent { publisher: 2, class: 2, payload: 0, ..LARGE };
    world.offer(&passing, false, ROOM);
    world.offer(&passing, false, Bounds { messages_max: 2, ..ROOM });
    assert!(world.waiting.keys().eq(&[1, 3]), "{:?}", world.waiting.keys());
}

/// With a window of gigabytes a page is as long as the queue. To look for each of its messages from the beginning would
/// take five billion steps here: this test would not come to its end.
#[test]
fn a_page_of_a_hundred_thousand_is_filled_from_its_end() {
    const MANY: u64 = 100_000;
    let (mut queue, priority) = (Queue::default(), priority_with(PriorityMode::Practical, |_| false));
    let message = queued(&LARGE, 1).message;
    for place in 1..=MANY {
        let paged =
            Paged::restored(Spot([place, 1]), place, message.size(), message.class(), (QoS::AtLeastOnce, false));
        queue.restore(paged, &SubscriptionIds::None, (1, false), &priority);
    }
    let window = message.size() * MANY as usize;
    assert!(queue.wants_page(window));
    let wanted = queue.choose(window, 1);
    assert_eq!((wanted.len() as u64, queue.on_disk() as u64), (MANY, MANY));
    for (place, _) in wanted.into_iter().rev() {
        // Some are lost, and those behind them are found all the same.
        let lost = queue.fill(place, |_| (place % 3 != 0).then(|| Arc::clone(&message)));
        assert_eq!(lost.map(|lost| lost.place), (place % 3 == 0).then_some(place));
    }
    assert_eq!(queue.fill(1, |_| panic!("it is here already")).map(|lost| lost.place), None);
    let places: Vec<u64> = core::iter::from_fn(|| queue.pop()).map(|queued| queued.place).collect();
    assert!(places.iter().copied().eq((1..=MANY).filter(|place| place % 3 != 0)));
    assert_eq!((queue.len(), queue.bytes(), queue.on_disk()), (0, 0, 0));
}

/// Only the newest of a topic is wanted, and the newer one was promised to nobody.
#[test]
fn qos_0_does_not_take_the_place_of_what_was_acknowledged() {
    let mut world = World::new(PriorityMode::Practical);
    let latest = Sent { class: 3, payload: 0, ..LARGE };
    for is_kept in [true, false, false, true] {
        world.offer(&latest, is_kept, ROOM);
    }
    assert!(world.waiting.keys().eq(&[3, 4]), "{:?}", world.waiting.keys());
    world.drop_passing();
    assert_eq!(drained(&mut world), [4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_paged_queue_agrees_with_a_plain_list(
        mode in prop::sample::select(vec![PriorityMode::Practical, PriorityMode::Paper, PriorityMode::Off]),
        messages_max in prop::sample::select(vec![6, 40, 1000]),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(mode);
        let bounds = Bounds { messages_max, bytes_max: usize::MAX, class_bytes: usize::MAX, is_spool: false };
        for step in &steps {
            world.take(step, bounds);
            prop_assert!(world.queue.len() <= messages_max);
        }
        // Everything that is left comes out.
        for _ in 0..4 * steps.len() + 4 {
            world.sync(255);
            world.choose();
            world.fill(255);
            while world.pop().is_some() {}
        }
        prop_assert!(world.waiting.is_empty());
        prop_assert_eq!((world.queue.len(), world.queue.bytes(), world.queue.on_disk()), (0, 0, 0));
        prop_assert_eq!(world.queue.here(), 0);
    }

    /// One publisher that is acknowledged: the queue is a plain line that loses its head, and memory is bounded.
    #[test]
    fn of_one_publisher_a_paged_queue_is_a_plain_line(
        messages_max in 1..60_usize,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut world = World::new(PriorityMode::Practical);
        let (bounds, mut line) = (Bounds { messages_max, bytes_max: usize::MAX, class_bytes: usize::MAX, is_spool: false }, VecDeque::new());
        for step in &steps {
            match step {
                Step::Offer(sent, _) => {
                    let sent = Sent { publisher: 1, class: 0, is_by_topic: false, payload: sent.payload / 10, ..*sent };
                    world.offer(&sent, true, bounds);
                    line.push_back(world.numbers);
                    if line.len() > messages_max {
                        line.pop_front();
                    }
                }
                Step::Pop => {
                    if let Some(number) = world.pop() {
                        prop_assert_eq!(line.pop_front(), Some(number));
                    }
                }
                Step::Sync(_) => {
                    world.sync(255);
                    // The window, a page that was read, and the message that was the last to fit into each.
                    let largest = world.waiting.values().map(|(.., message)| message.size()).max().unwrap_or(0);
                    prop_assert!(world.queue.here() <= 2 * (WINDOW + largest));
                }
                Step::Choose => world.choose(),
                Step::Fill(_) | Step::DropPassing => world.fill(255),
            }
            prop_assert!(world.waiting.keys().eq(line.iter()));
        }
    }
}
