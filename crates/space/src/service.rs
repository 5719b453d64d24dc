//! The service: a writer, readers and a watcher, and the handle by which doors reach them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_control::Spread;
use tidegate_graph::{Space, SpaceLimits, SubscriberId};
use tidegate_store::disk::{Disk, FsDisk};
use tidegate_store::{LogOptions, StoreConfig};
use tidegate_wire_ssap::Header;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tracing::error;

use crate::admission::Admission;
use crate::ask::{Answered, Ask, Asker, Refused};
use crate::counts::{Cancelled, Ssap};
use crate::desk::{Control, Shared};
use crate::keep::Keep;
use crate::limits::{READERS, STACK_BYTES};
use crate::outlet::Outlet;
use crate::owner::Owner;
use crate::reader;
use crate::vault::{Opening, Restored, Shelf, Vault};
use crate::watch::Watch;

/// The smart space while it runs. Dropping it ends its threads.
pub struct Service {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    vault: Option<Arc<Vault>>,
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
    is_change: bool,
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

/// The system's random numbers, drawn one by one: for what is seldom.
pub(crate) struct Chance;

impl rand_core::TryRng for Chance {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(u32::from_le_bytes(random()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(u64::from_le_bytes(random()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for byte in bytes {
            [*byte] = random();
        }
        Ok(())
    }
}

impl Service {
    /// An empty space, in memory only.
    pub fn start(limits: SpaceLimits) -> io::Result<Self> {
        Self::start_as(limits, &Admission::default())
    }

    /// The same, with a choice of how requests wait.
    pub fn start_as(limits: SpaceLimits, admission: &Admission) -> io::Result<Self> {
        let mut space = Space::new(u64::from_le_bytes(random()), limits);
        // A version of an earlier run must not match one of this: there is less than a change in each microsecond.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        space.replay_version(u64::try_from(now.as_micros()).unwrap_or_default());
        Self::start_with(Restored { space, names: Vec::new() }, None, admission)
    }

    /// The space that a directory keeps.
    pub fn open(config: &StoreConfig, limits: SpaceLimits, admission: &Admission) -> io::Result<(Self, Opening)> {
        let disk = FsDisk::open(&config.dir).map_err(io::Error::other)?;
        Self::open_as(disk, config, LogOptions::default(), limits, admission)
    }

    /// The same on any disk, for simulations.
    pub fn open_on<D: Disk + Send + 'static>(
        disk: D,
        config: &StoreConfig,
        log: LogOptions,
        limits: SpaceLimits,
    ) -> io::Result<(Self, Opening)> {
        Self::open_as(disk, config, log, limits, &Admission::default())
    }

    fn open_as<D: Disk + Send + 'static>(
        disk: D,
        config: &StoreConfig,
        log: LogOptions,
        limits: SpaceLimits,
        admission: &Admission,
    ) -> io::Result<(Self, Opening)> {
        // Rules are parsed again, which needs as much stack as parsing them did.
        let opened = thread::scope(|scope| {
            let builder = thread::Builder::new().name("space-open".to_owned()).stack_size(STACK_BYTES);
            let opening = builder.spawn_scoped(scope, || Vault::open(disk, config, log, limits))?;
            opening.join().map_err(|_| io::Error::other("the thread that opens the space has panicked"))
        })?;
        let (vault, restored, opening) = opened.map_err(io::Error::other)?;
        let shelf = Box::new(Shelf::new(Arc::clone(&vault)));
        let mut service = Self::start_with(restored, Some(shelf), admission)?;
        service.vault = Some(vault);
        Ok((service, opening))
    }

    /// The store; none if the space is in memory only.
    pub fn vault(&self) -> Option<Arc<Vault>> {
        self.vault.clone()
    }

    /// A space as it was restored, and what keeps its changes.
    pub fn start_with(restored: Restored, mut keep: Option<Box<dyn Keep>>, admission: &Admission) -> io::Result<Self> {
        let Restored { space, names } = restored;
        let seed = (u64::from_le_bytes(random()), u64::from_le_bytes(random()));
        let shared = Shared::new(seed, admission).ok_or(io::ErrorKind::InvalidInput)?;
        shared.version.store(space.version(), Ordering::SeqCst);
        let shared = Arc::new(shared);
        if let Some(keep) = &mut keep {
            let shared = Arc::clone(&shared);
            keep.listen(Box::new(move || shared.kept()));
        }
        let mut service = Self {
            handle: Handle { shared: Arc::clone(&shared), boot: u64::from_le_bytes(random()) },
            threads: vec![],
            vault: None,
        };
        let spawn = |name: &str, life: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(life)
        };
        let owner = Arc::clone(&shared);
        service.threads.push(spawn("space", Box::new(move || Owner::new(space, names, keep, owner).run()))?);
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
        let asker = Asker { patience: asker.patience.min(self.shared.time_max), ..asker };
        let is_change = ask.is_change();
        let is_gone = self.shared.offer(ask, asker, sender);
        Waiting { reply, until: Instant::now() + asker.patience + GRACE, is_gone, is_change }
    }

    /// Ends a subscription of this connection.
    pub fn unsubscribe(&self, id: SubscriberId, outlet: &Arc<Outlet>) {
        self.shared.control(Control::Unsubscribe(id, Arc::clone(outlet)));
    }

    /// This connection is gone. Its subscription is kept up to date for a while, for its client to come back.
    pub fn depart(&self, id: SubscriberId, outlet: &Arc<Outlet>) {
        self.shared.control(Control::Depart(id, Arc::clone(outlet)));
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

    /// A client as the pools know it: where it comes from and what it calls itself.
    pub(crate) fn client(&self, from: IpAddr, name: &[u8]) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = siphasher::sip::SipHasher24::new_with_keys(self.shared.seed.0, self.shared.seed.1);
        (from.to_canonical(), name).hash(&mut hasher);
        hasher.finish()
    }

    /// Class, outcome and number of the requests so far.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.shared.counts.all()
    }

    /// How long requests took from their coming to their answer, by class.
    pub fn times(&self) -> Vec<(&'static str, Spread)> {
        self.shared.counts.times()
    }

    /// Why evaluations were ended early, and how many.
    pub fn cancelled(&self) -> Vec<(&'static str, u64)> {
        self.shared.counts.all_cancelled().to_vec()
    }

    /// Ends an evaluation for an operator; false if there is none of this number.
    pub fn cancel(&self, number: u64) -> bool {
        let is_new = self.shared.watch.cancel(number);
        if is_new == Some(true) {
            self.shared.counts.cancelled(Cancelled::Operator);
        }
        is_new.is_some()
    }

    /// SSAP requests: what about, what became of them, and how many.
    pub fn ssap(&self) -> Vec<(String, &'static str, u64)> {
        self.shared.counts.all_ssap()
    }

    pub(crate) fn note_ssap(&self, header: &Header, outcome: Ssap) {
        self.shared.counts.ssap(header, outcome);
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
            // It may have been begun: its owner has ended, or the disk hangs.
            _ if self.is_change => Err(Refused::Unconfirmed),
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
