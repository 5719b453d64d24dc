//! Long answers: whatever is too long to be held is evaluated once more by a thread for that, on the snapshot on which that was
//! found, and sent while it is made.
//!
//! Those threads have places of their own, few of them, so that a client that reads slowly keeps nobody from reading: short
//! queries have the readers, and other long answers the other places or their turn. Of those that wait the next is of the
//! household that has the fewest under way.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_graph::{GraphError, Limit, QueryLimits, Snapshot};

use crate::answer_stream::{StreamEnd, StreamTerms};
use crate::crew::is_given_up;
use crate::limits::{
    STREAM_BYTES_MAX, STREAM_GRAPH_BYTES_MAX, STREAM_STALL, STREAM_TIME_MAX, STREAMERS, STREAMERS_MAX,
    STREAMS_WAITING_MAX,
};
use crate::machine::request::{AnswerDelivery, AnswerSource, Form, Refused, ResponseBody, SpaceResponse};
use crate::machine::task::Requester;
use crate::notifications::SpaceRequest;
use crate::panics::Part;
use crate::progress::RequestProgress;
use crate::render;
use crate::shared_state::{Shared, Task, lock};
use crate::watcher::{RunawayDuty, WatchTerms};

/// What an operator may choose about long answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongAnswerConfig {
    /// How many are sent at once; 0: none, whoever asks for one is refused. At most [`STREAMERS_MAX`].
    pub places: usize,
    /// How long their readers may take nothing.
    pub stall: Duration,
    /// Bytes of the terms of answers to `CONSTRUCT` and `DESCRIBE`, of all places together; each has its share.
    pub graph_bytes_max: usize,
    /// Bytes of one answer to a query.
    pub bytes_max: u64,
}

impl Default for LongAnswerConfig {
    fn default() -> Self {
        let (graph_bytes_max, bytes_max) = (STREAM_GRAPH_BYTES_MAX, STREAM_BYTES_MAX);
        Self { places: STREAMERS, stall: STREAM_STALL, graph_bytes_max, bytes_max }
    }
}

impl LongAnswerConfig {
    /// Threads that send them.
    pub(crate) fn threads(&self) -> usize {
        self.places.min(STREAMERS_MAX)
    }

    /// Bytes of one answer. A product of patterns has no end of its own; a graph that is kept has the length of what is kept.
    fn bytes_max(&self, ask: &SpaceRequest) -> u64 {
        match ask {
            SpaceRequest::Match { .. } => u64::MAX,
            _ => self.bytes_max,
        }
    }

    /// Bytes of the terms of one answer: only what the evaluator keeps has an end.
    fn result_bytes_max(&self, ask: &SpaceRequest) -> usize {
        match ask {
            SpaceRequest::Query { form: Form::Graph(_), .. } => self.graph_bytes_max / self.threads().max(1),
            _ => usize::MAX,
        }
    }
}

/// An answer that was found to be long.
pub(crate) struct LongAnswer {
    task: Task,
    snapshot: Snapshot,
    queued: Duration,
}

#[derive(Default)]
struct LongAnswerState {
    waiting: VecDeque<Box<LongAnswer>>,
    /// The households of those under way.
    running: Vec<u64>,
    is_closed: bool,
}

/// Long answers that wait for a place.
#[derive(Default)]
pub(crate) struct LongAnswers {
    state: Mutex<LongAnswerState>,
    wake: Condvar,
}

impl LongAnswers {
    /// Gives it back if too many wait already, or none is sent.
    fn push(&self, answer: Box<LongAnswer>) -> Result<(), Box<LongAnswer>> {
        let mut state = lock(&self.state);
        if state.is_closed || state.waiting.len() >= STREAMS_WAITING_MAX {
            return Err(answer);
        }
        state.waiting.push_back(answer);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for the next; none when the service ends.
    fn next(&self) -> Option<Box<LongAnswer>> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return None;
            }
            let LongAnswerState { waiting, running, .. } = &mut *state;
            let of = |household: u64| running.iter().filter(|other| **other == household).count();
            let next = (0..waiting.len()).min_by_key(|place| (of(waiting[*place].task.household), *place));
            if let Some(answer) = next.and_then(|place| waiting.remove(place)) {
                running.push(answer.task.household);
                return Some(answer);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes out those whose time is over, or for whom nobody waits any more.
    fn take_over(&self, now: Timestamp) -> VecDeque<Box<LongAnswer>> {
        let mut state = lock(&self.state);
        let (over, waiting) = std::mem::take(&mut state.waiting).into_iter().partition(|it| it.task.is_over(now));
        state.waiting = waiting;
        over
    }

    fn end(&self, household: u64) {
        let mut state = lock(&self.state);
        if let Some(place) = state.running.iter().position(|other| *other == household) {
            state.running.swap_remove(place);
        }
    }

    /// What waits is dropped, which its doors take for the end.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.waiting.clear();
        drop(state);
        self.wake.notify_all();
    }
}

impl Shared {
    /// Whether an answer that could not be held, for this reason, is sent while it is made.
    pub(crate) fn may_stream(&self, task: &Task, refused: &Refused) -> bool {
        let is_long =
            matches!(refused, Refused::TooLong | Refused::Failed(GraphError::Limit(Limit::Rows | Limit::ResultBytes)));
        is_long && task.delivery != AnswerDelivery::Whole && self.long_answers.threads() > 0
    }

    /// Has an answer sent while it is made, as soon as there is a place.
    pub(crate) fn stream(&self, task: Task, snapshot: &Snapshot, queued: Duration) {
        self.end_late_streams();
        let answer = Box::new(LongAnswer { task, snapshot: snapshot.clone(), queued });
        if let Err(answer) = self.streams.push(answer) {
            self.reply(answer.task, Err(Refused::busy(BUSY_RETRY)));
        }
    }

    /// Whoever waits for a place longer than it has time is told so, and its snapshot is given back. Also by the watcher,
    /// which is awake while an answer is under way: only then others wait.
    pub(crate) fn end_late_streams(&self) {
        for LongAnswer { task, .. } in self.streams.take_over(self.now()).into_iter().map(|late| *late) {
            self.reply(task, Err(Refused::Late));
        }
    }
}

/// When to come back if too many long answers wait.
const BUSY_RETRY: Duration = Duration::from_secs(5);

/// A streamer's life; false if something panicked.
pub(crate) fn run(shared: &Shared) -> bool {
    while let Some(answer) = shared.streams.next() {
        let household = answer.task.household;
        let sent = shared.panics.catch(Part::Reader, || send(shared, *answer));
        shared.streams.end(household);
        if is_given_up() {
            return true;
        }
        if sent.is_err() {
            return false;
        }
    }
    true
}

fn send(shared: &Shared, answer: LongAnswer) {
    let LongAnswer { task, snapshot, queued } = answer;
    let now = shared.now();
    if task.requester.is_gone() || task.until <= now {
        shared.reply(task, Err(Refused::Late));
        return;
    }
    let progress = Arc::new(RequestProgress::default());
    let until = match task.delivery {
        // Whoever said how long it waits does not read on after that.
        AnswerDelivery::StreamedInTime => task.until.min(now + STREAM_TIME_MAX),
        _ => now + STREAM_TIME_MAX,
    };
    let terms = WatchTerms::new(until, vec![Arc::clone(&progress)]);
    let (stall, bytes_max) = (shared.long_answers.stall, shared.long_answers.bytes_max(&task.ask));
    let waiting = Mutex::new(Some(task));
    let stream = StreamTerms { stall, bytes_max, held: Arc::clone(&shared.held), progress };
    shared.watched_by(terms, Some((Part::Reader, RunawayDuty::Nobody)), |cancel| {
        shared.probe(Part::Reader);
        let nothing = SpaceRequest::RemoveRule(String::new());
        let Some(ask) = lock(&waiting).as_mut().map(|task| std::mem::replace(&mut task.ask, nothing)) else { return };
        let limits = QueryLimits {
            cancel: cancel.clone(),
            rows_max: usize::MAX,
            result_bytes_max: shared.long_answers.result_bytes_max(&ask),
            ..QueryLimits::default()
        };
        let mut sink = stream.pipe(cancel.clone(), |reader| {
            if let Some(task) = lock(&waiting).take() {
                let (answer, source) = (ResponseBody::Stream(reader), AnswerSource::Streamed);
                let hints = Hints { queued: Some(queued), ..task.hints.clone() };
                let version = snapshot.version();
                shared.reply(task, Ok(SpaceResponse { answer, version, hints, source }));
            }
        });
        let outcome = shared.watch.over(&ask, 1, &cancel, || render::stream(&ask, &snapshot, &limits, &mut sink));
        let was_open = sink.is_open();
        let end = match (&outcome, sink.finish(outcome.is_ok())) {
            // What the evaluation says of it is less than what is known.
            (Err(Refused::Late), StreamEnd::Failed) => StreamEnd::Cancelled,
            (Err(Refused::Failed(GraphError::Limit(Limit::ResultBytes))), StreamEnd::Failed) => StreamEnd::TooLong,
            (_, end) => end,
        };
        if was_open || outcome.is_ok() {
            shared.counts.streamed(end);
        } else if let (Err(refused), Some(task)) = (outcome, lock(&waiting).take()) {
            // Nothing was sent: it can still be said what is wrong.
            shared.reply(task, Err(refused));
        }
    });
}

#[cfg(test)]
mod tests {
    use tidegate_control::admission::Class;
    use tidegate_graph::{GraphSpace, SpaceLimits};
    use tokio::sync::oneshot;

    use super::*;
    use crate::admission::SpaceAdmission;
    use crate::machine::delegation::DelegationTerms;
    use crate::shared_state::ReplyTo;

    #[test]
    fn who_waits_for_a_place_longer_than_it_has_time_is_told_so_and_holds_nothing() {
        let shared = Shared::new((1, 2), &SpaceAdmission::default()).unwrap();
        let snapshot = GraphSpace::new(1, SpaceLimits::default()).snapshot();
        let wait = |until: Timestamp| {
            let (reply, answer) = oneshot::channel();
            let task = Task {
                ask: SpaceRequest::RemoveRule(String::new()),
                class: Class::Query,
                name: None,
                began: shared.now(),
                until,
                accepts_partial: false,
                check: None,
                client: 0,
                flow: 0,
                household: 0,
                delivery: AnswerDelivery::Streamed,
                delegation: DelegationTerms::default(),
                hints: Hints::default(),
                requester: ReplyTo { progress: Arc::default(), charge: None, reply },
            };
            shared.stream(task, &snapshot, Duration::ZERO);
            answer
        };
        let mut patient = wait(shared.now() + Duration::from_secs(60));
        let mut late = wait(shared.now());
        // Nobody sends anything here, and nobody else comes.
        shared.end_late_streams();
        assert!(matches!(late.try_recv(), Ok(Err(Refused::Late))));
        assert!(patient.try_recv().is_err());
        assert_eq!(lock(&shared.streams.state).waiting.len(), 1);
    }
}
