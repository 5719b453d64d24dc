//! Where texts are read: SPARQL, RDF and whatever else recursive parsers see. On threads of their own, with a stack that
//! is large enough for every text that the bounds let through, within the time of the request, and only while somebody
//! waits. Long texts have a lane of their own, so that short ones never wait for them. A panic costs the request that met
//! it, and its thread is replaced.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_control::admission::Class;
use tidegate_graph::{MemorySource, QueryLimits};
use tokio::sync::oneshot;

use crate::crew::is_given_up;
use crate::handle::{PendingReply, SpaceHandle};
use crate::limits::{GRACE, INLINE_BYTES, READINGS_MAX, READINGS_OF_CLIENT_MAX, TEXT_COST};
use crate::machine::request::{Refused, RequestOrigin, SpaceResponse};
use crate::machine::request_queue::Caller;
use crate::machine::standing::KpRole;
use crate::memory::TextCharge;
use crate::notifications::SpaceRequest;
use crate::panics::Part;
use crate::progress::RequestProgress;
use crate::shared_state::{ReplyTo, Shared, lock};
use crate::watcher::RunawayDuty;

/// A text to be read, or to be refused if there is no room for it in its lane. False if reading it panicked.
type Job = Box<dyn FnOnce(&Shared, ParseDecision) -> bool + Send>;

/// What becomes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseDecision {
    Read,
    Refuse,
}

/// Whether a text is short or long: each kind has threads of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    Long,
}

#[derive(Default)]
struct ParserLane {
    jobs: Mutex<Jobs>,
    wake: Condvar,
}

/// Lines that take turns: one of each in turn, so that one who sends many slow texts is only in its own way.
struct TurnLines<L> {
    /// None is empty.
    lines: HashMap<u64, L>,
    /// Whose turn it is: each that waits once.
    turns: VecDeque<u64>,
}

impl<L> Default for TurnLines<L> {
    fn default() -> Self {
        Self { lines: HashMap::new(), turns: VecDeque::new() }
    }
}

impl<L: Default> TurnLines<L> {
    fn line(&mut self, key: u64) -> &mut L {
        if !self.lines.contains_key(&key) {
            self.turns.push_back(key);
        }
        self.lines.entry(key).or_default()
    }

    /// Takes something of whoever is next; what is taken says whether more is left.
    fn pop<T>(&mut self, take: impl FnOnce(&mut L) -> (Option<T>, bool)) -> Option<T> {
        let key = self.turns.pop_front()?;
        let (taken, has_more) = take(self.lines.get_mut(&key)?);
        if has_more {
            self.turns.push_back(key);
        } else {
            self.lines.remove(&key);
        }
        taken
    }
}

/// The texts of a household: its clients take turns.
#[derive(Default)]
struct HouseholdTexts {
    clients: TurnLines<VecDeque<Job>>,
    waiting: usize,
}

#[derive(Default)]
struct Jobs {
    /// By role; in each, households take turns.
    roles: [TurnLines<HouseholdTexts>; KpRole::ALL.len()],
    /// Texts of services that were read since one of a customer's was.
    services: u32,
    waiting: usize,
    is_closed: bool,
}

impl Jobs {
    /// Gives it back if too many wait already.
    fn push(&mut self, caller: &Caller, job: Job) -> Option<Job> {
        let household = if caller.household == 0 { caller.client } else { caller.household };
        let role = &mut self.roles[caller.standing.role.index()];
        let own = role.lines.get(&household).map_or(0, |it| it.waiting);
        if self.is_closed || self.waiting >= READINGS_MAX || own >= READINGS_OF_CLIENT_MAX {
            return Some(job);
        }
        let texts = role.line(household);
        texts.clients.line(caller.client).push_back(job);
        texts.waiting += 1;
        self.waiting += 1;
        None
    }

    /// Services first, and one of a customer's after some of theirs.
    fn pop(&mut self) -> Option<Job> {
        let is_customers_turn = self.services >= SERVICES_IN_A_ROW;
        let first = if is_customers_turn { KpRole::Customer } else { KpRole::Service };
        let other = if is_customers_turn { KpRole::Service } else { KpRole::Customer };
        let job = self.pop_of(first).or_else(|| self.pop_of(other))?;
        self.waiting -= 1;
        Some(job)
    }

    fn pop_of(&mut self, role: KpRole) -> Option<Job> {
        let job = self.roles[role.index()].pop(|texts| {
            let job = texts.clients.pop(|line| (line.pop_front(), !line.is_empty()));
            texts.waiting -= usize::from(job.is_some());
            (job, texts.waiting > 0)
        })?;
        self.services = if role == KpRole::Service { self.services + 1 } else { 0 };
        Some(job)
    }
}

/// As many parts as services have where requests wait.
const SERVICES_IN_A_ROW: u32 = 15;

/// The texts that wait.
#[derive(Default)]
pub(crate) struct Parsers {
    short: ParserLane,
    long: ParserLane,
}

/// A text that is read, and then asked. `N` is what its door wants to know of it beside the answer.
#[derive(Debug)]
pub struct TextReading<N> {
    waiting: PendingReply,
    note: Arc<Mutex<Option<N>>>,
}

impl<N> TextReading<N> {
    /// Waits for the answer, and says what was noted; nothing if the text was never read. Not to be called again after
    /// it has answered.
    pub async fn wait(&mut self) -> (Result<SpaceResponse, Refused>, Option<N>) {
        let outcome = self.waiting.wait().await;
        (outcome, lock(&self.note).take())
    }

    /// The same for those who ask once.
    pub async fn answer(mut self) -> (Result<SpaceResponse, Refused>, Option<N>) {
        self.wait().await
    }
}

impl Parsers {
    fn lane(&self, length: Length) -> &ParserLane {
        match length {
            Length::Short => &self.short,
            Length::Long => &self.long,
        }
    }

    /// Gives it back if too many wait already, or none are taken any more.
    fn push(&self, length: Length, caller: &Caller, job: Job) -> Option<Job> {
        let lane = self.lane(length);
        let refused = lock(&lane.jobs).push(caller, job);
        if refused.is_none() {
            lane.wake.notify_one();
        }
        refused
    }

    pub(crate) fn close(&self) {
        for lane in [&self.short, &self.long] {
            let mut jobs = lock(&lane.jobs);
            let left = std::mem::replace(&mut *jobs, Jobs { is_closed: true, ..Jobs::default() });
            drop(jobs);
            lane.wake.notify_all();
            // Whoever waits is told by the end of its channel.
            drop(left);
        }
    }

    fn next(&self, length: Length) -> Option<Job> {
        let lane = self.lane(length);
        let mut jobs = lock(&lane.jobs);
        loop {
            if jobs.is_closed {
                return None;
            }
            if let Some(job) = jobs.pop() {
                return Some(job);
            }
            jobs = lane.wake.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A parser's life; false if it is to be replaced.
pub(crate) fn run(shared: &Shared, length: Length) -> bool {
    while let Some(job) = shared.parsers.next(length) {
        // Beside the parser itself, which is caught closer to its request.
        if !shared.panics.catch(Part::Parser, || job(shared, ParseDecision::Read)).unwrap_or(false) {
            return false;
        }
        if is_given_up() {
            return true;
        }
    }
    true
}

impl SpaceHandle {
    /// Has a text of so many bytes read elsewhere, and asks what it says. `work` reads it under limits whose token is
    /// cancelled when the asker's time is over or nobody waits any more; it says what its door wants to know, and what to
    /// ask. Requests that are to be done in order must not be started this way before those before them are answered.
    pub fn read<N: Send + Sync + 'static>(
        &self,
        bytes: usize,
        class: Class,
        asker: RequestOrigin,
        work: impl FnOnce(&QueryLimits) -> (N, Result<SpaceRequest, Refused>) + Send + 'static,
    ) -> TextReading<N> {
        let (reply, answer) = oneshot::channel();
        let (note, progress) = (Arc::default(), Arc::new(RequestProgress::default()));
        let patience = asker.patience.min(self.shared.time_max);
        let asker = RequestOrigin { patience, scope: self.scope(), ..asker };
        let own = self.clone();
        let work = move |limits: &QueryLimits| {
            let (note, asked) = work(limits);
            (note, asked.and_then(|ask| own.restrict(ask, limits)))
        };
        let until = self.shared.now() + asker.patience;
        // What says that it is a query may turn out to be an update: old clients send both in the same message.
        let is_change = !matches!(class, Class::Subscribe | Class::Check);
        let waiting = PendingReply::new(
            answer,
            Instant::now() + asker.patience + GRACE,
            Arc::clone(&progress),
            is_change,
            Arc::clone(&self.shared),
        );
        let caller = asker.caller;
        let request = Request { class, asker, until, progress, reply };
        let reading = TextReading { waiting, note: Arc::clone(&note) };
        let limited = caller.limited.map(Refused::Limited);
        if let Some(refused) = limited.or_else(|| self.shared.unavailable()) {
            request.refuse(&self.shared, refused);
            return reading;
        }
        let Some(charge) = self.shared.texts.charge(bytes.saturating_mul(TEXT_COST)) else {
            request.refuse(&self.shared, Refused::busy(BUSY_RETRY));
            return reading;
        };
        let length = if bytes > INLINE_BYTES { Length::Long } else { Length::Short };
        let job: Job = Box::new(move |shared, turn| match turn {
            ParseDecision::Read => request.serve(shared, charge, &note, work),
            ParseDecision::Refuse => {
                request.refuse(shared, Refused::busy(BUSY_RETRY));
                true
            }
        });
        if let Some(job) = self.shared.parsers.push(length, &caller, job) {
            job(&self.shared, ParseDecision::Refuse);
        }
        reading
    }
}

impl SpaceHandle {
    /// Charges memory for a text that arrives; none if there is no room.
    pub(crate) fn charge(&self, bytes: usize) -> Option<TextCharge> {
        self.shared.texts.charge(bytes)
    }
}

/// When to come back if too many texts wait.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// What a text is charged with: for its bytes, and for what it says at length, while it is read.
struct Account {
    charge: Mutex<Option<TextCharge>>,
    is_refused: AtomicBool,
}

impl Account {
    fn more(&self, bytes: usize) -> bool {
        let is_taken = lock(&self.charge).as_mut().is_some_and(|charge| charge.more(bytes));
        self.is_refused.fetch_or(!is_taken, Ordering::Relaxed);
        is_taken
    }
}

/// A request whose text is not read yet.
struct Request {
    class: Class,
    asker: RequestOrigin,
    until: Timestamp,
    progress: Arc<RequestProgress>,
    reply: oneshot::Sender<Result<SpaceResponse, Refused>>,
}

impl Request {
    fn refuse(self, shared: &Shared, refused: Refused) {
        let outcome = Err(refused);
        shared.counts.count(self.class, &outcome, Duration::ZERO);
        shared.kps.on_answered(self.asker.caller.client, &outcome);
        let _ = self.reply.send(outcome);
    }

    fn serve<N>(
        self,
        shared: &Shared,
        charge: TextCharge,
        note: &Mutex<Option<N>>,
        work: impl FnOnce(&QueryLimits) -> (N, Result<SpaceRequest, Refused>),
    ) -> bool {
        if self.progress.is_gone() || shared.now() >= self.until {
            self.refuse(shared, Refused::Late);
            return true;
        }
        let waiting = vec![Arc::clone(&self.progress)];
        let account = Arc::new(Account { charge: Mutex::new(Some(charge)), is_refused: AtomicBool::new(false) });
        let own = Arc::clone(&account);
        let memory = MemorySource::new(move |bytes| own.more(bytes));
        let read = shared.watched(self.until, waiting, Some((Part::Parser, RunawayDuty::Nobody)), |cancel| {
            shared.panics.catch(Part::Parser, || {
                shared.probe(Part::Parser);
                work(&QueryLimits { cancel, memory, ..QueryLimits::default() })
            })
        });
        let Ok((noted, asked)) = read else {
            self.refuse(shared, Refused::Panicked);
            return false;
        };
        if account.is_refused.load(Ordering::Relaxed) {
            self.refuse(shared, Refused::busy(BUSY_RETRY));
            return true;
        }
        let charge = lock(&account.charge).take();
        *lock(note) = Some(noted);
        match asked {
            Ok(ask) => {
                let Self { asker, until, progress, reply, .. } = self;
                let patience = until.since(shared.now());
                shared.offer(ask, RequestOrigin { patience, ..asker }, ReplyTo { progress, charge, reply });
            }
            Err(Refused::Late) => self.refuse(shared, Refused::Late),
            // Not counted by class, because nothing was asked; but its KP did come.
            Err(refused) => {
                let outcome = Err(refused);
                shared.kps.on_answered(self.asker.caller.client, &outcome);
                let _ = self.reply.send(outcome);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::standing::KpStanding;

    #[test]
    fn clients_take_turns_and_none_takes_all_the_places() {
        let mut jobs = Jobs::default();
        let (told, heard) = std::sync::mpsc::channel();
        let job = |client: u64| -> Job {
            let told = told.clone();
            Box::new(move |_, _| told.send(client).is_ok())
        };
        let caller = |client| Caller { client, ..Caller::default() };
        let taken = (0..READINGS_MAX).filter(|_| jobs.push(&caller(1), job(1)).is_none()).count();
        assert_eq!(taken, READINGS_OF_CLIENT_MAX);
        assert!([2, 3, 2].into_iter().all(|client| jobs.push(&caller(client), job(client)).is_none()));
        let shared = Shared::new((1, 2), &crate::admission::SpaceAdmission::default()).unwrap();
        while let Some(job) = jobs.pop() {
            job(&shared, ParseDecision::Read);
        }
        let order: Vec<u64> = heard.try_iter().collect();
        assert_eq!(order[..6], [1, 2, 3, 1, 2, 1]);
        assert_eq!((order.len(), jobs.waiting), (READINGS_OF_CLIENT_MAX + 3, 0));
        assert!(jobs.roles.iter().all(|role| role.lines.is_empty() && role.turns.is_empty()));
    }

    /// Another name in each request gains nothing beside another household, and services come first.
    #[test]
    fn households_take_turns_and_services_come_before_customers() {
        let mut jobs = Jobs::default();
        let (told, heard) = std::sync::mpsc::channel();
        let job = |number: u64| -> Job {
            let told = told.clone();
            Box::new(move |_, _| told.send(number).is_ok())
        };
        let customer = |client, household| Caller { client, household, ..Caller::default() };
        for name in 0..40 {
            assert!(jobs.push(&customer(100 + name, 1), job(1)).is_none());
        }
        for _ in 0..4 {
            assert!(jobs.push(&customer(7, 2), job(2)).is_none());
        }
        let service = KpStanding { role: KpRole::Service, ..KpStanding::default() };
        for _ in 0..20 {
            assert!(jobs.push(&customer(8, 3).of(3, service), job(3)).is_none());
        }
        let shared = Shared::new((1, 2), &crate::admission::SpaceAdmission::default()).unwrap();
        while let Some(job) = jobs.pop() {
            job(&shared, ParseDecision::Read);
        }
        let order: Vec<u64> = heard.try_iter().collect();
        let firsts: Vec<u64> = order.iter().copied().filter(|it| *it != 3).take(8).collect();
        assert_eq!(firsts, [1, 2, 1, 2, 1, 2, 1, 2]);
        assert_eq!((order[..15].iter().filter(|it| **it == 3).count(), order[15]), (15, 1), "never locked out");
        assert_eq!(order.len(), 64);
    }
}
