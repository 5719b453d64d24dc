//! Any sequence of operations, against lists that are searched from end to end.

mod paging;
mod spool;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;
use tidegate_wire_mqtt::{Properties, QoS};

use super::flows::SHARED;
use super::*;
use crate::classes::{Class, ClassBy, ClassId, Classes};
use crate::gate::MessageBytes;
use crate::limits::FLOWS_MAX;
use crate::message::{Colour, Message, Precedence, Publication, RATE_UNKNOWN};
use crate::session::SubscriptionIds;

const PUBLISHERS: u64 = 4;
/// Everything in memory.
const NO_PAGING: Paging = Paging { window: usize::MAX, turn: 0 };
const BOUNDS: Bounds = Bounds { messages_max: 12, bytes_max: 2600, class_bytes: usize::MAX, is_spool: false };
const CLASS_BYTES: usize = 1100;

#[derive(Clone, Debug)]
struct Sent {
    publisher: u64,
    class: u8,
    is_by_topic: bool,
    topic: u8,
    payload: usize,
    rate: u32,
    colour: Colour,
}

#[derive(Clone, Debug)]
enum Operation {
    Offer(Sent),
    Pop,
}

fn sent() -> impl Strategy<Value = Sent> {
    (0..PUBLISHERS, 0..6_u8, any::<bool>(), 0..3_u8, 0..400_usize, 0..3_u32, any::<bool>()).prop_map(
        |(publisher, class, is_by_topic, topic, payload, rate, is_excess)| {
            // A class that the topic tells is the same for all messages to it.
            let class = if is_by_topic { 3 + topic } else { class };
            let colour = if is_excess { Colour::Excess } else { Colour::Entitled };
            Sent { publisher, class, is_by_topic, topic, payload, rate, colour }
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => sent().prop_map(Operation::Offer),
        5 => Just(Operation::Pop),
    ]
}

/// A class of each policy, all of them bounded.
fn priority(mode: PriorityMode) -> Priority {
    priority_with(mode, |_| true)
}

fn priority_with(mode: PriorityMode, is_capped: impl Fn(&str) -> bool) -> Priority {
    let class = |name, weight, on_full| {
        let (max_bytes, max_delay) = (CLASS_BYTES, Duration::from_secs(40));
        let (max_bytes, max_delay) = is_capped(name).then_some((max_bytes, max_delay)).unzip();
        Class { on_full, max_bytes, max_delay, ..Class::new(name, weight) }
    };
    let own = vec![
        class("high", 4, OnFull::DropLongest),
        class("normal", 2, OnFull::DropNewest),
        class("low", 1, OnFull::DropOldest),
        class("sys", 1, OnFull::Latest),
        class("a", 7, OnFull::DropOldest),
        class("b", 3, OnFull::Latest),
    ];
    Priority { mode, by: ClassBy::Both, classes: Classes::new(own).unwrap() }
}

fn queued(sent: &Sent, number: usize) -> Queued {
    let topic = format!("{}/{}", u8::from(sent.is_by_topic), sent.topic);
    // The number is in front, so that it can be told again.
    let payload = format!("{number:<0$}", 8 + sent.payload);
    let publication = Publication {
        topic: &topic,
        payload: payload.as_bytes(),
        properties: Properties::EMPTY,
        qos: QoS::AtMostOnce,
        retain: false,
        expires: None,
        origin: sent.publisher,
        standing: Precedence {
            is_by_topic: sent.is_by_topic,
            rate: if sent.rate == 0 { RATE_UNKNOWN } else { sent.rate },
            colour: sent.colour,
            ..Precedence::of(ClassId::from_bits(sent.class))
        },
    };
    let message = Arc::new(Message::new(&publication, &MessageBytes::default()));
    let since = Timestamp::from_secs_f64(number as f64);
    let (ids, is_latest) = (SubscriptionIds::None, is_of_latest_subscription(sent));
    let colour = sent.colour;
    Queued { message, qos: QoS::AtMostOnce, retain: false, ids, place: 0, since, is_latest, colour }
}

/// To the last topic there is a subscription that wants only the newest, whatever the class.
fn is_of_latest_subscription(sent: &Sent) -> bool {
    sent.topic == 2
}

fn here(item: Item) -> Queued {
    match item {
        Item::Message(queued) => queued,
        Item::Paged(paged) => panic!("{paged:?} without paging"),
    }
}

fn number_of(queued: &Queued) -> usize {
    core::str::from_utf8(queued.message.view().payload).unwrap().trim().parse().unwrap()
}

/// What is known of a message that waits.
#[derive(Clone, Debug)]
struct Known {
    number: usize,
    sent: Sent,
    size: usize,
}

#[derive(Default)]
struct Model {
    waiting: Vec<Known>,
    bytes: usize,
    offered: usize,
    gone: usize,
}

impl Model {
    fn flow(known: &Known) -> (u64, Option<u8>) {
        (known.sent.publisher, known.sent.is_by_topic.then_some(known.sent.class))
    }

    fn flow_bytes(&self, flow: (u64, Option<u8>)) -> usize {
        self.waiting.iter().filter(|known| Self::flow(known) == flow).map(|known| known.size).sum()
    }

    fn class_bytes(&self, class: usize) -> usize {
        let of_class = self.waiting.iter().filter(|known| usize::from(known.sent.class) == class);
        of_class.map(|known| known.size).sum()
    }

    fn remove(&mut self, number: usize) -> Known {
        let place = self.waiting.iter().position(|known| known.number == number).unwrap();
        let known = self.waiting.remove(place);
        self.bytes -= known.size;
        self.gone += 1;
        known
    }

    fn offer(&mut self, queue: &mut Queue, priority: &Priority, sent: &Sent) {
        self.offered += 1;
        let (number, message) = (self.offered, queued(sent, self.offered));
        let on_full = priority.on_full(ClassId::from_bits(sent.class));
        let (mut lost, class) = (Vec::new(), usize::from(sent.class));
        let bounds = Bounds { class_bytes: priority.bytes_max(ClassId::from_bits(sent.class)), ..BOUNDS };
        let known = Known { number, sent: sent.clone(), size: message.message.size() };
        queue.offer(message, priority, bounds, NO_PAGING, |item, loss| lost.push((number_of(&here(item)), loss)));
        self.bytes += known.size;
        self.waiting.push(known.clone());
        for (number, loss) in lost {
            match loss {
                Gone::Newest => {
                    assert_eq!(number, self.offered);
                    self.remove(number);
                    let is_full =
                        self.waiting.len() >= BOUNDS.messages_max || self.bytes + known.size > BOUNDS.bytes_max;
                    assert!(is_full && on_full == OnFull::DropNewest);
                }
                Gone::Oldest => {
                    // Of its flow the oldest that does not stand in the place of an older one.
                    let victim = self.remove(number);
                    let longest = self.waiting.iter().map(|known| self.flow_bytes(Self::flow(known))).max();
                    // One that takes the place of another may be larger.
                    assert!(on_full != OnFull::DropNewest || Self::is_conflated(&known, priority));
                    if on_full == OnFull::DropLongest && priority.mode == PriorityMode::Practical {
                        let length = self.flow_bytes(Self::flow(&victim)) + victim.size + SLACK;
                        assert!(
                            length * 9 >= longest.unwrap_or(0).saturating_sub(known.size) * 8,
                            "{length} {longest:?}"
                        );
                    }
                }
                Gone::ClassBytes => {
                    assert!(self.class_bytes(class) > bounds.class_bytes, "for its own class");
                    let victim = self.remove(number);
                    assert_eq!(usize::from(victim.sent.class), class);
                    let is_newest = number == self.offered;
                    let may_evict = !matches!(on_full, OnFull::DropNewest | OnFull::Refuse);
                    assert!(is_newest || may_evict || Self::is_conflated(&known, priority));
                }
                Gone::Conflated => {
                    assert!(Self::is_conflated(&known, priority));
                    let victim = self.remove(number);
                    assert_eq!((victim.sent.topic, victim.sent.is_by_topic), (sent.topic, sent.is_by_topic));
                }
            }
        }
    }

    fn pop(&mut self, queue: &mut Queue, priority: &Priority) {
        let next = queue.next();
        let Some(queued) = queue.pop() else {
            return assert!(self.waiting.is_empty(), "idle while something waits");
        };
        assert_eq!(next, NextMessage::Message(queued.qos));
        let number = number_of(&queued);
        let known = self.remove(number);
        // To one topic, nobody overtakes itself.
        let earlier = self.waiting.iter().find(|other| {
            other.number < number
                && other.sent.publisher == known.sent.publisher
                && (other.sent.topic, other.sent.is_by_topic) == (known.sent.topic, known.sent.is_by_topic)
        });
        if !Self::is_conflated(&known, priority) {
            assert!(
                earlier.is_none_or(|earlier| Self::is_conflated(earlier, priority)),
                "{known:?} before {earlier:?}"
            );
        }
    }

    /// It may stand in the place of an older one of another publisher.
    fn is_conflated(known: &Known, priority: &Priority) -> bool {
        let is_latest = priority.on_full(ClassId::from_bits(known.sent.class)) == OnFull::Latest;
        is_latest || is_of_latest_subscription(&known.sent)
    }

    fn invariants(&self, queue: &Queue, is_uncapped: bool) {
        for by_topic in [true, false] {
            let is_it = |known: &&Known| is_of_latest_subscription(&known.sent) && known.sent.is_by_topic == by_topic;
            assert!(self.waiting.iter().filter(is_it).count() <= 1, "of each such topic the newest");
        }
        assert_eq!((queue.len(), queue.bytes()), (self.waiting.len(), self.bytes));
        assert_eq!(self.offered, self.gone + queue.len());
        assert!(!(queue.line_flow.is_some() && queue.flows.is_some()), "a line, or flows");
        for class in 0..CLASSES_MAX {
            assert_eq!(queue.class_bytes[class], self.class_bytes(class));
            assert!(class > 5 || is_uncapped || queue.class_bytes[class] <= CLASS_BYTES);
        }
        assert!(queue.latest.passing.len() <= 6, "one of each topic");
        assert!(queue.latest.kept.is_empty());
    }
}

/// Conflation changes the size of a message under way, and the scheduler counts what it was.
const SLACK: usize = 4 * 400;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_queue_agrees_with_a_plain_list(
        mode in prop::sample::select(vec![PriorityMode::Practical, PriorityMode::Paper, PriorityMode::Off]),
        operations in prop::collection::vec(operation(), 1..150),
    ) {
        let (mut queue, mut model, priority) = (Queue::default(), Model::default(), priority(mode));
        let is_uncapped = mode == PriorityMode::Off;
        for operation in &operations {
            match operation {
                Operation::Offer(sent) => model.offer(&mut queue, &priority, sent),
                Operation::Pop => model.pop(&mut queue, &priority),
            }
            model.invariants(&queue, is_uncapped);
            prop_assert!(queue.len() <= BOUNDS.messages_max);
        }
        while queue.len() > 0 {
            model.pop(&mut queue, &priority);
        }
        model.invariants(&queue, is_uncapped);
    }

    #[test]
    fn what_waited_too_long_goes_and_nothing_else(
        operations in prop::collection::vec(operation(), 1..80),
        wait in 0..120_usize,
    ) {
        let (mut queue, mut model) = (Queue::default(), Model::default());
        let priority = priority(PriorityMode::Practical);
        for operation in &operations {
            // One that was replaced is newer than those behind it, and hides them until it goes.
            if let Operation::Offer(sent) = operation
                && priority.on_full(ClassId::from_bits(sent.class)) != OnFull::Latest
                && !is_of_latest_subscription(sent)
            {
                model.offer(&mut queue, &priority, sent);
            }
        }
        let now = Timestamp::from_secs_f64((model.offered + wait) as f64);
        let next = queue.drop_overdue(&priority, now, usize::MAX, |lost| {
            let known = model.remove(number_of(&lost));
            assert!(known.number as u64 + 40 <= (model.offered + wait) as u64);
        });
        // All have the same time to wait, and each flow is in order.
        let left = model.waiting.iter().map(|known| known.number).min();
        prop_assert!(left.is_none_or(|number| number + 40 > model.offered + wait));
        prop_assert_eq!(next, left.map(|number| Timestamp::from_secs_f64((number + 40) as f64)));
        model.invariants(&queue, false);
    }
}

#[test]
fn one_flow_is_a_line_and_the_second_makes_the_scheduler() {
    let priority = priority(PriorityMode::Practical);
    let sent = |publisher| Sent {
        publisher,
        class: 0,
        is_by_topic: false,
        topic: 0,
        payload: 0,
        rate: 0,
        colour: Colour::Entitled,
    };
    let mut queue = Queue::default();
    for number in 0..3 {
        queue.offer(queued(&sent(1), number), &priority, BOUNDS, NO_PAGING, |_, _| panic!("there is room"));
    }
    assert!(queue.flows.is_none());
    queue.offer(queued(&sent(2), 3), &priority, BOUNDS, NO_PAGING, |_, _| panic!("there is room"));
    assert!(queue.flows.is_some() && queue.line.is_empty());
    while queue.pop().is_some() {}
    assert!(queue.flows.is_none(), "and all of it goes with the last message");
}

#[test]
fn more_publishers_than_places_keep_their_order() {
    let mut flows = Flows::new(PriorityMode::Practical).unwrap();
    let flow = |publisher| QueueFlow::Publisher(publisher, None);
    let push = |flows: &mut Flows, publisher, number| {
        let sent =
            Sent { publisher, class: 0, is_by_topic: false, topic: 0, payload: 0, rate: 0, colour: Colour::Entitled };
        let place = QueuePlace {
            flow: flow(publisher),
            size: 100,
            weight: 1,
            rate: Some(0),
            parent: 0,
            claim: Entitlement::Entitled,
        };
        assert!(flows.push(place, WaitingCopy::Message(queued(&sent, number))).is_none());
    };
    let many = u64::from(FLOWS_MAX);
    for publisher in 0..many + 10 {
        push(&mut flows, publisher, 0);
    }
    assert_eq!(flows.scheduler.flow_len(SHARED), 10, "no place of their own");
    // One place is free again, and a shared one goes on where its first message waits.
    flows.scheduler.evict(flows.places[&flow(7)]);
    push(&mut flows, many + 3, 1);
    assert_eq!(flows.scheduler.flow_len(SHARED), 11);
    while flows.scheduler.evict(SHARED).is_some() {}
    push(&mut flows, many + 3, 2);
    assert_eq!(flows.scheduler.flow_len(SHARED), 0, "it has the place of one that had nothing waiting");
    assert!(flows.places.contains_key(&flow(many + 3)) && !flows.places.contains_key(&flow(7)));
}
