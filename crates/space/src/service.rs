//! The service: a writer, readers and a watcher, and the handle by which doors reach them.

use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_control::Spread;
use tidegate_graph::{GraphRights, GraphSpace, QueryLimits, SpaceLimits, SubscriberId};
use tidegate_store::disk::{Disk, FsDisk};
use tidegate_store::{LogOptions, StoreConfig, StoreError};
use tidegate_wire_ssap::SsapHeader;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tracing::error;

use crate::admission::SpaceAdmission;
use crate::counts::{Cancelled, Ssap};
use crate::crew::Crew;
use crate::drafter;
use crate::evaluator;
use crate::limits::{BEGUN_GRACE, GRACE, INLINE_STEPS_MAX, PARSERS, READERS, STACK_BYTES};
use crate::machine::condition::{Condition, PAUSE_MIN, Restarts};
use crate::machine::delegation::DelegationConfig;
use crate::machine::request::{Refused, RequestOrigin, SpaceResponse};
use crate::memory::{MemoryBudget, Texts};
use crate::notifications::{NotificationOutlet, SpaceRequest};
use crate::panics::{Part, Probe};
use crate::parsers::{self, Length};
use crate::persistence::Persistence;
use crate::progress::{RequestProgress, RequestStage};
use crate::reader;
use crate::shared_state::{Control, ReplyTo, Shared, lock};
use crate::space_store::{LogPersistence, RestoredSpace, SpaceOpening, SpaceStore};
use crate::supervisor::{self, OpenedSpace, Reopen};
use crate::watch::SpaceWatch;

/// The smart space while it runs. Dropping it ends its threads.
pub struct Service {
    handle: SpaceHandle,
    threads: Vec<JoinHandle<()>>,
    crews: Vec<Arc<Crew>>,
    store: Option<Arc<SpaceStore>>,
}

/// The handle by which protocols ask the space.
#[derive(Clone)]
pub struct SpaceHandle {
    pub(crate) shared: Arc<Shared>,
    boot: u64,
    /// What is asked by it is asked with these rights. None: with all.
    rights: Option<Arc<GraphRights>>,
    /// Their number: only those with equal rights share an answer.
    scope: u64,
}

/// A request that was made.
pub struct PendingReply {
    reply: oneshot::Receiver<Result<SpaceResponse, Refused>>,
    until: Instant,
    progress: Arc<RequestProgress>,
    is_change: bool,
    /// It was begun and its time is over: it is waited for a little longer.
    is_extended: bool,
    shared: Arc<Shared>,
}

impl fmt::Debug for SpaceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceHandle").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReply").field("progress", &self.progress).finish_non_exhaustive()
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
    /// The memory budget of the process.
    pub budget: Option<Arc<dyn MemoryBudget>>,
    /// The first pause before the space begins anew after a fault; each further one is twice as long.
    pub restart_pause: Duration,
    /// Where a test may make something go wrong.
    pub probe: Option<Arc<dyn Probe>>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        let (limits, admission) = (SpaceLimits::default(), SpaceAdmission::default());
        let delegation = DelegationConfig::default();
        Self { limits, admission, delegation, budget: None, restart_pause: PAUSE_MIN, probe: None }
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

/// An empty space. A version of an earlier run must not match one of this: there is less than a change in each
/// microsecond.
fn empty(limits: SpaceLimits) -> OpenedSpace {
    let mut space = GraphSpace::new(u64::from_le_bytes(random()), limits);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    space.replay_version(u64::try_from(now.as_micros()).unwrap_or_default());
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
        let (service, mut opening) = Self::open_with(disk, config, LogOptions::default(), options)?;
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
        shared.delegation = options.delegation;
        (shared.probe, shared.texts) = (options.probe.clone(), Texts::new(options.budget.clone()));
        if let Some(opened) = &opened {
            let version = opened.restored.space.version();
            shared.version.store(version, Ordering::SeqCst);
            lock(&shared.cache).forget(version);
        }
        let shared = Arc::new(shared);
        let handle = {
            let boot = u64::from_le_bytes(random());
            SpaceHandle { shared: Arc::clone(&shared), boot, rights: None, scope: 0 }
        };
        // From here on dropping the service ends what has begun.
        let mut service = Self { handle, threads: Vec::new(), crews: Vec::new(), store: None };
        let own = Arc::clone(&shared);
        service.crews.push(Crew::start("space-read", STACK_BYTES, READERS, move || reader::run(&own))?);
        let own = Arc::clone(&shared);
        service.crews.push(Crew::start("space-stand", STACK_BYTES, 1, move || evaluator::run(&own))?);
        let own = Arc::clone(&shared);
        service.crews.push(Crew::start("space-draft", STACK_BYTES, 1, move || drafter::run(&own))?);
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

impl SpaceHandle {
    /// Asks and waits.
    pub async fn ask(&self, ask: SpaceRequest, asker: RequestOrigin) -> Result<SpaceResponse, Refused> {
        self.start(ask, asker).answer().await
    }

    /// Asks; what is asked first is done first, as far as it is of the same kind.
    pub fn start(&self, ask: SpaceRequest, asker: RequestOrigin) -> PendingReply {
        let (sender, reply) = oneshot::channel();
        let patience = asker.patience.min(self.shared.time_max);
        let asker = RequestOrigin { patience, scope: self.scope, ..asker };
        let (is_change, progress) = (ask.is_change(), Arc::new(RequestProgress::default()));
        let until = Instant::now() + asker.patience + GRACE;
        let waiting = PendingReply::new(reply, until, Arc::clone(&progress), is_change, Arc::clone(&self.shared));
        let class = ask.class();
        match self.restrict(ask, &QueryLimits::default()) {
            Ok(ask) => self.shared.offer(ask, asker, ReplyTo { progress, charge: None, reply: sender }),
            Err(refused) => {
                let outcome = Err(refused);
                self.shared.counts.count(class, &outcome, Duration::ZERO);
                let _ = sender.send(outcome);
            }
        }
        waiting
    }

    /// The same space for somebody with these rights; none are all.
    #[must_use]
    pub fn restricted(&self, rights: Option<&Arc<GraphRights>>) -> Self {
        let rights = rights.filter(|rights| !rights.is_everything());
        let scope = rights.map_or(0, |rights| {
            use std::hash::{Hash, Hasher};
            let mut hasher = siphasher::sip::SipHasher24::new_with_keys(self.shared.seed.0, self.shared.seed.1);
            rights.hash(&mut hasher);
            // Zero is who may do everything.
            hasher.finish().max(1)
        });
        // What was seen with other rights is not what is there now.
        let boot = self.boot ^ self.scope ^ scope;
        Self { shared: Arc::clone(&self.shared), boot, rights: rights.cloned(), scope }
    }

    /// Whether there are graphs that are not for whoever has this handle.
    pub(crate) fn is_restricted(&self) -> bool {
        self.rights.is_some()
    }

    pub(crate) fn scope(&self) -> u64 {
        self.scope
    }

    /// What is asked, with the rights of whoever has this handle.
    pub(crate) fn restrict(&self, ask: SpaceRequest, limits: &QueryLimits) -> Result<SpaceRequest, Refused> {
        match &self.rights {
            Some(rights) => Ok(ask.restricted(rights, limits)?),
            None => Ok(ask),
        }
    }

    /// The number of a new connection whose changes are made in the order in which they are sent.
    pub(crate) fn new_flow(&self) -> u64 {
        self.shared.flows.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends a subscription of this connection.
    pub fn unsubscribe(&self, id: SubscriberId, outlet: &Arc<NotificationOutlet>) {
        self.shared.control(Control::Unsubscribe(id, Arc::clone(outlet)));
    }

    /// This connection is gone. Its subscription is kept up to date for a while, for its client to come back.
    pub fn depart(&self, id: SubscriberId, outlet: &Arc<NotificationOutlet>) {
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

    /// The version of such a name; none of another run.
    pub(crate) fn version_of_name(&self, name: &str) -> Option<u64> {
        name.strip_prefix(&format!("\"{:016x}-", self.boot))?.strip_suffix('"')?.parse().ok()
    }

    /// The present version, if whoever has seen that one has its answer already: nothing that the request reads was touched
    /// since.
    pub(crate) fn unchanged_at(&self, ask: &SpaceRequest, seen: Option<u64>) -> Option<u64> {
        let footprint = seen.and_then(|_| ask.footprint());
        let (seen, footprint) = seen.zip(footprint)?;
        lock(&self.shared.cache).unchanged_at(&footprint, seen)
    }

    /// A number for something that has a name, which nobody outside can foresee.
    pub(crate) fn number(&self, what: &impl Hash) -> u64 {
        let mut hasher = siphasher::sip::SipHasher24::new_with_keys(self.shared.seed.0, self.shared.seed.1);
        what.hash(&mut hasher);
        hasher.finish()
    }

    /// What was decided about requests for which there was no room, or no use: class, policy and number.
    pub fn pool_decisions(&self) -> Vec<(&'static str, &'static str, u64)> {
        lock(&self.shared.desk).front.decisions()
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

    pub(crate) fn note_ssap(&self, header: &SsapHeader, outcome: Ssap) {
        self.shared.counts.ssap(header, outcome);
    }

    /// What goes on, for an operator.
    pub fn watch(&self) -> &SpaceWatch {
        &self.shared.watch
    }

    /// Whether the space serves, begins anew, or has given up.
    pub fn condition(&self) -> Condition {
        self.shared.condition()
    }

    /// Parts that have panicked, and how often.
    pub fn panics(&self) -> Vec<(&'static str, u64)> {
        self.shared.panics.all().to_vec()
    }

    /// How often the space has begun anew, and how many threads were given up because they did not come back.
    pub fn restarts(&self) -> (u64, u64) {
        (self.shared.restarts.load(Ordering::Relaxed), self.shared.runaways.load(Ordering::Relaxed))
    }

    /// Connections that found no place, by door.
    pub fn turned_away(&self) -> Vec<(&'static str, u64)> {
        self.shared.counts.all_turned_away().to_vec()
    }

    /// Bytes that are charged for texts, and how often there was no room for one.
    pub fn texts(&self) -> (usize, u64) {
        self.shared.texts.report()
    }

    /// Evaluations under way, and bytes of answers that exist.
    pub fn load(&self) -> (usize, usize) {
        (self.shared.running(), self.shared.held.load(Ordering::Relaxed))
    }
}

impl PendingReply {
    pub(crate) fn new(
        reply: oneshot::Receiver<Result<SpaceResponse, Refused>>,
        until: Instant,
        progress: Arc<RequestProgress>,
        is_change: bool,
        shared: Arc<Shared>,
    ) -> Self {
        Self { reply, until, progress, is_change, is_extended: false, shared }
    }

    /// Waits for the answer.
    pub async fn answer(mut self) -> Result<SpaceResponse, Refused> {
        self.wait().await
    }

    /// The same, for those who may be interrupted. Not to be called again after it has answered.
    pub async fn wait(&mut self) -> Result<SpaceResponse, Refused> {
        loop {
            match timeout_at(self.until.into(), &mut self.reply).await {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(_)) => return Err(self.unanswered()),
                Err(_) if !self.is_change || self.progress.withdraw() => return Err(Refused::Late),
                // It was told to end. When it does, it is known what became of it.
                Err(_) if !self.is_extended && self.progress.stage() == RequestStage::Begun => {
                    self.is_extended = true;
                    self.until += BEGUN_GRACE;
                }
                Err(_) => return Err(Refused::Unconfirmed),
            }
        }
    }

    /// Whoever had it is gone without a word.
    fn unanswered(&self) -> Refused {
        match self.progress.stage() {
            RequestStage::Submitted => Refused::Unconfirmed,
            _ if self.shared.is_closing() => Refused::Closing,
            RequestStage::Begun => Refused::Panicked,
            _ => self.shared.unavailable().unwrap_or(Refused::Panicked),
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.progress.leave();
    }
}
