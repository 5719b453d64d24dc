//! The evaluator's work: standing queries that are too dear for the commit path, one after the other.
//!
//! It rests after each as long as that took, so that standing queries use half a processor at most, whatever they cost and
//! however often the data change: they are worked out less often then, not at the expense of everybody else. And longer while
//! the broker is pressed (`machine::yielding`).

use std::time::Instant;

use crate::crew::is_given_up;
use crate::panics::Part;
use crate::shared_state::{Control, Shared};
use crate::watcher::RunawayDuty;

/// Evaluates until the end; false if something panicked.
pub(crate) fn run(shared: &Shared) -> bool {
    shared.evaluator.live(shared, |evaluation| {
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
        if is_well && !is_given_up() {
            let took = began.elapsed();
            shared.evaluator.rest(took + shared.rest(took));
        }
        is_well
    })
}
