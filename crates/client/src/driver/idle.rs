//! Connections that wait for their next request: few, and not for long. A broker that closes first would be asked in vain.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::limits::{IDLE_LINES_MAX, IDLE_TIME, LINES_MAX};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Idle<L> {
    idle: Arc<Mutex<IdleLines<L>>>,
    time: Duration,
}

#[derive(Debug)]
struct IdleLines<L> {
    /// Each with the time at which it is closed, the oldest first.
    lines: VecDeque<(Instant, L)>,
    /// A task closes those whose time has come.
    is_tended: bool,
}

impl<L: Send + 'static> Default for Idle<L> {
    fn default() -> Self {
        Self::lasting(IDLE_TIME)
    }
}

impl<L: Send + 'static> Idle<L> {
    fn lasting(time: Duration) -> Self {
        let idle = IdleLines { lines: VecDeque::new(), is_tended: false };
        Self { idle: Arc::new(Mutex::new(idle)), time }
    }

    /// The one that was used last.
    pub(crate) fn take(&self) -> Option<L> {
        let (due, line) = lock(&self.idle).lines.pop_back()?;
        (due > Instant::now()).then_some(line)
    }

    /// Keeps one for the next request. While requests wait for a place, all are about to be used again: a busy client
    /// shall not open connections anew.
    pub(crate) fn put(&self, line: L, is_wanted: bool) {
        let max = if is_wanted { LINES_MAX } else { IDLE_LINES_MAX };
        let mut idle = lock(&self.idle);
        while idle.lines.len() >= max {
            idle.lines.pop_front();
        }
        idle.lines.push_back((Instant::now() + self.time, line));
        if !std::mem::replace(&mut idle.is_tended, true) {
            tokio::spawn(tend(Arc::downgrade(&self.idle)));
        }
    }
}

/// Closes those whose time has come, until there is none.
async fn tend<L>(idle: Weak<Mutex<IdleLines<L>>>) {
    while let Some(due) = idle.upgrade().and_then(|idle| lock(&idle).close(Instant::now())) {
        sleep_until(due).await;
    }
}

impl<L> IdleLines<L> {
    /// When the next one is to be closed.
    fn close(&mut self, now: Instant) -> Option<Instant> {
        while self.lines.front().is_some_and(|(due, _)| *due <= now) {
            self.lines.pop_front();
        }
        let next = self.lines.front().map(|(due, _)| *due);
        self.is_tended = next.is_some();
        next
    }
}

fn lock<L>(idle: &Mutex<IdleLines<L>>) -> MutexGuard<'_, IdleLines<L>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;
    use tokio::sync::oneshot::{Receiver, Sender, channel};

    use super::*;

    /// So many lines that are put down, and who sees them close.
    fn lines(count: usize) -> Vec<(Sender<()>, Receiver<()>)> {
        std::iter::repeat_with(channel).take(count).collect()
    }

    #[tokio::test]
    async fn few_are_kept_and_the_last_one_is_used_first() {
        let idle = Idle::lasting(Duration::from_secs(3600));
        let mut seen = Vec::new();
        let closed = |seen: &mut Vec<Receiver<()>>| -> Vec<bool> {
            seen.iter_mut().map(|end| end.try_recv() == Err(TryRecvError::Closed)).collect()
        };
        for (place, (line, end)) in lines(IDLE_LINES_MAX + 3).into_iter().enumerate() {
            let is_last = place == IDLE_LINES_MAX + 2;
            assert!(!is_last || !closed(&mut seen).contains(&true), "all are wanted");
            idle.put(line, !is_last);
            seen.push(end);
        }
        let closed = closed(&mut seen);
        assert_eq!(closed.iter().filter(|is_closed| **is_closed).count(), 3);
        assert_eq!(closed[..3], [true; 3], "the oldest");
        idle.take().unwrap().send(()).unwrap();
        assert!(seen.last_mut().unwrap().try_recv().is_ok());
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_and_what_comes_later_is_tended_again() {
        let idle = Idle::lasting(Duration::from_millis(20));
        for _ in 0..2 {
            for (line, end) in lines(3) {
                idle.put(line, false);
                assert!(end.await.is_err(), "closed by itself");
            }
            assert!(idle.take().is_none());
        }
        let (line, end) = channel::<()>();
        idle.put(line, false);
        drop(idle);
        assert!(end.await.is_err(), "and with the space");
    }
}
