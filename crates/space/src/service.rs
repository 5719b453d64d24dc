//! The service: a writer, readers and a watcher, and the handle by which doors reach them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_graph::{Space, SpaceLimits, SubscriberId};
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tracing::error;

use crate::ask::{Answered, Ask, Asker, Refused};
use crate::desk::{Control, Shared};
use crate::keep::Keep;
use crate::limits::{READERS, STACK_BYTES};
use crate::owner::Owner;
use crate::reader;
use crate::watch::Watch;

/// The smart space while it runs. Dropping it ends its threads.
pub struct Service {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
}

/// By which doors ask.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    boot: u64,
}

/// A request that was made.
#[derive(Debug)]
pub struct Waiting {
    reply: oneshot::Receiver<Result<Answered, Refused>>,
    until: Instant,
    is_gone: Arc<AtomicBool>,
}

/// What an answer may be late by: the writer or reader itself says that it ended, or that it did not.
const GRACE: Duration = Duration::from_secs(1);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        error!(event = "random_failed", "the system gives no random numbers");
    }
    bytes
}

impl Service {
    /// An empty space.
    pub fn start(limits: SpaceLimits) -> io::Result<Self> {
        let seed = u64::from_le_bytes(random());
        Self::start_with(Space::new(seed, limits), None)
    }

    /// A space as it was restored, and what keeps its changes.
    pub fn start_with(space: Space, keep: Option<Box<dyn Keep>>) -> io::Result<Self> {
        let seed = (u64::from_le_bytes(random()), u64::from_le_bytes(random()));
        let shared = Shared::new(seed).ok_or(io::ErrorKind::InvalidInput)?;
        shared.version.store(space.version(), Ordering::SeqCst);
        let shared = Arc::new(shared);
        let mut service = Self {
            handle: Handle { shared: Arc::clone(&shared), boot: u64::from_le_bytes(random()) },
            threads: vec![],
        };
        let spawn = |name: &str, life: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(life)
        };
        let owner = Arc::clone(&shared);
        service.threads.push(spawn("space", Box::new(move || Owner::new(space, keep, owner).run()))?);
        for _ in 0..READERS {
            let shared = Arc::clone(&shared);
            service.threads.push(spawn("space-read", Box::new(move || reader::run(&shared)))?);
        }
        service.threads.push(spawn("space-watch", Box::new(move || shared.watch()))?);
        Ok(service)
    }

    /// By which doors ask.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.shared.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!(event = "panic", "a thread of the smart space has panicked");
            }
        }
    }
}

impl Handle {
    /// Asks and waits.
    pub async fn ask(&self, ask: Ask, asker: Asker) -> Result<Answered, Refused> {
        self.start(ask, asker).answer().await
    }

    /// Asks; what is asked first is done first, as far as it is of the same kind.
    pub fn start(&self, ask: Ask, asker: Asker) -> Waiting {
        let (sender, reply) = oneshot::channel();
        let is_gone = self.shared.offer(ask, asker, sender);
        Waiting { reply, until: Instant::now() + asker.patience + GRACE, is_gone }
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, id: SubscriberId) {
        self.shared.control(Control::Unsubscribe(id));
    }

    pub(crate) fn call(&self, ids: Vec<SubscriberId>) {
        if !ids.is_empty() {
            self.shared.control(Control::Call(ids));
        }
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::SeqCst)
    }

    /// A name for a version that no other run of this process has used.
    pub fn version_name(&self, version: u64) -> String {
        format!("\"{:016x}-{version}\"", self.boot)
    }

    /// Class, outcome and number of the requests so far.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.shared.counts.all()
    }

    /// What goes on, for an operator.
    pub fn watch(&self) -> &Watch {
        &self.shared.watch
    }

    /// Evaluations under way, and bytes of answers that exist.
    pub fn load(&self) -> (usize, usize) {
        (self.shared.running(), self.shared.held.load(Ordering::Relaxed))
    }
}

impl Waiting {
    /// Waits for the answer.
    pub async fn answer(mut self) -> Result<Answered, Refused> {
        self.wait().await
    }

    /// The same, for those who may be interrupted. Not to be called again after it has answered.
    pub async fn wait(&mut self) -> Result<Answered, Refused> {
        match timeout_at(self.until.into(), &mut self.reply).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Refused::Closing),
            Err(_) => Err(Refused::Late),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }
}
