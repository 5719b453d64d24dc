//! Threads that may be given up. Each does one piece of work after the other; one that panicked ends and another takes its
//! place, because nobody knows what a panic has left behind in a thread. One that does not come back from its work cannot
//! be ended from outside: it is given up, another takes its place, and it ends when it does come back. There is a bound to
//! how many are given up at once.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tracing::error;

use crate::desk::lock;
use crate::limits::RUNAWAYS_MAX;

/// What a thread of the crew does; false to be replaced, because something panicked. It returns true at the end of the
/// service, or when [`Crew::retires`] says so.
type Life = dyn Fn() -> bool + Send + Sync;

/// Threads with one task.
pub(crate) struct Crew {
    name: &'static str,
    stack_bytes: usize,
    life: Arc<Life>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Those that were given up and have not come back.
    given_up: Arc<AtomicUsize>,
}

impl Crew {
    /// Starts so many threads.
    pub(crate) fn start(
        name: &'static str,
        stack_bytes: usize,
        number: usize,
        life: impl Fn(&Arc<AtomicUsize>) -> bool + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let given_up = Arc::new(AtomicUsize::new(0));
        let shown = Arc::clone(&given_up);
        let life = Arc::new(move || life(&shown));
        let crew = Arc::new(Self { name, stack_bytes, life, threads: Mutex::default(), given_up });
        for _ in 0..number {
            crew.add()?;
        }
        Ok(crew)
    }

    fn add(self: &Arc<Self>) -> io::Result<()> {
        let (crew, life) = (Arc::downgrade(self), Arc::clone(&self.life));
        let one = move || {
            if !life()
                && let Some(crew) = crew.upgrade()
                && let Err(error) = crew.add()
            {
                error!(event = "space_thread_lost", thread = crew.name, %error, "no thread takes the place of one that panicked");
            }
        };
        let thread = thread::Builder::new().name(self.name.to_owned()).stack_size(self.stack_bytes).spawn(one)?;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// One does not come back: another takes its place. False if too many are given up already.
    pub(crate) fn give_one_up(self: &Arc<Self>) -> bool {
        let more = |given_up: usize| (given_up < RUNAWAYS_MAX).then_some(given_up + 1);
        if self.given_up.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err() {
            return false;
        }
        if self.add().is_err() {
            self.given_up.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Waits for all of them, but for those that were given up.
    pub(crate) fn join(&self) {
        loop {
            let Some(thread) = lock(&self.threads).pop() else { return };
            if self.given_up.load(Ordering::SeqCst) > 0 && !thread.is_finished() {
                // It may be the one that does not come back; the process ends without it.
                continue;
            }
            if thread.join().is_err() {
                error!(event = "panic", thread = self.name, "a thread of the smart space has panicked");
            }
        }
    }
}

/// After each piece of work: whether this thread is one too many, because another has taken the place of one that came
/// back after all.
pub(crate) fn retires(given_up: &AtomicUsize) -> bool {
    given_up.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |given_up| given_up.checked_sub(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn whoever_panicked_is_replaced_by_another_thread() {
        let (work, taken) = mpsc::channel::<bool>();
        let (told, heard) = mpsc::channel();
        let (taken, told) = (Mutex::new(taken), Mutex::new(told));
        let crew = Crew::start("test", 1 << 20, 1, move |_| {
            let Ok(is_well) = lock(&taken).recv() else { return true };
            lock(&told).send(thread::current().id()).unwrap();
            is_well
        });
        let crew = crew.unwrap();
        work.send(false).unwrap();
        let first = heard.recv().unwrap();
        work.send(false).unwrap();
        assert_ne!(heard.recv().unwrap(), first);
        drop(work);
        crew.join();
    }

    #[test]
    fn only_so_many_are_given_up_and_each_that_comes_back_makes_one_retire() {
        let (stop, stopped) = mpsc::channel::<()>();
        let stopped = Mutex::new(stopped);
        let crew = Crew::start("test", 1 << 20, 1, move |_| lock(&stopped).recv().is_err()).unwrap();
        let given_up = (0..2 * RUNAWAYS_MAX).filter(|_| crew.give_one_up()).count();
        assert_eq!(given_up, RUNAWAYS_MAX);
        let retired = (0..2 * RUNAWAYS_MAX).filter(|_| retires(&crew.given_up)).count();
        assert_eq!(retired, RUNAWAYS_MAX);
        drop(stop);
        crew.join();
    }
}
