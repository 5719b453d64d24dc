//! The service: a writer, readers and a watcher, their beginning and their end. Doors reach them by its `handle`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_graph::{GraphSpace, SpaceLimits};
use tidegate_store::disk::{Disk, FsDisk, Mirror, MirroredDisk};
use tidegate_store::{LogOptions, StoreConfig, StoreError};
use tracing::error;

use crate::admission::SpaceAdmission;
use crate::crew::Crew;
use crate::drafter;
use crate::evaluator;
use crate::handle::SpaceHandle;
use crate::limits::{INLINE_STEPS_MAX, PARSERS, READERS, STACK_BYTES};
use crate::machine::condition::{PAUSE_MIN, Restarts};
use crate::machine::delegation::DelegationConfig;
use crate::memory::{AnswerBytes, DataMemory, MemoryBudget, SpaceMemory, Texts};
use crate::panics::{Part, Probe};
use crate::parsers::{self, Length};
use crate::persistence::Persistence;
use crate::pressure::PressureSource;
use crate::reader;
use crate::service_endpoints::{ServiceEndpoint, ServiceEndpoints};
use crate::shared_state::{Shared, lock};
use crate::space_store::{LogPersistence, RestoredSpace, SpaceOpening, SpaceStore, version_of_now};
use crate::streamer::{self, LongAnswerConfig};
use crate::supervisor::{self, OpenedSpace, Reopen};

/// The smart space while it runs. Dropping it ends its threads.
pub struct Service {
    handle: SpaceHandle,
    threads: Vec<JoinHandle<()>>,
    crews: Vec<Arc<Crew>>,
    store: Option<Arc<SpaceStore>>,
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
pub(crate) struct SystemChance;

impl rand_core::TryRng for SystemChance {
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

/// What a service is given beside its data.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Bounds of the data.
    pub limits: SpaceLimits,
    /// How long requests of each class may wait.
    pub admission: SpaceAdmission,
    /// How many subscriptions may be handed over to their clients under load.
    pub delegation: DelegationConfig,
    /// How answers are sent that are too long to be held.
    pub long_answers: LongAnswerConfig,
    /// Endpoints that queries with `SERVICE` may ask; none: nobody is asked.
    pub services: Vec<ServiceEndpoint>,
    /// The memory budget of the process.
    pub budget: Option<Arc<dyn MemoryBudget>>,
    /// Who knows how hard the process is pressed; nobody: it never is.
    pub pressure: Option<Arc<dyn PressureSource>>,
    /// Where else a change has to be kept before it is confirmed. While that is not certain of its owner, nobody is served.
    pub mirror: Option<Arc<dyn Mirror>>,
    /// The first pause before the space begins anew after a fault; each further one is twice as long.
    pub restart_pause: Duration,
    /// Where a test may make something go wrong.
    pub probe: Option<Arc<dyn Probe>>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        let (limits, admission) = (SpaceLimits::default(), SpaceAdmission::default());
        let (delegation, long_answers) = (DelegationConfig::default(), LongAnswerConfig::default());
        let (services, restart_pause, probe) = (Vec::new(), PAUSE_MIN, None);
        let (budget, pressure, mirror) = (None, None, None);
        Self { limits, admission, delegation, long_answers, services, budget, pressure, mirror, restart_pause, probe }
    }
}

impl ServiceOptions {
    fn usual(limits: SpaceLimits, admission: &SpaceAdmission) -> Self {
        Self { limits, admission: *admission, ..Self::default() }
    }

    /// Of a space with an evaluator beside it.
    fn data_limits(&self) -> SpaceLimits {
        SpaceLimits { inline_steps_max: self.limits.inline_steps_max.min(INLINE_STEPS_MAX), ..self.limits.clone() }
    }
}

/// An empty space. A version of an earlier run must not match one of this.
fn empty(limits: SpaceLimits) -> OpenedSpace {
    let mut space = GraphSpace::new(u64::from_le_bytes(random()), limits);
    space.replay_version(version_of_now());
    OpenedSpace { restored: RestoredSpace { space, names: Vec::new() }, keep: None, opening: None }
}

impl Service {
    /// An empty space, in memory only.
    pub fn start(limits: SpaceLimits) -> io::Result<Self> {
        Self::start_as(limits, &SpaceAdmission::default())
    }

    /// The same, with a choice of how requests wait.
    pub fn start_as(limits: SpaceLimits, admission: &SpaceAdmission) -> io::Result<Self> {
        Self::start_by(&ServiceOptions::usual(limits, admission))
    }

    /// The same, with all options. If its owner panics, it begins anew with nothing in it: it was kept nowhere.
    pub fn start_by(options: &ServiceOptions) -> io::Result<Self> {
        let limits = options.data_limits();
        let again: Reopen = Arc::new(Mutex::new(move || Ok(empty(limits.clone()))));
        Self::run(Some(empty(options.data_limits())), again, options)
    }

    /// The space that a directory keeps.
    pub fn open(
        config: &StoreConfig,
        limits: SpaceLimits,
        admission: &SpaceAdmission,
    ) -> io::Result<(Self, SpaceOpening)> {
        let (service, opening) = Self::open_by(config, &ServiceOptions::usual(limits, admission))?;
        let opening = opening.ok_or_else(|| io::Error::other("the thread that opens the space has panicked"))?;
        Ok((service, opening))
    }

    /// The same, with all options. If reading it panics, which is a fault of ours, the service starts all the same, and
    /// tries again as it does after a panic of its owner: then there is no opening to report.
    pub fn open_by(config: &StoreConfig, options: &ServiceOptions) -> io::Result<(Self, Option<SpaceOpening>)> {
        let (dir, narrowed) = (config.dir.clone(), Arc::new(Mutex::new(None)));
        let seen = Arc::clone(&narrowed);
        let disk = move || {
            let disk = FsDisk::open(&dir)?;
            *lock(&seen) = disk.narrowed().map(str::to_owned);
            Ok(disk)
        };
        let log = LogOptions::default();
        let (service, mut opening) = match options.mirror.clone() {
            None => Self::open_with(disk, config, log, options)?,
            Some(mirror) => {
                let disk = move || Ok(MirroredDisk::new(disk()?, Arc::clone(&mirror)));
                Self::open_with(disk, config, log, options)?
            }
        };
        if let Some(opening) = &mut opening {
            opening.notes.extend(lock(&narrowed).take());
        }
        Ok((service, opening))
    }

    /// The same on any disk, for simulations. It can be opened once.
    pub fn open_on<D: Disk + Send + 'static>(
        disk: D,
        config: &StoreConfig,
        log: LogOptions,
        limits: SpaceLimits,
    ) -> io::Result<(Self, SpaceOpening)> {
        let mut disk = Some(disk);
        let disk = move || disk.take().ok_or(StoreError::Failed);
        let options = ServiceOptions::usual(limits, &SpaceAdmission::default());
        let (service, opening) = Self::open_with(disk, config, log, &options)?;
        let opening = opening.ok_or_else(|| io::Error::other("the thread that opens the space has panicked"))?;
        Ok((service, opening))
    }

    fn open_with<D: Disk + Send + 'static>(
        mut disk: impl FnMut() -> Result<D, StoreError> + Send + 'static,
        config: &StoreConfig,
        log: LogOptions,
        options: &ServiceOptions,
    ) -> io::Result<(Self, Option<SpaceOpening>)> {
        let (store, limits) = (SpaceStore::new(config), options.data_limits());
        let shelves = Arc::clone(&store);
        let open: Reopen = Arc::new(Mutex::new(move || {
            let (restored, opening) = shelves.open(&mut disk, log, limits.clone()).map_err(io::Error::other)?;
            let keep: Box<dyn Persistence> = Box::new(LogPersistence::new(Arc::clone(&shelves)));
            Ok(OpenedSpace { restored, keep: Some(keep), opening: Some(opening) })
        }));
        let mut opened = supervisor::open(&open)?.transpose()?;
        let opening = opened.as_mut().and_then(|opened| opened.opening.take());
        let mut service = Self::run(opened, open, options)?;
        service.store = Some(store);
        Ok((service, opening))
    }

    /// The store; none if the space is in memory only.
    pub fn store(&self) -> Option<Arc<SpaceStore>> {
        self.store.clone()
    }

    /// A space as it was restored, and what keeps its changes. It cannot be restored again.
    pub fn start_with(
        restored: RestoredSpace,
        keep: Option<Box<dyn Persistence>>,
        admission: &SpaceAdmission,
    ) -> io::Result<Self> {
        let again: Reopen = Arc::new(Mutex::new(|| Err(io::Error::other("it cannot be restored again"))));
        let opened = OpenedSpace { restored, keep, opening: None };
        Self::run(Some(opened), again, &ServiceOptions::usual(SpaceLimits::default(), admission))
    }

    fn run(opened: Option<OpenedSpace>, again: Reopen, options: &ServiceOptions) -> io::Result<Self> {
        let seed = (u64::from_le_bytes(random()), u64::from_le_bytes(random()));
        let mut shared = Shared::new(seed, &options.admission).ok_or(io::ErrorKind::InvalidInput)?;
        (shared.delegation, shared.long_answers) = (options.delegation, options.long_answers);
        shared.services = ServiceEndpoints::new(options.services.clone());
        shared.pressure.clone_from(&options.pressure);
        shared.mirror.clone_from(&options.mirror);
        let memory = SpaceMemory::new(options.budget.clone(), &shared.cache);
        (shared.probe, shared.texts) = (options.probe.clone(), Texts::new(&memory));
        (shared.held, shared.data) = (AnswerBytes::new(&memory), DataMemory::new(&memory));
        if let Some(opened) = &opened {
            let version = opened.restored.space.version();
            shared.version.store(version, Ordering::SeqCst);
            lock(&shared.cache).forget(version);
        }
        let shared = Arc::new(shared);
        let handle = SpaceHandle::new(Arc::clone(&shared));
        // From here on dropping the service ends what has begun.
        let mut service = Self { handle, threads: Vec::new(), crews: Vec::new(), store: None };
        let own = Arc::clone(&shared);
        service.crews.push(Crew::start("space-read", STACK_BYTES, READERS, move || reader::run(&own))?);
        let own = Arc::clone(&shared);
        service.crews.push(Crew::start("space-stand", STACK_BYTES, 1, move || evaluator::run(&own))?);
        let own = Arc::clone(&shared);
        service.crews.push(Crew::start("space-draft", STACK_BYTES, 1, move || drafter::run(&own))?);
        let own = Arc::clone(&shared);
        let life = move || streamer::run(&own);
        service.crews.push(Crew::start("space-stream", STACK_BYTES, shared.long_answers.threads(), life)?);
        for length in [Length::Short, Length::Long] {
            let own = Arc::clone(&shared);
            let life = move || parsers::run(&own, length);
            service.crews.push(Crew::start("space-parse", STACK_BYTES, PARSERS, life)?);
        }
        let own = Arc::clone(&shared);
        let watch = move || own.panics.catch(Part::Watcher, || own.watch()).is_ok();
        service.crews.push(Crew::start("space-watch", WATCHER_STACK_BYTES, 1, watch)?);
        service.threads.push(supervisor::start(shared, opened, again, Restarts::new(options.restart_pause))?);
        Ok(service)
    }

    /// The handle by which protocols ask the space.
    pub fn handle(&self) -> SpaceHandle {
        self.handle.clone()
    }
}

/// The watcher only looks at lists.
const WATCHER_STACK_BYTES: usize = 256 << 10;

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.shared.close();
        for crew in &self.crews {
            crew.join();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!(event = "panic", "a thread of the smart space has panicked");
            }
        }
    }
}
