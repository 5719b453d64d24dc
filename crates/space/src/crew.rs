//! Threads that may be given up. Each does one piece of work after the other; one that panicked ends and another takes its
//! place, because nobody knows what a panic has left behind in a thread. One that does not come back from its work cannot
//! be ended from outside: it is given up, another takes its place, and it ends when it does come back. There is a bound to
//! how many are given up at once.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::error;

use crate::limits::{RUNAWAY_AFTER, RUNAWAYS_MAX};
use crate::shared_state::lock;

/// What a thread of the crew does; false to be replaced, because something panicked. It returns true at the end of the
/// service, and when [`is_given_up`] says after a piece of work that another thread has its place.
type Life = dyn Fn() -> bool + Send + Sync;

/// Threads with one task.
pub(crate) struct Crew {
    name: &'static str,
    stack_bytes: usize,
    life: Arc<Life>,
    threads: Mutex<Vec<(Arc<CrewMember>, JoinHandle<()>)>>,
    /// Those that were given up and have not come back.
    given_up: AtomicUsize,
}

/// The place of one thread in its crew.
pub(crate) struct CrewMember {
    crew: Weak<Crew>,
    is_given_up: AtomicBool,
}

thread_local! {
    static SEAT: RefCell<Option<Arc<CrewMember>>> = const { RefCell::new(None) };
}

/// The place of the thread that calls this; none if it belongs to no crew.
pub(crate) fn seat() -> Option<Arc<CrewMember>> {
    SEAT.with_borrow(Clone::clone)
}

/// Whether the thread that calls this was given up: another has its place, and it is one too many.
pub(crate) fn is_given_up() -> bool {
    seat().is_some_and(|seat| seat.is_given_up.load(Ordering::SeqCst))
}

impl CrewMember {
    /// Its thread does not come back: another takes its place. False if too many of the crew are given up already.
    pub(crate) fn give_up(&self) -> bool {
        let Some(crew) = self.crew.upgrade() else { return false };
        let more = |given_up: usize| (given_up < RUNAWAYS_MAX).then_some(given_up + 1);
        if self.is_given_up.load(Ordering::SeqCst)
            || crew.given_up.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err()
        {
            return false;
        }
        self.is_given_up.store(true, Ordering::SeqCst);
        if crew.add().is_err() {
            self.is_back(&crew);
            return false;
        }
        true
    }

    /// Its thread is there again, or ends; true if it had been given up.
    fn is_back(&self, crew: &Crew) -> bool {
        let was_given_up = self.is_given_up.swap(false, Ordering::SeqCst);
        if was_given_up {
            crew.given_up.fetch_sub(1, Ordering::SeqCst);
        }
        was_given_up
    }
}

impl Crew {
    /// Starts so many threads.
    pub(crate) fn start(
        name: &'static str,
        stack_bytes: usize,
        number: usize,
        life: impl Fn() -> bool + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let (life, given_up) = (Arc::new(life), AtomicUsize::new(0));
        let crew = Arc::new(Self { name, stack_bytes, life, threads: Mutex::default(), given_up });
        for _ in 0..number {
            crew.add()?;
        }
        Ok(crew)
    }

    fn add(self: &Arc<Self>) -> io::Result<()> {
        let (crew, life) = (Arc::downgrade(self), Arc::clone(&self.life));
        let seat = Arc::new(CrewMember { crew: Weak::clone(&crew), is_given_up: AtomicBool::new(false) });
        let own = Arc::clone(&seat);
        let one = move || {
            SEAT.set(Some(Arc::clone(&own)));
            let is_well = life();
            let Some(crew) = crew.upgrade() else { return };
            let has_place = !own.is_back(&crew);
            if has_place
                && !is_well
                && let Err(error) = crew.add()
            {
                error!(event = "space_thread_lost", thread = crew.name, %error, "no thread takes the place of one that panicked");
            }
        };
        let thread = thread::Builder::new().name(self.name.to_owned()).stack_size(self.stack_bytes).spawn(one)?;
        let mut threads = lock(&self.threads);
        threads.retain(|(_, thread)| !thread.is_finished());
        threads.push((seat, thread));
        Ok(())
    }

    /// Waits for all of them, but for those that were given up or would be: the process ends without them.
    pub(crate) fn join(&self) {
        let until = Instant::now() + RUNAWAY_AFTER;
        loop {
            let Some((seat, thread)) = lock(&self.threads).pop() else { return };
            let is_lost = || seat.is_given_up.load(Ordering::SeqCst) || Instant::now() >= until;
            while !thread.is_finished() && !is_lost() {
                thread::sleep(JOIN_INTERVAL);
            }
            if thread.is_finished() && thread.join().is_err() {
                error!(event = "panic", thread = self.name, "a thread of the smart space has panicked");
            }
        }
    }
}

/// How often it is looked at the end whether a thread has ended: nothing can be awaited for a bounded time.
const JOIN_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn whoever_panicked_is_replaced_by_another_thread() {
        let (work, taken) = mpsc::channel::<bool>();
        let (told, heard) = mpsc::channel();
        let (taken, told) = (Mutex::new(taken), Mutex::new(told));
        let crew = Crew::start("test", 1 << 20, 1, move || {
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
    fn who_was_given_up_retires_when_it_comes_back_and_nobody_else() {
        let (work, taken) = mpsc::channel::<mpsc::Receiver<()>>();
        let (told, heard) = mpsc::channel();
        let (taken, told) = (Mutex::new(taken), Mutex::new(told));
        let crew = Crew::start("test", 1 << 20, 1, move || {
            loop {
                let Ok(end) = lock(&taken).recv() else { return true };
                lock(&told).send((thread::current().id(), seat().unwrap())).unwrap();
                let _ = end.recv();
                if is_given_up() {
                    return true;
                }
            }
        });
        let crew = crew.unwrap();
        let (mut ends, mut lost) = (Vec::new(), Vec::new());
        for number in 0..=RUNAWAYS_MAX {
            let (end, awaited) = mpsc::channel::<()>();
            work.send(awaited).unwrap();
            let (id, seat) = heard.recv().unwrap();
            assert_eq!(seat.give_up(), number < RUNAWAYS_MAX, "only so many are given up");
            assert!(!lost.contains(&id));
            ends.push(end);
            lost.push(id);
        }
        // The last one was not given up: it works on, again and again.
        drop(ends.pop());
        for _ in 0..3 {
            let (end, awaited) = mpsc::channel();
            work.send(awaited).unwrap();
            assert_eq!(Some(&heard.recv().unwrap().0), lost.last());
            drop(end);
        }
        drop(work);
        crew.join();
        assert_eq!(crew.given_up.load(Ordering::SeqCst), RUNAWAYS_MAX, "nobody waits for who does not come back");
        drop(ends);
        while crew.given_up.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
    }
}
