//! Where requests wait: two request queues, because one thread writes and several read, and each needs its own estimate
//! of when it will be free. Says what the writer and each reader do next, and when the writer is to show its data.
//!
//! Pure: time and chance are arguments, and waiting is an answer. Driven by `desk`, whose lock nobody holds while working.

use std::collections::VecDeque;
use std::time::Duration;

use rand_core::Rng;
use tidegate_control::Timestamp;
use tidegate_control::admission::Class;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{DraftedUpdate, Evaluated, Snapshot, SubscriberId};

use super::condition::Condition;
use super::order::{Arrival, Job, KpPlace, Returned, Servers, Shape, Taken, WaitTerms};
use super::piece_turns::{PieceTurns, TurnOf};
use super::request::Refused;
use super::request_queue::{Caller, EndedWait, Entered, PoolDecision, RequestQueue};
use super::task::{PendingRequest, Requester};
use super::writer::WriterWait;
use super::yielding::{SpacePressure, Yielding};
use crate::admission::SpaceAdmission;
use crate::limits::{APART_MAX, LONG_READERS, LOOK_INTERVAL, PROCESSORS_READING, READERS};

/// Which of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Write,
    Read,
}

/// Things that cost nothing and do not wait. There are as many as subscriptions, twice, at most.
pub(crate) enum Control<C> {
    /// There is room again for what these are to be told.
    Call(Vec<SubscriberId>),
    /// The client does not want it any more.
    Unsubscribe(SubscriberId, C),
    /// The connection is lost; the client may come back.
    Depart(SubscriberId, C),
    /// A standing query was evaluated.
    Evaluated(Box<Evaluated>),
    /// An update was worked out.
    Drafted(Box<DraftedUpdate>),
    /// A thread that works beside the writer has nothing to do.
    Idle,
}

/// What became of an offer.
#[derive(Debug)]
pub(crate) enum Offered<T> {
    /// Somebody of this side is to be woken.
    Waits(Side),
    Refused(T, Refused),
}

/// What the writer does next.
pub(crate) enum NextWrite<R, C> {
    Work(Box<Taken<PendingRequest<R, C>>>),
    Control(Control<C>),
    /// A piece of a large change.
    Piece,
    /// Shows the data of now.
    Snapshot,
    /// See what has become of what is to be kept.
    Look,
    /// Waits until it is woken; and no longer than this, then [`FrontDesk::handle_stored`] has it look: a disk that fails
    /// says nothing.
    Wait(Option<Duration>),
    End,
}

/// What a reader does next.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and most often it is work")]
pub(crate) enum NextRead<T> {
    Work(Taken<T>, Snapshot),
    /// Waits; the writer is to be woken, because there are no data to read.
    Call,
    Wait,
    End,
}

pub(crate) struct FrontDesk<R, C> {
    writers: RequestQueue<PendingRequest<R, C>>,
    readers: RequestQueue<PendingRequest<R, C>>,
    controls: VecDeque<Control<C>>,
    turns: PieceTurns,
    yielding: Yielding,
    /// Something was stored since the writer last looked.
    is_stored: bool,
    /// When the writer last looked what has become of what it has handed over.
    looked: Timestamp,
    /// The data of now, if a reader has asked for it since the last change: while it exists every change costs more.
    snapshot: Option<Snapshot>,
    is_snapshot_wanted: bool,
    condition: Condition,
    is_closing: bool,
}

impl<R: Requester, C> FrontDesk<R, C> {
    /// None if a queue cannot be as it is wanted.
    pub(crate) fn new(admission: &SpaceAdmission, keys: [TicketKey; 2]) -> Option<Self> {
        // The writer has one thread, and as many jobs under way as wait together for the disk.
        let writer = Servers { threads: usize::MAX, long_max: usize::MAX, worth: 1, apart_max: APART_MAX };
        let (long_max, worth) = (LONG_READERS, PROCESSORS_READING);
        let reader = Servers { threads: READERS, long_max, worth, apart_max: 0 };
        let [write_key, read_key] = keys;
        Some(Self {
            writers: RequestQueue::watching(&admission.pool(writer.worth), writer, write_key, PendingRequest::is_left)?,
            readers: RequestQueue::watching(&admission.pool(reader.worth), reader, read_key, PendingRequest::is_left)?,
            controls: VecDeque::new(),
            turns: PieceTurns::default(),
            yielding: Yielding::default(),
            is_stored: false,
            looked: Timestamp::ZERO,
            snapshot: None,
            is_snapshot_wanted: false,
            condition: Condition::Serving,
            is_closing: false,
        })
    }

    fn queue(&mut self, side: Side) -> &mut RequestQueue<PendingRequest<R, C>> {
        match side {
            Side::Write => &mut self.writers,
            Side::Read => &mut self.readers,
        }
    }

    /// What whoever is answered from memory is told about pace.
    pub(crate) fn hints(&mut self, now: Timestamp, task: &PendingRequest<R, C>, caller: &Caller) -> Hints {
        let hints = self.readers.hints(now, task.class, caller);
        Hints { queued: Some(Duration::ZERO), ..hints }
    }

    /// A request arrives: it waits, or is refused at once. Those that wait no more are at [`FrontDesk::drain`] then.
    pub(crate) fn offer(
        &mut self,
        now: Timestamp,
        mut task: PendingRequest<R, C>,
        shape: Shape,
        caller: &Caller,
        chance: &mut impl Rng,
    ) -> Offered<PendingRequest<R, C>> {
        if self.condition != Condition::Serving {
            return Offered::Refused(task, Refused::Unavailable(self.condition));
        }
        if self.is_closing {
            return Offered::Refused(task, Refused::Closing);
        }
        let side = if task.ask.only_reads() { Side::Read } else { Side::Write };
        let queue = self.queue(side);
        let hints = queue.hints(now, task.class, caller);
        task.hints.clone_from(&hints);
        let (class, patience) = (task.class, task.until.since(now));
        let key = task.name.as_ref().map(|name| name.key());
        let (kp, check, terms) = (KpPlace::default(), task.check, WaitTerms::default());
        let arrival = Arrival { class, key, kp, check, shape, patience, terms, value: task };
        match queue.offer(now, arrival, caller, &hints, chance) {
            Entered::Waits => Offered::Waits(side),
            Entered::Refused(task, hints) => Offered::Refused(task, Refused::Busy(hints)),
            Entered::Dropped(task) => Offered::Refused(task, Refused::Dropped),
        }
    }

    /// Those whose wait on a side has ended without a turn, and why.
    pub(crate) fn drain(&mut self, side: Side) -> Vec<(PendingRequest<R, C>, Refused)> {
        let refused = |ended| match ended {
            EndedWait::Late(task) => (task, Refused::Late),
            EndedWait::Outdated(task) => (task, Refused::Outdated),
            EndedWait::Dropped(task) => (task, Refused::Dropped),
            EndedWait::SentAway(task, place) => {
                let task: PendingRequest<R, C> = task;
                let told = place.with_pace_of(&task.hints);
                (task, Refused::Busy(Box::new(told)))
            }
        };
        self.queue(side).drain().into_iter().map(refused).collect()
    }

    /// What was decided about requests for which there was no room, or no use: class, policy and number.
    pub(crate) fn decisions(&self) -> Vec<(&'static str, &'static str, u64)> {
        let of_class = |class: &Class| {
            let both = [self.writers.decisions(*class), self.readers.decisions(*class)];
            let name = class.name();
            PoolDecision::ALL.map(|decision| (name, decision.name(), both.map(|it| it[decision as usize]).iter().sum()))
        };
        // Nothing of the other classes comes here.
        let asked = Class::ALL.iter().filter(|class| !matches!(class, Class::Control | Class::Publish));
        asked.flat_map(of_class).collect()
    }

    /// How long a change that comes now would wait.
    pub(crate) fn write_backlog(&self, now: Timestamp) -> Duration {
        self.writers.backlog(now)
    }

    /// Whether [`FrontDesk::handle_pressure`] is to be told how hard the process is pressed.
    pub(crate) fn is_pressure_due(&self, now: Timestamp) -> bool {
        self.yielding.is_due(now)
    }

    /// Whether more readers may begin what takes long than before.
    pub(crate) fn handle_pressure(&mut self, now: Timestamp, pressure: SpacePressure) -> bool {
        let before = self.yielding.long_max();
        self.yielding.hear(now, pressure);
        self.readers.set_long_max(self.yielding.long_max());
        self.yielding.long_max() > before
    }

    /// Whether what takes long is held back for the broker.
    pub(crate) fn is_yielding(&self) -> bool {
        self.yielding.is_on()
    }

    /// How long whoever works beside the writer rests after a turn of this length, beside what is usual.
    pub(crate) fn rest(&self, took: Duration) -> Duration {
        self.yielding.rest(took)
    }

    pub(crate) fn control(&mut self, control: Control<C>) {
        self.controls.push_back(control);
    }

    /// Something was stored, or it is time to look.
    pub(crate) fn handle_stored(&mut self) {
        self.is_stored = true;
    }

    /// What the writer does next, while it waits for this, whether it has a piece to do, and the flows of which it makes something
    /// apart, in ascending order: nothing else of these is done before. Those that wait no more are at [`FrontDesk::drain`]
    /// then.
    pub(crate) fn next_write(
        &mut self,
        now: Timestamp,
        hold: WriterWait,
        has_piece: bool,
        held: &[u64],
    ) -> NextWrite<R, C> {
        self.turns.settle(now, |took| self.yielding.rest(took));
        let (rest, waits_to_go_on) = (self.turns.rest(now), has_piece);
        let has_piece = has_piece && rest.is_zero();
        if self.is_closing {
            return NextWrite::End;
        }
        if self.is_snapshot_wanted {
            return NextWrite::Snapshot;
        }
        if let Some(control) = self.controls.pop_front() {
            return NextWrite::Control(control);
        }
        if has_piece && self.turns.is_piece_first() {
            return self.piece(now);
        }
        if hold != WriterWait::Settling
            && let Some(taken) = self.writers.take_but(now, held)
        {
            self.turns.begin(TurnOf::Request, now);
            return NextWrite::Work(Box::new(taken));
        }
        // A disk that fails says nothing, also while pieces are done.
        let is_look_due = self.is_stored || has_piece && now >= self.looked + LOOK_INTERVAL;
        match hold {
            WriterWait::Settling | WriterWait::Stuck if !is_look_due => {
                if has_piece {
                    self.piece(now)
                } else {
                    NextWrite::Wait(Some(if waits_to_go_on { rest.min(LOOK_INTERVAL) } else { LOOK_INTERVAL }))
                }
            }
            WriterWait::Gathering | WriterWait::Settling | WriterWait::Stuck => {
                (self.is_stored, self.looked) = (false, now);
                NextWrite::Look
            }
            WriterWait::Free if has_piece => self.piece(now),
            WriterWait::Free => NextWrite::Wait(waits_to_go_on.then_some(rest)),
        }
    }

    fn piece(&mut self, now: Timestamp) -> NextWrite<R, C> {
        self.turns.begin(TurnOf::Piece, now);
        NextWrite::Piece
    }

    /// What a free reader does next. Those that wait no more are at [`FrontDesk::drain`] then.
    pub(crate) fn next_read(&mut self, now: Timestamp) -> NextRead<PendingRequest<R, C>> {
        if self.is_closing {
            return NextRead::End;
        }
        if let Some(snapshot) = &self.snapshot {
            return match self.readers.take(now) {
                Some(taken) => NextRead::Work(taken, snapshot.clone()),
                None => NextRead::Wait,
            };
        }
        if self.readers.is_empty() {
            return NextRead::Wait;
        }
        self.is_snapshot_wanted = true;
        NextRead::Call
    }

    /// The data of now, for readers.
    pub(crate) fn show(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(snapshot);
        self.is_snapshot_wanted = false;
    }

    /// The data have changed: what readers get from now on is not what it was. Whether readers wait for it; they are given
    /// it then, and if there are none, changes stay cheap.
    pub(crate) fn handle_changed(&mut self, snapshot: impl FnOnce() -> Snapshot) -> bool {
        self.snapshot = (self.is_snapshot_wanted || !self.readers.is_empty()).then(snapshot);
        self.is_snapshot_wanted = false;
        self.snapshot.is_some()
    }

    /// A job was done in this time. Said before its client is answered, or the client's next request would find it under
    /// way.
    pub(crate) fn served(&mut self, job: Job, side: Side, elapsed: Duration) {
        self.queue(side).served(job, elapsed);
    }

    /// A job of a reader that is to be stopped and returned, by its number; to be asked every [`crate::limits::WATCH_INTERVAL`].
    pub(crate) fn poll_yielding(&mut self, now: Timestamp) -> Option<u64> {
        self.readers.poll_yielding(now)
    }

    /// A reader's job was stopped after this time: those who wait for it wait on.
    pub(crate) fn take_back(&mut self, job: Job, tasks: Vec<PendingRequest<R, C>>, elapsed: Duration) {
        let returned = |task: PendingRequest<R, C>| Returned {
            arrived: task.began,
            deadline: task.until,
            check: task.check,
            value: task,
        };
        self.readers.take_back(job, tasks.into_iter().map(returned).collect(), elapsed);
    }

    /// A job was given up after this time.
    pub(crate) fn cancelled(&mut self, job: Job, side: Side, elapsed: Duration) {
        self.queue(side).cancelled(job, elapsed);
    }

    /// The owner of the data is gone: from now on nobody is served, and whoever waits is to be told so. What was known of
    /// the data is forgotten.
    pub(crate) fn suspend(&mut self, condition: Condition) -> Vec<PendingRequest<R, C>> {
        self.condition = condition;
        let mut waiting = self.writers.clear();
        waiting.extend(self.readers.clear());
        self.controls.clear();
        self.snapshot = None;
        self.is_snapshot_wanted = false;
        waiting
    }

    /// There is an owner again.
    pub(crate) fn resume(&mut self) {
        self.condition = Condition::Serving;
    }

    /// Nobody is served any more.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }
}
