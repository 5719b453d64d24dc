//! The drafter's work: updates whose `WHERE` is more than a commit reads are worked out here, one after the other, while the
//! writer goes on. What becomes of them is decided by `machine::writer`.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidegate_control::Timestamp;
use tidegate_graph::{QueryLimits, UpdateDraft};

use crate::crew::is_given_up;
use crate::panics::Part;
use crate::shared_state::{Control, Shared, lock};
use crate::watcher::{LostDraftSlot, RunawayDuty};

/// An update to be worked out, until then.
pub(crate) type DraftWork = (UpdateDraft, Timestamp);

/// Works until the end; false if something panicked.
pub(crate) fn run(shared: &Shared) -> bool {
    shared.drafter.live(shared, |(draft, until)| {
        let began = Instant::now();
        let lost = LostDraftSlot::new(Mutex::new(Some(draft.lost())));
        let outcome = shared.panics.catch(Part::Reader, || {
            shared.probe(Part::Reader);
            let limits = QueryLimits::default();
            // Done for its own sake: whoever sent it may have gone, and meant it all the same.
            let duty = RunawayDuty::Draft(Arc::clone(&lost));
            shared.watched(until, Vec::new(), Some((Part::Reader, duty)), |cancel| draft.run(&limits, cancel))
        });
        let is_well = outcome.is_ok();
        // None if the writer was told already that it is lost.
        if let Some(lost) = lock(&lost).take() {
            shared.control(Control::Drafted(Box::new(outcome.unwrap_or(lost))));
        }
        if is_well && !is_given_up() {
            shared.drafter.rest(shared.rest(began.elapsed()));
        }
        is_well
    })
}
