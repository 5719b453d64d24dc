//! The handle by which doors ask the space and wait for what comes of it, and by which operators see what goes on.
//!
//! Knows neither protocols nor threads: what is asked is put into the order of service, whose lock is held for a moment.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_control::Spread;
use tidegate_graph::{GraphRights, QueryLimits, SubscriberId};
use tidegate_wire_ssap::SsapHeader;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::counts::{Cancelled, Ssap};
use crate::limits::{BEGUN_GRACE, GRACE};
use crate::machine::condition::Condition;
use crate::machine::request::{Refused, RequestOrigin, SpaceResponse};
use crate::notifications::{NotificationOutlet, SpaceRequest};
use crate::progress::{RequestProgress, RequestStage};
use crate::service::random;
use crate::shared_state::{Control, ReplyTo, Shared, lock};
use crate::watch::SpaceWatch;

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

impl SpaceHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let boot = u64::from_le_bytes(random());
        Self { shared, boot, rights: None, scope: 0 }
    }

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
        let within = asker.caller.limited.map_or(Ok(ask), |after| Err(Refused::Limited(after)));
        match within.and_then(|ask| self.restrict(ask, &QueryLimits::default())) {
            Ok(ask) => self.shared.offer(ask, asker, ReplyTo { progress, charge: None, reply: sender }),
            Err(refused) => {
                let outcome = Err(refused);
                self.shared.counts.count(class, &outcome, Duration::ZERO);
                self.shared.kps.on_answered(asker.caller.client, &outcome);
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

    /// Whether what takes long is held back, because the broker beside it is pressed for processors.
    pub fn is_yielding(&self) -> bool {
        let mut desk = lock(&self.shared.desk);
        // While nothing is asked, nobody has heard that it is over.
        self.shared.hear_pressure(&mut desk);
        desk.front.is_yielding()
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::SeqCst)
    }

    /// A name for a version as it is written in a form, which no other run of this process has used. A weak one: the same
    /// rows may come in another order.
    pub fn version_name(&self, version: u64, form: &str) -> String {
        format!("W/\"{:016x}-{version}-{form}\"", self.boot)
    }

    /// The version of such a name; none of another run, or in another form. `*` is whatever there is.
    pub(crate) fn version_of_name(&self, name: &str, form: &str) -> Option<u64> {
        if name == "*" {
            return Some(self.version());
        }
        // Compared weakly: RFC 9110, 13.1.2.
        let name = name.strip_prefix("W/").unwrap_or(name).strip_prefix('"')?.strip_suffix('"')?;
        name.strip_prefix(&format!("{:016x}-", self.boot))?.strip_suffix(form)?.strip_suffix('-')?.parse().ok()
    }

    /// The present version, if whoever has seen that one has its answer already: nothing that the request reads was touched
    /// since.
    pub(crate) fn unchanged_at(&self, ask: &SpaceRequest, seen: Option<u64>) -> Option<u64> {
        if self.condition() == Condition::Unsure {
            return None;
        }
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

    /// Whether there are endpoints that queries may ask.
    pub(crate) fn has_services(&self) -> bool {
        !self.shared.services.is_empty()
    }

    /// What became of calls to other endpoints, and how many.
    pub fn service_calls(&self) -> Vec<(&'static str, u64)> {
        self.shared.services.calls()
    }

    /// How answers ended that were sent while they were made, and how many.
    pub fn streamed(&self) -> Vec<(&'static str, u64)> {
        self.shared.counts.all_streamed().to_vec()
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
        (self.shared.running(), self.shared.held.sum())
    }

    /// Bytes that are charged for the data, and how often there was no room for more of them.
    pub fn data_memory(&self) -> (usize, u64) {
        self.shared.data.report()
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
