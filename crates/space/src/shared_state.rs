//! What the threads of the service share: the front desk under one lock that nobody holds while working, and whom to
//! wake. Who is next and who is refused is decided by `machine::front_desk`; this file locks, waits, and answers.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{Evaluation, Snapshot, TouchedPlaces};
use tidegate_store::disk::Mirror;
use tokio::sync::oneshot;

use crate::admission::SpaceAdmission;
use crate::attendance::Attendance;
use crate::combining::JoinedTask;
use crate::counts::Counts;
use crate::drafter::DraftWork;
use crate::kps::KpDirectory;
use crate::machine;
use crate::machine::cache::Cache;
use crate::machine::condition::Condition;
use crate::machine::delegation::{DelegationConfig, DelegationTerms};
use crate::machine::front_desk::{FrontDesk, NextRead, NextWrite, Offered, Side};
use crate::machine::order::{Job, Shape, Taken};
use crate::machine::request::{AnswerSource, Refused, RequestOrigin, ResponseBody, SpaceResponse};
use crate::machine::request_queue::Caller;
use crate::machine::running_queries::RunningQueries;
use crate::machine::task::Requester;
use crate::machine::writer::WriterWait;
use crate::memory::{AnswerBytes, DataMemory, TextCharge, Texts};
use crate::notifications::{NotificationOutlet, SpaceRequest};
use crate::panics::{Panics, Part, Probe};
use crate::parsers::Parsers;
use crate::pressure::PressureSource;
use crate::progress::RequestProgress;
use crate::pulse::DoorPulse;
use crate::service::{SystemChance, random};
use crate::service_endpoints::ServiceEndpoints;
use crate::streamer::{LongAnswerConfig, LongAnswers};
use crate::watch::SpaceWatch;
use crate::watcher::{WatchTerms, WatchedWork};
use crate::worker::Worker;

/// A request on its way.
pub(crate) type Task = machine::task::PendingRequest<ReplyTo, Arc<NotificationOutlet>>;
pub(crate) type Control = machine::front_desk::Control<Arc<NotificationOutlet>>;
pub(crate) type Next = NextWrite<ReplyTo, Arc<NotificationOutlet>>;

/// The door that waits for an answer.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    /// Whether somebody waits, and how far it is.
    pub(crate) progress: Arc<RequestProgress>,
    /// Memory that its text is charged with.
    pub(crate) charge: Option<TextCharge>,
    pub(crate) reply: oneshot::Sender<Result<SpaceResponse, Refused>>,
}

impl Requester for ReplyTo {
    fn is_gone(&self) -> bool {
        self.progress.is_gone()
    }

    fn begin(&self) -> bool {
        self.progress.begin()
    }

    fn submit(&self) {
        self.progress.submit();
    }

    fn release(&mut self) {
        self.charge = None;
    }
}

/// What is under the one lock.
pub(crate) struct LockedState {
    pub(crate) front: FrontDesk<ReplyTo, Arc<NotificationOutlet>>,
    pub(crate) running: Vec<WatchedWork>,
    /// Evaluations that ever began.
    pub(crate) begun: u64,
    /// The writer waits, and nobody has called it since: a call that nobody hears is a system call all the same.
    is_writer_asleep: bool,
}

impl LockedState {
    /// Whether the writer is to be called, for what was just brought; it is, once the lock is let go.
    fn calls_writer(&mut self) -> bool {
        std::mem::take(&mut self.is_writer_asleep)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.front.is_closing()
    }
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) desk: Mutex<LockedState>,
    writer: Condvar,
    pub(crate) reader: Condvar,
    /// Threads beside the writer.
    pub(crate) evaluator: Worker<Evaluation>,
    pub(crate) drafter: Worker<DraftWork>,
    pub(crate) watcher: Condvar,
    /// The watcher waits until somebody calls it; only looked at under the lock.
    pub(crate) is_watcher_asleep: AtomicBool,
    /// Where the supervisor waits between two starts of the owner.
    supervisor: Condvar,
    pub(crate) cache: Arc<Mutex<Cache>>,
    pub(crate) counts: Counts,
    pub(crate) kps: KpDirectory,
    /// The connections that stay.
    pub(crate) attendance: Attendance,
    pub(crate) watch: SpaceWatch,
    /// Questions that are being evaluated. No other lock but that of the cache is taken while this one is held.
    pub(crate) evaluating: Mutex<RunningQueries<JoinedTask, Arc<Mutex<WatchTerms>>>>,
    /// The version of the last change that was, or is about to be, confirmed.
    pub(crate) version: AtomicU64,
    /// Bytes of answers that exist, and of the data.
    pub(crate) held: Arc<AnswerBytes>,
    pub(crate) data: Arc<DataMemory>,
    pub(crate) seed: (u64, u64),
    /// The longest time of a request.
    pub(crate) time_max: Duration,
    pub(crate) panics: Panics,
    /// How often the space has begun anew, and threads were given up.
    pub(crate) restarts: AtomicU64,
    /// The last number that a subscriber was told: connections outlive the space, so its next life gives none of them again.
    pub(crate) subscribers_made: AtomicU64,
    pub(crate) runaways: AtomicU64,
    /// That of the front desk, for those who look without the lock.
    condition: AtomicU8,
    /// Texts that wait to be read, and what they are charged with.
    pub(crate) parsers: Parsers,
    /// Answers that are sent while they are made, and how.
    pub(crate) streams: LongAnswers,
    pub(crate) long_answers: LongAnswerConfig,
    /// Whom queries with `SERVICE` may ask.
    pub(crate) services: ServiceEndpoints,
    pub(crate) texts: Arc<Texts>,
    pub(crate) probe: Option<Arc<dyn Probe>>,
    pub(crate) pressure: Option<Arc<dyn PressureSource>>,
    /// Where else changes have to be kept.
    pub(crate) mirror: Option<Arc<dyn Mirror>>,
    /// How long the doors take to get to what they are told.
    pub(crate) pulse: DoorPulse,
    /// How many subscriptions may be delegated.
    pub(crate) delegation: DelegationConfig,
    /// The number of the last connection whose requests are done in order.
    pub(crate) flows: AtomicU64,
    origin: Instant,
}

/// Nothing is done while a mutex is locked that could leave it half changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// None if a queue cannot be as it is wanted.
    pub(crate) fn new(seed: (u64, u64), admission: &SpaceAdmission) -> Option<Self> {
        let keys = [TicketKey::new(random()), TicketKey::new(random())];
        let desk = LockedState {
            front: FrontDesk::new(admission, keys)?,
            running: Vec::new(),
            begun: 0,
            is_writer_asleep: false,
        };
        Some(Self {
            desk: Mutex::new(desk),
            writer: Condvar::new(),
            reader: Condvar::new(),
            evaluator: Worker::default(),
            drafter: Worker::default(),
            watcher: Condvar::new(),
            is_watcher_asleep: AtomicBool::new(false),
            supervisor: Condvar::new(),
            cache: Arc::default(),
            evaluating: Mutex::default(),
            counts: Counts::default(),
            kps: KpDirectory::default(),
            attendance: Attendance::default(),
            watch: SpaceWatch::default(),
            version: AtomicU64::new(0),
            held: Arc::default(),
            data: Arc::default(),
            seed,
            time_max: admission.time_max,
            panics: Panics::default(),
            restarts: AtomicU64::new(0),
            subscribers_made: AtomicU64::new(0),
            runaways: AtomicU64::new(0),
            condition: AtomicU8::new(Condition::Serving.code()),
            parsers: Parsers::default(),
            streams: LongAnswers::default(),
            long_answers: LongAnswerConfig::default(),
            services: ServiceEndpoints::new(Vec::new()),
            texts: Arc::default(),
            probe: None,
            pressure: None,
            mirror: None,
            pulse: DoorPulse::default(),
            delegation: DelegationConfig::default(),
            flows: AtomicU64::new(0),
            origin: Instant::now(),
        })
    }

    /// The time, as the machines know it.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A request arrives: it is answered from memory, waits, or is refused at once.
    pub(crate) fn offer(&self, ask: SpaceRequest, asker: RequestOrigin, requester: ReplyTo) {
        let class = ask.class();
        let (name, shape) = ask.names(asker.scope, self.seed);
        let began = self.now();
        let until = began + asker.patience;
        let (accepts_partial, client, flow) = (asker.accepts_partial, asker.caller.client, asker.caller.flow);
        let (check, name) = (ask.check_name(name.as_ref(), client, asker.is_check), name.map(Box::new));
        let delegation = DelegationTerms::new(asker.accepts_delegation, asker.caller.standing).of(client);
        let hints = Hints::default();
        let (delivery, household) = (asker.delivery, asker.caller.own_household());
        let mut task = Task {
            ask,
            class,
            name,
            began,
            until,
            accepts_partial,
            check,
            client,
            flow,
            household,
            delivery,
            delegation,
            hints,
            requester,
        };
        if let Some(refused) = self.unavailable() {
            self.reply(task, Err(refused));
            return;
        }
        if let Some((bytes, version)) = self.remembered(&task, asker.scope) {
            let hints = lock(&self.desk).front.hints(began, &task, &asker.caller);
            let source = AnswerSource::Remembered;
            self.reply(task, Ok(SpaceResponse { answer: ResponseBody::Bytes(bytes), version, hints, source }));
            return;
        }
        if accepts_partial {
            // What may be a part is nobody else's answer.
            task.name = None;
        }
        if let Some(task) = self.join_running(task, &asker, shape) {
            self.enter(task, shape, &asker.caller);
        }
    }

    /// A request waits for its turn, or is refused at once.
    pub(crate) fn enter(&self, task: Task, shape: Shape, caller: &Caller) {
        let mut desk = lock(&self.desk);
        let offered = desk.front.offer(self.now(), task, shape, caller, &mut SystemChance);
        // Also when this one is refused: its coming may have ended the wait of others.
        let late: Vec<_> = [Side::Read, Side::Write].into_iter().flat_map(|side| desk.front.drain(side)).collect();
        let calls_writer = matches!(offered, Offered::Waits(Side::Write)) && desk.calls_writer();
        drop(desk);
        match offered {
            Offered::Waits(Side::Read) => self.reader.notify_one(),
            Offered::Waits(Side::Write) if calls_writer => self.writer.notify_one(),
            Offered::Waits(Side::Write) => {}
            Offered::Refused(task, refused) => drop(self.reply(task, Err(refused))),
        }
        self.reply_late(late);
    }

    pub(crate) fn control(&self, control: Control) {
        let mut desk = lock(&self.desk);
        desk.front.control(control);
        self.call_writer(desk);
    }

    /// Something was brought for the writer.
    fn call_writer(&self, mut desk: MutexGuard<'_, LockedState>) {
        let calls_writer = desk.calls_writer();
        drop(desk);
        if calls_writer {
            self.writer.notify_one();
        }
    }

    /// Whether the space serves, begins anew, or has given up; or whether another node may have it.
    pub(crate) fn condition(&self) -> Condition {
        if !self.is_surely_owner() {
            // What is here may be old: who was asleep does not know what another has confirmed since.
            return Condition::Unsure;
        }
        Condition::of_code(self.condition.load(Ordering::SeqCst))
    }

    /// Why nobody is served at the moment.
    pub(crate) fn unavailable(&self) -> Option<Refused> {
        let condition = self.condition();
        (condition != Condition::Serving).then_some(Refused::Unavailable(condition))
    }

    /// Whether nobody else can have confirmed anything in the place of this one.
    fn is_surely_owner(&self) -> bool {
        self.mirror.as_ref().is_none_or(|mirror| mirror.holds())
    }

    pub(crate) fn probe(&self, part: Part) {
        if let Some(probe) = &self.probe {
            probe.at(part);
        }
    }

    /// The owner is gone: from now on nobody is served, and whoever waits is told so.
    pub(crate) fn suspend(&self, condition: Condition) {
        let mut desk = lock(&self.desk);
        self.condition.store(condition.code(), Ordering::SeqCst);
        let waiting = desk.front.suspend(condition);
        drop(desk);
        for task in waiting {
            self.reply(task, Err(Refused::Unavailable(condition)));
        }
        self.watch.forget_standing();
    }

    /// There is an owner again, and data of this version.
    pub(crate) fn resume(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
        lock(&self.cache).forget(version);
        self.restarts.fetch_add(1, Ordering::Relaxed);
        lock(&self.desk).front.resume();
        self.condition.store(Condition::Serving.code(), Ordering::SeqCst);
    }

    /// Waits for so long; true if the service ends meanwhile.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut desk = lock(&self.desk);
        while !desk.is_closing() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            desk = self.supervisor.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.desk).is_closing()
    }

    pub(crate) fn close(&self) {
        lock(&self.desk).front.close();
        self.parsers.close();
        self.streams.close();
        self.evaluator.close();
        self.drafter.close();
        for wake in [&self.writer, &self.reader, &self.watcher, &self.supervisor] {
            wake.notify_all();
        }
    }

    /// Something was kept; called by the store.
    pub(crate) fn kept(&self) {
        let mut desk = lock(&self.desk);
        desk.front.handle_stored();
        self.call_writer(desk);
    }

    /// Waits for what the writer is to do; none when the service ends.
    /// Not longer than until then, if that is said.
    pub(crate) fn next_write(
        &self,
        hold: WriterWait,
        has_piece: bool,
        held: &[u64],
        look: Option<Timestamp>,
    ) -> Option<Next> {
        let mut desk = lock(&self.desk);
        loop {
            self.hear_pressure(&mut desk);
            let next = desk.front.next_write(self.now(), hold, has_piece, held);
            self.reply_late(desk.front.drain(Side::Write));
            desk.is_writer_asleep = matches!(next, Next::Wait(_));
            match next {
                Next::End => return None,
                Next::Wait(None) => match look.map(|look| look.since(self.now())) {
                    None => desk = self.writer.wait(desk).unwrap_or_else(PoisonError::into_inner),
                    Some(Duration::ZERO) => {
                        desk.is_writer_asleep = false;
                        return Some(next);
                    }
                    Some(time) => {
                        let waited = self.writer.wait_timeout(desk, time);
                        desk = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                },
                Next::Wait(Some(time)) => {
                    let waited = self.writer.wait_timeout(desk, time);
                    let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    desk = back;
                    if timeout.timed_out() {
                        desk.front.handle_stored();
                    }
                }
                next => return Some(next),
            }
        }
    }

    /// Waits for a question and the data to answer it from; none when the service ends.
    pub(crate) fn next_read(&self) -> Option<(Taken<Task>, Snapshot)> {
        let mut desk = lock(&self.desk);
        loop {
            self.hear_pressure(&mut desk);
            let next = desk.front.next_read(self.now());
            self.reply_late(desk.front.drain(Side::Read));
            match next {
                NextRead::End => return None,
                NextRead::Work(taken, snapshot) => return Some((taken, snapshot)),
                NextRead::Call if desk.calls_writer() => self.writer.notify_one(),
                NextRead::Call | NextRead::Wait => {}
            }
            desk = self.reader.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The data of now, for readers.
    pub(crate) fn show(&self, snapshot: Snapshot) {
        lock(&self.desk).front.show(snapshot);
        self.reader.notify_all();
    }

    /// The data have changed. Called before a change is confirmed; and what is remembered hears of it before anybody can
    /// read it, so that nobody is given something older than what somebody has seen.
    pub(crate) fn changed(&self, version: u64, touched: &TouchedPlaces, snapshot: impl FnOnce() -> Snapshot) {
        lock(&self.cache).show(touched, version);
        let mut desk = lock(&self.desk);
        self.version.store(version, Ordering::SeqCst);
        if desk.front.handle_changed(snapshot) {
            self.reader.notify_all();
        }
    }

    /// A job was done in this time. Said before its client is answered.
    pub(crate) fn served(&self, job: Job, side: Side, elapsed: Duration) {
        lock(&self.desk).front.served(job, side, elapsed);
    }

    /// A reader's job was stopped after this time, and is to be done later.
    pub(crate) fn take_back(&self, job: Job, tasks: Vec<Task>, elapsed: Duration) {
        lock(&self.desk).front.take_back(job, tasks, elapsed);
    }

    /// A job was given up after this time.
    pub(crate) fn cancelled(&self, job: Job, side: Side, elapsed: Duration) {
        lock(&self.desk).front.cancelled(job, side, elapsed);
    }

    /// False if whoever asked has gone.
    pub(crate) fn reply(&self, task: Task, outcome: Result<SpaceResponse, Refused>) -> bool {
        self.counts.count(task.class, &outcome, self.now().since(task.began));
        self.kps.on_answered(task.client, &outcome);
        task.requester.reply.send(outcome).is_ok()
    }

    fn reply_late(&self, ended: Vec<(Task, Refused)>) {
        for (task, refused) in ended {
            self.reply(task, Err(refused));
        }
    }
}

#[cfg(test)]
mod tests;
