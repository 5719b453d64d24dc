//! What one thread has for another: batches of the core's, and messages of the rim's. Both bounded.
//!
//! Batches have a queue of their own because they are looked for before every piece of input: that look is one atomic
//! load. Whoever puts something in wakes the owner only if it may be asleep: the owner says "asleep" *before* it looks
//! for the last time, the sender looks at "asleep" *after* it has put something in, and both orders are sequentially
//! consistent, so at least one of them sees the other: `model.rs` looks at every order of their steps. Knows nothing of
//! what batches and messages mean.

#[cfg(test)]
mod model;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::Waker;
use tidegate_core::Batch;

use crate::limits::INBOX_SOCKETS_MAX;
use crate::thread_message::ThreadMessage;

/// The inbox of one shard thread; shared by all. (The type of a batch is a parameter for the tests' sake.)
#[derive(Debug)]
pub(crate) struct Inbox<B = Batch> {
    batches: Mutex<VecDeque<B>>,
    messages: Mutex<VecDeque<ThreadMessage>>,
    /// Lengths of the queues, to be seen without a lock.
    batches_waiting: AtomicUsize,
    letters_waiting: AtomicUsize,
    /// The owner is, or is about to be, waiting for events.
    asleep: AtomicBool,
    waker: Waker,
}

impl<B> Inbox<B> {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            batches: Mutex::default(),
            messages: Mutex::default(),
            batches_waiting: AtomicUsize::new(0),
            letters_waiting: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            waker,
        }
    }

    /// Puts a batch in; gives it back if there are `batches_max` already.
    pub(crate) fn push_batch(&self, batch: B, batches_max: usize) -> Result<(), B> {
        let mut queue = lock(&self.batches);
        if queue.len() >= batches_max {
            return Err(batch);
        }
        queue.push_back(batch);
        self.batches_waiting.store(queue.len(), Ordering::SeqCst);
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Puts a message in; gives it back if it carries a socket and there are too many of those.
    pub(crate) fn send(&self, message: ThreadMessage) -> Result<(), ThreadMessage> {
        let mut queue = lock(&self.messages);
        if message.carries_a_socket() && queue.len() >= INBOX_SOCKETS_MAX {
            return Err(message);
        }
        queue.push_back(message);
        self.letters_waiting.store(queue.len(), Ordering::SeqCst);
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Takes all batches, oldest first; `into` is empty before. Cheap when there are none.
    #[inline]
    pub(crate) fn take_batches(&self, into: &mut VecDeque<B>) {
        if self.batches_waiting.load(Ordering::Acquire) != 0 {
            let mut queue = lock(&self.batches);
            core::mem::swap(&mut *queue, into);
            self.batches_waiting.store(0, Ordering::SeqCst);
        }
    }

    /// Takes all messages, oldest first.
    pub(crate) fn take_messages(&self) -> VecDeque<ThreadMessage> {
        if self.letters_waiting.load(Ordering::Acquire) == 0 {
            return VecDeque::new();
        }
        let mut queue = lock(&self.messages);
        self.letters_waiting.store(0, Ordering::SeqCst);
        core::mem::take(&mut *queue)
    }

    /// The owner wants to sleep. False: there is something to do, it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        self.batches_waiting.load(Ordering::SeqCst) == 0 && self.letters_waiting.load(Ordering::SeqCst) == 0
    }

    /// The owner is awake: nobody needs to wake it.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Makes the owner turn once, if it sleeps.
    pub(crate) fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            // It happens when the process has no memory; the owner wakes up at its next timer.
            tracing::error!(event = "wake_failed", %error, "cannot wake a shard");
        }
    }
}

/// A queue stays whole whatever panicked while it was locked: nothing is done inside that could leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INBOX_BATCHES_MAX;
    use mio::{Events, Poll, Token};
    use std::sync::Arc;
    use std::time::Duration;

    fn inbox() -> (Poll, Inbox<u32>) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        (poll, Inbox::new(waker))
    }

    #[test]
    fn a_full_inbox_gives_the_batch_back() {
        let (_poll, inbox) = inbox();
        for number in 0..INBOX_BATCHES_MAX as u32 {
            inbox.push_batch(number, INBOX_BATCHES_MAX).unwrap();
        }
        assert_eq!(inbox.push_batch(777, INBOX_BATCHES_MAX), Err(777));
        let mut taken = VecDeque::new();
        inbox.take_batches(&mut taken);
        assert_eq!(taken.len(), INBOX_BATCHES_MAX);
        assert!(inbox.push_batch(777, INBOX_BATCHES_MAX).is_ok());
    }

    #[test]
    fn nobody_sleeps_over_a_batch() {
        let (_poll, inbox) = inbox();
        assert!(inbox.fall_asleep());
        inbox.wake_up();
        inbox.push_batch(7, INBOX_BATCHES_MAX).unwrap();
        assert!(!inbox.fall_asleep());
    }

    #[test]
    fn every_batch_arrives_at_an_owner_that_sleeps_whenever_it_can() {
        let (mut poll, inbox) = inbox();
        let inbox = Arc::new(inbox);
        let sender = std::thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                for number in 0..20_000 {
                    while inbox.push_batch(number, INBOX_BATCHES_MAX).is_err() {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let (mut events, mut seen) = (Events::with_capacity(8), 0);
        let mut batches = VecDeque::new();
        while seen < 20_000 {
            if inbox.fall_asleep() {
                poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
                assert!(!events.is_empty(), "slept over a batch after {seen}");
            }
            inbox.wake_up();
            inbox.take_batches(&mut batches);
            for batch in batches.drain(..) {
                assert_eq!(batch, seen, "in order");
                seen += 1;
            }
        }
        sender.join().unwrap();
    }
}
