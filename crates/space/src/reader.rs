//! A reader's life: one question after the other, each on a snapshot, each within its time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_control::hints::Hints;
use tidegate_graph::{QueryLimits, Snapshot};

use crate::ask::{Answer, Answered, Ask, Refused, Source};
use crate::desk::{Shared, Task, lock};
use crate::limits::{ANSWER_BYTES_MAX, ANSWERS_BYTES_MAX};
use crate::order::Taken;
use crate::render;

pub(crate) fn run(shared: &Shared) {
    while let Some((taken, snapshot)) = shared.next_read() {
        serve(shared, taken, &snapshot);
    }
}

fn serve(shared: &Shared, taken: Taken<Task>, snapshot: &Snapshot) {
    let Taken { job, value, joined, queued } = taken;
    let alive = |task: &Task| !task.is_gone.load(Ordering::Relaxed);
    let tasks: Vec<Task> = std::iter::once(value).chain(joined).collect();
    let Some(until) = tasks.iter().filter(|task| alive(task)).map(|task| task.until).max() else {
        // Nobody would read it.
        for task in tasks {
            shared.reply(task, Err(Refused::Late));
        }
        return shared.cancelled(job, true, Duration::ZERO);
    };
    let began = Instant::now();
    let waiting = tasks.iter().map(|task| Arc::clone(&task.is_gone)).collect();
    let outcome = shared.watched(until, waiting, |cancel| {
        if shared.held.load(Ordering::Relaxed) > ANSWERS_BYTES_MAX {
            return Err(Refused::busy(Duration::from_secs(1)));
        }
        let token = cancel.clone();
        let limits = QueryLimits { cancel, result_bytes_max: 4 * ANSWER_BYTES_MAX, ..QueryLimits::default() };
        shared.watch.over(&tasks[0].ask, tasks.len(), &token, || match &tasks[0].ask {
            Ask::Query { query, form } => render::query(query, *form, snapshot, &limits),
            Ask::Match { masks, form } => render::matches(masks, *form, snapshot, &limits),
            // Everything else goes to the writer.
            _ => Err(Refused::Closing),
        })
    });
    let version = snapshot.version();
    let outcome = outcome.map(|bytes| render::held(bytes, &shared.held));
    if let (Some(key), Ok(bytes)) = (tasks[0].key, &outcome) {
        lock(&shared.cache).keep(key, version, bytes.clone());
    }
    match &outcome {
        Ok(_) => shared.served(job, true, began.elapsed()),
        Err(_) => shared.cancelled(job, true, began.elapsed()),
    }
    for (place, task) in tasks.into_iter().enumerate() {
        let source = if place == 0 { Source::Fresh } else { Source::Shared };
        let hints = Hints { queued: Some(queued), ..task.hints.clone() };
        let of = |bytes| Answered { answer: Answer::Bytes(bytes), version, hints, source };
        shared.reply(task, outcome.clone().map(of));
    }
}
