//! The watcher: ends evaluations whose time is over, and those that nobody waits for any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tidegate_graph::CancelToken;

use crate::counts::Cancelled;
use crate::desk::{Shared, lock};
use crate::limits::WATCH_INTERVAL;

/// An evaluation under way.
pub(crate) struct Running {
    number: u64,
    token: CancelToken,
    until: Instant,
    /// Who waits for it; empty if it is done for its own sake.
    waiting: Vec<Arc<AtomicBool>>,
    is_cancelled: bool,
}

impl Shared {
    /// Runs an evaluation with a token that is cancelled when its time is over or nobody waits for it any more.
    pub(crate) fn watched<T>(
        &self,
        until: Instant,
        waiting: Vec<Arc<AtomicBool>>,
        work: impl FnOnce(CancelToken) -> T,
    ) -> T {
        let token = CancelToken::default();
        let number = {
            let mut desk = lock(&self.desk);
            desk.begun += 1;
            let number = desk.begun;
            desk.running.push(Running { number, token: token.clone(), until, waiting, is_cancelled: false });
            number
        };
        self.watcher.notify_one();
        let outcome = work(token);
        lock(&self.desk).running.retain(|running| running.number != number);
        outcome
    }

    /// The watcher's life.
    pub(crate) fn watch(&self) {
        let mut desk = lock(&self.desk);
        while !desk.is_closing {
            let now = Instant::now();
            for running in desk.running.iter_mut().filter(|running| !running.is_cancelled) {
                let is_unwanted = !running.waiting.is_empty()
                    && running.waiting.iter().all(|is_gone| is_gone.load(Ordering::Relaxed));
                if now >= running.until || is_unwanted {
                    running.token.cancel();
                    running.is_cancelled = true;
                    self.counts.cancelled(if is_unwanted { Cancelled::Abandoned } else { Cancelled::Time });
                }
            }
            desk = if desk.running.is_empty() {
                self.watcher.wait(desk).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.watcher.wait_timeout(desk, WATCH_INTERVAL);
                waited.map_or_else(|poisoned| poisoned.into_inner().0, |(desk, _)| desk)
            };
        }
        for running in desk.running.iter().filter(|running| !running.is_cancelled) {
            running.token.cancel();
            self.counts.cancelled(Cancelled::Shutdown);
        }
    }

    /// Evaluations under way.
    pub(crate) fn running(&self) -> usize {
        lock(&self.desk).running.len()
    }
}
