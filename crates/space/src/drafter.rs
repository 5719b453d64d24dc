//! The drafter's life: updates whose `WHERE` is more than a commit reads are worked out here, one after the other, while the
//! writer goes on. What becomes of them is decided by `machine::writer`.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_control::Timestamp;
use tidegate_graph::{QueryLimits, UpdateDraft};

use crate::crew::is_given_up;
use crate::panics::Part;
use crate::shared_state::{Control, Shared, lock};
use crate::watcher::{LostDraftSlot, RunawayDuty};

/// What a thread beside the writer does.
pub(crate) enum WorkerState<W> {
    /// It works, rests, or has not begun.
    Busy,
    Idle,
    /// This is to be done next.
    Called(Box<W>),
}

impl<W> WorkerState<W> {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// A thread is free; another one may have taken its place and been called already.
    pub(crate) fn free(&mut self) {
        if let Self::Busy = self {
            *self = Self::Idle;
        }
    }

    pub(crate) fn call(&mut self, work: W) {
        *self = Self::Called(Box::new(work));
    }

    /// What it was called for.
    pub(crate) fn take(&mut self) -> Option<W> {
        match std::mem::replace(self, Self::Busy) {
            Self::Called(work) => Some(*work),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// An update to be worked out, until then.
pub(crate) type DraftWork = (UpdateDraft, Timestamp);

/// Works until the end; false if something panicked.
pub(crate) fn run(shared: &Shared) -> bool {
    loop {
        shared.drafter_is_free();
        let Some((draft, until)) = shared.next_draft() else { return true };
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
        if is_given_up() {
            return true;
        }
        if !is_well {
            return false;
        }
    }
}

impl Shared {
    /// Whether the drafter waits for work.
    pub(crate) fn is_drafter_idle(&self) -> bool {
        lock(&self.desk).drafter_state.is_idle()
    }

    /// Hands the drafter its next piece of work.
    pub(crate) fn draft(&self, work: DraftWork) {
        lock(&self.desk).drafter_state.call(work);
        self.drafter.notify_one();
    }

    fn drafter_is_free(&self) {
        lock(&self.desk).drafter_state.free();
        self.control(Control::Idle);
    }

    fn next_draft(&self) -> Option<DraftWork> {
        let mut desk = lock(&self.desk);
        loop {
            if desk.is_closing() {
                return None;
            }
            if let Some(work) = desk.drafter_state.take() {
                return Some(work);
            }
            desk = self.drafter.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
