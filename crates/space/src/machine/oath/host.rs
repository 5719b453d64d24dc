//! A small host in virtual time: two processors, and on them the threads of the product (a writer, readers, an evaluator, a
//! drafter) that do what the front desk and the writer say. Everything is decided by what runs in the field; only what
//! work takes is the scenario's. The data are real, and a hundredth of what they are on sockets; a piece of a large
//! change is accordingly small.

use std::time::Duration;

use oxrdf::{GraphName, NamedNode, Quad};
use tidegate_control::Timestamp;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{
    Evaluation, GraphSpace, Query, QueryLimits, Snapshot, SpaceLimits, SubscriberId, Update, UpdateDraft,
};
use tidegate_sim::zoo::model::Phases;
use tidegate_sim::zoo::space::{self, AskerTask, SpaceScenario};
use tidegate_sim::zoo::tally::{CohortTally, Figures};

use super::askers::{BEGIN, Crowd, HostRequester, Returns, Whose, at};
use super::processors::Processors;
use super::shard::BusyShard;
use crate::admission::SpaceAdmission;
use crate::limits::{READERS, TIME_MAX, WATCH_INTERVAL};
use crate::machine::delegation::DelegationTerms;
use crate::machine::front_desk::{Control, FrontDesk, Offered, Side};
use crate::machine::order::Taken;
use crate::machine::request::{AnswerDelivery, Form, Refused, SpaceRequest, Watched};
use crate::machine::request_queue::Caller;
use crate::machine::simulation::Dice;
use crate::machine::task::PendingRequest;
use crate::machine::writer::{ApartLimits, StoreHealth, Writer};

/// Data of the scenario, and pieces of a large change, are so many times smaller than on sockets.
const SMALLER: u32 = 100;
const PROCESSORS: u32 = 2;
const APART: ApartLimits = ApartLimits { large_quads: 16, piece_steps: 8, inline_steps: 10, drafts_max: 3 };

/// Threads of the host, by place; readers come first.
pub(super) const WRITER: usize = READERS;
pub(super) const EVALUATOR: usize = READERS + 1;
pub(super) const DRAFTER: usize = READERS + 2;
pub(super) const SHARD: usize = READERS + 3;
const THREADS: usize = READERS + 4;

pub(super) type Asked = PendingRequest<HostRequester, u64>;

/// What the writer's thread is at.
#[derive(Debug)]
pub(super) enum WriterTurn {
    Job,
    Piece,
}

pub(super) struct SpaceHost {
    pub(super) now: Timestamp,
    pub(super) processors: Processors,
    pub(super) desk: FrontDesk<HostRequester, u64>,
    pub(super) writer: Writer<HostRequester, u64>,
    pub(super) turn: Option<WriterTurn>,
    pub(super) reading: [Option<(Taken<Asked>, Snapshot, Timestamp)>; READERS],
    pub(super) evaluation: Option<(Evaluation, Timestamp)>,
    /// Until when the evaluator rests.
    pub(super) rests: Option<Timestamp>,
    /// The same for the drafter.
    pub(super) drafter_rests: Option<Timestamp>,
    pub(super) draft: Option<(UpdateDraft, Timestamp)>,
    /// When the disk has what it was given; and whether it was given more since.
    pub(super) sync: Option<Timestamp>,
    pub(super) is_unsynced: bool,
    /// When the writer looks at the disk of its own accord.
    pub(super) look: Option<Timestamp>,
    /// When the watcher looks at what runs.
    watch: Timestamp,
    pub(super) crowd: Crowd,
    pub(super) shard: Option<BusyShard>,
    dice: Dice,
    pub(super) scenario: &'static SpaceScenario,
    /// The end of the trouble, while somebody is subscribed.
    leaves: Option<Timestamp>,
    pub(super) subscriber: Option<SubscriberId>,
    trouble: Option<Timestamp>,
    /// Seconds that the load took; infinite if it was refused.
    pub(super) load_s: Option<f64>,
}

/// What became of a scenario.
#[derive(Debug)]
pub(super) struct HostRun {
    /// Of each kind of askers.
    pub(super) figures: Vec<Figures>,
    pub(super) returns: Vec<Returns>,
    pub(super) load_s: Option<f64>,
}

impl HostRun {
    pub(super) fn of(host: &SpaceHost) -> Self {
        let figures = host.crowd.tallies.iter().map(CohortTally::figures).collect();
        Self { figures, returns: host.crowd.returns.clone(), load_s: host.load_s }
    }
}

pub(super) fn run(scenario: &'static SpaceScenario, admission: &SpaceAdmission, phases: Phases, seed: u64) -> HostRun {
    let mut host = SpaceHost::new(scenario, admission, phases, seed);
    host.live(at(phases.end()));
    HostRun::of(&host)
}

fn quads(first: u32, count: u32) -> Vec<Quad> {
    let quad = |number| {
        let [s, p, o] = space::triple(number).map(NamedNode::new_unchecked);
        Quad::new(s, p, o, GraphName::DefaultGraph)
    };
    (first..first + count).map(quad).collect()
}

impl SpaceHost {
    pub(super) fn new(scenario: &'static SpaceScenario, admission: &SpaceAdmission, phases: Phases, seed: u64) -> Self {
        let mut space = GraphSpace::new(seed, SpaceLimits { inline_steps_max: 10, ..SpaceLimits::default() });
        space.edit(&[], &quads(0, scenario.triples / SMALLER)).unwrap();
        let keys = [TicketKey::new([1; 16]), TicketKey::new([2; 16])];
        let mut host = Self {
            now: BEGIN,
            processors: Processors::new(PROCESSORS, THREADS),
            desk: FrontDesk::new(admission, keys).unwrap(),
            writer: Writer::new(space, Vec::new(), Some(StoreHealth::Fine)).with_apart(APART),
            turn: None,
            reading: [const { None }; READERS],
            evaluation: None,
            rests: None,
            drafter_rests: None,
            draft: None,
            sync: None,
            is_unsynced: false,
            look: None,
            watch: BEGIN,
            crowd: Crowd::new(scenario, phases, seed),
            shard: None,
            dice: Dice::new(seed),
            scenario,
            leaves: scenario.standing.map(|_| at(phases.trouble_end())),
            subscriber: None,
            trouble: Some(at(phases.lead)),
            load_s: None,
        };
        host.desk.control(Control::Idle);
        host
    }

    pub(super) fn live(&mut self, end: Timestamp) {
        loop {
            self.drive();
            let times = [
                self.processors.next_end(self.now),
                self.crowd.next_due(),
                self.sync,
                self.look,
                self.rests,
                self.drafter_rests,
            ];
            let shard = self.shard.as_ref().map(BusyShard::next_time);
            let watch = self.reading.iter().any(Option::is_some).then_some(self.watch);
            let next = times.into_iter().chain([self.leaves, self.trouble, shard, watch]).flatten().min();
            let Some(next) = next.filter(|next| *next < end) else { return };
            let next = next.max(self.now);
            self.processors.advance(self.now, next);
            self.now = next;
            self.happen();
        }
    }

    /// Everything whose time has come.
    fn happen(&mut self) {
        let now = self.now;
        while let Some((thread, is_done)) = self.processors.poll_ended(now) {
            self.end(thread, is_done);
        }
        if self.watch <= now {
            self.watch = now + WATCH_INTERVAL;
            self.watch_readers();
        }
        if let Some(pressure) = self.shard.as_mut().and_then(|shard| shard.happen(now)) {
            // Readers are asked after everything that happens anyway.
            let _ = self.desk.handle_pressure(now, pressure);
        }
        if self.sync.take_if(|end| *end <= now).is_some() && !self.begin_sync() {
            self.desk.handle_stored();
        }
        if self.look.take_if(|look| *look <= now).is_some() {
            self.desk.handle_stored();
        }
        for rests in [&mut self.rests, &mut self.drafter_rests] {
            if rests.take_if(|end| *end <= now).is_some() {
                self.desk.control(Control::Idle);
            }
        }
        if self.trouble.take_if(|begin| *begin <= now).is_some() {
            self.begin_trouble();
        }
        if self.leaves.take_if(|leaves| *leaves <= now).is_some()
            && let Some(id) = self.subscriber.take()
        {
            self.desk.control(Control::Depart(id, 1));
        }
        while let Some((place, requester)) = self.crowd.poll_due(now) {
            let asker = &self.crowd.people[place];
            let text = asker.askers.text(place, asker.count);
            let limits = QueryLimits::default();
            let ask = match asker.askers.what {
                AskerTask::Query(_) => {
                    let query = Box::new(Query::parse(&text, &limits).unwrap());
                    SpaceRequest::Query { query, form: Form::Ssap }
                }
                AskerTask::Insert | AskerTask::Change | AskerTask::Update(_) => {
                    SpaceRequest::Update(Box::new(Update::parse(&text, &limits).unwrap()))
                }
            };
            let caller = self.crowd.caller(place);
            self.offer(ask, requester, caller);
        }
    }

    fn begin_trouble(&mut self) {
        let (due, work, patience) = (self.now, Duration::from_millis(1), TIME_MAX);
        let caller = |client| Caller { client, ..Caller::default() };
        if self.scenario.bulk > 0 {
            let insert = quads(self.scenario.triples, self.scenario.bulk / SMALLER);
            let ask = SpaceRequest::Put { target: Box::default(), replaces: false, insert };
            self.offer(ask, HostRequester { whose: Whose::Load, due, asked: due, patience, work }, caller(1));
        }
        if let Some(text) = self.scenario.standing {
            let query = Box::new(Query::parse(text, &QueryLimits::default()).unwrap());
            let (what, name) = (Watched::Query(query), "standing".to_owned());
            let ask = SpaceRequest::Subscribe { what, name, seen: None, outlet: Some(1) };
            self.offer(ask, HostRequester { whose: Whose::Subscriber, due, asked: due, patience, work }, caller(2));
        }
    }

    fn offer(&mut self, ask: SpaceRequest<u64>, requester: HostRequester, caller: Caller) {
        let (class, (name, shape)) = (ask.class(), ask.names(0, (1, 2)));
        let task = PendingRequest {
            ask,
            class,
            name: name.map(Box::new),
            began: self.now,
            until: self.now + requester.patience,
            accepts_partial: false,
            check: None,
            client: caller.client,
            flow: 0,
            household: caller.own_household(),
            delivery: AnswerDelivery::Whole,
            delegation: DelegationTerms::default(),
            hints: Hints::default(),
            requester,
        };
        if let Offered::Refused(task, refused) = self.desk.offer(self.now, task, shape, &caller, &mut self.dice) {
            self.answer(&task, Err(&refused));
        }
        for side in [Side::Read, Side::Write] {
            self.answer_late(side);
        }
    }

    pub(super) fn answer_late(&mut self, side: Side) {
        for (task, refused) in self.desk.drain(side) {
            self.answer(&task, Err(&refused));
        }
    }

    pub(super) fn answer(&mut self, task: &Asked, outcome: Result<(), &Refused>) {
        match task.requester.whose {
            Whose::Asker(place) => self.crowd.on_answered(self.now, place, task.requester, outcome),
            Whose::Load => {
                let took = self.now.since(task.requester.due).as_secs_f64();
                self.load_s = Some(if outcome.is_ok() { took } else { f64::INFINITY });
            }
            Whose::Subscriber => {}
        }
    }
}
