//! Looks after the owner of the data. An owner that panicked may have left them half changed, so they are read again from
//! the log, by another thread, while the doors say that they will be back and everything else of the process goes on.
//! When to try, and when to give up, is decided in `condition`.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::limits::STACK_BYTES;
use crate::machine::condition::{Condition, PAUSE_MAX, Restarts};
use crate::panics::Part;
use crate::persistence::Persistence;
use crate::shared_state::{Shared, lock};
use crate::space_store::{RestoredSpace, SpaceOpening};
use crate::writer_thread::WriterThread;

/// A space, and what keeps its changes.
pub(crate) struct OpenedSpace {
    pub(crate) restored: RestoredSpace,
    pub(crate) keep: Option<Box<dyn Persistence>>,
    /// What was found, if it was read from somewhere.
    pub(crate) opening: Option<SpaceOpening>,
}

/// Reads the space, as often as it is called.
pub(crate) type Reopen = Arc<Mutex<dyn FnMut() -> io::Result<OpenedSpace> + Send>>;

/// Does something on a thread with a large stack, and waits for it. None if it panicked.
fn apart<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Option<T>> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work)?;
    Ok(thread.join().ok())
}

/// Reads the space: rules are parsed again, which needs as much stack as parsing them did. None if that panicked.
pub(crate) fn open(reopen: &Reopen) -> io::Result<Option<io::Result<OpenedSpace>>> {
    let reopen = Arc::clone(reopen);
    apart("space-open", move || (lock(&reopen))())
}

/// Starts the supervisor with a space that is open, or with none if opening it has panicked.
pub(crate) fn start(
    shared: Arc<Shared>,
    opened: Option<OpenedSpace>,
    reopen: Reopen,
    restarts: Restarts,
) -> io::Result<JoinHandle<()>> {
    let mut supervisor = WriterSupervisor { shared, reopen, restarts, lives: 0 };
    if opened.is_none() {
        supervisor.shared.suspend(Condition::Restarting);
    }
    thread::Builder::new().name("space-super".to_owned()).spawn(move || supervisor.run(opened))
}

/// Why there is no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Something of ours: it may do so each time, and is left alone at last.
    Panicked,
    /// The disk, or no thread is to be had: whenever that is over, the space is there again.
    Unreadable,
}

struct WriterSupervisor {
    shared: Arc<Shared>,
    reopen: Reopen,
    restarts: Restarts,
    /// How often the space was there before.
    lives: u64,
}

impl WriterSupervisor {
    fn run(&mut self, mut opened: Option<OpenedSpace>) {
        let (mut served, mut failure) = (Duration::ZERO, Failure::Panicked);
        loop {
            if let Some(opened) = opened.take() {
                let began = Instant::now();
                if self.serve(opened) || self.shared.is_closing() {
                    return;
                }
                (served, failure) = (began.elapsed(), Failure::Panicked);
            }
            self.shared.suspend(Condition::Restarting);
            let pause = match failure {
                Failure::Panicked => self.restarts.on_failure(served),
                Failure::Unreadable => Some(PAUSE_MAX),
            };
            let Some(pause) = pause else { return self.give_up() };
            served = Duration::ZERO;
            warn!(
                event = "space_restarting",
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "the smart space has failed and begins anew from its log; MQTT goes on"
            );
            if self.shared.pause(pause) {
                return;
            }
            match self.open() {
                Ok(again) => opened = Some(again),
                Err(why) => failure = why,
            }
        }
    }

    /// Lets an owner serve; false if it panicked.
    fn serve(&self, OpenedSpace { restored, mut keep, .. }: OpenedSpace) -> bool {
        let shared = Arc::clone(&self.shared);
        if let Some(keep) = &mut keep {
            let shared = Arc::clone(&shared);
            keep.listen(Box::new(move || shared.kept()));
        }
        let RestoredSpace { space, names } = restored;
        match apart("space", move || WriterThread::new(space, names, keep, shared).run()) {
            Ok(Some(is_well)) => is_well,
            Ok(None) => {
                self.shared.panics.count(Part::Writer);
                false
            }
            Err(error) => {
                error!(event = "space_failed", %error, "no thread for the owner of the smart space");
                false
            }
        }
    }

    fn open(&mut self) -> Result<OpenedSpace, Failure> {
        let (failure, error) = match open(&self.reopen) {
            Ok(Some(Ok(mut opened))) => {
                let space = &mut opened.restored.space;
                // A version that somebody has seen must not come again with another meaning.
                let before = self.shared.version.load(Ordering::SeqCst);
                if space.version() < before {
                    space.replay_version(before + 1);
                }
                // What an earlier owner had worked out may still come.
                self.lives += 1;
                space.replay_lives(self.lives);
                space.replay_subscribers_made(self.shared.subscribers_made.load(Ordering::SeqCst));
                let version = space.version();
                self.shared.resume(version);
                info!(event = "space_restarted", version, "the smart space serves again");
                return Ok(opened);
            }
            Ok(None) => {
                self.shared.panics.count(Part::Writer);
                (Failure::Panicked, "reading it panicked".to_owned())
            }
            Ok(Some(Err(error))) | Err(error) => (Failure::Unreadable, error.to_string()),
        };
        error!(event = "space_failed", error, "the smart space cannot be read again");
        Err(failure)
    }

    fn give_up(&self) {
        self.shared.suspend(Condition::Down);
        error!(
            event = "space_down",
            "the smart space has failed too often and stays down until the process is restarted; MQTT goes on"
        );
    }
}
