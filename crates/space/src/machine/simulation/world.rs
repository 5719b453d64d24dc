//! Everything but the disk: what happens in which order, by seed, and what must hold after each step.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{Evaluation, Mask, QueryLimits, Snapshot, SpaceLimits, SubscriberId, Update, UpdateDraft};

use super::Dice;
use super::disk::Store;
use super::subscriber::{Data, SimulatedSubscriber, WantedQuery};
use crate::admission::SpaceAdmission;
use crate::limits::{GROUP_MAX, LINGER_TIME};
use crate::machine::condition::Condition;
use crate::machine::delegation::DelegationTerms;
use crate::machine::front_desk::{Control, FrontDesk, Offered, Side};
use crate::machine::notification::SpaceNotification;
use crate::machine::order::Taken;
use crate::machine::request::{AnswerDelivery, Form, Refused, ResumePoint, SpaceRequest, Watched};
use crate::machine::request_queue::Caller;
use crate::machine::task::{PendingRequest, Requester};
use crate::machine::writer::{ApartLimits, StoreHealth, Writer};
use crate::space_store::RestoredSpace;

/// What a seed lives through before it comes to rest.
const STEPS: usize = 800;
/// Notifications on their way to one connection.
pub(super) const ROOM: usize = 3;

/// What one request is about.
#[derive(Clone, Debug)]
pub(super) enum SimulatedRequest {
    Insert(u64, u64),
    Remove(u64, u64),
    /// So many at once that they are put there in pieces; in place of everything, or beside it.
    Load(Vec<(u64, u64)>, bool),
    /// Everything of one subject becomes that of another.
    Move(u64, u64),
    /// How many there are is said by one more.
    Count,
    /// With the version that was confirmed to somebody before.
    Read(u64),
    Subscribe(WantedQuery, u64),
    Resume(WantedQuery, u64, String),
}

/// Whoever waits for an answer.
#[derive(Debug)]
pub(super) struct SimulatedRequester {
    pub(super) number: u64,
    /// The connection that it was sent on, if its changes are made in order; 0: of none.
    pub(super) flow: u64,
    pub(super) what: SimulatedRequest,
    pub(super) is_gone: Cell<bool>,
    pub(super) is_withdrawn: Cell<bool>,
    pub(super) is_begun: Cell<bool>,
}

impl Requester for Rc<SimulatedRequester> {
    fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    fn begin(&self) -> bool {
        self.is_begun.set(true);
        !self.is_withdrawn.get()
    }

    fn submit(&self) {
        assert!(self.is_begun.get(), "nothing is handed over for a request that was not begun");
    }

    fn release(&mut self) {}
}

pub(super) type Asked = PendingRequest<Rc<SimulatedRequester>, u64>;

#[derive(Debug, Default)]
pub(super) struct SimulatedConnection {
    pub(super) queue: VecDeque<(SubscriberId, SpaceNotification)>,
    pub(super) waiting: Vec<SubscriberId>,
}

/// What has happened, to know that it did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SimulationCounts {
    pub(super) confirmed: u64,
    pub(super) unconfirmed: u64,
    pub(super) refused: u64,
    pub(super) read: u64,
    pub(super) notified: u64,
    pub(super) resumed: u64,
    pub(super) evaluated: u64,
    pub(super) full: u64,
    pub(super) pieces: u64,
    pub(super) loaded: u64,
    pub(super) moved: u64,
    pub(super) drafted: u64,
    pub(super) crashes: u64,
    pub(super) restarts: u64,
}

impl SimulationCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.confirmed += other.confirmed;
        self.unconfirmed += other.unconfirmed;
        self.refused += other.refused;
        self.read += other.read;
        self.notified += other.notified;
        self.resumed += other.resumed;
        self.evaluated += other.evaluated;
        self.full += other.full;
        self.pieces += other.pieces;
        self.loaded += other.loaded;
        self.moved += other.moved;
        self.drafted += other.drafted;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
    }
}

pub(super) struct SpaceWorld {
    pub(super) dice: Dice,
    pub(super) now: Timestamp,
    pub(super) store: Store,
    pub(super) is_disk_bad: bool,
    pub(super) desk: FrontDesk<Rc<SimulatedRequester>, u64>,
    pub(super) writer: Writer<Rc<SimulatedRequester>, u64>,
    pub(super) reading: Vec<(Taken<Asked>, Snapshot)>,
    pub(super) evaluation: Option<Evaluation>,
    pub(super) draft: Option<(UpdateDraft, Timestamp)>,
    pub(super) connections: BTreeMap<u64, SimulatedConnection>,
    /// The connections that clients have now. A number is never used again.
    pub(super) open: [u64; 3],
    pub(super) subscribers: Vec<SimulatedSubscriber>,
    /// Those that have lost their connection and may come back.
    pub(super) away: Vec<SimulatedSubscriber>,
    /// Those of them that have asked to go on.
    pub(super) returning: Vec<SimulatedSubscriber>,
    pub(super) pending: BTreeMap<u64, Rc<SimulatedRequester>>,
    pub(super) made: u64,
    /// The last change that was done of each connection whose changes are made in order.
    pub(super) done_of_flow: BTreeMap<u64, u64>,
    /// The plain model: the data after each version, and now.
    pub(super) states: BTreeMap<u64, Data>,
    pub(super) data: Data,
    /// The newest version that somebody was told is kept.
    pub(super) confirmed: u64,
    pub(super) seen: SimulationCounts,
}

fn limits() -> SpaceLimits {
    SpaceLimits { inline_steps_max: 0, ..SpaceLimits::default() }
}

fn desk() -> FrontDesk<Rc<SimulatedRequester>, u64> {
    FrontDesk::new(&SpaceAdmission::default(), [TicketKey::new([1; 16]), TicketKey::new([2; 16])]).unwrap()
}

/// So few are many here that most large changes take several pieces, and most updates that read are worked out beside.
fn writer(restored: RestoredSpace) -> Writer<Rc<SimulatedRequester>, u64> {
    let apart = ApartLimits { large_quads: 3, piece_steps: 2, inline_steps: 1, drafts_max: 2 };
    Writer::new(restored.space, restored.names, Some(StoreHealth::Fine)).with_apart(apart)
}

/// The data of a snapshot, plainly.
pub(in crate::machine) fn data_of(snapshot: &Snapshot) -> Data {
    let parse =
        |text: String| -> u64 { text.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap() };
    let value = |quad: oxrdf::Quad| match quad.object {
        oxrdf::Term::Literal(literal) => (parse(quad.subject.to_string()), literal.value().parse().unwrap()),
        other => panic!("{other}"),
    };
    snapshot.quads().map(value).collect()
}

impl SpaceWorld {
    pub(super) fn new(seed: u64) -> Self {
        let mut store = Store::new(seed);
        let restored = store.open(limits());
        let writer = writer(restored);
        let mut world = Self {
            dice: Dice::new(seed),
            now: Timestamp::from_secs_f64(1000.0),
            store,
            is_disk_bad: !seed.is_multiple_of(3),
            desk: desk(),
            writer,
            reading: Vec::new(),
            evaluation: None,
            draft: None,
            connections: (0..3).map(|number| (number, SimulatedConnection::default())).collect(),
            open: [0, 1, 2],
            subscribers: Vec::new(),
            away: Vec::new(),
            returning: Vec::new(),
            pending: BTreeMap::new(),
            made: 0,
            done_of_flow: BTreeMap::new(),
            states: BTreeMap::from([(0, Data::new())]),
            data: Data::new(),
            confirmed: 0,
            seen: SimulationCounts::default(),
        };
        world.desk.control(Control::Idle);
        world
    }

    pub(super) fn live(&mut self) {
        for _ in 0..STEPS {
            let micros = [50, 500, 5_000, 50_000][self.dice.below(4) as usize];
            self.now = self.now + Duration::from_micros(self.dice.below(micros));
            match self.dice.below(200) {
                0 => self.crash(),
                1 => self.panic(),
                2 if self.dice.one_in(4) => self.now = self.now + LINGER_TIME,
                3..7 if self.is_disk_bad => self.store.disturb(&mut self.dice),
                7..10 => self.lose_connection(),
                10..14 => self.leave(),
                14..24 => self.ask_about_subscription(),
                24..40 => self.read(),
                40..84 => self.change(),
                84..90 => self.change_much(),
                90..105 => self.write(),
                105..111 => self.evaluate(),
                111..115 => self.work_out(),
                115..130 => self.step_reader(),
                130..160 => self.hear(),
                _ => self.step_writer(),
            }
            self.check_bounds();
        }
    }

    /// Nothing fails any more; everything goes on until nothing is left to do. Then every view is the result of now, and
    /// everything that was confirmed is there after one more crash.
    pub(super) fn come_to_rest(&mut self) {
        self.store.mend();
        for _ in 0..20_000 {
            self.now = self.now + Duration::from_millis(1);
            self.write();
            self.desk.handle_stored();
            self.step_writer();
            self.step_reader();
            self.evaluate();
            self.work_out();
            self.hear();
            let is_heard = self.connections.values().all(|it| it.queue.is_empty() && it.waiting.is_empty());
            let is_idle = self.evaluation.is_none() && self.draft.is_none();
            if self.pending.is_empty() && is_heard && is_idle && self.store.is_stored() {
                break;
            }
        }
        for _ in 0..50 {
            self.step_writer();
            self.evaluate();
            self.hear();
        }
        assert!(self.pending.is_empty(), "every request is answered: {:?}", self.pending);
        let version = self.writer.version();
        for subscriber in &mut self.subscribers {
            subscriber.version = version;
            subscriber.check(&self.data);
        }
        self.crash();
        assert_eq!(self.writer.version(), version, "all of it was stored");
    }

    fn check_bounds(&self) {
        let (due, done, ready, outputs) = self.writer.sizes();
        assert!(due == 0 && outputs == 0 && done <= GROUP_MAX, "{due} due, {outputs} not taken, {done} in a group");
        let away = self.away.len() + self.returning.len();
        let subscriptions = self.subscribers.len() + away + self.pending.len();
        assert!(ready <= 64 + 4 * subscriptions, "{ready} ready of {subscriptions}");
        assert!(self.connections.values().all(|connection| connection.queue.len() <= ROOM));
    }

    // What clients do.

    pub(super) fn offer(&mut self, what: SimulatedRequest, ask: SpaceRequest<u64>) {
        self.made += 1;
        let (is_gone, is_withdrawn, is_begun) = (Cell::new(false), Cell::new(false), Cell::new(false));
        let client = self.dice.below(4);
        // Half of them send their changes one behind the other on one connection.
        let flow = if ask.is_change() && client < 2 { client + 1 } else { 0 };
        let visitor = Rc::new(SimulatedRequester { number: self.made, flow, what, is_gone, is_withdrawn, is_begun });
        self.pending.insert(self.made, Rc::clone(&visitor));
        let (class, (name, shape)) = (ask.class(), ask.names(0, (1, 2)));
        let name = name.map(Box::new);
        let until = self.now + [Duration::from_millis(20), Duration::from_secs(10)][self.dice.below(2) as usize];
        let task = PendingRequest {
            ask,
            class,
            name,
            began: self.now,
            until,
            accepts_partial: false,
            check: None,
            client: 0,
            flow,
            household: 0,
            delivery: AnswerDelivery::Whole,
            delegation: DelegationTerms {
                is_accepted: self.made.is_multiple_of(2),
                rank: (self.made % 3) as u8,
                client: 0,
            },
            hints: Hints::default(),
            requester: visitor,
        };
        let caller = Caller { client, flow, ..Caller::default() };
        match self.desk.offer(self.now, task, shape, &caller, &mut self.dice) {
            Offered::Waits(side) => {
                let late = self.desk.drain(side);
                self.answer_late(late);
            }
            Offered::Refused(task, refused) => drop(self.answer(task, &Err(refused))),
        }
    }

    fn change(&mut self) {
        let (s, o) = (self.dice.below(3), self.dice.below(6));
        let (what, verb) = match self.dice.below(3) {
            0 => (SimulatedRequest::Remove(s, o), "DELETE"),
            _ => (SimulatedRequest::Insert(s, o), "INSERT"),
        };
        let text = format!("{verb} DATA {{ <urn:s{s}> <urn:p> {o} }}");
        let update = Update::parse(&text, &QueryLimits::default()).unwrap();
        self.offer(what, SpaceRequest::Update(Box::new(update)));
    }

    fn read(&mut self) {
        let ask = SpaceRequest::Match { masks: vec![Mask::default()], form: Form::Ssap };
        self.offer(SimulatedRequest::Read(self.confirmed), ask);
    }

    fn ask_about_subscription(&mut self) {
        let connection = self.open[self.dice.below(3) as usize];
        if let Some(one) = self.away.pop() {
            let seen = Some(ResumePoint { name: one.name.clone(), sequence: one.sequence, round: None });
            let (what, name) = (Watched::Query(one.wanted.query()), format!("again-{}", self.made));
            let told = SimulatedRequest::Resume(one.wanted, connection, one.name.clone());
            self.returning.push(one);
            return self.offer(told, SpaceRequest::Subscribe { what, name, seen, outlet: Some(connection) });
        }
        if self.subscribers.len() >= 8 {
            let one = self.subscribers.remove(self.dice.below(8) as usize);
            self.desk.control(Control::Unsubscribe(one.id, one.connection));
            return;
        }
        let wanted = [WantedQuery::All, WantedQuery::One, WantedQuery::Count][self.dice.below(3) as usize];
        let (what, name) = (Watched::Query(wanted.query()), format!("name-{}", self.made));
        let ask = SpaceRequest::Subscribe { what, name, seen: None, outlet: Some(connection) };
        self.offer(SimulatedRequest::Subscribe(wanted, connection), ask);
    }

    /// Somebody does not wait any more, or withdraws what was not begun.
    fn leave(&mut self) {
        let nth = self.dice.below(self.pending.len().max(1) as u64) as usize;
        let Some(visitor) = self.pending.values().nth(nth) else { return };
        visitor.is_gone.set(true);
        // A question may be answered to nobody; only what would change something is withdrawn.
        if !matches!(visitor.what, SimulatedRequest::Read(_)) && !visitor.is_begun.get() && self.dice.one_in(2) {
            visitor.is_withdrawn.set(true);
        }
    }

    fn lose_connection(&mut self) {
        let slot = self.dice.below(3) as usize;
        let number = self.open[slot];
        self.connections.remove(&number);
        self.made += 1;
        self.open[slot] = 1000 + self.made;
        self.connections.insert(self.open[slot], SimulatedConnection::default());
        let (lost, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.subscribers).into_iter().partition(|one| one.connection == number);
        self.subscribers = left;
        for one in lost {
            // Some say so, of others it is found out.
            if self.dice.one_in(2) {
                self.desk.control(Control::Depart(one.id, number));
            }
            self.away.push(one);
        }
    }

    /// A client reads one thing from a connection.
    fn hear(&mut self) {
        let number = self.open[self.dice.below(3) as usize];
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let next = connection.queue.pop_front();
        if !connection.waiting.is_empty() {
            let waiting = std::mem::take(&mut connection.waiting);
            self.desk.control(Control::Call(waiting));
        }
        let Some((id, told)) = next else { return };
        let is_its = |one: &SimulatedSubscriber| one.id == id && one.connection == number;
        let Some(place) = self.subscribers.iter().position(is_its) else { return };
        self.seen.notified += 1;
        let one = &mut self.subscribers[place];
        if one.hear(&told) {
            one.check(&self.states[&one.version]);
        } else {
            self.subscribers.remove(place);
        }
    }

    // What goes wrong.

    fn crash(&mut self) {
        self.seen.crashes += 1;
        self.store.crash(&mut self.dice);
        self.pending.clear();
        self.draft = None;
        self.desk = desk();
        self.start();
    }

    /// The writer panics: whoever waits is told, and the space begins anew from its log while the front desk stays.
    fn panic(&mut self) {
        self.seen.restarts += 1;
        for task in self.desk.suspend(Condition::Restarting) {
            self.answer(task, &Err(Refused::Unavailable(Condition::Restarting)));
        }
        let is_stored = self.store.close();
        self.writer.abandon(is_stored);
        while let Some(reply) = self.writer.poll_reply() {
            self.desk.cancelled(reply.job, Side::Write, Duration::ZERO);
            self.answer(reply.task, &reply.outcome);
        }
        // Readers end what they have.
        for (taken, _) in std::mem::take(&mut self.reading) {
            for task in std::iter::once(taken.value).chain(taken.joined) {
                self.answer(task, &Err(Refused::Panicked));
            }
        }
        assert!(self.pending.is_empty(), "everybody is told: {:?}", self.pending);
        self.desk.resume();
        self.start();
    }

    /// What is there must be a state that once was, and none before what was confirmed.
    fn start(&mut self) {
        let restored = self.store.open(limits());
        let version = restored.space.version();
        assert!(version >= self.confirmed, "{version} is there, {} was confirmed", self.confirmed);
        self.data = data_of(&restored.space.snapshot());
        assert_eq!(self.states.get(&version), Some(&self.data), "version {version}");
        self.states.split_off(&(version + 1));
        self.writer = writer(restored);
        self.reading.clear();
        self.evaluation = None;
        self.subscribers.clear();
        self.away.clear();
        self.returning.clear();
        self.connections.values_mut().for_each(|connection| *connection = SimulatedConnection::default());
        self.desk.control(Control::Idle);
    }
}
