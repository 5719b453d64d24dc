//! Broker and clients in virtual time: the front desk and the writer on one side, the client library's watches on the other,
//! and lines between them on which everything takes its time, and some notifications get lost.
//!
//! What is checked is what a reader may rely on: whoever is delegated sees in the end what everybody sees, nothing is told as
//! lost that was not, and what was lost is told.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use oxrdf::Variable;
use tidegate_client::session::row::{Delta, Row, Term};
use tidegate_client::session::watch::{Attempt, ChangeDelivery, Input, Watch, WatchAction, WatchPlan};
use tidegate_client::{Level, PacerConfig};
use tidegate_control::Timestamp;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::{Asks, Delegate, Hints};
use tidegate_graph::{CancelToken, GraphSpace, Query, QueryLimits, SpaceLimits, SubscriberId, Update};

use super::{DelegationConfig, DelegationTerms, LOOK_INTERVAL};
use crate::admission::SpaceAdmission;
use crate::machine::front_desk::{FrontDesk, NextWrite, Offered, Side};
use crate::machine::notification::SpaceNotification;
use crate::machine::request::{AnswerDelivery, Begun, ResponseBody, ResumePoint, SpaceRequest, Subscribed, Watched};
use crate::machine::request_queue::Caller;
use crate::machine::simulation::Dice;
use crate::machine::task::{PendingRequest, Requester};
use crate::machine::writer::{Writer, WriterReply};

/// A change every step, of so many rows.
const STEP: Duration = Duration::from_millis(20);
const ROWS: u64 = 3;
const CLIENTS: usize = 12;
const QUERY: &str = "SELECT ?o { <urn:s> <urn:p> ?o }";

/// Whom an answer is for, and what it answers.
#[derive(Clone, Debug)]
enum RequestSender {
    Editor,
    Watching { number: usize, attempt: Attempt, is_check: bool },
}

impl Requester for Rc<RequestSender> {
    fn is_gone(&self) -> bool {
        false
    }

    fn begin(&self) -> bool {
        true
    }

    fn submit(&self) {}

    fn release(&mut self) {}
}

struct DelegableClient {
    watch: Watch,
    terms: DelegationTerms,
    /// What the broker calls its subscription.
    names: BTreeMap<Attempt, (String, SubscriberId)>,
    live: Attempt,
    up: VecDeque<(Timestamp, WatchAction)>,
    down: VecDeque<(Timestamp, Input)>,
    lost: u32,
    changes: u32,
}

struct DelegationWorld {
    dice: Dice,
    now: Timestamp,
    desk: FrontDesk<Rc<RequestSender>, u64>,
    writer: Writer<Rc<RequestSender>, u64>,
    clients: Vec<DelegableClient>,
    made: u64,
    value: u64,
    /// One notification in so many gets lost.
    lossy: Option<u64>,
    dropped: u64,
}

fn row(variables: &[Variable], row: &tidegate_graph::Row) -> Row {
    let term = |term: &oxrdf::Term| match term {
        oxrdf::Term::Literal(literal) => {
            Term::Literal { text: literal.value().to_owned(), datatype: None, language: None }
        }
        other => panic!("{other}"),
    };
    Row::new(variables.iter().zip(row.iter()).filter_map(|(name, it)| Some((name.as_str().into(), term(it.as_ref()?)))))
}

fn rows(all: &[tidegate_graph::Row]) -> Vec<Row> {
    let variables = [Variable::new_unchecked("o")];
    all.iter().map(|it| row(&variables, it)).collect()
}

impl DelegationWorld {
    /// Every fourth is of the most important, every other of the rest says that it accepts delegation.
    fn new(seed: u64, level: Level, lossy: Option<u64>) -> Self {
        let mut dice = Dice::new(seed);
        let now = Timestamp::from_secs_f64(1000.0);
        let pacer = PacerConfig { level, ..PacerConfig::default() }.build().unwrap();
        let check_timeout = Duration::from_secs(2);
        let plan = Arc::new(WatchPlan { pacer, delivery: ChangeDelivery::Push, check_timeout });
        let client = |number: usize| {
            let mut watch = Watch::new(&plan, now, &mut dice);
            watch.allow_missed();
            let rank = if number.is_multiple_of(4) { 0 } else { 8 };
            let terms = DelegationTerms { is_accepted: !number.is_multiple_of(3), rank, client: 0 };
            let (up, down) = (VecDeque::new(), VecDeque::new());
            DelegableClient { watch, terms, names: BTreeMap::new(), live: Attempt(0), up, down, lost: 0, changes: 0 }
        };
        let clients = (0..CLIENTS).map(client).collect();
        let keys = [TicketKey::new([1; 16]), TicketKey::new([2; 16])];
        Self {
            now,
            desk: FrontDesk::new(&SpaceAdmission::default(), keys).unwrap(),
            writer: Writer::new(GraphSpace::new(1, SpaceLimits::default()), Vec::new(), None)
                .with_delegation(&DelegationConfig { load_min: 0.0, ..DelegationConfig::default() }),
            clients,
            made: 0,
            value: 0,
            lossy,
            dropped: 0,
            dice,
        }
    }

    fn run(&mut self, time: Duration, wait: Duration, is_changing: bool) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + if is_changing { STEP } else { 10 * STEP };
            if is_changing {
                self.change();
            }
            for number in 0..CLIENTS {
                self.send(number);
            }
            if self.writer.poll_look().is_some_and(|look| self.now >= look) {
                self.writer.look(self.now, wait);
            }
            self.serve();
            for number in 0..CLIENTS {
                self.hear(number);
            }
        }
    }

    fn change(&mut self) {
        let list = |value: u64| (0..ROWS).map(|row| (value * ROWS + row).to_string()).collect::<Vec<_>>().join(" , ");
        let (before, after) = (list(self.value), list(self.value + 1));
        self.value += 1;
        let text = format!("DELETE DATA {{ <urn:s> <urn:p> {before} }} ; INSERT DATA {{ <urn:s> <urn:p> {after} }}");
        let update = Update::parse(&text, &QueryLimits::default()).unwrap();
        self.offer(SpaceRequest::Update(Box::new(update)), RequestSender::Editor, DelegationTerms::default());
    }

    fn offer(&mut self, ask: SpaceRequest<u64>, sender: RequestSender, delegation: DelegationTerms) {
        let (class, (_, shape)) = (ask.class(), ask.names(0, (1, 2)));
        let (began, until) = (self.now, self.now + Duration::from_secs(10));
        let (name, accepts_partial, check, client, flow) = (None, false, None, 0, 0);
        let (hints, requester) = (Hints::default(), Rc::new(sender));
        let task = PendingRequest {
            ask,
            class,
            name,
            began,
            until,
            accepts_partial,
            check,
            client,
            flow,
            household: 0,
            delivery: AnswerDelivery::Whole,
            delegation,
            hints,
            requester,
        };
        let caller = Caller { client: self.made, ..Caller::default() };
        let offered = self.desk.offer(self.now, task, shape, &caller, &mut self.dice);
        assert!(matches!(offered, Offered::Waits(Side::Write)), "{offered:?}");
    }

    /// What a client has sent arrives at the broker.
    fn send(&mut self, number: usize) {
        while self.clients[number].up.front().is_some_and(|(at, _)| *at <= self.now) {
            let client = &mut self.clients[number];
            let Some((_, action)) = client.up.pop_front() else { return };
            let (attempt, resume, asks, is_check): (_, _, Asks, bool) = match action {
                WatchAction::Subscribe { attempt, resume, asks } => (attempt, resume, asks, false),
                WatchAction::Check { attempt, since, asks, .. } => (attempt, since, asks, true),
            };
            assert!(!is_check || resume.is_some(), "checks are by number");
            let known = resume.and_then(|(of, sequence)| Some((client.names.get(&of)?.0.clone(), sequence)));
            let seen = known.map(|(name, sequence)| ResumePoint { name, sequence, round: None });
            let terms = DelegationTerms { is_accepted: asks.delegate && client.terms.is_accepted, ..client.terms };
            self.made += 1;
            let what = Watched::Query(Box::new(Query::parse(QUERY, &QueryLimits::default()).unwrap()));
            let outlet = Some(number as u64);
            let ask = SpaceRequest::Subscribe { what, name: format!("name-{}", self.made), seen, outlet };
            self.offer(ask, RequestSender::Watching { number, attempt, is_check }, terms);
        }
    }

    fn serve(&mut self) {
        loop {
            match self.desk.next_write(
                self.now,
                self.writer.hold(),
                self.writer.has_piece(),
                &self.writer.flows_apart(),
            ) {
                NextWrite::Work(taken) => self.writer.handle_request(*taken),
                NextWrite::Piece => {
                    self.writer.handle_piece(self.now);
                    self.writer.end_piece(self.now);
                }
                NextWrite::Control(_) => {}
                NextWrite::Snapshot => self.desk.show(self.writer.visible()),
                NextWrite::Look | NextWrite::Wait(_) | NextWrite::End => break,
            }
            while let Some(work) = self.writer.poll_job() {
                self.writer.perform(self.now, work, CancelToken::default());
                self.writer.turn(self.now);
            }
            self.answer();
        }
        self.answer();
    }

    fn answer(&mut self) {
        let _ = self.writer.poll_version();
        while self.writer.poll_event().is_some() {}
        while let Some(WriterReply { task, outcome, job, .. }) = self.writer.poll_reply() {
            self.desk.served(job, Side::Write, Duration::from_micros(50));
            let answered = outcome.unwrap();
            let RequestSender::Watching { number, attempt, is_check } = (*task.requester).clone() else { continue };
            let ResponseBody::Subscribed(subscribed) = answered.answer else { panic!("{:?}", answered.answer) };
            self.subscribed(number, (attempt, is_check), *subscribed, answered.hints);
        }
        while let Some(id) = self.writer.poll_ready() {
            while let Some(number) = self.writer.connection(id).copied() {
                let Some(told) = self.writer.poll_notification(id) else { break };
                self.told(number as usize, id, told);
            }
        }
    }

    fn subscribed(&mut self, number: usize, (attempt, is_check): (Attempt, bool), it: Subscribed, hints: Hints) {
        let Subscribed { id, name, begun } = it;
        let client = &mut self.clients[number];
        let is_delegated = hints.delegate == Some(Delegate::Check);
        let of = if is_check { client.live } else { attempt };
        let (input, sequence) = match begun {
            Begun::Whole(baseline) => {
                assert!(!is_check, "what was missed is known");
                (Input::Subscribed { attempt, sequence: 0, rows: rows(&baseline.rows) }, 0)
            }
            Begun::Missed { sequence, delta, .. } => {
                let delta = Delta { added: rows(&delta.added), removed: rows(&delta.removed) };
                let (every, input) = (
                    hints.interval,
                    if is_check {
                        Input::Missed { attempt, sequence, delta, hints }
                    } else {
                        Input::Resumed { attempt, sequence, delta }
                    },
                );
                assert!(every.is_some() || !is_delegated);
                (input, sequence)
            }
        };
        client.live = of;
        // The one before is not needed any more.
        for (_, (_, before)) in std::mem::take(&mut client.names) {
            if before != id {
                self.writer.handle_unsubscribe(before, &(number as u64));
            }
        }
        client.names.insert(of, (name, id));
        self.deliver(number, input);
        if is_delegated && !is_check {
            let every = Some(Duration::from_secs(1));
            self.deliver(number, Input::Delegated { attempt: of, sequence, every });
        }
    }

    fn told(&mut self, number: usize, id: SubscriberId, told: SpaceNotification) {
        let client = &self.clients[number];
        let Some((attempt, _)) = client.names.iter().find(|(_, (_, of))| *of == id) else { return };
        let (attempt, terms) = (*attempt, client.terms);
        let input = match told {
            SpaceNotification::Changed { sequence, delta, .. } => {
                let delta = Delta { added: rows(&delta.added), removed: rows(&delta.removed) };
                Input::Changed { attempt, sequence: Some(sequence), delta, spread: None }
            }
            SpaceNotification::Delegated { sequence, every } => {
                assert!(terms.is_accepted && terms.rank > 0, "only who accepts it, and never the most important");
                Input::Delegated { attempt, sequence, every }
            }
            over @ (SpaceNotification::Ended(_) | SpaceNotification::Restarting { .. }) => panic!("{over:?}"),
        };
        if let Some(lossy) = self.lossy
            && self.dice.one_in(lossy)
        {
            self.dropped += 1;
            return;
        }
        self.deliver(number, input);
    }

    /// In order, each after its time on the line.
    fn deliver(&mut self, number: usize, input: Input) {
        let at = self.now + Duration::from_millis(1 + self.dice.below(20));
        let down = &mut self.clients[number].down;
        let at = down.back().map_or(at, |(before, _)| at.max(*before));
        down.push_back((at, input));
    }

    fn hear(&mut self, number: usize) {
        let client = &mut self.clients[number];
        while client.down.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, input)) = client.down.pop_front() else { return };
            client.watch.handle(input, self.now, &mut self.dice);
        }
        while let Some(action) = client.watch.turn(self.now, &mut self.dice) {
            client.up.push_back((self.now + Duration::from_millis(1 + self.dice.below(20)), action));
        }
        if let Some(change) = client.watch.poll_change() {
            client.lost += change.lost;
            client.changes += 1;
        }
    }

    /// Whether a client sees what is there.
    fn is_right(&self, number: usize) -> bool {
        let rows = self.clients[number].watch.view().rows();
        let mut seen: Vec<u64> = rows.filter_map(|row| row.text("o")?.parse().ok()).collect();
        seen.sort_unstable();
        seen.into_iter().eq((0..ROWS).map(|row| self.value * ROWS + row))
    }

    /// Calm, then a load that lasts, then calm; changes all the time, and none at the end.
    fn live(&mut self) {
        self.run(Duration::from_secs(8), Duration::ZERO, true);
        self.run(Duration::from_secs(8), Duration::from_millis(80), true);
        let delegated = self.writer.look(self.now, Duration::from_millis(80)).delegated;
        assert!(delegated >= 2, "{delegated}");
        self.run(Duration::from_secs(20), Duration::ZERO, true);
        self.run(Duration::from_secs(90), Duration::ZERO, false);
    }
}

#[test]
fn who_is_delegated_notices_nothing_but_delay() {
    for (seed, level) in [(1, Level::None), (2, Level::Active)] {
        let mut world = DelegationWorld::new(seed, level, None);
        world.live();
        assert_eq!(world.writer.look(world.now + LOOK_INTERVAL, Duration::ZERO).delegated, 0, "all are back");
        let mut delegations = 0;
        for number in 0..CLIENTS {
            let client = &world.clients[number];
            let counts = client.watch.stats().counts;
            assert!(world.is_right(number), "{level}, {number}: {:?}", client.watch.stats());
            assert_eq!((client.lost, counts.gaps, counts.losses), (0, 0, 0), "{level}, {number}");
            assert_eq!((counts.subscribed, client.watch.stats().delegated), (1, None), "{level}, {number}");
            let may_be = client.terms.is_accepted && client.terms.rank > 0;
            assert!(may_be || counts.delegations == 0);
            assert!(counts.delegations > 0 || client.changes > 1200, "{number} was pushed: {}", client.changes);
            delegations += counts.delegations;
        }
        assert!(delegations >= 2, "{delegations}");
    }
}

#[test]
fn what_gets_lost_beside_it_is_found_by_its_number() {
    for seed in 11..13 {
        let mut world = DelegationWorld::new(seed, Level::Active, Some(500));
        world.live();
        assert!(world.dropped > 10);
        // The last one may have been lost, and then a check finds it.
        world.run(Duration::from_secs(400), Duration::ZERO, false);
        for number in 0..CLIENTS {
            let stats = world.clients[number].watch.stats();
            assert!(world.is_right(number), "{seed}, {number}: {stats:?}");
            assert!(world.clients[number].lost > 0 || stats.counts.delegations > 0, "{seed}, {number}: {stats:?}");
            assert_eq!(stats.delegated, None);
        }
    }
}
