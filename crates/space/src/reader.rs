//! A reader's life: one question after the other, each on a snapshot, each within its time. A panic costs the question
//! that met it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tidegate_control::hints::Hints;
use tidegate_graph::{QueryLimits, Snapshot};

use crate::combining::{self, RowKeeper};
use crate::crew::is_given_up;
use crate::limits::{ANSWER_BYTES_MAX, ROWS_KEPT_BYTES_MAX};
use crate::machine::cache::CachedRows;
use crate::machine::front_desk::Side;
use crate::machine::order::Taken;
use crate::machine::request::{AnswerSource, Refused, ResponseBody, SpaceResponse};
use crate::machine::running_queries::LateAsker;
use crate::machine::task::Requester;
use crate::memory::AnswerBytes;
use crate::notifications::SpaceRequest;
use crate::panics::Part;
use crate::render;
use crate::shared_state::{Shared, Task, lock};
use crate::watcher::{JobSlot, RunawayDuty, WatchTerms};

/// What is sent, by how it is written.
type WrittenAnswers = Vec<(u128, Result<Bytes, Refused>)>;

/// False if it is to be replaced.
pub(crate) fn run(shared: &Shared) -> bool {
    while let Some((taken, snapshot)) = shared.next_read() {
        // Beside the evaluation itself, which is caught closer to its request.
        if !shared.panics.catch(Part::Reader, || serve(shared, taken, &snapshot)).unwrap_or(false) {
            return false;
        }
        if is_given_up() {
            return true;
        }
    }
    true
}

/// False if the evaluation panicked.
fn serve(shared: &Shared, taken: Taken<Task>, snapshot: &Snapshot) -> bool {
    let Taken { job, value, joined, queued } = taken;
    let tasks: Vec<Task> = std::iter::once(value).chain(joined).collect();
    let Some(until) = tasks.iter().filter(|task| !task.requester.is_gone()).map(|task| task.until).max() else {
        // Nobody would read it.
        for task in tasks {
            shared.reply(task, Err(Refused::Late));
        }
        shared.cancelled(job, Side::Read, Duration::ZERO);
        return true;
    };
    let is_part = AtomicBool::new(false);
    let (began, job) = (shared.now(), JobSlot::new(Mutex::new(Some(job))));
    let waiting = tasks.iter().map(|task| Arc::clone(&task.requester.progress)).collect();
    let terms = WatchTerms::new(until, waiting);
    // What has no name is nobody else's answer.
    let names: Vec<u128> = tasks.iter().filter_map(|task| Some(task.name.as_ref()?.written)).collect();
    let question = tasks.iter().find_map(|task| Some(task.name.as_ref()?.question));
    let run = question.map(|question| {
        lock(&shared.evaluating).begin(began, snapshot.version(), (question, names), Arc::clone(&terms))
    });
    let own_terms = Arc::clone(&terms);
    let evaluated =
        shared.panics.catch(Part::Reader, || evaluate(shared, &tasks, own_terms, snapshot, (&job, &is_part)));
    let late = run.map(|run| lock(&shared.evaluating).end(run)).unwrap_or_default();
    let is_well = evaluated.is_ok();
    let version = snapshot.version();
    let answers = evaluated.unwrap_or_else(|_| vec![(0, Err(Refused::Panicked))]);
    // None if this reader was given up meanwhile.
    let job = lock(&job).take();
    let is_stopped = is_part.load(Ordering::Relaxed) || answers.iter().any(|(_, it)| *it == Err(Refused::Late));
    let job = match job {
        Some(job) if is_stopped && lock(&terms).yields() => {
            shared.take_back(job, tasks, shared.now().since(began));
            for LateAsker { asker, .. } in late {
                shared.answer_renamed(asker);
            }
            return is_well;
        }
        job => job,
    };
    match (&answers.first().map_or(Err(Refused::Closing), |(_, outcome)| outcome.clone()), job) {
        (Ok(_), Some(job)) => shared.served(job, Side::Read, shared.now().since(began)),
        (Err(_), Some(job)) => shared.cancelled(job, Side::Read, shared.now().since(began)),
        (_, None) => {}
    }
    // After a failure nothing more is written.
    let failed = answers.last().filter(|(_, outcome)| outcome.is_err());
    for (place, task) in tasks.into_iter().enumerate() {
        let source = match place {
            _ if is_part.load(Ordering::Relaxed) => AnswerSource::Partial,
            0 => AnswerSource::Fresh,
            _ => AnswerSource::Shared,
        };
        let hints = Hints { queued: Some(queued), ..task.hints.clone() };
        let of = |bytes| SpaceResponse { answer: ResponseBody::Bytes(bytes), version, hints, source };
        let own = answers.iter().find(|(written, _)| *written == written_name(&task)).or(failed);
        let outcome = own.map_or(Err(Refused::Closing), |(_, outcome)| outcome.clone());
        match outcome {
            Err(refused) if shared.may_stream(&task, &refused) => shared.stream(task, snapshot, queued),
            outcome => drop(shared.reply(task, outcome.map(of))),
        }
    }
    for LateAsker { asker: joined, version } in late {
        let own = answers.iter().find(|(written, _)| *written == written_name(&joined.task));
        // What is too long in one format may fit in another.
        if own.is_none() && failed.is_none_or(|(_, outcome)| *outcome == Err(Refused::TooLong)) {
            shared.answer_renamed(joined);
            continue;
        }
        let (asker, own) = (joined.task, own.or(failed));
        let hints = asker.hints.clone();
        let source = AnswerSource::Shared;
        let of = |bytes| SpaceResponse { answer: ResponseBody::Bytes(bytes), version, hints, source };
        match own.map_or(Err(Refused::Closing), |(_, outcome)| outcome.clone()) {
            Err(refused) if shared.may_stream(&asker, &refused) => shared.stream(asker, snapshot, Duration::ZERO),
            outcome => drop(shared.reply(asker, outcome.map(of))),
        }
    }
    is_well
}

/// The name of the answer as it is written for this one; 0 if it is not shared.
fn written_name(task: &Task) -> u128 {
    task.name.as_ref().map_or(0, |name| name.written)
}

/// The answer to one question, for each way in which it is to be written: worked out once if it is short, and remembered.
fn evaluate(
    shared: &Shared,
    tasks: &[Task],
    terms: Arc<Mutex<WatchTerms>>,
    snapshot: &Snapshot,
    (job, is_part): (&JobSlot, &AtomicBool),
) -> WrittenAnswers {
    shared.watched_by(terms, Some((Part::Reader, RunawayDuty::Job(Arc::clone(job)))), |cancel| {
        shared.probe(Part::Reader);
        if !shared.held.is_room() {
            return vec![(0, Err(Refused::busy(Duration::from_secs(1))))];
        }
        let token = cancel.clone();
        let limits = QueryLimits { cancel, result_bytes_max: 4 * ANSWER_BYTES_MAX, ..QueryLimits::default() };
        shared.watch.over(&tasks[0].ask, tasks.len(), &token, || {
            if let Some(probe) = &shared.probe {
                probe.at_rendering();
            }
            match &tasks[0].ask {
                SpaceRequest::Query { query, form } if tasks[0].accepts_partial && query.variables().is_some() => {
                    let outcome = render::part(query, *form, snapshot, &limits).map(|(bytes, is_cut)| {
                        is_part.store(is_cut, Ordering::Relaxed);
                        render::held(bytes, &shared.held)
                    });
                    vec![(0, outcome)]
                }
                _ => written(shared, tasks, snapshot, &limits),
            }
        })
    })
}

fn written(shared: &Shared, tasks: &[Task], snapshot: &Snapshot, limits: &QueryLimits) -> WrittenAnswers {
    let (mut answers, mut rows) = (WrittenAnswers::new(), None::<Arc<CachedRows>>);
    let is_one = tasks.iter().all(|task| written_name(task) == written_name(&tasks[0]));
    let kept_max = if is_one { ROWS_KEPT_BYTES_MAX } else { ANSWER_BYTES_MAX };
    for task in tasks {
        if answers.iter().any(|(written, _)| *written == written_name(task)) {
            continue;
        }
        if !answers.is_empty()
            && let Some(refused) = no_room_for_another(shared, limits)
        {
            // The name of nobody: for all that have none of their own.
            answers.push((0, Err(refused)));
            break;
        }
        let kept = rows.as_ref().and_then(|rows| match (&task.ask, &task.name) {
            (SpaceRequest::Query { query, form }, Some(name)) => {
                combining::write(query, *form, rows, &name.columns, None)
            }
            _ => None,
        });
        let outcome = if let Some(bytes) = kept {
            Ok(bytes)
        } else {
            let (outcome, found) = render(task, snapshot, limits, (kept_max, &shared.held));
            rows = rows.or(found);
            outcome
        };
        let outcome = outcome.map(|bytes| render::held(bytes, &shared.held));
        if let (Some(name), Ok(bytes)) = (&task.name, &outcome) {
            lock(&shared.cache).keep(name, snapshot.version(), bytes.clone());
        }
        // What is too long in one format may fit in another; whatever else is wrong is wrong for all.
        let is_over = !matches!(outcome, Ok(_) | Err(Refused::TooLong));
        answers.push((written_name(task), outcome));
        if is_over {
            break;
        }
    }
    if let (Some(rows), Some(name)) = (rows.filter(|rows| rows.bytes <= ROWS_KEPT_BYTES_MAX), &tasks[0].name) {
        lock(&shared.cache).keep_rows(name, snapshot.version(), &rows);
    }
    answers
}

/// Why an answer is not written once more under other names: each is kept until the last of them is written, and writing
/// takes time as evaluating does.
fn no_room_for_another(shared: &Shared, limits: &QueryLimits) -> Option<Refused> {
    if limits.cancel.is_cancelled() {
        return Some(Refused::Late);
    }
    (!shared.held.is_room()).then(|| Refused::busy(Duration::from_secs(1)))
}

/// One answer, and its rows if they are few.
fn render(
    task: &Task,
    snapshot: &Snapshot,
    limits: &QueryLimits,
    (kept_max, answers): (usize, &Arc<AnswerBytes>),
) -> (Result<Vec<u8>, Refused>, Option<Arc<CachedRows>>) {
    match &task.ask {
        SpaceRequest::Query { query, form } => {
            let name = task.name.as_ref().filter(|name| !name.columns.is_empty());
            let mut keeper = RowKeeper::new(name.map_or(0, |_| kept_max));
            let outcome = render::query(query, *form, snapshot, limits, &mut keeper);
            let rows = name.filter(|_| outcome.is_ok()).and_then(|name| keeper.finish(name, answers));
            (outcome, rows)
        }
        SpaceRequest::Match { masks, form } => (render::matches(masks, *form, snapshot, limits), None),
        // Everything else goes to the writer.
        _ => (Err(Refused::Closing), None),
    }
}
