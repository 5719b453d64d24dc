//! A reader's life: one question after the other, each on a snapshot, each within its time. A panic costs the question
//! that met it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_graph::{QueryLimits, Snapshot};

use crate::crew::is_given_up;
use crate::limits::{ANSWER_BYTES_MAX, ANSWERS_BYTES_MAX};
use crate::machine::front_desk::Side;
use crate::machine::order::Taken;
use crate::machine::request::{AnswerSource, Refused, ResponseBody, SpaceResponse};
use crate::machine::task::Requester;
use crate::notifications::SpaceRequest;
use crate::panics::Part;
use crate::render;
use crate::shared_state::{Shared, Task, lock};
use crate::watcher::JobSlot;

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
    let (began, job) = (shared.now(), JobSlot::new(Mutex::new(Some(job))));
    let evaluated = shared.panics.catch(Part::Reader, || evaluate(shared, &tasks, until, snapshot, &job));
    let is_well = evaluated.is_ok();
    let outcome = evaluated.unwrap_or(Err(Refused::Panicked));
    let version = snapshot.version();
    let outcome = outcome.map(|bytes| render::held(bytes, &shared.held));
    if let (Some(key), Ok(bytes)) = (tasks[0].key, &outcome) {
        lock(&shared.cache).keep(key, version, bytes.clone());
    }
    // None if this reader was given up meanwhile.
    let job = lock(&job).take();
    match (&outcome, job) {
        (Ok(_), Some(job)) => shared.served(job, Side::Read, shared.now().since(began)),
        (Err(_), Some(job)) => shared.cancelled(job, Side::Read, shared.now().since(began)),
        (_, None) => {}
    }
    for (place, task) in tasks.into_iter().enumerate() {
        let source = if place == 0 { AnswerSource::Fresh } else { AnswerSource::Shared };
        let hints = Hints { queued: Some(queued), ..task.hints.clone() };
        let of = |bytes| SpaceResponse { answer: ResponseBody::Bytes(bytes), version, hints, source };
        shared.reply(task, outcome.clone().map(of));
    }
    is_well
}

fn evaluate(
    shared: &Shared,
    tasks: &[Task],
    until: Timestamp,
    snapshot: &Snapshot,
    job: &JobSlot,
) -> Result<Vec<u8>, Refused> {
    let waiting = tasks.iter().map(|task| Arc::clone(&task.requester.progress)).collect();
    shared.watched(until, waiting, Some((Part::Reader, Some(job))), |cancel| {
        shared.probe(Part::Reader);
        if shared.held.load(Ordering::Relaxed) > ANSWERS_BYTES_MAX {
            return Err(Refused::busy(Duration::from_secs(1)));
        }
        let token = cancel.clone();
        let limits = QueryLimits { cancel, result_bytes_max: 4 * ANSWER_BYTES_MAX, ..QueryLimits::default() };
        shared.watch.over(&tasks[0].ask, tasks.len(), &token, || {
            if let Some(probe) = &shared.probe {
                probe.at_rendering();
            }
            match &tasks[0].ask {
                SpaceRequest::Query { query, form } => render::query(query, *form, snapshot, &limits),
                SpaceRequest::Match { masks, form } => render::matches(masks, *form, snapshot, &limits),
                // Everything else goes to the writer.
                _ => Err(Refused::Closing),
            }
        })
    })
}
