//! The evaluator's life: standing queries that are too dear for the commit path, one after the other.
//!
//! It rests after each as long as that took, so that standing queries use half a processor at most, whatever they cost and
//! however often the data change: they are worked out less often then, not at the expense of everybody else.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tidegate_graph::Evaluation;

use crate::crew::is_given_up;
use crate::panics::Part;
use crate::shared_state::{Control, Shared, lock};
use crate::watcher::RunawayDuty;

/// Evaluates until the end; false if something panicked.
pub(crate) fn run(shared: &Shared) -> bool {
    loop {
        // Also after another thread was given up in the middle of its work.
        shared.evaluator_is_free();
        let Some(evaluation) = shared.next_evaluation() else { return true };
        let (began, lost) = (Instant::now(), evaluation.lost());
        let outcome = shared.panics.catch(Part::Evaluator, || {
            shared.probe(Part::Evaluator);
            let until = shared.now() + shared.time_max;
            shared.watched(until, Vec::new(), Some((Part::Evaluator, RunawayDuty::Nobody)), |cancel| {
                evaluation.run(cancel)
            })
        });
        let is_well = outcome.is_ok();
        shared.control(Control::Evaluated(Box::new(outcome.unwrap_or(lost))));
        if is_given_up() {
            return true;
        }
        if !is_well {
            return false;
        }
        shared.rest(began.elapsed());
    }
}

impl Shared {
    /// Whether the evaluator waits for work.
    pub(crate) fn is_evaluator_idle(&self) -> bool {
        lock(&self.desk).evaluator_state.is_idle()
    }

    /// Hands the evaluator its next piece of work.
    pub(crate) fn evaluate(&self, evaluation: Evaluation) {
        lock(&self.desk).evaluator_state.call(evaluation);
        self.evaluator.notify_one();
    }

    fn evaluator_is_free(&self) {
        lock(&self.desk).evaluator_state.free();
        self.control(Control::Idle);
    }

    fn next_evaluation(&self) -> Option<Evaluation> {
        let mut desk = lock(&self.desk);
        loop {
            if desk.is_closing() {
                return None;
            }
            if let Some(evaluation) = desk.evaluator_state.take() {
                return Some(evaluation);
            }
            desk = self.evaluator.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut desk = lock(&self.desk);
        while !desk.is_closing() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.evaluator.wait_timeout(desk, left);
            desk = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(desk, _)| desk);
        }
    }
}
