//! Groups and notifications against a naive model, which keeps a plain list of what was done, and knows nothing of graphs,
//! snapshots or queues: whatever is asked, and however the disk answers, a group is confirmed as a whole and in its order,
//! nobody sees or is told what is not stored, and every subscriber is told every change with numbers without gaps.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{CancelToken, QueryLimits, SpaceLimits, Update};

use super::*;
use crate::admission::SpaceAdmission;
use crate::limits::{GROUP_MAX, GROUP_TIME};
use crate::machine::delegation::DelegationTerms;
use crate::machine::front_desk::{FrontDesk, NextWrite, Offered, Side};
use crate::machine::notification::SpaceNotification;
use crate::machine::request::{AnswerDelivery, Watched};
use crate::machine::request_queue::Caller;
use crate::machine::simulation::Dice;
use crate::machine::simulation::subscriber::{Data, SimulatedSubscriber, WantedQuery};
use crate::machine::simulation::world::data_of;

/// Notifications on their way to one connection.
const ROOM: usize = 2;
const CONNECTIONS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A value is there, or is not, after this; its request keeps the writer so many microseconds.
    Change {
        s: u64,
        o: u64,
        is_insertion: bool,
        micros: u64,
    },
    /// Somebody on this connection subscribes.
    Subscribe(u64),
    /// One of those who have does not want it any more, or loses its connection.
    Leave {
        nth: usize,
        says_so: bool,
    },
    /// A client reads one thing.
    Hear(u64),
    /// What has become of what was handed to the disk.
    Stored,
    Busy,
    Failed,
    Pass(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let change = (0..3u64, 0..4u64, any::<bool>(), 0..2_000u64)
        .prop_map(|(s, o, is_insertion, micros)| Operation::Change { s, o, is_insertion, micros });
    prop_oneof![
        10 => change,
        2 => (0..CONNECTIONS).prop_map(Operation::Subscribe),
        1 => (0..8usize, any::<bool>()).prop_map(|(nth, says_so)| Operation::Leave { nth, says_so }),
        8 => (0..CONNECTIONS).prop_map(Operation::Hear),
        5 => Just(Operation::Stored),
        2 => Just(Operation::Busy),
        1 => Just(Operation::Failed),
        2 => (0..7_000u64).prop_map(Operation::Pass),
    ]
}

/// Whoever waits for an answer.
#[derive(Debug)]
struct Number(u64);

impl Requester for Number {
    fn is_gone(&self) -> bool {
        false
    }

    fn begin(&self) -> bool {
        true
    }

    fn submit(&self) {}

    fn release(&mut self) {}
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Unconfirmed,
    Unwritable,
}

/// What was done, plainly.
#[derive(Debug)]
struct Model {
    data: Data,
    /// By version.
    states: BTreeMap<u64, Data>,
    /// The version that everybody may see.
    stored: u64,
    /// Requests that are done and wait for the disk, and since when; none if nothing does.
    group: Option<(Timestamp, Vec<u64>)>,
    hold: WriterWait,
    /// What each request is to be told now, in this order.
    told: VecDeque<(u64, Answer)>,
}

impl Model {
    /// A request was done: it waits with the others, begins a group if something is to be kept, or is answered.
    fn on_done(&mut self, number: u64, began: Timestamp, now: Timestamp, is_kept: bool) {
        if is_kept && self.group.is_none() {
            self.group = Some((began, Vec::new()));
            self.hold = WriterWait::Gathering;
        }
        let Some((since, done)) = &mut self.group else { return self.told.push_back((number, Answer::Done)) };
        done.push(number);
        if done.len() >= GROUP_MAX || now.since(*since) >= GROUP_TIME {
            self.hold = WriterWait::Settling;
        }
    }

    fn on_stored(&mut self) {
        if let Some((_, done)) = self.group.take() {
            self.told.extend(done.into_iter().map(|number| (number, Answer::Done)));
            self.stored = self.states.last_key_value().map_or(0, |(version, _)| *version);
        }
        self.hold = WriterWait::Free;
    }

    fn on_failed(&mut self) {
        if let Some((_, done)) = &mut self.group {
            self.told.extend(std::mem::take(done).into_iter().map(|number| (number, Answer::Unconfirmed)));
            self.hold = WriterWait::Stuck;
        }
    }
}

#[derive(Debug, Default)]
struct Line {
    queue: VecDeque<(SubscriberId, SpaceNotification)>,
    waiting: Vec<SubscriberId>,
}

struct World {
    desk: FrontDesk<Number, u64>,
    writer: Writer<Number, u64>,
    model: Model,
    now: Timestamp,
    made: u64,
    lines: BTreeMap<u64, Line>,
    subscribers: Vec<SimulatedSubscriber>,
    dice: Dice,
}

impl World {
    fn new() -> Self {
        let keys = [TicketKey::new([1; 16]), TicketKey::new([2; 16])];
        let model = Model {
            data: Data::new(),
            states: BTreeMap::from([(0, Data::new())]),
            stored: 0,
            group: None,
            hold: WriterWait::Free,
            told: VecDeque::new(),
        };
        Self {
            desk: FrontDesk::new(&SpaceAdmission::default(), keys).unwrap(),
            writer: Writer::new(GraphSpace::new(1, SpaceLimits::default()), Vec::new(), Some(StoreHealth::Fine)),
            model,
            now: Timestamp::from_secs_f64(100.0),
            made: 0,
            lines: (0..CONNECTIONS).map(|number| (number, Line::default())).collect(),
            subscribers: Vec::new(),
            dice: Dice::new(1),
        }
    }

    fn perform(&mut self, operation: Operation) {
        match operation {
            Operation::Change { s, o, is_insertion, micros } => {
                let verb = if is_insertion { "INSERT" } else { "DELETE" };
                let text = format!("{verb} DATA {{ <urn:s{s}> <urn:p> {o} }}");
                let update = Update::parse(&text, &QueryLimits::default()).unwrap();
                let mut data = self.model.data.clone();
                let is_change = if is_insertion { data.insert((s, o)) } else { data.remove(&(s, o)) };
                if self.ask(SpaceRequest::Update(Box::new(update)), Duration::from_micros(micros), is_change) {
                    self.model.data = data;
                    self.model.states.insert(self.writer.version(), self.model.data.clone());
                }
            }
            Operation::Subscribe(connection) => {
                let (what, name) = (Watched::Query(WantedQuery::All.query()), format!("name-{}", self.made));
                let ask = SpaceRequest::Subscribe { what, name, seen: None, outlet: Some(connection) };
                self.ask(ask, Duration::ZERO, false);
            }
            Operation::Leave { nth, says_so } => {
                if self.subscribers.is_empty() {
                    return;
                }
                let one = self.subscribers.remove(nth % self.subscribers.len());
                if says_so {
                    self.writer.handle_unsubscribe(one.id, &one.connection);
                } else {
                    self.writer.handle_departure(self.now, one.id, &one.connection);
                }
            }
            Operation::Hear(connection) => self.hear(connection),
            Operation::Stored => {
                self.model.on_stored();
                self.writer.handle_stored(self.now);
            }
            Operation::Busy => {
                if self.model.group.is_some() {
                    self.model.hold = WriterWait::Settling;
                }
                self.writer.handle_store_busy();
            }
            Operation::Failed => {
                self.model.on_failed();
                self.writer.handle_store_failed();
            }
            Operation::Pass(micros) => self.now = self.now + Duration::from_micros(micros),
        }
        self.answer();
        self.invariants();
    }

    /// Whether it was done. While a group settles nothing is taken.
    fn ask(&mut self, ask: SpaceRequest<u64>, takes: Duration, is_change: bool) -> bool {
        if self.model.hold == WriterWait::Settling {
            return false;
        }
        self.made += 1;
        let number = self.made;
        let taken = self.taken(number, ask);
        self.writer.handle_request(taken);
        let Some(work) = self.writer.poll_job() else {
            assert_eq!(self.model.hold, WriterWait::Stuck, "nothing is refused while the disk is well");
            self.model.told.push_back((number, Answer::Unwritable));
            return false;
        };
        let (before, began) = (self.writer.version(), self.now);
        assert!(self.writer.perform(began, work, CancelToken::default()));
        let mut written = 0;
        while let Some(write) = self.writer.poll_write() {
            self.writer.handle_written(write);
            written += 1;
        }
        assert_eq!((written == 1, self.writer.version() > before), (is_change, is_change), "{written} handed over");
        self.now = self.now + takes;
        self.writer.turn(self.now);
        self.model.on_done(number, began, self.now, is_change);
        true
    }

    fn taken(&mut self, number: u64, ask: SpaceRequest<u64>) -> Taken<PendingRequest<Number, u64>> {
        let (class, (name, shape)) = (ask.class(), ask.names(0, (1, 2)));
        let task = PendingRequest {
            ask,
            class,
            name: name.map(Box::new),
            began: self.now,
            until: self.now + Duration::from_secs(10),
            accepts_partial: false,
            check: None,
            client: 1,
            flow: 0,
            household: 1,
            delivery: AnswerDelivery::Whole,
            delegation: DelegationTerms::default(),
            hints: Hints::default(),
            requester: Number(number),
        };
        let offered = self.desk.offer(self.now, task, shape, &Caller::default(), &mut self.dice);
        assert!(matches!(offered, Offered::Waits(Side::Write)));
        match self.desk.next_write(self.now, WriterWait::Free, false, &[]) {
            NextWrite::Work(taken) => *taken,
            _ => panic!("it is the only one"),
        }
    }

    /// What is seen, answered and told, in this order.
    fn answer(&mut self) {
        if let Some((version, _)) = self.writer.poll_version() {
            assert_eq!(version, self.model.stored, "what everybody sees is stored");
        }
        while self.writer.poll_event().is_some() {}
        while let Some(WriterReply { task, outcome, job, cost, is_done, .. }) = self.writer.poll_reply() {
            let answer = match &outcome {
                Ok(_) => Answer::Done,
                Err(Refused::Unconfirmed) => Answer::Unconfirmed,
                Err(Refused::Unwritable) => Answer::Unwritable,
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(Some((task.requester.0, answer)), self.model.told.pop_front(), "each once, in its order");
            if is_done {
                self.desk.served(job, Side::Write, cost);
            } else {
                self.desk.cancelled(job, Side::Write, cost);
            }
            if let Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), .. }) = &outcome {
                let connection = *self.writer.connection(subscribed.id).unwrap();
                let one = SimulatedSubscriber::new(WantedQuery::All, connection, subscribed);
                one.check(&self.model.states[&one.version]);
                self.subscribers.push(one);
            }
        }
        while let Some(id) = self.writer.poll_ready() {
            assert!(self.model.group.is_none(), "nobody is told while a group waits for the disk");
            self.tell(id);
        }
    }

    fn tell(&mut self, id: SubscriberId) {
        while let Some(connection) = self.writer.connection(id).copied() {
            let line = self.lines.get_mut(&connection).unwrap();
            if line.queue.len() >= ROOM {
                return line.waiting.push(id);
            }
            let Some(told) = self.writer.poll_notification(id) else { return };
            if let SpaceNotification::Changed { version, .. } = &told {
                assert!(*version <= self.model.stored, "told of {version}, and {} is stored", self.model.stored);
            }
            line.queue.push_back((id, told));
        }
    }

    fn hear(&mut self, connection: u64) {
        let line = self.lines.get_mut(&connection).unwrap();
        let next = line.queue.pop_front();
        let waiting = std::mem::take(&mut line.waiting);
        self.writer.handle_room(waiting);
        let Some((id, told)) = next else { return };
        if let Some(one) = self.subscribers.iter_mut().find(|one| one.id == id && one.connection == connection) {
            assert!(one.hear(&told), "{told:?}: nothing ends by itself");
            one.check(&self.model.states[&one.version]);
        }
    }

    fn invariants(&self) {
        assert_eq!(self.writer.hold(), self.model.hold);
        assert_eq!(self.model.told, [], "everybody who is to be told was");
        assert_eq!(
            data_of(&self.writer.visible()),
            self.model.states[&self.model.stored],
            "what readers get is stored"
        );
        let (due, done, _, outputs) = self.writer.sizes();
        let waiting = self.model.group.as_ref().map_or(0, |(_, done)| done.len());
        assert_eq!((due, done, outputs), (0, waiting, 0));
        assert!(waiting <= GROUP_MAX);
    }

    /// Everything is stored and read: every view is the result of now.
    fn come_to_rest(&mut self) {
        self.perform(Operation::Stored);
        for _ in 0..100 {
            (0..CONNECTIONS).for_each(|connection| self.perform(Operation::Hear(connection)));
        }
        for one in &self.subscribers {
            one.check(&self.model.data);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn groups_and_notifications_are_what_a_plain_list_says(operations in prop::collection::vec(operation(), 1..120)) {
        let mut world = World::new();
        for operation in operations {
            world.perform(operation);
        }
        world.come_to_rest();
    }
}

#[test]
fn a_group_that_is_full_settles_and_is_answered_as_a_whole() {
    let mut world = World::new();
    for number in 0..GROUP_MAX as u64 {
        world.perform(Operation::Change { s: number, o: 0, is_insertion: true, micros: 0 });
        assert_eq!(world.writer.hold() == WriterWait::Settling, number + 1 == GROUP_MAX as u64);
    }
    world.perform(Operation::Change { s: 0, o: 9, is_insertion: true, micros: 0 });
    assert_eq!(world.made, GROUP_MAX as u64, "nothing is taken meanwhile");
    world.come_to_rest();
}
