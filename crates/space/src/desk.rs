//! Where requests wait: two request pools, because one thread writes and several read, and each needs its own estimate of
//! when it will be free. Doors offer, the writer and the readers take, a watcher ends what takes too long. All of it is
//! under one lock that nobody holds while working.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, Key};
use tidegate_control::appointments::TicketKey;
use tidegate_control::hints::Hints;
use tidegate_graph::{Evaluated, Snapshot, SubscriberId};
use tokio::sync::oneshot;

use crate::admission::Admission;
use crate::ask::{Answer, Answered, Ask, Asker, Refused, Source};
use crate::cache::Cache;
use crate::condition::Condition;
use crate::counts::Counts;
use crate::evaluator::EvaluatorState;
use crate::limits::{LONG_READERS, LOOK_INTERVAL, PROCESSORS_READING, READERS};
use crate::memory::{Charge, Texts};
use crate::order::{Job, Request, Servers, Taken};
use crate::outlet::Outlet;
use crate::panics::{Panics, Part, Probe};
use crate::parsers::Parsers;
use crate::pool::{Entered, Pool};
use crate::progress::Progress;
use crate::service::{Chance, random};
use crate::watch::Watch;
use crate::watcher::Running;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) ask: Ask,
    pub(crate) class: Class,
    pub(crate) key: Option<Key>,
    began: Instant,
    pub(crate) until: Instant,
    /// What its client is told about pace.
    pub(crate) hints: Hints,
    /// Whether somebody waits, and how far it is.
    pub(crate) progress: Arc<Progress>,
    /// Memory that its text is charged with.
    pub(crate) charge: Option<Charge>,
    reply: oneshot::Sender<Result<Answered, Refused>>,
}

/// Things that cost nothing and do not wait.
pub(crate) enum Control {
    /// There is room again for what these are to be told.
    Call(Vec<SubscriberId>),
    /// The client does not want it any more.
    Unsubscribe(SubscriberId, Arc<Outlet>),
    /// The connection is lost; the client may come back.
    Depart(SubscriberId, Arc<Outlet>),
    /// A standing query was evaluated.
    Evaluated(Box<Evaluated>),
    /// The evaluator has nothing to do.
    Idle,
}

pub(crate) struct Desk {
    writers: Pool<Task>,
    readers: Pool<Task>,
    /// As many as there are subscriptions, twice, at most.
    controls: VecDeque<Control>,
    /// Something was kept since the writer last looked.
    is_kept: bool,
    /// The data of now, if a reader has asked for it since the last change: while it exists every change costs more.
    snapshot: Option<Snapshot>,
    is_snapshot_wanted: bool,
    pub(crate) evaluator_state: EvaluatorState,
    pub(crate) running: Vec<Running>,
    /// Evaluations that ever began.
    pub(crate) begun: u64,
    pub(crate) is_closing: bool,
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) desk: Mutex<Desk>,
    writer: Condvar,
    pub(crate) reader: Condvar,
    pub(crate) evaluator: Condvar,
    pub(crate) watcher: Condvar,
    /// The watcher waits until somebody calls it; only looked at under the lock.
    pub(crate) is_watcher_asleep: AtomicBool,
    /// Where the supervisor waits between two starts of the owner.
    supervisor: Condvar,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) counts: Counts,
    pub(crate) watch: Watch,
    /// The version of the last change that was, or is about to be, confirmed.
    pub(crate) version: AtomicU64,
    /// Bytes of answers that exist.
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) seed: (u64, u64),
    /// The longest time of a request.
    pub(crate) time_max: Duration,
    pub(crate) panics: Panics,
    /// How often the space has begun anew, and threads were given up.
    pub(crate) restarts: AtomicU64,
    pub(crate) runaways: AtomicU64,
    condition: AtomicU8,
    /// Texts that wait to be read, and what they are charged with.
    pub(crate) parsers: Parsers,
    pub(crate) texts: Arc<Texts>,
    pub(crate) probe: Option<Arc<dyn Probe>>,
    origin: Instant,
}

/// What the writer does next.
pub(crate) enum Next {
    Work(Box<Taken<Task>>),
    Control(Control),
    Snapshot,
    /// See what has become of what is to be kept.
    Look,
}

/// What the writer waits for beside requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing.
    Free,
    /// It takes what is there, to have it kept together, and waits for nothing more.
    Gathering,
    /// It takes no request before what it has is kept.
    Settling,
    /// It takes requests to refuse them: the disk fails.
    Stuck,
}

/// Nothing is done while a mutex is locked that could leave it half changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// None if a pool cannot be as it is wanted.
    pub(crate) fn new(seed: (u64, u64), admission: &Admission) -> Option<Self> {
        let pool = |servers: Servers| Pool::new(&admission.pool(servers.worth), servers, TicketKey::new(random()));
        // The writer has one thread, and as many jobs under way as wait together for the disk.
        let writer = Servers { threads: usize::MAX, long_max: usize::MAX, worth: 1 };
        let readers = Servers { threads: READERS, long_max: LONG_READERS, worth: PROCESSORS_READING };
        let desk = Desk {
            writers: pool(writer)?,
            readers: pool(readers)?,
            controls: VecDeque::new(),
            is_kept: false,
            snapshot: None,
            is_snapshot_wanted: false,
            evaluator_state: EvaluatorState::Busy,
            running: Vec::new(),
            begun: 0,
            is_closing: false,
        };
        Some(Self {
            desk: Mutex::new(desk),
            writer: Condvar::new(),
            reader: Condvar::new(),
            evaluator: Condvar::new(),
            watcher: Condvar::new(),
            is_watcher_asleep: AtomicBool::new(false),
            supervisor: Condvar::new(),
            cache: Mutex::default(),
            counts: Counts::default(),
            watch: Watch::default(),
            version: AtomicU64::new(0),
            held: Arc::default(),
            seed,
            time_max: admission.time_max,
            panics: Panics::default(),
            restarts: AtomicU64::new(0),
            runaways: AtomicU64::new(0),
            condition: AtomicU8::new(Condition::Serving.code()),
            parsers: Parsers::default(),
            texts: Arc::default(),
            probe: None,
            origin: Instant::now(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A request arrives: it is answered from memory, waits, or is refused at once.
    pub(crate) fn offer(
        &self,
        ask: Ask,
        asker: Asker,
        reply: oneshot::Sender<Result<Answered, Refused>>,
        progress: Arc<Progress>,
        charge: Option<Charge>,
    ) {
        let (class, reads) = (ask.class(), ask.only_reads());
        let (key, shape) = ask.names(asker.scope, self.seed);
        let began = Instant::now();
        let until = began + asker.patience;
        let hints = Hints::default();
        let mut task = Task { ask, class, key, began, until, hints, progress, charge, reply };
        if let Some(refused) = self.unavailable() {
            self.reply(task, Err(refused));
            return;
        }
        let version = self.version.load(Ordering::SeqCst);
        if let Some(bytes) = key.and_then(|key| lock(&self.cache).find(key, version)) {
            let mut desk = lock(&self.desk);
            let hints = desk.readers.hints(self.now(), class, &asker.caller);
            drop(desk);
            let hints = Hints { queued: Some(Duration::ZERO), ..hints };
            let source = Source::Remembered;
            self.reply(task, Ok(Answered { answer: Answer::Bytes(bytes), version, hints, source }));
            return;
        }
        let now = self.now();
        let mut desk = lock(&self.desk);
        // Whoever suspends the space holds the lock, and would not see what comes behind it.
        if let Some(refused) = self.unavailable() {
            drop(desk);
            self.reply(task, Err(refused));
            return;
        }
        if desk.is_closing {
            drop(desk);
            self.reply(task, Err(Refused::Closing));
            return;
        }
        let pool = if reads { &mut desk.readers } else { &mut desk.writers };
        let hints = pool.hints(now, class, &asker.caller);
        task.hints.clone_from(&hints);
        let (client, patience) = (asker.caller.client, asker.patience);
        let request = Request { class, key, client, shape, patience, is_promised: false, value: task };
        let entered = pool.offer(now, request, &asker.caller, &hints, &mut Chance);
        let late = pool.drain();
        drop(desk);
        match entered {
            Entered::Waits if reads => self.reader.notify_one(),
            Entered::Waits => self.writer.notify_one(),
            Entered::Refused(task, hints) => {
                self.reply(task, Err(Refused::Busy(hints)));
            }
        }
        self.reply_late(late);
    }

    pub(crate) fn control(&self, control: Control) {
        lock(&self.desk).controls.push_back(control);
        self.writer.notify_one();
    }

    /// How the space is.
    pub(crate) fn condition(&self) -> Condition {
        Condition::of_code(self.condition.load(Ordering::SeqCst))
    }

    /// Why nobody is served at the moment.
    pub(crate) fn unavailable(&self) -> Option<Refused> {
        let condition = self.condition();
        (condition != Condition::Serving).then_some(Refused::Unavailable(condition))
    }

    pub(crate) fn probe(&self, part: Part) {
        if let Some(probe) = &self.probe {
            probe.at(part);
        }
    }

    /// The owner is gone: from now on nobody is served, and whoever waits is told so. What was known of the data is
    /// forgotten.
    pub(crate) fn suspend(&self, condition: Condition) {
        let mut desk = lock(&self.desk);
        self.condition.store(condition.code(), Ordering::SeqCst);
        let Desk { writers, readers, .. } = &mut *desk;
        let mut waiting = writers.clear();
        waiting.extend(readers.clear());
        desk.controls.clear();
        desk.snapshot = None;
        desk.is_snapshot_wanted = false;
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
        self.condition.store(Condition::Serving.code(), Ordering::SeqCst);
    }

    /// Waits for so long; true if the service ends meanwhile.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut desk = lock(&self.desk);
        while !desk.is_closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            desk = self.supervisor.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.desk).is_closing
    }

    pub(crate) fn close(&self) {
        lock(&self.desk).is_closing = true;
        self.parsers.close();
        for wake in [&self.writer, &self.reader, &self.evaluator, &self.watcher, &self.supervisor] {
            wake.notify_all();
        }
    }

    /// Something was kept; called by the store.
    pub(crate) fn kept(&self) {
        lock(&self.desk).is_kept = true;
        self.writer.notify_one();
    }

    /// Waits for what the writer is to do; none when the service ends.
    pub(crate) fn next_write(&self, hold: Hold) -> Option<Next> {
        let mut desk = lock(&self.desk);
        loop {
            if desk.is_closing {
                return None;
            }
            if desk.is_snapshot_wanted {
                return Some(Next::Snapshot);
            }
            if let Some(control) = desk.controls.pop_front() {
                return Some(Next::Control(control));
            }
            if hold != Hold::Settling {
                let taken = desk.writers.take(self.now());
                let late = desk.writers.drain();
                self.reply_late(late);
                if let Some(taken) = taken {
                    return Some(Next::Work(Box::new(taken)));
                }
            }
            match hold {
                Hold::Free => desk = self.writer.wait(desk).unwrap_or_else(PoisonError::into_inner),
                Hold::Settling | Hold::Stuck if !desk.is_kept => {
                    // A disk that fails says nothing: it is looked at.
                    let waited = self.writer.wait_timeout(desk, LOOK_INTERVAL);
                    let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    desk = back;
                    desk.is_kept |= timeout.timed_out();
                }
                _ => {
                    desk.is_kept = false;
                    return Some(Next::Look);
                }
            }
        }
    }

    /// Waits for a question and the data to answer it from; none when the service ends.
    pub(crate) fn next_read(&self) -> Option<(Taken<Task>, Snapshot)> {
        let mut desk = lock(&self.desk);
        loop {
            if desk.is_closing {
                return None;
            }
            if let Some(snapshot) = desk.snapshot.clone() {
                let taken = desk.readers.take(self.now());
                let late = desk.readers.drain();
                self.reply_late(late);
                if let Some(taken) = taken {
                    return Some((taken, snapshot));
                }
            } else if !desk.readers.is_empty() {
                desk.is_snapshot_wanted = true;
                self.writer.notify_one();
            }
            desk = self.reader.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The data of now, for readers.
    pub(crate) fn show(&self, snapshot: Snapshot) {
        let mut desk = lock(&self.desk);
        desk.snapshot = Some(snapshot);
        desk.is_snapshot_wanted = false;
        self.reader.notify_all();
    }

    /// The data have changed: what readers get from now on is not what it was. Called before a change is confirmed.
    pub(crate) fn changed(&self, version: u64, snapshot: impl FnOnce() -> Snapshot) {
        let mut desk = lock(&self.desk);
        self.version.store(version, Ordering::SeqCst);
        // Readers that wait already are given it; if there are none, changes stay cheap.
        desk.snapshot = (desk.is_snapshot_wanted || !desk.readers.is_empty()).then(snapshot);
        desk.is_snapshot_wanted = false;
        if desk.snapshot.is_some() {
            self.reader.notify_all();
        }
        drop(desk);
        lock(&self.cache).forget(version);
    }

    /// A job was done in this time. Said before its client is answered, or the client's next request would find it under
    /// way.
    pub(crate) fn served(&self, job: Job, reads: bool, elapsed: Duration) {
        let mut desk = lock(&self.desk);
        let pool = if reads { &mut desk.readers } else { &mut desk.writers };
        pool.served(job, elapsed);
    }

    /// A job was given up after this time.
    pub(crate) fn cancelled(&self, job: Job, reads: bool, elapsed: Duration) {
        let mut desk = lock(&self.desk);
        let pool = if reads { &mut desk.readers } else { &mut desk.writers };
        pool.cancelled(job, elapsed);
    }

    /// False if whoever asked has gone.
    pub(crate) fn reply(&self, task: Task, outcome: Result<Answered, Refused>) -> bool {
        self.counts.count(task.class, &outcome, task.began.elapsed());
        task.reply.send(outcome).is_ok()
    }

    fn reply_late(&self, late: Vec<Task>) {
        for task in late {
            self.reply(task, Err(Refused::Late));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Line, Policy};
    use crate::pool::Caller;

    /// Nobody works here: what is offered waits.
    fn offered(shared: &Shared, patience: Duration) -> oneshot::Receiver<Result<Answered, Refused>> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Edit { remove: Vec::new(), insert: Vec::new() };
        let asker = Asker { scope: 0, patience, caller: Caller::default() };
        shared.offer(ask, asker, reply, Arc::default(), None);
        answer
    }

    #[test]
    fn what_would_wait_too_long_is_refused_at_once_with_the_time_to_come_back() {
        let shared = Shared::new((1, 2), &Admission::default()).unwrap();
        let mut waiting = Vec::new();
        let retry_after = loop {
            let mut answer = offered(&shared, Duration::from_secs(10));
            match answer.try_recv() {
                Ok(Err(Refused::Busy(hints))) => break hints.retry_after.unwrap(),
                Ok(other) => panic!("{other:?}"),
                Err(_) => waiting.push(answer),
            }
            assert!(waiting.len() <= 10_000, "nothing is ever refused");
        };
        // A tenth of a second of changes that are taken to last 50 µs.
        assert_eq!(waiting.len(), 2000);
        assert!(retry_after >= Duration::from_millis(90), "{retry_after:?}");
        assert_eq!(shared.counts.all(), [("update", "busy", 1)]);
    }

    #[test]
    fn an_operator_chooses_how_long_the_line_is_and_what_happens_beyond() {
        let line = Line { policy: Policy::Postpone, delay_max: Duration::from_millis(1) };
        let shared = Shared::new((1, 2), &Admission { update: line, ..Admission::default() }).unwrap();
        // Twenty of 50 µs each are a millisecond; the others wait, too, and nobody is refused.
        let mut waiting: Vec<_> = (0..100).map(|_| offered(&shared, Duration::from_secs(10))).collect();
        assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_err()));
        let line = Line { policy: Policy::Deny, ..line };
        let shared = Shared::new((1, 2), &Admission { update: line, ..Admission::default() }).unwrap();
        let mut waiting: Vec<_> = (0..100).map(|_| offered(&shared, Duration::from_secs(10))).collect();
        let refused = waiting.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
        assert_eq!(
            refused,
            100 - crate::order::CLIENT_FREE,
            "what a client may have under way is not refused for delay"
        );
        let line = Line { delay_max: Duration::ZERO, ..line };
        assert!(Shared::new((1, 2), &Admission { update: line, ..Admission::default() }).is_none());
    }

    #[test]
    fn who_cannot_wait_is_told_so_and_after_the_end_nobody_waits() {
        let shared = Shared::new((1, 2), &Admission::default()).unwrap();
        let _first = offered(&shared, Duration::from_secs(10));
        let _second = offered(&shared, Duration::from_secs(10));
        let mut hopeless = offered(&shared, Duration::from_micros(1));
        assert!(matches!(hopeless.try_recv(), Ok(Err(Refused::Busy(_)))));
        shared.close();
        assert!(matches!(offered(&shared, Duration::from_secs(1)).try_recv(), Ok(Err(Refused::Closing))));
    }
}
