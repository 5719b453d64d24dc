//! Where requests wait: two request pools, because one thread writes and several read, and each needs its own estimate of
//! when it will be free. Doors offer, the writer and the readers take, a watcher ends what takes too long. All of it is
//! under one lock that nobody holds while working.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, Key, Offered, PoolConfig, Request, RequestPool, Taken};
use tidegate_graph::{CancelToken, Snapshot, SubscriberId};
use tokio::sync::oneshot;

use crate::ask::{Answer, Answered, Ask, Asker, Refused, Source};
use crate::cache::Cache;
use crate::counts::Counts;
use crate::limits::{READERS, WATCH_INTERVAL};
use crate::watch::Watch;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) ask: Ask,
    pub(crate) class: Class,
    pub(crate) key: Option<Key>,
    pub(crate) until: Instant,
    /// Set when nobody waits any more.
    pub(crate) is_gone: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<Answered, Refused>>,
}

/// Things that cost nothing and do not wait.
#[derive(Debug)]
pub(crate) enum Control {
    /// There is room again for what these are to be told.
    Call(Vec<SubscriberId>),
    Unsubscribe(SubscriberId),
}

/// An evaluation under way.
struct Running {
    number: u64,
    token: CancelToken,
    until: Instant,
    /// Who waits for it; empty if it is done for its own sake.
    waiting: Vec<Arc<AtomicBool>>,
}

pub(crate) struct Desk {
    writers: RequestPool<Task>,
    readers: RequestPool<Task>,
    /// As many as there are subscriptions, at most.
    controls: VecDeque<Control>,
    /// The data of now, if a reader has asked for it since the last change: while it exists every change costs more.
    snapshot: Option<Snapshot>,
    is_snapshot_wanted: bool,
    running: Vec<Running>,
    /// Evaluations that ever began.
    begun: u64,
    is_closing: bool,
}

/// What all threads share.
pub(crate) struct Shared {
    desk: Mutex<Desk>,
    writer: Condvar,
    reader: Condvar,
    watcher: Condvar,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) counts: Counts,
    pub(crate) watch: Watch,
    /// The version of the last change that was, or is about to be, confirmed.
    pub(crate) version: AtomicU64,
    /// Bytes of answers that exist.
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) seed: (u64, u64),
    origin: Instant,
}

/// What the writer does next.
pub(crate) enum Next {
    Work(Box<Taken<Task>>),
    Control(Control),
    Snapshot,
}

/// Nothing is done while a mutex is locked that could leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool(servers: u32) -> Option<RequestPool<Task>> {
    let mut config = PoolConfig { servers, ..PoolConfig::default() };
    for (class, micros) in [(Class::Update, 50), (Class::Query, 100), (Class::Subscribe, 200)] {
        config.classes[class.index()].cost_initial = Duration::from_micros(micros);
    }
    RequestPool::new(&config).ok()
}

impl Shared {
    pub(crate) fn new(seed: (u64, u64)) -> Option<Self> {
        let desk = Desk {
            writers: pool(1)?,
            readers: pool(READERS as u32)?,
            controls: VecDeque::new(),
            snapshot: None,
            is_snapshot_wanted: false,
            running: Vec::new(),
            begun: 0,
            is_closing: false,
        };
        Some(Self {
            desk: Mutex::new(desk),
            writer: Condvar::new(),
            reader: Condvar::new(),
            watcher: Condvar::new(),
            cache: Mutex::default(),
            counts: Counts::default(),
            watch: Watch::default(),
            version: AtomicU64::new(0),
            held: Arc::default(),
            seed,
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
    ) -> Arc<AtomicBool> {
        let (class, key, reads) = (ask.class(), ask.key(asker.scope, self.seed), ask.only_reads());
        let is_gone = Arc::new(AtomicBool::new(false));
        let until = Instant::now() + asker.patience;
        let task = Task { ask, class, key, until, is_gone: Arc::clone(&is_gone), reply };
        let version = self.version.load(Ordering::SeqCst);
        if let Some(bytes) = key.and_then(|key| lock(&self.cache).find(key, version)) {
            let (queued, source) = (Duration::ZERO, Source::Remembered);
            self.reply(task, Ok(Answered { answer: Answer::Bytes(bytes), version, queued, source }));
            return is_gone;
        }
        let now = self.now();
        let mut desk = lock(&self.desk);
        if desk.is_closing {
            drop(desk);
            self.reply(task, Err(Refused::Closing));
            return is_gone;
        }
        let request = Request { class, key, deadline: Some(asker.patience), value: task };
        let pool = if reads { &mut desk.readers } else { &mut desk.writers };
        let offered = pool.offer(now, request);
        let wake = if reads { &self.reader } else { &self.writer };
        let refused = match offered {
            Offered::Queued | Offered::Joined | Offered::Parked { .. } => {
                wake.notify_one();
                None
            }
            Offered::Denied { value, retry_after, .. } => Some((value, retry_after)),
            Offered::Dropped { value, .. } | Offered::Immediate(value) => Some((value, Duration::from_secs(1))),
        };
        let late = drain(pool);
        drop(desk);
        if let Some((task, retry_after)) = refused {
            self.reply(task, Err(Refused::Busy { retry_after }));
        }
        self.reply_late(late);
        is_gone
    }

    pub(crate) fn control(&self, control: Control) {
        lock(&self.desk).controls.push_back(control);
        self.writer.notify_one();
    }

    pub(crate) fn close(&self) {
        lock(&self.desk).is_closing = true;
        for wake in [&self.writer, &self.reader, &self.watcher] {
            wake.notify_all();
        }
    }

    /// Waits for what the writer is to do; none when the service ends.
    pub(crate) fn next_write(&self) -> Option<Next> {
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
            let taken = desk.writers.take(self.now());
            let late = drain(&mut desk.writers);
            if let Some(taken) = taken {
                drop(desk);
                self.reply_late(late);
                return Some(Next::Work(Box::new(taken)));
            }
            self.reply_late(late);
            desk = self.writer.wait(desk).unwrap_or_else(PoisonError::into_inner);
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
                let late = drain(&mut desk.readers);
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

    /// Runs an evaluation with a token that is cancelled when its time is over or nobody waits for it any more.
    pub(crate) fn watched<T>(
        &self,
        until: Instant,
        waiting: Vec<Arc<AtomicBool>>,
        work: impl FnOnce(CancelToken) -> T,
    ) -> T {
        let token = CancelToken::default();
        let number = {
            let mut desk = lock(&self.desk);
            desk.begun += 1;
            let number = desk.begun;
            desk.running.push(Running { number, token: token.clone(), until, waiting });
            number
        };
        self.watcher.notify_one();
        let outcome = work(token);
        lock(&self.desk).running.retain(|running| running.number != number);
        outcome
    }

    /// The watcher's life.
    pub(crate) fn watch(&self) {
        let mut desk = lock(&self.desk);
        while !desk.is_closing {
            let now = Instant::now();
            for running in &desk.running {
                let is_unwanted = !running.waiting.is_empty()
                    && running.waiting.iter().all(|is_gone| is_gone.load(Ordering::Relaxed));
                if now >= running.until || is_unwanted {
                    running.token.cancel();
                }
            }
            desk = if desk.running.is_empty() {
                self.watcher.wait(desk).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.watcher.wait_timeout(desk, WATCH_INTERVAL);
                waited.map_or_else(|poisoned| poisoned.into_inner().0, |(desk, _)| desk)
            };
        }
        for running in &desk.running {
            running.token.cancel();
        }
    }

    /// A job was done in this time, or was not done.
    pub(crate) fn served(&self, job: tidegate_control::admission::Job, reads: bool, elapsed: Option<Duration>) {
        let mut desk = lock(&self.desk);
        let pool = if reads { &mut desk.readers } else { &mut desk.writers };
        match elapsed {
            Some(elapsed) => pool.on_served(job, elapsed),
            None => pool.on_cancelled(job),
        }
    }

    pub(crate) fn reply(&self, task: Task, outcome: Result<Answered, Refused>) {
        self.counts.count(task.class, &outcome);
        // Whoever asked may have gone.
        let _ = task.reply.send(outcome);
    }

    fn reply_late(&self, late: Vec<Task>) {
        for task in late {
            self.reply(task, Err(Refused::Late));
        }
    }

    /// Evaluations under way.
    pub(crate) fn running(&self) -> usize {
        lock(&self.desk).running.len()
    }
}

fn drain(pool: &mut RequestPool<Task>) -> Vec<Task> {
    std::iter::from_fn(|| pool.poll_ended()).map(|ended| ended.value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody works here: what is offered waits.
    fn offered(shared: &Shared, patience: Duration) -> oneshot::Receiver<Result<Answered, Refused>> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Edit { remove: Vec::new(), insert: Vec::new() };
        shared.offer(ask, Asker { scope: 0, patience }, reply);
        answer
    }

    #[test]
    fn what_would_wait_too_long_is_refused_at_once_with_the_time_to_come_back() {
        let shared = Shared::new((1, 2)).unwrap();
        let mut waiting = Vec::new();
        let retry_after = loop {
            let mut answer = offered(&shared, Duration::from_secs(10));
            match answer.try_recv() {
                Ok(Err(Refused::Busy { retry_after })) => break retry_after,
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
    fn who_cannot_wait_is_told_so_and_after_the_end_nobody_waits() {
        let shared = Shared::new((1, 2)).unwrap();
        let _first = offered(&shared, Duration::from_secs(10));
        let mut hopeless = offered(&shared, Duration::from_micros(1));
        assert!(matches!(hopeless.try_recv(), Ok(Err(Refused::Busy { .. }))));
        shared.close();
        assert!(matches!(offered(&shared, Duration::from_secs(1)).try_recv(), Ok(Err(Refused::Closing))));
    }
}
