//! A thread beside the writer that does one piece of work after the other: standing queries (`evaluator`), updates whose
//! `WHERE` takes long (`drafter`). The writer calls it when it is idle, and hears when it is.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::crew::is_given_up;
use crate::shared_state::{Control, Shared, lock};

/// What a thread is called for.
pub(crate) struct Worker<W> {
    state: Mutex<WorkerState<W>>,
    wake: Condvar,
}

enum WorkerState<W> {
    /// It works, rests, or has not begun.
    Busy,
    Idle,
    /// This is to be done next.
    Called(Box<W>),
    /// The service ends.
    Closed,
}

impl<W> Default for Worker<W> {
    fn default() -> Self {
        Self { state: Mutex::new(WorkerState::Busy), wake: Condvar::new() }
    }
}

impl<W> Worker<W> {
    /// Whether it waits for work.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(*lock(&self.state), WorkerState::Idle)
    }

    /// Hands it its next piece of work.
    pub(crate) fn call(&self, work: W) {
        let mut state = lock(&self.state);
        if !matches!(*state, WorkerState::Closed) {
            *state = WorkerState::Called(Box::new(work));
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Nothing is done any more.
    pub(crate) fn close(&self) {
        *lock(&self.state) = WorkerState::Closed;
        self.wake.notify_all();
    }

    /// Works until the end; false if something panicked, as each piece of work says.
    pub(crate) fn live(&self, shared: &Shared, work: impl Fn(W) -> bool) -> bool {
        loop {
            // Also after another thread was given up in the middle of its work.
            self.free();
            shared.control(Control::Idle);
            let Some(next) = self.next() else { return true };
            let is_well = work(next);
            if is_given_up() {
                return true;
            }
            if !is_well {
                return false;
            }
        }
    }

    /// A thread is free; another one may have taken its place and been called already.
    fn free(&self) {
        let mut state = lock(&self.state);
        if let WorkerState::Busy = *state {
            *state = WorkerState::Idle;
        }
    }

    /// What it is called for next; none when the service ends.
    fn next(&self) -> Option<W> {
        let mut state = lock(&self.state);
        loop {
            match std::mem::replace(&mut *state, WorkerState::Busy) {
                WorkerState::Called(work) => return Some(*work),
                WorkerState::Closed => {
                    *state = WorkerState::Closed;
                    return None;
                }
                other => *state = other,
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does nothing for so long, unless the service ends.
    pub(crate) fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = lock(&self.state);
        while !matches!(*state, WorkerState::Closed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
