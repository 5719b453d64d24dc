//! What has become of a request, as its door and its worker both see it: whether somebody waits, and how far it is. By it
//! a door knows whether a change that was not answered in time was never begun, or may have been done.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestStage {
    /// Nothing was done for it.
    Queued,
    /// It is being done; nobody sees anything of it.
    Begun,
    /// What it did was handed to the disk.
    Submitted,
    /// Its door has withdrawn it before it was begun.
    Withdrawn,
}

/// Shared by a door and a worker.
#[derive(Debug, Default)]
pub(crate) struct RequestProgress {
    is_gone: AtomicBool,
    stage: AtomicU8,
}

impl RequestProgress {
    /// Nobody waits any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> RequestStage {
        match self.stage.load(Ordering::SeqCst) {
            0 => RequestStage::Queued,
            1 => RequestStage::Begun,
            2 => RequestStage::Submitted,
            _ => RequestStage::Withdrawn,
        }
    }

    fn step(&self, from: RequestStage, to: RequestStage) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.stage.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// False if it was withdrawn: it must not be done.
    pub(crate) fn begin(&self) -> bool {
        self.step(RequestStage::Queued, RequestStage::Begun) || self.stage() != RequestStage::Withdrawn
    }

    pub(crate) fn submit(&self) {
        self.step(RequestStage::Begun, RequestStage::Submitted);
    }

    /// True if it was not begun, and never will be.
    pub(crate) fn withdraw(&self) -> bool {
        self.step(RequestStage::Queued, RequestStage::Withdrawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_it_is_begun_or_it_is_withdrawn() {
        let progress = RequestProgress::default();
        assert!(progress.withdraw() && !progress.begin());
        let progress = RequestProgress::default();
        assert!(progress.begin() && !progress.withdraw());
        progress.submit();
        assert_eq!((progress.stage(), progress.withdraw()), (RequestStage::Submitted, false));
    }
}
