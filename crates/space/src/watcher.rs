//! The watcher: ends evaluations and readings of texts whose time is over, and those that nobody waits for any more. What
//! does not end although it was told to is given up, and another thread takes its place.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_control::Timestamp;
use tidegate_graph::{CancelToken, DraftedUpdate};
use tracing::error;

use crate::counts::Cancelled;
use crate::crew::{CrewMember, seat};
use crate::limits::{RUNAWAY_AFTER, WATCH_INTERVAL};
use crate::machine::front_desk::Side;
use crate::machine::order::Job;
use crate::panics::Part;
use crate::progress::RequestProgress;
use crate::shared_state::{Control, LockedState, Shared, lock};

/// Something under way.
pub(crate) struct WatchedWork {
    number: u64,
    token: CancelToken,
    terms: Arc<Mutex<WatchTerms>>,
    /// What it is done on, if that can be given up.
    on: Option<On>,
    state: WatchState,
}

/// For how long, and for whom, something goes on.
#[derive(Debug)]
pub(crate) struct WatchTerms {
    until: Timestamp,
    /// Who waits for it; empty if it is done for its own sake.
    waiting: Vec<Arc<RequestProgress>>,
    is_cancelled: bool,
    /// It keeps others waiting, and is to be done later.
    yields: bool,
}

impl WatchTerms {
    pub(crate) fn new(until: Timestamp, waiting: Vec<Arc<RequestProgress>>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { until, waiting, is_cancelled: false, yields: false }))
    }

    /// One more waits for it; false if it was told to end.
    pub(crate) fn extend(&mut self, until: Timestamp, waiting: &Arc<RequestProgress>) -> bool {
        if !self.is_cancelled {
            self.until = self.until.max(until);
            self.waiting.push(Arc::clone(waiting));
        }
        !self.is_cancelled
    }

    /// Whether it was told to end for the sake of others.
    pub(crate) fn yields(&self) -> bool {
        self.yields
    }

    /// Whether it is to end now, and whether that is because nobody waits.
    fn end(&mut self, now: Timestamp) -> Option<bool> {
        let is_unwanted = !self.waiting.is_empty() && self.waiting.iter().all(|progress| progress.is_gone());
        self.is_cancelled = now >= self.until || is_unwanted;
        self.is_cancelled.then_some(is_unwanted)
    }
}

/// A job in the order of readers. Whoever ends it takes it out: the reader, or the watcher if the reader is given up.
pub(crate) type JobSlot = Arc<Mutex<Option<Job>>>;

/// What is said of a draft that was lost, in the same way.
pub(crate) type LostDraftSlot = Arc<Mutex<Option<DraftedUpdate>>>;

/// Who else has to know that a thread is given up.
#[derive(Clone)]
pub(crate) enum RunawayDuty {
    Nobody,
    /// The order of readers.
    Job(JobSlot),
    /// The writer, who waits for it with other drafts behind.
    Draft(LostDraftSlot),
}

/// What something is done on.
#[derive(Clone)]
struct On {
    part: Part,
    seat: Arc<CrewMember>,
    duty: RunawayDuty,
    began: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    Wanted,
    /// Told to end at this time.
    Cancelled(Timestamp),
    /// The work did not end although it was cancelled.
    GivenUp,
}

/// Takes what runs off the list, however it ends.
struct WatchGuard<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        lock(&self.shared.desk).running.retain(|running| running.number != self.number);
    }
}

impl Shared {
    /// Does something with a token that is cancelled when its time is over or nobody waits for it any more.
    pub(crate) fn watched<T>(
        &self,
        until: Timestamp,
        waiting: Vec<Arc<RequestProgress>>,
        on: Option<(Part, RunawayDuty)>,
        work: impl FnOnce(CancelToken) -> T,
    ) -> T {
        self.watched_by(WatchTerms::new(until, waiting), on, work)
    }

    /// The same, where others may join.
    pub(crate) fn watched_by<T>(
        &self,
        terms: Arc<Mutex<WatchTerms>>,
        on: Option<(Part, RunawayDuty)>,
        work: impl FnOnce(CancelToken) -> T,
    ) -> T {
        let token = CancelToken::default();
        let on = on.zip(seat()).map(|((part, duty), seat)| On { part, seat, duty, began: self.now() });
        let mut desk = lock(&self.desk);
        if desk.is_closing() {
            // The watcher may have looked for the last time.
            token.cancel();
            self.counts.cancelled(Cancelled::Shutdown);
        }
        desk.begun += 1;
        let number = desk.begun;
        desk.running.push(WatchedWork { number, token: token.clone(), terms, on, state: WatchState::Wanted });
        let is_asleep = self.is_watcher_asleep.swap(false, Ordering::Relaxed);
        drop(desk);
        if is_asleep {
            self.watcher.notify_one();
        }
        let _ends = WatchGuard { shared: self, number };
        work(token)
    }

    /// The watcher's life.
    pub(crate) fn watch(&self) {
        let mut desk = lock(&self.desk);
        let mut was_empty = false;
        while !desk.is_closing() {
            self.probe(Part::Watcher);
            let now = self.now();
            let mut stuck = Vec::new();
            for running in &mut desk.running {
                stuck.extend(running.look(now, self));
            }
            self.stop_yielding(&mut desk, now);
            self.end_late_streams();
            let is_empty = desk.running.is_empty();
            if !stuck.is_empty() {
                drop(desk);
                for on in &stuck {
                    self.give_up(on);
                }
                desk = lock(&self.desk);
                continue;
            }
            // Not asleep at once: the next one follows within the interval as long as there is anything to do, and nobody
            // has to call.
            desk = if is_empty && was_empty {
                self.is_watcher_asleep.store(true, Ordering::Relaxed);
                self.watcher.wait(desk).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.watcher.wait_timeout(desk, WATCH_INTERVAL);
                waited.map_or_else(|poisoned| poisoned.into_inner().0, |(desk, _)| desk)
            };
            was_empty = is_empty;
        }
        for running in desk.running.iter().filter(|running| running.state == WatchState::Wanted) {
            running.token.cancel();
            self.counts.cancelled(Cancelled::Shutdown);
        }
    }

    /// Stops what keeps others waiting: its reader returns it.
    fn stop_yielding(&self, desk: &mut LockedState, now: Timestamp) {
        while let Some(number) = desk.front.poll_yielding(now) {
            if let Some(running) = desk.running.iter_mut().find(|running| running.is_job(number)) {
                running.stop(now);
                self.counts.cancelled(Cancelled::Yielded);
            }
        }
    }

    fn give_up(&self, on: &On) {
        let is_replaced = on.seat.give_up();
        self.runaways.fetch_add(1, Ordering::Relaxed);
        error!(
            event = "space_runaway",
            part = ?on.part,
            is_replaced,
            "something goes on although its time is over; its thread is given up"
        );
        match &on.duty {
            RunawayDuty::Job(job) if is_replaced => {
                if let Some(job) = lock(job).take() {
                    // Its place in the order is that of the thread that came instead.
                    self.cancelled(job, Side::Read, self.now().since(on.began));
                    self.reader.notify_all();
                }
            }
            RunawayDuty::Draft(lost) => {
                if let Some(lost) = lock(lost).take() {
                    self.control(Control::Drafted(Box::new(lost)));
                }
            }
            RunawayDuty::Nobody | RunawayDuty::Job(_) => {}
        }
    }

    /// The number of evaluations and readings under way.
    pub(crate) fn running(&self) -> usize {
        lock(&self.desk).running.len()
    }
}

impl WatchedWork {
    /// Whether it is this job of the readers.
    fn is_job(&self, number: u64) -> bool {
        let Some(On { duty: RunawayDuty::Job(job), .. }) = &self.on else { return false };
        self.state == WatchState::Wanted && lock(job).as_ref().is_some_and(|job| job.number() == number)
    }

    /// Has it end for the sake of others; nobody joins it any more.
    fn stop(&mut self, now: Timestamp) {
        let mut terms = lock(&self.terms);
        (terms.is_cancelled, terms.yields) = (true, true);
        self.token.cancel();
        self.state = WatchState::Cancelled(now);
    }

    /// Ends it if it is to end. Says what is to be given up.
    fn look(&mut self, now: Timestamp, shared: &Shared) -> Option<On> {
        match self.state {
            WatchState::Wanted => {
                if let Some(is_unwanted) = lock(&self.terms).end(now) {
                    self.token.cancel();
                    self.state = WatchState::Cancelled(now);
                    shared.counts.cancelled(if is_unwanted { Cancelled::Abandoned } else { Cancelled::Time });
                }
                None
            }
            WatchState::Cancelled(at) if now >= at + RUNAWAY_AFTER => {
                self.state = WatchState::GivenUp;
                self.on.clone()
            }
            WatchState::Cancelled(_) | WatchState::GivenUp => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tidegate_graph::{GraphSpace, QueryLimits, SpaceLimits, Update};

    use super::*;
    use crate::admission::SpaceAdmission;
    use crate::crew::Crew;
    use crate::machine::front_desk::NextWrite;
    use crate::machine::writer::WriterWait;

    #[test]
    fn the_writer_hears_of_a_draft_whose_thread_is_given_up() {
        let shared = Shared::new((1, 2), &SpaceAdmission::default()).unwrap();
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        let text = "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }";
        let draft = space.begin_draft(&Update::parse(text, &QueryLimits::default()).unwrap()).unwrap();
        let slot = LostDraftSlot::new(Mutex::new(Some(draft.lost())));
        let (told, heard) = mpsc::channel();
        let crew = Crew::start("test", 1 << 20, 1, move || told.send(seat().unwrap()).is_ok()).unwrap();
        let on = On {
            part: Part::Reader,
            seat: heard.recv().unwrap(),
            duty: RunawayDuty::Draft(Arc::clone(&slot)),
            began: shared.now(),
        };
        shared.give_up(&on);
        let next = lock(&shared.desk).front.next_write(shared.now(), WriterWait::Free, false, &[]);
        let NextWrite::Control(Control::Drafted(drafted)) = next else { panic!("the writer waits on") };
        assert!(drafted.number() == draft.number() && drafted.error().is_some());
        assert!(lock(&slot).is_none(), "it is said once");
        crew.join();
    }
}
