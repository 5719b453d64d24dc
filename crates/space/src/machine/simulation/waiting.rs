//! What others wait while somebody loads much, or changes what takes long to find: the front desk and the writer in virtual
//! time. What each kind of work takes is assumed; who waits for it is what is looked at.

use std::time::Duration;

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use tidegate_control::Timestamp;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{CancelToken, GraphSpace, Mask, QueryLimits, SpaceLimits, Update, UpdateDraft};

use super::Dice;
use crate::admission::SpaceAdmission;
use crate::limits::{DRAFTS_MAX, PIECE_STEPS};
use crate::machine::front_desk::{Control, FrontDesk, NextWrite, Offered, Side};
use crate::machine::request::{AnswerDelivery, SpaceRequest};
use crate::machine::request_queue::Caller;
use crate::machine::task::{PendingRequest, Requester};
use crate::machine::writer::{ApartLimits, Writer};

/// What a small change takes, a quad of a large one, and what is left of that for the last moment.
const SMALL: Duration = Duration::from_micros(50);
const QUAD: Duration = Duration::from_micros(4);
const LAST: Duration = Duration::from_nanos(300);
/// What the long `WHERE` takes.
const WHERE: Duration = Duration::from_millis(500);
const LOAD: usize = 20_000;

/// Its number; 0 is the large one.
#[derive(Debug)]
struct Waiting(u64);

impl Requester for Waiting {
    fn is_gone(&self) -> bool {
        false
    }

    fn begin(&self) -> bool {
        true
    }

    fn submit(&self) {}

    fn release(&mut self) {}
}

struct WaitingWorld {
    now: Timestamp,
    desk: FrontDesk<Waiting, u64>,
    writer: Writer<Waiting, u64>,
    dice: Dice,
    draft: Option<(UpdateDraft, Timestamp)>,
    drafts: u32,
    /// What each small one has waited, in the order of answers.
    waits: Vec<Duration>,
    large: Option<(Duration, bool)>,
    /// What the large one was charged.
    cost: Duration,
    /// What the next large change takes that is done in one go.
    whole: Duration,
    /// The time that a request has.
    time: Duration,
}

impl WaitingWorld {
    fn new(apart: ApartLimits) -> Self {
        let keys = [TicketKey::new([1; 16]), TicketKey::new([2; 16])];
        Self {
            now: Timestamp::from_secs_f64(100.0),
            desk: FrontDesk::new(&SpaceAdmission::default(), keys).unwrap(),
            writer: Writer::new(GraphSpace::new(1, SpaceLimits::default()), Vec::new(), None).with_apart(apart),
            dice: Dice::new(1),
            draft: None,
            drafts: 0,
            waits: Vec::new(),
            large: None,
            cost: Duration::ZERO,
            time: Duration::from_secs(10),
            whole: Duration::ZERO,
        }
    }

    fn offer(&mut self, number: u64, came: Timestamp, ask: SpaceRequest<u64>) {
        let (class, (_, shape)) = (ask.class(), ask.names(0, (1, 2)));
        let until = came + self.time;
        let task = PendingRequest {
            ask,
            class,
            name: None,
            began: came,
            until,
            accepts_partial: false,
            check: None,
            client: 0,
            flow: 0,
            household: 0,
            delivery: AnswerDelivery::Whole,
            delegation: crate::machine::delegation::DelegationTerms::default(),
            hints: Hints::default(),
            requester: Waiting(number),
        };
        let caller = Caller { client: u64::from(number == 0), ..Caller::default() };
        let offered = self.desk.offer(self.now, task, shape, &caller, &mut self.dice);
        assert!(matches!(offered, Offered::Waits(Side::Write)), "nobody is refused");
    }

    fn small(&mut self, number: u64, came: Timestamp, text: &str) {
        let update = Update::parse(text, &QueryLimits::default()).unwrap();
        self.offer(number, came, SpaceRequest::Update(Box::new(update)));
    }

    /// One thing that the writer does; false if it waits.
    fn step(&mut self) -> bool {
        match self.desk.next_write(self.now, self.writer.hold(), self.writer.has_piece(), &self.writer.flows_apart()) {
            NextWrite::Work(taken) => self.writer.handle_request(*taken),
            NextWrite::Piece => {
                self.writer.handle_piece(self.now);
                self.now = self.now + QUAD * PIECE_STEPS as u32;
                self.writer.end_piece(self.now);
            }
            NextWrite::Control(Control::Drafted(drafted)) => self.writer.handle_drafted(self.now, *drafted),
            NextWrite::Control(_) => {}
            NextWrite::Wait(_) => return false,
            NextWrite::Snapshot | NextWrite::Look | NextWrite::End => panic!("there is neither a reader nor a disk"),
        }
        while let Some(work) = self.writer.poll_job() {
            let (is_large, is_ready) = (work.requester().0 == 0, work.is_prepared());
            let is_done = self.writer.perform(self.now, work, CancelToken::default());
            let took = match (is_large, is_ready) {
                (false, _) => SMALL,
                (true, true) => LAST * LOAD as u32,
                (true, false) if is_done => self.whole,
                (true, false) => Duration::from_millis(5),
            };
            self.now = self.now + took;
            self.writer.turn(self.now);
        }
        if self.draft.is_none() && self.writer.wants_drafter() {
            self.draft = self.writer.poll_draft(self.now).map(|(draft, _)| (draft, self.now + WHERE));
            self.drafts += 1;
        }
        let _ = self.writer.poll_version();
        while let Some(reply) = self.writer.poll_reply() {
            self.desk.served(reply.job, Side::Write, reply.cost);
            let waited = self.now.since(reply.task.began);
            if reply.task.requester.0 == 0 {
                self.large = Some((waited, reply.outcome.is_ok()));
                self.cost = reply.cost;
            } else {
                assert!(reply.outcome.is_ok(), "{:?}", reply.outcome.err());
                self.waits.push(waited);
            }
        }
        true
    }

    /// A small change every millisecond, until the large one is answered and some time beyond.
    fn run(&mut self, small: impl Fn(u64) -> String) {
        let (began, mut number, mut beyond) = (self.now, 0, 0);
        while beyond < 700 {
            let due = began + Duration::from_millis(number);
            if due <= self.now {
                number += 1;
                beyond += u64::from(self.large.is_some());
                self.small(number, due, &small(number));
            }
            if let Some((draft, _)) = self.draft.take_if(|(_, ready)| *ready <= self.now) {
                let drafted = draft.run(&QueryLimits::default(), CancelToken::default());
                self.desk.control(Control::Drafted(Box::new(drafted)));
            }
            if !self.step() {
                let ready = self.draft.as_ref().map_or(Timestamp::MAX, |(_, ready)| *ready);
                self.now = self.now.max(ready.min(began + Duration::from_millis(number)));
            }
            assert!(number < 20_000, "the large one never ends");
        }
    }

    fn longest(&self) -> Duration {
        self.waits.iter().max().copied().unwrap_or_default()
    }
}

fn load() -> SpaceRequest<u64> {
    let quad = |number: usize| {
        let (s, p) = (NamedNode::new_unchecked(format!("urn:s{number}")), NamedNode::new_unchecked("urn:p"));
        Quad::new(s, p, Literal::from(number as u64), GraphName::DefaultGraph)
    };
    SpaceRequest::Put { target: Box::new(Mask::default()), replaces: false, insert: (0..LOAD).map(quad).collect() }
}

const IN_ONE_GO: ApartLimits =
    ApartLimits { large_quads: usize::MAX, piece_steps: 1, inline_steps: u64::MAX, drafts_max: 0 };

#[test]
fn beside_a_large_load_others_wait_for_a_piece_or_its_last_moment() {
    let other = |number: u64| format!("INSERT DATA {{ <urn:small> <urn:q> {number} }}");
    let mut whole = WaitingWorld::new(IN_ONE_GO);
    whole.whole = QUAD * LOAD as u32;
    whole.offer(0, whole.now, load());
    whole.run(other);
    assert!(whole.longest() > Duration::from_millis(70), "{:?}", whole.longest());
    let mut pieces = WaitingWorld::new(ApartLimits::default());
    pieces.offer(0, pieces.now, load());
    pieces.run(other);
    let bound = QUAD * PIECE_STEPS as u32 + LAST * LOAD as u32 + 3 * SMALL;
    assert!(pieces.longest() <= bound, "{:?} of {bound:?}", pieces.longest());
    // Most of the time nobody waits, so the load is hardly later; it is never more than four times as long.
    let (took, is_done) = pieces.large.unwrap();
    assert!(is_done && took < QUAD * LOAD as u32 * 2, "{took:?}");
}

#[test]
fn a_load_has_its_share_however_many_come() {
    let mut world = WaitingWorld::new(ApartLimits::default());
    world.offer(0, world.now, load());
    // More than there is time for: someone always waits.
    let (mut number, began) = (0, world.now);
    while world.large.is_none() {
        while number < 64 + world.waits.len() as u64 {
            number += 1;
            world.small(number, world.now, &format!("INSERT DATA {{ <urn:small> <urn:q> {number} }}"));
        }
        assert!(world.step());
        assert!(world.now.since(began) < Duration::from_secs(2), "the load starves");
    }
    let (took, is_done) = world.large.unwrap();
    let alone = QUAD * LOAD as u32;
    assert!(is_done && took > alone * 3 && took < alone * 6, "{took:?} of {alone:?}");
    assert!(world.cost >= alone && world.cost < alone * 5 / 4, "it pays for its own turns: {:?}", world.cost);
}

/// A load with this time, while more come than there is time for.
fn loaded_in(time: Duration) -> WaitingWorld {
    let mut world = WaitingWorld::new(ApartLimits::default());
    world.time = time;
    world.offer(0, world.now, load());
    world.time = Duration::from_secs(10);
    let mut number = 0;
    while world.large.is_none() {
        while number < 64 + world.waits.len() as u64 {
            number += 1;
            world.small(number, world.now, &format!("INSERT DATA {{ <urn:small> <urn:q> {number} }}"));
        }
        assert!(world.step());
    }
    world
}

#[test]
fn a_load_is_not_late_because_others_had_their_turns() {
    let alone = QUAD * LOAD as u32;
    let world = loaded_in(alone * 3 / 2);
    let (took, is_done) = world.large.unwrap();
    assert!(is_done && took > alone * 3, "{took:?} of {alone:?}");
}

#[test]
fn what_was_spent_on_a_load_that_is_late_is_charged() {
    let alone = QUAD * LOAD as u32;
    let world = loaded_in(alone / 2);
    let (took, is_done) = world.large.unwrap();
    assert!(!is_done && took >= alone * 2, "{took:?} of {alone:?}");
    assert!(world.cost > alone * 2 / 5 && world.cost < alone * 3 / 4, "{:?} of {alone:?}", world.cost);
}

const LONG: &str =
    "INSERT { <urn:sum> <urn:of> ?n } WHERE { SELECT (COUNT(*) AS ?n) { ?a <urn:x> ?b . ?c <urn:x> ?d } }";

/// So many that a commit does not look at all pairs.
fn paired(world: &mut WaitingWorld) {
    let triples: Vec<String> = (0..200).map(|number| format!("<urn:s{number}> <urn:x> {number}")).collect();
    world.small(1, world.now, &format!("INSERT DATA {{ {} }}", triples.join(" . ")));
    while world.step() {}
    world.waits.clear();
}

#[test]
fn beside_a_long_where_nobody_waits_for_it() {
    let mut world = WaitingWorld::new(ApartLimits::default());
    paired(&mut world);
    world.small(0, world.now, LONG);
    world.run(|number| format!("INSERT DATA {{ <urn:small> <urn:q> {number} }}"));
    assert!(world.longest() <= Duration::from_millis(7), "{:?}", world.longest());
    let (took, is_done) = world.large.unwrap();
    assert!(is_done && world.drafts == 1 && took < WHERE * 2, "{took:?} after {} drafts", world.drafts);
    assert!(world.cost >= WHERE, "{:?}", world.cost);
}

#[test]
fn what_was_spent_on_a_draft_that_is_late_is_charged() {
    let mut world = WaitingWorld::new(ApartLimits::default());
    paired(&mut world);
    world.time = WHERE / 2;
    world.small(0, world.now, LONG);
    world.time = Duration::from_secs(10);
    world.run(|number| format!("INSERT DATA {{ <urn:small> <urn:q> {number} }}"));
    let (_, is_done) = world.large.unwrap();
    assert!(!is_done && world.cost >= WHERE, "{:?}", world.cost);
}

#[test]
fn an_update_whose_data_others_change_all_the_time_is_done_all_the_same() {
    let mut world = WaitingWorld::new(ApartLimits::default());
    world.whole = WHERE;
    paired(&mut world);
    world.small(0, world.now, LONG);
    world.run(|number| format!("INSERT DATA {{ <urn:s{number}> <urn:x> -1 }}"));
    let (took, is_done) = world.large.unwrap();
    assert!(is_done && world.drafts == DRAFTS_MAX, "{} drafts", world.drafts);
    assert!(took < WHERE * (DRAFTS_MAX + 2), "{took:?}");
    // Once they wait for it, as everybody did for every such update.
    assert!(world.longest() >= WHERE && world.longest() < WHERE + Duration::from_millis(20), "{:?}", world.longest());
}
